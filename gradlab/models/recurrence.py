"""A cell run over time with its weights, and the gradient pulled back; `cells` has the equations.

What comes in and goes out is (..., batch, time, features); `rows` says how the loops see it. They
work on a few steps at a time, so that what is needed only for a moment stays in the processor's
cache: the projected inputs, the adjoint's coefficients, the gradients of p and a.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from gradlab.models.cells import CELLS, Cell, Coefficients, Gates, State
from gradlab.models.counted import Counted
from gradlab.models.inputs import Entering, Gathered, Inputs, blocks
from gradlab.models.layers import linear_over_time
from gradlab.models.rows import (
    Edge,
    Rows,
    bias_gradients,
    room_for_steps,
    steps,
    time_first,
    time_last,
    weight_gradients,
)
from gradlab.models.unrecorded import unrecorded


def stack(parts: Sequence[tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
    """Return tuples of tensors as a tuple of tensors with one more axis in front."""
    return tuple(torch.stack(part) for part in zip(*parts, strict=True))


def room_for_states(first: State, length: int) -> State:
    """Return tensors for z_0 .. z_T, time first, of which z_0 is filled."""
    states = tuple(room_for_steps(part, length + 1, *part.shape) for part in first)
    for part, start in zip(states, first, strict=True):
        part[0] = start
    return states


def parts_at(parts: tuple[Tensor, ...], block: slice, later: int = 0) -> tuple[Tensor, ...]:
    """Return some steps of each tensor, or those that come `later` steps after them."""
    return tuple(part[block.start + later : block.stop + later] for part in parts)


def further(block: slice) -> slice:
    """Return a block with one step more."""
    return slice(block.start, block.stop + 1)


def run_forward(
    cell: Cell, inputs: Inputs, first: State, weight_hh: Tensor, bias_hh: Tensor
) -> tuple[State, Gates]:
    """Return the states z_0 .. z_T and the gates, time first.

    first: z_0, (replicas, rows, hidden) each. weight_hh: (replicas, gates * hidden, hidden).
    bias_hh: (replicas, gates * hidden).
    """
    weight, states = weight_hh.mT, room_for_states(first, len(inputs))
    start = Entering(inputs, bias_hh, cell.gates, cell.apart)
    a = weight.new_empty(len(inputs), *first[0].shape[:-1], weight.shape[-1])
    gates = cell.room(a)
    for block in blocks(a[0], len(a)):
        here = parts_at(gates, block)
        seen = cell.views(start.fill(block, a[block]), here)
        from_to = pairwise(steps(parts_at(states, further(block))))
        for a_i, seen_i, (state, new) in zip(here[0].unbind(), steps(seen), from_to, strict=True):
            a_i.baddbmm_(state[0], weight)
            cell.activate(seen_i)
            cell.advance(seen_i, state, new)
    return states, gates


def states_before(first: State, states: State) -> State:
    """Return z_0 .. z_{T-1}, time first, of z_1 .. z_T, which are time first."""
    pairs = zip(first, states, strict=True)
    return tuple(torch.cat([start.unsqueeze(0), part[:-1]]) for start, part in pairs)


def linearise(
    cell: Cell, p: Tensor, initial: State, states: State, weight_hh: Tensor, bias_hh: Tensor
) -> Coefficients:
    """Return the adjoint's coefficients at every step, time first, from the states alone.

    p, states: time first, (time, ..., batch, features).
    """
    before = states_before(initial, states)
    a = time_first(linear_over_time(time_last(before[0]), weight_hh, bias_hh))
    gates, _ = cell.fill(p, a)
    return cell.linearise(gates, before, states)


def pull_back(
    cell: Cell,
    local: Coefficients,
    injections: State,
    weight_hh: Tensor,
    crossing: Edge | None = None,
    carried: State = (),
    out: Tensor | None = None,
) -> tuple[State, State]:
    """Return the total gradient d_i = g_i + J_{i+1}^T d_{i+1} at every step, and J_1^T d_1.

    local: what `linearise` returned. injections: g_1 .. g_T, (time, paths, ..., batch, hidden);
    any axes may stand between time and batch. Returns d_1 .. d_T, shaped as the injections, and
    what arrives at z_0. crossing: what to do to J^T d where it crosses a step. carried: what
    arrives at z_T from later steps, if there are any. out: is filled with dL/da of every step,
    (time, replicas, rows, gates, hidden).
    """
    totals = tuple(torch.empty_like(part) for part in injections)
    carried = carried or tuple(torch.zeros_like(part[0]) for part in injections)
    da = [None] * len(totals[0]) if out is None else out.unbind()
    product = torch.matmul if out is None else torch.bmm
    each_step = zip(*map(steps, (local, injections, totals)), da, strict=True)
    for at_i, g, d, da_i in reversed(list(each_step)):
        for total, entering, back in zip(d, g, carried, strict=True):
            torch.add(entering, back, out=total)
        through_a = cell.pull_to_hidden(at_i, d, da_i).flatten(-2)
        carried = cell.carry(at_i, d, product(through_a, weight_hh))
        if crossing is not None:
            carried = tuple(map(crossing, carried))
    return totals, carried


class Scan(torch.autograd.Function):
    """`run_forward` with its adjoint; keeps states and gates and no step's graph.

    Takes the cell's name, what to do at counted edges, `inputs.Projected`, W_hh, b_hh and z_0.
    """

    @staticmethod
    @unrecorded()
    def forward(
        ctx: Any,
        name: str,
        counted: Counted | None,
        ids: Tensor | None,
        projected: Tensor,
        weight_hh: Tensor,
        bias_hh: Tensor,
        *initial: Tensor,
    ) -> State:
        cell, rows = CELLS[name], Rows(initial[0].shape[:-1], weight_hh, counted)
        inputs = Inputs(rows, ids, projected)
        first = tuple(rows.forward.split(rows.once(part)) for part in initial)
        weight, bias = map(rows.weight, (weight_hh, bias_hh))
        states, gates = run_forward(cell, inputs, first, weight, bias)
        ctx.cell, ctx.rows, ctx.ids = cell, rows, ids
        ctx.shapes = projected.shape, weight_hh.shape, bias_hh.shape
        ctx.save_for_backward(weight, *states, *gates)
        return tuple(rows.every(rows.forward.join_steps(part[1:])) for part in states)

    @staticmethod
    @once_differentiable
    @unrecorded()
    def backward(ctx: Any, *injections: Tensor) -> tuple[Tensor | None, ...]:
        cell: Cell = ctx.cell
        rows: Rows = ctx.rows
        weight, *saved = ctx.saved_tensors
        states, gates = tuple(saved[: len(cell.states)]), tuple(saved[len(cell.states) :])
        crossing, _ = rows.crossings()
        carried: State = ()
        gathered = Gathered(rows, ctx.ids, ctx.shapes[0], len(gates[0]), weight)
        d_weight, d_bias = torch.zeros_like(weight), torch.zeros_like(weight[..., 0])
        for block in blocks(gates[0][0], len(gates[0]))[::-1]:
            before = parts_at(states, block)
            local = cell.linearise(parts_at(gates, block), before, parts_at(states, block, later=1))
            local = rows.each(local)
            g = tuple(rows.split_steps(part[..., block, :]) for part in injections)
            da = room_for_steps(g[0], *g[0].shape[:-1], cell.gates, g[0].shape[-1])
            totals, carried = pull_back(cell, local, g, weight, crossing, carried, out=da)
            if any(ctx.needs_input_grad[4:6]):  # not when measuring
                d_weight += weight_gradients(da.flatten(-2), *rows.each(before[:1]))
                d_bias += bias_gradients(da.flatten(-2))
            dp = cell.pull_to_input(local, totals, da, out=da)  # of which no more is needed
            gathered.add(block, dp.flatten(-2))
        weights = d_weight.view(ctx.shapes[1]), d_bias.view(ctx.shapes[2])
        return None, None, None, gathered.gradient(), *weights, *map(rows.join, carried)
