"""What a sweep says while it runs: lines with the time left, a bar on a terminal, or failures."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tiny import point

from gradlab import progress as module
from gradlab.lab.lanes import Event, Kind
from gradlab.progress import counted, duration, progress

NAME = "gru, attention additive, copy n = 2, seed 0"
POINT = point()


def event(kind: Kind, finished: int, work: float, message: str = "") -> Event:
    return Event(kind, POINT, message, finished=finished, total=3, work=work)


SWEEP = [
    event("started", 0, 0.0),
    event("done", 1, 0.2),
    event("failed", 2, 0.5, "ValueError: no"),
    event("diverged", 3, 1.0),
]


class Clock:
    """Time that passes by 10 s at each look."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        self.now += 10
        return self.now


@pytest.mark.parametrize("kind", ["plain", "auto"])
def test_lines_with_the_time_left(
    kind: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "time", Clock())
    with progress(kind) as report:
        for each in SWEEP:
            report(each)
    assert capsys.readouterr() == (
        "",
        f"[1/3] done: {NAME}; about 40 s left\n"
        f"[2/3] failed: {NAME}: ValueError: no; about 20 s left\n"
        f"[3/3] diverged: {NAME}\n",
    )


def test_none_still_tells_failures(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("none") as report:
        for each in SWEEP:
            report(each)
    assert capsys.readouterr() == ("", f"failed: {NAME}: ValueError: no\n")


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 s"), (89.4, "89 s"), (90, "1.5 min"), (3600, "60.0 min")]
)
def test_durations_in_words(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_counted() -> None:
    assert [counted(number, "run") for number in (0, 1, 2)] == ["0 runs", "1 run", "2 runs"]


BAR = """
from test_progress import SWEEP, event
from gradlab.progress import progress
with progress("auto") as report:
    for each in [*SWEEP, event("done", 3, 1.0 + 1e-12), event("failed", 3, 1.0, "late")]:
        report(each)
"""


def test_the_bar_on_a_terminal_reaches_the_end_and_keeps_failures() -> None:
    pty = pytest.importorskip("pty")
    ours, theirs = pty.openpty()
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", BAR],
        stderr=theirs,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parent,
        env={**os.environ, "TERM": "xterm"},
        check=False,
    )
    os.close(theirs)
    shown = os.read(ours, 1 << 16).decode()
    os.close(ours)
    assert (done.returncode, done.stdout) == (0, b"")
    assert "3 of 3 runs" in shown
    assert "100%" in shown
    assert f"failed: {NAME}: ValueError: no\r\n" in shown
    assert f"failed: {NAME}: late\r\n" in shown
    assert "Traceback" not in shown
