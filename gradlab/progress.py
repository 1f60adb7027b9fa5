"""What a command says while it works: for a sweep a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from gradlab.lab.lanes import Event

Report = Callable[["Event"], None]
BAR_STEPS = 1000
SETTLED = 0.05  # of the work; before it, the start of the processes would count as work


def say(message: str) -> None:
    """Print a message for the user, not a result."""
    click.echo(message, err=True)


def counted(number: int, noun: str) -> str:
    """Return a number of things in words: "1 run", "2 runs"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


@contextmanager
def progress(kind: str) -> Iterator[Report]:
    """Yield the function that shows events, for "auto", "plain" or "none"."""
    if kind == "none":
        yield _only_failures
    elif kind == "auto" and sys.stderr.isatty():
        bar: Any = click.progressbar(
            length=BAR_STEPS, label="starting", file=sys.stderr, item_show_func=lambda text: text
        )
        with bar:
            yield _bar(bar)
    else:
        yield _lines(time.perf_counter())


def _only_failures(event: Event) -> None:
    if event.kind == "failed":
        say(_sentence(event))


def _bar(bar: Any) -> Report:
    def show(event: Event) -> None:
        bar.label = f"{event.finished} of {event.total} runs"
        if event.kind in ("failed", "diverged"):
            say("\r\033[K" + _sentence(event))
        bar.update(round(event.work * BAR_STEPS) - bar.pos, describe(event))

    return show


def _lines(started: float) -> Report:
    def show(event: Event) -> None:
        if event.kind == "started":
            return
        about = ""
        if event.finished < event.total and event.work > SETTLED:
            left = (time.perf_counter() - started) * (1 - event.work) / event.work
            about = f"; about {duration(left)} left"
        say(f"[{event.finished}/{event.total}] {_sentence(event)}{about}")

    return show


def _sentence(event: Event) -> str:
    return f"{event.kind}: {describe(event)}" + (f": {event.message}" if event.message else "")


def describe(event: Event) -> str:
    """Return the event's point in a few words."""
    from gradlab.grid import describe as in_words

    return in_words(event.point)


def duration(seconds: float) -> str:
    """Return a duration in words: "12 s", "3.5 min"."""
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.1f} min"
