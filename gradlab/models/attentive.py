"""The decoder of bahdanau timing, over all of its steps, with its adjoint.

At target step j, with the state s_{j-1} as the query:

    q_j = W_q s_{j-1}                 e_ji = compare(q_j, k_i)       alpha_j = weigh(e_j, s_{j-1})
    c_j = sum_i alpha_ji h_i          s_j = cell(p_j + W_c c_j, s_{j-1})

and back, with d_j = dL/ds_j in full:

    dp_j = the cell's dL/dp           dc_j = W_c^T dp_j              dalpha_ji = dc_j . h_i
    de_j from the weighing            dq_j from the comparison
    dL/ds_{j-1} = J_j^T d_j + W_q^T dq_j + what the weighing adds

A step holds what must wait for the step after it; what need not is computed for a few steps at a
time, and the gradient of the values as one product. All tensors are laid out as `rows` says.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise, starmap
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from gradlab.models.cells import Cell, Coefficients, Gates, State
from gradlab.models.comparisons import Comparison
from gradlab.models.inputs import Gathered, Inputs, blocks
from gradlab.models.recurrence import further, parts_at, room_for_states
from gradlab.models.rows import (
    Rows,
    as_rows,
    bias_gradients,
    by_example,
    room_for_steps,
    steps,
    weight_gradients,
)
from gradlab.models.weighing import Weighing


class Weights(NamedTuple):
    """W_c, W_q (None where the query is the state itself), W_hh and b_hh, by replica."""

    context: Tensor
    query: Tensor | None
    hh: Tensor
    bias_hh: Tensor

    def of_state(self) -> tuple[Tensor, Tensor]:
        """Return all that multiplies s_{j-1}, W_hh and W_q below it, and b_hh and 0 beside it."""
        if self.query is None:
            return self.hh, self.bias_hh
        both = torch.cat([self.hh, self.query], dim=-2)
        return both, pad(self.bias_hh, (0, self.query.shape[-2]))


class Decoded(NamedTuple):
    """What one pass computed, time first: s_0 .. s_k; of each step e, alpha, c, q and the gates."""

    states: State
    scores: Tensor
    alpha: Tensor
    context: Tensor
    query: Tensor
    gates: Gates


@dataclass(frozen=True)
class Loop:
    """What every step reads; values (replicas, rows, n, hidden)."""

    cell: Cell
    comparison: Comparison
    weighing: Weighing
    values: Tensor
    weights: Weights

    @property
    def by_hand(self) -> bool:
        """Whether every step does without autograd."""
        return self.comparison.by_hand and self.weighing.by_hand

    def blocks(self, gates: Tensor) -> list[slice]:
        """Return the steps to work on at a time: as many numbers as each of them reads anyway."""
        return blocks(gates[0], len(gates), self.values[0].numel())

    def run(self, inputs: Inputs, first: State) -> Decoded:
        """Return all steps from s_0 = first."""
        rows, into_cell = self.values.flatten(0, 1), self.weights.context.mT
        of_state, bias = self.weights.of_state()
        from_state, bias = of_state.mT, bias.unsqueeze(-2)
        of_all, done = room(self.cell, first, self.values, len(inputs), of_state.shape[-2])
        for block in self.blocks(done.gates[0]):
            p, gates = inputs.at(block), parts_at(done.gates, block)
            both, e, alpha, c, query = parts_at((of_all, *done[1:5]), block)
            (of_sums, p_apart), (sums, _) = map(self.cell.split, (p, gates[0]))
            each = p, both, query, e, alpha, c, as_rows(alpha), as_rows(c), sums, of_sums
            seen, states = self.cell.views(p_apart, gates), parts_at(done.states, further(block))
            in_block = zip(*map(steps, (each, seen)), pairwise(steps(states)), strict=True)
            for j, (at, seen_j, (s, new)) in enumerate(in_block, block.start):
                p_j, both, query, e, alpha, c, alpha_row, c_row, a_sums, p_sums = at
                torch.baddbmm(bias, s[0], from_state, out=both)
                self.comparison.scores(self.comparison.prepare(query), out=e)
                self.weighing.weigh(j, s[0], e, out=alpha)
                torch.bmm(alpha_row, rows, out=c_row)
                p_j.baddbmm_(c, into_cell)
                a_sums.add_(p_sums)
                self.cell.activate(seen_j)
                self.cell.advance(seen_j, s, new)
        return done


def room(
    cell: Cell, first: State, values: Tensor, length: int, width: int
) -> tuple[Tensor, Decoded]:
    """Return tensors for `length` steps, to be filled, s_0 aside: a beside q, then everything.

    width: of a and q together. Where there is no W_q, q is s_{j-1}.
    """
    of_step, gates = (length, *first[0].shape[:-1]), cell.gates * first[0].shape[-1]
    scores, alpha = (values.new_empty(length, *values.shape[:-1]) for _ in range(2))
    context = values.new_empty(*of_step, values.shape[-1])
    states, both = room_for_states(first, length), values.new_empty(*of_step, width)
    a, query = both[..., :gates], both[..., gates:] if width > gates else states[0][:-1]
    return both, Decoded(states, scores, alpha, context, query, cell.room(a))


class Adjoint:
    """One way back through a loop; afterwards it holds the gradients.

    rows: the layout, of all signals. inputs: of p. weights: of W_c, W_q, W_hh and b_hh; zero if not
    wanted. d_context: of c_j at every step. carried: of s_0.
    """

    def __init__(self, loop: Loop, decoded: Decoded, rows: Rows, inputs: Gathered) -> None:
        self.loop, self.decoded, self.rows, self.inputs = loop, decoded, rows, inputs
        self.edges, wide = rows.crossings(), (rows.replicas, rows.count)
        context, w = decoded.context, loop.weights
        self.to_alpha = loop.values.mT
        self.d_context = context.new_empty(len(context), *wide, context.shape[-1])
        self.carried = tuple(z.new_zeros(*wide, z.shape[-1]) for z in decoded.states)
        self.weights = [None if weight is None else torch.zeros_like(weight) for weight in w]

    def run(self, g: list[Tensor | None], *, wanted: bool) -> None:
        """Go back from the last step to the first, for g = dL/d(states, scores, alpha, context).

        wanted: whether the gradients of the weights are.
        """
        gates = self.decoded.gates[0]
        for block in self.loop.blocks(gates)[::-1]:
            here = [None if d is None else self.rows.split_steps(d[..., block, :]) for d in g]
            self.pull_back(block, here, wanted)

    def pull_back(self, block: slice, g: list[Tensor | None], wanted: bool) -> None:
        """Go back over a few steps."""
        cell, done, each = self.loop.cell, self.decoded, self.rows.each
        before, after = parts_at(done.states, block), parts_at(done.states, block, later=1)
        local = each(cell.linearise(parts_at(done.gates, block), before, after))
        kept = before[0], *parts_at((done.query, done.scores, done.alpha), block)
        asking, queries, *attended = each(kept)
        d_query, d_context = queries.new_empty(queries.shape), self.d_context[block]
        da = room_for_steps(asking, *asking.shape[:-1], cell.gates, asking.shape[-1])
        dp = da if not cell.apart else torch.empty_like(da)
        prepared = self.loop.comparison.prepare(queries)
        flat = da.flatten(-2), dp.flatten(-2)
        at = asking, prepared, *attended, da, dp, *flat, d_context, d_query
        entering = zip(*([None] * len(asking) if d is None else d.unbind() for d in g), strict=True)
        each_step = list(zip(entering, *map(steps, (local, at)), strict=True))
        for i in range(len(asking) - 1, -1, -1):
            self.step(block.start + i, *each_step[i])
        self.inputs.add(block, flat[1])
        if wanted:
            (context,) = each((done.context[block],))
            pairs = (flat[1], context), (d_query, asking), (flat[0], asking)
            parts = *starmap(weight_gradients, pairs), bias_gradients(flat[0])
            for total, part in zip(self.weights, parts, strict=True):
                _add(total, part)

    def step(
        self, j: int, g: tuple[Tensor | None, ...], local: Coefficients, at: tuple[Tensor, ...]
    ) -> None:
        """Go back over one step."""
        cell, w, (time, asked) = self.loop.cell, self.loop.weights, self.edges
        state, query, scores, alpha, da, dp, flat_da, flat_dp, dc, dq = at
        d = tuple(map(_plus, self.carried, g))
        cell.pull_to_input(local, d, cell.pull_to_hidden(local, d, da), dp)
        _add(torch.bmm(flat_dp, w.context, out=dc), g[-1])
        d_alpha = by_example(dc, self.to_alpha, torch.empty_like(alpha))
        _add(d_alpha, g[-2])
        d_scores, by_weighing = self.loop.weighing.pull_back(j, state, scores, alpha, d_alpha)
        _add(d_scores, g[-3])
        to_state = self.loop.comparison.pull_back(query, d_scores, out=dq)
        if w.query is not None:
            to_state = torch.bmm(to_state, w.query)
        carried = cell.carry(local, d, torch.bmm(flat_da, w.hh))
        h, *rest = map(time, carried)
        self.carried = (h + asked(_plus(to_state, by_weighing)), *rest)


def _add(total: Tensor | None, part: Tensor | None) -> None:
    if total is not None and part is not None:
        total += part


def _plus(a: Tensor, b: Tensor | None) -> Tensor:
    return a if b is None else a + b
