"""What a sweep costs, by gradlab and by the loops one would write: python tests/bench/sweep.py

Copying, V = 10, GRU, hidden 64, batch 64, n = 20, 50, 100, without attention and with additive
(Bahdanau), 4 seeds, 100 training steps, measured at the first and at the last; float32, two cores.

gradlab is timed whole: `run_sweep` with two processes, from their start to the tables on disk. The
others would take hours, and each of their steps costs the same. So a few of their training steps
and one measurement are timed in every cell (one length with one attention), and composed:
4 seeds x (100 steps + 2 measurements). In every round all take turns, the others before gradlab and
after it, since the machine may change its speed meanwhile; ratios are round by round.

JAX runs one seed at a time, plain or computing each decoder step again in the backward pass, or all
seeds under a vmap, or a seed in each of two processes; "best" is the fastest in each cell of each
round. Compilation is not counted.

The others record the held-out loss, the greedy accuracy and the norm of every dL/dh_i, in float32;
gradlab, in float64, its tables: also the split by path, shares with intervals and path lengths.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import growth
from agreement import check
from gemm import compare_with_gemm
from measure import compare_map
from setting import ATTENTION, FULL, LENGTHS, SEEDS, Size, scenario, seeds_of
from timing import ROUNDS, ratios, spread, threads, timed
from trainers import Prepare, Runs, Workers, usual

from gradlab.lab.sweep import run_sweep

JOBS = 2
STEPS = 2  # of a contender that are timed together
GRADLAB = "gradlab"
Cell = tuple[str, int]
"""Attention and length."""
Parts = dict[str, list[Cell]]
Seconds = dict[str, dict[str, list[float]]]
"""Contender -> part of the sweep -> seconds of every round."""


@dataclass(frozen=True)
class Plan:
    """What is timed: all lengths and models of a size, for so many rounds."""

    size: Size
    lengths: Sequence[int]
    rounds: int
    by_cell: bool

    @property
    def parts(self) -> Parts:
        """Return the whole sweep, what of it has no attention, and each cell."""
        cells = [(attention, n) for attention in ATTENTION for n in self.lengths]
        single = {f"{attention}, n = {n}": [(attention, n)] for attention, n in cells}
        return {
            "whole sweep": cells,
            "without attention": [cell for cell in cells if cell[0] == "none"],
            **(single if self.by_cell else {}),
        }


# Who takes part.


def contenders(workers: Workers) -> dict[str, Prepare]:
    """Return everyone but gradlab, once they are seen to compute the same numbers."""
    import in_jax  # here, so that the processes of gradlab's sweep do not import JAX

    found: dict[str, Prepare] = {
        "usual loop": usual,
        "two processes": workers.share(usual),
        "keys hoisted": partial(usual, hoisted=True),
    }
    if in_jax.MISSING:
        print(f"JAX is left out: {in_jax.MISSING}\n")
    else:
        recompute = partial(in_jax.JaxRuns, recompute=True)
        found["JAX"] = in_jax.JaxRuns
        found["JAX, recompute"] = recompute
        found["JAX, vmap"] = partial(recompute, together=True)
        found["JAX, 2 processes"] = workers.share(recompute)
    check(found)
    return found


def begin(everyone: dict[str, Prepare], plan: Plan) -> dict[str, dict[Cell, Runs]]:
    """Prepare each contender in each cell; its first step and measurement warm it up."""
    ready: dict[str, dict[Cell, Runs]] = {}
    for name, prepare in everyone.items():
        cells = plan.parts["whole sweep"]
        ready[name] = {cell: prepare(seeds_of(*cell, plan.size)) for cell in cells}
        first = sum(timed(partial(seconds_of, runs, plan.size)) for runs in ready[name].values())
        if name.startswith("JAX"):
            print(f"{name}: compiling for all cells took {first:.1f} s, not counted below")
    return ready


# Seconds.


def sweep_seconds(cells: list[Cell], size: Size) -> float:
    """Return the seconds of a whole sweep by gradlab over some cells, tables and all."""
    attention, lengths = (list(dict.fromkeys(part)) for part in zip(*cells, strict=True))
    asked = scenario(attention, lengths, size)
    with tempfile.TemporaryDirectory() as folder:
        started = partial(run_sweep, asked, Path(folder), jobs=JOBS, device="cpu")
        return timed(started)


def advance(runs: Runs) -> None:
    for number in range(STEPS):
        runs.step(number)
    runs.wait()


def seconds_of(runs: Runs, size: Size) -> float:
    """Return the composed seconds of all seeds of a cell."""
    step = timed(partial(advance, runs)) / STEPS
    measurement = timed(runs.measure)
    return len(SEEDS) / runs.seeds * (size.steps * step + 2 * measurement)


def every_cell(ready: dict[str, dict[Cell, Runs]], size: Size) -> dict[str, dict[Cell, float]]:
    """Return the composed seconds of everyone but gradlab in every cell."""
    return {
        name: {cell: seconds_of(runs, size) for cell, runs in each.items()}
        for name, each in ready.items()
    }


def one_round(ready: dict[str, dict[Cell, Runs]], plan: Plan) -> dict[str, dict[str, float]]:
    """Return contender -> part -> seconds."""
    parts = plan.parts
    before = every_cell(ready, plan.size)
    found = {GRADLAB: {name: sweep_seconds(cells, plan.size) for name, cells in parts.items()}}
    after = every_cell(ready, plan.size)
    by_cell = {
        name: {cell: (each[cell] + after[name][cell]) / 2 for cell in each}
        for name, each in before.items()
    }
    in_jax = [each for name, each in by_cell.items() if name.startswith("JAX")]
    if in_jax:
        by_cell["JAX, best"] = {cell: min(each[cell] for each in in_jax) for cell in in_jax[0]}
    for name, each in by_cell.items():
        found[name] = {part: sum(each[cell] for cell in cells) for part, cells in parts.items()}
    return found


def compare_sweep(plan: Plan) -> list[float]:
    """Print the tables; return gradlab's seconds without attention, round by round."""
    workers = Workers()
    seconds: Seconds = defaultdict(lambda: defaultdict(list))
    try:
        ready = begin(contenders(workers), plan)
        for _ in range(plan.rounds):
            for name, parts in one_round(ready, plan).items():
                for part, each in parts.items():
                    seconds[name][part].append(each)
    finally:
        workers.end()
    print_sweep(seconds, plan)
    return seconds[GRADLAB]["without attention"]


def print_sweep(seconds: Seconds, plan: Plan) -> None:
    size, mine = plan.size, seconds[GRADLAB]
    composed = f"{len(SEEDS)} seeds x ({size.steps} steps + 2 measurements)"
    print(f"\nTHE SWEEP, seconds: median [least, greatest] of {plan.rounds} rounds")
    print(f"gradlab: timed whole, {JOBS} processes, started and ended in every row")
    print(f"others: composed, {composed}, from {STEPS} steps and")
    print("1 measurement in each cell, timed before gradlab and after; of the two processes while")
    print("both are at work, each on half of the seeds\n")
    took, times = {}, {}
    for name, parts in seconds.items():
        took[name] = {part: spread(each, 2) for part, each in parts.items()}
        times[name] = {part: ratios(each, mine[part], 2) for part, each in parts.items()}
    del times[GRADLAB]
    print_table(took)
    print("The same as multiples of gradlab's\n")
    print_table(times)


def print_table(rows: dict[str, dict[str, str]]) -> None:
    """Print contenders below each other, and four parts of the sweep beside each other."""
    parts = list(rows[next(iter(rows))])
    for start in range(0, len(parts), 4):
        shown = parts[start : start + 4]
        print(f"{'':20}" + "".join(f"{part:>25}" for part in shown))
        for name, each in rows.items():
            print(f"{name:20}" + "".join(f"{each[part]:>25}" for part in shown))
        print()


# The command.

SECTIONS = ("sweep", "gemm", "recording", "map", "growth")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="What a sweep costs; see the top of this file.")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that it runs")
    parser.add_argument("--no-cells", action="store_true", help="leave out the rows of one cell")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=SECTIONS)
    return parser.parse_args()


def main() -> None:
    asked = arguments()
    size = replace(FULL, steps=4, every=4) if asked.quick else FULL
    plan = Plan(size, (4, 8) if asked.quick else LENGTHS, asked.rounds, not asked.no_cells)
    lengths = (4, 8, 16) if asked.quick else growth.LENGTHS
    long = [] if asked.quick else [growth.LONG]
    peaks = {}
    if "growth" in asked.only:
        peaks = growth.memory([*lengths, *long], size)  # first: see there
    if {"sweep", "gemm"} & set(asked.only):
        least = replace(size, steps=1)
        start = min(sweep_seconds([("none", 2)], least) for _ in range(3))
        print(f"gradlab: a sweep of next to nothing takes {start:.2f} s (processes and imports)\n")
        without = compare_sweep(plan)
        compare_with_gemm(without, start, plan.lengths, size, asked.rounds)
    if "recording" in asked.only:
        growth.compare_recording(8 if asked.quick else 50, size, asked.rounds)
    if "map" in asked.only:
        with threads(1):
            compare_map(10 if asked.quick else 100)
    if "growth" in asked.only:
        growth.compare_growth(peaks, lengths, size, asked.rounds)


if __name__ == "__main__":
    main()
