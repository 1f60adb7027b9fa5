"""The decoder of bahdanau timing as one function of autograd's; the loop is in `attentive`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from gradlab.models.attentive import Adjoint, Decoded, Loop, Weights
from gradlab.models.cells import CELLS
from gradlab.models.comparisons import Comparison
from gradlab.models.counted import Counted
from gradlab.models.inputs import Gathered, Inputs
from gradlab.models.rows import Rows, given, shaped_as, value_gradients
from gradlab.models.scopes import Scope
from gradlab.models.unrecorded import unrecorded
from gradlab.models.weighing import Weighing


class AttentiveScan(torch.autograd.Function):
    """The states s_1 .. s_k, then scores, weights and contexts.

    Takes the cell's name; what makes a comparison of a number of queries, keys and its weights; the
    scope; what to do at counted edges; the mask (..., batch, 1 or k, n); p as `inputs.Projected`;
    projected keys and values (..., batch, n, features); W_c, W_q or None, W_hh, b_hh; s_0; the
    weights of the scope and the comparison.
    """

    @staticmethod
    def forward(
        ctx: Any,
        name: str,
        compare: Callable[..., Comparison],
        scope: Scope,
        counted: Counted | None,
        mask: Tensor,
        ids: Tensor | None,
        projected: Tensor,
        keys: Tensor,
        values: Tensor,
        *weights: Tensor | None,
    ) -> tuple[Tensor, ...]:
        ctx.cell, ctx.scope, ctx.mask = CELLS[name], scope, mask
        rows = ctx.rows = Rows(values.shape[:-2], given(weights[0]), counted)
        ctx.ids, ctx.shape = ids, projected.shape
        inputs = Inputs(rows, ids, projected)
        compare = partial(compare, len(inputs))
        loop = ctx.loop = AttentiveScan.loop(ctx, compare, keys, values, *weights)
        first = weights[4 : 4 + len(ctx.cell.states)]
        start = tuple(rows.forward.split(rows.once(given(part))) for part in first)
        with unrecorded(loop.by_hand):
            decoded = loop.run(inputs, start)
        ctx.save_for_backward(*weights, *decoded.states, *decoded[1:5], *decoded.gates)
        ctx.weights = len(weights)
        ctx.set_materialize_grads(False)
        after = *(part[1:] for part in decoded.states), *decoded[1:4]
        return tuple(rows.every(rows.forward.join_steps(part)) for part in after)

    @staticmethod
    def loop(
        ctx: Any,
        compare: Callable[..., Comparison],
        keys: Tensor,
        values: Tensor,
        *weights: Tensor | None,
    ) -> Loop:
        """Return the loop, with what both passes read."""
        rows, own = ctx.rows.forward, weights[4 + len(ctx.cell.states) :]
        own_rows, count = [rows.weight(given(w)) for w in own], len(ctx.scope.layer_names)
        ctx.scope_weights = own_rows[:count]
        read, summed = (rows.split(ctx.rows.once(part)) for part in (keys, values))
        context, query, hh, bias_hh = (None if w is None else rows.weight(w) for w in weights[:4])
        return Loop(
            ctx.cell,
            compare(read, *own_rows[count:]),
            AttentiveScan.weighing(ctx, rows),
            summed,
            Weights(given(context), query, given(hh), given(bias_hh)),
        )

    @staticmethod
    def weighing(ctx: Any, wide: Rows) -> Weighing:
        """Return what weighs the scores; wide: the layout of what asks, in this pass."""
        mask = ctx.mask.expand(*ctx.rows.batch, -1, -1)
        seen = wide.split_steps(mask if wide is ctx.rows else ctx.rows.once(mask))
        weighing: Weighing = ctx.scope.weighing(seen, *ctx.scope_weights)
        return weighing

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *g: Tensor | None) -> tuple[Tensor | None, ...]:
        rows, count = ctx.rows, len(ctx.cell.states)
        weights, kept = ctx.saved_tensors[: ctx.weights], ctx.saved_tensors[ctx.weights :]
        scores, alpha, context, query, *gates = kept[count:]
        decoded = Decoded(kept[:count], scores, alpha, context, query, tuple(gates))
        length = len(alpha)
        loop = replace(ctx.loop, weighing=AttentiveScan.weighing(ctx, rows))
        loop.comparison.forget()
        of_weights = *ctx.needs_input_grad[9:13], *ctx.needs_input_grad[13 + count :]
        loop.comparison.weighs = wanted = any(of_weights)
        inputs = Gathered(rows, ctx.ids, ctx.shape, length, alpha)
        back = Adjoint(loop, decoded, rows, inputs)
        with unrecorded(loop.by_hand):
            back.run(list(g), wanted=wanted)
        (alpha,) = rows.each((alpha,))
        d_keys, *d_compared = loop.comparison.gradients()
        d_values = value_gradients(alpha, back.d_context)
        d_first = map(rows.join, back.carried)
        d_weights = *back.weights, *d_first, *loop.weighing.gradients(), *d_compared
        shaped = shaped_as(d_weights, weights)
        return *(None,) * 6, inputs.gradient(), rows.join(d_keys), rows.join(d_values), *shaped
