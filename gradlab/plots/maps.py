"""Decoder by encoder: the gradient of each target step at each source step, beside attention."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
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
from gradlab.plots.gradients import name_only_stage
from gradlab.plots.heatmap import about_cells, cell_keys, cells, colour_bar, heat, state_longest
from gradlab.plots.lines import positive_range
from gradlab.plots.pairs import blank_pairs, pair_layout, pair_titles
from gradlab.plots.results import Results
from gradlab.plots.style import Look, StyleName, drawing
from gradlab.plots.words import Language, say

CELL = ["panel", "target_position", "position"]
NORM, WEIGHT = "gradient_norm", "attention_weight"
WEIGHT_COLOURS = "magma"


def gradient_map(
    results: Results, *, style: StyleName = "lecture", lang: Language = "en"
) -> Figure:
    """Gradient norm of each target step's loss at each source step, beside the attention weights.

    Log and linear colour; the longest source length of each panel, untrained and after training.
    Models without attention have the gradient alone.
    """
    frame, points = map_rows(results), stages_of(results.runs)
    keys = [key for key in varying_keys(results.runs, frame) if key != "record.loss"]
    keys = [*keys, *stage_key(points)]
    layout = pair_layout(points, keys) if frame[WEIGHT].notna().any() else facets(points, keys)
    frame = one_per_seed(longest(layout.locate(frame), "panel"), CELL)
    attentive = set(frame.loc[frame[WEIGHT].notna(), "panel"])
    with drawing(style, lang) as look:
        figure, left, right = draw_grid(look, layout, frame, attentive)
        norms = draw_maps(figure, left, right, look, frame)
        names, sentence = state_longest(look, layout, frame)
        names = name_only_stage(look, names, points)
        titles = pair_titles(names, say(look.lang, "map_gradient"), say(look.lang, "map_weight"))
        shown = [title for i, title in enumerate(titles) if i % 2 == 0 or i // 2 in right]
        axes = [axis for i in range(len(left)) for axis in (left[i], right.get(i)) if axis]
        page = Page(
            say(look.lang, "gradient_map"),
            caption.subtitle(look.lang, results.scenario.title, results.runs, frame),
            shown,
            say(look.lang, "timestep"),
            say(look.lang, "target_step"),
            handles=cell_keys(look, norms),
            caption=[
                *about(look, results, frame, weights=bool(attentive)),
                sentence,
                *left_out(look, results, frame, attentive),
                *caption.statuses(look.lang, results.runs, "runs_diverged_later"),
            ],
        )
        return finish(figure, axes, look, page)


def map_rows(results: Results) -> pd.DataFrame:
    """The rows of state h before training and after the last step."""
    table = results.maps
    if not table.empty:
        table = at_stages(table[table["state"] == "h"])
    if table.empty:
        raise NothingToPlotError(
            "gradient_map needs rows in the table maps, found none: set record.map = true in the"
            " scenario and run it, or no run of this sweep is finished"
        )
    return table


def draw_grid(
    look: Look, layout: Facets, frame: pd.DataFrame, attentive: set[int]
) -> tuple[Figure, list[Axes], dict[int, Axes]]:
    """Empty panels: a gradient for each panel, and by its index the weights where there are any."""
    same = "all" if frame.groupby("panel")["source_length"].max().nunique() == 1 else "none"
    count = len(layout.panels)
    if not attentive:
        figure, axes = blank(look, layout.rows, layout.columns, count, share_x=same, share_y=same)
        return figure, axes, {}
    figure, pairs = blank_pairs(look, layout, share_x=same, share_y=same)
    for panel, (_, axis) in enumerate(pairs):
        if panel not in attentive:
            axis.remove()
    return figure, [axis for axis, _ in pairs], {i: pairs[i][1] for i in sorted(attentive)}


def draw_maps(
    figure: Figure, left: list[Axes], right: dict[int, Axes], look: Look, frame: pd.DataFrame
) -> pd.DataFrame:
    """Draw every panel and the two scales of colour; returns the cells of the norms."""
    span = positive_range(frame, CELL, NORM)
    scale, unit = Normalize(*(span or (-1.0, 0.0))), Normalize(0, 1)
    norms = cells(frame, CELL, NORM)
    norms = norms.assign(level=norms["target_position"])
    weights = over_seeds(frame, CELL, WEIGHT, log=False)
    weights = weights.assign(level=weights["target_position"], zero=False)
    for panel, axis in enumerate(left):
        rows = norms[norms["panel"] == panel]
        heat(axis, look, rows, scale)
        first_at_the_top(axis, rows)
        if panel in right:
            own = weights[weights["panel"] == panel]
            heat(right[panel], look, own, unit, "centre", WEIGHT_COLOURS)
            first_at_the_top(right[panel], own)
    axes = [*left, *right.values()]
    colour_bar(
        figure, axes, look, ScalarMappable(scale, "viridis"), span, say(look.lang, "map_norm")
    )
    if right:
        bar = figure.colorbar(ScalarMappable(unit, WEIGHT_COLOURS), ax=axes, aspect=25, pad=0.02)
        bar.set_label(say(look.lang, "map_weight"), fontsize=look.text)
    return norms


def first_at_the_top(axis: Axes, rows: pd.DataFrame) -> None:
    """Target steps downwards, as a matrix is read."""
    if len(rows):
        axis.set_ylim(rows["level"].max() + 0.5, 0.5)


def about(look: Look, results: Results, frame: pd.DataFrame, *, weights: bool) -> list[str]:
    """What the two colours are, and over how many examples and seeds."""
    lang, runs = look.lang, results.runs
    examples = caption.examples(lang, runs)
    return [
        *about_cells(look, frame, NORM, "about_map", examples=examples),
        *([say(lang, "about_weights")] if weights else []),
        *caption.lstm(lang, runs),
    ]


def left_out(look: Look, results: Results, frame: pd.DataFrame, attentive: set[int]) -> list[str]:
    """How many norms are exactly zero or not finite, and how many weights are not finite."""
    lang, runs = look.lang, results.runs
    zeros = int((frame[NORM] == 0).sum())
    weights = frame[frame["panel"].isin(attentive)]
    return [
        *([say(lang, "zeros_cells", zeros=zeros, total=len(frame))] if zeros else []),
        *caption.nonfinite(lang, frame, NORM, runs),
        *caption.nonfinite(lang, weights, WEIGHT, runs),
    ]
