"""Decoders whose steps wait for attention, of any number of layers, over all steps, with adjoint.

At target step j, with layer 1 read from below by u_j and the last layer's state s_j on top:

    bahdanau    c_j = attend(s_{j-1})           u_j = c_j                   readout s_j
    feeding     c_j = attend(s_j)               u_j = a_{j-1}               readout a_j
                a_j = tanh(W_a [c_j; s_j] + b_a)
    layer 1     s_j = cell(p_j + W_u u_j, s_{j-1})
    layer l     s_j^l = cell(W_l s_j^{l-1} + b_l, s_{j-1}^l)
    attend      e_j = compare(W_q s, k)   alpha_j = weigh(e_j, s)   sum_i alpha_ji h_i

and back from the last step to the first, each line by its own adjoint in the opposite order. The
loop holds what must wait for the step after it; the gradients of weights and values are one product
each, after the loop. `attentive` is the same for one layer and bahdanau timing, and faster. Tensors
of the loop are laid out as `rows` says.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from gradlab.models.cells import Cell, State
from gradlab.models.comparisons import Comparison
from gradlab.models.counted import Counted
from gradlab.models.recurrence import stack, states_before
from gradlab.models.rows import Rows, as_rows, by_example, map_steps
from gradlab.models.scopes import Scope
from gradlab.models.weighing import Weighing


@dataclass(frozen=True)
class Plan:
    """What a decoder is, weights and data aside; mask (..., batch, 1 or k, n)."""

    cell: Cell
    compare: Callable[..., Comparison]
    scope: Scope
    counted: Counted | None
    mask: Tensor
    layers: int
    feeds: bool


class LayerWeights(NamedTuple):
    """W_u, or W_l and b_l; W_hh and b_hh; by replica."""

    ih: Tensor
    bias_ih: Tensor | None
    hh: Tensor
    bias_hh: Tensor


class Found(NamedTuple):
    """One step, or all of them time first; states and gates by layer."""

    states: tuple[State, ...]
    gates: tuple[tuple[Tensor, ...], ...]
    scores: Tensor
    alpha: Tensor
    context: Tensor
    below: Tensor
    readout: Tensor


@dataclass(frozen=True)
class Loop:
    """What every step reads; values (replicas, rows, n, features). query, combine: if there are."""

    plan: Plan
    comparison: Comparison
    weighing: Weighing
    values: Tensor
    layers: tuple[LayerWeights, ...]
    query: Tensor | None
    combine: tuple[Tensor, Tensor] | None

    @property
    def by_hand(self) -> bool:
        """Whether every step does without autograd."""
        return self.comparison.by_hand and self.weighing.by_hand

    def run(self, p: Tensor, first: tuple[State, ...], fed: Tensor | None) -> Found:
        """Return all steps from s_0 = first and a_0 = fed."""
        states, found = first, []
        for j, p_j in enumerate(p.unbind()):
            if self.combine is None:
                attended = self.attend(j, states[-1][0])
                below = attended[2]
                states, gates = self.climb(p_j, below, states)
                readout = states[-1][0]
            else:
                assert fed is not None
                below = fed
                states, gates = self.climb(p_j, below, states)
                attended = self.attend(j, states[-1][0])
                weight, bias = self.combine
                both = torch.cat([attended[2], states[-1][0]], dim=-1)
                readout = fed = torch.baddbmm(bias.unsqueeze(-2), both, weight.mT).tanh_()
            found.append(Found(states, gates, *attended, below, readout))
        by_layer = [
            tuple(stack([part[layer] for part in parts]) for layer in range(self.plan.layers))
            for parts in ([step.states for step in found], [step.gates for step in found])
        ]
        return Found(by_layer[0], by_layer[1], *stack([step[2:] for step in found]))

    def attend(self, j: int, asking: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return scores, weights and context of the state that asks at step j."""
        query = asking if self.query is None else torch.bmm(asking, self.query.mT)
        empty = query.new_empty(self.values.shape[:-1]), query.new_empty(self.values.shape[:-1])
        scores = self.comparison.scores(self.comparison.prepare(query), out=empty[0])
        alpha = self.weighing.weigh(j, asking, scores, out=empty[1])
        context = torch.bmm(as_rows(alpha), self.values.flatten(0, 1))
        return scores, alpha, context.view(*alpha.shape[:2], -1)

    def climb(
        self, p: Tensor, below: Tensor, before: tuple[State, ...]
    ) -> tuple[tuple[State, ...], tuple[tuple[Tensor, ...], ...]]:
        """Return the states and gates of every layer at one step."""
        cell, states, gates = self.plan.cell, [], []
        for weights, state in zip(self.layers, before, strict=True):
            base = p if weights.bias_ih is None else weights.bias_ih.unsqueeze(-2)
            inputs = torch.baddbmm(base, below, weights.ih.mT)
            a = torch.baddbmm(weights.bias_hh.unsqueeze(-2), state[0], weights.hh.mT)
            at_gates, after = cell.run(inputs, a, state)
            gates.append(at_gates)
            states.append(after)
            below = states[-1][0]
        return tuple(states), tuple(gates)


class Adjoint:
    """One way back through a loop; afterwards it holds the gradients at every step.

    found: what was found, for all signals of the layout `rows`. dp, da: of each layer's two sums,
    by gate. d_context, d_query: of c_j and W_q s. d_read: of the sum in a_j. carried, fed: of s_0
    and a_0.
    """

    def __init__(self, loop: Loop, found: Found, first: tuple[State, ...], rows: Rows) -> None:
        self.loop, self.found, self.edges, cell = loop, found, rows.crossings(), loop.plan.cell
        self.before = [
            states_before(start, states) for start, states in zip(first, found.states, strict=True)
        ]
        self.local = [
            cell.linearise(gates, before, states)
            for gates, before, states in zip(found.gates, self.before, found.states, strict=True)
        ]
        self.da = [
            gates[0].new_empty(*gates[0].shape[:-1], cell.gates, s[0].shape[-1])
            for gates, s in zip(found.gates, found.states, strict=True)
        ]
        self.dp = self.da if not cell.apart else [torch.empty_like(da) for da in self.da]
        self.asking = self.before[-1][0] if loop.combine is None else found.states[-1][0]
        into = loop.query
        queries = self.asking if into is None else map_steps(self.asking, into)
        self.prepared = loop.comparison.prepare(queries)
        self.d_query, self.d_context, self.d_read = (
            torch.empty_like(part) for part in (queries, found.context, found.readout)
        )
        self.carried = [tuple(torch.zeros_like(part) for part in start) for start in first]
        self.fed = torch.zeros_like(found.readout[0])  # what arrives at a_j from the step after

    def run(self, g: Tensor) -> None:
        """Go back from the last step to the first, for g = dL/dreadout at every step."""
        time = self.edges[0]
        for j in range(len(g) - 1, -1, -1):
            d_top = g[j]
            if self.loop.combine is not None:
                d_top = self.pull_back_readout(j, g[j] + self.fed)
            d_below = self.pull_back_layers(j, d_top)
            if self.loop.combine is not None:
                self.fed = time(d_below)
            else:
                h, *rest = self.carried[-1]
                self.carried[-1] = (h + self.pull_back_context(j, d_below), *rest)

    def pull_back_readout(self, j: int, d: Tensor) -> Tensor:
        """Return what dL/da_j sends to s_j, beside the context and by it."""
        assert self.loop.combine is not None
        readout = self.found.readout[j]
        d_read = torch.mul(d, 1 - readout * readout, out=self.d_read[j])
        d_both = torch.bmm(d_read, self.loop.combine[0])
        width = self.found.context.shape[-1]
        return d_both[..., width:] + self.pull_back_context(j, d_both[..., :width])

    def pull_back_context(self, j: int, d: Tensor) -> Tensor:
        """Return what dL/dc_j sends to the state that asked, across its query's edge."""
        loop, alpha = self.loop, self.found.alpha[j]
        d_alpha = by_example(self.d_context[j].copy_(d), loop.values.mT, torch.empty_like(alpha))
        weighed = self.asking[j], self.found.scores[j], alpha, d_alpha
        d_scores, by_weighing = loop.weighing.pull_back(j, *weighed)
        d_state = loop.comparison.pull_back(self.prepared[j], d_scores, out=self.d_query[j])
        if loop.query is not None:
            d_state = torch.bmm(d_state, loop.query)
        return self.edges[1](d_state if by_weighing is None else d_state + by_weighing)

    def pull_back_layers(self, j: int, d_top: Tensor) -> Tensor:
        """Take dL/ds_j of the last layer's output; return dL/du_j, and carry on to step j - 1."""
        cell, time, d_above = self.loop.plan.cell, self.edges[0], d_top
        for layer in range(self.loop.plan.layers - 1, -1, -1):
            weights, (h, *rest) = self.loop.layers[layer], self.carried[layer]
            d = (h + d_above, *rest)
            at_j = tuple(part[j] for part in self.local[layer])
            da = cell.pull_to_hidden(at_j, d, self.da[layer][j])
            dp = cell.pull_to_input(at_j, d, da, self.dp[layer][j])
            back = cell.carry(at_j, d, torch.bmm(da.flatten(-2), weights.hh))
            self.carried[layer] = tuple(map(time, back))
            d_above = torch.bmm(dp.flatten(-2), weights.ih)
            if layer:
                d_above = time(d_above)
        return d_above
