"""The encoder-decoder with or without attention: one forward pass, used by everything.

    encoder     h_i = cell(x_i, h_{i-1}), h_0 = 0; several layers and both directions in `encoder`
    bridge      s_0 = h_n ("initial"); also fed at each decoder step ("every_step"); the mean of the
                h_i ("mean"); 0 ("none"); layer by layer, and B [forward; backward] of a two-way
                encoder, with one B for every layer, for h and for c
    bahdanau    query s_{j-1};  s_j = cell([y_{j-1}; c_j], s_{j-1});  logits_j = output(s_j)
    luong       s_j = cell(y_{j-1}, s_{j-1});  query s_j;
                a_j = tanh(combine([c_j; s_j]));  logits_j = output(a_j)
    feeding     luong with s_j = cell([y_{j-1}; a_{j-1}], s_{j-1}), a_0 = 0
    none        as luong without c_j: logits_j = output(s_j)

Bahdanau et al. 2015; Luong et al. 2015, section 3.3 for feeding; Sutskever et al. 2014. Of several
layers the first reads the input, and the query, a_j and the logits are the last one's.

Padded positions need no mask in the recurrences: the bridge reads each example's true last state
and attention gives pads a weight of exactly zero, so nothing leaves a pad or enters one.
"""

from __future__ import annotations

from operator import attrgetter

import torch
from torch import Tensor, nn

from gradlab import schema
from gradlab.models.attentive_scan import AttentiveScan
from gradlab.models.cells import CELLS, State
from gradlab.models.counted import Counted, Crossing
from gradlab.models.decoding import decode_freely
from gradlab.models.encoder import Encoder
from gradlab.models.inputs import Projected
from gradlab.models.layers import Embedding, Linear, Readout, draw_parameters, linear
from gradlab.models.recurrent import Recurrent
from gradlab.models.scopes import SCOPES
from gradlab.models.scores import SCORES
from gradlab.models.stepwise import Plan
from gradlab.models.stepwise_scan import StepwiseScan
from gradlab.models.trace import Decoded, Encoded, ExitEdges, Memory, Trace
from gradlab.tasks import SPECIAL_SYMBOLS, Batch


class Seq2Seq(nn.Module):
    """The encoder-decoder of a `[model]` table, over V data symbols, drawn for a seed.

    longest: the largest number of source steps that it will read; attention "location" must know.
    Parameters may be stacked on leading axes; then everything it returns has those axes too.
    """

    def __init__(
        self, spec: schema.Model, symbols: int, seed: int = 0, longest: int | None = None
    ) -> None:
        super().__init__()
        self.spec, self.symbols = spec, symbols
        hidden, embedding = spec.hidden, spec.embedding
        start = spec.init, spec.gain, spec.layers
        attends = spec.attention != "none"
        self.luong = attends and spec.timing == "luong"
        self.bahdanau = attends and spec.timing == "bahdanau"
        self.feeds = self.luong and spec.input_feeding
        width = 2 * hidden if spec.bidirectional else hidden  # of an encoder state as it is read
        blocks = {"embedding": embedding}
        if self.bahdanau:
            blocks["context"] = width
        if self.feeds:
            blocks["feeding"] = hidden
        if spec.bridge == "every_step":
            blocks["bridge"] = hidden
        self.source_embedding = Embedding(symbols + SPECIAL_SYMBOLS, embedding)
        self.target_embedding = Embedding(symbols + SPECIAL_SYMBOLS, embedding)
        self.encoder = Encoder(
            spec.cell, {"embedding": embedding}, hidden, *start, spec.bidirectional
        )
        self.decoder = Recurrent(spec.cell, blocks, hidden, *start)
        bridged = spec.bidirectional and spec.bridge != "none"
        self.bridge = Linear(width, hidden, bias=False) if bridged else None
        self.attention = SCORES[spec.attention](hidden, width, longest) if attends else None
        self.scope = SCOPES[spec.scope](spec.window)
        if self.attention is not None:
            for name, layer in self.scope.layers(hidden).items():
                self.attention.add_module(name, layer)
        self.combine = Linear(width + hidden, hidden, bias=True) if self.luong else None
        self.output = Readout(hidden, symbols)
        draw_parameters(self, seed)

    @property
    def state_names(self) -> tuple[str, ...]:
        """("h",), or ("h", "c") for the LSTM."""
        return CELLS[self.spec.cell].states

    def forward(self, batch: Batch) -> Trace:
        """Run the whole model with teacher forcing: the decoder reads BOS, y_1 .. y_{k-1}."""
        encoded = self.encode(batch)
        memory = self.remember(self.exit_edges(encoded), batch)
        decoded = self.decode(batch.decoder_input, memory, self.first_state(memory))
        return Trace(encoded, memory, decoded)

    def encode(self, batch: Batch) -> Encoded:
        """Run the encoder over the source."""
        return self.encoder.read(self.source_embedding, batch)

    def exit_edges(self, encoded: Encoded) -> ExitEdges:
        """Return the encoder's exit edges, each a tensor of its own."""
        values = keys = None
        if self.attention is not None:
            top = encoded.states[0]
            values = top.view_as(top)
            keys = top.view_as(top) if self.attention.reads_keys else None
        bridge: State = ()
        if self.spec.bridge != "none":
            leave = self.encoder.mean if self.spec.bridge == "mean" else self.encoder.final
            bridge = leave(encoded)
        return ExitEdges(bridge, values, keys)

    def pull_back_bridge(self, encoded: Encoded, gradients: State) -> State:
        """Return what enters every encoder state where `gradients` enter the bridge's tensors."""
        if self.spec.bridge == "mean":
            return self.encoder.pull_back_mean(encoded, gradients)
        return self.encoder.pull_back_final(encoded, gradients)

    def remember(self, edges: ExitEdges, batch: Batch) -> Memory:
        """Return what the decoder may read: the edges, the keys as scores want them, and s_0."""
        projected_keys = compare = None
        if self.attention is not None and edges.values is not None:
            keys = edges.values if edges.keys is None else edges.keys
            projected_keys = self.attention.project_keys(keys)
            compare = self.attention.compare
        steps = range(1, batch.target.shape[-1] + 1)
        mask = self.scope.reach(batch.source_mask, batch.target_lengths, steps)
        first = edges.bridge
        if self.bridge is not None:
            first = tuple(linear(part, self.bridge.weight) for part in edges.bridge)
        return Memory(edges, projected_keys, mask, first, compare)

    def scope_weights(self) -> tuple[Tensor, ...]:
        """Return the weights that the scope takes."""
        names = (f"attention.{name}.weight" for name in self.scope.layer_names)
        return tuple(attrgetter(name)(self) for name in names)

    def first_state(self, memory: Memory) -> State:
        """Return s_0 of every layer: the bridge, or zeros where there is none; then a_0, if fed."""
        state = memory.first
        if state and not self.feeds:
            return state
        assert memory.edges.values is not None
        zeros = self.decoder.zero_state(memory.edges.values.shape[:-2])
        state = state or zeros * self.spec.layers
        return (*state, zeros[0]) if self.feeds else state

    def decoder_input(self, inputs: Tensor, memory: Memory) -> Projected:
        """Return the projected input of each decoder step, context aside, for symbols `inputs`."""
        projected = self.decoder.project_symbols(self.target_embedding, inputs)
        if self.spec.bridge != "every_step":
            return projected
        bridge = memory.first[-len(self.state_names)].unsqueeze(-2)
        return Projected(projected.full() + self.decoder.project("bridge", bridge))

    def decode(
        self, inputs: Tensor, memory: Memory, state: State, counted: Counted | None = None
    ) -> Decoded:
        """Run the decoder over the symbols `inputs` (..., batch, k) from `state`."""
        projected = self.decoder_input(inputs, memory)
        if self.bahdanau and self.spec.layers == 1:
            return self._decode_bahdanau(projected, memory, state, counted)
        if self.bahdanau or self.feeds:
            return self._decode_stepwise(projected, memory, state, counted)
        states = self.decoder.climb(projected, state, counted)
        return self._read_out(projected, states, memory, counted)

    def _read_out(
        self, projected: Projected, states: State, memory: Memory, counted: Counted | None
    ) -> Decoded:
        """Return all that follows from the states of some steps, with no attention or luong's."""
        last = tuple(part[..., -1, :] for part in states)
        top = states[-len(self.state_names)]
        if self.combine is None:
            return Decoded(projected, states, last, None, None, None, None, self.output(top))
        query, scores, weights, context = self._attend(top, memory, counted)
        readout = torch.tanh(self.combine(torch.cat([context, top], dim=-1)))
        logits = self.output(readout)
        return Decoded(projected, states, last, query, scores, weights, context, logits)

    def _attend(
        self, query: Tensor, memory: Memory, counted: Counted | None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return queries (..., batch, k, hidden), as they cross their edge, and what they find."""
        assert memory.edges.values is not None and self.attention is not None
        if counted is not None:
            query = Crossing.apply(query, counted.query)  # type: ignore[no-untyped-call]
        scores = self.attention(query, memory.projected_keys)
        weights = self.scope.weigh(scores, query, memory.mask, *self.scope_weights())
        return query, scores, weights, weights @ memory.edges.values

    def _decode_stepwise(
        self, projected: Projected, memory: Memory, state: State, counted: Counted | None
    ) -> Decoded:
        """Decode with several layers and bahdanau timing, or with input feeding."""
        assert memory.edges.values is not None and self.attention is not None
        assert memory.compare is not None
        score, decoder, below = self.attention, self.decoder, "feeding" if self.feeds else "context"
        plan = Plan(
            CELLS[self.spec.cell],
            *(memory.compare, self.scope, counted, memory.mask, self.spec.layers, self.feeds),
        )
        combine = () if self.combine is None else (self.combine.weight, self.combine.bias)
        readout, *states, scores, weights, context = StepwiseScan.apply(  # type: ignore[no-untyped-call]
            *(plan, projected.full(), memory.projected_keys, memory.edges.values),
            *decoder.stacked_weights(below),
            *(score.query_weight(), *combine, *state),
            *(*self.scope_weights(), *score.compared_with()),
        )
        last = tuple(part[..., -1, :] for part in states)
        top = -len(self.state_names)
        query = torch.cat([state[top].unsqueeze(-2), states[top][..., :-1, :]], dim=-2)
        if self.feeds:
            last, query = (*last, readout[..., -1, :]), states[top]
        logits = self.output(readout)
        return Decoded(projected, tuple(states), last, query, scores, weights, context, logits)

    def _decode_bahdanau(
        self, projected: Projected, memory: Memory, state: State, counted: Counted | None
    ) -> Decoded:
        assert memory.edges.values is not None and self.attention is not None
        score, decoder = self.attention, self.decoder
        projected = projected.expand(*memory.edges.values.shape[:-2])
        found = AttentiveScan.apply(  # type: ignore[no-untyped-call]
            *(decoder.cell_name, memory.compare, self.scope, counted, memory.mask),
            *(projected.ids, projected.rows, memory.projected_keys, memory.edges.values),
            *(decoder.block("context"), score.query_weight()),
            *(decoder.weight_hh_l0, decoder.bias_hh_l0, *state),
            *(*self.scope_weights(), *score.compared_with()),
        )
        *states, scores, weights, context = found
        query = torch.cat([state[0].unsqueeze(-2), states[0][..., :-1, :]], dim=-2)
        last = tuple(part[..., -1, :] for part in states)
        logits = self.output(states[0])
        return Decoded(projected, tuple(states), last, query, scores, weights, context, logits)

    @torch.no_grad()
    def greedy(self, batch: Batch, forced: Tensor | None = None) -> Tensor:
        """Decode freely: each step reads the symbol that the step before gave. (..., batch, k).

        forced: (..., batch, k) bool; after these steps the true symbol is read instead.
        """
        memory = self.remember(self.exit_edges(self.encode(batch)), batch)
        if self.attention is not None:
            memory = memory.for_steps(batch.target.shape[-1])

        def step(symbol: Tensor, at: tuple[int, State]) -> tuple[Tensor, tuple[int, State]]:
            j, state = at
            decoded = self.decode(symbol, memory.at(j), state)
            return decoded.logits, (j + 1, decoded.last)

        return decode_freely(batch, step, (0, self.first_state(memory)), forced)
