"""Accuracy after training at each target position, and where it cannot be more than guessing."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from gradlab.errors import NothingToPlotError
from gradlab.plots import caption
from gradlab.plots.accuracy import about_accuracy, about_chance
from gradlab.plots.aggregate import at_last_step, at_stages, one_per_seed, stage_key, stages_of
from gradlab.plots.canvas import Page, blank, finish
from gradlab.plots.facets import Facets, facets, plain
from gradlab.plots.gradients import explain_empty, name_only_stage
from gradlab.plots.lines import draw_chance, draw_line, key_chance, key_line, whole_steps
from gradlab.plots.models import keys_of_accuracy
from gradlab.plots.results import Results
from gradlab.plots.style import GREY, Dash, Look, Mark, StyleName, drawing, sequential_marks
from gradlab.plots.words import Language, say

FORCED: Dash = (0, (4, 1.5))
UNREAD: dict[str, Any] = {"facecolor": "#eeeeee", "edgecolor": "#c8c8c8", "hatch": "//", "lw": 0}


def accuracy_by_position(
    results: Results, *, style: StyleName = "lecture", lang: Language = "en"
) -> Figure:
    """Token accuracy at each target position after the last step, one colour a source length.

    Solid lines are free-running, dashed ones teacher-forced. Hatched are the targets that a
    synchronous model must answer before it has read the symbol that they ask for.
    """
    if results.positions.empty:
        raise NothingToPlotError(
            "expected rows in the table positions, found none: no run of this sweep is finished"
        )
    frame = at_last_step(at_stages(results.positions))
    points = stages_of(results.runs)
    points = points[points["stage"] == points["training.steps"]]
    layout = facets(points, [*keys_of_accuracy(results.runs, frame), *stage_key(points)])
    frame = one_per_seed(layout.locate(frame), ["panel", "source_length", "position"])
    frame = frame.assign(unread=unread_targets(frame))
    lengths = sorted(int(n) for n in frame["source_length"].unique())
    with drawing(style, lang) as look:
        figure, axes = blank(look, layout.rows, layout.columns, len(layout.panels))
        counts = position_panels(axes, look, layout, frame, lengths)
        titles = name_only_stage(look, layout.titles(look.lang), points)
        page = Page(
            say(look.lang, "accuracy_by_position"),
            caption.subtitle(look.lang, results.scenario.title, results.runs, frame),
            titles,
            say(look.lang, "position"),
            say(look.lang, "token_accuracy"),
            say(look.lang, "length"),
            position_keys(look, lengths, frame, results.runs),
            [
                about_accuracy(look, "about_positions", results.runs),
                *about_synchronous(look, frame),
                about_chance(look, results.runs, sequence=False),
                *caption.seeds(look.lang, counts, log=False),
                *caption.nonfinite(look.lang, frame, "token_accuracy", results.runs),
                *caption.statuses(look.lang, results.runs),
            ],
        )
        return finish(figure, axes, look, page)


def position_panels(
    axes: list[Axes], look: Look, layout: Facets, frame: pd.DataFrame, lengths: list[int]
) -> list[int]:
    """Draw each panel's lines, free-running over teacher-forced; returns the seeds of each."""
    counts = []
    for axis, rows in zip(axes, layout.split(frame), strict=True):
        axis.set_ylim(-0.05, 1.05)
        axis.set_xlim(0.5, max(lengths) + 0.5)
        whole_steps(axis)
        for last in sorted(set(rows["unread"]) - {0}):
            axis.axvspan(0.5, last + 0.5, zorder=0.5, label="unread", **UNREAD)
        for symbols in rows["task.symbols"].astype(int).unique():
            draw_chance(axis, look, [1, max(lengths)], [1 / symbols] * 2)
        for place, (length, mark) in enumerate(
            zip(lengths, sequential_marks(len(lengths)), strict=True)
        ):
            line = rows[rows["source_length"] == length]
            for column, dash in (("token_accuracy_forced", FORCED), ("token_accuracy", "-")):
                own = Mark(mark.color, mark.marker, dash, hollow=dash != "-")
                label = f"{length} {column}"
                counts.append(
                    draw_line(axis, look, line, "position", column, own, label=label, place=place)
                )
        explain_empty(axis, look, rows, "token_accuracy")
    return counts


def unread_targets(frame: pd.DataFrame) -> pd.Series:
    """How many targets of each row's model stand before the symbol that they ask for.

    Target j of a reverse asks for x_{n+1-j}, and a synchronous model answers it at step delay + j:
    too early for j <= floor((n - delay) / 2). Every other model has read the whole source.
    """
    early = (frame["source_length"] - frame["task.delay"]).clip(lower=0) // 2
    blind = (frame["model.kind"] == "synchronous") & (frame["task.name"] == "reverse")
    return early.where(blind, 0).astype(int)


def about_synchronous(look: Look, frame: pd.DataFrame) -> list[str]:
    """That a synchronous model reads no output, and what is hatched, if there is one."""
    sentences = []
    if (frame["model.kind"] == "synchronous").any():
        sentences.append(say(look.lang, "about_synchronous"))
    if (frame["unread"] > 0).any():
        sentences.append(say(look.lang, "about_unread"))
    return sentences


def position_keys(
    look: Look, lengths: list[int], frame: pd.DataFrame, runs: pd.DataFrame
) -> list[Artist]:
    """Legend entries of the lengths, the two ways to decode, guessing and what is hatched."""
    keys: list[Artist] = [
        key_line(look, mark, str(n))
        for mark, n in zip(sequential_marks(len(lengths)), lengths, strict=True)
    ]
    ink = (0.13, 0.13, 0.13)
    for name, mark in (("free", Mark(ink, "o")), ("forced", Mark(ink, "o", FORCED, hollow=True))):
        keys.append(key_line(look, mark, say(look.lang, name)))
    keys.append(key_chance(look, say_chance(look, runs)))
    if (frame["unread"] > 0).any():
        keys.append(Patch(label=say(look.lang, "unread"), **{**UNREAD, "edgecolor": GREY}))
    return keys


def say_chance(look: Look, runs: pd.DataFrame) -> str:
    """Such as "guessing, 1/V = 0.1", without the number where V varies."""
    found = {int(str(plain(value))) for value in runs["task.symbols"]}
    if len(found) > 1:
        return say(look.lang, "chance")
    return say(look.lang, "chance_of", chance=f"{1 / found.pop():.2g}")
