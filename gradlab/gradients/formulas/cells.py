"""RNN, GRU and LSTM: one step and its derivatives by hand, and the weights' over time.

A step reads x and the state (h, c) before it, whose c only the LSTM has; L depends on the state
after it by d_h and d_c. Equations and gate order are those of `torch.nn`. delta_in and delta_hidden
are dL/da_in and dL/da_hidden of the two halves that meet in the gates,

    a_in = W_ih x + b_ih      a_hidden = W_hh h + b_hh

which differ only in the GRU, where the reset gate multiplies the hidden half. Shapes: x (E,),
h and c (H,), W_ih (gates H, E), W_hh (gates H, H).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gradlab.gradients.formulas.claim import Case, Claim, Draw, claim

T, E, H = 4, 2, 3


@dataclass(frozen=True)
class Step(Case):
    """One step of a cell, with h and c before it and d_h = dL/dh, d_c = dL/dc after it."""

    x: Tensor
    h: Tensor
    c: Tensor
    d_h: Tensor
    d_c: Tensor
    W_ih: Tensor
    W_hh: Tensor
    b_ih: Tensor
    b_hh: Tensor

    def halves(self) -> tuple[Tensor, Tensor]:
        return self.W_ih @ self.x + self.b_ih, self.W_hh @ self.h + self.b_hh

    @abstractmethod
    def after(self) -> tuple[Tensor, Tensor]:
        """Return h and c after the step."""

    @abstractmethod
    def deltas(self) -> tuple[Tensor, Tensor]:
        """Return delta_in and delta_hidden, by hand."""

    def before_h(self) -> Tensor:
        """Return dL/dh before the step, by hand."""
        return self.W_hh.T @ self.deltas()[1]

    def before_c(self) -> Tensor:
        """Return dL/dc before the step, by hand; zero for a cell without c."""
        return torch.zeros_like(self.c)

    def loss(self) -> Tensor:
        h, c = self.after()
        return self.d_h @ h + self.d_c @ c


class RNN(Step):
    """h' = tanh(a_in + a_hidden)."""

    def after(self) -> tuple[Tensor, Tensor]:
        a_in, a_hidden = self.halves()
        return torch.tanh(a_in + a_hidden), self.c

    def deltas(self) -> tuple[Tensor, Tensor]:
        h, _ = self.after()
        delta = self.d_h * (1 - h**2)
        return delta, delta


class GRU(Step):
    """r, z = sigmoid(a_in + a_hidden), n = tanh(a_in + r * a_hidden), h' = (1 - z) n + z h."""

    def gates(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        (r_in, z_in, n_in), (r_h, z_h, n_h) = (half.chunk(3) for half in self.halves())
        r, z = torch.sigmoid(r_in + r_h), torch.sigmoid(z_in + z_h)
        return r, z, torch.tanh(n_in + r * n_h), n_h

    def after(self) -> tuple[Tensor, Tensor]:
        _, z, n, _ = self.gates()
        return (1 - z) * n + z * self.h, self.c

    def deltas(self) -> tuple[Tensor, Tensor]:
        r, z, n, n_h = self.gates()
        delta_n = self.d_h * (1 - z) * (1 - n**2)
        delta_r = delta_n * n_h * r * (1 - r)
        delta_z = self.d_h * (self.h - n) * z * (1 - z)
        return torch.cat([delta_r, delta_z, delta_n]), torch.cat([delta_r, delta_z, r * delta_n])

    def before_h(self) -> Tensor:
        _, z, _, _ = self.gates()
        return self.d_h * z + self.W_hh.T @ self.deltas()[1]


class LSTM(Step):
    """i, f, o = sigmoid(a), g = tanh(a), a = a_in + a_hidden; c' = f c + i g; h' = o tanh(c')."""

    def gates(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        a_in, a_hidden = self.halves()
        i, f, g, o = (a_in + a_hidden).chunk(4)
        return torch.sigmoid(i), torch.sigmoid(f), torch.tanh(g), torch.sigmoid(o)

    def after(self) -> tuple[Tensor, Tensor]:
        i, f, g, o = self.gates()
        c = f * self.c + i * g
        return o * torch.tanh(c), c

    def delta_c(self) -> Tensor:
        """δᶜ = dL/dc' + dL/dh' ⊙ o ⊙ (1 − tanh²(c')), both ways into c'."""
        _, c = self.after()
        return self.d_c + self.d_h * self.gates()[3] * (1 - torch.tanh(c) ** 2)

    def deltas(self) -> tuple[Tensor, Tensor]:
        i, f, g, o = self.gates()
        delta_c, tanh_c = self.delta_c(), torch.tanh(self.after()[1])
        delta_i, delta_f = delta_c * g * i * (1 - i), delta_c * self.c * f * (1 - f)
        delta_g, delta_o = delta_c * i * (1 - g**2), self.d_h * tanh_c * o * (1 - o)
        delta = torch.cat([delta_i, delta_f, delta_g, delta_o])
        return delta, delta

    def before_c(self) -> Tensor:
        return self.delta_c() * self.gates()[1]


GATES: dict[type[Step], int] = {RNN: 1, GRU: 3, LSTM: 4}


def drawn(cell: type[Step], draw: Draw) -> Step:
    """Draw one step from any state."""
    rows = GATES[cell] * H
    d_c = draw(H)
    return cell(
        x=draw(E), h=draw(H), c=draw(H), d_h=draw(H), d_c=d_c,
        W_ih=draw.weight(rows, E), W_hh=draw.weight(rows, H), b_ih=draw(rows), b_hh=draw(rows),
    )  # fmt: skip


@dataclass(frozen=True)
class Sequence(Case):
    """T steps of a cell from h_0 = c_0 = 0, and L depends on h_i directly by g_i."""

    first: Step
    x: Tensor
    g: Tensor
    W_hh: Tensor
    taps_h: Tensor
    taps_c: Tensor

    def steps(self) -> list[Step]:
        """Return the T steps, forward, with the taps added to h and c after each."""
        zero = torch.zeros_like(self.first.h)
        steps, h, c = [], zero, zero
        for x, tap_h, tap_c in zip(self.x, self.taps_h, self.taps_c, strict=True):
            step = replace(self.first, x=x, h=h, c=c, d_h=zero, d_c=zero, W_hh=self.W_hh)
            h, c = (part + tap for part, tap in zip(step.after(), (tap_h, tap_c), strict=True))
            steps.append(step)
        return steps

    def outputs(self) -> Tensor:
        """Return h_1 .. h_T."""
        steps = self.steps()
        last = steps[-1].after()[0] + self.taps_h[-1]
        return torch.stack([*(step.h for step in steps[1:]), last])

    def loss(self) -> Tensor:
        return (self.g * self.outputs()).sum()

    def backward(self) -> list[Step]:
        """Return the steps with their d_h and d_c, by hand: each step's is the next one's before.

        dL/dh_i = g_i + what step i+1 sends back to h_i;  dL/dc_i = what it sends back to c_i.
        """
        d_h, d_c, steps = torch.zeros_like(self.first.h), torch.zeros_like(self.first.c), []
        for step, g in zip(reversed(self.steps()), self.g.flip(0), strict=True):
            step = replace(step, d_h=g + d_h, d_c=d_c)
            d_h, d_c = step.before_h(), step.before_c()
            steps.append(step)
        return steps[::-1]


def sequence(cell: type[Step], draw: Draw) -> Sequence:
    """Draw T steps; the taps are zero."""
    first, zeros = drawn(cell, draw), torch.zeros(T, H, dtype=torch.float64)
    return Sequence(first, draw(T, E), draw(T, H), first.W_hh, zeros, zeros)


Evaluate = Callable[[Draw], Claim]


def before_h(cell: type[Step]) -> Evaluate:
    return lambda draw: claim(x := drawn(cell, draw), h=x.before_h())


def before_c(cell: type[Step]) -> Evaluate:
    return lambda draw: claim(x := drawn(cell, draw), c=x.before_c())


def weight_ih(cell: type[Step]) -> Evaluate:
    return lambda draw: claim(x := drawn(cell, draw), W_ih=torch.outer(x.deltas()[0], x.x))


def weight_hh(cell: type[Step]) -> Evaluate:
    return lambda draw: claim(x := drawn(cell, draw), W_hh=torch.outer(x.deltas()[1], x.h))


def biases(cell: type[Step]) -> Evaluate:
    def evaluate(draw: Draw) -> Claim:
        x = drawn(cell, draw)
        delta_in, delta_hidden = x.deltas()
        return claim(x, b_ih=delta_in, b_hh=delta_hidden)

    return evaluate


def weight_hh_over_time(cell: type[Step]) -> Evaluate:
    """Sum over the steps of gate gradient times the state before."""

    def evaluate(draw: Draw) -> Claim:
        x = sequence(cell, draw)
        products = [torch.outer(step.deltas()[1], step.h) for step in x.backward()]
        return claim(x, W_hh=torch.stack(products).sum(0))

    return evaluate


def state_c_over_time(draw: Draw) -> Claim:
    """Every c_t of the LSTM, with the h_t of the same step held fixed."""
    x = sequence(LSTM, draw)
    return claim(x, taps_c=torch.stack([step.d_c for step in x.backward()]))
