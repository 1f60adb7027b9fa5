"""A cell run over time, and the gradient pulled back over time; see `cells` for the equations.

What comes in and goes out is (..., batch, time, features). Inside, time is the first axis, so that
each step lies in one piece of memory; the cells accept any leading axes, time among them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from gradlab.models.cells import CELLS, Cell, Coefficients, State
from gradlab.models.layers import linear, linear_over_time, rows_over_time


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
