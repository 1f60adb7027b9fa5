"""What the matrix products alone would take, at the rate that this machine multiplies matrices."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import torch
from setting import SEEDS, Size
from timing import spread, timed
from torch import Tensor
from trainers import Workers


class Rates(NamedTuple):
    """Multiply-adds per second of one process alone, and of two together while both are at work."""

    alone: float
    both: float


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


def rates(size: Size, rounds: int) -> dict[str, list[Rates]]:
    """Return float32 multiply-adds per second, round by round, by shape."""
    large, b, h = 1024, size.batch, size.hidden
    shapes = {
        f"({large} x {large}) @ ({large} x {large})": (1, large, large, large, 3),
        f"({b} x {h}) @ ({h} x {3 * h})": (1, b, h, 3 * h, 4000),
        f"the same, {len(SEEDS)} seeds batched": (len(SEEDS), b, h, 3 * h, 1000),
    }
    found: dict[str, list[Rates]] = {name: [] for name in shapes}
    workers = Workers()
    try:
        for turn in range(rounds + 1):  # one to warm up
            for name, shape in shapes.items():
                alone = workers.pools[0].submit(rate, *shape).result()
                at_once = [pool.submit(rate, *shape) for pool in workers.pools]
                both = sum(future.result() for future in at_once)
                if turn > 0:
                    found[name].append(Rates(alone, both))
    finally:
        workers.end()
    return found


def rate(batch: int, rows: int, inner: int, columns: int, times: int) -> float:
    """Return the multiply-adds per second of products of one shape."""
    lead = (batch,) if batch > 1 else ()
    left, right = torch.randn(*lead, rows, inner), torch.randn(*lead, inner, columns)
    out = left @ right
    took = timed(partial(multiply, left, right, out, times))
    return batch * rows * inner * columns * times / took


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
    print("G multiply-adds a second, of one process of one thread and of two at the same time")
    print(f"{'':34}{'one':>20}{'two':>20}{'limit':>10}{'gradlab':>10}")
    for name, each in rates(size, rounds).items():
        limit = count / statistics.median(rates.both for rates in each)
        alone, both = (spread([rate / 1e9 for rate in part], 1) for part in zip(*each, strict=True))
        print(f"{name:34}{alone:>20}{both:>20}{f'{limit:.2f} s':>10}{f'{limit / took:.1%}':>10}")
    print(
        f"\ngradlab takes {took:.2f} s, of which a sweep of next to nothing takes {start:.2f} s;\n"
        "the last column is the share of the limit's rate that it reaches, with everything."
    )
