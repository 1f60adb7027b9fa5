"""What is drawn inside a panel: lines with a band or their seeds, zeros at the floor, ticks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from gradlab.plots.aggregate import (
    SEEDS_FOR_A_BAND,
    count_seeds,
    one_per_seed,
    over_seeds,
    usable,
)
from gradlab.plots.style import GREY, Look, Mark

MARKERS_PER_LINE = 12
LENGTHS_ON_LOG = 8.0
"""Lengths that span this factor or more stand on a log axis, or the short ones would collide."""


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
                one[x], one[y].where(usable(one[y], log=log)), color=mark.color, ls="-",
                lw=look.thin, alpha=0.7, label=f"{label} seed {seed}",
            )  # fmt: skip
    step = max(1, math.ceil(len(table) / MARKERS_PER_LINE))
    axis.plot(
        table[x], table["centre"], color=mark.color, ls=mark.dash, lw=look.line, label=label,
        markevery=(place % step, step), zorder=3, **marker_style(look, mark),
    )  # fmt: skip
    return seeds


def mark_beyond(
    axis: Axes, look: Look, line: pd.DataFrame, x: str, y: str, mark: Mark,
    limits: tuple[float, float],
) -> int:  # fmt: skip
    """Triangles at the edge where a line leaves the axis; returns how many."""
    if line.empty:
        return 0
    table = over_seeds(line, [x], y, log=False)
    count = 0
    for shape, height, out in (
        ("v", 0.025, table["centre"] < limits[0]),
        ("^", 0.975, table["centre"] > limits[1]),
    ):
        if out.any():
            axis.plot(
                table.loc[out, x], [height] * int(out.sum()), ls="", marker=shape,
                transform=axis.get_xaxis_transform(), color=mark.color, ms=0.8 * look.marker,
                label="beyond",
            )  # fmt: skip
            count += int(out.sum())
    return count


def zero_rows(groups: int) -> list[float]:
    """Heights (share of the axis) at the floor, one for each group that has exact zeros."""
    height = min(0.05, 0.25 / max(groups, 1))
    return [height * (row + 0.7) for row in range(groups)]


def mark_zeros(
    axis: Axes, look: Look, positions: Iterable[float], mark: Mark, height: float
) -> None:
    """Triangles in the strip under a log axis where a value is exactly zero."""
    found = sorted(set(positions))
    if found:
        axis.plot(
            found, [height] * len(found), transform=axis.get_xaxis_transform(), ls="", marker="v",
            ms=0.7 * look.marker, color=mark.color, label="zeros",
        )  # fmt: skip


def marker_style(look: Look, mark: Mark) -> dict[str, Any]:
    """A filled marker with a white rim, or a hollow one with a rim in its colour."""
    fill = {"mfc": "white", "mec": mark.color, "mew": 0.5 * look.line}
    rim = {"mec": "white", "mew": 0.25 * look.thin}
    size = look.marker * (1.5 if mark.marker == "*" else 1.0)
    return {"marker": mark.marker, "ms": size, **(fill if mark.hollow else rim)}


def key_line(look: Look, mark: Mark, label: str) -> Line2D:
    """A legend entry that looks like its line."""
    return Line2D(
        [], [], color=mark.color, ls=mark.dash, lw=look.line, label=label,
        **marker_style(look, mark),
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
    step = decade_step(low, high, most)
    return [e for e in range(math.ceil(low), math.floor(high) + 1) if e % step == 0]


def decade_step(low: float, high: float, most: int = 6) -> int:
    """The smallest round distance that leaves at most `most` exponents between two."""
    for step in (1, 2, 5, 10, 20, 50, 100):
        if high // step - -(-low // step) + 1 <= most:
            return step
    return 200


def power(look: Look, exponent: int) -> str:
    """A tick label for ten to an exponent; an ASCII hyphen where the font is Korean."""
    return f"1e{exponent}" if look.lang == "ko" else rf"$10^{{{exponent}}}$"


def set_log_axis(
    axes: Sequence[Axes], look: Look, span: tuple[float, float] | None, rows: Sequence[float]
) -> None:
    """The same log axis for all panels, a few decades labelled; no decades if all values are 0.

    `rows` are the heights of the zeros: they get a grey strip of their own under the values.
    """
    low, high = span or (-1.0, 0.0)
    step, margin = decade_step(low, high), 0.06 * (high - low)
    if step * math.ceil(high / step) - high <= 2 * margin:
        high = step * math.ceil(high / step)  # the next label is near: let it stand on the axis
    ticks: list[float] = list(decades(low, high)) if span else []
    labels = [power(look, int(e)) for e in ticks]
    bottom, top = low - margin, high + margin
    if rows:
        strip = rows[-1] + 0.5 * rows[0]
        bottom = (low - margin - strip * top) / (1 - strip)
        floor = bottom + strip * (top - bottom)
        ticks, labels = [(bottom + floor) / 2, *ticks], ["0", *labels]
    for axis in axes:
        axis.set_yscale("log")
        axis.set_ylim(10 ** max(bottom, -307.0), 10**top)
        axis.set_yticks([10 ** max(e, -307.0) for e in ticks], labels)
        axis.set_yticks([], minor=True)
        if rows:
            axis.axhspan(10 ** max(bottom, -307.0), 10**floor, color="#eeeeee", lw=0, zorder=0)


def whole_steps(axis: Axes) -> None:
    """Ticks at whole numbers alone, as timesteps are, and not too many."""
    axis.xaxis.set_major_locator(MaxNLocator(6, integer=True))


def label_lengths(axes: list[Axes], lengths: Sequence[int], *, linear: bool = False) -> bool:
    """Ticks at the lengths that exist, as many as have room; returns whether the axis is log."""
    lengths = sorted(int(n) for n in lengths)
    if not lengths:
        return False
    log = not linear and lengths[-1] / lengths[0] >= LENGTHS_ON_LOG
    scale = math.log if log else float
    room = 0.09 * (scale(lengths[-1]) - scale(lengths[0]))
    ticks = [lengths[-1]]
    for length in lengths[-2::-1]:
        if scale(ticks[-1]) - scale(length) >= room:
            ticks.append(length)
    for axis in axes:
        if log:
            axis.set_xscale("log")
        axis.set_xticks(ticks[::-1], [str(n) for n in ticks[::-1]])
        axis.set_xticks([], minor=True)
    return log
