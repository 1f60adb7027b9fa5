"""What recording costs, and how time and memory of a training step grow with the length."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import torch
from setting import ATTENTION, Size, seeds_of
from timing import Work, ratios, spread, take_turns, threads
from trainers import Trainer, gradlab_loss

from gradlab import Point, build_model, run_point

LENGTHS = (25, 50, 100, 200, 400, 800)
LONG = 500
LIMIT = 2000  # MB, for a training step at n = k = LONG


def trainer(point: Point) -> Trainer:
    return Trainer(point, build_model(point), gradlab_loss)


# Recording.


def train_alone(point: Point) -> None:
    """Train as a run does, and look at nothing."""
    with threads(1):
        run = trainer(point)
        for number in range(point.training.steps):
            run.step(number)


def compare_recording(length: int, size: Size, rounds: int) -> None:
    print(
        f"\nRECORDING at the first and the last of {size.steps} steps, n = {length}, one thread\n"
    )
    print(f"{'':14}{'training alone, s':>26}{'run_point, s':>26}{'ratio':>22}")
    for attention in ATTENTION:
        point = seeds_of(attention, length, size)[0]
        took = take_turns(
            {"alone": partial(train_alone, point), "run": partial(run_point, point)}, rounds
        )
        print(
            f"{attention:14}{spread(took['alone']):>26}{spread(took['run']):>26}"
            f"{ratios(took['run'], took['alone'], 2):>22}"
        )


# Growth with the length.

CHILD = """
import sys
sys.path.insert(0, {here!r})
from growth import print_peak
print_peak({n}, {hidden}, {batch})
"""


def peak() -> float:
    """Return the peak resident memory of this process so far, MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def print_peak(n: int, hidden: int, batch: int) -> None:
    """Print by how much a training step raises the peak, and the peak."""
    torch.set_num_threads(1)
    trainer(seeds_of("additive", 2)[0]).step(0)
    before = peak()
    trainer(seeds_of("additive", n, Size(hidden=hidden, batch=batch))[0]).step(0)
    print(peak() - before, peak())


def peak_of(n: int, size: Size) -> tuple[float, float]:
    """Return the growth of the peak by a training step at n = k, and the peak, MB."""
    here = str(Path(__file__).resolve().parent)
    code = CHILD.format(here=here, n=n, hidden=size.hidden, batch=size.batch)
    command = [sys.executable, "-c", code]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    grown, highest = map(float, printed.split())
    return grown, highest


def memory(lengths: Sequence[int], size: Size) -> dict[int, tuple[float, float]]:
    """Return `peak_of` every length; to be called before this process has grown.

    A child's peak starts at what its parent held when it was forked.
    """
    return {n: peak_of(n, size) for n in lengths}


def compare_growth(
    peaks: dict[int, tuple[float, float]], lengths: Sequence[int], size: Size, rounds: int
) -> None:
    """Print the time and memory of one training step with additive attention by n = k.

    Beyond n = 100 there are two rounds.
    """
    print(f"\nGROWTH of a training step, additive, batch {size.batch}, one thread, n = k\n")
    print(f"{'n':>6}{'seconds':>28}{'per n k, us':>14}{'peak grows by, MB':>20}{'peak, MB':>12}")
    for n in lengths:
        run = trainer(seeds_of("additive", n, size)[0])
        work: Work = partial(run.step, 0)
        with threads(1):
            took = take_turns({"step": work}, rounds if n <= 100 else 2)["step"]
        grown, highest = peaks[n]
        each = sorted(took)[len(took) // 2] / n**2 * 1e6
        print(f"{n:6}{spread(took):>28}{each:14.1f}{grown:20.0f}{highest:12.0f}")
    if LONG in peaks:
        grown, highest = peaks[LONG]
        print(
            f"\nAt n = k = {LONG}, batch {size.batch}, hidden {size.hidden}: the peak grows by "
            f"{grown:.0f} MB to {highest:.0f} MB; expected below {LIMIT} MB."
        )
        assert highest < LIMIT
