"""Effective path length: over how many edges the gradient came to each encoder state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gradlab.plots import caption
from gradlab.plots.aggregate import longest, over_seeds
from gradlab.plots.blocks import CELL, LENGTH, Plan, draw_blocks, highest, plan_blocks
from gradlab.plots.canvas import Page, finish
from gradlab.plots.gradients import explain_empty, name_only_stage
from gradlab.plots.lines import draw_line, key_line, label_lengths, mark_beyond
from gradlab.plots.reference import about_references, draw_reference, key_references
from gradlab.plots.results import Results
from gradlab.plots.shares import CANCELLATION_LIMIT, CANCELS, key_cancels
from gradlab.plots.style import Look, StyleName, drawing, sequential_marks
from gradlab.plots.words import Language, say

HATCHED_HEIGHT = 0.1
"""Of the axis: how far the hatching reaches around a line."""


def path_length(results: Results, *, style: StyleName = "lecture", lang: Language = "en") -> Figure:
    """Effective path length of the total gradient at each encoder state, and at h_1 against n.

    Linear scale, edges; one line a length, then one a model; with many models one line a model at
    its longest length, and h_1 only where at least three lengths were measured. Dashed and
    dotted: the lengths that hold exactly without attention, for the last and the first token.
    """
    plan = plan_blocks(results)
    with drawing(style, lang) as look:
        look = replace(look, marker=0.75 * look.marker)  # short lengths stand close together
        figure, upper, lower = draw_blocks(look, plan)
        limits = (-0.04 * (top := highest(plan)), top)
        for axis in (*upper, *lower):
            axis.set_ylim(*limits)
        counts, beyond = profile_panels(upper, look, plan, limits)
        more, beyond_ends = end_panels(lower, look, plan, limits)
        titles = name_only_stage(look, plan.profiles.titles(look.lang), plan.points)
        at_first = say(look.lang, "first_state")
        ends = name_only_stage(look, plan.ends.titles(look.lang), plan.points) if lower else []
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


def profile_panels(
    axes: Sequence[Axes], look: Look, plan: Plan, limits: tuple[float, float]
) -> tuple[list[int], int]:
    """Draw lines over timesteps; returns the seeds of each and how many points are beyond."""
    counts, beyond = [], 0
    lines = plan.profile_lines
    for panel, (axis, rows) in enumerate(zip(axes, plan.profiles.split(plan.frame), strict=True)):
        for place, (mark, label, drawn) in enumerate(lines):
            line = drawn[drawn["panel"] == panel]
            hatch(axis, line.merge(plan.cancelling[CELL], on=CELL), "position", 1.0, limits)
            counts.append(
                draw_line(axis, look, line, "position", LENGTH, mark, label=label, place=place)
            )
            beyond += mark_beyond(axis, look, line, "position", LENGTH, mark, limits)
            if plan.by_length:
                draw_reference(axis, look, line, "position")
        if not plan.by_length:
            draw_reference(axis, look, longest(rows, "panel"), "position")
        explain_empty(axis, look, rows, LENGTH)
    return counts, beyond


def end_panels(
    axes: Sequence[Axes], look: Look, plan: Plan, limits: tuple[float, float]
) -> tuple[list[int], int]:
    """Draw the length at h_1 against n, a line a model; returns what `profile_panels` does."""
    counts, beyond, across = [], 0, max(plan.lengths) - min(plan.lengths)
    if not axes:
        return [], 0
    first = plan.frame[plan.frame["position"] == 1]
    opposed = first.merge(plan.cancelling[CELL], on=CELL)
    panels = zip(axes, plan.ends.split(first), plan.ends.split(opposed), strict=True)
    for axis, rows, hatched in panels:
        named = zip(plan.models.marks, plan.models.labels("en"), strict=True)
        for model, (mark, label) in enumerate(named):
            line, place = rows[rows["line"] == model], "source_length"
            width = 0.06 * across or 1.0
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
    marks = sequential_marks(len(plan.lengths)) if plan.by_length else []
    keys: list[Artist] = [
        key_line(look, mark, f"n = {n}") for mark, n in zip(marks, plan.lengths, strict=False)
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
    shown = pd.concat([rows["source_length"] for _, _, rows in plan.profile_lines]).unique()
    lengths = say(lang, "about_profiles", length=caption.between(lang, shown))
    return [
        say(lang, "about_path_length", examples=caption.examples(lang, runs)),
        *([say(lang, "about_climb")] if deep(plan.frame) else []),
        *plan.states.sentences(lang),
        *([] if plan.by_length else [lengths]),
        *about_references(lang, plan.frame),
        *([opposed] if len(plan.cancelling) else []),
        caption.reduction(lang, runs),
        *caption.lstm(lang, runs),
    ]


def deep(frame: pd.DataFrame) -> bool:
    """Whether some model has layers to climb."""
    return "model.layers" in frame and bool((pd.to_numeric(frame["model.layers"]) > 1).any())
