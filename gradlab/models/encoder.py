"""The encoder: recurrent layers over the source, in one direction or both, and their adjoint.

    layer 1     h_i = cell(x_i, h_{i-1}), h_0 = 0
    layer l     h_i^l = cell(h_i^{l-1}, h_{i-1}^l)        of the layer below, both directions
    backward    reads x_n .. x_1: its state at i has seen x_i .. x_n

    bridge      final: the forward direction after x_n, the backward direction after x_1; or mean
    total       d_i^l = g_i^l + climbed_i^l + J_{i+1}^T d_{i+1}^l,    climbed^l = W_ih^T dp^{l+1}

(backward: i - 1 in place of i + 1.) Each example is read in its own length; pads are read last in
both directions, so nothing of them comes before a real step. Schuster and Paliwal 1997; Graves et
al. 2013 for the layers.

Tensors of all layers, wherever they come in one tuple, go layer by layer from the first, then
direction by direction, then h before c.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from gradlab.models.cells import CELLS, State
from gradlab.models.layers import Embedding
from gradlab.models.recurrence import pull_back
from gradlab.models.recurrent import Recurrent
from gradlab.models.rows import time_first, time_last
from gradlab.models.trace import Encoded, Pass
from gradlab.tasks import Batch


class Encoder(Recurrent):
    """The recurrent layers that read the source."""

    def read(self, embedding: Embedding, batch: Batch) -> Encoded:
        """Return every layer's states over the source."""
        passes: dict[str, Pass] = {}
        layers: list[State] = []
        lengths = batch.source_lengths
        for index in range(self.layers):
            found = []
            for name in self.names(index):
                if index:
                    below = in_order(layers[-1][0], lengths, name)
                    projected = self.project_states(below, name)
                else:
                    ids = in_order(batch.source.unsqueeze(-1), lengths, name).squeeze(-1)
                    projected = self.project_symbols(embedding, ids, name)
                initial = self.zero_state(projected.batch)
                states = self(projected, initial, None, name)
                passes[name] = Pass(projected, initial, states)
                found.append(tuple(in_order(part, lengths, name) for part in states))
            layers.append(side_by_side(found))
        return Encoded(passes, tuple(layers), lengths)

    def names(self, index: int) -> list[str]:
        """Return torch's suffixes of a layer (from 0), one a direction, forward first."""
        return [f"l{index}{way}" for way in self.ways]

    def pull_back(
        self,
        encoded: Encoded,
        injections: State,
        crossing: Callable[[Tensor], Tensor] | None = None,
    ) -> State:
        """Return the total gradient at every state, each (paths, ..., batch, n, hidden).

        injections: what enters each state from outside the encoder, shaped like the result.
        crossing: what to do to a gradient that goes back one time step.
        """
        count = len(CELLS[self.cell_name].states)
        entering = [injections[at : at + count] for at in range(0, len(injections), count)]
        totals: list[State] = []
        climbed: Tensor | None = None
        for index in reversed(range(self.layers)):
            sides = len(self.ways)
            g = entering[index * sides : (index + 1) * sides]
            if climbed is not None:
                parts = climbed.chunk(sides, dim=-1)
                g = [(h + part, *rest) for (h, *rest), part in zip(g, parts, strict=True)]
            pulled = [
                self._pull_back_layer(encoded, name, side, crossing, climbs=index > 0)
                for name, side in zip(self.names(index), g, strict=True)
            ]
            totals = [*(total for total, _ in pulled), *totals]
            below = [part for _, part in pulled if part is not None]
            climbed = sum(below[1:], below[0]) if below else None
        return tuple(part for total in totals for part in total)

    @torch.no_grad()
    def _pull_back_layer(
        self,
        encoded: Encoded,
        name: str,
        injections: State,
        crossing: Callable[[Tensor], Tensor] | None,
        *,
        climbs: bool,
    ) -> tuple[State, Tensor | None]:
        """Return the totals of one layer in one direction, and what they send to the layer below.

        That is W_ih^T dp, (paths, ..., batch, n, features); None where the layer does not climb.
        """
        cell, run = CELLS[self.cell_name], encoded.passes[name]
        local = self.linearise(run.projected.full(), run.initial, run.states, name)
        g = tuple(time_first(in_order(part, encoded.lengths, name)) for part in injections)
        totals, _ = pull_back(cell, local, g, self.hidden_weights(name)[0], crossing)
        found = tuple(in_order(time_last(part), encoded.lengths, name) for part in totals)
        if not climbs:
            return found, None
        for _ in range(totals[0].dim() - run.states[0].dim()):  # paths stand behind time here
            local = tuple(part.unsqueeze(1) for part in local)
        dp = cell.pull_to_input(local, totals, cell.pull_to_hidden(local, totals)).flatten(-2)
        return found, in_order(time_last(dp @ self.weight_ih(name)), encoded.lengths, name)

    def final(self, encoded: Encoded) -> State:
        """Return each direction's last state, side by side, of every layer; (..., batch, width)."""
        found = []
        for index in range(self.layers):
            runs = [encoded.passes[name] for name in self.names(index)]
            last = (encoded.lengths - 1).expand(runs[0].states[0].shape[:-2])[..., None, None]
            found.append(
                side_by_side(
                    [
                        tuple(
                            torch.take_along_dim(part, last, -2).squeeze(-2) for part in run.states
                        )
                        for run in runs
                    ]
                )
            )
        return tuple(part for state in found for part in state)

    def mean(self, encoded: Encoded) -> State:
        """Return the mean over each example's steps, for every layer; (..., batch, width)."""
        real = _real_steps(encoded)
        return tuple(
            part.masked_fill(~real, 0.0).sum(-2) / encoded.lengths.unsqueeze(-1)
            for state in encoded.layers
            for part in state
        )

    def pull_back_final(self, encoded: Encoded, gradients: State) -> State:
        """Return what `final` sends back: its gradients (.., batch, width) at each last state."""
        first = torch.zeros_like(encoded.lengths)
        steps = (encoded.lengths - 1, first)  # the last step, as each direction reads
        placed = []
        for g in self._by_direction(gradients):
            for side, part in enumerate(g):
                rows = part.unsqueeze(-2)
                zeros = rows.new_zeros(*rows.shape[:-2], encoded.steps, rows.shape[-1])
                step = steps[side][..., None, None].expand_as(rows)
                placed.append(zeros.scatter(-2, step, rows))
        return self._in_one_tuple(placed)

    def pull_back_mean(self, encoded: Encoded, gradients: State) -> State:
        """Return what `mean` sends back: an equal part of its gradients at every step."""
        real = _real_steps(encoded)
        placed = []
        for g in self._by_direction(gradients):
            for part in g:
                each = (part / encoded.lengths.unsqueeze(-1)).unsqueeze(-2)
                placed.append(torch.where(real, each, torch.zeros_like(each)))
        return self._in_one_tuple(placed)

    def at_top(self, gradient: Tensor) -> State:
        """Return a gradient at h of the top layer (..., n, width) among zeros for all the rest."""
        sides = gradient.chunk(len(self.ways), dim=-1)
        zeros = gradient.new_zeros(()).expand_as(sides[0])
        count = len(CELLS[self.cell_name].states)
        lower = [zeros] * ((self.layers - 1) * len(self.ways) * count)
        top = [part for side in sides for part in (side, *[zeros] * (count - 1))]
        return (*lower, *top)

    def _by_direction(self, gradients: State) -> list[tuple[Tensor, ...]]:
        """Split tensors of both directions side by side, one tuple for each layer and state."""
        return [g.chunk(len(self.ways), dim=-1) for g in gradients]

    def _in_one_tuple(self, placed: list[Tensor]) -> State:
        """Bring tensors that go layer, state, direction into the order layer, direction, state."""
        sides, count = len(self.ways), len(CELLS[self.cell_name].states)
        return tuple(
            placed[(layer * count + state) * sides + side]
            for layer in range(self.layers)
            for side in range(sides)
            for state in range(count)
        )


def in_order(x: Tensor, lengths: Tensor, name: str) -> Tensor:
    """Return x (..., batch, n, features) in the order in which a direction reads; its own inverse.

    The backward direction starts at each example's last real step. Pads stay where they are.
    """
    if not name.endswith("_reverse"):
        return x
    steps = torch.arange(x.shape[-2], device=x.device)
    order = lengths.unsqueeze(-1) - 1 - steps
    if bool((order[..., -1] == 0).all()):
        return x.flip(-2)
    order = torch.where(order < 0, steps, order)
    return torch.take_along_dim(x, order.expand(x.shape[:-1]).unsqueeze(-1), -2)


def side_by_side(states: list[State]) -> State:
    """Return the states of the directions with their features in one row."""
    if len(states) == 1:
        return states[0]
    return tuple(torch.cat(parts, dim=-1) for parts in zip(*states, strict=True))


def _real_steps(encoded: Encoded) -> Tensor:
    """Return (..., batch, n, 1), True where the source is real."""
    steps = torch.arange(encoded.steps, device=encoded.lengths.device)
    return (steps < encoded.lengths.unsqueeze(-1)).unsqueeze(-1)
