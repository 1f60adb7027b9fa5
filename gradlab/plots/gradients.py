"""Gradient norms: how they fall along the source, before training and after it."""

from __future__ import annotations

from dataclasses import dataclass

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
from gradlab.plots.facets import Facets, distinct, facets, plain, varying_keys
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
from gradlab.plots.states import LAYER, States, all_states, choose_states
from gradlab.plots.style import (
    Look,
    Mark,
    StyleName,
    categorical_marks,
    drawing,
    sequential_marks,
)
from gradlab.plots.words import Language, say

SPLIT_BY_SEED = ["panel", "line", "position"]
MOST_PANELS, MOST_LINES = 12, 6
"""With more panels (or lines) than this, encoders of several layers show the top one alone."""


@dataclass(frozen=True)
class Plan:
    """Panels, and lines that are lengths, or the states of each model where there is one length.

    `frame` has the `panel` and the `line` of each row.
    """

    layout: Facets
    lines: Facets
    frame: pd.DataFrame
    points: pd.DataFrame
    states: States
    marks: list[Mark]

    @property
    def by_length(self) -> bool:
        return self.lines.keys == ("source_length",)

    def labels(self, lang: Language) -> list[str]:
        """The name of each line."""
        if self.by_length:
            return [str(plain(length)) for (length,) in self.lines.panels]
        one = "one_layer" if LAYER in self.lines.keys else "one_way"
        return [title or say(lang, one) for title in self.lines.titles(lang)]


def total_norms(results: Results) -> pd.DataFrame:
    """The rows of the total gradient at the hidden state h, in all layers and directions."""
    table = results.gradients
    if not table.empty:
        table = table[(table["state"] == "h") & (table["path"] == "total")]
    if table.empty:
        raise NothingToPlotError(
            "expected rows of path 'total' for state 'h' in the table gradients, found none:"
            " no run of this sweep is finished"
        )
    return table


def plan_lines(results: Results) -> Plan:
    """Layers and directions are panels, or the lines where only one length was measured."""
    frame, points = at_stages(total_norms(results)), stages_of(results.runs)
    keys, stages = varying_keys(results.runs, frame), stage_key(points)
    lengths = [(int(n),) for n in sorted(frame["source_length"].unique())]
    states = choose_states(frame, points, [*keys, *stages], MOST_PANELS)
    by_length = len(lengths) > 1 or not all_states(frame, top=False).keys
    if not by_length:
        states = choose_states(frame, points, [], MOST_LINES)
    frame, points = states.locate(frame), states.expand(points)
    layout = facets(points, [*(states.with_keys(keys) if by_length else keys), *stages])
    lines = Facets(("source_length",), tuple(lengths), 1)
    if not by_length:
        lines = Facets(tuple(states.keys), tuple(distinct(points, states.keys)), 1)
    frame = layout.locate(frame.assign(line=lines.locate(frame)["panel"]))
    marks = sequential_marks if by_length else categorical_marks
    frame = one_per_seed(frame, SPLIT_BY_SEED)
    return Plan(layout, lines, frame, points, states, marks(len(lines.panels)))


def gradient_decay(
    results: Results, *, style: StyleName = "lecture", lang: Language = "en"
) -> Figure:
    """Norm of the total gradient at each encoder state against source timestep, one line a length.

    Log scale; a panel for each model, task and stage (untrained, after the last step). Lines are
    layers and directions where the encoder has several and one length was measured.
    """
    plan = plan_lines(results)
    with drawing(style, lang) as look:
        layout, frame = plan.layout, plan.frame
        figure, axes = blank(look, layout.rows, layout.columns, len(layout.panels))
        zero_lines = sorted(frame.loc[frame["norm_mean"] == 0, "line"].unique())
        heights = dict(zip(zero_lines, zero_rows(len(zero_lines)), strict=True))
        counts = decay_panels(axes, look, plan, heights)
        span = positive_range(frame, SPLIT_BY_SEED, "norm_mean")
        set_log_axis(axes, look, span, list(heights.values()))
        named = zip(plan.marks, plan.labels(look.lang), strict=True)
        page = Page(
            say(look.lang, "gradient_decay"),
            caption.subtitle(look.lang, results.scenario.title, results.runs, frame),
            name_only_stage(look, layout.titles(look.lang), plan.points),
            say(look.lang, "timestep"),
            say(look.lang, "norm"),
            say(look.lang, "length") if plan.by_length else "",
            [key_line(look, mark, label) for mark, label in named],
            [
                *about_norm(look, results),
                *plan.states.sentences(look.lang),
                *([] if plan.by_length else [about_length(look, frame)]),
                *caption.seeds(look.lang, counts, log=True),
                *caption.zeros(look.lang, frame, "zeros"),
                *caption.nonfinite(look.lang, frame, "norm_mean", results.runs),
                *caption.statuses(look.lang, results.runs, "runs_diverged_later"),
            ],
        )
        return finish(figure, axes, look, page)


def decay_panels(axes: list[Axes], look: Look, plan: Plan, heights: dict[int, float]) -> list[int]:
    """Draw each panel's lines and zeros; returns the number of seeds of each line."""
    counts = []
    for axis, rows in zip(axes, plan.layout.split(plan.frame), strict=True):
        whole_steps(axis)
        for place, (label, mark) in enumerate(zip(plan.labels("en"), plan.marks, strict=True)):
            line = rows[rows["line"] == place]
            counts.append(
                draw_line(
                    axis, look, line, "position", "norm_mean", mark,
                    label=label, place=place, log=True,
                )
            )  # fmt: skip
            zeros = line.loc[line["norm_mean"] == 0, "position"]
            mark_zeros(axis, look, zeros, mark, heights.get(place, 0.0))
        explain_empty(axis, look, rows, "norm_mean")
    return counts


def about_length(look: Look, frame: pd.DataFrame) -> str:
    """Which source length the lines are of."""
    length = caption.between(look.lang, frame["source_length"].unique())
    return say(look.lang, "about_longest", length=length)


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
