"""Decoder by encoder: the gradient of each target step at each source step, beside attention."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from gradlab.errors import NothingToPlotError
from gradlab.plots import caption
from gradlab.plots.aggregate import at_stages, longest, one_per_seed, over_seeds, stages_of
from gradlab.plots.canvas import Page, blank, finish, note
from gradlab.plots.facets import Facets, distinct, varying_keys
from gradlab.plots.heatmap import about_cells, cell_keys, cells, colour_bar, heat, state_longest
from gradlab.plots.lines import positive_range, whole_steps
from gradlab.plots.results import Results
from gradlab.plots.states import choose_states
from gradlab.plots.style import Look, StyleName, drawing
from gradlab.plots.words import Language, describe, say

CELL = ["panel", "stage", "target_position", "position"]
NORM, WEIGHT = "gradient_norm", "attention_weight"
WEIGHT_COLOURS = "magma"
MOST_ROWS = 4
"""With more rows than this, encoders of several layers show the top one alone."""
CROWDED = 5
"""From this many rows on panels are lower than usual."""


@dataclass(frozen=True)
class Grid:
    """A row of panels for each model and task; `stages` holds the steps trained of each row.

    `attentive` are the rows that have attention weights, each beside the gradient of its stage.
    """

    rows: Facets
    stages: tuple[tuple[int, ...], ...]
    attentive: frozenset[int]

    @property
    def columns(self) -> int:
        return max(map(len, self.stages)) * (2 if self.attentive else 1)

    def cell(self, row: int, stage: int, *, weights: bool) -> int:
        """The index of a panel in reading order."""
        return row * self.columns + (2 * stage + weights if self.attentive else stage)


def gradient_map(
    results: Results, *, style: StyleName = "lecture", lang: Language = "en"
) -> Figure:
    """Gradient norm of each target step's loss at each source step, beside the attention weights.

    Log and linear colour; the longest source length of each row, untrained and after training.
    A row for each model and task; models without attention have the gradient alone.
    """
    frame, points = map_rows(results), stages_of(results.runs)
    keys = [key for key in varying_keys(results.runs, frame) if key != "record.loss"]
    states = choose_states(frame, points, keys, MOST_ROWS)
    frame, points = states.locate(frame), states.expand(points)
    frame, grid = plan_grid(frame, points, states.with_keys(keys))
    with drawing(style, lang) as look:
        ends = frame.groupby("panel")[["position", "target_position"]].max()
        same = "all" if len(ends.drop_duplicates()) == 1 else "none"
        shape, taller = (
            (len(grid.stages), grid.columns),
            1.25 if len(grid.stages) < CROWDED else 0.7,
        )
        count = shape[0] * shape[1]
        figure, axes = blank(look, *shape, count, share_x=same, share_y=same, taller=taller)
        names, sentence = state_longest(look, grid.rows, frame)
        titles = titles_of(look, grid, names)
        panels = only_named(axes, titles)
        norms = draw_maps(figure, panels, look, frame, grid)
        page = Page(
            say(look.lang, "gradient_map"),
            caption.subtitle(look.lang, results.scenario.title, results.runs, frame),
            [titles[cell] for cell in panels],
            say(look.lang, "timestep"),
            say(look.lang, "target_step"),
            handles=cell_keys(look, norms),
            caption=[
                *about(look, results, frame, weights=bool(grid.attentive)),
                *states.sentences(look.lang),
                sentence,
                *left_out(look, results, frame, grid.attentive),
                *caption.statuses(look.lang, results.runs, "runs_diverged_later"),
            ],
            by_row=True,
        )
        return finish(figure, list(panels.values()), look, page)


def plan_grid(
    frame: pd.DataFrame, points: pd.DataFrame, keys: list[str]
) -> tuple[pd.DataFrame, Grid]:
    """The grid, and the rows to draw with `panel` (the row of the grid) and `stage`."""
    rows = Facets(tuple(keys), tuple(distinct(points, keys)), 1)
    frame = one_per_seed(longest(rows.locate(frame), "panel"), CELL)
    stages = tuple(tuple(sorted(map(int, own["stage"].unique()))) for own in rows.split(points))
    attentive = frozenset(int(row) for row in frame.loc[frame[WEIGHT].notna(), "panel"])
    return frame, Grid(rows, stages, attentive)


def map_rows(results: Results) -> pd.DataFrame:
    """The rows of state h before training and after the last step."""
    table = results.maps
    if not table.empty:
        table = at_stages(table[table["state"] == "h"])
    if table.empty:
        unfinished = (results.runs["status"] == "missing").all()
        raise NothingToPlotError(
            "gradient_map needs rows in the table maps, found none: set record.map = true in the"
            " scenario and run it" + ("; no run of this sweep is finished" if unfinished else "")
        )
    return table


def titles_of(look: Look, grid: Grid, names: list[str]) -> list[str]:
    """The title of every panel: the row's model and task, the stage, and what is shown."""
    titles = [""] * (len(grid.stages) * grid.columns)
    for row, (name, stages) in enumerate(zip(names, grid.stages, strict=True)):
        for place, stage in enumerate(stages):
            for weights in (False, True) if grid.attentive else (False,):
                half = say(look.lang, "map_weight" if weights else "map_gradient")
                parts = (name, describe(look.lang, "stage", stage), half)
                cell = grid.cell(row, place, weights=weights)
                titles[cell] = " · ".join(part for part in parts if part)
    return titles


def only_named(axes: list[Axes], titles: list[str]) -> dict[int, Axes]:
    """The panels with a title, by cell; the others go, since their model has fewer stages."""
    for axis, title in zip(axes, titles, strict=True):
        if not title:
            axis.remove()
    return {cell: axes[cell] for cell, title in enumerate(titles) if title}


def draw_maps(
    figure: Figure, panels: dict[int, Axes], look: Look, frame: pd.DataFrame, grid: Grid
) -> pd.DataFrame:
    """Draw every panel and the two scales of colour; returns the cells of the norms."""
    span = positive_range(frame, CELL, NORM)
    scale, unit = Normalize(*(span or (-1.0, 0.0))), Normalize(0, 1)
    norms = cells(frame, CELL, NORM)
    norms = norms.assign(level=norms["target_position"])
    weights = over_seeds(frame, CELL, WEIGHT, log=False)
    weights = weights.assign(level=weights["target_position"], zero=False)
    for row, stages in enumerate(grid.stages):
        for place, stage in enumerate(stages):
            left = panels[grid.cell(row, place, weights=False)]
            own = norms[(norms["panel"] == row) & (norms["stage"] == stage)]
            heat(left, look, own, scale)
            first_at_the_top(left, own)
            if grid.attentive:
                cell = grid.cell(row, place, weights=True)
                own = weights[(weights["panel"] == row) & (weights["stage"] == stage)]
                if row not in grid.attentive and len(own):
                    without_weights(panels, cell, look, grid)
                    continue
                heat(panels[cell], look, own, unit, "centre", WEIGHT_COLOURS)
                first_at_the_top(panels[cell], own)
    axes = list(panels.values())
    label = say(look.lang, "map_norm")
    colour_bar(figure, axes, look, ScalarMappable(scale, "viridis"), span, label)
    if grid.attentive:
        bar = figure.colorbar(ScalarMappable(unit, WEIGHT_COLOURS), ax=axes, aspect=25, pad=0.02)
        bar.set_label(say(look.lang, "map_weight"), fontsize=look.text)
    return norms


def without_weights(panels: dict[int, Axes], cell: int, look: Look, grid: Grid) -> None:
    """An empty cell that says why; the cell above it gets the numbers if it was the lowest."""
    panels[cell].axis("off")
    note(look, panels[cell], say(look.lang, "no_weights"))
    above = panels.get(cell - grid.columns)
    if cell + grid.columns not in panels and above:
        above.tick_params(labelbottom=True)


def first_at_the_top(axis: Axes, rows: pd.DataFrame) -> None:
    """Target steps downwards, as a matrix is read."""
    whole_steps(axis)
    axis.yaxis.set_major_locator(MaxNLocator(6, integer=True))
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


def left_out(
    look: Look, results: Results, frame: pd.DataFrame, attentive: frozenset[int]
) -> list[str]:
    """How many norms are exactly zero or not finite, and how many weights are not finite."""
    lang, runs = look.lang, results.runs
    zeros = int((frame[NORM] == 0).sum())
    weights = frame[frame["panel"].isin(attentive)]
    return [
        *([say(lang, "zeros_cells", zeros=zeros, total=len(frame))] if zeros else []),
        *caption.nonfinite(lang, frame, NORM, runs),
        *caption.nonfinite(lang, weights, WEIGHT, runs),
    ]
