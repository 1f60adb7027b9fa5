"""Training: where it stops to be looked at, what it reports, and that it learns."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from gradlab.grid import Point
from gradlab.lab.evaluation import evaluate
from gradlab.lab.run import build_model
from gradlab.lab.training import Checkpoint, gradient_norm, train
from gradlab.models.family import AnyModel
from gradlab.models.loss import batch_loss
from gradlab.schema import Model, Record, Task, Training
from gradlab.tasks import probe_batch, training_batch

CPU = torch.device("cpu")


def point(model: dict[str, Any] | None = None, every: int = 2, **training: Any) -> Point:
    return Point(
        Task(name="copy", length=5, symbols=4),
        Model.model_validate({"hidden": 8, "embedding": 6, **(model or {})}),
        Training.model_validate({"steps": 5, "batch": 8, **training}),
        Record(every=every, examples=4),
        seed=0,
    )


def trained(at: Point) -> tuple[AnyModel, list[Checkpoint]]:
    model = build_model(at)
    return model, list(train([model], [at], CPU))


@pytest.mark.parametrize(
    ("steps", "every", "expected"),
    [(5, 2, [0, 2, 4, 5]), (4, 2, [0, 2, 4]), (3, 100, [0, 3]), (1, 1, [0, 1]), (0, 1, [0])],
)
def test_it_stops_at_step_zero_every_and_the_last(
    steps: int, every: int, expected: list[int]
) -> None:
    _, checkpoints = trained(point(steps=steps, every=every))
    assert [checkpoint.step for checkpoint in checkpoints] == expected
    assert not any(checkpoint.diverged for checkpoint in checkpoints)


def test_a_checkpoint_shows_the_model_before_the_update_of_its_step() -> None:
    at = point(steps=2, every=1)
    model = build_model(at)
    untouched = build_model(at).state_dict()
    checkpoints = train([model], [at], CPU)
    next(checkpoints)
    assert all(torch.equal(weight, untouched[name]) for name, weight in model.state_dict().items())
    next(checkpoints)
    moved = [not torch.equal(weight, untouched[n]) for n, weight in model.state_dict().items()]
    assert all(moved)


@pytest.mark.parametrize("clip", [0.0, 0.1, 100.0])
def test_steps_are_those_of_adam_on_clipped_gradients(clip: float) -> None:
    at = point(steps=4, clip=clip, dtype="float64")
    mine, _ = trained(at)
    theirs = build_model(at)
    parameters = list(theirs.parameters())
    optimizer = torch.optim.Adam(parameters, lr=at.training.lr)
    for step in range(4):
        batch = training_batch(at.task, at.training.batch, at.seed, step)
        logits, target = theirs(batch).logits.flatten(0, 1), batch.target.flatten()
        loss = torch.nn.functional.cross_entropy(logits, target)
        gradients = torch.autograd.grad(loss, parameters)
        norm = float(torch.cat([g.flatten() for g in gradients]).norm())
        assert 0.1 < norm < 100
        factor = clip / (norm + 1e-6) if 0 < clip < norm else 1.0
        for parameter, g in zip(parameters, gradients, strict=True):
            parameter.grad = factor * g
        optimizer.step()
    for name, weight in mine.state_dict().items():
        torch.testing.assert_close(weight, theirs.state_dict()[name], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("clip", [0.0, 1e-3])
def test_the_gradient_norm_is_that_of_the_next_batch_before_clipping(clip: float) -> None:
    at = point(clip=clip, every=1, dtype="float64")
    model = build_model(at)
    for checkpoint in train([model], [at], CPU):
        batch = training_batch(at.task, at.training.batch, at.seed, checkpoint.step)
        loss = batch_loss(model(batch).logits, batch)
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        expected = torch.cat([g.flatten() for g in gradients]).norm()
        assert checkpoint.gradient_norm == pytest.approx(float(expected), rel=1e-9, abs=0)
        assert checkpoint.gradient_norm > 0.01  # ten times the clip


def test_the_gradient_norm_neither_overflows_nor_underflows_in_float32() -> None:
    model = build_model(point())
    for size in (1e-30, 1e30):
        for parameter in model.parameters():
            parameter.grad = torch.full_like(parameter, size)
        count = sum(parameter.numel() for parameter in model.parameters())
        assert gradient_norm(model) == pytest.approx(size * count**0.5, rel=1e-5, abs=0)


@pytest.mark.parametrize("clip", [0.0, 1.0])
@pytest.mark.parametrize("cell", ["rnn", "gru", "lstm"])
def test_a_huge_learning_rate_ends_as_diverged(cell: str, clip: float) -> None:
    model, checkpoints = trained(point({"cell": cell}, lr=1e38, steps=20, every=3, clip=clip))
    *before, last = checkpoints
    assert last.diverged
    assert last.step < 20
    assert not any(checkpoint.diverged for checkpoint in before)
    row, positions = evaluate(model, probe_batch(point().task, 4, 0, 5))
    assert row["loss"] != row["loss"]
    accuracies = [value for key, value in row.items() if key != "loss"]
    assert all(value != value for value in accuracies)
    assert bool(positions[["token_accuracy", "token_accuracy_forced"]].isna().all(axis=None))


@pytest.mark.parametrize(("attention", "steps"), [("none", 400), ("additive", 150)])
def test_copy_of_five_symbols_is_learnt_in_seconds(attention: str, steps: int) -> None:
    model = {"hidden": 48, "embedding": 16, "attention": attention}
    at = point(model, steps=steps, lr=1e-2, batch=32)
    learner, _ = trained(at)
    row, _ = evaluate(learner, probe_batch(at.task, 64, 0, 5))
    assert row["token_accuracy"] > 0.9
    assert row["token_accuracy_forced"] > 0.9
    assert row["sequence_accuracy"] > 0.7
    assert row["loss"] < 0.3
