"""Gradient norms as colour, over training step and source timestep."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import ListedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from gradlab.errors import NothingToPlotError
from gradlab.plots import caption
from gradlab.plots.aggregate import count_seeds, longest, one_per_seed, over_seeds
from gradlab.plots.canvas import Page, blank, finish, note
from gradlab.plots.facets import Facets, facets, plain, varying_keys
from gradlab.plots.gradients import MOST_PANELS, about_norm, total_norms
from gradlab.plots.lines import decades, positive_range, power
from gradlab.plots.results import Results
from gradlab.plots.states import choose_states
from gradlab.plots.style import GREY, Look, StyleName, drawing
from gradlab.plots.words import Language, say

Edges = npt.NDArray[np.float64]
CELL = ["panel", "train_step", "position"]
COLOURS = "viridis"
ZERO_COLOUR = "#bdbdbd"


def gradient_heatmap(
    results: Results, *, style: StyleName = "lecture", lang: Language = "en"
) -> Figure:
    """Norm of the total gradient, as colour, over training step and source timestep.

    The longest source length of each panel; the geometric mean over seeds.
    """
    frame = several_steps(total_norms(results), results.runs)
    keys = varying_keys(results.runs, frame)
    states = choose_states(frame, results.runs, keys, MOST_PANELS)
    layout = facets(states.expand(results.runs), states.with_keys(keys))
    frame = one_per_seed(longest(layout.locate(states.locate(frame)), "panel"), CELL)
    span = positive_range(frame, CELL, "norm_mean")
    with drawing(style, lang) as look:
        figure, axes = blank(look, layout.rows, layout.columns, len(layout.panels), share_x="none")
        low, high = span or (-1.0, 0.0)
        scale = Normalize(low, high)
        table = cells(frame, CELL, "norm_mean")
        for axis, (_, rows) in zip(axes, split(table, len(axes)), strict=True):
            heat(axis, look, rows, scale)
        label_steps(axes, table)
        colour_bar(figure, axes, look, ScalarMappable(scale, COLOURS), span, say(look.lang, "norm"))
        titles, sentence = state_longest(look, layout, frame)
        page = Page(
            say(look.lang, "gradient_heatmap"),
            caption.subtitle(look.lang, results.scenario.title, results.runs, frame),
            titles,
            say(look.lang, "timestep"),
            say(look.lang, "train_step"),
            handles=cell_keys(look, table),
            caption=[
                *about_norm(look, results),
                *states.sentences(look.lang),
                *about_cells(look, frame, "norm_mean", "about_heatmap"),
                sentence,
                *caption.zeros(look.lang, frame, "zeros_cells"),
                *caption.nonfinite(look.lang, frame, "norm_mean", results.runs),
                *caption.statuses(look.lang, results.runs, "runs_diverged_later"),
            ],
        )
        return finish(figure, axes, look, page)


def several_steps(frame: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """The same frame if it has at least two training steps, else an error that says why not."""
    if frame["train_step"].nunique() > 1:
        return frame
    steps = " or ".join(str(n) for n in sorted({plain(n) for n in runs["training.steps"]}, key=str))
    raise NothingToPlotError(
        "this figure needs at least two measured training steps; training.steps is"
        f" {steps} in this sweep"
    )


def cells(frame: pd.DataFrame, by: list[str], value: str) -> pd.DataFrame:
    """One row a cell: `exponent` = log10 of the geometric mean over seeds; `zero` if all are 0."""
    table = over_seeds(frame, by, value, log=True)
    largest = frame.groupby(by)[value].max().reset_index()
    return table.assign(exponent=np.log10(table["centre"]), zero=largest[value] == 0)


def split(table: pd.DataFrame, panels: int) -> list[tuple[int, pd.DataFrame]]:
    """The cells of each panel, the row of each in `level`: measured steps need not be even."""
    steps = sorted(table["train_step"].unique())
    table = table.assign(level=table["train_step"].map({step: i for i, step in enumerate(steps)}))
    return [(i, table[table["panel"] == i]) for i in range(panels)]


def heat(
    axis: Axes, look: Look, rows: pd.DataFrame, scale: Normalize, column: str = "exponent",
    colours: str = COLOURS,
) -> None:  # fmt: skip
    """One panel, `level` upwards; a cell of exact zeros is grey, one without value is hatched."""
    axis.grid(False)
    if rows.empty:
        note(look, axis, say(look.lang, "no_runs"))
        return
    axis.patch.set(hatch="////", facecolor="white", edgecolor=GREY)
    grey = ListedColormap([ZERO_COLOUR])
    zeros = rows.assign(zero=rows["zero"].where(rows["zero"]).astype(float))
    axis.pcolormesh(*grid(zeros, "zero"), cmap=grey, label="zeros")
    label = "norms" if column == "exponent" else column
    axis.pcolormesh(*grid(rows, column), cmap=colours, norm=scale, label=label)


def grid(rows: pd.DataFrame, column: str) -> tuple[Edges, Edges, Edges]:
    """Cell edges along the source and up the training steps, and the values; NaN masked."""
    table = rows.pivot(index="level", columns="position", values=column)
    across, up = (np.asarray(axis, dtype=float) for axis in (table.columns, table.index))
    values = np.ma.masked_invalid(table.to_numpy(dtype=float))
    return np.append(across - 0.5, across[-1] + 0.5), np.append(up - 0.5, up[-1] + 0.5), values


def label_steps(axes: list[Axes], table: pd.DataFrame) -> None:
    """Name every measured step, or every second, third, ... so that at most seven are named."""
    steps = [str(step) for step in sorted(table["train_step"].unique())]
    every = -(-len(steps) // 7)
    places = list(range(0, len(steps), every))
    for axis in axes:
        axis.set_ylim(-0.5, len(steps) - 0.5)
        axis.set_yticks(places, steps[::every])


def colour_bar(
    figure: Figure, axes: list[Axes], look: Look, image: ScalarMappable,
    span: tuple[float, float] | None, label: str,
) -> None:  # fmt: skip
    """The scale of the colours, in powers of ten; none if every value is zero."""
    if span is None:
        return
    bar = figure.colorbar(image, ax=axes, aspect=25, pad=0.02)
    ticks = decades(*span)
    bar.set_ticks([float(e) for e in ticks], labels=[power(look, e) for e in ticks])
    bar.set_label(label, fontsize=look.text)


def state_longest(look: Look, layout: Facets, frame: pd.DataFrame) -> tuple[list[str], str]:
    """Panel titles and a sentence that say which source length is shown."""
    titles = layout.titles(look.lang)
    shown = frame.groupby("panel")["source_length"].max()
    if shown.nunique() == 1:
        return titles, say(look.lang, "about_longest", length=int(shown.iloc[0]))
    for panel, length in shown.items():
        parts = [titles[int(str(panel))], say(look.lang, "longest", length=int(length))]
        titles[int(str(panel))] = " · ".join(part for part in parts if part)
    return titles, say(look.lang, "about_longest_varies")


def about_cells(look: Look, frame: pd.DataFrame, value: str, phrase: str, **more: str) -> list[str]:
    """What a cell and its colour are, in the words of `phrase`, and over how many seeds."""
    seeds = count_seeds(frame, value, log=True)
    if seeds == 1:
        centre = say(look.lang, "one_value")
        return [
            say(look.lang, phrase, centre=centre, seeds="", **more),
            say(look.lang, "seeds_one"),
        ]
    number = say(look.lang, "of_seeds", seeds=seeds)
    centre = say(look.lang, "geometric_mean")
    return [say(look.lang, phrase, centre=centre, seeds=number, **more)]


def cell_keys(look: Look, table: pd.DataFrame) -> list[Artist]:
    """Legend entries for cells without a colour, where there are any."""
    keys: list[Artist] = []
    if table["zero"].any():
        keys.append(Patch(facecolor=ZERO_COLOUR, label=say(look.lang, "zero_cell")))
    if (table["exponent"].isna() & ~table["zero"]).any():
        keys.append(key_empty(look))
    return keys


def key_empty(look: Look) -> Patch:
    """The legend entry of cells without a finite value."""
    label = say(look.lang, "empty_cell")
    return Patch(facecolor="white", edgecolor=GREY, hatch="////", label=label)
