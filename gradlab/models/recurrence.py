"""A cell run over time with its weights, and the gradient pulled back; `cells` has the equations.

What comes in and goes out is (..., batch, time, features). Inside, time is the first axis, so that
each step lies in one piece of memory; the cells accept any leading axes, time among them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from gradlab.models.cells import CELLS, Cell, Coefficients, State
from gradlab.models.layers import Layer, linear, linear_over_time, rows_over_time, uniform


def time_first(x: Tensor) -> Tensor:
    """View (..., batch, time, features) as (time, ..., batch, features)."""
    return x.movedim(-2, 0)


def time_last(x: Tensor) -> Tensor:
    """View (time, ..., batch, features) as (..., batch, time, features)."""
    return x.movedim(0, -2)


def run_forward(
    cell: Cell, projected: Tensor, initial: State, weight_hh: Tensor, bias_hh: Tensor
) -> State:
    """Return the states z_1 .. z_T, each (..., batch, time, hidden)."""
    state, history = initial, []
    for p in time_first(projected).unbind():
        state = cell.step(p, linear(state[0], weight_hh, bias_hh), state)
        history.append(state)
    return tuple(time_last(torch.stack(part)) for part in zip(*history, strict=True))


def states_before(initial: State, states: State) -> State:
    """Return z_0 .. z_{T-1}, time first."""
    return tuple(
        torch.cat([first.unsqueeze(0), time_first(part)[:-1]])
        for first, part in zip(initial, states, strict=True)
    )


def linearise(
    cell: Cell, projected: Tensor, before: State, weight_hh: Tensor, bias_hh: Tensor
) -> Coefficients:
    """Return the adjoint's coefficients at every step, time first."""
    hidden_part = linear_over_time(time_last(before[0]), weight_hh, bias_hh)
    return cell.linearise(time_first(projected), time_first(hidden_part), before)


def pull_back(cell: Cell, local: Coefficients, injections: State, weight_hh: Tensor) -> State:
    """Return the total gradient d_i = g_i + J_{i+1}^T d_{i+1} at every step, d_{T+1} = 0.

    local: what `linearise` returned. injections: g_1 .. g_T, (time, paths, ..., batch, hidden).
    Returns d_1 .. d_T, shaped as the injections; any axes may stand between time and batch.
    """
    entering = list(zip(*(part.unbind() for part in injections), strict=True))
    coefficients = list(zip(*(part.unbind() for part in local), strict=True))
    d = entering[-1]
    totals = [d]
    for g, after in zip(entering[-2::-1], coefficients[:0:-1], strict=True):
        carried = cell.adjoint(after, d, weight_hh)
        d = tuple(a + b for a, b in zip(g, carried, strict=True))
        totals.append(d)
    return tuple(torch.stack(part[::-1]) for part in zip(*totals, strict=True))


class Scan(torch.autograd.Function):
    """`run_forward` whose gradient is `pull_back`; keeps the states alone and no step's graph."""

    @staticmethod
    def forward(
        ctx: Any, name: str, projected: Tensor, weight_hh: Tensor, bias_hh: Tensor, *initial: Tensor
    ) -> State:
        states = run_forward(CELLS[name], projected, initial, weight_hh, bias_hh)
        ctx.cell = CELLS[name]
        ctx.save_for_backward(projected, weight_hh, bias_hh, *initial, *states)
        return states

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *injections: Tensor) -> tuple[Tensor | None, ...]:
        cell: Cell = ctx.cell
        projected, weight_hh, bias_hh, *saved = ctx.saved_tensors
        count = len(cell.states)
        before = states_before(tuple(saved[:count]), tuple(saved[count:]))
        local = linearise(cell, projected, before, weight_hh, bias_hh)
        totals = pull_back(cell, local, tuple(map(time_first, injections)), weight_hh)
        d_projected, d_hidden = map(time_last, cell.gate_gradients(local, totals))
        rows = rows_over_time(d_hidden)
        d_weight = (rows.mT @ rows_over_time(time_last(before[0]))).sum_to_size(weight_hh.shape)
        d_bias = rows.sum(-2).sum_to_size(bias_hh.shape)
        first = tuple(part[0] for part in local)
        d_initial = cell.adjoint(first, tuple(part[0] for part in totals), weight_hh)
        return None, d_projected, d_weight, d_bias, *d_initial


class Recurrent(Layer):
    """The weights of one recurrent layer, in the layout and names of `torch.nn.GRU` and kin.

    The columns of weight_ih are blocks, one for each part of the input. Each block is drawn from a
    generator of its own and bounded by 1/sqrt(hidden), so a model with one more block starts from
    the same weights in the others.
    """

    def __init__(self, cell: str, blocks: dict[str, int], hidden: int) -> None:
        super().__init__()
        gates = CELLS[cell].gates
        self.cell_name, self.blocks, self.hidden = cell, blocks, hidden
        self.weight_ih_l0 = nn.Parameter(torch.empty(gates * hidden, sum(blocks.values())))
        self.weight_hh_l0 = nn.Parameter(torch.empty(gates * hidden, hidden))
        self.bias_ih_l0 = nn.Parameter(torch.empty(gates * hidden))
        self.bias_hh_l0 = nn.Parameter(torch.empty(gates * hidden))

    def draw(self, seed: int, name: str) -> None:
        bound = self.hidden**-0.5
        rows = self.weight_ih_l0.shape[0]
        drawn = {
            key: uniform(tuple(parameter.shape), bound, seed, f"{name}.{key}")
            for key, parameter in self.named_parameters()
            if key != "weight_ih_l0"
        }
        drawn["weight_ih_l0"] = torch.cat(
            [
                uniform((rows, columns), bound, seed, f"{name}.weight_ih_l0.{block}")
                for block, columns in self.blocks.items()
            ],
            dim=-1,
        )
        self.load_state_dict(drawn)

    def project(self, block: str, x: Tensor) -> Tensor:
        """Return the part of the projected input that comes from one block of the input.

        x: (..., batch, time, features). The bias comes with the embedding.
        """
        bias = self.bias_ih_l0 if block == "embedding" else None
        return linear_over_time(x, self.block(block), bias)

    def block(self, name: str) -> Tensor:
        """Return the columns of weight_ih that act on one block of the input."""
        columns: tuple[Tensor, ...] = self.weight_ih_l0.split(list(self.blocks.values()), dim=-1)
        return dict(zip(self.blocks, columns, strict=True))[name]

    def zero_state(self, like: Tensor) -> State:
        """Return z_0 = 0 for projected inputs `like` (..., batch, time, features)."""
        zeros = like.new_zeros(*like.shape[:-2], self.hidden)
        return tuple(zeros for _ in CELLS[self.cell_name].states)

    def forward(self, projected: Tensor, initial: State) -> State:
        """Return the states of every step, each (..., batch, time, hidden)."""
        weights = self.weight_hh_l0, self.bias_hh_l0
        states: State = Scan.apply(self.cell_name, projected, *weights, *initial)  # type: ignore[no-untyped-call]
        return states

    @torch.no_grad()
    def pull_back(
        self, projected: Tensor, initial: State, states: State, injections: State
    ) -> State:
        """Return the total gradient at every state, (paths, ..., batch, time, hidden).

        injections: for each state, the gradient that enters it from outside the recurrence.
        """
        cell, weight_hh = CELLS[self.cell_name], self.weight_hh_l0
        before = states_before(initial, states)
        local = linearise(cell, projected, before, weight_hh, self.bias_hh_l0)
        totals = pull_back(cell, local, tuple(map(time_first, injections)), weight_hh)
        return tuple(map(time_last, totals))
