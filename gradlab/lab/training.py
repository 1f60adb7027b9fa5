"""The training loop; it prints nothing and measures nothing, it stops to be looked at."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from gradlab.grid import Point
from gradlab.models.loss import batch_loss
from gradlab.models.seq2seq import Seq2Seq
from gradlab.tasks import training_batch


@dataclass(frozen=True)
class Checkpoint:
    """A moment at which the model is to be measured, before the update of training step `step`.

    gradient_norm: of all parameters on the next training batch, before clipping.
    diverged: the training loss is no longer finite; no checkpoint follows.
    """

    step: int
    gradient_norm: float
    diverged: bool


def train(model: Seq2Seq, point: Point, device: torch.device) -> Iterator[Checkpoint]:
    """Train `model` in place with teacher forcing; yield at step 0, every `record.every`, the last.

    Minimises the mean cross-entropy over unpadded target tokens with Adam (Kingma and Ba 2015).
    """
    training = point.training
    optimizer = torch.optim.Adam(model.parameters(), lr=training.lr, fused=True)
    for step in range(training.steps + 1):
        batch = training_batch(point.task, training.batch, point.seed, step).to(device)
        loss = batch_loss(model(batch).logits, batch)
        diverged = not bool(torch.isfinite(loss))
        optimizer.zero_grad()
        loss.backward()
        if diverged or step == training.steps or step % point.record.every == 0:
            yield Checkpoint(step, gradient_norm(model), diverged)
        if diverged or step == training.steps:
            return
        if training.clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), training.clip)
        optimizer.step()


def gradient_norm(model: Seq2Seq) -> float:
    """Return the L2 norm of all parameters' gradients, summed in float64."""
    gradients: list[Tensor] = [p.grad.double() for p in model.parameters() if p.grad is not None]
    return float(torch.stack([torch.linalg.vector_norm(g) for g in gradients]).norm())
