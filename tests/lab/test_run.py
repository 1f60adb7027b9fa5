"""One run: its tables, its repeatability, its evaluation, and a divergence as a result."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest
import torch
from reference import build, make_batch
from torch import Tensor

from gradlab.grid import Point
from gradlab.lab.evaluation import evaluate
from gradlab.lab.run import Run, run_point
from gradlab.lab.tables import ON_REQUEST, TABLES
from gradlab.models.loss import REDUCTIONS
from gradlab.models.seq2seq import Seq2Seq
from gradlab.schema import Model, Record, Task, Training
from gradlab.tasks import Batch

EVERYTHING = {"map": True, "hops": True, "jacobians": True}


def point(**keys: Any) -> Point:
    """Return a small point; dotted keys are written with a double underscore."""
    tables: dict[str, dict[str, Any]] = {
        "task": {"name": "copy", "length": 4, "symbols": 4},
        "model": {"hidden": 6, "embedding": 5},
        "training": {"steps": 4, "batch": 4},
        "record": {"every": 2, "examples": 4, "lengths": (3, 6), **EVERYTHING},
    }
    seed = keys.pop("seed", 0)
    for key, value in keys.items():
        table, _, name = key.partition("__")
        tables[table][name] = value
    return Point(
        Task.model_validate(tables["task"]),
        Model.model_validate(tables["model"]),
        Training.model_validate(tables["training"]),
        Record.model_validate(tables["record"]),
        seed,
    )


def assert_same(one: Run, other: Run) -> None:
    for name in TABLES:
        pd.testing.assert_frame_equal(one.tables[name], other.tables[name], check_exact=True)
    for name, weight in one.weights.items():
        np.testing.assert_array_equal(weight, other.weights[name])
    assert one.record["config"] == other.record["config"]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("cell", ["rnn", "gru", "lstm"])
def test_a_run_repeats_bit_for_bit_whatever_the_global_state(cell: str, dtype: str) -> None:
    at = point(model__cell=cell, training__dtype=dtype, task__min_length=2)
    first = run_point(at)
    torch.manual_seed(1)
    random.seed(1)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        run_point(replace(at, seed=5))
        second = run_point(at)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
    assert_same(first, second)
    assert first.record["threads"] == second.record["threads"] == 1


def test_tables_hold_every_column_step_and_length() -> None:
    run = run_point(point())
    assert run.record["status"] == "done"
    for name, columns in TABLES.items():
        table = run.tables[name]
        assert set(table.columns) == set(columns), name
        pairs = set(zip(table["train_step"], table["source_length"], strict=True))
        assert pairs == {(step, n) for step in (0, 2, 4) for n in (3, 6)}, name
    gradients = run.tables["gradients"]
    assert len(gradients) == 3 * (3 + 6) * 9  # checkpoints, positions, paths
    assert set(run.tables["training"]["status"]) == {"ok"}
    assert run.probes.keys() == {"3.source", "3.target", "6.source", "6.target"}
    json.dumps(run.record, allow_nan=False)


def test_tables_on_request_are_not_there_unasked() -> None:
    unasked = {f"record__{key}": False for key in EVERYTHING}
    assert TABLES.keys() - run_point(point(**unasked)).tables.keys() == ON_REQUEST.keys()


def test_all_models_of_a_seed_see_the_same_probe() -> None:
    runs = [
        run_point(point(model__attention=attention, model__cell=cell, task__length=length))
        for attention, cell, length in (("none", "rnn", 4), ("dot", "lstm", 9))
    ]
    for name, ids in runs[0].probes.items():
        np.testing.assert_array_equal(ids, runs[1].probes[name])


def test_attention_rows_sum_to_one_and_are_absent_without_attention() -> None:
    weights = run_point(point()).tables["attention"]
    keys = ["train_step", "source_length", "example", "target_position"]
    np.testing.assert_allclose(weights.groupby(keys)["weight"].sum(), 1, rtol=1e-12)
    assert len(run_point(point(model__attention="none")).tables["attention"]) == 0


def test_structural_zeros_are_named_in_the_record() -> None:
    absent = {"none": ["keys", "values"], "additive": []}
    for attention, expected in absent.items():
        record = run_point(point(model__attention=attention, training__steps=0)).record
        assert record["structural_zeros"] == expected


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_the_recorded_reduction_is_the_one_asked_for(reduction: str) -> None:
    at = point(record__loss=reduction, training__steps=0)
    norms = run_point(at).tables["gradients"].query("path == 'total'")["norm_mean"]
    mean = run_point(point(training__steps=0)).tables["gradients"].query("path == 'total'")
    ratio = norms.to_numpy() / mean["norm_mean"].to_numpy()
    steps = mean["source_length"].to_numpy()
    if reduction == "sum":
        np.testing.assert_allclose(ratio, steps, rtol=1e-12)
    elif reduction == "mean":
        np.testing.assert_array_equal(ratio, 1)
    else:
        assert np.all(np.abs(ratio - 1) > 1e-3)


@pytest.mark.parametrize("cell", ["rnn", "gru", "lstm"])
@pytest.mark.parametrize("attention", ["none", "additive", "dot"])
def test_a_divergence_is_a_result(cell: str, attention: str) -> None:
    keys = {"training__lr": 1e38, "training__steps": 30, "record__every": 1}
    run = run_point(point(model__cell=cell, model__attention=attention, **keys))
    assert run.record["status"] == "diverged"
    training = run.tables["training"]
    last = training[training["train_step"] == training["train_step"].max()]
    assert set(last["status"]) == {"diverged"}
    lost = training[training["loss"].isna()]
    assert len(lost) > 0
    accuracies = ["token_accuracy", "token_accuracy_forced", "sequence_accuracy"]
    assert bool(lost[accuracies].isna().all(axis=None))
    first = training[training["train_step"] == 0]
    assert set(first["status"]) == {"ok"}
    json.dumps(run.record, allow_nan=False)


@dataclass
class Answers:
    """Stands in for a model: gives the logits and the greedy symbols it was told to give."""

    logits: Tensor
    symbols: Tensor

    def __call__(self, batch: Batch) -> SimpleNamespace:
        return SimpleNamespace(logits=self.logits)

    def greedy(self, batch: Batch) -> Tensor:
        return self.symbols


def test_accuracies_are_masked_and_hand_computed() -> None:
    batch = make_batch("copy", [1, 20])
    wrong = (batch.target + 1) % 4
    free = batch.target.clone()
    free[0, 1:] = 0  # pads, which never count
    free[1, [3, 7]] = wrong[1, [3, 7]]
    forced = batch.target.clone()
    forced[0, 0] = wrong[0, 0]
    safe = forced.masked_fill(~batch.target_mask, 0)
    logits = 3.0 * torch.nn.functional.one_hot(safe, 4).double()
    row, positions = evaluate(cast(Seq2Seq, Answers(logits, free)), batch)
    right, all_exponentials = np.exp(3.0), np.exp(3.0) + 3
    loss = (20 * -np.log(right / all_exponentials) - np.log(1 / all_exponentials)) / 21
    assert row == {
        "loss": pytest.approx(loss, rel=1e-12),
        "token_accuracy_forced": pytest.approx(20 / 21),
        "token_accuracy": pytest.approx(19 / 21),
        "sequence_accuracy": 0.5,
    }
    assert list(positions["position"]) == list(range(1, 21))
    by_position = [1.0] * 20
    by_position[3] = by_position[7] = 0.0
    assert list(positions["token_accuracy"]) == by_position
    assert list(positions["token_accuracy_forced"]) == [0.5] + [1.0] * 19


def test_evaluation_decodes_freely_and_forces_apart() -> None:
    model, batch = build(seed=2), make_batch("copy", [6, 6, 6, 6])
    row, _ = evaluate(model, batch)
    free = (model.greedy(batch) == batch.target).double().mean()
    forced = (model(batch).logits.argmax(-1) == batch.target).double().mean()
    assert row["token_accuracy"] == pytest.approx(float(free))
    assert row["token_accuracy_forced"] == pytest.approx(float(forced))
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("attention", ["none", "additive"])
@pytest.mark.parametrize("loss", ["mean", "last"])
def test_a_run_whose_target_is_shorter_than_its_source(loss: str, attention: str) -> None:
    at = point(
        task__keep=2,
        task__delay=1,
        task__min_length=3,
        task__reverse_source=True,
        model__attention=attention,
        training__teacher_forcing=0.5,
        record__loss=loss,
    )
    tables = run_point(at).tables
    assert set(tables["positions"]["position"]) == {1, 2}
    for name in ("gradients", "maps", "hops"):
        longest = tables[name].groupby("source_length")["position"].max()
        assert longest.to_dict() == {3: 4, 6: 7}, name
    assert set(tables["maps"]["target_position"]) == {1, 2}
    assert bool((tables["gradients"].query("path == 'total'")["norm_mean"] > 0).all())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_an_untrained_run_measures_the_same_on_a_gpu(cell: str) -> None:
    at = point(model__cell=cell, training__steps=0, training__dtype="float64")
    on_cpu, on_gpu = run_point(at), run_point(at, "cuda")
    assert on_gpu.record["device"] == "cuda"
    for name in ("gradients", "maps", "hops", "positions"):
        pd.testing.assert_frame_equal(on_cpu.tables[name], on_gpu.tables[name], rtol=1e-9, atol=0)


@pytest.mark.parametrize("scope", ["global", "local_monotonic", "local_predictive"])
def test_location_is_built_for_the_longest_source_measured(scope: str) -> None:
    found = run_point(point(model__attention="location", model__scope=scope, task__delay=2))
    assert found.weights["attention.location.weight"].shape == (8, 6)  # record.lengths to 6
    assert found.record["structural_zeros"] == ["keys", "keys.query"]
    rows = found.tables["gradients"]
    assert bool((rows[rows["path"].isin(["keys", "keys.query"])]["norm_mean"] == 0).all())
