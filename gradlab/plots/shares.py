"""Signed shares of the gradient by path: bridge, values and keys, and what went through a query."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MultipleLocator

from gradlab.errors import NothingToPlotError
from gradlab.plots import caption
from gradlab.plots.aggregate import (
    at_stages,
    longest,
    one_per_seed,
    stage_key,
    stages_of,
    usable,
)
from gradlab.plots.canvas import Page, blank, finish
from gradlab.plots.facets import Facets, facets, varying_keys
from gradlab.plots.gradients import MOST_PANELS, explain_empty, name_only_stage
from gradlab.plots.heatmap import state_longest
from gradlab.plots.lines import draw_line, key_line, mark_beyond, whole_steps
from gradlab.plots.results import Results
from gradlab.plots.states import choose_states
from gradlab.plots.style import (
    GREY,
    INK,
    MARKERS,
    Look,
    Mark,
    StyleName,
    categorical_marks,
    drawing,
)
from gradlab.plots.words import Language, say

EDGES = ("bridge", "values", "keys", "output")
MARKS: dict[str, Mark] = dict(zip(EDGES, categorical_marks(len(EDGES)), strict=True))
QUERY = "total.query"
"""What of the total passed through at least one attention query: a cut across the three paths."""
MARKS[QUERY] = Mark((0.13, 0.13, 0.13), "D", (0, (1, 1.6)), hollow=True)
CANCELLATION_LIMIT = 3
CANCELS: dict[str, Any] = {"facecolor": "#eeeeee", "edgecolor": "#b5b5b5", "hatch": "//", "lw": 0}
PALEST = 0.5
"""How much white the colour of an edge of the lowest layer holds."""
WIDEST = (-3.0, 4.0)
"""Shares outside are marked at the edge: where parts cancel they can be arbitrarily large."""


def path_shares(results: Results, *, style: StyleName = "lecture", lang: Language = "en") -> Figure:
    """Signed shares of bridge, values and keys in the total gradient against source timestep.

    Shares may be negative or above one; timesteps where the paths cancel are hatched.
    """
    frame, points = path_rows(results), stages_of(results.runs)
    keys, stages = varying_keys(results.runs, frame), stage_key(points)
    states = choose_states(frame, points, [*keys, *stages], MOST_PANELS)
    frame, points = states.locate(frame), states.expand(points)
    layout = facets(points, [*states.with_keys(keys), *stages])
    frame = longest(layout.locate(frame), "panel")
    frame = one_per_seed(frame, ["panel", "path", "position"])
    cancelling = cancelled(frame, ["panel", "position"])
    frame = frame[frame["path"] != "total"]
    with drawing(style, lang) as look:
        figure, axes = blank(look, layout.rows, layout.columns, len(layout.panels))
        counts, beyond = share_panels(axes, look, layout, frame, cancelling)
        titles, sentence = state_longest(look, layout, frame)
        titles = name_only_stage(look, titles, points)
        examples = caption.examples(look.lang, results.runs)
        hatch = say(look.lang, "about_hatch", limit=CANCELLATION_LIMIT)
        page = Page(
            say(look.lang, "path_shares"),
            caption.subtitle(look.lang, results.scenario.title, results.runs, frame),
            titles,
            say(look.lang, "timestep"),
            say(look.lang, "share"),
            handles=share_keys(look, frame, results.runs, hatched=not cancelling.empty),
            caption=[
                say(look.lang, "about_shares", examples=examples),
                *([say(look.lang, "about_query")] if (frame["path"] == QUERY).any() else []),
                *([hatch] if not cancelling.empty else []),
                caption.reduction(look.lang, results.runs),
                *caption.lstm(look.lang, results.runs),
                *states.sentences(look.lang),
                sentence,
                *caption.seeds(look.lang, counts, log=False),
                *([say(look.lang, "beyond", count=beyond)] if beyond else []),
                *caption.nonfinite(look.lang, frame, "share", results.runs),
                *caption.statuses(look.lang, results.runs, "runs_diverged_later"),
            ],
        )
        return finish(figure, axes, look, page)


def path_rows(results: Results) -> pd.DataFrame:
    """The rows of the paths, and of their total, that exist in a model, for state h."""
    table = results.gradients
    if not table.empty:
        table = at_stages(table[table["state"] == "h"])
        table = with_layers(table)
        edges = {path for path in table["path"].unique() if is_edge(path)}
        table = table[table["path"].isin({*edges, QUERY, "total"})]
        missing = (table["path"] != "total") & (table["zeros"] == table["examples"])
        by = [table[key] for key in ("run_id", "path", "layer", "direction")]
        table = table[~missing.groupby(by).transform("all")]
    if table.empty or not table["path"].map(is_edge).any():
        raise NothingToPlotError(
            "path_shares needs rows for the paths bridge, values, keys or output in the table"
            " gradients, found none: record.paths is false in this sweep, or no run of it is"
            " finished"
        )
    return table


def with_layers(table: pd.DataFrame) -> pd.DataFrame:
    """The table with values.1 called values, and so on, where there is no second layer."""
    layers = table["path"].str.extract(r"\.(\d+)", expand=False).dropna().astype(int)
    if layers.max() > 1:
        return table
    return table.assign(path=table["path"].str.replace(r"\.1(?=\.|$)", "", regex=True))


def is_edge(path: str) -> bool:
    """Whether a path is all that left by one edge: bridge, values.2, but not values.query."""
    edge, *rest = path.split(".")
    return edge in EDGES and (not rest or (len(rest) == 1 and rest[0].isdigit()))


def marks_of(frame: pd.DataFrame) -> dict[str, Mark]:
    """The mark of each path that is drawn: colour and dash by edge; by layer, shade and marker."""
    found = set(frame["path"].unique())
    layers = [int(path.split(".")[1]) for path in found if is_edge(path) and "." in path]
    marks: dict[str, Mark] = {}
    for place, edge in enumerate(EDGES):
        marks |= {edge: MARKS[edge]} if edge in found else {}
        for layer in sorted({layer for layer in layers if f"{edge}.{layer}" in found}):
            pale = PALEST * (max(layers) - layer) / max(max(layers) - 1, 1)
            red, green, blue = (pale + (1 - pale) * part for part in MARKS[edge].color)
            marker = MARKERS[(place + len(EDGES) * (layer - 1)) % len(MARKERS)]
            hollow = layer < max(layers)
            mark = Mark((red, green, blue), marker, MARKS[edge].dash, hollow=hollow)
            marks[f"{edge}.{layer}"] = mark
    return marks | ({QUERY: MARKS[QUERY]} if QUERY in found else {})


def cancelled(frame: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """The groups of `by` where the median over seeds of `cancellation` is above the limit."""
    total = frame[(frame["path"] == "total") & usable(frame["cancellation"], log=False)]
    median = total.groupby(by)["cancellation"].median().reset_index()
    return median[median["cancellation"] > CANCELLATION_LIMIT]


def share_panels(
    axes: list[Axes], look: Look, layout: Facets, frame: pd.DataFrame, cancelling: pd.DataFrame
) -> tuple[list[int], int]:
    """Draw each panel; returns the seeds of each line and how many points lie beyond the axis."""
    low, high = share_limits(frame)
    counts, beyond, marks = [], 0, marks_of(frame)
    for panel, (axis, rows) in enumerate(zip(axes, layout.split(frame), strict=True)):
        axis.set_ylim(low, high)
        label_shares(axis, look, high - low)
        whole_steps(axis)
        for level in (0, 1):
            axis.axhline(level, color=INK, lw=look.thin, zorder=1.5, label="reference")
        for position in cancelling.loc[cancelling["panel"] == panel, "position"]:
            axis.axvspan(position - 0.5, position + 0.5, zorder=0.5, label="cancels", **CANCELS)
        for place, (path, mark) in enumerate(marks.items()):
            line = rows[rows["path"] == path]
            own = thinner(look) if path == QUERY else look
            counts.append(
                draw_line(axis, own, line, "position", "share", mark, label=path, place=place)
            )
            beyond += mark_beyond(axis, look, line, "position", "share", mark, (low, high))
        explain_empty(axis, look, rows, "share")
    axes[0].set_xlim(left=max(axes[0].get_xlim()[0], 0.3))  # shared; there is no timestep 0
    return counts, beyond


def thinner(look: Look) -> Look:
    """The look of a line that is no path of its own."""
    return replace(look, line=0.6 * look.line, marker=0.7 * look.marker)


def share_limits(frame: pd.DataFrame) -> tuple[float, float]:
    """Limits that show 0 and 1 with room around, and every share within reason."""
    shares = frame.loc[usable(frame["share"], log=False), "share"]
    low = max(min(shares.min(), 0.0), WIDEST[0]) if len(shares) else 0.0
    high = min(max(shares.max(), 1.0), WIDEST[1]) if len(shares) else 1.0
    margin = 0.1 * (high - low)
    return float(low - margin), float(high + margin)


def label_shares(axis: Axes, look: Look, span: float) -> None:
    """Ticks that include 0 and 1, negative ones with a minus that the font has."""
    minus = "-" if look.lang == "ko" else "−"
    axis.yaxis.set_major_locator(MultipleLocator(0.5 if span < 2.6 else 1.0))
    axis.yaxis.set_major_formatter(lambda share, _: f"{share:g}".replace("-", minus))


def share_keys(
    look: Look, frame: pd.DataFrame, runs: pd.DataFrame, *, hatched: bool
) -> list[Artist]:
    """Legend entries of the paths that exist, and of the hatching if there is any."""
    mean_bridge = (runs["model.bridge"] == "mean").any()
    names = {"bridge": "bridge_mean" if mean_bridge else "bridge", QUERY: "query"}
    keys: list[Artist] = []
    for path, mark in marks_of(frame).items():
        edge, *layer = path.split(".") if path != QUERY else [QUERY]
        label = say(look.lang, names.get(edge, edge))
        if layer:
            name = label.split(":")[0]
            label = say(look.lang, "edge_layer", edge=name, layer=layer[0])
        keys.append(key_line(thinner(look) if path == QUERY else look, mark, label))
    if hatched:
        keys.append(key_cancels(say(look.lang, "hatched")))
    return keys


def key_cancels(label: str) -> Patch:
    """The legend entry of the hatching."""
    return Patch(label=label, **{**CANCELS, "edgecolor": GREY})
