"""The encoder-decoder with or without attention: one forward pass, used by everything.

    encoder     h_i = cell(x_i, h_{i-1}), h_0 = 0
    bridge      s_0 = h_n ("initial"); also fed at each decoder step ("every_step"); 0 ("none")
    bahdanau    query s_{j-1};  s_j = cell([y_{j-1}; c_j], s_{j-1});  logits_j = output(s_j)
    luong       s_j = cell(y_{j-1}, s_{j-1});  query s_j;
                logits_j = output(tanh(combine([c_j; s_j])))
    none        as luong without c_j: logits_j = output(s_j)

Bahdanau et al. 2015; Luong et al. 2015 without input feeding; Sutskever et al. 2014.

Padded positions need no mask in the recurrences: the bridge reads each example's true last state
and attention gives pads a weight of exactly zero, so nothing leaves a pad and no gradient enters
one.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gradlab import schema
from gradlab.models.attention import SCORES, attend
from gradlab.models.attentive import AttentiveScan
from gradlab.models.cells import CELLS, State
from gradlab.models.layers import Embedding, Linear, draw_parameters
from gradlab.models.recurrence import Recurrent
from gradlab.models.trace import Counted, Crossing, Decoded, Encoded, ExitEdges, Memory, Trace
from gradlab.tasks import SPECIAL_SYMBOLS, Batch


class Seq2Seq(nn.Module):
    """The encoder-decoder of a `[model]` table, over V data symbols, drawn for a seed.

    Parameters may be stacked on leading axes; then everything it returns has those axes too.
    """

    def __init__(self, spec: schema.Model, symbols: int, seed: int = 0) -> None:
        super().__init__()
        self.spec, self.symbols = spec, symbols
        hidden, embedding = spec.hidden, spec.embedding
        attends = spec.attention != "none"
        self.luong = attends and spec.timing == "luong"
        self.bahdanau = attends and spec.timing == "bahdanau"
        blocks = {"embedding": embedding}
        if self.bahdanau:
            blocks["context"] = hidden
        if spec.bridge == "every_step":
            blocks["bridge"] = hidden
        self.source_embedding = Embedding(symbols + SPECIAL_SYMBOLS, embedding)
        self.target_embedding = Embedding(symbols + SPECIAL_SYMBOLS, embedding)
        self.encoder = Recurrent(spec.cell, {"embedding": embedding}, hidden)
        self.decoder = Recurrent(spec.cell, blocks, hidden)
        self.attention = SCORES[spec.attention](hidden) if attends else None
        self.combine = Linear(2 * hidden, hidden, bias=True) if self.luong else None
        self.output = Linear(hidden, symbols, bias=True)
        draw_parameters(self, seed)

    @property
    def state_names(self) -> tuple[str, ...]:
        """("h",), or ("h", "c") for the LSTM."""
        return CELLS[self.spec.cell].states

    def forward(self, batch: Batch) -> Trace:
        """Run the whole model with teacher forcing: the decoder reads BOS, y_1 .. y_{k-1}."""
        encoded = self.encode(batch)
        memory = self.remember(self.exit_edges(encoded.states, batch), batch)
        decoded = self.decode(batch.decoder_input, memory, self.first_state(memory))
        return Trace(encoded, memory, decoded)

    def encode(self, batch: Batch) -> Encoded:
        """Run the encoder over the source."""
        projected = self.encoder.project_symbols(self.source_embedding, batch.source)
        initial = self.encoder.zero_state(projected)
        return Encoded(projected, initial, self.encoder(projected, initial))

    def exit_edges(self, states: State, batch: Batch) -> ExitEdges:
        """Return the encoder's exit edges, each a tensor of its own."""
        values = keys = None
        if self.attention is not None:
            values, keys = states[0].view_as(states[0]), states[0].view_as(states[0])
        bridge: State = ()
        if self.spec.bridge != "none":
            last = (batch.source_lengths - 1).expand(states[0].shape[:-2])[..., None, None]
            bridge = tuple(torch.take_along_dim(part, last, -2).squeeze(-2) for part in states)
        return ExitEdges(bridge, values, keys)

    def remember(self, edges: ExitEdges, batch: Batch) -> Memory:
        """Return what the decoder may read: the edges, and the keys as the scores want them."""
        projected_keys = None
        if self.attention is not None and edges.keys is not None:
            projected_keys = self.attention.project_keys(edges.keys)
        return Memory(edges, projected_keys, batch.source_mask)

    def first_state(self, memory: Memory) -> State:
        """Return s_0: the bridge, or zeros where there is none."""
        if memory.edges.bridge:
            return memory.edges.bridge
        assert memory.edges.values is not None
        return self.decoder.zero_state(memory.edges.values)

    def decoder_input(self, inputs: Tensor, memory: Memory) -> Tensor:
        """Return the projected input of each decoder step, context aside, for symbols `inputs`."""
        projected = self.decoder.project_symbols(self.target_embedding, inputs)
        if self.spec.bridge == "every_step":
            bridge = memory.edges.bridge[0].unsqueeze(-2)
            projected = projected + self.decoder.project("bridge", bridge)
        return projected

    def decode(
        self, inputs: Tensor, memory: Memory, state: State, counted: Counted | None = None
    ) -> Decoded:
        """Run the decoder over the symbols `inputs` (..., batch, k) from `state`."""
        projected = self.decoder_input(inputs, memory)
        if self.bahdanau:
            return self._decode_bahdanau(projected, memory, state, counted)
        states = self.decoder(projected, state, counted)
        last = tuple(part[..., -1, :] for part in states)
        if self.attention is None:
            logits = self.output(states[0])
            return Decoded(projected, states, last, None, None, None, None, logits)
        query = states[0]
        if counted is not None:
            query = Crossing.apply(query, counted.query)  # type: ignore[no-untyped-call]
        scores = self.attention(query, memory.projected_keys)
        assert memory.edges.values is not None and self.combine is not None
        weights, context = attend(scores, memory.edges.values, memory.mask)
        readout = torch.tanh(self.combine(torch.cat([context, states[0]], dim=-1)))
        logits = self.output(readout)
        return Decoded(projected, states, last, query, scores, weights, context, logits)

    def _decode_bahdanau(
        self, projected: Tensor, memory: Memory, state: State, counted: Counted | None
    ) -> Decoded:
        assert memory.edges.values is not None and self.attention is not None
        score, decoder = self.attention, self.decoder
        found = AttentiveScan.apply(  # type: ignore[no-untyped-call]
            *(decoder.cell_name, score.compare, counted, memory.mask),
            *(projected, memory.projected_keys, memory.edges.values),
            *(decoder.block("context"), score.query_weight()),
            *(decoder.weight_hh_l0, decoder.bias_hh_l0, *state, *score.compared_with()),
        )
        *states, scores, weights, context, inputs = found
        query = torch.cat([state[0].unsqueeze(-2), states[0][..., :-1, :]], dim=-2)
        last = tuple(part[..., -1, :] for part in states)
        logits = self.output(states[0])
        return Decoded(inputs, tuple(states), last, query, scores, weights, context, logits)

    @torch.no_grad()
    def greedy(self, batch: Batch) -> Tensor:
        """Decode freely: each step reads the symbol that the step before gave. (..., batch, k)."""
        memory = self.remember(self.exit_edges(self.encode(batch).states, batch), batch)
        state = self.first_state(memory)
        symbol = batch.decoder_input[..., :1]
        symbols = []
        for _ in range(batch.target.shape[-1]):
            decoded = self.decode(symbol, memory, state)
            state, symbol = decoded.last, decoded.logits.argmax(-1)
            symbols.append(symbol)
        return torch.cat(symbols, dim=-1)
