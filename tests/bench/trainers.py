"""Runs that advance one training step or one measurement at a time, so that each can be timed."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F
from usual import UsualSeq2Seq

from gradlab.grid import Point
from gradlab.models.fused import fused_logits
from gradlab.models.loss import batch_loss
from gradlab.models.seq2seq import Seq2Seq
from gradlab.tasks import Batch, probe_batch, training_batch


@dataclass(frozen=True)
class Measured:
    """What is measured of one seed.

    loss, accuracy: means over held-out tokens, teacher-forced and free-running.
    totals: dL/dh_i of each example's own loss, (batch, n, hidden); norms: (batch, n).
    """

    loss: float
    accuracy: float
    totals: Array
    norms: Array


class Runs(Protocol):
    """One or more seeds of a point that advance together; what is returned is one item a seed."""

    seeds: int

    def step(self, number: int) -> Sequence[float]:
        """Make the training step of this number and return the loss before it."""

    def measure(self) -> list[Measured]:
        """Measure on the held-out examples."""

    def gradients(self) -> list[dict[str, Array]]:
        """Return the gradients of the first training step, before clipping; changes nothing."""

    def wait(self) -> None:
        """Wait until the steps are made."""


T = TypeVar("T")
Array = NDArray[Any]
Prepare = Callable[[list[Point]], Runs]
"""From the seeds of a cell of the sweep to runs of as many of them as advance together."""


def usual_loss(model: nn.Module, batch: Batch) -> Tensor:
    """Return the loss; the usual loop retains the gradient of every encoder state, as is usual."""
    logits, _ = model(batch, watch=True)
    return F.cross_entropy(logits.flatten(0, 1), batch.target.flatten())


def gradlab_loss(model: nn.Module, batch: Batch) -> Tensor:
    return batch_loss(model(batch).logits, batch)


def gradlab_fused_loss(model: nn.Module, batch: Batch) -> Tensor:
    assert isinstance(model, Seq2Seq)
    return batch_loss(fused_logits(model, batch), batch)


class Trainer:
    """Adam with clipping, as gradlab trains. Adam is fused everywhere: that favours the others."""

    seeds = 1

    def __init__(
        self,
        point: Point,
        model: nn.Module,
        loss_of: Callable[[nn.Module, Batch], Tensor] = usual_loss,
    ) -> None:
        self.point, self.model, self.loss_of = point, model, loss_of
        self.optimizer = torch.optim.Adam(model.parameters(), lr=point.training.lr, fused=True)

    def backward(self, number: int) -> float:
        point = self.point
        batch = training_batch(point.task, point.training.batch, point.seed, number)
        loss = self.loss_of(self.model, batch)
        self.optimizer.zero_grad()
        loss.backward()
        return float(loss.detach())

    def step(self, number: int) -> list[float]:
        loss = self.backward(number)
        nn.utils.clip_grad_norm_(self.model.parameters(), self.point.training.clip)
        self.optimizer.step()
        return [loss]

    def wait(self) -> None:
        pass

    def gradients(self) -> list[dict[str, Array]]:
        self.backward(0)
        named = self.model.named_parameters()
        return [{name: w.grad.numpy().copy() for name, w in named if w.grad is not None}]

    def measure(self) -> list[Measured]:
        """Measure by retain_grad. The usual models only."""
        record, task, model = self.point.record, self.point.task, self.model
        assert isinstance(model, UsualSeq2Seq)
        batch = probe_batch(task, record.examples, self.point.seed, task.length)
        logits, states = model(batch, watch=True)
        nats = F.cross_entropy(logits.mT, batch.target, reduction="none").mean(1)
        nats.sum().backward()
        totals = torch.stack([h.grad for h in states if h.grad is not None], 1)
        right = (model.greedy(batch) == batch.target).double().mean()
        norms = totals.norm(dim=-1)
        return [Measured(float(nats.detach().mean()), float(right), totals.numpy(), norms.numpy())]


def usual(points: list[Point], hoisted: bool = False) -> Runs:
    return Trainer(points[0], UsualSeq2Seq(points[0], hoisted))


# Two processes of one thread each: both advance at the same time, on two seeds.

_HERE: list[Runs] = []
"""The runs of this worker process, in the order in which they were begun."""


def one_thread() -> None:
    torch.set_num_threads(1)
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"  # read when JAX is imported


def begin(prepare: Prepare, point: Point) -> int:
    _HERE.append(prepare([point]))
    return len(_HERE) - 1


def step(index: int, number: int) -> list[float]:
    return [float(loss) for loss in _HERE[index].step(number)]


def measure(index: int) -> list[Measured]:
    return _HERE[index].measure()


def gradients(index: int) -> list[dict[str, Array]]:
    return _HERE[index].gradients()


class Workers:
    """Two worker processes of one thread each."""

    def __init__(self) -> None:
        spawn = multiprocessing.get_context("spawn")
        self.pools = [
            ProcessPoolExecutor(1, mp_context=spawn, initializer=one_thread) for _ in range(2)
        ]

    def share(self, prepare: Prepare) -> Prepare:
        """Let each process prepare and advance one seed of its own."""

        def prepare_both(points: list[Point]) -> TwoProcesses:
            pairs = zip(self.pools, points[:2], strict=True)
            begun = [pool.submit(begin, prepare, point) for pool, point in pairs]
            return TwoProcesses(self.pools, [future.result() for future in begun])

        return prepare_both

    def end(self) -> None:
        for pool in self.pools:
            pool.shutdown()


class TwoProcesses:
    """Two seeds, one in each process."""

    seeds = 2

    def __init__(self, pools: list[ProcessPoolExecutor], indices: list[int]) -> None:
        self.pairs = list(zip(pools, indices, strict=True))

    def both(self, work: Callable[..., list[T]], *arguments: int) -> list[T]:
        """Let both processes do this at the same time; return what the seeds gave."""
        sent = [pool.submit(work, index, *arguments) for pool, index in self.pairs]
        return [item for future in sent for item in future.result()]

    def step(self, number: int) -> list[float]:
        return self.both(step, number)

    def measure(self) -> list[Measured]:
        return self.both(measure)

    def gradients(self) -> list[dict[str, Array]]:
        return self.both(gradients)

    def wait(self) -> None:
        pass
