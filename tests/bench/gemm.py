"""What the matrix products alone would take, at the rate that this machine multiplies matrices."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from functools import partial

import torch
from setting import SEEDS, Size
from timing import Work, spread, take_turns, threads
from torch import Tensor

CORES = 2


def multiply_adds(n: int, k: int, size: Size, symbols: int = 10, gates: int = 3) -> int:
    """Return the multiply-adds of the matrix products of one training step without attention.

    The recurrent product of n + k steps, batch x hidden by hidden x (gates hidden), and the output
    product of k steps, batch x hidden by hidden x V; each three times, for the forward pass, the
    gradient of the data and the gradient of the weights. The embedding folds into the projection of
    the input, a table of V + 3 rows, and counts zero; so do activations, Adam and measurements.
    """
    recurrent = (n + k) * size.hidden * gates * size.hidden
    output = k * size.hidden * symbols
    return 3 * size.batch * (recurrent + output)


def rates(size: Size, rounds: int) -> dict[str, list[float]]:
    """Return float32 multiply-adds per second on one thread, round by round, by shape."""
    large, b, h = 1024, size.batch, size.hidden
    shapes = {
        f"({large} x {large}) @ ({large} x {large})": (1, large, large, large, 1),
        f"({b} x {h}) @ ({h} x {3 * h})": (1, b, h, 3 * h, 2000),
        f"the same, {len(SEEDS)} seeds batched": (len(SEEDS), b, h, 3 * h, 500),
    }
    candidates: dict[str, Work] = {}
    counts = {}
    for name, (batch, rows, inner, columns, times) in shapes.items():
        lead = (batch,) if batch > 1 else ()
        left, right = torch.randn(*lead, rows, inner), torch.randn(*lead, inner, columns)
        candidates[name] = partial(multiply, left, right, left @ right, times)
        counts[name] = batch * rows * inner * columns * times
    with threads(1):
        took = take_turns(candidates, rounds)
    return {name: [counts[name] / each for each in seconds] for name, seconds in took.items()}


def multiply(left: Tensor, right: Tensor, out: Tensor, times: int) -> None:
    for _ in range(times):
        torch.matmul(left, right, out=out)


def compare_with_gemm(
    whole: list[float], start: float, lengths: Sequence[int], size: Size, rounds: int
) -> None:
    """Print the limit for the sweep without attention, which took gradlab `whole` seconds.

    start: what a sweep of next to nothing takes.
    """
    steps = len(SEEDS) * size.steps
    count = steps * sum(multiply_adds(n, n, size) for n in lengths)
    took = statistics.median(whole)
    print(f"THE LIMIT BY MATRIX PRODUCTS, without attention: {count / 1e9:.1f} G multiply-adds\n")
    print(f"{'':34}{'G multiply-adds/s, 1 thread':>32}{f'on {CORES} cores':>14}{'gradlab':>10}")
    for name, each in rates(size, rounds).items():
        limit = count / (CORES * statistics.median(each))
        print(
            f"{name:34}{spread([rate / 1e9 for rate in each], 1):>32}"
            f"{f'{limit:.2f} s':>14}{f'{limit / took:.1%}':>10}"
        )
    print(
        f"\ngradlab takes {took:.2f} s, of which a sweep of next to nothing takes {start:.2f} s;\n"
        "the last column is the share of the limit's rate that it reaches, with everything."
    )
