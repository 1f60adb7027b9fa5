"""Gradient norms: how they fall along the source, before training and after it."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gradlab.errors import NothingToPlotError
from gradlab.plots import caption
from gradlab.plots.aggregate import (
    at_stages,
    one_per_seed,
    stage_key,
    stages_of,
    usable,
)
from gradlab.plots.canvas import Page, blank, finish, note
from gradlab.plots.facets import Facets, facets, plain, varying_keys
from gradlab.plots.lines import (
    draw_line,
    key_line,
    mark_zeros,
    positive_range,
    set_log_axis,
    whole_steps,
    zero_rows,
)
from gradlab.plots.results import Results
from gradlab.plots.style import Look, StyleName, drawing, sequential_marks
from gradlab.plots.words import Language, say

SPLIT_BY_SEED = ["panel", "source_length", "position"]


def total_norms(results: Results) -> pd.DataFrame:
    """The rows of the total gradient at the hidden state h of a one-way, one-layer encoder."""
    table = results.gradients
    if not table.empty:
        table = table[(table["state"] == "h") & (table["path"] == "total")]
    if table.empty:
        raise NothingToPlotError(
            "expected rows of path 'total' for state 'h' in the table gradients, found none:"
            " no run of this sweep is finished"
        )
    return table


def gradient_decay(
    results: Results, *, style: StyleName = "lecture", lang: Language = "en"
) -> Figure:
    """Norm of the total gradient at each encoder state against source timestep, one line a length.

    Log scale; a panel for each model, task and stage (untrained, after the last step).
    """
    frame = at_stages(total_norms(results))
    keys = varying_keys(results.runs, frame)
    points = stages_of(results.runs)
    layout = facets(points, [*keys, *stage_key(points)])
    frame = one_per_seed(layout.locate(frame), SPLIT_BY_SEED)
    lengths = sorted(int(n) for n in frame["source_length"].unique())
    with drawing(style, lang) as look:
        figure, axes = blank(look, layout.rows, layout.columns, len(layout.panels))
        zero_lengths = sorted(frame.loc[frame["norm_mean"] == 0, "source_length"].unique())
        heights = dict(zip(zero_lengths, zero_rows(len(zero_lengths)), strict=True))
        counts = decay_panels(axes, look, layout, frame, lengths, heights)
        span = positive_range(frame, SPLIT_BY_SEED, "norm_mean")
        set_log_axis(axes, look, span, list(heights.values()))
        titles = name_only_stage(look, layout.titles(look.lang), points)
        marks = sequential_marks(len(lengths))
        page = Page(
            say(look.lang, "gradient_decay"),
            caption.subtitle(look.lang, results.scenario.title, results.runs, frame),
            titles,
            say(look.lang, "timestep"),
            say(look.lang, "norm"),
            say(look.lang, "length"),
            [key_line(look, mark, str(n)) for mark, n in zip(marks, lengths, strict=True)],
            [
                *about_norm(look, results),
                *caption.seeds(look.lang, counts, log=True),
                *caption.zeros(look.lang, frame, "zeros"),
                *caption.nonfinite(look.lang, frame, "norm_mean", results.runs),
                *caption.statuses(look.lang, results.runs, "runs_diverged_later"),
            ],
        )
        return finish(figure, axes, look, page)


def decay_panels(
    axes: list[Axes], look: Look, layout: Facets, frame: pd.DataFrame, lengths: list[int],
    heights: dict[int, float],
) -> list[int]:  # fmt: skip
    """Draw each panel's lines and zeros; returns the number of seeds of each line."""
    counts = []
    marks = sequential_marks(len(lengths))
    for axis, rows in zip(axes, layout.split(frame), strict=True):
        whole_steps(axis)
        for place, (length, mark) in enumerate(zip(lengths, marks, strict=True)):
            line = rows[rows["source_length"] == length]
            counts.append(
                draw_line(
                    axis, look, line, "position", "norm_mean", mark,
                    label=str(length), place=place, log=True,
                )
            )  # fmt: skip
            zeros = line.loc[line["norm_mean"] == 0, "position"]
            mark_zeros(axis, look, zeros, mark, heights.get(length, 0.0))
        explain_empty(axis, look, rows, "norm_mean")
    return counts


def explain_empty(axis: Axes, look: Look, rows: pd.DataFrame, value: str) -> None:
    """Say in a panel why it shows no line, if it shows none."""
    if rows.empty:
        note(look, axis, say(look.lang, "no_runs"))
    elif (rows[value] == 0).all() and value == "norm_mean":
        note(look, axis, say(look.lang, "all_zero"))
    elif not usable(rows[value], log=False).any():
        note(look, axis, say(look.lang, "no_values"))


def name_only_stage(look: Look, titles: list[str], points: pd.DataFrame) -> list[str]:
    """Where nothing varies, a panel is at least called untrained, if it is."""
    only = plain(points["stage"].iloc[0])
    return [title or (say(look.lang, "untrained") if only == 0 else "") for title in titles]


def about_norm(look: Look, results: Results) -> list[str]:
    """Which norm this is, of which loss, and for an LSTM of which state."""
    runs, lang = results.runs, look.lang
    stages = [say(lang, "untrained").capitalize() + "."] if not runs["training.steps"].any() else []
    norm = say(lang, "about_norm", examples=caption.examples(lang, runs))
    return [*stages, norm, caption.reduction(lang, runs), *caption.lstm(lang, runs)]
