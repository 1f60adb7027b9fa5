"""Accuracy after training against source length."""

from __future__ import annotations

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from gradlab.errors import NothingToPlotError
from gradlab.plots import caption
from gradlab.plots.aggregate import at_last_step, stage_key, stages_of, target_lengths
from gradlab.plots.canvas import Page, blank, finish
from gradlab.plots.facets import Facets, facets, plain
from gradlab.plots.gradients import explain_empty
from gradlab.plots.lines import (
    draw_chance,
    draw_line,
    key_chance,
    key_line,
    label_lengths,
)
from gradlab.plots.models import Models, compare_models
from gradlab.plots.results import Results
from gradlab.plots.style import INK, Look, Mark, StyleName, drawing
from gradlab.plots.words import Language, say

METRICS = ("token_accuracy", "sequence_accuracy")


def bottleneck(results: Results, *, style: StyleName = "lecture", lang: Language = "en") -> Figure:
    """Free-running token and sequence accuracy after the last step against source length.

    One line a model, a panel for each task and metric; a diverged run is a cross at the floor.
    """
    runs = results.runs[results.runs["training.steps"] > 0]
    if runs.empty:
        raise NothingToPlotError(
            "bottleneck shows accuracy after training; training.steps is 0 in this sweep"
        )
    frame = at_last_step(trained_rows(results))
    frame = frame[frame["train_step"] > 0]
    models = compare_models(runs, frame)
    points = stages_of(runs)
    points = points[points["stage"] > 0].merge(pd.DataFrame({"metric": METRICS}), how="cross")
    layout = facets(points, [*models.panel_keys, *stage_key(points), "metric"])
    frame = models.locate(frame.assign(stage=frame["train_step"]))
    with drawing(style, lang) as look:
        figure, axes = blank(look, layout.rows, layout.columns, len(layout.panels))
        counts = length_panels(axes, look, layout, models, frame, points)
        titles = layout.titles(look.lang)
        log = label_lengths(axes, frame["source_length"].unique().tolist())
        page = Page(
            say(look.lang, "bottleneck"),
            caption.subtitle(look.lang, results.scenario.title, runs, frame),
            titles,
            say(look.lang, "length_log" if log else "length"),
            say(look.lang, "accuracy"),
            handles=model_keys(look, models, runs),
            caption=[
                about_accuracy(look, "about_bottleneck", runs),
                say(look.lang, "about_fall"),
                about_chance(look, runs, sequence=True),
                *caption.seeds(look.lang, counts, log=False),
                *caption.nonfinite(look.lang, frame, "token_accuracy", results.runs),
                *caption.statuses(look.lang, runs, "runs_diverged_crossed"),
            ],
        )
        return finish(figure, axes, look, page)


def trained_rows(results: Results) -> pd.DataFrame:
    """The table training, which has rows as soon as one run is finished or diverged."""
    if results.training.empty:
        raise NothingToPlotError(
            "expected rows in the table training, found none: no run of this sweep is finished"
        )
    return results.training


def length_panels(
    axes: list[Axes], look: Look, layout: Facets, models: Models, frame: pd.DataFrame,
    points: pd.DataFrame,
) -> list[int]:  # fmt: skip
    """Draw each panel's chance line, models and diverged runs; returns the seeds of each line."""
    counts = []
    everywhere = frame.merge(pd.DataFrame({"metric": METRICS}), how="cross")
    points = models.locate(points)
    panels = zip(axes, layout.split(everywhere), layout.split(points), strict=True)
    for axis, rows, planned in panels:
        metric = planned["metric"].iloc[0]
        axis.set_ylim(-0.05, 1.05)
        draw_length_chance(axis, look, planned, frame["source_length"].unique().tolist(), metric)
        diverged = planned[planned["status"] == "diverged"]
        for line, (mark, label) in enumerate(zip(models.marks, models.labels("en"), strict=True)):
            of_line = rows[rows["line"] == line]
            counts.append(
                draw_line(axis, look, of_line, "source_length", metric, mark, label=label or "all")
            )
            mark_diverged(axis, look, diverged.loc[diverged["line"] == line, "task.length"], mark)
        if diverged.empty:
            explain_empty(axis, look, rows, metric)
    return counts


def draw_length_chance(
    axis: Axes, look: Look, planned: pd.DataFrame, lengths: list[int], metric: str
) -> None:
    """Guessing: 1/V a token, V^-k a sequence of k targets, for each V of the panel."""
    lengths = sorted({*lengths, *planned["task.length"].astype(int)})
    for symbols in planned["task.symbols"].astype(int).unique():
        kept = {"task.keep": planned["task.keep"].iloc[0]} if "task.keep" in planned else {}
        targets = target_lengths(pd.DataFrame({"source_length": lengths, **kept}))
        chance = [
            1 / symbols if metric == "token_accuracy" else symbols**-k for k in map(float, targets)
        ]
        draw_chance(axis, look, lengths, chance)


def mark_diverged(axis: Axes, look: Look, lengths: pd.Series, mark: Mark) -> None:
    """A cross at the floor for each diverged run, at the length that it was trained on."""
    if len(lengths):
        axis.plot(
            lengths.astype(int), [0.0] * len(lengths), ls="", marker="x", ms=1.5 * look.marker,
            mew=0.8 * look.line, color=mark.color, label="diverged", clip_on=False, zorder=4,
        )  # fmt: skip


def model_keys(look: Look, models: Models, runs: pd.DataFrame) -> list[Artist]:
    """Legend entries of the models, of guessing and of diverged runs if there are any."""
    named = zip(models.marks, models.labels(look.lang), strict=True)
    keys: list[Artist] = [key_line(look, mark, label) for mark, label in named if label]
    keys.append(key_chance(look, say(look.lang, "chance")))
    if (runs["status"] == "diverged").any():
        label = say(look.lang, "diverged")
        size, width = 1.2 * look.marker, 0.8 * look.line
        keys.append(Line2D([], [], ls="", marker="x", color=INK, ms=size, mew=width, label=label))
    return keys


def about_accuracy(look: Look, phrase: str, runs: pd.DataFrame) -> str:
    """How accuracies were measured: on how many examples, after how much training."""
    examples, steps = caption.examples(look.lang, runs), caption.trained(look.lang, runs)
    return say(look.lang, phrase, examples=examples, steps=steps)


def about_chance(look: Look, runs: pd.DataFrame, *, sequence: bool) -> str:
    """What the dotted line is, with V where it is the same everywhere."""
    symbols = symbols_in_common(look, runs)
    more = say(look.lang, "about_chance_sequence") if sequence else ""
    return say(look.lang, "about_chance", sequence=more, symbols=symbols)


def symbols_in_common(look: Look, runs: pd.DataFrame) -> str:
    """Such as ", V = 10", or nothing where V varies."""
    found = {plain(value) for value in runs["task.symbols"]}
    return say(look.lang, "symbols", symbols=found.pop()) if len(found) == 1 else ""
