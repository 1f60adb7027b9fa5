"""Sweeps: what is computed, in which order, in processes that fail, are killed or interrupted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file
from tiny import CASES, fill, point, tiny

import gradlab
from gradlab.errors import GradlabError, StoreError
from gradlab.grid import Point, points
from gradlab.lab import lanes
from gradlab.lab.lanes import KEEP_MEMORY, Event, Kind, compute_and_store, new_process
from gradlab.lab.results import open_results
from gradlab.lab.run import Run, run_point
from gradlab.lab.store import read_table, run_folder, stored_runs
from gradlab.lab.sweep import (
    Outcome,
    damaged_runs,
    expected_work,
    pending,
    run_sweep,
    set_aside,
)
from gradlab.lab.tables import TABLES
from gradlab.scenario import load_scenario
from gradlab.schema import Scenario

SWEEP = {"cases": CASES, "task.length": [2, 3]}


def test_more_steps_longer_sources_and_attention_are_more_work() -> None:
    base = expected_work(point())
    assert expected_work(point(training={"steps": 20})) > base
    assert expected_work(point(task={"length": 9})) > base
    assert expected_work(point(record={"lengths": [9]})) > base
    assert expected_work(point(record={"every": 2})) < base
    assert expected_work(point(model={"attention": "none"})) < base
    assert expected_work(point(training={"steps": 0})) > 0


def test_pending_points_come_longest_first_and_once() -> None:
    scenario = tiny(SWEEP)
    order = [(each.task.length, each.model.attention) for each in pending(scenario, set())]
    assert order == [(3, "additive"), (3, "none"), (2, "additive"), (2, "none")]
    first, *rest = pending(scenario, set())
    assert [each.run_id for each in pending(scenario, {first.run_id})] == [
        each.run_id for each in rest
    ]
    assert pending(scenario, {each.run_id for each in points(scenario)}) == []


def test_an_outcome_counts_each_kind() -> None:
    outcome = Outcome(skipped=2, total=4)
    kinds: list[Kind] = ["started", "done", "started", "diverged", "failed"]
    for kind in kinds:
        outcome.count(Event(kind, point(), "why"))
    assert (outcome.done, outcome.diverged, outcome.finished) == (1, 1, 3)
    assert [event.message for event in outcome.failures] == ["why"]


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def drop_a_column(path: Path) -> None:
    pq.write_table(pq.read_table(path).drop_columns(["share"]), path)


DAMAGE: list[tuple[str, Callable[[Path], object]]] = [
    ("gradients.parquet", truncate),
    ("gradients.parquet", Path.unlink),
    ("gradients.parquet", drop_a_column),
    ("maps.parquet", Path.unlink),
    ("run.json", lambda path: path.write_text("{}")),
    ("run.json", lambda path: path.write_text("[1]")),
    ("run.json", lambda path: path.write_bytes(b"\x80garbage")),
    ("run.json", truncate),
]


@pytest.mark.parametrize(("name", "damage"), DAMAGE)
def test_a_damaged_run_is_found_and_kept_aside(
    tmp_path: Path, name: str, damage: Callable[[Path], object]
) -> None:
    scenario = tiny({"seed": [0, 1]}, training={"steps": 0})
    whole, hurt = fill(tmp_path, scenario)
    assert damaged_runs(tmp_path, points(scenario)) == set()
    damage(run_folder(tmp_path, hurt) / name)
    assert damaged_runs(tmp_path, points(scenario)) == {hurt}
    assert damaged_runs(tmp_path, points(scenario)[:1]) == set()
    for k in (1, 2):
        files = sorted(path.name for path in run_folder(tmp_path, hurt).iterdir())
        set_aside(tmp_path, {hurt})
        aside = tmp_path / "runs" / f".damaged-{hurt}-{k}"
        assert sorted(path.name for path in aside.iterdir()) == files
        assert stored_runs(tmp_path) == {whole}
        fill(tmp_path, scenario)


def test_a_run_without_the_tables_it_was_not_asked_for_is_whole(tmp_path: Path) -> None:
    unasked = dict.fromkeys(("map", "hops", "jacobians"), False)
    scenario = tiny(training={"steps": 0}, record=unasked)
    fill(tmp_path, scenario)
    assert damaged_runs(tmp_path, points(scenario)) == set()


def test_a_run_of_another_schema_version_is_not_damaged(tmp_path: Path) -> None:
    scenario = tiny(training={"steps": 0})
    (run_id,) = fill(tmp_path, scenario)
    folder = run_folder(tmp_path, run_id)
    (folder / "run.json").write_text('{"schema_version": 0, "status": "done", "seconds": 1}')
    with pytest.raises(StoreError) as error:
        run_sweep(scenario, tmp_path, device="cpu")
    assert str(error.value) == (
        f"{folder}: expected schema version 1, found 0; run the sweep again into a new directory"
    )
    assert stored_runs(tmp_path) == {run_id}


@pytest.fixture(scope="module")
def scenario() -> Scenario:
    return tiny(SWEEP)


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("swept")


@pytest.fixture(scope="module")
def events() -> list[Event]:
    return []


@pytest.fixture(scope="module")
def outcome(scenario: Scenario, out: Path, events: list[Event]) -> Outcome:
    return run_sweep(scenario, out, jobs=2, device="cpu", report=events.append)


def test_every_different_run_is_computed_once(
    scenario: Scenario, out: Path, outcome: Outcome
) -> None:
    assert (outcome.skipped, outcome.total, outcome.done) == (0, 4, 4)
    assert stored_runs(out) == {each.run_id for each in points(scenario)}


def test_events_tell_how_far_it_is(outcome: Outcome, events: list[Event]) -> None:
    ended = [event for event in events if event.kind != "started"]
    assert len(events) == 8
    assert [event.finished for event in ended] == [1, 2, 3, 4]
    assert {event.total for event in events} == {4}
    assert [event.work for event in events] == sorted(event.work for event in events)
    assert ended[-1].work == pytest.approx(1, rel=1e-12)
    works = [expected_work(event.point) for event in ended]
    shares = np.diff([0.0, *(event.work for event in ended)])
    np.testing.assert_allclose(shares, np.array(works) / sum(works), rtol=1e-9)


def assert_same(place: Path, run: Run) -> None:
    for name in TABLES:
        stored, alone = read_table(place, name), run.tables[name][list(TABLES[name])]
        pd.testing.assert_frame_equal(stored, alone, check_exact=True, check_dtype=False)
    for name, arrays in (("model", run.weights), ("probe", run.probes)):
        stored_arrays = load_file(place / f"{name}.safetensors")
        assert stored_arrays.keys() == arrays.keys()
        for key, array in arrays.items():
            assert stored_arrays[key].tobytes() == np.ascontiguousarray(array).tobytes()


def test_a_run_of_a_sweep_equals_the_run_alone(
    scenario: Scenario, out: Path, outcome: Outcome
) -> None:
    for each in reversed(points(scenario)):
        assert_same(run_folder(out, each.run_id), run_point(each))


def test_a_complete_sweep_starts_no_process(
    scenario: Scenario, out: Path, outcome: Outcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "new_process", None)
    again = run_sweep(scenario, out, device="cpu")
    assert (again.skipped, again.total, again.finished) == (4, 0, 0)
    monkeypatch.chdir(out.parent)
    results = gradlab.run(scenario, out.name, device="cpu")
    assert set(results.runs["status"]) == {"done"}


def test_what_cannot_be_run_is_refused_first(tmp_path: Path) -> None:
    with pytest.raises(GradlabError) as error:
        run_sweep(tiny(), tmp_path / "new", jobs=0)
    assert str(error.value) == "jobs: expected at least 1, found 0"
    with pytest.raises(GradlabError) as error:
        run_sweep(tiny(), tmp_path / "new", device="cuda")
    assert str(error.value) == "device: expected a CUDA device, found none; use --device cpu"
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="expected a directory, found a file"):
        run_sweep(tiny(), tmp_path / "file", device="cpu")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ValueError("first\nsecond"), "ValueError: first"),
        (MemoryError(), "MemoryError"),
        (OSError(28, "No space left on device"), "OSError: [Errno 28] No space left on device"),
    ],
)
def test_whatever_a_run_raises_becomes_a_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, message: str
) -> None:
    def fail(each: Point, device: str) -> Run:
        raise error

    monkeypatch.setattr("gradlab.lab.run.run_point", fail)
    assert compute_and_store(point(), tmp_path, "cpu") == ("failed", message)
    assert stored_runs(tmp_path) == set()


def test_a_diverged_run_is_stored_and_counted(tmp_path: Path) -> None:
    each = point(training={"lr": 1e38, "clip": 0.0, "steps": 3})
    assert compute_and_store(each, tmp_path, "cpu") == ("diverged", "")
    assert stored_runs(tmp_path) == {each.run_id}


def one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no seeds trained in lockstep."""
    monkeypatch.setattr("gradlab.lab.lockstep.most_together", lambda *_: 1)


def faulty() -> Callable[[Point, Path, str], tuple[str, str]]:
    """A stand-in for computing: length 4 kills its process, 3 raises, 2 is stored.

    Made inside a function, so that it travels to the process whole, not by name.
    """

    def compute(each: Point, out: Path, device: str) -> tuple[str, str]:
        import os
        import signal

        from gradlab.lab.store import run_folder

        if each.task.length == 4:
            os.kill(os.getpid(), signal.SIGKILL)
        if each.task.length == 3:
            raise RuntimeError("no luck")
        folder = run_folder(out, each.run_id)
        folder.mkdir()
        (folder / "run.json").write_text("{}")
        return "done", ""

    return compute


def test_runs_that_fail_are_told_at_once_not_stored_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_by_one(monkeypatch)
    monkeypatch.setattr(lanes, "compute_and_store", faulty())
    scenario = tiny({"task.length": [2, 3, 4], "seed": [0, 1]})
    told: list[Event] = []
    outcome = run_sweep(scenario, tmp_path, jobs=1, device="cpu", report=told.append)
    killed = "its process was killed, perhaps for lack of memory; try --jobs 1"
    assert [
        (event.point.task.length, event.kind, event.message)
        for event in told
        if event.kind != "started"
    ] == [
        *[(4, "failed", killed)] * 2,
        *[(3, "failed", "RuntimeError: no luck")] * 2,
        *[(2, "done", "")] * 2,
    ]
    assert (outcome.done, len(outcome.failures)) == (2, 4)
    assert len(stored_runs(tmp_path)) == 2
    left = pending(scenario, stored_runs(tmp_path))
    assert [each.task.length for each in left] == [4, 4, 3, 3]


def test_the_python_face_raises_after_storing_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "compute_and_store", faulty())
    with pytest.raises(GradlabError) as error:
        gradlab.run(tiny({"task.length": [2, 3]}), tmp_path, jobs=1, device="cpu")
    assert str(error.value) == (
        f"1 of 2 runs failed; the others are stored in {tmp_path}. The first: "
        "gru, attention additive, copy n = 3, seed 0: RuntimeError: no luck"
    )
    assert len(stored_runs(tmp_path)) == 1


def test_a_report_that_raises_ends_the_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "compute_and_store", faulty())

    one_by_one(monkeypatch)

    def report(event: Event) -> None:
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        run_sweep(tiny({"seed": [0, 1, 2]}), tmp_path, jobs=1, device="cpu", report=report)


def test_an_extended_sweep_computes_only_what_is_new(tmp_path: Path) -> None:
    fill(tmp_path, tiny({"seed": [0, 1]}))
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.parquet")}
    seen: list[Event] = []
    more = tiny({"seed": [1, 2]})
    outcome = run_sweep(more, tmp_path, device="cpu", report=seen.append)
    assert (outcome.skipped, outcome.total) == (1, 1)
    assert {event.point.seed for event in seen} == {2}
    assert (
        before.items()
        <= {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.parquet")}.items()
    )
    results = open_results(tmp_path)
    assert (results.count("done"), results.others) == (2, 1)


MARK = "GRADLAB_TEST_MARK"


def marked(mark: str) -> list[int]:
    """The processes that were started, directly or not, with this mark in their environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            environment, state = (folder / "environ").read_bytes(), (folder / "stat").read_text()
        except OSError:
            continue
        if f"{MARK}={mark}".encode() in environment and ") Z " not in state:
            found.append(int(folder.name))
    return found


def wait_for(condition: Callable[[], bool], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    return condition()


SETTINGS = {
    "model.attention": "none",
    "model.hidden": 4,
    "task.length": [2, 3, 4],
    "training.steps": 200,
    "seed": 0,
}


@contextmanager
def command(out: Path, mark: str) -> Iterator[subprocess.Popen[str]]:
    """`gradlab run` of three runs, one at a time, in a session of its own."""
    words = ["run", "first_look", "--out", str(out), "--jobs", "1", "--device", "cpu"]
    words += [word for key, value in SETTINGS.items() for word in ("--set", f"{key}={value}")]
    process = subprocess.Popen(
        [sys.executable, "-c", "from gradlab.cli import main; main()", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, MARK: mark},
        start_new_session=True,
    )
    try:
        yield process
    finally:
        for left in {process.pid, *marked(mark)}:
            try:
                os.kill(left, signal.SIGKILL)
            except ProcessLookupError:
                continue
        process.wait()


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="reads /proc")
def test_an_interrupted_and_then_a_killed_sweep_goes_on(tmp_path: Path) -> None:
    mark = uuid.uuid4().hex

    def stored(count: int) -> Callable[[], bool]:
        return lambda: len(stored_runs(tmp_path)) >= count

    with command(tmp_path, mark) as process:
        assert wait_for(stored(1), 60)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to every process at once
        stdout, stderr = process.communicate(timeout=20)
        assert process.returncode == 130
        assert stdout == ""
        *progress, last = stderr.splitlines()
        assert last == "gradlab: interrupted; finished runs are stored, run again to go on"
        assert all(line.startswith("[") for line in progress)
        assert wait_for(lambda: not marked(mark), 10)
    kept = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("run.json")}

    with command(tmp_path, mark) as process:
        assert wait_for(stored(len(kept) + 1), 60)
        process.kill()
        process.communicate(timeout=20)
        assert process.returncode == -signal.SIGKILL
        assert wait_for(lambda: not marked(mark), 10)

    there = len(stored_runs(tmp_path))
    outcome = run_sweep(load_scenario("first_look", SETTINGS), tmp_path, jobs=1, device="cpu")
    assert (outcome.skipped, outcome.done) == (there, 3 - there)
    assert len(stored_runs(tmp_path)) == 3
    assert kept.items() <= {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}.items()


def test_an_interrupt_reaches_the_parent_alone(tmp_path: Path) -> None:
    """A process inherits that SIGINT is held back, from its first instruction on."""

    def compute(each: Point, out: Path, device: str) -> tuple[str, str]:
        import signal

        held = signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, set())
        ignored = signal.getsignal(signal.SIGINT) == signal.SIG_IGN
        return "failed", f"{held} {ignored}"

    seen: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lanes, "compute_and_store", compute)
        seen += run_sweep(tiny(), tmp_path, device="cpu").failures
    assert [event.message for event in seen] == ["True True"]


@pytest.mark.parametrize(("told", "found"), [(None, KEEP_MEMORY), ("glibc.malloc.check=0",) * 2])
def test_a_process_keeps_its_memory_unless_told_otherwise(
    told: str | None, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    if told is not None:
        monkeypatch.setenv("GLIBC_TUNABLES", told)
    executor = new_process()
    try:
        assert executor.submit(os.getenv, "GLIBC_TUNABLES").result() == found
    finally:
        executor.shutdown(kill_workers=True)
