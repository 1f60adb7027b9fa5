"""Training curves: held-out loss and accuracies against training step."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gradlab.plots import caption
from gradlab.plots.accuracy import model_keys, symbols_in_common, trained_rows
from gradlab.plots.aggregate import longest, one_per_seed, target_lengths, usable
from gradlab.plots.canvas import Page, blank, finish
from gradlab.plots.facets import Facets, facets
from gradlab.plots.gradients import about_length, explain_empty
from gradlab.plots.heatmap import several_steps
from gradlab.plots.lines import draw_chance, draw_line, key_chance, key_line
from gradlab.plots.models import compare_models, keys_of_accuracy
from gradlab.plots.results import Results
from gradlab.plots.style import INK, Look, Mark, StyleName, drawing, sequential_marks
from gradlab.plots.words import Language, say

METRICS = ("loss", "token_accuracy", "sequence_accuracy")
MOST_GROUPS = 4
"""With more models than this, lines are models at the longest length instead of lengths."""
HIGHEST_LOSS = 3.0
"""The loss axis ends at this many times ln V; what lies above is marked at the edge."""


@dataclass(frozen=True)
class Plan:
    """One group of panels for each of `groups`, one line for each mark; `frame` has `line`."""

    groups: Facets
    frame: pd.DataFrame
    marks: list[Mark]
    labels: list[str]
    keys: list[Artist]
    by_length: bool


def plan_lines(results: Results, look: Look) -> Plan:
    """Lines are lengths where few models are compared, else models at their longest length."""
    runs, frame = results.runs, several_steps(trained_rows(results), results.runs)
    groups = facets(runs, keys_of_accuracy(runs, frame))
    chance = key_chance(look, say(look.lang, "chance"))
    if len(groups.panels) <= MOST_GROUPS:
        lengths = sorted(int(n) for n in frame["source_length"].unique())
        frame = frame.assign(line=frame["source_length"].map(lengths.index))
        marks, labels = sequential_marks(len(lengths)), [str(n) for n in lengths]
        keys: list[Artist] = [key_line(look, m, n) for m, n in zip(marks, labels, strict=True)]
        return Plan(groups, groups.locate(frame), marks, labels, [*keys, chance], True)
    models = compare_models(runs, frame)
    groups = facets(runs, models.panel_keys)
    frame = longest(groups.locate(models.locate(frame)), "panel")
    keys = model_keys(look, models, runs.assign(status="done"))
    return Plan(groups, frame, models.marks, models.labels("en"), keys, False)


def training(results: Results, *, style: StyleName = "lecture", lang: Language = "en") -> Figure:
    """Held-out loss (nats per target token), token and sequence accuracy against training step."""
    runs = results.runs
    with drawing(style, lang) as look:
        plan = plan_lines(results, look)
        frame = one_per_seed(plan.frame, ["panel", "line", "source_length", "train_step"])
        count = len(plan.groups.panels)
        tall = count > len(METRICS)
        shape = (len(METRICS), count) if tall else (count, len(METRICS))
        figure, axes = blank(look, *shape, count * len(METRICS), share_y="row" if tall else "col")
        counts, beyond, titles = [], 0, [""] * len(axes)
        for group, name in enumerate(plan.groups.titles(look.lang)):
            rows = frame[frame["panel"] == group]
            for place, metric in enumerate(METRICS):
                cell = place * count + group if tall else group * len(METRICS) + place
                titles[cell] = " · ".join(part for part in (name, say(look.lang, metric)) if part)
                counts += curve_panel(axes[cell], look, rows, metric, plan)
            beyond += finish_loss(axes[group if tall else group * len(METRICS)], look, rows, frame)
        page = Page(
            say(look.lang, "training"),
            caption.subtitle(look.lang, results.scenario.title, runs, results.training),
            titles,
            say(look.lang, "train_step"),
            legend_title=say(look.lang, "length") if plan.by_length else "",
            handles=plan.keys,
            caption=[
                about_training(look, runs),
                *([] if plan.by_length else [about_length(look, frame)]),
                *caption.seeds(look.lang, counts, log=False),
                *([say(look.lang, "beyond_loss", count=beyond)] if beyond else []),
                *caption.nonfinite(look.lang, frame, "loss", results.runs),
                *caption.statuses(look.lang, runs, "runs_diverged_later"),
            ],
        )
        return finish(figure, axes, look, page)


def curve_panel(axis: Axes, look: Look, rows: pd.DataFrame, metric: str, plan: Plan) -> list[int]:
    """One metric of one group: guessing and a line each; returns the seeds of each line."""
    if metric != "loss":
        axis.set_ylim(-0.05, 1.05)
    for symbols, targets in sorted(
        set(zip(rows["task.symbols"], target_lengths(rows), strict=True))
    ):
        steps = [0, int(rows["train_step"].max())]
        level = {
            "loss": math.log(symbols),
            "token_accuracy": 1 / symbols,
            "sequence_accuracy": float(symbols) ** -targets,
        }[metric]
        draw_chance(axis, look, steps, [level] * 2)
    counts = [
        draw_line(
            axis, look, rows[rows["line"] == line], "train_step", metric, mark,
            label=label or "all", place=line,
        )
        for line, (mark, label) in enumerate(zip(plan.marks, plan.labels, strict=True))
    ]  # fmt: skip
    explain_empty(axis, look, rows, metric)
    return counts


def finish_loss(axis: Axes, look: Look, rows: pd.DataFrame, frame: pd.DataFrame) -> int:
    """Limits of the loss axis, and a mark for each loss above it or not finite; how many."""
    losses = frame.loc[usable(frame["loss"], log=False), "loss"]
    guess = math.log(max(frame["task.symbols"].max(), 2))
    top = 1.08 * min(max(losses.max() if len(losses) else 0.0, guess), HIGHEST_LOSS * guess)
    axis.set_ylim(-0.03 * top, top)
    loss = rows["loss"].astype(float).to_numpy()
    out = rows[~(np.isfinite(loss) & (loss <= top))]
    if len(out):
        axis.plot(
            out["train_step"], [0.97] * len(out), transform=axis.get_xaxis_transform(), ls="",
            marker="x", color=INK, ms=1.2 * look.marker, mew=0.6 * look.line, label="diverged",
        )  # fmt: skip
    return len(out)


def about_training(look: Look, runs: pd.DataFrame) -> str:
    """What the three curves are and on how many examples."""
    examples = caption.examples(look.lang, runs)
    return say(
        look.lang, "about_training", examples=examples, symbols=symbols_in_common(look, runs)
    )
