"""Recurrent cells: each is its step and, beside it, the adjoint of its step.

Index convention, at step i of one sequence:

    p = W_ih x_i + b_ih        projected input   (..., batch, gates * hidden)
    a = W_hh h_{i-1} + b_hh    hidden part       (..., batch, gates * hidden)
    z_i = step(p, a, z_{i-1})  z = (h,), or (h, c) for the LSTM

    J_i = dz_i / dz_{i-1}      pull_back: d_{i-1} = g_{i-1} + J_i^T d_i

`step` is the equations as they stand in books. A scan takes it in two halves, in place: the gates,
`activate`, which are kept, and what they do to the state, `advance`. The adjoint is linear in d and
its coefficients depend on the forward pass alone. So `linearise` computes them for all steps at
once from the gates, the loop that must run backwards in time holds one matrix product and little
else, and the gradients of the weights are one large product after it. Training and measuring run
the same loop; measuring puts several paths on a leading axis of d.

Gate order and equations are those of `torch.nn.RNN`, `GRU` and `LSTM` (Cho et al. 2014;
Hochreiter and Schmidhuber 1997), so that weights load there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

State = tuple[Tensor, ...]
"""The tensors of `Cell.states`, each (..., batch, hidden), or (..., batch, time, hidden)."""
Gates = tuple[Tensor, ...]
"""What `activate` returns; every tensor has the step's leading axes."""
Coefficients = tuple[Tensor, ...]
"""What `linearise` returns; every tensor has the step's leading axes."""


Out = Sequence[Tensor | None]
NEW: Out = (None, None)


class Cell(ABC):
    """One step of a recurrence and its adjoint. Cells hold no weights.

    `out`, where a method takes it, holds the tensors to be filled and returned.
    """

    states: tuple[str, ...] = ("h",)
    gates: int
    only_sums = True  # whether p and a enter only as p + a

    @abstractmethod
    def step(self, p: Tensor, a: Tensor, state: State) -> State:
        """Return z_i of p, a and z_{i-1}: the equations, plain enough for autograd to follow."""

    @abstractmethod
    def activate(self, p: Tensor, a: Tensor) -> Gates:
        """Return the gates of the projected input p and the hidden part a, which is overwritten."""

    @abstractmethod
    def advance(self, gates: Gates, state: State, out: Out = NEW) -> State:
        """Return z_i of the gates and z_{i-1}."""

    @abstractmethod
    def linearise(self, gates: Gates, before: State, after: State) -> Coefficients:
        """Return the coefficients of the adjoint at a step, for any leading axes."""

    @abstractmethod
    def pull_to_hidden(self, local: Coefficients, d: State, out: Tensor | None = None) -> Tensor:
        """Return dL/da for d = dL/dz_i."""

    def pull_to_input(
        self, local: Coefficients, d: State, da: Tensor, out: Tensor | None = None
    ) -> Tensor:
        """Return dL/dp for d = dL/dz_i and da = dL/da: the same, where p + a is all that enters."""
        return da if out is None else out.copy_(da)

    @abstractmethod
    def carry(self, local: Coefficients, d: State, through_a: Tensor) -> State:
        """Return J_i^T d of d = dL/dz_i and of dL/da W_hh, the part that comes through a."""

    def adjoint(self, local: Coefficients, d: State, weight_hh: Tensor) -> State:
        """Return J_i^T d for d = dL/dz_i."""
        return self.carry(local, d, self.pull_to_hidden(local, d) @ weight_hh)


class RNN(Cell):
    """h' = tanh(p + a)."""

    gates = 1

    def step(self, p: Tensor, a: Tensor, state: State) -> State:
        return (torch.tanh(p + a),)

    def activate(self, p: Tensor, a: Tensor) -> Gates:
        return (tanh_(a.add_(p)),)

    def advance(self, gates: Gates, state: State, out: Out = NEW) -> State:
        return (torch.add(gates[0], 0, out=out[0]),)

    def linearise(self, gates: Gates, before: State, after: State) -> Coefficients:
        return (_slope(gates[0]),)

    def pull_to_hidden(self, local: Coefficients, d: State, out: Tensor | None = None) -> Tensor:
        return torch.mul(d[0], local[0], out=out)

    def carry(self, local: Coefficients, d: State, through_a: Tensor) -> State:
        return (through_a,)


class GRU(Cell):
    """r, z = sigmoid(p + a); n = tanh(p_n + r a_n); h' = (1 - z) n + z h."""

    gates = 3
    only_sums = False

    def step(self, p: Tensor, a: Tensor, state: State) -> State:
        (p_r, p_z, p_n), (a_r, a_z, a_n) = (_blocks(x, self.gates) for x in (p, a))
        r, z = torch.sigmoid(p_r + a_r), torch.sigmoid(p_z + a_z)
        return ((1 - z) * torch.tanh(p_n + r * a_n) + z * state[0],)

    def activate(self, p: Tensor, a: Tensor) -> Gates:
        hidden = a.shape[-1] // self.gates
        rz = a[..., : 2 * hidden].add_(p[..., : 2 * hidden]).sigmoid_()
        r, p_n, a_n = rz[..., :hidden], p[..., 2 * hidden :], a[..., 2 * hidden :]
        return a, tanh_(torch.addcmul(p_n, r, a_n))

    def advance(self, gates: Gates, state: State, out: Out = NEW) -> State:
        a, n = gates
        _, z, _ = _blocks(a, self.gates)
        return (torch.lerp(n, state[0], z, out=out[0]),)

    def linearise(self, gates: Gates, before: State, after: State) -> Coefficients:
        (a, n), (h, *_) = gates, before
        r, z, a_n = _blocks(a, self.gates)
        shut = 1 - z
        to_n = _slope(n).mul_(shut)
        to_gates = a.new_empty(*n.shape[:-1], self.gates, n.shape[-1])
        to_r, to_z, to_a_n = to_gates.unbind(-2)
        torch.mul(h - n, z, out=to_z).mul_(shut)
        torch.mul(to_n, r, out=to_a_n)
        torch.mul(to_a_n, a_n, out=to_r).mul_(1 - r)
        return z, to_n, to_gates

    def pull_to_hidden(self, local: Coefficients, d: State, out: Tensor | None = None) -> Tensor:
        return _times_each_gate(d[0].unsqueeze(-2), local[2], out)

    def pull_to_input(
        self, local: Coefficients, d: State, da: Tensor, out: Tensor | None = None
    ) -> Tensor:
        dp = da.clone() if out is None else out.copy_(da)
        torch.mul(d[0], local[1], out=dp[..., -d[0].shape[-1] :])
        return dp

    def carry(self, local: Coefficients, d: State, through_a: Tensor) -> State:
        return (torch.addcmul(through_a, d[0], local[0]),)


class LSTM(Cell):
    """i, f, o = sigmoid(p + a); g = tanh(p_g + a_g); c' = f c + i g; h' = o tanh(c').

    The state is the pair (h, c) after the step: dL/dc holds h fixed and dL/dh holds c fixed.
    """

    states = ("h", "c")
    gates = 4

    def step(self, p: Tensor, a: Tensor, state: State) -> State:
        i, f, g, o = _blocks(p + a, self.gates)
        c = torch.sigmoid(f) * state[1] + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(c), c

    def activate(self, p: Tensor, a: Tensor) -> Gates:
        hidden = a.shape[-1] // self.gates
        g = a.add_(p)[..., 2 * hidden : 3 * hidden]
        if _tanh_is_slow(a):  # tanh(x) = 2 sigmoid(2 x) - 1: one sigmoid serves all four gates
            g.add_(g)
            a.sigmoid_()
            torch.add(_MINUS_ONE, g, alpha=2, out=g)
        else:
            g.tanh_()
            a[..., : 2 * hidden].sigmoid_()
            a[..., 3 * hidden :].sigmoid_()
        return (a,)

    def advance(self, gates: Gates, state: State, out: Out = NEW) -> State:
        i, f, g, o = _blocks(gates[0], self.gates)
        c = torch.addcmul(f * state[1], i, g, out=out[1])
        return torch.mul(o, tanh(c), out=out[0]), c

    def linearise(self, gates: Gates, before: State, after: State) -> Coefficients:
        i, f, g, o = _blocks(gates[0], self.gates)
        tanh_c = tanh(after[1])
        to_gates = gates[0].new_empty(*i.shape[:-1], self.gates, i.shape[-1])
        to_i, to_f, to_g, to_o = to_gates.unbind(-2)
        torch.mul(g, i, out=to_i).mul_(1 - i)
        torch.mul(before[1], f, out=to_f).mul_(1 - f)
        torch.mul(_slope(g), i, out=to_g)
        torch.mul(tanh_c, o, out=to_o).mul_(1 - o)
        return f, _slope(tanh_c).mul_(o), to_gates

    def pull_to_hidden(self, local: Coefficients, d: State, out: Tensor | None = None) -> Tensor:
        (_, c_of_h, to_gates), (dh, dc) = local, d
        dc = torch.addcmul(dc, dh, c_of_h)
        return _times_each_gate(torch.stack([dc, dc, dc, dh.expand_as(dc)], dim=-2), to_gates, out)

    def carry(self, local: Coefficients, d: State, through_a: Tensor) -> State:
        (f, c_of_h, _), (dh, dc) = local, d
        return through_a, torch.addcmul(dc, dh, c_of_h).mul_(f)


CELLS: dict[str, Cell] = {"rnn": RNN(), "gru": GRU(), "lstm": LSTM()}


def tanh_(x: Tensor) -> Tensor:
    """Return tanh(x), in place; in float32 on a CPU as 2 sigmoid(2x) - 1, which is twice as fast.

    That is right to 1.2e-7 absolute, one rounding of a number near 1; float64 is not touched.
    """
    if _tanh_is_slow(x):
        x.add_(x).sigmoid_()
        return torch.add(_MINUS_ONE, x, alpha=2, out=x)
    return x.tanh_()


def tanh(x: Tensor) -> Tensor:
    """Return the same as `tanh_`, in a tensor of its own."""
    if not _tanh_is_slow(x):
        return torch.tanh(x)
    y = (x + x).sigmoid_()
    return torch.add(_MINUS_ONE, y, alpha=2, out=y)


def _tanh_is_slow(x: Tensor) -> bool:
    return x.dtype == torch.float32 and not x.is_cuda


_MINUS_ONE = torch.tensor(-1.0)


def _slope(y: Tensor) -> Tensor:
    """Return the derivative 1 - y^2 of a tanh where it is y."""
    return (y * y).neg_().add_(1)


def _blocks(x: Tensor, count: int) -> tuple[Tensor, ...]:
    """View x (..., count * hidden) as its blocks (..., hidden)."""
    blocks: tuple[Tensor, ...] = x.unflatten(-1, (count, -1)).unbind(-2)
    return blocks


def _times_each_gate(d: Tensor, coefficients: Tensor, out: Tensor | None) -> Tensor:
    """Multiply d (..., 1 or gates, hidden) into the coefficients (..., gates, hidden)."""
    if out is None:
        return (d * coefficients).flatten(-2)
    torch.mul(d, coefficients, out=out.unflatten(-1, coefficients.shape[-2:]))
    return out
