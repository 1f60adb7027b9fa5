"""Half-life: over how many timesteps the gradient halves, against source length."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import ScaledTranslation

from gradlab.errors import NothingToPlotError
from gradlab.plots import caption
from gradlab.plots.aggregate import at_stages, stage_key, stages_of
from gradlab.plots.canvas import Page, blank, finish, note
from gradlab.plots.facets import facets, varying_keys
from gradlab.plots.gradients import about_norm, name_only_stage
from gradlab.plots.lettering import INCH
from gradlab.plots.lines import decades, key_line, label_lengths, marker_style
from gradlab.plots.models import Models, compare_models
from gradlab.plots.results import Results
from gradlab.plots.states import DIRECTION, choose_states
from gradlab.plots.style import Look, Mark, StyleName, drawing
from gradlab.plots.words import Language, say

REASONS = ("no_fit", "no_law", "unclear", "level", "grows")
"""Why a profile has no half-life; the rows of the strip at the top, upwards."""
ROW = 0.1
"""Height of a row of the strip, as a share of the axis."""
NARROWEST = math.log10(4)
MOST_TICKS = 4
MOST_LINES = 8
"""With more models and layers than this, encoders of several layers show the top one alone."""
COUNTS = ["zeros", "subnormal", "nonfinite"]


def half_life(results: Results, *, style: StyleName = "lecture", lang: Language = "en") -> Figure:
    """Half-life of the total gradient in timesteps against source length, one line a model.

    Log scale; bars are 95 % intervals over seeds. Where no exponential decay was found, a marker
    stands in the strip at the top, in the row of the reason.
    """
    table, runs = decay_rows(results), results.runs
    states = choose_states(table, runs, keys := varying_keys(runs, table), MOST_LINES)
    models = compare_models(states.expand(runs), table, states.with_keys(keys))
    points = states.expand(stages_of(runs))
    layout = facets(points, [*models.panel_keys, *stage_key(points)])
    frame = with_reason(layout.locate(models.locate(states.locate(table))))
    frame = frame.drop_duplicates(["panel", "line", "source_length"])
    with drawing(style, lang) as look:
        shape = (layout.rows, layout.columns)
        figure, axes = blank(look, *shape, len(layout.panels), taller=1.5)
        heights, floor = set_half_life_axis(axes, look, frame)
        leave_margins(axes, look, len(models.marks), layout.columns)
        for axis, rows in zip(axes, layout.split(frame), strict=True):
            half_life_panel(axis, look, rows, models, heights, floor)
        log = label_lengths(axes, frame["source_length"].unique().tolist())
        named = zip(models.marks, models.labels(look.lang), strict=True)
        page = Page(
            say(look.lang, "half_life"),
            caption.subtitle(look.lang, results.scenario.title, runs, frame),
            name_only_stage(look, layout.titles(look.lang), points),
            say(look.lang, "length_log" if log else "length"),
            say(look.lang, "half_life_axis"),
            handles=[key_line(look, mark, label) for mark, label in named if label],
            caption=[
                say(look.lang, "about_half_life"),
                *([say(look.lang, "distance_backward")] if DIRECTION in states.keys else []),
                *about_norm(look, results),
                *states.sentences(look.lang),
                *about_fits(look, frame),
                *caption.statuses(look.lang, runs, "runs_diverged_later"),
            ],
        )
        return finish(figure, axes, look, page)


def decay_rows(results: Results) -> pd.DataFrame:
    """The fits to the total gradient at state h, before training and after the last step."""
    table = results.decay
    if not table.empty:
        table = at_stages(table[table["state"] == "h"])
    if table.empty:
        raise NothingToPlotError(
            "half_life needs a fitted gradient profile, found none: no run of this sweep is"
            " finished"
        )
    return table


def with_reason(frame: pd.DataFrame) -> pd.DataFrame:
    """Add `reason`: why a row has no half-life, or "" where it has one."""
    conditions = [
        frame["profile"] == "no fit",
        frame["profile"] == "grows",
        frame["profile"] == "level",
        frame["profile"] == "unclear",
        (frame["law"] != "exponential") | ~np.isfinite(frame["half_life"].astype(float)),
    ]
    reasons = np.select(conditions, ["no_fit", "grows", "level", "unclear", "no_law"], "")
    return frame.assign(reason=reasons)


def half_life_panel(
    axis: Axes, look: Look, rows: pd.DataFrame, models: Models, heights: dict[str, float],
    floor: float,
) -> None:  # fmt: skip
    """Draw each model's half-lives, their intervals, and its markers in the strip."""
    for line, (mark, label) in enumerate(zip(models.marks, models.labels("en"), strict=True)):
        own = rows[rows["line"] == line].sort_values("source_length")
        shown = own["half_life"].astype(float).where(own["reason"] == "")
        if shown.notna().any():
            axis.plot(
                own["source_length"], shown, color=mark.color, ls=mark.dash, lw=look.line,
                label=label or "all", zorder=3, **marker_style(look, mark),
            )  # fmt: skip
            draw_intervals(axis, look, own[shown.notna()], mark, floor)
        middle = (len(models.marks) - 1) / 2
        for reason, height in heights.items():
            lengths = own.loc[own["reason"] == reason, "source_length"]
            mark_reason(axis, look, lengths.tolist(), reason, height, mark, line - middle)
    if rows.empty:
        note(look, axis, say(look.lang, "no_runs"))


def draw_intervals(axis: Axes, look: Look, rows: pd.DataFrame, mark: Mark, floor: float) -> None:
    """Bars over the interval, where there is one; up to the strip where it has no upper end."""
    rows = rows[rows["half_life_high"].notna()]
    if len(rows):
        ends = rows[["half_life_low", "half_life_high"]].to_numpy(dtype=float).clip(max=floor)
        axis.vlines(
            rows["source_length"], ends[:, 0], ends[:, 1], color=mark.color, lw=0.8 * look.line,
            alpha=0.55, label="interval", zorder=2,
        )  # fmt: skip


def mark_reason(
    axis: Axes, look: Look, lengths: Sequence[int], reason: str, height: float, mark: Mark,
    aside: float,
) -> None:  # fmt: skip
    """Markers in a row of the strip, shifted sideways so that models do not cover each other."""
    if lengths:
        figure = axis.get_figure()
        assert figure is not None
        shift = ScaledTranslation(aside * 0.9 * look.marker / INCH, 0, figure.dpi_scale_trans)
        axis.plot(
            lengths, [height] * len(lengths), transform=axis.transData + shift, ls="",
            color=mark.color, label=reason, zorder=3, clip_on=False, **marker_style(look, mark),
        )  # fmt: skip


def set_half_life_axis(
    axes: list[Axes], look: Look, frame: pd.DataFrame
) -> tuple[dict[str, float], float]:
    """The same log axis for all panels, under a strip with a named row for each reason that occurs.

    Returns the height of each row, and of the lower edge of the strip.
    """
    reasons = [reason for reason in REASONS if (frame["reason"] == reason).any()]
    low, high = half_life_span(frame)
    margin, strip = 0.08 * (high - low), ROW * len(reasons)
    bottom = low - margin
    floor = high + margin
    top = bottom + (floor - bottom) / (1 - strip)
    middles = [floor + (top - floor) * (i + 0.5) / len(reasons) for i in range(len(reasons))]
    heights = {reason: 10**y for reason, y in zip(reasons, middles, strict=True)}
    ticks = round_values(low, high) if (frame["reason"] == "").any() else []
    labels = [f"{tick:g}" for tick in ticks] + [say(look.lang, reason) for reason in reasons]
    for axis in axes:
        axis.set_yscale("log")
        axis.set_ylim(10**bottom, 10**top)
        axis.set_yticks([*ticks, *heights.values()], labels)
        axis.set_yticks([], minor=True)
        if reasons:
            axis.axhspan(10**floor, 10**top, color="#eeeeee", lw=0, zorder=0)
    return heights, float(10**floor)


def leave_margins(axes: list[Axes], look: Look, lines: int, columns: int) -> None:
    """Room at both sides for the markers of the strip, which stand beside their length."""
    aside = (0.9 * (lines - 1) / 2 + 1) * look.marker / INCH
    panel = 0.75 * max(look.width, columns * look.panel_width) / columns
    for axis in axes:
        axis.margins(x=max(0.05, aside / max(panel - 2 * aside, aside)))


def half_life_span(frame: pd.DataFrame) -> tuple[float, float]:
    """The exponents of the smallest and largest number shown, at least a factor of 4 apart."""
    shown = frame.loc[frame["reason"] == "", ["half_life", "half_life_low", "half_life_high"]]
    numbers = shown.to_numpy(dtype=float).ravel()
    exponents = np.log10(numbers[np.isfinite(numbers) & (numbers > 0)])
    if not len(exponents):
        return 0.0, 1.0
    low, high = float(exponents.min()), float(exponents.max())
    widen = max(0.0, NARROWEST - (high - low)) / 2
    return low - widen, high + widen


def round_values(low: float, high: float) -> list[float]:
    """Powers of ten between two exponents, with their double and fivefold or threefold if few."""
    tens = range(math.floor(low), math.ceil(high) + 1)
    for digits in ((1, 2, 5), (1, 3)):
        found = [digit * 10.0**e for e in tens for digit in digits]
        inside = [value for value in found if low <= math.log10(value) <= high]
        if len(inside) <= MOST_TICKS:
            return inside
    return [10.0**e for e in decades(low, high, MOST_TICKS)]


def about_fits(look: Look, frame: pd.DataFrame) -> list[str]:
    """Over how many seeds, how good the fits are, and how many give no half-life and why."""
    lang, sentences = look.lang, []
    shown = frame[frame["reason"] == ""]
    if len(shown):
        low, high = (f"{r2:.3f}" for r2 in (shown["r2"].min(), shown["r2"].max()))
        sentences.append(say(lang, "about_quality", low=low, high=high))
    many = frame.loc[frame["seeds"] > 1, "seeds"].unique()
    if (frame["seeds"] == 1).any():
        sentences.append(say(lang, "seeds_one"))
    if len(many):
        sentences.append(say(lang, "half_life_interval", seeds=caption.between(lang, many)))
    endless = shown.loc[np.isinf(shown["half_life_high"].astype(float)), "seeds"]
    if len(endless):
        seeds = caption.between(lang, endless.unique())
        sentences.append(say(lang, "half_life_endless", count=len(endless), seeds=seeds))
    found = {reason: int((frame["reason"] == reason).sum()) for reason in REASONS[::-1]}
    without = sum(found.values())
    if without:
        why = [say(lang, f"why_{name}", count=n) for name, n in found.items() if n]
        numbers = {"count": without, "total": len(frame)}
        sentences.append(say(lang, "no_half_life", reasons="; ".join(why), **numbers))
    counts = {name: int(frame[name].sum()) for name in COUNTS}
    if any(counts.values()):
        sentences.append(say(lang, "left_out_of_fits", **counts))
    return sentences
