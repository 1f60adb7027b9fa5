"""Recurrent cells: each is its step and, beside it, the adjoint of its step.

Index convention, at step i of one sequence:

    p = W_ih x_i + b_ih        projected input   (..., batch, gates * hidden)
    a = W_hh h_{i-1} + b_hh    hidden part       (..., batch, gates * hidden)
    z_i = step(p, a, z_{i-1})  z = (h,), or (h, c) for the LSTM

    J_i = dz_i / dz_{i-1}      pull_back: d_{i-1} = g_{i-1} + J_i^T d_i

`step` is the equations as they stand in books. A scan takes it in two halves, in place: the gates,
`activate`, which are kept, and what they do to the state, `advance`; both see a step as `views` cut
it out of the tensors of many. Where p and a enter only as their sum, a scan has added them up. The
adjoint is linear in d and its coefficients depend on the forward pass alone. So `linearise`
computes them for many steps at once from the gates, the loop that must run backwards in time holds
one matrix product and little else, and the gradients of the weights are large products after it.
Training and measuring run the same loop; measuring puts several paths on a leading axis of d. What
comes back to p and a is split by gate: (..., batch, gates, hidden).

Gate order and equations are those of `torch.nn.RNN`, `GRU` and `LSTM` (Cho et al. 2014;
Hochreiter and Schmidhuber 1997), so that weights load there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from gradlab.models.activations import (
    MINUS_ONE,
    tanh,
    tanh_,
    tanh_is_slow,
    through_sigmoid,
    through_tanh,
)

State = tuple[Tensor, ...]
"""The tensors of `Cell.states`, each (..., batch, hidden), or (..., batch, time, hidden)."""
Gates = tuple[Tensor, ...]
"""What a scan keeps of a step: a, which its gates replace, and `kept` tensors (..., hidden)."""
Views = tuple[Tensor, ...]
"""What `views` returns; every tensor has the step's leading axes."""
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
    kept = 0
    apart = 0  # how many of the last gates take p and a otherwise than as p + a

    @abstractmethod
    def step(self, p: Tensor, a: Tensor, state: State) -> State:
        """Return z_i of p, a and z_{i-1}: the equations, plain enough for autograd to follow."""

    def split(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """View p or a as the gates that take p + a, and those that take them apart."""
        width = x.shape[-1] // self.gates * self.apart
        sums, apart = x.split([x.shape[-1] - width, width], dim=-1)
        return sums, apart

    @abstractmethod
    def views(self, p: Tensor, gates: Gates) -> Views:
        """Return what `activate` and `advance` see, filled or not, of p in the gates apart."""

    @abstractmethod
    def activate(self, seen: Views) -> None:
        """Fill the gates, which hold p + a and, in the gates apart, a."""

    @abstractmethod
    def advance(self, seen: Views, state: State, out: Out = NEW) -> State:
        """Return z_i of the gates and z_{i-1}."""

    def room(self, a: Tensor) -> Gates:
        """Return the gates to be filled at steps with the hidden part a, (..., gates * hidden)."""
        hidden = a.shape[-1] // self.gates
        return a, *(a.new_empty(*a.shape[:-1], hidden) for _ in range(self.kept))

    def fill(self, p: Tensor, a: Tensor) -> tuple[Gates, Views]:
        """Return the gates of p and a, which is overwritten, and what `advance` sees of them."""
        gates, ((p_sums, p_apart), (sums, _)) = self.room(a), map(self.split, (p, a))
        sums.add_(p_sums)
        seen = self.views(p_apart, gates)
        self.activate(seen)
        return gates, seen

    def run(self, p: Tensor, a: Tensor, state: State, out: Out = NEW) -> tuple[Gates, State]:
        """Return the gates and z_i of p, a and z_{i-1}; a is overwritten."""
        gates, seen = self.fill(p, a)
        return gates, self.advance(seen, state, out)

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
        da = self.pull_to_hidden(local, d)
        return self.carry(local, d, da.flatten(-2) @ weight_hh)


class RNN(Cell):
    """h' = tanh(p + a)."""

    gates = 1

    def step(self, p: Tensor, a: Tensor, state: State) -> State:
        return (torch.tanh(p + a),)

    def views(self, p: Tensor, gates: Gates) -> Views:
        return (gates[0],)

    def activate(self, seen: Views) -> None:
        tanh_(seen[0])

    def advance(self, seen: Views, state: State, out: Out = NEW) -> State:
        return (torch.add(seen[0], 0, out=out[0]),)

    def linearise(self, gates: Gates, before: State, after: State) -> Coefficients:
        return (1 - gates[0] * gates[0],)

    def pull_to_hidden(self, local: Coefficients, d: State, out: Tensor | None = None) -> Tensor:
        return torch.mul(d[0].unsqueeze(-2), local[0].unsqueeze(-2), out=out)

    def carry(self, local: Coefficients, d: State, through_a: Tensor) -> State:
        return (through_a,)


class GRU(Cell):
    """r, z = sigmoid(p + a); n = tanh(p_n + r a_n); h' = (1 - z) n + z h."""

    gates = 3
    kept = 1  # n
    apart = 1  # n: p_n + r a_n

    def step(self, p: Tensor, a: Tensor, state: State) -> State:
        (p_r, p_z, p_n), (a_r, a_z, a_n) = (_blocks(x, self.gates) for x in (p, a))
        r, z = torch.sigmoid(p_r + a_r), torch.sigmoid(p_z + a_z)
        return ((1 - z) * torch.tanh(p_n + r * a_n) + z * state[0],)

    def views(self, p: Tensor, gates: Gates) -> Views:
        (a, n), both = gates, 2 * gates[1].shape[-1]
        r, z, a_n = _blocks(a, self.gates)
        return p, a[..., :both], r, z, a_n, n

    def activate(self, seen: Views) -> None:
        p_n, rz, r, _, a_n, n = seen
        rz.sigmoid_()
        tanh_(torch.addcmul(p_n, r, a_n, out=n))

    def advance(self, seen: Views, state: State, out: Out = NEW) -> State:
        _, _, _, z, _, n = seen
        return (torch.lerp(n, state[0], z, out=out[0]),)

    def linearise(self, gates: Gates, before: State, after: State) -> Coefficients:
        (a, n), (h, *_) = gates, before
        r, z, a_n = _blocks(a, self.gates)
        to_n = through_tanh(1 - z, n)
        to_gates = a.new_empty(*n.shape[:-1], self.gates, n.shape[-1])
        to_r, to_z, to_a_n = to_gates.unbind(-2)
        through_sigmoid(h - n, z, out=to_z)
        torch.mul(to_n, r, out=to_a_n)
        through_sigmoid(to_n * a_n, r, out=to_r)
        return z, to_n, to_gates

    def pull_to_hidden(self, local: Coefficients, d: State, out: Tensor | None = None) -> Tensor:
        return torch.mul(d[0].unsqueeze(-2), local[2], out=out)

    def pull_to_input(
        self, local: Coefficients, d: State, da: Tensor, out: Tensor | None = None
    ) -> Tensor:
        dp = da.clone() if out is None else out.copy_(da)
        torch.mul(d[0], local[1], out=dp.select(-2, -1))
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

    def views(self, p: Tensor, gates: Gates) -> Views:
        a = gates[0]
        i, f, g, o = _blocks(a, self.gates)
        return a, i, f, g, o, a[..., : 2 * i.shape[-1]]

    def activate(self, seen: Views) -> None:
        a, _, _, g, o, i_and_f = seen
        if tanh_is_slow(a):  # tanh(x) = 2 sigmoid(2 x) - 1: one sigmoid serves all four gates
            g.add_(g)
            a.sigmoid_()
            torch.add(MINUS_ONE, g, alpha=2, out=g)
        else:
            g.tanh_()
            i_and_f.sigmoid_()
            o.sigmoid_()

    def advance(self, seen: Views, state: State, out: Out = NEW) -> State:
        _, i, f, g, o, _ = seen
        c = torch.addcmul(f * state[1], i, g, out=out[1])
        return torch.mul(o, tanh(c), out=out[0]), c

    def linearise(self, gates: Gates, before: State, after: State) -> Coefficients:
        i, f, g, o = _blocks(gates[0], self.gates)
        tanh_c = tanh(after[1])
        to_gates = gates[0].new_empty(*i.shape[:-1], self.gates, i.shape[-1])
        to_i, to_f, to_g, to_o = to_gates.unbind(-2)
        through_sigmoid(g, i, out=to_i)
        through_sigmoid(before[1], f, out=to_f)
        through_tanh(i, g, out=to_g)
        through_sigmoid(tanh_c, o, out=to_o)
        return f, through_tanh(o, tanh_c), to_gates

    def pull_to_hidden(self, local: Coefficients, d: State, out: Tensor | None = None) -> Tensor:
        (_, c_of_h, to_gates), (dh, dc) = local, d
        out = torch.mul(torch.addcmul(dc, dh, c_of_h).unsqueeze(-2), to_gates, out=out)
        torch.mul(dh, to_gates.select(-2, -1), out=out.select(-2, -1))  # o acts on h alone
        return out

    def carry(self, local: Coefficients, d: State, through_a: Tensor) -> State:
        (f, c_of_h, _), (dh, dc) = local, d
        return through_a, torch.addcmul(dc, dh, c_of_h).mul_(f)


CELLS: dict[str, Cell] = {"rnn": RNN(), "gru": GRU(), "lstm": LSTM()}


def _blocks(x: Tensor, count: int) -> tuple[Tensor, ...]:
    """View x (..., count * hidden) as its blocks (..., hidden)."""
    blocks: tuple[Tensor, ...] = x.unflatten(-1, (count, -1)).unbind(-2)
    return blocks
