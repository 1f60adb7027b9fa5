"""Seeds in lockstep: the same bits as alone, whatever the group; and who is grouped at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import tiny

from gradlab import Point, points
from gradlab.lab import lanes, lockstep, training
from gradlab.lab.fitting import batch_to_fit
from gradlab.lab.lockstep import by_fused_layers, groups, most_together
from gradlab.lab.results import open_results
from gradlab.lab.run import Run, build_model, run_point, run_points
from gradlab.lab.store import read_table, run_folder, stored_runs
from gradlab.lab.sweep import expected_work, run_sweep
from gradlab.lab.tables import TABLES
from gradlab.models.fused import fused_logits
from gradlab.models.seq2seq import Seq2Seq
from gradlab.tasks import Batch

MODELS = [
    {"cell": "gru", "attention": "none"},
    {"cell": "lstm", "attention": "none", "bridge": "every_step"},
    {"cell": "rnn", "attention": "none"},
    {"cell": "gru", "attention": "additive", "timing": "bahdanau"},
    {"cell": "lstm", "attention": "additive", "timing": "luong"},
    {"cell": "rnn", "attention": "dot", "timing": "bahdanau"},
    {"cell": "gru", "attention": "concat", "timing": "bahdanau"},
    {"cell": "rnn", "attention": "general", "timing": "luong"},
    {"cell": "lstm", "attention": "cosine", "timing": "luong"},
    {"cell": "lstm", "attention": "location", "timing": "bahdanau"},
]


def seeds(count: int, **tables: dict[str, object]) -> list[Point]:
    """Points that differ in their seeds alone, of 16 units in float32."""
    settings = {"hidden": 16, "embedding": 8, **tables.pop("model", {})}
    train = {"dtype": "float32", "steps": 3, "batch": 8, **tables.pop("training", {})}
    scenario = tiny({"seed": list(range(count))}, model=settings, training=train, **tables)
    return list(points(scenario))


def assert_same_bits(found: Run, expected: Run) -> None:
    for name, weight in expected.weights.items():
        assert (found.weights[name] == weight).all(), name
    for name, table in expected.tables.items():
        assert found.tables[name].equals(table), name


@pytest.mark.parametrize("model", MODELS, ids=lambda model: "-".join(map(str, model.values())))
@pytest.mark.parametrize("count", [2, 5])
def test_a_run_in_a_group_is_the_run_alone_bit_for_bit(
    model: dict[str, object], count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    right = training.together

    def spy(models: Sequence[torch.nn.Module], batches: Sequence[object]) -> object:
        sizes.append(len(models))
        return right(models, batches)  # type: ignore[arg-type]

    monkeypatch.setattr(training, "together", spy)
    same = seeds(count, model=model)
    for point, run in zip(same, run_points(same), strict=True):
        assert_same_bits(run, run_point(point))
        assert run.record["config"] == point.config
    assert sizes == [count] * 4  # three updates and a last look, none of them one by one


def test_a_seed_that_diverges_leaves_the_others_as_they_were(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    right = training.together

    calls: list[int] = []

    def poisoned(models: Sequence[torch.nn.Module], batches: Sequence[object]) -> object:
        """The second seed's loss is infinite from the second step on."""
        logits, batch = right(models, batches)  # type: ignore[arg-type]
        calls.append(len(models))
        if len(models) < 3 or len(calls) == 1:
            return logits, batch
        return logits * torch.tensor([1.0, torch.inf, 1.0]).view(3, 1, 1, 1), batch

    monkeypatch.setattr(training, "together", poisoned)
    same = seeds(3)
    found = run_points(same)
    assert [run.record["status"] for run in found] == ["done", "diverged", "done"]
    for index in (0, 2):
        assert_same_bits(found[index], run_point(same[index]))


def test_seeds_whose_bits_differ_in_a_group_go_their_own_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    right, calls = training.together, []

    def off_by_a_bit(models: Sequence[torch.nn.Module], batches: Sequence[object]) -> object:
        calls.append(len(models))
        logits, batch = right(models, batches)  # type: ignore[arg-type]
        return logits * (1 + 2e-7), batch

    monkeypatch.setattr(training, "together", off_by_a_bit)
    same = seeds(2)
    for point, run in zip(same, run_points(same), strict=True):
        assert_same_bits(run, run_point(point))
    assert calls == [2]


LSTM: dict[str, object] = {"cell": "lstm", "attention": "none", "hidden": 64}


@pytest.mark.skipif(not lockstep.HAS_FUSED_LSTM, reason="torch has a fused LSTM on x86 alone")
def test_a_large_lstm_is_trained_by_fused_layers_seed_by_seed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = []

    def spy(model: Seq2Seq, batch: Batch) -> torch.Tensor:
        seen.append(model)
        return fused_logits(model, batch)

    monkeypatch.setattr(training, "fused_logits", spy)
    monkeypatch.setattr(training, "together", None)  # not called
    same = seeds(2, model=LSTM, training={"batch": 64})
    for point, run in zip(same, run_points(same), strict=True):
        assert_same_bits(run, run_point(point))
    assert len(seen) == 2 * 2 * 4  # seeds, in a group and alone; three updates and a last look
    by_scan = replace(same[0], training=same[0].training.model_copy(update={"dtype": "float64"}))
    expected = run_point(by_scan).weights
    assert len(seen) == 2 * 2 * 4
    for name, weight in run_point(same[0]).weights.items():
        error = abs(weight - expected[name]).max() / abs(expected[name]).max()
        assert error < 1e-4, name  # Adam divides rounding errors by gradients of their own size


@pytest.mark.skipif(not lockstep.HAS_FUSED_LSTM, reason="torch has a fused LSTM on x86 alone")
def test_who_is_trained_by_fused_layers() -> None:
    def fused(device: str = "cpu", **tables: dict[str, object]) -> bool:
        model, train = ({**LSTM, **tables.pop("model", {})}, tables.pop("training", {}))
        (point,) = seeds(1, model=model, training={"batch": 64, **train}, **tables)
        found = by_fused_layers(point, device)
        assert most_together(point, device) == 1 or not found
        return found

    assert fused()
    assert not fused("cuda")
    assert not fused(task={"length": 4, "min_length": 2})
    assert not fused(training={"dtype": "float64"})
    assert not fused(training={"batch": 63})
    others: list[dict[str, object]] = [{"cell": "gru"}, {"attention": "dot"}, {"hidden": 32}]
    others += [{"bridge": "mean"}, {"layers": 2}, {"bidirectional": True}]
    for other in others:
        assert not fused(model=other), other


@pytest.mark.parametrize(
    "tables",
    [
        {"task": {"length": 5, "keep": 3}},
        {"task": {"length": 5, "delay": 2}},
        {"task": {"name": "reverse", "length": 5, "reverse_source": True}},
        {"training": {"teacher_forcing": 0.5, "batch": 64}},
    ],
    ids=str,
)
def test_fused_layers_read_every_batch_as_the_model_does(tables: dict[str, Any]) -> None:
    (point,) = seeds(1, model=LSTM, **{"training": {"batch": 64}, **tables})
    assert by_fused_layers(point, "cpu") == lockstep.HAS_FUSED_LSTM
    model = build_model(point).double()
    assert isinstance(model, Seq2Seq)
    batch = batch_to_fit(model, point, 0, torch.device("cpu"))
    expected = model(batch).logits
    torch.testing.assert_close(fused_logits(model, batch), expected, rtol=1e-9, atol=0)


def test_who_is_grouped() -> None:
    assert most_together(seeds(1)[0]) == 4  # additive attention, short
    assert most_together(seeds(1, model={"attention": "none"})[0]) == 8
    wide = {"attention": "none", "hidden": 64}
    assert most_together(seeds(1, model=wide, training={"batch": 64})[0]) == 4
    assert most_together(seeds(1, model=wide, training={"batch": 128})[0]) == 1
    assert most_together(seeds(1, model={"attention": "none"}, training={"steps": 0})[0]) == 1
    assert most_together(seeds(1, task={"length": 4, "min_length": 2})[0]) == 1
    for length, most in ((20, 4), (50, 2), (100, 1)):
        long = seeds(1, task={"length": length}, model={"hidden": 64}, training={"batch": 64})[0]
        assert most_together(long) == most


def test_groups_are_seeds_of_one_experiment_and_no_larger_than_a_lane_needs() -> None:
    several = points(tiny({"model.cell": ["gru", "rnn"], "seed": [0, 1, 2, 3, 4]}))
    shuffled = sorted(several, key=lambda point: (point.seed, point.model.cell))
    found = groups(shuffled, 1, lambda point: 1.0)
    assert sorted(point.run_id for group in found for point in group) == sorted(
        point.run_id for point in several
    )
    assert [len(group) for group in found] == [4, 1, 4, 1]
    assert [len(group) for group in groups(shuffled, 2, lambda point: 1.0)] == [2, 2, 1] * 2
    assert all(len({replace(point, seed=0).run_id for point in group}) == 1 for group in found)
    assert [len(group) for group in groups(several[:4], 4, expected_work)] == [1, 1, 1, 1]
    assert [len(group) for group in groups(several[:4], 2, expected_work)] == [2, 2]
    assert groups([], 0, expected_work) == []


def test_a_sweep_in_groups_stores_the_runs_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = tiny({"seed": [0, 1, 2]})
    outcome = run_sweep(scenario, tmp_path / "groups", jobs=1, device="cpu")
    assert (outcome.done, outcome.failures) == (3, [])
    monkeypatch.setattr(lockstep, "most_together", lambda *_: 1)
    run_sweep(scenario, tmp_path / "alone", jobs=2, device="cpu")
    assert stored_runs(tmp_path / "groups") == stored_runs(tmp_path / "alone")
    for point in points(scenario):
        folders = [run_folder(tmp_path / name, point.run_id) for name in ("groups", "alone")]
        for table in TABLES:
            if (folders[0] / f"{table}.parquet").exists():
                first, second = (read_table(folder, table) for folder in folders)
                assert first.equals(second), table
    assert open_results(tmp_path / "groups").count("done") == 3


@pytest.mark.parametrize("killed", [False, True])
def test_a_group_that_fails_is_computed_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed: bool
) -> None:
    def compute(group: object, out: Path, device: str) -> list[str]:
        import os
        import signal

        if killed:
            os.kill(os.getpid(), signal.SIGKILL)
        raise MemoryError

    monkeypatch.setattr(lanes, "compute_together", compute)
    outcome = run_sweep(tiny({"seed": [0, 1]}), tmp_path, jobs=1, device="cpu")
    assert (outcome.done, outcome.failures) == (2, [])
