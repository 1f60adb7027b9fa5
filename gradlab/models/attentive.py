"""The decoder of bahdanau timing, over all of its steps, with its adjoint.

At target step j, with the state s_{j-1} as the query:

    q_j = W_q s_{j-1}                 e_ji = compare(q_j, k_i)       alpha_j = weigh(e_j, s_{j-1})
    c_j = sum_i alpha_ji h_i          s_j = cell(p_j + W_c c_j, s_{j-1})

and back, with d_j = dL/ds_j in full:

    dp_j = the cell's dL/dp           dc_j = W_c^T dp_j              dalpha_ji = dc_j . h_i
    de_j from the weighing            dq_j from the comparison
    dL/ds_{j-1} = J_j^T d_j + W_q^T dq_j + what the weighing adds

The loop holds what must wait for the step after it; the gradients of weights and values are one
product each, after the loop. All tensors of the loop are laid out as `rows` says.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from gradlab.models.cells import CELLS, Cell, Gates, State
from gradlab.models.comparisons import Comparison
from gradlab.models.recurrence import stack, states_before
from gradlab.models.rows import (
    Edge,
    Rows,
    as_rows,
    given,
    map_steps,
    shaped_as,
    steps,
    value_gradients,
    weight_gradients,
)
from gradlab.models.scopes import Scope
from gradlab.models.trace import Counted
from gradlab.models.weighing import Weighing


class Weights(NamedTuple):
    """W_c, W_q (None where the query is the state itself), W_hh and b_hh, by replica."""

    context: Tensor
    query: Tensor | None
    hh: Tensor
    bias_hh: Tensor


class Decoded(NamedTuple):
    """What one pass computed, time first; gates are what `Cell.activate` returned."""

    states: State
    scores: Tensor
    alpha: Tensor
    context: Tensor
    inputs: Tensor
    gates: Gates


class Pulled(NamedTuple):
    """The gradients of p + W_c c, W_hh s + b_hh, c and W_q s at every step, and of s_0."""

    dp: Tensor
    da: Tensor
    d_context: Tensor
    d_query: Tensor
    first: State


@dataclass(frozen=True)
class Loop:
    """What every step reads; values (replicas, rows, n, hidden)."""

    cell: Cell
    comparison: Comparison
    weighing: Weighing
    values: Tensor
    weights: Weights

    def run(self, p: Tensor, first: State) -> Decoded:
        """Return all steps from s_0 = first."""
        w, rows = self.weights, self.values.flatten(0, 1)
        into_query = None if w.query is None else w.query.mT
        into_cell, into_gates, bias = w.context.mT, w.hh.mT, w.bias_hh.unsqueeze(-2)
        a, inputs = torch.empty_like(p), torch.empty_like(p)
        scores, alpha = (p.new_empty(len(p), *self.values.shape[:-1]) for _ in range(2))
        states = [p.new_empty(len(p), *part.shape) for part in first]
        context = p.new_empty(len(p), *first[0].shape[:-1], self.values.shape[-1])
        state, more = first, []
        for j, (p_j, a_j, inputs_j, e_j, alpha_j, c_j, *out) in enumerate(
            steps((p, a, inputs, scores, alpha, context, *states))
        ):
            query = state[0] if into_query is None else torch.bmm(state[0], into_query)
            self.comparison.scores(query, out=e_j)
            self.weighing.weigh(j, state[0], e_j, out=alpha_j)
            torch.bmm(as_rows(alpha_j), rows, out=as_rows(c_j))
            torch.baddbmm(p_j, c_j, into_cell, out=inputs_j)
            torch.baddbmm(bias, state[0], into_gates, out=a_j)
            gates = self.cell.activate(inputs_j, a_j)
            state = self.cell.advance(gates, state, out)
            more.append(gates[1:])
        return Decoded(tuple(states), scores, alpha, context, inputs, (a, *stack(more)))

    def pull_back(
        self, decoded: Decoded, first: State, g: list[Tensor | None], crossing: tuple[Edge, Edge]
    ) -> Pulled:
        """Return the gradients for g = dL/d(states, scores, alpha, context) at every step.

        crossing: what to do to a gradient that goes back one step, and to one that left a query.
        """
        w, cell, values = self.weights, self.cell, self.values.flatten(0, 1)
        before = states_before(first, decoded.states)
        local = cell.linearise(decoded.gates, before, decoded.states)
        queries = before[0] if w.query is None else map_steps(before[0], w.query)
        da = torch.empty_like(decoded.gates[0])
        dp = da if cell.only_sums else torch.empty_like(da)
        d_context, d_query = torch.empty_like(decoded.context), torch.empty_like(queries)
        carried = tuple(torch.zeros_like(part) for part in first)
        entering = [None if part is None else part.unbind() for part in g]
        for j in range(len(queries) - 1, -1, -1):
            g_j = [None if part is None else part[j] for part in entering]
            d = tuple(map(_plus, carried, g_j))
            at_j = tuple(part[j] for part in local)
            da_j = cell.pull_to_hidden(at_j, d, da[j])
            dp_j = cell.pull_to_input(at_j, d, da_j, dp[j])
            dc_j = torch.bmm(dp_j, w.context, out=d_context[j])
            _add(dc_j, g_j[-1])
            d_alpha = torch.bmm(as_rows(dc_j), values.mT).view_as(decoded.alpha[j])
            _add(d_alpha, g_j[-2])
            weighed = before[0][j], decoded.scores[j], decoded.alpha[j], d_alpha
            d_scores, by_weighing = self.weighing.pull_back(j, *weighed)
            _add(d_scores, g_j[-3])
            to_state = self.comparison.pull_back(queries[j], d_scores, out=d_query[j])
            if w.query is not None:
                to_state = torch.bmm(to_state, w.query)
            to_state = _plus(to_state, by_weighing)
            carried = tuple(map(crossing[0], cell.carry(at_j, d, torch.bmm(da_j, w.hh))))
            carried = (carried[0] + crossing[1](to_state), *carried[1:])
        return Pulled(dp, da, d_context, d_query, carried)


def _add(total: Tensor, part: Tensor | None) -> None:
    if part is not None:
        total += part


def _plus(a: Tensor, b: Tensor | None) -> Tensor:
    return a if b is None else a + b


class AttentiveScan(torch.autograd.Function):
    """The states s_1 .. s_k, then scores, weights, contexts and the cell's whole input p + W_c c.

    Takes the cell's name; what makes a comparison of a number of queries, keys and its weights; the
    scope; what to do at counted edges; the mask (..., batch, 1 or k, n); p (..., batch, k,
    gates * hidden); projected keys and values (..., batch, n, features); W_c, W_q or None, W_hh,
    b_hh; s_0; the weights of the scope and the comparison. The whole input passes no gradient on.
    """

    @staticmethod
    def forward(
        ctx: Any,
        name: str,
        compare: Callable[..., Comparison],
        scope: Scope,
        counted: Counted | None,
        mask: Tensor,
        projected: Tensor,
        keys: Tensor,
        values: Tensor,
        *weights: Tensor | None,
    ) -> tuple[Tensor, ...]:
        ctx.cell, ctx.compare, ctx.counted = CELLS[name], compare, counted
        ctx.scope, ctx.mask = scope, mask
        rows = ctx.rows = Rows(projected.shape[:-2], given(weights[0]))
        loop, first = AttentiveScan.loop(ctx, projected.shape[-2], keys, values, *weights)
        decoded = loop.run(rows.split_steps(projected), first)
        kept = *decoded.states, *decoded[1:4], *decoded.gates
        ctx.save_for_backward(keys, values, *weights, *kept)
        ctx.tensors = 2 + len(weights)
        outputs = tuple(map(rows.join_steps, (*decoded.states, *decoded[1:-1])))
        ctx.mark_non_differentiable(outputs[-1])
        ctx.set_materialize_grads(False)
        return outputs

    @staticmethod
    def loop(
        ctx: Any, queries: int, keys: Tensor, values: Tensor, *weights: Tensor | None
    ) -> tuple[Loop, State]:
        """Return the loop and s_0, by replica."""
        rows: Rows = ctx.rows
        context, query, hh, bias_hh, *rest = weights
        first, own = rest[: len(ctx.cell.states)], rest[len(ctx.cell.states) :]
        own_rows, count = [rows.weight(given(w)) for w in own], len(ctx.scope.layer_names)
        mask = rows.split_steps(ctx.mask.expand(*rows.batch, -1, -1))
        loop = Loop(
            ctx.cell,
            ctx.compare(queries, rows.split(keys), *own_rows[count:]),
            ctx.scope.weighing(mask, *own_rows[:count]),
            rows.split(values),
            Weights(
                rows.weight(given(context)),
                None if query is None else rows.weight(query),
                rows.weight(given(hh)),
                given(bias_hh).reshape(rows.replicas, -1),
            ),
        )
        return loop, tuple(rows.split(given(part)) for part in first)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *g: Tensor | None) -> tuple[Tensor | None, ...]:
        rows: Rows = ctx.rows
        tensors, kept = ctx.saved_tensors[: ctx.tensors], ctx.saved_tensors[ctx.tensors :]
        count = len(ctx.cell.states)
        scores, alpha, context, *gates = kept[count:]
        loop, first = AttentiveScan.loop(ctx, len(alpha), *tensors)
        decoded = Decoded(kept[:count], scores, alpha, context, context, tuple(gates))
        entering = [None if part is None else rows.split_steps(part) for part in g[:-1]]
        pulled = loop.pull_back(decoded, first, entering, rows.crossings(ctx.counted))
        before = states_before(first, decoded.states)[0]
        d_values = value_gradients(alpha, pulled.d_context, loop.values)
        d_keys, *d_compared = loop.comparison.gradients()
        wanted = ctx.needs_input_grad[-len(tensors) + 2 :]  # not when measuring
        of_context, of_query, of_hh = (
            weight_gradients(d, x) if needed else (None, None)
            for d, x, needed in (
                (pulled.dp, context, wanted[0]),
                (pulled.d_query, before, wanted[1]),
                (pulled.da, before, wanted[2]),
            )
        )
        weights = of_context[0], of_query[0], *of_hh
        d_own = *loop.weighing.gradients(), *d_compared
        d_weights = (*weights, *map(rows.join, pulled.first), *d_own)
        shaped = shaped_as(d_weights, tensors[2:])
        each = rows.join_steps(pulled.dp), rows.join(d_keys), rows.join(d_values)
        return (*(None,) * 5, *each, *shaped)
