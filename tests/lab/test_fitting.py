"""What a training step fits: optimizers against torch's, and what the decoder reads."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch

from gradlab.grid import Point
from gradlab.lab.evaluation import evaluate
from gradlab.lab.fitting import batch_to_fit, coins, optimizer_of
from gradlab.lab.optimizers import OPTIMIZERS
from gradlab.lab.run import build_model
from gradlab.lab.training import Checkpoint, train
from gradlab.models.family import AnyModel
from gradlab.models.loss import batch_loss
from gradlab.models.synchronous import Synchronous
from gradlab.schema import Model, Record, Task, Training, key_schema
from gradlab.tasks import probe_batch, training_batch

CPU = torch.device("cpu")


def point(
    model: dict[str, Any] | None = None, task: dict[str, Any] | None = None, **training: Any
) -> Point:
    return Point(
        Task.model_validate({"name": "copy", "length": 5, "symbols": 4, **(task or {})}),
        Model.model_validate({"hidden": 8, "embedding": 6, **(model or {})}),
        Training.model_validate({"steps": 4, "batch": 8, "dtype": "float64", **training}),
        Record(every=2, examples=4),
        seed=0,
    )


def trained(at: Point) -> tuple[AnyModel, list[Checkpoint]]:
    model = build_model(at)
    return model, list(train([model], [at], CPU))


def test_every_optimizer_of_the_schema_is_there() -> None:
    assert set(key_schema("training.optimizer")["enum"]) == set(OPTIMIZERS)


@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_updates_are_those_of_the_papers(name: str, decay: float) -> None:
    """L2 adds decay * w to the gradient; adamw instead shrinks w by lr * decay (decoupled)."""
    at = point(optimizer=name, lr=0.1, weight_decay=decay)
    model = build_model(at)
    optimizer = optimizer_of(model, at)
    weights = {key: w.detach().clone() for key, w in model.named_parameters()}
    first = {key: torch.zeros_like(w) for key, w in weights.items()}
    second = {key: torch.zeros_like(w) for key, w in weights.items()}
    generator = torch.Generator().manual_seed(0)
    for step in range(1, 4):
        for key, w in model.named_parameters():
            gradient = torch.randn(w.shape, generator=generator, dtype=w.dtype)
            w.grad = gradient.clone()
            g = gradient + decay * weights[key] * (name != "adamw")
            weights[key] -= 0.1 * decay * weights[key] * (name == "adamw")
            if name == "sgd":
                weights[key] -= 0.1 * g
            elif name == "rmsprop":
                second[key] = 0.99 * second[key] + 0.01 * g**2
                weights[key] -= 0.1 * g / (second[key].sqrt() + 1e-8)
            else:
                first[key] = 0.9 * first[key] + 0.1 * g
                second[key] = 0.999 * second[key] + 0.001 * g**2
                mean, square = first[key] / (1 - 0.9**step), second[key] / (1 - 0.999**step)
                weights[key] -= 0.1 * mean / (square.sqrt() + 1e-8)
        optimizer.step()
    for key, w in model.named_parameters():
        torch.testing.assert_close(w.detach(), weights[key], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_rules_are_those_of_the_classes_bit_for_bit(name: str, decay: float) -> None:
    classes: dict[str, Callable[..., torch.optim.Optimizer]] = {
        "adam": partial(torch.optim.Adam, fused=True),
        "sgd": torch.optim.SGD,
        "rmsprop": torch.optim.RMSprop,
        "adamw": partial(torch.optim.AdamW, fused=True),
    }
    at = point(optimizer=name, lr=0.1, weight_decay=decay, dtype="float32")
    ours, theirs = build_model(at), build_model(at)
    rule = optimizer_of(ours, at)
    twins = classes[name](theirs.parameters(), lr=0.1, weight_decay=decay)
    generator = torch.Generator().manual_seed(0)
    for _ in range(3):
        for w, twin in list(zip(ours.parameters(), theirs.parameters(), strict=True))[1:]:
            w.grad = torch.randn(w.shape, generator=generator)
            twin.grad = w.grad.clone()
        rule.step()
        twins.step()
    start = build_model(at).state_dict()
    for i, (key, weight) in enumerate(ours.state_dict().items()):
        assert torch.equal(weight, theirs.state_dict()[key])
        assert torch.equal(weight, start[key]) == (i == 0)  # the first has no gradient


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_trains_and_repeats(name: str) -> None:
    at = point(optimizer=name, lr=0.01, weight_decay=0.01, dtype="float32")
    (one, checkpoints), (other, again) = trained(at), trained(at)
    assert checkpoints == again
    start = build_model(at).state_dict()
    for key, weight in one.state_dict().items():
        assert torch.equal(weight, other.state_dict()[key])
        assert not torch.equal(weight, start[key])


def test_with_the_truth_alone_the_batch_is_the_training_batch() -> None:
    model = build_model(point())
    several: list[dict[str, Any]] = [{"teacher_forcing": 1.0}, {"teacher_forcing": 0.0, "steps": 0}]
    for keys in several:
        at = point(**keys)
        batch = batch_to_fit(model, at, 3, CPU)
        assert batch.read is None
        assert torch.equal(batch.target, training_batch(at.task, 8, 0, 3).target)


def test_a_model_that_reads_nothing_back_is_trained_all_the_same() -> None:
    at = point({"kind": "synchronous"}, teacher_forcing=0.0)
    model = build_model(at)
    assert isinstance(model, Synchronous)
    assert batch_to_fit(model, at, 0, CPU).read is None


def test_coins_are_keyed_and_nested_and_fall_as_often_as_asked() -> None:
    few, many = (coins(point(batch=2000, teacher_forcing=p), 3) for p in (0.3, 0.6))
    assert bool((few <= many).all())
    assert abs(float(few.double().mean()) - 0.3) < 0.025  # five standard deviations
    assert abs(float(many.double().mean()) - 0.6) < 0.025
    assert torch.equal(few, coins(point(batch=2000, teacher_forcing=0.3), 3))
    assert not torch.equal(few, coins(point(batch=2000, teacher_forcing=0.3), 4))


@pytest.mark.parametrize("p", [0.0, 0.5])
@pytest.mark.parametrize(
    "spec",
    [
        {"attention": "none"},
        {"timing": "bahdanau"},
        {"timing": "luong", "input_feeding": True, "layers": 2},
        {"kind": "transformer"},
    ],
    ids=str,
)
def test_the_gradient_is_that_of_decoding_step_by_step(spec: dict[str, Any], p: float) -> None:
    """The twin runs the model anew for each target step, over what was read so far."""
    at = point(spec, {"min_length": 3}, teacher_forcing=p)
    model, forced = build_model(at), coins(at, 2)
    parameters = list(model.parameters())
    batch = training_batch(at.task, 8, 0, 2)
    read, logits = batch.decoder_input.clone(), []
    for j in range(batch.target.shape[1]):
        logits.append(model(replace(batch, read=read.clone())).logits[:, j])
        said = logits[-1].argmax(-1)
        read[:, j + 1 : j + 2] = torch.where(forced[:, j], batch.target[:, j], said)[:, None]
    loss = batch_loss(torch.stack(logits, dim=1), batch)
    expected = torch.autograd.grad(loss, parameters)

    fitted = batch_to_fit(model, at, 2, CPU)
    assert not torch.equal(fitted.decoder_input, batch.decoder_input)
    found = torch.autograd.grad(batch_loss(model(fitted).logits, fitted), parameters)
    for one, other in zip(found, expected, strict=True):
        scale = float(other.norm())
        torch.testing.assert_close(one, other, rtol=0, atol=1e-10 * scale)


def test_the_gradient_norm_is_of_the_batch_as_read() -> None:
    at = point(teacher_forcing=0.2)
    model = build_model(at)
    checkpoint = next(iter(train([model], [at], CPU)))
    batch = batch_to_fit(model, at, 0, CPU)
    loss = batch_loss(model(batch).logits, batch)
    gradients = torch.autograd.grad(loss, list(model.parameters()))
    expected = float(torch.cat([g.flatten() for g in gradients]).norm())
    assert checkpoint.gradient_norm == pytest.approx(expected, rel=1e-9, abs=0)


@pytest.mark.parametrize("p", [0.0, 0.5])
def test_it_learns_from_its_own_symbols_too(p: float) -> None:
    model = {"hidden": 32, "embedding": 16}
    at = point(model, steps=200, lr=1e-2, batch=32, dtype="float32", teacher_forcing=p)
    learner, _ = trained(at)
    row, _ = evaluate(learner, probe_batch(at.task, 64, 0, 5))
    assert row["token_accuracy"] > 0.9


def test_seeds_in_lockstep_read_their_own_symbols() -> None:
    points = [replace(point(teacher_forcing=0.5, dtype="float32"), seed=seed) for seed in (0, 1)]
    together = [build_model(each) for each in points]
    list(train(together, points, CPU))
    for each, model in zip(points, together, strict=True):
        alone = build_model(each)
        list(train([alone], [each], CPU))
        for name, weight in alone.state_dict().items():
            assert torch.equal(weight, model.state_dict()[name])


def test_training_imports_no_compiler() -> None:
    """It would take a second and 70 MB in every process of a sweep."""
    code = """if True:
        import sys, torch
        from gradlab import load_scenario, points
        from gradlab.lab.run import build_model
        from gradlab.lab.training import train
        scenario = {"title": "t", "task": {"name": "copy", "length": 2}, "training": {"steps": 1}}
        (point,) = points(load_scenario(scenario))
        list(train([build_model(point)], [point], torch.device("cpu")))
        print("torch._dynamo" in sys.modules)
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
