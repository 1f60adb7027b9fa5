"""A sweep: which points are already there, and in which order the rest is computed."""

from __future__ import annotations

import itertools
import queue
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from loky import cpu_count

from gradlab.errors import GradlabError, StoreError
from gradlab.grid import Point, ineffective_keys, points
from gradlab.lab.lanes import Event, Group, Lane
from gradlab.lab.lockstep import groups
from gradlab.lab.store import (
    ASIDE,
    DamagedRunError,
    check_table,
    prepare,
    read_record,
    run_folder,
    stored_runs,
)
from gradlab.lab.tables import ON_REQUEST, TABLES
from gradlab.schema import Scenario


@dataclass
class Outcome:
    """How a sweep ended. `skipped` runs were already there; `failures` are not stored.

    `damaged` runs were there, but could not be read: they were set aside and computed again.
    """

    skipped: int
    total: int
    done: int = 0
    diverged: int = 0
    damaged: int = 0
    failures: list[Event] = field(default_factory=list)

    @property
    def finished(self) -> int:
        """How many runs have ended, well or not."""
        return self.done + self.diverged + len(self.failures)

    def count(self, event: Event) -> None:
        """Take one event into account."""
        if event.kind == "done":
            self.done += 1
        elif event.kind == "diverged":
            self.diverged += 1
        elif event.kind == "failed":
            self.failures.append(event)


def expected_work(point: Point) -> float:
    """Return a rough relative duration of a run, for the order of runs and the time left."""
    idle = "model.attention" in ineffective_keys(point)
    attention = 0.0 if idle or point.model.attention == "none" else 1.0
    if point.model.kind == "transformer":
        attention = float(point.model.layers)
    longest = max(point.task.length, *point.lengths)
    checkpoints = 2 + point.training.steps / point.record.every
    return (point.training.steps + 8 * checkpoints) * longest * (1 + attention * longest / 30)


def pending(scenario: Scenario, stored: set[str]) -> list[Point]:
    """Return the points to compute, the longest first, each once."""
    unique = {point.run_id: point for point in points(scenario) if point.run_id not in stored}
    return sorted(unique.values(), key=expected_work, reverse=True)


def damaged_runs(out: Path, wanted: Iterable[Point]) -> set[str]:
    """Return which of these runs are stored and damaged, by run.json and the ends of the tables.

    Raises StoreError for a run of another schema version.
    """
    stored, found = stored_runs(out), set()
    for point in {each.run_id: each for each in wanted if each.run_id in stored}.values():
        folder = run_folder(out, point.run_id)
        try:
            read_record(folder)
            for name in TABLES:
                if name not in ON_REQUEST or point.value(ON_REQUEST[name]):
                    check_table(folder, name)
        except DamagedRunError:
            found.add(point.run_id)
    return found


def set_aside(out: Path, run_ids: Iterable[str]) -> None:
    """Move the folders of damaged runs out of the way. Raises StoreError if that fails."""
    for run_id in run_ids:
        places = (out / "runs" / f"{ASIDE}{run_id}-{k}" for k in itertools.count(1))
        try:
            run_folder(out, run_id).rename(next(place for place in places if not place.exists()))
        except FileNotFoundError:  # another sweep into the same place was faster
            continue
        except OSError as error:
            raise StoreError(f"{out}: cannot be written ({error.strerror})") from error


def run_sweep(
    scenario: Scenario,
    out: str | Path,
    *,
    jobs: int | None = None,
    device: str = "auto",
    force: bool = False,
    report: Callable[[Event], None] = lambda event: None,
) -> Outcome:
    """Compute the missing points of a sweep into `out`, `jobs` at a time (default: the cores).

    device: "auto" (cuda where there is one), "cpu" or "cuda". report: called for each event, from
    one thread at a time. A failed run does not stop the others; it is not stored, so the next call
    tries it again.

    Raises StoreError if `out` cannot be used (see `store.prepare`), GradlabError for a device that
    is not there. On an interrupt, what is finished is stored and the processes are ended.
    """
    out = Path(out)
    if jobs is not None and jobs < 1:
        raise GradlabError(f"jobs: expected at least 1, found {jobs}")
    chosen = choose_device(device)
    damaged = damaged_runs(out, points(scenario))
    stored = prepare(out, scenario, force=force) - damaged
    set_aside(out, damaged)
    waiting = pending(scenario, stored)
    outcome = Outcome(skipped=len(stored), total=len(waiting), damaged=len(damaged))
    lanes = min(jobs or (1 if chosen == "cuda" else cpu_count()), len(waiting))
    todo: queue.SimpleQueue[Group] = queue.SimpleQueue()
    for group in groups(waiting, lanes, expected_work, chosen):
        todo.put(group)
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    workers = [Lane(todo, events, out, chosen) for _ in range(lanes)]
    work, all_work = 0.0, sum(map(expected_work, waiting))
    try:
        for worker in workers:
            worker.start()
        while outcome.finished < outcome.total:
            event = events.get()
            outcome.count(event)
            work += 0.0 if event.kind == "started" else expected_work(event.point)
            report(
                replace(event, finished=outcome.finished, total=outcome.total, work=work / all_work)
            )
    finally:
        for worker in workers:
            worker.end()
    return outcome


def choose_device(device: str) -> str:
    """Return "cpu" or "cuda". Raises GradlabError if cuda is asked for and not there."""
    if device == "cpu":
        return device
    import torch

    available = torch.cuda.is_available()
    if device == "cuda" and not available:
        raise GradlabError("device: expected a CUDA device, found none; use --device cpu")
    return "cuda" if available else "cpu"
