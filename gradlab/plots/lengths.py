"""Effective path length: over how many edges the gradient came to each encoder state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from gradlab.errors import NothingToPlotError
from gradlab.plots import caption
from gradlab.plots.aggregate import (
    at_stages,
    one_per_seed,
    over_seeds,
    stage_key,
    stages_of,
    usable,
)
from gradlab.plots.canvas import Page, blank, finish
from gradlab.plots.facets import MOST_COLUMNS, Facets, distinct, facets, varying_keys
from gradlab.plots.gradients import explain_empty, name_only_stage, total_norms
from gradlab.plots.lines import draw_line, key_line, label_lengths, mark_beyond
from gradlab.plots.models import Models, compare_models
from gradlab.plots.reference import draw_reference, key_references, with_reference
from gradlab.plots.results import Results
from gradlab.plots.shares import CANCELLATION_LIMIT, CANCELS, cancelled, key_cancels
from gradlab.plots.style import Look, StyleName, drawing, sequential_marks
from gradlab.plots.words import Language, say

CELL = ["panel", "source_length", "position"]
LENGTH = "path_length"
HATCHED_HEIGHT = 0.1
"""Of the axis: how far the hatching reaches around a line."""


@dataclass(frozen=True)
class Plan:
    """Two blocks of panels under one another: lengths at each state, and at h_1 against n."""

    profiles: Facets
    ends: Facets
    models: Models
    frame: pd.DataFrame
    cancelling: pd.DataFrame

    @property
    def lengths(self) -> list[int]:
        return sorted(int(n) for n in self.frame["source_length"].unique())

    @property
    def columns(self) -> int:
        """Panels side by side; a lone one of each block share a row."""
        lone = len(self.profiles.panels) == len(self.ends.panels) == 1
        return 2 if lone else self.profiles.columns


def path_length(results: Results, *, style: StyleName = "lecture", lang: Language = "en") -> Figure:
    """Effective path length of the total gradient at each encoder state, and at h_1 against n.

    Linear scale, edges; one line a length, then one a model. Dashed and dotted: the lengths that
    hold exactly without attention, for the last and for the first target token.
    """
    plan = plan_blocks(results)
    points = stages_of(results.runs)
    with drawing(style, lang) as look:
        look = replace(look, marker=0.75 * look.marker)  # short lengths stand close together
        figure, upper, lower = draw_blocks(look, plan)
        limits = (-0.04 * (top := highest(plan)), top)
        for axis in (*upper, *lower):
            axis.set_ylim(*limits)
        counts, beyond = profile_panels(upper, look, plan, limits)
        more, beyond_ends = end_panels(lower, look, plan, limits)
        titles = name_only_stage(look, plan.profiles.titles(look.lang), points)
        at_first = say(look.lang, "first_state")
        ends = name_only_stage(look, plan.ends.titles(look.lang), points)
        titles += [" · ".join(part for part in (title, at_first) if part) for title in ends]
        page = Page(
            say(look.lang, "path_length"),
            caption.subtitle(look.lang, results.scenario.title, results.runs, plan.frame),
            titles,
            y_label=say(look.lang, "edges"),
            handles=legend(look, plan),
            caption=[
                *about(look, results, plan),
                *caption.seeds(look.lang, [*counts, *more], log=False),
                *([say(look.lang, "beyond", count=n)] if (n := beyond + beyond_ends) else []),
                *caption.nonfinite(look.lang, plan.frame, LENGTH, results.runs),
                *caption.statuses(look.lang, results.runs, "runs_diverged_later"),
            ],
        )
        return finish(figure, [*upper, *lower], look, page)


def plan_blocks(results: Results) -> Plan:
    """Which panels and lines there are: where it fits, models are rows over the row of h_1."""
    frame = at_stages(total_norms(results))
    if LENGTH not in frame or frame[LENGTH].isna().all():
        raise NothingToPlotError(
            "path_length needs the column path_length in the table gradients, found no value in it:"
            " record.paths is false in this sweep, or its runs are from before it was measured"
        )
    runs, points = results.runs, stages_of(results.runs)
    keys = varying_keys(runs, frame)
    models = compare_models(runs, frame, keys)
    inner = [*models.panel_keys, *stage_key(points)]
    profiles, across = facets(points, [*keys, *stage_key(points)]), distinct(points, inner)
    rows = len(models.lines.panels)
    if len(profiles.panels) == rows * len(across) and rows <= 3 and len(across) <= MOST_COLUMNS:
        ordered = distinct(points, list(profiles.keys))
        profiles = Facets(profiles.keys, tuple(ordered), len(across))
    ends = Facets(tuple(inner), tuple(across), profiles.columns)
    frame = one_per_seed(profiles.locate(models.locate(with_reference(frame))), CELL)
    return Plan(profiles, ends, models, frame, cancelled(frame, CELL))


def highest(plan: Plan) -> float:
    """The top of the axis: over all references, and all lengths where no parts oppose."""
    table = plan.frame.merge(plan.cancelling[CELL].assign(opposed=True), on=CELL, how="left")
    values = table.loc[table["opposed"].isna() & usable(table[LENGTH], log=False), LENGTH]
    found = [*values, *table["reference"].dropna()]
    return 1.08 * max([1.0, *map(float, found)])


def draw_blocks(look: Look, plan: Plan) -> tuple[Figure, list[Axes], list[Axes]]:
    """Empty panels: the block of the states above, the block of h_1 below."""
    columns, count = plan.columns, len(plan.profiles.panels)
    above = -(-count // columns) * columns if count > 1 else count
    total = above + len(plan.ends.panels)
    figure, axes = blank(look, -(-total // columns), columns, total, share_x="none", taller=1.25)
    for hole in axes[count:above]:
        hole.remove()
    upper, lower = axes[:count], axes[above:]
    span = plan.frame["position"].min(), plan.frame["position"].max()
    margin = 0.03 * (span[1] - span[0]) + 0.1
    for i, axis in enumerate(upper):
        axis.set_xlim(span[0] - margin, span[1] + margin)
        bottom = i + columns >= count
        axis.tick_params(labelbottom=bottom)
        axis.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        axis.set_xlabel(say(look.lang, "timestep") if bottom else "")
    for axis in lower:
        axis.set_xlabel(say(look.lang, "length"))
    return figure, upper, lower


def profile_panels(
    axes: Sequence[Axes], look: Look, plan: Plan, limits: tuple[float, float]
) -> tuple[list[int], int]:
    """Draw a line a length; returns the seeds of each and how many points are beyond the axis."""
    counts, beyond = [], 0
    marks = sequential_marks(len(plan.lengths))
    for panel, (axis, rows) in enumerate(zip(axes, plan.profiles.split(plan.frame), strict=True)):
        opposed = plan.cancelling[plan.cancelling["panel"] == panel]
        for place, (length, mark) in enumerate(zip(plan.lengths, marks, strict=True)):
            line = rows[rows["source_length"] == length]
            own = opposed.loc[opposed["source_length"] == length, "position"]
            hatch(axis, line[line["position"].isin(own)], "position", 1.0, limits)
            counts.append(
                draw_line(
                    axis, look, line, "position", LENGTH, mark, label=str(length), place=place
                )
            )
            beyond += mark_beyond(axis, look, line, "position", LENGTH, mark, limits)
            draw_reference(axis, look, line, "position")
        explain_empty(axis, look, rows, LENGTH)
    return counts, beyond


def end_panels(
    axes: Sequence[Axes], look: Look, plan: Plan, limits: tuple[float, float]
) -> tuple[list[int], int]:
    """Draw the length at h_1 against n, a line a model; returns what `profile_panels` does."""
    counts, beyond, longest = [], 0, max(plan.lengths) - min(plan.lengths)
    first = plan.frame[plan.frame["position"] == 1]
    opposed = first.merge(plan.cancelling[CELL], on=CELL)
    panels = zip(axes, plan.ends.split(first), plan.ends.split(opposed), strict=True)
    for axis, rows, hatched in panels:
        named = zip(plan.models.marks, plan.models.labels("en"), strict=True)
        for model, (mark, label) in enumerate(named):
            line, place = rows[rows["line"] == model], "source_length"
            width = 0.06 * longest or 1.0
            hatch(axis, hatched[hatched["line"] == model], place, width, limits)
            counts.append(
                draw_line(axis, look, line, place, LENGTH, mark, label=label or "all", place=model)
            )
            beyond += mark_beyond(axis, look, line, place, LENGTH, mark, limits)
        draw_reference(axis, look, rows, "source_length")
        explain_empty(axis, look, rows, LENGTH)
    label_lengths(list(axes), plan.lengths, linear=True)
    return counts, beyond


def hatch(
    axis: Axes, rows: pd.DataFrame, x: str, width: float, limits: tuple[float, float]
) -> None:
    """Hatch the surroundings of a line where parts oppose each other."""
    if len(rows):
        table = over_seeds(rows, [x], LENGTH, log=False)
        height = HATCHED_HEIGHT * (limits[1] - limits[0])
        axis.bar(
            table[x], 2 * height, width, table["centre"] - height, zorder=0.5, label="cancels",
            **CANCELS,
        )  # fmt: skip


def legend(look: Look, plan: Plan) -> list[Artist]:
    """Entries of the lengths, the models, the references and the hatching, where there are any."""
    marks = sequential_marks(len(plan.lengths))
    keys: list[Artist] = [
        key_line(look, mark, f"n = {n}") for mark, n in zip(marks, plan.lengths, strict=True)
    ]
    named = zip(plan.models.marks, plan.models.labels(look.lang), strict=True)
    keys += [key_line(look, mark, label) for mark, label in named if label]
    keys += key_references(look, plan.frame)
    if len(plan.cancelling):
        keys.append(key_cancels(say(look.lang, "parts_oppose")))
    return keys


def about(look: Look, results: Results, plan: Plan) -> list[str]:
    """What an effective path length is, of which loss, and where it is no path's."""
    lang, runs = look.lang, results.runs
    opposed = say(lang, "about_opposing", limit=CANCELLATION_LIMIT)
    return [
        say(lang, "about_path_length", examples=caption.examples(lang, runs)),
        *([opposed] if len(plan.cancelling) else []),
        caption.reduction(lang, runs),
        *caption.lstm(lang, runs),
    ]
