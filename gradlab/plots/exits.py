"""Recurrent hops: how many steps before a state its gradient left the encoder."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gradlab.errors import NothingToPlotError
from gradlab.plots import caption
from gradlab.plots.aggregate import (
    at_stages,
    longest,
    one_per_seed,
    over_seeds,
    stage_key,
    stages_of,
)
from gradlab.plots.canvas import Page, blank, finish
from gradlab.plots.facets import Facets, facets, varying_keys
from gradlab.plots.gradients import MOST_PANELS, explain_empty, name_only_stage
from gradlab.plots.heatmap import state_longest
from gradlab.plots.lines import draw_line, key_line, mark_beyond, marker_style, whole_steps
from gradlab.plots.results import Results
from gradlab.plots.shares import CANCELLATION_LIMIT, label_shares, share_limits
from gradlab.plots.states import BACKWARD, choose_states
from gradlab.plots.style import INK, Look, Mark, StyleName, categorical_marks, drawing
from gradlab.plots.words import Language, say

STATES: dict[str, Mark] = dict(
    zip(("hops_first", "hops_middle"), categorical_marks(2), strict=True)
)
TERM = ["panel", "position", "hops"]


def hops(results: Results, *, style: StyleName = "lecture", lang: Language = "en") -> Figure:
    """Signed share of the gradient at h_1 and at the middle state, by recurrent steps to its exit.

    The longest source length of each panel; a panel for each model, task and stage.
    """
    frame, points = hop_rows(results), stages_of(results.runs)
    keys, stages = varying_keys(results.runs, frame), stage_key(points)
    states = choose_states(frame, points, [*keys, *stages], MOST_PANELS)
    frame, points = states.locate(frame), states.expand(points)
    layout = facets(points, [*states.with_keys(keys), *stages])
    frame = one_per_seed(longest(layout.locate(frame), "panel"), TERM)
    frame = two_states(frame)
    with drawing(style, lang) as look:
        figure, axes = blank(look, layout.rows, layout.columns, len(layout.panels))
        counts, beyond = hop_panels(axes, look, layout, frame)
        titles, sentence = state_longest(look, layout, frame)
        marks = {name: mark for name, mark in STATES.items() if (frame["of"] == name).any()}
        page = Page(
            say(look.lang, "hops"),
            caption.subtitle(look.lang, results.scenario.title, results.runs, frame),
            name_only_stage(look, titles, points),
            say(look.lang, "hop_count"),
            say(look.lang, "hop_share"),
            handles=[
                key_line(look, mark, say(look.lang, name_of(name, frame)))
                for name, mark in marks.items()
            ],
            caption=[
                *about(look, results, frame),
                *states.sentences(look.lang),
                sentence,
                *caption.seeds(look.lang, counts, log=False),
                *([say(look.lang, "beyond", count=beyond)] if beyond else []),
                *oppose(look, frame),
                *zero_terms(look, frame),
                *caption.nonfinite(look.lang, frame, "share", results.runs),
                *caption.statuses(look.lang, results.runs, "runs_diverged_later"),
            ],
        )
        return finish(figure, axes, look, page)


def hop_rows(results: Results) -> pd.DataFrame:
    """The rows of state h before training and after the last step."""
    table = results.hops
    if not table.empty:
        table = at_stages(table[table["state"] == "h"])
    if table.empty:
        unfinished = (results.runs["status"] == "missing").all()
        raise NothingToPlotError(
            "hops needs rows in the table hops, found none: set record.hops = true in the scenario"
            " and run it" + ("; no run of this sweep is finished" if unfinished else "")
        )
    return table


def two_states(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of the first and the middle state, named in `of`; of the first alone if n = 1.

    The first is the one read first, furthest from the bridge: h_n where an encoder reads backwards.
    """
    last = frame.groupby("panel")["position"].transform("max")
    start = last.where(frame["direction"] == BACKWARD, 1)
    first, middle = frame["position"] == start, frame["position"] == (last + 1) // 2
    of = first.map({True: "hops_first", False: "hops_middle"})
    return frame.assign(of=of)[first | middle]


def name_of(state: str, frame: pd.DataFrame) -> str:
    """The phrase that names a state, which says more where some encoder reads backwards."""
    backward = (frame["direction"] == BACKWARD).any()
    return "hops_far" if state == "hops_first" and backward else state


def hop_panels(
    axes: list[Axes], look: Look, layout: Facets, frame: pd.DataFrame
) -> tuple[list[int], int]:
    """Draw each panel; returns the seeds of each line and how many points lie beyond the axis."""
    limits, alone = share_limits(frame), frame["hops"].max() == 0
    counts, beyond = [], 0
    for axis, rows in zip(axes, layout.split(frame), strict=True):
        axis.set_ylim(*limits)
        label_shares(axis, look, limits[1] - limits[0])
        whole_steps(axis)
        if alone:  # nothing but what left at once
            axis.set(xlim=(-0.5, 0.5), xticks=[0])
        for level in (0, 1):
            axis.axhline(level, color=INK, lw=look.thin, zorder=1.5, label="reference")
        for place, (name, mark) in enumerate(STATES.items()):
            line = rows[rows["of"] == name]
            own = replace(look, marker=(2 - place) * look.marker) if alone else look
            counts.append(
                draw_line(axis, own, line, "hops", "share", mark, label=name, place=place)
            )
            point_at_largest(axis, own, line, mark)
            beyond += mark_beyond(axis, look, line, "hops", "share", mark, limits)
        explain_empty(axis, look, rows, "share")
    return counts, beyond


def point_at_largest(axis: Axes, look: Look, line: pd.DataFrame, mark: Mark) -> None:
    """A marker at the largest share of a line, which may be a spike between the line's markers."""
    table = over_seeds(line, ["hops"], "share", log=False).dropna(subset="centre")
    if len(table):
        peak = table.loc[[table["centre"].abs().idxmax()]]
        axis.plot(
            peak["hops"], peak["centre"], ls="", color=mark.color, label="peak", zorder=3,
            **marker_style(look, mark),
        )  # fmt: skip


def about(look: Look, results: Results, frame: pd.DataFrame) -> list[str]:
    """What a term and its share are, of which loss, and which state is the middle one."""
    lang, runs = look.lang, results.runs
    middle = sorted(frame.loc[frame["of"] == "hops_middle", "position"].unique())
    where = [say(lang, "about_middle", position=caption.between(lang, middle))] if middle else []
    return [
        say(lang, "about_hops", examples=caption.examples(lang, runs)),
        *where,
        caption.reduction(lang, runs),
        *(
            [say(lang, "about_no_recurrence")]
            if (runs["model.kind"] == "transformer").any()
            else []
        ),
        *caption.lstm(lang, runs),
    ]


def oppose(look: Look, frame: pd.DataFrame) -> list[str]:
    """In how many of the profiles the terms pull against each other, if in any."""
    size = frame["share"].abs().groupby([frame["panel"], frame["seed"], frame["of"]]).sum()
    count = int((size > CANCELLATION_LIMIT).sum())
    numbers = {"count": count, "total": len(size), "limit": CANCELLATION_LIMIT}
    return [say(look.lang, "hops_oppose", **numbers)] if count else []


def zero_terms(look: Look, frame: pd.DataFrame) -> list[str]:
    """How many terms are exactly zero, as all but the longest without attention are."""
    zeros = int((frame["norm_mean"] == 0).sum())
    return [say(look.lang, "zero_terms", zeros=zeros, total=len(frame))] if zeros else []
