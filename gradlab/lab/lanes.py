"""The processes of a sweep: as many lanes as jobs, one run or one group of seeds at a time in each.

Each process computes with one torch thread. A run depends on its point alone, so the number of
processes and the order of runs change nothing in the numbers.
"""

from __future__ import annotations

import gc
import importlib
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from loky.process_executor import ProcessPoolExecutor

from gradlab.grid import Point

UNREMARKED = "ignore:resource_tracker"
"""A `-W` option: what loky's tracker says of processes that were killed would only alarm."""
Kind = Literal["started", "done", "diverged", "failed"]
Group = tuple[Point, ...]
"""Points that are computed in one go."""
KEEP_MEMORY = ":".join(
    f"glibc.malloc.{setting}"
    for setting in ("hugetlb=1", f"trim_threshold={2**32}", f"mmap_threshold={2**32}")
)
"""Has glibc keep freed memory for the next step, in large pages; other C libraries ignore it.

Without it each training step gives its memory back and has it zeroed anew, page by page.
"""


@dataclass(frozen=True)
class Event:
    """What happened to a point, and how far the sweep is.

    finished, total: runs ended so far, runs to compute in this call. work: the expected share of
    the work that is done, 0 to 1.
    """

    kind: Kind
    point: Point
    message: str = ""
    finished: int = 0
    total: int = 0
    work: float = 0.0


class Lane(threading.Thread):
    """One process after another, one run at a time: a process that dies takes one run with it."""

    def __init__(
        self,
        todo: queue.SimpleQueue[Group],
        events: queue.SimpleQueue[Event],
        out: Path,
        device: str,
    ) -> None:
        super().__init__(daemon=True)
        self.todo, self.events, self.out, self.device = todo, events, out, device
        self.stopped = False
        self.executor: Any = new_process()

    def run(self) -> None:
        """Compute points until none is left."""
        if hasattr(signal, "pthread_sigmask"):  # the lane's processes inherit this from the start
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        while not self.stopped:
            try:
                group = self.todo.get_nowait()
            except queue.Empty:
                return
            for point in group:
                self.events.put(Event("started", point))
            for event in self.compute_group(group):
                self.events.put(event)

    def compute_group(self, group: Group) -> Iterator[Event]:
        """Compute and store points in lockstep; one by one if anything comes in the way."""
        ended: list[Kind] = []
        if len(group) > 1:
            try:
                future = self.executor.submit(compute_together, group, self.out, self.device)
                ended = future.result()
            except BrokenProcessPool:
                self.executor = self.executor if self.stopped else new_process()
            except Exception:  # whose it is, and what, is seen when each runs alone
                ended = []
        for point, kind in zip(group, ended, strict=False):
            yield Event(kind, point)
        for point in group[len(ended) :]:
            yield self.compute(point)

    def compute(self, point: Point) -> Event:
        """Compute and store one point in this lane's process."""
        try:
            future = self.executor.submit(compute_and_store, point, self.out, self.device)
            kind, message = future.result()
            return Event(kind, point, message)
        except BrokenProcessPool:
            if not self.stopped:
                self.executor = new_process()
            message = "its process was killed, perhaps for lack of memory; try --jobs 1"
            return Event("failed", point, message)
        except Exception as error:  # of the process, not of the run; the rest goes on
            return Event("failed", point, in_a_line(error))

    def end(self) -> None:
        """Stop, ending a run that is still going."""
        self.stopped = True
        self.executor.shutdown(wait=True, kill_workers=True)


def new_process() -> Any:
    """Return an executor of one fresh process that leaves interrupts to its parent."""
    if UNREMARKED not in sys.warnoptions:  # which the tracker inherits; this process has read them
        sys.warnoptions.append(UNREMARKED)
    environment = {"GLIBC_TUNABLES": os.environ.get("GLIBC_TUNABLES", KEEP_MEMORY)}
    return ProcessPoolExecutor(
        max_workers=1, initializer=_begin, initargs=(os.getpid(),), env=environment
    )


def _begin(parent: int) -> None:
    """Set up a process: it ignores interrupts, and ends when its parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    _import_all()


def _import_all() -> None:
    """Import what a run needs, without looking for garbage among what stays: a third faster."""
    gc.disable()
    for name in ("gradlab.lab.run", "gradlab.lab.store"):
        importlib.import_module(name)
    gc.freeze()
    gc.enable()


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def compute_and_store(point: Point, out: Path, device: str) -> tuple[Kind, str]:
    """Compute one point and store it; return how it ended, and why if it failed.

    Runs in a process of its own. Whatever a run raises becomes a message here, since an exception
    may not survive the way to another process.
    """
    from gradlab.lab.run import run_point
    from gradlab.lab.store import write_run

    try:
        run = run_point(point, device)
        write_run(out, point.run_id, run)
    except Exception as error:
        return "failed", in_a_line(error)
    return run.record["status"], ""


def compute_together(points: Group, out: Path, device: str) -> list[Kind]:
    """Compute points in lockstep and store each; return how each ended. Raises what a run does."""
    from gradlab.lab.run import run_points
    from gradlab.lab.store import write_run

    runs = run_points(points, device)
    for point, run in zip(points, runs, strict=True):
        write_run(out, point.run_id, run)
    return [run.record["status"] for run in runs]


def in_a_line(error: Exception) -> str:
    """Return an exception's type and the first line of what it says."""
    first = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__
