"""The training loop; it prints nothing and measures nothing, it stops to be looked at.

Several seeds of one experiment can be trained in lockstep: their forward and backward passes are
one, on parameters stacked along a leading axis, which saves time where a pass is short of work.
Each seed keeps its own batches, clipping and optimizer, and its numbers are, bit for bit, those of
training alone: the first step is made both ways, and if one gradient differs in one bit, each seed
goes its own way.

An LSTM that torch's fused layers train faster (see `lockstep`) is trained by them, each seed alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call

from gradlab.grid import Point
from gradlab.lab.fitting import batch_to_fit, optimizer_of
from gradlab.lab.lockstep import by_fused_layers
from gradlab.models.family import AnyModel
from gradlab.models.fused import fused_logits
from gradlab.models.loss import batch_loss
from gradlab.models.seq2seq import Seq2Seq
from gradlab.tasks import Batch


@dataclass(frozen=True)
class Checkpoint:
    """A moment at which a model is to be measured, before the update of training step `step`.

    index: which of the models. gradient_norm: of all parameters on the next training batch, before
    clipping. diverged: the training loss is no longer finite; no checkpoint of the model follows.
    """

    index: int
    step: int
    gradient_norm: float
    diverged: bool


def train(
    models: Sequence[AnyModel], points: Sequence[Point], device: torch.device
) -> Iterator[Checkpoint]:
    """Train models in place; yield at step 0, every `record.every` steps, and the last.

    points: one a model, differing only in their seeds. Minimises the mean cross-entropy over
    unpadded target tokens; `fitting` says on what and by which rule.
    """
    training, every = points[0].training, points[0].record.every
    optimizers = [optimizer_of(*each) for each in zip(models, points, strict=True)]
    fused = by_fused_layers(points[0], device.type)
    running, lockstep = list(range(len(models))), len(models) > 1 and not fused
    for step in range(training.steps + 1):
        batches = [batch_to_fit(models[i], points[i], step, device) for i in running]
        losses = backward([models[i] for i in running], batches, lockstep, fused)
        if step == 0 and lockstep:
            lockstep = agree(models, batches)
        for i, finite in zip(list(running), torch.isfinite(losses).tolist(), strict=True):
            if not finite or step == training.steps or step % every == 0:
                yield Checkpoint(i, step, gradient_norm(models[i]), not finite)
            if not finite or step == training.steps:
                running.remove(i)
                continue
            if training.clip:
                torch.nn.utils.clip_grad_norm_(models[i].parameters(), training.clip)
            optimizers[i].step()
        if not running:
            return


def backward(
    models: Sequence[AnyModel], batches: Sequence[Batch], lockstep: bool, fused: bool = False
) -> Tensor:
    """Set the gradient of each model's loss on its batch; return the losses (models,)."""
    for model in models:
        model.zero_grad()
    if lockstep and len(models) > 1:
        loss = batch_loss(*together(models, batches))
        loss.sum().backward()
        return loss.detach()
    losses = []
    for model, batch in zip(models, batches, strict=True):
        loss = batch_loss(_logits(model, batch, fused), batch)
        loss.backward()
        losses.append(loss.detach())
    return torch.stack(losses)


def _logits(model: AnyModel, batch: Batch, fused: bool) -> Tensor:
    if fused:
        assert isinstance(model, Seq2Seq)
        return fused_logits(model, batch)
    logits: Tensor = model(batch).logits
    return logits


def together(models: Sequence[AnyModel], batches: Sequence[Batch]) -> tuple[Tensor, Batch]:
    """Return the logits (models, batch, k, V) of all models in one pass, and their batches as one.

    Raises RuntimeError where the batches differ in their lengths.
    """
    names = [name for name, _ in models[0].named_parameters()]
    stacked = {name: torch.stack([m.get_parameter(name) for m in models]) for name in names}
    fields = ["source", "source_lengths", "target", "target_lengths"]
    if batches[0].read is not None:
        fields.append("read")
    joined: dict[str, Any] = {
        field: torch.stack([getattr(batch, field) for batch in batches]) for field in fields
    }
    batch = replace(batches[0], **joined)
    return functional_call(models[0], stacked, (batch,)).logits, batch


def agree(models: Sequence[AnyModel], batches: Sequence[Batch]) -> bool:
    """Return whether the gradients just made in lockstep are those of each model alone."""
    found = [[w.grad for w in model.parameters()] for model in models]
    backward(models, batches, lockstep=False)
    alone = [[w.grad for w in model.parameters()] for model in models]
    return all(
        a is not None and b is not None and torch.equal(a, b)
        for ours, theirs in zip(found, alone, strict=True)
        for a, b in zip(ours, theirs, strict=True)
    )


def gradient_norm(model: AnyModel) -> float:
    """Return the L2 norm of all parameters' gradients, summed in float64."""
    gradients: list[Tensor] = [p.grad.double() for p in model.parameters() if p.grad is not None]
    return float(torch.stack([torch.linalg.vector_norm(g) for g in gradients]).norm())
