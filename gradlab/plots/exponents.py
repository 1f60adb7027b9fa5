"""Lyapunov exponents of the encoder, beside the decay that was measured."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from gradlab.errors import NothingToPlotError
from gradlab.plots import caption
from gradlab.plots.aggregate import at_stages, one_per_seed, stage_key, stages_of, usable
from gradlab.plots.canvas import Page, finish
from gradlab.plots.facets import Facets, varying_keys
from gradlab.plots.gradients import about_norm, explain_empty, name_only_stage
from gradlab.plots.lines import draw_line, key_line, marker_style
from gradlab.plots.pairs import blank_pairs, pair_layout, pair_titles
from gradlab.plots.results import Results
from gradlab.plots.style import INK, Dash, Look, Mark, StyleName, drawing, sequential_marks
from gradlab.plots.words import Language, say

DIAGONAL: Dash = (0, (5, 2))
SLOPES = ["slope", "slope_low", "slope_high"]
RATES = ["rate", "rate_low", "rate_high"]


def lyapunov(results: Results, *, style: StyleName = "lecture", lang: Language = "en") -> Figure:
    """All Lyapunov exponents against index; beside them the measured decay against the largest.

    nats per timestep, one line and one point a length; a pair of panels for each model, task and
    stage.
    """
    frame, points = exponent_rows(results), stages_of(results.runs)
    layout = pair_layout(points, [*varying_keys(results.runs, frame), *stage_key(points)])
    frame = one_per_seed(layout.locate(frame), ["panel", "source_length", "index"])
    rates = measured_rates(results, frame, layout)
    lengths = sorted(int(n) for n in frame["source_length"].unique())
    with drawing(style, lang) as look:
        figure, pairs = blank_pairs(look, layout, share_x="col", share_y="none")
        counts = []
        set_axes(pairs, look, frame, rates)
        for left, right in pairs[-layout.columns :]:
            left.set_xlabel(say(look.lang, "index"))
            right.set_xlabel(say(look.lang, "largest_exponent"))
        for panel, (axes, rows) in enumerate(zip(pairs, layout.split(frame), strict=True)):
            own = rates[rates["panel"] == panel]
            counts += pair_panels(axes, look, rows, own, lengths)
        names = name_only_stage(look, layout.titles(look.lang), points)
        page = Page(
            say(look.lang, "lyapunov"),
            caption.subtitle(look.lang, results.scenario.title, results.runs, frame),
            pair_titles(names, say(look.lang, "exponents"), say(look.lang, "measured")),
            y_label=say(look.lang, "rate"),
            handles=legend(look, lengths),
            caption=[
                *about(look, results, rates),
                *caption.seeds(look.lang, counts, log=False),
                *caption.nonfinite(look.lang, frame, "exponent", results.runs),
                *caption.statuses(look.lang, results.runs, "runs_diverged_later"),
            ],
        )
        return finish(figure, [axis for pair in pairs for axis in pair], look, page)


def exponent_rows(results: Results) -> pd.DataFrame:
    """The exponents before training and after the last step."""
    table = results.lyapunov
    if not table.empty:
        table = at_stages(table)
    if table.empty:
        raise NothingToPlotError(
            "lyapunov needs rows in the table lyapunov, found none: set record.jacobians = true in"
            " the scenario and run it, or no run of this sweep is finished"
        )
    return table


def measured_rates(results: Results, frame: pd.DataFrame, layout: Facets) -> pd.DataFrame:
    """The largest exponent of each panel and length, and the fitted `rate` with its interval.

    nats per timestep; means over seeds. `rate` is NaN where no slope could be fitted.
    """
    by = ["panel", "source_length"]
    first = frame[(frame["index"] == 1) & usable(frame["exponent"], log=False)]
    largest = first.groupby(by)["exponent"].mean().rename("largest").reset_index()
    table = results.decay
    if table.empty:
        nothing = dict.fromkeys(RATES, math.nan)
        return largest.assign(law="neither", **nothing)
    table = layout.locate(at_stages(table[table["state"] == "h"]))
    rates = table[SLOPES].astype(float).mul(math.log(10)).set_axis(RATES, axis="columns")
    fits = pd.concat([table[[*by, "law"]], rates], axis="columns").drop_duplicates(by)
    return largest.merge(fits, on=by, how="left")


def set_axes(
    pairs: Sequence[tuple[Axes, Axes]], look: Look, frame: pd.DataFrame, rates: pd.DataFrame
) -> None:
    """The same scales for all spectra and, square to their diagonal, for all comparisons."""
    spectrum = limits(frame["exponent"])
    square = limits(pd.concat([rates[name] for name in ("largest", *RATES)], ignore_index=True))
    minus = "-" if look.lang == "ko" else "−"
    for left, right in pairs:
        left.set_ylim(*spectrum)
        left.axhline(0, color=INK, lw=0.5 * look.line, label="zero", zorder=1.5)
        right.set(xlim=square, ylim=square)
        right.plot(square, square, color=INK, ls=DIAGONAL, lw=0.5 * look.line, label="diagonal")
        right.locator_params(nbins=4)
        for scale in (left.yaxis, right.xaxis, right.yaxis):
            scale.set_major_formatter(lambda value, _: f"{value:g}".replace("-", minus))


def limits(numbers: pd.Series) -> tuple[float, float]:
    """From the least to the largest finite number, zero included, with room around."""
    found = [0.0, *map(float, numbers[usable(numbers, log=False)])]
    margin = 0.08 * (max(found) - min(found)) or 0.1
    return min(found) - margin, max(found) + margin


def pair_panels(
    axes: tuple[Axes, Axes], look: Look, rows: pd.DataFrame, rates: pd.DataFrame,
    lengths: Sequence[int],
) -> list[int]:  # fmt: skip
    """Draw the spectrum and the point of each length; returns the seeds of each line."""
    counts, (left, right) = [], axes
    for place, (length, mark) in enumerate(
        zip(lengths, sequential_marks(len(lengths)), strict=True)
    ):
        line = rows[rows["source_length"] == length]
        counts.append(
            draw_line(left, look, line, "index", "exponent", mark, label=str(length), place=place)
        )
        for point in rates[rates["source_length"] == length].to_dict("records"):
            draw_rate(right, look, {str(key): value for key, value in point.items()}, mark)
    explain_empty(left, look, rows, "exponent")
    explain_empty(right, look, rates, "rate")
    return counts


def draw_rate(axis: Axes, look: Look, point: dict[str, object], mark: Mark) -> None:
    """One point with its interval over seeds; hollow where the decay is not exponential."""
    x, y, low, high = (float(str(point[name])) for name in ("largest", *RATES))
    own = Mark(mark.color, mark.marker, hollow=point["law"] != "exponential")
    if math.isfinite(low) and math.isfinite(high):
        axis.vlines(x, low, high, color=mark.color, lw=0.8 * look.line, label="interval")
    if math.isfinite(y):
        label = f"{point['source_length']}"
        style = marker_style(look, own)
        axis.plot([x], [y], ls="", color=mark.color, label=label, zorder=3, **style)


def legend(look: Look, lengths: Sequence[int]) -> list[Artist]:
    """Entries of the lengths, of the zero line and of the diagonal."""
    marks = sequential_marks(len(lengths))
    keys: list[Artist] = [
        key_line(look, mark, f"n = {n}") for mark, n in zip(marks, lengths, strict=True)
    ]
    for name, dash in (("neither", "-"), ("as_encoder", DIAGONAL)):
        label = say(look.lang, name)
        keys.append(Line2D([], [], color=INK, ls=dash, lw=0.5 * look.line, label=label))
    return keys


def about(look: Look, results: Results, rates: pd.DataFrame) -> list[str]:
    """What an exponent and a measured decay are, and how many of the latter are missing."""
    lang, missing = look.lang, int((~usable(rates["rate"], log=False)).sum())
    return [
        say(lang, "about_lyapunov", examples=caption.examples(lang, results.runs)),
        say(lang, "about_measured"),
        *about_norm(look, results),
        *([say(lang, "slope_interval")] if rates["rate_low"].notna().any() else []),
        *([say(lang, "no_slope", count=missing, total=len(rates))] if missing else []),
    ]
