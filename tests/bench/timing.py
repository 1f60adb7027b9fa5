"""Candidates that take turns, and what is printed of their seconds."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

ROUNDS = 5
Work = Callable[[], object]


def timed(work: Work) -> float:
    """Return the seconds that `work` takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def take_turns(candidates: dict[str, Work], rounds: int = ROUNDS) -> dict[str, list[float]]:
    """Return the seconds of every round of each candidate, after one round to warm up."""
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    for turn in range(rounds + 1):
        for name, work in candidates.items():
            took = timed(work)
            if turn > 0:
                seconds[name].append(took)
    return seconds


def spread(values: list[float], digits: int = 3) -> str:
    """Return the median and in brackets the least and the greatest value."""
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{middle:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def ratios(above: list[float], below: list[float], digits: int = 1) -> str:
    """Return the spread of the ratios round by round."""
    return spread([a / b for a, b in zip(above, below, strict=True)], digits)


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Let torch compute with `count` threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
