"""Lyapunov exponents of the encoder, beside the decay that was measured."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from gradlab.errors import NothingToPlotError
from gradlab.plots import caption
from gradlab.plots.aggregate import at_stages, one_per_seed, stage_key, stages_of, usable
from gradlab.plots.canvas import Page, finish
from gradlab.plots.facets import Facets, distinct, varying_keys
from gradlab.plots.gradients import about_norm, explain_empty, name_only_stage
from gradlab.plots.lines import draw_line, key_line, marker_style
from gradlab.plots.models import compare_models
from gradlab.plots.pairs import blank_pairs, pair_layout, pair_titles
from gradlab.plots.rates import RATES, fitted, measured_rates, recurrent
from gradlab.plots.results import Results
from gradlab.plots.states import States, choose_states
from gradlab.plots.style import (
    INK,
    Dash,
    Look,
    Mark,
    StyleName,
    categorical_marks,
    drawing,
    sequential_marks,
)
from gradlab.plots.words import Language, say

MOST_LINES = 6
"""With more models and tasks than this, tasks have panels of their own."""
DIAGONAL: Dash = (0, (5, 2))


@dataclass(frozen=True)
class Plan:
    """A pair of panels for each of `pairs`; the `line` of a row is a length or else a model."""

    pairs: Facets
    frame: pd.DataFrame
    points: pd.DataFrame
    states: States
    rates: pd.DataFrame
    marks: list[Mark]
    labels: Mapping[Language, list[str]]
    by_length: bool


def lyapunov(results: Results, *, style: StyleName = "lecture", lang: Language = "en") -> Figure:
    """All Lyapunov exponents against index; beside them the measured decay against the largest.

    nats per timestep; a pair of panels for each stage. One line a model at its longest length and
    a point for each of its lengths; where only one model is measured, a line and a point a length.
    """
    plan = plan_pairs(results)
    with drawing(style, lang) as look:
        figure, pairs = blank_pairs(look, plan.pairs, share_x="col", share_y="none")
        counts, spectrum = [], longest_of_lines(plan)
        set_axes(pairs, look, spectrum, plan.rates)
        for left, right in pairs[-plan.pairs.columns :]:
            left.set_xlabel(say(look.lang, "index"))
            right.set_xlabel(say(look.lang, "largest_exponent"))
        for panel, (axes, rows) in enumerate(zip(pairs, plan.pairs.split(spectrum), strict=True)):
            counts += pair_panels(axes, look, rows, plan.rates[plan.rates["panel"] == panel], plan)
        names = name_only_stage(look, plan.pairs.titles(look.lang), plan.points)
        page = Page(
            say(look.lang, "lyapunov"),
            caption.subtitle(look.lang, results.scenario.title, results.runs, plan.frame),
            pair_titles(names, say(look.lang, "exponents"), say(look.lang, "measured")),
            y_label=say(look.lang, "rate"),
            handles=legend(look, plan),
            caption=[
                *about(look, results, plan, spectrum),
                *caption.seeds(look.lang, counts, log=False),
                *caption.nonfinite(look.lang, spectrum, "exponent", results.runs),
                *caption.statuses(look.lang, results.runs, "runs_diverged_later"),
            ],
        )
        return finish(figure, [axis for pair in pairs for axis in pair], look, page)


def plan_pairs(results: Results) -> Plan:
    """Models and tasks are lines where that gives few, else models alone; one model has lengths."""
    frame, runs = exponent_rows(results), recurrent(results.runs)
    keys = varying_keys(runs, frame)
    states = choose_states(frame, runs, keys, MOST_LINES)
    frame, keys = states.locate(frame), states.with_keys(keys)
    runs, points = states.expand(runs), states.expand(stages_of(runs))
    own = [key for key in keys if key != "record.loss"]
    lines = Facets(tuple(own), tuple(distinct(runs, own)), 1)
    rest, marks = [key for key in keys if key not in own], categorical_marks(len(lines.panels))
    if len(lines.panels) > MOST_LINES:
        models = compare_models(runs, frame, keys)
        lines, rest, marks = models.lines, models.panel_keys, models.marks
    pairs = pair_layout(points, [*rest, *stage_key(points)])
    by_length = len(lines.panels) == 1
    labels: dict[Language, list[str]] = {"en": lines.titles("en"), "ko": lines.titles("ko")}
    if by_length:
        lengths = sorted(int(n) for n in frame["source_length"].unique())
        frame = frame.assign(line=frame["source_length"].map(lengths.index))
        marks, names = sequential_marks(len(lengths)), [f"n = {n}" for n in lengths]
        labels = {"en": names, "ko": names}
    else:
        frame = frame.assign(line=lines.locate(frame)["panel"])
    frame = one_per_seed(pairs.locate(frame), ["panel", "line", "source_length", "index"])
    fits = fitted(results, states)
    rates = measured_rates(fits, frame, pairs, None if by_length else lines)
    return Plan(pairs, frame, points, states, rates, marks, labels, by_length)


def longest_of_lines(plan: Plan) -> pd.DataFrame:
    """The rows of the spectra that are drawn: each line at its longest source length."""
    top = plan.frame.groupby(["panel", "line"])["source_length"].transform("max")
    return plan.frame[plan.frame["source_length"] == top]


def exponent_rows(results: Results) -> pd.DataFrame:
    """The exponents before training and after the last step."""
    table = results.lyapunov
    if not table.empty:
        table = at_stages(table)
    if table.empty:
        unfinished = (results.runs["status"] == "missing").all()
        raise NothingToPlotError(
            "lyapunov needs rows in the table lyapunov, found none: set record.jacobians = true in"
            " the scenario and run it"
            + ("; no run of this sweep is finished" if unfinished else "")
        )
    return table


def set_axes(
    pairs: Sequence[tuple[Axes, Axes]], look: Look, frame: pd.DataFrame, rates: pd.DataFrame
) -> None:
    """The same scales for all spectra, and for all comparisons around the same diagonal."""
    spectrum, across = limits(frame["exponent"]), limits(rates["largest"])
    up = limits(pd.concat([rates[name] for name in ("largest", *RATES)], ignore_index=True))
    ends = min(across[0], up[0]), max(across[1], up[1])
    minus = "-" if look.lang == "ko" else "−"
    for left, right in pairs:
        left.set_ylim(*spectrum)
        left.axhline(0, color=INK, lw=0.5 * look.line, label="zero", zorder=1.5)
        right.set(xlim=across, ylim=up)
        right.plot(ends, ends, color=INK, ls=DIAGONAL, lw=0.5 * look.line, label="diagonal")
        right.locator_params(nbins=4)
        for scale in (left.yaxis, right.xaxis, right.yaxis):
            scale.set_major_formatter(lambda value, _: f"{value:g}".replace("-", minus))


def limits(numbers: pd.Series) -> tuple[float, float]:
    """From the least to the largest finite number, zero included, with room around."""
    found = [0.0, *map(float, numbers[usable(numbers, log=False)])]
    margin = 0.08 * (max(found) - min(found)) or 0.1
    return min(found) - margin, max(found) + margin


def pair_panels(
    axes: tuple[Axes, Axes], look: Look, rows: pd.DataFrame, rates: pd.DataFrame, plan: Plan
) -> list[int]:
    """Draw the spectrum and the points of each line; returns the seeds of each spectrum."""
    counts, (left, right) = [], axes
    for place, (mark, name) in enumerate(zip(plan.marks, plan.labels["en"], strict=True)):
        line = rows[rows["line"] == place]
        counts.append(
            draw_line(left, look, line, "index", "exponent", mark, label=name, place=place)
        )
        nested = 1.9 - 1.2 * place / len(
            plan.marks
        )  # points on one another: the first is the largest
        own = replace(look, marker=nested * look.marker)
        for point in rates[rates["line"] == place].to_dict("records"):
            draw_rate(right, own, {str(key): value for key, value in point.items()}, mark, name)
    explain_empty(left, look, rows, "exponent")
    explain_empty(right, look, rates, "rate")
    return counts


def draw_rate(axis: Axes, look: Look, point: dict[str, object], mark: Mark, label: str) -> None:
    """One point with its interval over seeds; hollow where no exponential trend was found."""
    x, y, low, high = (float(str(point[name])) for name in ("largest", *RATES))
    trend = point["law"] == "exponential" and point["profile"] in ("falls", "grows")
    own = Mark(mark.color, mark.marker, hollow=not trend)
    if math.isfinite(low) and math.isfinite(high):
        axis.vlines(x, low, high, color=mark.color, lw=0.8 * look.line, label="interval")
    if math.isfinite(y):
        style = marker_style(look, own)
        axis.plot([x], [y], ls="", color=mark.color, label=label, zorder=3, **style)


def legend(look: Look, plan: Plan) -> list[Artist]:
    """Entries of the lines, of the zero line and of the diagonal."""
    named = zip(plan.marks, plan.labels[look.lang], strict=True)
    keys: list[Artist] = [key_line(look, mark, label) for mark, label in named]
    for name, dash in (("neither", "-"), ("as_encoder", DIAGONAL)):
        label = say(look.lang, name)
        keys.append(Line2D([], [], color=INK, ls=dash, lw=0.5 * look.line, label=label))
    return keys


def about(look: Look, results: Results, plan: Plan, spectrum: pd.DataFrame) -> list[str]:
    """What an exponent and a measured decay are, and how many of the latter are missing."""
    lang, rates = look.lang, plan.rates
    missing = int((~usable(rates["rate"], log=False)).sum())
    lengths = caption.between(lang, spectrum["source_length"].unique())
    return [
        say(lang, "about_lyapunov", examples=caption.examples(lang, results.runs)),
        *([] if plan.by_length else [say(lang, "about_spectrum", length=lengths)]),
        say(lang, "about_measured"),
        *plan.states.sentences(lang),
        *about_norm(look, results),
        *([say(lang, "slope_interval")] if rates["rate_low"].notna().any() else []),
        *([say(lang, "no_slope", count=missing, total=len(rates))] if missing else []),
    ]
