"""The transformer: an encoder-decoder of attention alone; Vaswani et al. 2017, pre-norm.

    encoder   h^0_i = embedding(x_i) + position(i);  h^l = layer_l(h^{l-1}), l = 1 .. L
    memory    m_i = norm(h^L_i), read by the cross-attention of every decoder layer
    decoder   s^0_j = embedding(y_{j-1}) + position(j);  s^l = layer_l(s^{l-1}, m), l = 1 .. L
    output    logits_j = output(norm(s^L_j))

The states of encoder layer l are its output h^l, before the final norm; each decoder layer reads
the memory as values and as keys, and each of these ways out of the encoder is a tensor of its own.

Rows of an embedding are drawn from N(0, 1), the size that the paper's factor sqrt(hidden) gives to
rows drawn from N(0, 1 / hidden); there is no factor besides. There is no dropout, and no length
limit: positions are computed for the length at hand.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from gradlab import schema
from gradlab.errors import GradlabError
from gradlab.models.counted import Crossing
from gradlab.models.decoding import decode_freely
from gradlab.models.layers import Embedding, draw_parameters
from gradlab.models.transformer_layers import (
    Asked,
    DecoderLayer,
    Dense,
    EncoderLayer,
    LayerNorm,
    key_mask,
    positions,
)
from gradlab.tasks import SPECIAL_SYMBOLS, Batch


@dataclass(frozen=True)
class CrossEdges:
    """The ways out of the encoder: the memory as each decoder layer reads it.

    values, keys: one tensor a decoder layer, each (..., batch, n, hidden).
    """

    values: tuple[Tensor, ...]
    keys: tuple[Tensor, ...]


@dataclass(frozen=True)
class Climbed:
    """What to do to a gradient, on its way back, at an edge of the decoder.

    layer: where it goes down from one decoder layer to the one below. query: where it enters a
    query of cross-attention. Both take gradients (signals, ...) and return the same shape.
    """

    layer: Callable[[Tensor], Tensor]
    query: Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class EncodedLayers:
    """What the encoder computed: h^0, h^1 .. h^L and the memory, each (..., batch, n, hidden)."""

    embedded: Tensor
    states: tuple[Tensor, ...]
    memory: Tensor


@dataclass(frozen=True)
class DecodedLayers:
    """What the decoder computed, one tensor a layer.

    embedded, states: s^0 and s^1 .. s^L, each (..., batch, k, hidden).
    queries: what cross-attention is asked, each (..., batch, k, hidden).
    asked: what the weights of cross-attention follow from.
    logits: (..., batch, k, V).
    """

    embedded: Tensor
    states: tuple[Tensor, ...]
    queries: tuple[Tensor, ...]
    asked: tuple[Asked, ...]
    logits: Tensor

    @property
    def head_weights(self) -> tuple[Tensor, ...]:
        """Cross-attention weights of each layer by head, each (..., batch, heads, k, n)."""
        return tuple(asked.weights for asked in self.asked)

    @property
    def weights(self) -> tuple[Tensor, ...]:
        """Cross-attention weights of each layer, mean over heads, each (..., batch, k, n)."""
        return tuple(weights.mean(-3) for weights in self.head_weights)


@dataclass(frozen=True)
class TransformerTrace:
    """One forward pass of a transformer."""

    encoded: EncodedLayers
    edges: CrossEdges
    decoded: DecodedLayers

    @property
    def encoder_states(self) -> tuple[Tensor, ...]:
        return self.encoded.states

    @property
    def logits(self) -> Tensor:
        return self.decoded.logits


class Encoder(nn.Module):
    """Layers and a final norm, named as in `torch.nn.TransformerEncoder`."""

    def __init__(self, layers: int, hidden: int, heads: int, feedforward: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(EncoderLayer(hidden, heads, feedforward) for _ in range(layers))
        self.norm = LayerNorm(hidden)


class Decoder(nn.Module):
    """Layers and a final norm, named as in `torch.nn.TransformerDecoder`."""

    def __init__(self, layers: int, hidden: int, heads: int, feedforward: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(DecoderLayer(hidden, heads, feedforward) for _ in range(layers))
        self.norm = LayerNorm(hidden)


class Transformer(nn.Module):
    """The transformer of a `[model]` table, over V data symbols, drawn for a seed.

    Parameters may be stacked on leading axes; then everything it returns has those axes too.
    Raises GradlabError where the heads do not divide the hidden size.
    """

    state_names = ("h",)

    def __init__(self, spec: schema.Model, symbols: int, seed: int = 0) -> None:
        super().__init__()
        if spec.hidden % spec.heads:
            raise GradlabError(
                f"model.heads: expected a divisor of model.hidden, {spec.hidden}, "
                f"found {spec.heads}"
            )
        self.spec, self.symbols = spec, symbols
        sizes = spec.layers, spec.hidden, spec.heads, spec.feedforward
        self.source_embedding = Embedding(symbols + SPECIAL_SYMBOLS, spec.hidden)
        self.target_embedding = Embedding(symbols + SPECIAL_SYMBOLS, spec.hidden)
        self.encoder, self.decoder = Encoder(*sizes), Decoder(*sizes)
        self.output = Dense(spec.hidden, symbols, bias=True)
        draw_parameters(self, seed)

    def forward(self, batch: Batch) -> TransformerTrace:
        """Run the whole model with teacher forcing: the decoder reads BOS, y_1 .. y_{k-1}."""
        encoded = self.encode(batch)
        edges = self.exit_edges(encoded.memory)
        decoded = self.decode(batch.decoder_input, edges, batch.source_mask)
        return TransformerTrace(encoded, edges, decoded)

    def encode(self, batch: Batch) -> EncodedLayers:
        """Run the encoder over the source."""
        embedded = self._place(self.source_embedding, batch.source)
        mask, states = key_mask(batch.source_mask), [embedded]
        for layer in self.encoder.layers:
            states.append(layer(states[-1], mask))
        return EncodedLayers(embedded, tuple(states[1:]), self.encoder.norm(states[-1]))

    def exit_edges(self, memory: Tensor) -> CrossEdges:
        """Return the encoder's exit edges, each a tensor of its own."""
        each = range(self.spec.layers)
        return CrossEdges(*(tuple(memory.view_as(memory) for _ in each) for _ in range(2)))

    def decode(
        self, inputs: Tensor, edges: CrossEdges, mask: Tensor, climbed: Climbed | None = None
    ) -> DecodedLayers:
        """Run the decoder over the symbols `inputs` (..., batch, k).

        mask: (..., batch, n), True where the source is real. What leads the edges leads the result.
        """
        embedded = self._place(self.target_embedding, inputs)
        mask, x = key_mask(mask), embedded
        states, queries, all_asked = [], [], []
        for number, layer in enumerate(self.decoder.layers):
            assert isinstance(layer, DecoderLayer)
            if climbed is not None and number > 0:
                x = Crossing.apply(x, climbed.layer)  # type: ignore[no-untyped-call]
            x, query = layer.before(x)
            if climbed is not None and number > 0:
                query = Crossing.apply(query, climbed.query)  # type: ignore[no-untyped-call]
            read, asked = layer.multihead_attn(
                query, edges.keys[number], edges.values[number], mask
            )
            x = layer.after(x, read)
            states.append(x)
            queries.append(query)
            all_asked.append(asked)
        logits = self.output(self.decoder.norm(x))
        return DecodedLayers(embedded, tuple(states), tuple(queries), tuple(all_asked), logits)

    def _place(self, embedding: Embedding, ids: Tensor) -> Tensor:
        """Return the embedded symbols `ids` (..., batch, time), each with its position added."""
        rows = embedding(ids)
        length, hidden = rows.shape[-2:]
        placed: Tensor = rows + positions(length, hidden, rows)
        return placed.contiguous()

    @torch.no_grad()
    def greedy(self, batch: Batch, forced: Tensor | None = None) -> Tensor:
        """Decode freely: each step reads the symbols that the steps before gave. (..., batch, k).

        Every step runs the decoder over all that it has read so far.
        forced: (..., batch, k) bool; after these steps the true symbol is read instead.
        """
        edges = self.exit_edges(self.encode(batch).memory)

        def step(symbol: Tensor, read: Tensor) -> tuple[Tensor, Tensor]:
            read = torch.cat([read.expand(*symbol.shape[:-1], -1), symbol], dim=-1)
            return self.decode(read, edges, batch.source_mask).logits[..., -1:, :], read

        return decode_freely(batch, step, batch.decoder_input[..., :0], forced)
