"""A cell run over time with its weights, and the gradient pulled back; `cells` has the equations.

What comes in and goes out is (..., batch, time, features); `rows` says how the loops see it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from gradlab.models.cells import CELLS, Cell, Coefficients, Gates, State
from gradlab.models.layers import linear_over_time
from gradlab.models.rows import Edge, Rows, steps, time_first, time_last, weight_gradients
from gradlab.models.trace import Counted


def stack(parts: Sequence[tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
    """Return tuples of tensors as a tuple of tensors with one more axis in front."""
    return tuple(torch.stack(part) for part in zip(*parts, strict=True))


def run_forward(
    cell: Cell, p: Tensor, initial: State, weight_hh: Tensor, bias_hh: Tensor
) -> tuple[State, Gates]:
    """Return the states z_1 .. z_T and the gates, time first.

    p: (time, replicas, rows, gates * hidden). initial: (replicas, rows, hidden) each.
    weight_hh: (replicas, gates * hidden, hidden). bias_hh: (replicas, gates * hidden).
    """
    weight, bias = weight_hh.mT, bias_hh.unsqueeze(-2)
    a = torch.empty_like(p)
    states = tuple(p.new_empty(len(p), *first.shape) for first in initial)
    state, more = initial, []
    for p_i, a_i, *out in steps((p, a, *states)):
        torch.baddbmm(bias, state[0], weight, out=a_i)
        gates = cell.activate(p_i, a_i)
        state = cell.advance(gates, state, out)
        more.append(gates[1:])
    return states, (a, *stack(more))


def states_before(initial: State, states: State) -> State:
    """Return z_0 .. z_{T-1}, time first, of states that are time first."""
    return tuple(
        torch.cat([first.unsqueeze(0), part[:-1]])
        for first, part in zip(initial, states, strict=True)
    )


def linearise(
    cell: Cell, p: Tensor, initial: State, states: State, weight_hh: Tensor, bias_hh: Tensor
) -> Coefficients:
    """Return the adjoint's coefficients at every step, time first, from the states alone.

    p, states: time first, as for `run_forward`.
    """
    before = states_before(initial, states)
    a = time_first(linear_over_time(time_last(before[0]), weight_hh, bias_hh))
    return cell.linearise(cell.activate(p, a), before, states)


def pull_back(
    cell: Cell,
    local: Coefficients,
    injections: State,
    weight_hh: Tensor,
    crossing: Edge | None = None,
    carried: State = (),
) -> tuple[State, State]:
    """Return the total gradient d_i = g_i + J_{i+1}^T d_{i+1} at every step, and J_1^T d_1.

    local: what `linearise` returned. injections: g_1 .. g_T, (time, paths, ..., batch, hidden);
    any axes may stand between time and batch. Returns d_1 .. d_T, shaped as the injections, and
    what arrives at z_0. crossing: what to do to J^T d where it crosses a step. carried: what
    arrives at z_T from later steps, if there are any.
    """
    totals = tuple(torch.empty_like(part) for part in injections)
    carried = carried or tuple(torch.zeros_like(part[0]) for part in injections)
    each_step = zip(steps(local), steps(injections), steps(totals), strict=True)
    for at_i, g, d in reversed(list(each_step)):
        for total, entering, back in zip(d, g, carried, strict=True):
            torch.add(entering, back, out=total)
        carried = cell.adjoint(at_i, d, weight_hh)
        if crossing is not None:
            carried = tuple(map(crossing, carried))
    return totals, carried


CACHED = 2**16
"""How many numbers of each tensor, of one replica, are worked on at a time to stay in the cache."""


def blocks(x: Tensor) -> list[slice]:
    """Return slices of time, the last one first, to go through x (time, replicas, ...) by."""
    length = max(1, CACHED // x[0, 0].numel())
    return [slice(i, i + length) for i in range(0, len(x), length)][::-1]


class Scan(torch.autograd.Function):
    """`run_forward` whose gradient is `pull_back`; keeps states and gates and no step's graph."""

    @staticmethod
    def forward(
        ctx: Any,
        name: str,
        counted: Counted | None,
        projected: Tensor,
        weight_hh: Tensor,
        bias_hh: Tensor,
        *initial: Tensor,
    ) -> State:
        cell, rows = CELLS[name], Rows(projected.shape[:-2], weight_hh)
        ctx.cell, ctx.rows, ctx.counted = cell, rows, counted
        first = tuple(map(rows.split, initial))
        weight = weight_hh.reshape(rows.replicas, *weight_hh.shape[-2:])
        bias = bias_hh.reshape(rows.replicas, -1)
        states, gates = run_forward(cell, rows.split_steps(projected), first, weight, bias)
        ctx.shapes = weight_hh.shape, bias_hh.shape
        ctx.save_for_backward(weight, *first, *states, *gates)
        return tuple(map(rows.join_steps, states))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *injections: Tensor) -> tuple[Tensor | None, ...]:
        cell: Cell = ctx.cell
        rows: Rows = ctx.rows
        weight, *saved = ctx.saved_tensors
        count = len(cell.states)
        first, states = tuple(saved[:count]), tuple(saved[count : 2 * count])
        gates, before = tuple(saved[2 * count :]), states_before(first, states)
        entering = tuple(map(rows.split_steps, injections))
        crossing, _ = rows.crossings(ctx.counted)
        dp = torch.empty_like(gates[0])
        carried: State = ()
        d_weight, d_bias = torch.zeros_like(weight), torch.zeros_like(weight[..., 0])
        for block in blocks(dp):
            here = [tuple(part[block] for part in parts) for parts in (gates, before, states)]
            local = cell.linearise(*here)
            g = tuple(part[block] for part in entering)
            totals, carried = pull_back(cell, local, g, weight, crossing, carried)
            da = cell.pull_to_hidden(local, totals)
            cell.pull_to_input(local, totals, da, dp[block])
            if ctx.needs_input_grad[3]:  # not when measuring
                of_weight, of_bias = weight_gradients(da, here[1][0])
                d_weight += of_weight
                d_bias += of_bias
        weights = d_weight.view(ctx.shapes[0]), d_bias.view(ctx.shapes[1])
        return None, None, rows.join_steps(dp), *weights, *map(rows.join, carried)
