"""The slow and obvious twin of the synchronous model: a `torch.nn` cell, one step at a time."""

from __future__ import annotations

from typing import Any

import torch
from reference import EDGES, PLAIN, REDUCTIONS, Crossing, Result, Taps, Twin, named
from torch import Tensor

from gradlab.models.cells import CELLS
from gradlab.models.synchronous import Synchronous
from gradlab.schema import Model
from gradlab.tasks import Batch

SHAPES: dict[str, dict[str, Any]] = {
    "fixed": {"lengths": [5, 5]},
    "variable": {"lengths": [3, 1, 8]},
    "delayed": {"lengths": [4, 2], "delay": 3},
}
MODELS = [{"cell": cell, "layers": layers} for cell in CELLS for layers in (1, 2)]


def build_synchronous(symbols: int = 4, seed: int = 0, **spec: Any) -> Synchronous:
    """Return a small float64 model; `spec` are keys of `[model]`."""
    small = {"hidden": 4, "embedding": 3, "kind": "synchronous"}
    return Synchronous(Model.model_validate(small | spec), symbols, seed).double()


class SynchronousTwin(Twin):
    """A `Synchronous` with the same weights; `Twin` has its encoder."""

    def __init__(self, model: Synchronous) -> None:
        self.spec, self.symbols = model.spec, model.symbols
        self.weights = {
            name: value.detach().double().clone() for name, value in model.state_dict().items()
        }
        self.directions = ("forward",)
        self.encoders = [
            {"forward": self._cell("encoder", f"l{layer}")} for layer in range(self.spec.layers)
        ]

    def run(
        self,
        batch: Batch,
        example: int,
        reduction: str,
        taps: Taps | None = None,
        through: tuple[str, ...] = EDGES,
        crossing: Crossing = PLAIN,
    ) -> Result:
        """Run one example alone; the tap on `values` is what the output layer reads."""
        taps = taps or self.taps(batch, example)
        states = self.encode(batch, example, taps, crossing)
        target = batch.target[example, : batch.target_lengths[example]]
        delay = int(batch.source_lengths[example]) - len(target)
        read = crossing.counted(self.top(states)) + taps.values
        logits = [self.output(read[:, delay + j]) for j in range(len(target))]
        nats = torch.stack([self.nats(x, y) for x, y in zip(logits, target, strict=True)], dim=-1)
        loss = REDUCTIONS[reduction](nats)
        return Result(loss, nats, torch.stack(logits, dim=1), states, [], [])


def total_gradients(
    twin: SynchronousTwin, batch: Batch, example: int, reduction: str
) -> dict[str, Tensor]:
    """Return state -> (n, H): the gradient of the loss with respect to a tap on every state."""
    taps = twin.taps(batch, example)
    loss = twin.run(batch, example, reduction, taps).loss.sum()
    found = torch.autograd.grad(loss, taps.states, materialize_grads=True)
    return named(twin, found)


def direct_gradient(twin: SynchronousTwin, batch: Batch, example: int, reduction: str) -> Tensor:
    """Return (n, H): the gradient of the loss with respect to a tap on the way to the output."""
    taps = twin.taps(batch, example)
    loss = twin.run(batch, example, reduction, taps).loss.sum()
    return torch.autograd.grad(loss, taps.values)[0][0]
