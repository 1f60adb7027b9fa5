"""A cell run over time with its weights, and the gradient pulled back; `cells` has the equations.

What comes in and goes out is (..., batch, time, features); `rows` says how the loops see it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from gradlab.models.cells import CELLS, Cell, Coefficients, Gates, State
from gradlab.models.layers import (
    Embedding,
    Layer,
    embed,
    linear,
    linear_over_time,
    uniform,
)
from gradlab.models.rows import Rows, steps, time_first, time_last, weight_gradients
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
    crossing: Callable[[Tensor], Tensor] | None = None,
) -> tuple[State, State]:
    """Return the total gradient d_i = g_i + J_{i+1}^T d_{i+1} at every step, and J_1^T d_1.

    local: what `linearise` returned. injections: g_1 .. g_T, (time, paths, ..., batch, hidden);
    any axes may stand between time and batch. Returns d_1 .. d_T, shaped as the injections, and
    what arrives at z_0. d_{T+1} = 0. crossing: what to do to J^T d where it crosses a step.
    """
    totals = tuple(torch.empty_like(part) for part in injections)
    carried = tuple(torch.zeros_like(part[0]) for part in injections)
    each_step = zip(steps(local), steps(injections), steps(totals), strict=True)
    for at_i, g, d in reversed(list(each_step)):
        for total, entering, back in zip(d, g, carried, strict=True):
            torch.add(entering, back, out=total)
        carried = cell.adjoint(at_i, d, weight_hh)
        if crossing is not None:
            carried = tuple(map(crossing, carried))
    return totals, carried


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
        before = states_before(first, states)
        local = cell.linearise(tuple(saved[2 * count :]), before, states)
        entering = tuple(map(rows.split_steps, injections))
        crossing = ctx.counted and partial(rows.cross, ctx.counted.time)
        totals, at_first = pull_back(cell, local, entering, weight, crossing)
        da = cell.pull_to_hidden(local, totals)
        dp = cell.pull_to_input(local, totals, da)
        weight_shape, bias_shape = ctx.shapes
        d_weight, d_bias = weight_gradients(da, before[0])
        return (
            None,
            None,
            rows.join_steps(dp),
            d_weight.view(weight_shape),
            d_bias.view(bias_shape),
            *map(rows.join, at_first),
        )


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
        return linear_over_time(x, self.block(block))

    def project_symbols(self, embedding: Embedding, ids: Tensor) -> Tensor:
        """Return the projected embeddings of ids (..., batch, time), bias included.

        Only as many rows are projected as there are symbols; each step then looks up its own.
        """
        table = linear(embedding.weight, self.block("embedding"), self.bias_ih_l0)
        return embed(ids, table)

    def block(self, name: str) -> Tensor:
        """Return the columns of weight_ih that act on one block of the input."""
        columns: tuple[Tensor, ...] = self.weight_ih_l0.split(list(self.blocks.values()), dim=-1)
        return dict(zip(self.blocks, columns, strict=True))[name]

    def zero_state(self, like: Tensor) -> State:
        """Return z_0 = 0 for projected inputs `like` (..., batch, time, features)."""
        zeros = like.new_zeros(*like.shape[:-2], self.hidden)
        return tuple(zeros for _ in CELLS[self.cell_name].states)

    def forward(self, projected: Tensor, initial: State, counted: Counted | None = None) -> State:
        """Return the states of every step, each (..., batch, time, hidden)."""
        batch = torch.broadcast_shapes(projected.shape[:-2], initial[0].shape[:-1])
        projected = projected.expand(*batch, *projected.shape[-2:])
        inputs = projected, self.weight_hh_l0, self.bias_hh_l0, *initial
        states: State = Scan.apply(self.cell_name, counted, *inputs)  # type: ignore[no-untyped-call]
        return states

    @torch.no_grad()
    def linearise(self, projected: Tensor, initial: State, states: State) -> Coefficients:
        """Return the coefficients of the adjoint at every step, time first."""
        p, z = time_first(projected), tuple(map(time_first, states))
        weights = self.weight_hh_l0, self.bias_hh_l0
        return linearise(CELLS[self.cell_name], p, initial, z, *weights)

    @torch.no_grad()
    def pull_back(
        self, projected: Tensor, initial: State, states: State, injections: State
    ) -> State:
        """Return the total gradient at every state, (paths, ..., batch, time, hidden).

        injections: for each state, the gradient that enters it from outside the recurrence.
        """
        local = self.linearise(projected, initial, states)
        entering = tuple(map(time_first, injections))
        totals, _ = pull_back(CELLS[self.cell_name], local, entering, self.weight_hh_l0)
        return tuple(map(time_last, totals))
