"""The slow and obvious twin of the transformer: layers of `torch.nn` with copied weights.

One example at a time, alone and without its padding. Zeros are added ("taps") to the output of
every encoder layer, so that autograd or a finite difference by a tap is the gradient there.

Shapes: source length n, target length k, hidden size H, symbols V.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from reference import REDUCTIONS, State, times, unchanged
from torch import Tensor, nn

from gradlab.models.transformer import Transformer
from gradlab.schema import Model
from gradlab.tasks import Batch


def build(symbols: int = 4, seed: int = 0, **spec: Any) -> Transformer:
    """Return a small float64 transformer; `spec` are keys of `[model]`."""
    small = {"kind": "transformer", "hidden": 6, "heads": 2, "feedforward": 5, "layers": 2}
    return Transformer(Model.model_validate(small | spec), symbols, seed).double()


def torch_encoder(model: Transformer) -> nn.TransformerEncoder:
    """Return the encoder as torch has it, with copied weights."""
    spec = model.spec
    layer = nn.TransformerEncoderLayer(
        *(spec.hidden, spec.heads, spec.feedforward, 0.0, "relu"), batch_first=True, norm_first=True
    )
    norm = nn.LayerNorm(spec.hidden)
    encoder = nn.TransformerEncoder(layer, spec.layers, norm, enable_nested_tensor=False).double()
    encoder.load_state_dict(model.encoder.state_dict())
    return encoder.requires_grad_(False)


def torch_decoder(model: Transformer) -> nn.TransformerDecoder:
    """Return the decoder as torch has it, with copied weights."""
    spec = model.spec
    layer = nn.TransformerDecoderLayer(
        *(spec.hidden, spec.heads, spec.feedforward, 0.0, "relu"), batch_first=True, norm_first=True
    )
    decoder = nn.TransformerDecoder(layer, spec.layers, nn.LayerNorm(spec.hidden)).double()
    decoder.load_state_dict(model.decoder.state_dict())
    return decoder.requires_grad_(False)


def positions(length: int, hidden: int) -> Tensor:
    """Return the sinusoidal positions, one number at a time."""
    rows = torch.empty(length, hidden, dtype=torch.float64)
    for t in range(length):
        for column in range(hidden):
            angle = torch.tensor(t / 10000 ** (2 * (column // 2) / hidden), dtype=torch.float64)
            rows[t, column] = angle.cos() if column % 2 else angle.sin()
    return rows


@dataclass(frozen=True)
class Result:
    """One example, alone: loss (), nats (k,), logits (k, V); weights of layers, (heads, k, n)."""

    loss: Tensor
    nats: Tensor
    logits: Tensor
    weights: list[Tensor]


class TransformerTwin:
    """A `Transformer` with the same weights, its decoder layers written out."""

    def __init__(self, model: Transformer) -> None:
        self.spec, self.symbols = model.spec, model.symbols
        self.encoder, self.decoder = torch_encoder(model), torch_decoder(model)
        self.weights = {name: w.detach().clone() for name, w in model.state_dict().items()}
        layers = range(1, model.spec.layers + 1)
        self.edges = [f"{edge}.{layer}" for edge in ("values", "keys") for layer in layers]

    def taps(self, batch: Batch, example: int) -> State:
        """Return zeros (1, n, H) for the output of each encoder layer."""
        shape = 1, int(batch.source_lengths[example]), self.spec.hidden
        layers = range(self.spec.layers)
        return tuple(torch.zeros(shape, dtype=torch.float64, requires_grad=True) for _ in layers)

    def embed(self, side: str, ids: Tensor) -> Tensor:
        rows = self.weights[f"{side}_embedding.weight"][ids]
        placed: Tensor = rows + positions(len(ids), self.spec.hidden)
        return placed[None]

    def encode(self, batch: Batch, example: int, taps: State) -> Tensor:
        """Return the memory, (1, n, H)."""
        x = self.embed("source", batch.source[example, : batch.source_lengths[example]])
        for layer, tap in zip(self.encoder.layers, taps, strict=True):
            x = layer(x) + tap
        memory: Tensor = self.encoder.norm(x)  # type: ignore[misc]
        return memory

    def run(
        self,
        batch: Batch,
        example: int,
        reduction: str,
        taps: State | None = None,
        through: Sequence[str] | None = None,
        *,
        cut: bool = False,
    ) -> Result:
        """Run one example of the batch alone.

        through: the exit edges by which taps may reach the loss (None: all); the others read the
        memory of a run without taps. cut: whether no gradient passes a query of cross-attention.
        """
        nothing = self.taps(batch, example)
        moving = self.encode(batch, example, taps or nothing)
        still = self.encode(batch, example, nothing)
        memory = {
            edge: moving if through is None or edge in through else still for edge in self.edges
        }
        target = batch.target[example, : batch.target_lengths[example]]
        x = self.embed("target", torch.cat([torch.tensor([self.symbols]), target[:-1]]))
        later, weights = torch.ones(len(target), len(target)).triu(1).bool(), []
        for number, layer in enumerate(self.decoder.layers, 1):
            assert isinstance(layer, nn.TransformerDecoderLayer)
            y = layer.norm1(x)
            x = x + layer.self_attn(y, y, y, attn_mask=later)[0]
            query = (times(0.0) if cut else unchanged)(layer.norm2(x))
            keys, values = memory[f"keys.{number}"], memory[f"values.{number}"]
            read, seen = layer.multihead_attn(query, keys, values, average_attn_weights=False)
            x = x + read
            x = x + layer.linear2(torch.relu(layer.linear1(layer.norm3(x))))
            weights.append(seen[0])
        out = self.decoder.norm(x)[0]  # type: ignore[misc]
        logits = out @ self.weights["output.weight"].T + self.weights["output.bias"]
        nats = -torch.log_softmax(logits, -1)[torch.arange(len(target)), target]
        return Result(REDUCTIONS[reduction](nats[None])[0], nats, logits, weights)

    def gradients(
        self,
        batch: Batch,
        example: int,
        reduction: str,
        through: Sequence[str] | None = None,
        *,
        cut: bool = False,
    ) -> list[Tensor]:
        """Return the gradient at the output of each encoder layer, (n, H)."""
        taps = self.taps(batch, example)
        loss = self.run(batch, example, reduction, taps, through, cut=cut).loss
        return [g[0] for g in torch.autograd.grad(loss, taps, materialize_grads=True)]
