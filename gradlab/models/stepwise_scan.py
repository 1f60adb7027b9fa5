"""A decoder whose steps wait for attention, as one function of autograd's; loop in `stepwise`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from gradlab.models.cells import State
from gradlab.models.rows import (
    Rows,
    bias_gradients,
    given,
    shaped_as,
    value_gradients,
    weight_gradients,
)
from gradlab.models.stepwise import Adjoint, Found, LayerWeights, Loop, Plan
from gradlab.models.unrecorded import unrecorded


class StepwiseScan(torch.autograd.Function):
    """The readouts; then, passing no gradient on: states of every layer, scores, weights, contexts.

    Takes a plan; p (..., batch, k, gates * hidden); projected keys and values (..., batch, n,
    features); W_u, W_hh and b_hh; of each layer above W_l, b_l, W_hh and b_hh; W_q or None; with
    feeding W_a and b_a; s_0 of every layer, with feeding a_0; weights of scope and comparison.
    """

    @staticmethod
    def forward(
        ctx: Any, plan: Plan, projected: Tensor, keys: Tensor, values: Tensor, *rest: Tensor | None
    ) -> tuple[Tensor, ...]:
        rows = ctx.rows = Rows(projected.shape[:-2], given(rest[0]), plan.counted)
        ctx.plan = plan
        pass_rows = rows.forward
        loop, first, fed = StepwiseScan.loop(
            ctx, pass_rows, projected.shape[-2], keys, values, *rest
        )
        with unrecorded(loop.by_hand):
            found = loop.run(pass_rows.split_steps(rows.once(projected)), first, fed)
        states, gates = (
            [part for parts in layers for part in parts] for layers in (found.states, found.gates)
        )
        ctx.save_for_backward(keys, values, *rest, *states, *gates, *found[2:])
        ctx.tensors = 2 + len(rest)
        shown = found.readout, *states, found.scores, found.alpha, found.context
        outputs = tuple(rows.every(pass_rows.join_steps(part)) for part in shown)
        ctx.mark_non_differentiable(*outputs[1:])
        return outputs

    @staticmethod
    def loop(
        ctx: Any, wide: Rows, queries: int, keys: Tensor, values: Tensor, *rest: Tensor | None
    ) -> tuple[Loop, tuple[State, ...], Tensor | None]:
        """Return the loop, s_0 and a_0, by replica; wide: the layout of what asks, in this pass."""
        plan, rows, left = ctx.plan, ctx.rows.forward, list(rest)

        def split(x: Tensor) -> Tensor:
            return wide.split(x if wide is ctx.rows else ctx.rows.once(x))

        def take(count: int) -> list[Tensor]:
            return [rows.weight(given(left.pop(0))) for _ in range(count)]

        ih, hh, bias_hh = take(3)
        layers = [LayerWeights(ih, None, hh, bias_hh)]
        layers += [LayerWeights(*take(4)) for _ in range(plan.layers - 1)]
        query = left.pop(0)
        into_query = None if query is None else rows.weight(query)
        combine = None
        if plan.feeds:
            weight, bias = take(2)
            combine = weight, bias
        count = len(plan.cell.states)
        first = tuple(
            tuple(split(given(left.pop(0))) for _ in range(count)) for _ in range(plan.layers)
        )
        fed = split(given(left.pop(0))) if plan.feeds else None
        scoped = take(len(plan.scope.layer_names))
        mask = plan.mask.expand(*ctx.rows.batch, -1, -1)
        seen = wide.split_steps(mask if wide is ctx.rows else ctx.rows.once(mask))
        read, values = (rows.split(ctx.rows.once(part)) for part in (keys, values))
        comparison = plan.compare(queries, read, *take(len(left)))
        weighing = plan.scope.weighing(seen, *scoped)
        return (
            Loop(plan, comparison, weighing, values, tuple(layers), into_query, combine),
            first,
            fed,
        )

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *g: Tensor) -> tuple[Tensor | None, ...]:
        rows, plan = ctx.rows, ctx.plan
        tensors, kept = ctx.saved_tensors[: ctx.tensors], ctx.saved_tensors[ctx.tensors :]
        found = _found(plan, rows.each(kept))
        loop, first, _ = StepwiseScan.loop(ctx, rows, len(found.alpha), *tensors)
        back = Adjoint(loop, found, first, rows)
        with unrecorded(loop.by_hand):
            back.run(rows.split_steps(g[0]))
        d_keys, *d_compared = loop.comparison.gradients()
        d_values = value_gradients(found.alpha, back.d_context)
        d_first = [rows.join(part) for state in back.carried for part in state]
        if plan.feeds:
            d_first.append(rows.join(back.fed))
        count = 4 * plan.layers + 2 * plan.feeds
        gradients = (
            *_of_weights(back, wanted=any(ctx.needs_input_grad[4 : 4 + count])),
            *d_first,
            *loop.weighing.gradients(),
            *d_compared,
        )
        shaped = shaped_as(gradients, tensors[2:])
        return (
            None,
            rows.join_steps(back.dp[0].flatten(-2)),
            rows.join(d_keys),
            rows.join(d_values),
            *shaped,
        )


def _of_weights(back: Adjoint, *, wanted: bool) -> list[Tensor | None]:
    """Return the gradients of the weights of layers, query and combine, in their order."""
    plan, found, below = back.loop.plan, back.found, back.found.below
    pairs: list[tuple[Tensor, Tensor]] = []
    for layer in range(plan.layers):
        pairs += [
            (back.dp[layer].flatten(-2), below),
            (back.da[layer].flatten(-2), back.before[layer][0]),
        ]
        below = found.states[layer][0]

    def of_sum(d: Tensor, x: Tensor) -> tuple[Tensor | None, Tensor | None]:
        return (weight_gradients(d, x), bias_gradients(d)) if wanted else (None, None)

    gradients: list[Tensor | None] = [part for pair in pairs for part in of_sum(*pair)]
    del gradients[1]  # p holds the first layer's bias
    asked = back.loop.query is not None and wanted
    gradients.append(weight_gradients(back.d_query, back.asking) if asked else None)
    if plan.feeds:
        both = torch.cat([found.context, found.states[-1][0]], dim=-1)
        gradients += of_sum(back.d_read, both)
    return gradients


def _found(plan: Plan, kept: tuple[Tensor, ...]) -> Found:
    """Return what was kept of a pass as it was found."""
    *by_layer, scores, alpha, context, below, readout = kept
    count = len(plan.cell.states)
    states, gates = by_layer[: plan.layers * count], by_layer[plan.layers * count :]
    each = len(gates) // plan.layers
    return Found(
        tuple(tuple(states[at : at + count]) for at in range(0, len(states), count)),
        tuple(tuple(gates[at : at + each]) for at in range(0, len(gates), each)),
        *(scores, alpha, context, below, readout),
    )
