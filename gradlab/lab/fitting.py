"""What a training step fits and how: what the decoder reads, and the rule that changes weights."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from gradlab.grid import Point, ineffective_keys
from gradlab.lab.optimizers import OPTIMIZERS, Optimizer
from gradlab.models.decoding import symbols_read
from gradlab.models.family import AnyModel
from gradlab.models.synchronous import Synchronous
from gradlab.seeding import keyed_generator
from gradlab.tasks import Batch, training_batch


def optimizer_of(model: AnyModel, point: Point) -> Optimizer:
    """Return the optimizer of the point's `[training]`."""
    training = point.training
    rule, settings = OPTIMIZERS[training.optimizer], (training.lr, training.weight_decay)
    return Optimizer(rule, model.parameters(), *settings)


def batch_to_fit(model: AnyModel, point: Point, step: int, device: torch.device) -> Batch:
    """Return the batch of training step `step`, with what the decoder reads in it.

    With `training.teacher_forcing` p = 1 that is the truth. Else each input after BOS is the true
    previous symbol with probability p and else the model's own: scheduled sampling (Bengio et al.
    2015) with a constant p, and the most probable symbol instead of a drawn one. The model first
    decodes freely, without gradient; the forward pass then reads the symbols that were read there.
    That is exact, since no gradient passes an argmax.
    """
    batch = training_batch(point.task, point.training.batch, point.seed, step).to(device)
    idle = "training.teacher_forcing" in ineffective_keys(point)
    if point.training.teacher_forcing == 1 or idle:
        return batch
    assert not isinstance(model, Synchronous)  # nothing is fed back there: the key is idle
    forced = coins(point, step)[:, : batch.target.shape[-1]].to(device)
    return replace(batch, read=symbols_read(batch, model.greedy(batch, forced), forced))


def coins(point: Point, step: int) -> Tensor:
    """Return after which target steps the truth is read, (batch, length) bool.

    A uniform number a token, keyed by seed and training step alone, is compared with p: where a
    small p forces the truth, a larger one does too.
    """
    generator = keyed_generator(point.seed, "teacher_forcing", step)
    drawn = generator.random((point.training.batch, point.task.length))
    return torch.from_numpy(drawn < point.training.teacher_forcing)
