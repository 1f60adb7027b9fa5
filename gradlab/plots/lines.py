"""What is drawn inside a panel: a line with its band or its seeds, zeros at the floor, log ticks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from gradlab.plots.aggregate import (
    SEEDS_FOR_A_BAND,
    count_seeds,
    one_per_seed,
    over_seeds,
    usable,
)
from gradlab.plots.style import GREY, Look, Mark

MARKERS_PER_LINE = 9


def draw_line(
    axis: Axes, look: Look, frame: pd.DataFrame, x: str, y: str, mark: Mark, *,
    label: str, place: int = 0, log: bool = False,
) -> int:  # fmt: skip
    """The mean line over seeds, with a 95% t-band from five seeds on and the seeds below.

    `frame` has the rows of one line, one a seed and x; `place` shifts the markers of neighbouring
    lines apart. Returns the number of seeds. A value that cannot be shown leaves a gap.
    """
    frame = one_per_seed(frame, [x])
    seeds = count_seeds(frame, y, log=log)
    if not seeds:
        return 0
    table = over_seeds(frame, [x], y, log=log)
    if seeds >= SEEDS_FOR_A_BAND:
        axis.fill_between(
            table[x], table["low"], table["high"],
            color=mark.color, alpha=0.22, linewidth=0, label=f"{label} band",
        )  # fmt: skip
    elif seeds > 1:
        for seed, one in frame.sort_values(x).groupby("seed"):
            axis.plot(
                one[x], one[y].where(usable(one[y], log=log)), color=mark.color, ls=mark.dash,
                lw=look.thin, alpha=0.7, label=f"{label} seed {seed}",
            )  # fmt: skip
    step = max(1, math.ceil(len(table) / MARKERS_PER_LINE))
    axis.plot(
        table[x], table["centre"], color=mark.color, ls=mark.dash, lw=look.line, label=label,
        marker=mark.marker, ms=look.marker, mec="white", mew=0.25 * look.thin,
        markevery=(place % step, step), zorder=3,
    )  # fmt: skip
    return seeds


def mark_zeros(axis: Axes, look: Look, positions: Iterable[float], mark: Mark, place: int) -> None:
    """Triangles at the floor of a log axis where a value is exactly zero."""
    found = sorted(set(positions))
    if found:
        axis.plot(
            found, [0.025 + 0.03 * place] * len(found), transform=axis.get_xaxis_transform(),
            ls="", marker="v", ms=0.8 * look.marker, color=mark.color, label="zeros", clip_on=False,
        )  # fmt: skip


def key_line(look: Look, mark: Mark, label: str) -> Line2D:
    """A legend entry that looks like its line."""
    return Line2D(
        [], [], color=mark.color, ls=mark.dash, lw=look.line, marker=mark.marker,
        ms=look.marker, mec="white", mew=0.25 * look.thin, label=label,
    )  # fmt: skip


def draw_chance(axis: Axes, look: Look, x: Sequence[float], y: Sequence[float]) -> None:
    """A dotted line for guessing."""
    axis.plot(x, y, color=GREY, ls=":", lw=0.8 * look.line, label="chance", zorder=1)


def key_chance(look: Look, label: str) -> Line2D:
    """The legend entry of the dotted line."""
    return Line2D([], [], color=GREY, ls=":", lw=0.8 * look.line, label=label)


def positive_range(frame: pd.DataFrame, by: list[str], value: str) -> tuple[float, float] | None:
    """Whole decades (as exponents) around all positive values and their bands, None without any."""
    shown = frame[usable(frame[value], log=True)]
    if shown.empty:
        return None
    table = over_seeds(shown, by, value, log=True)
    exponents = np.log10(pd.concat([table["low"], table["high"], shown[value].astype(float)]))
    finite = exponents[np.isfinite(exponents)]
    low, high = math.floor(finite.min()), math.ceil(finite.max())
    return float(low), float(max(high, low + 1))


def decades(low: float, high: float, most: int = 6) -> list[int]:
    """At most `most` whole exponents between `low` and `high`, evenly spaced."""
    for step in (1, 2, 5, 10, 20, 50, 100, 200):
        ticks = [e for e in range(math.ceil(low), math.floor(high) + 1) if e % step == 0]
        if 0 < len(ticks) <= most:
            return ticks
    return [math.ceil(low)]


def power(look: Look, exponent: int) -> str:
    """A tick label for ten to an exponent; an ASCII hyphen where the font is Korean."""
    return f"1e{exponent}" if look.lang == "ko" else rf"$10^{{{exponent}}}$"


def set_log_axis(axes: Sequence[Axes], look: Look, span: tuple[float, float] | None) -> None:
    """The same log axis for all panels, a few decades labelled; no ticks if all values are zero."""
    low, high = span or (-1.0, 0.0)
    margin = 0.06 * (high - low)
    ticks = decades(low, high) if span else []
    for axis in axes:
        axis.set_yscale("log")
        axis.set_ylim(10 ** max(low - margin, -307.0), 10 ** (high + margin))
        axis.set_yticks([10.0**e for e in ticks], [power(look, e) for e in ticks])
        axis.set_yticks([], minor=True)
