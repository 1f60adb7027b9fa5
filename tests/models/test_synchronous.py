"""The synchronous model: equal to its twin, blind to what comes later, and what that costs it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from properties import (
    assert_each_example_as_alone,
    assert_pads_never_matter,
    assert_stacked_as_alone,
)
from reference import TORCH_LAYERS, assert_close, build, label, make_batch
from synchronous_twin import MODELS, SHAPES, SynchronousTwin, build_synchronous
from tiny import point

from gradlab.errors import GradlabError
from gradlab.lab.run import run_point
from gradlab.models.cells import CELLS
from gradlab.models.synchronous import scored_steps
from gradlab.tasks import TASKS

LENGTHS = [4, 1, 6]
Spec = dict[str, Any]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("spec", MODELS, ids=label)
def test_forward_is_the_twin_of_torch_cells(spec: Spec, task: str, shape: str) -> None:
    model, batch = build_synchronous(**spec), make_batch(task, **SHAPES[shape])
    trace, twin = model(batch), SynchronousTwin(model)
    for b, (n, k) in enumerate(zip(batch.source_lengths, batch.target_lengths, strict=True)):
        truth = twin.run(batch, b, "mean")
        assert_close(trace.logits[b, :k].detach(), truth.logits[0])
        top = truth.states[-len(trace.encoder_states) :]
        for found, expected in zip(trace.encoder_states, top, strict=True):
            assert_close(found[b, :n].detach(), expected[0].detach())
        assert_close(trace.output[b, :k].detach(), top[0][0, n - k :].detach())


@pytest.mark.parametrize("spec", MODELS, ids=label)
def test_encoder_weights_load_into_torch_and_reproduce_the_states(spec: Spec) -> None:
    model, batch = build_synchronous(**spec), make_batch("copy", [5, 5])
    layer = TORCH_LAYERS[spec["cell"]](3, 4, spec["layers"], batch_first=True).double()
    layer.load_state_dict(model.encoder.state_dict())
    states, _ = layer(model.source_embedding.weight[batch.source])
    assert_close(model(batch).encoder_states[0].detach(), states.detach(), rtol=1e-12)


@pytest.mark.parametrize("cell", CELLS)
def test_it_starts_from_the_encoder_of_an_encoder_decoder_of_its_seed(cell: str) -> None:
    model = build_synchronous(seed=5, cell=cell)
    other = dict(build(seed=5, cell=cell, attention="none").named_parameters())
    names = [name for name, _ in model.named_parameters()]
    weights = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
    encoder = [f"encoder.{name}" for name in weights]
    assert names == ["source_embedding.weight", *encoder, "output.weight", "output.bias"]
    for name, weight in model.named_parameters():
        assert torch.equal(weight, other[name]), name


@pytest.mark.parametrize("delay", [0, 2])
def test_logits_do_not_depend_on_symbols_that_come_later(delay: int) -> None:
    n = 5
    model, batch = build_synchronous(), make_batch("copy", [n, n], delay=delay)
    before = model(batch).logits
    for later in range(n):
        source = batch.source.clone()
        source[:, later] = (source[:, later] + 1) % batch.symbols
        after = model(replace(batch, source=source)).logits
        blind = max(later - delay, 0)  # targets whose step comes before the changed symbol
        assert torch.equal(after[:, :blind], before[:, :blind])
        assert bool((after[:, blind:] != before[:, blind:]).any(-1).all())


def test_the_target_is_read_by_nothing_and_greedy_is_the_argmax() -> None:
    model, batch = build_synchronous(), make_batch("reverse", LENGTHS, delay=1)
    other = replace(batch, target=torch.zeros_like(batch.target))
    assert torch.equal(model(batch).logits, model(other).logits)
    decoded = model.greedy(batch)
    assert torch.equal(decoded, model(batch).logits.argmax(-1))
    assert not decoded.requires_grad
    assert int(decoded.max()) < batch.symbols


@pytest.mark.parametrize("spec", MODELS, ids=label)
def test_an_example_in_a_batch_equals_the_example_alone(spec: Spec) -> None:
    batch = make_batch("copy", LENGTHS, delay=1)
    assert_each_example_as_alone(build_synchronous(**spec), batch)


def test_what_stands_on_pads_never_matters() -> None:
    assert_pads_never_matter(build_synchronous(), make_batch("copy", LENGTHS))


@pytest.mark.parametrize("spec", MODELS, ids=label)
def test_stacked_models_equal_each_alone(spec: Spec) -> None:
    models = [build_synchronous(seed=seed, **spec) for seed in range(3)]
    assert_stacked_as_alone(models, make_batch("copy", LENGTHS, delay=2))


def test_targets_stand_after_the_delay_of_their_own_example() -> None:
    batch = make_batch("copy", [3, 2], delay=2)
    assert scored_steps(batch).tolist() == [[2, 3, 4], [2, 3, 4]]
    mixed = replace(batch, source_lengths=torch.tensor([3, 4]))
    assert scored_steps(mixed).tolist() == [[0, 1, 2], [2, 3, 4]]


def test_a_target_longer_than_its_source_is_refused() -> None:
    batch = replace(make_batch("copy", [4, 4]), source_lengths=torch.tensor([4, 2]))
    with pytest.raises(GradlabError) as refused:
        build_synchronous()(batch)
    assert str(refused.value) == (
        "synchronous: expected targets no longer than their source, one at a step; found a target "
        "that is 2 longer"
    )


# What one output per step costs: the first half of a reverse.

EXAMPLES = 2000
UNASKED = {"map": False, "hops": False, "jacobians": False}


def trained_accuracy(task: str, n: int, delay: int) -> Any:
    """Return the accuracy at each target position after a little training, (n,)."""
    at = point(
        task={"name": task, "length": n, "delay": delay, "symbols": 3},
        model={"kind": "synchronous", "hidden": 32, "embedding": 8},
        training={"steps": 400, "batch": 32, "lr": 1e-2},
        record={"every": 400, "examples": EXAMPLES, "paths": False} | UNASKED,
    )
    positions = run_point(at).tables["positions"].query("train_step == 400")
    assert positions["token_accuracy"].equals(positions["token_accuracy_forced"])
    return positions["token_accuracy"].to_numpy()


@pytest.mark.parametrize(("n", "delay"), [(4, 0), (5, 0), (5, 2)])
def test_the_first_half_of_a_reverse_stays_at_chance_and_the_rest_is_learnt(
    n: int, delay: int
) -> None:
    """x_{n+1-j} is unread at step delay + j for j <= floor((n - delay) / 2): pure guessing.

    The target is uniform and independent of all that was read, so hits are binomial with p = 1/V
    whatever was learnt; 4.5 standard deviations leave one test in 10^5 to luck.
    """
    accuracy, guessed = trained_accuracy("reverse", n, delay), (n - delay) // 2
    chance = 1 / 3
    bound = 4.5 * np.sqrt(chance * (1 - chance) / EXAMPLES)
    assert np.all(np.abs(accuracy[:guessed] - chance) < bound), accuracy
    assert np.all(accuracy[guessed:] > 0.95), accuracy


def test_a_copy_is_learnt_at_every_position() -> None:
    assert np.all(trained_accuracy("copy", 5, 0) > 0.999)
