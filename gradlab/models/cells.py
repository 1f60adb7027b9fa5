"""Recurrent cells: each is its step and, beside it, the adjoint of its step.

Index convention, at step i of one sequence:

    p = W_ih x_i + b_ih        projected input   (..., batch, gates * hidden)
    a = W_hh h_{i-1} + b_hh    hidden part       (..., batch, gates * hidden)
    z_i = step(p, a, z_{i-1})  z = (h,), or (h, c) for the LSTM

    J_i = dz_i / dz_{i-1}      pull_back: d_{i-1} = g_{i-1} + J_i^T d_i

The adjoint is linear in d and its coefficients depend on the forward pass alone. So `linearise`
computes them for all steps at once, the loop that must run backwards in time holds one matrix
product and little else, and the gradients of the weights are one large product after it. Training
and measuring run the same loop; measuring puts several paths on a leading axis of d.

Gate order and equations are those of `torch.nn.RNN`, `GRU` and `LSTM` (Cho et al. 2014;
Hochreiter and Schmidhuber 1997), so that weights load there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

State = tuple[Tensor, ...]
"""The tensors of `Cell.states`, each (..., batch, hidden), or (..., batch, time, hidden)."""
Coefficients = tuple[Tensor, ...]
"""What `linearise` returns; every tensor has the step's leading axes."""


class Cell(ABC):
    """One step of a recurrence and its adjoint. Cells hold no weights."""

    states: tuple[str, ...] = ("h",)
    gates: int

    @abstractmethod
    def step(self, p: Tensor, a: Tensor, state: State) -> State:
        """Return z_i of the projected input p, the hidden part a and z_{i-1}."""

    @abstractmethod
    def linearise(self, p: Tensor, a: Tensor, state: State) -> Coefficients:
        """Return the coefficients of the adjoint at (p, a, z_{i-1}), for any leading axes."""

    @abstractmethod
    def adjoint(self, local: Coefficients, d: State, weight_hh: Tensor) -> State:
        """Return J_i^T d for d = dL/dz_i."""

    @abstractmethod
    def gate_gradients(self, local: Coefficients, d: State) -> tuple[Tensor, Tensor]:
        """Return (dL/dp, dL/da) for d = dL/dz_i."""


class RNN(Cell):
    """h' = tanh(p + a)."""

    gates = 1

    def step(self, p: Tensor, a: Tensor, state: State) -> State:
        return (torch.tanh(p + a),)

    def linearise(self, p: Tensor, a: Tensor, state: State) -> Coefficients:
        (h,) = self.step(p, a, state)
        return (1 - h * h,)

    def adjoint(self, local: Coefficients, d: State, weight_hh: Tensor) -> State:
        (slope,), (dh,) = local, d
        return ((dh * slope) @ weight_hh,)

    def gate_gradients(self, local: Coefficients, d: State) -> tuple[Tensor, Tensor]:
        (slope,), (dh,) = local, d
        return dh * slope, dh * slope


class GRU(Cell):
    """r, z = sigmoid(p + a); n = tanh(p_n + r a_n); h' = (1 - z) n + z h."""

    gates = 3

    def _gates(self, p: Tensor, a: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        hidden = a.shape[-1] // self.gates
        p_rz, p_n = p.split([2 * hidden, hidden], dim=-1)
        a_rz, a_n = a.split([2 * hidden, hidden], dim=-1)
        r, z = torch.sigmoid(p_rz + a_rz).chunk(2, dim=-1)
        return r, z, torch.tanh(torch.addcmul(p_n, r, a_n)), a_n

    def step(self, p: Tensor, a: Tensor, state: State) -> State:
        (h,) = state
        _, z, n, _ = self._gates(p, a)
        return (torch.lerp(n, h, z),)

    def linearise(self, p: Tensor, a: Tensor, state: State) -> Coefficients:
        (h,) = state
        r, z, n, a_n = self._gates(p, a)
        to_n = (1 - z) * (1 - n * n)
        to_z = (h - n) * z * (1 - z)
        to_r = to_n * a_n * r * (1 - r)
        return z, to_n, torch.cat([to_r, to_z, to_n * r], dim=-1)

    def adjoint(self, local: Coefficients, d: State, weight_hh: Tensor) -> State:
        (carry, _, to_gates), (dh,) = local, d
        da = _times_each_gate(dh, to_gates, self.gates)
        return (torch.addcmul(da @ weight_hh, dh, carry),)

    def gate_gradients(self, local: Coefficients, d: State) -> tuple[Tensor, Tensor]:
        (_, to_n, to_gates), (dh,) = local, d
        da = _times_each_gate(dh, to_gates, self.gates)
        dp = torch.cat([da[..., : 2 * dh.shape[-1]], dh * to_n], dim=-1)
        return dp, da


class LSTM(Cell):
    """i, f, o = sigmoid(p + a); g = tanh(p_g + a_g); c' = f c + i g; h' = o tanh(c').

    The state is the pair (h, c) after the step: dL/dc holds h fixed and dL/dh holds c fixed.
    """

    states = ("h", "c")
    gates = 4

    def _gates(self, p: Tensor, a: Tensor) -> list[Tensor]:
        i, f, g, o = (p + a).chunk(4, dim=-1)
        return [torch.sigmoid(i), torch.sigmoid(f), torch.tanh(g), torch.sigmoid(o)]

    def step(self, p: Tensor, a: Tensor, state: State) -> State:
        _, c = state
        i, f, g, o = self._gates(p, a)
        c = torch.addcmul(f * c, i, g)
        return o * torch.tanh(c), c

    def linearise(self, p: Tensor, a: Tensor, state: State) -> Coefficients:
        _, c = state
        i, f, g, o = self._gates(p, a)
        tanh_c = torch.tanh(torch.addcmul(f * c, i, g))
        to_i, to_f, to_g = g * i * (1 - i), c * f * (1 - f), i * (1 - g * g)
        c_of_h = o * (1 - tanh_c * tanh_c)
        return f, c_of_h, torch.cat([to_i, to_f, to_g], dim=-1), tanh_c * o * (1 - o)

    def _pull_to_gates(self, local: Coefficients, d: State) -> tuple[Tensor, Tensor]:
        (_, c_of_h, from_c, from_h), (dh, dc) = local, d
        dc = torch.addcmul(dc, dh, c_of_h)
        return torch.cat([_times_each_gate(dc, from_c, 3), dh * from_h], dim=-1), dc

    def adjoint(self, local: Coefficients, d: State, weight_hh: Tensor) -> State:
        da, dc = self._pull_to_gates(local, d)
        return da @ weight_hh, dc * local[0]

    def gate_gradients(self, local: Coefficients, d: State) -> tuple[Tensor, Tensor]:
        da, _ = self._pull_to_gates(local, d)
        return da, da


CELLS: dict[str, Cell] = {"rnn": RNN(), "gru": GRU(), "lstm": LSTM()}


def _times_each_gate(d: Tensor, coefficients: Tensor, gates: int) -> Tensor:
    """Multiply d (..., hidden) into each of the gates of coefficients (..., gates * hidden)."""
    blocks: Tensor = coefficients.unflatten(-1, (gates, d.shape[-1]))
    return (d.unsqueeze(-2) * blocks).flatten(-2)
