"""Pairs of panels that belong together, side by side, and never broken over two rows."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gradlab.plots.canvas import blank
from gradlab.plots.facets import MOST_COLUMNS, Facets, distinct, grid_cost
from gradlab.plots.style import Look

MISALIGNED = 0.2
"""How much worse a grid is whose rows do not hold all stages of one model."""


def pairs_across(count: int, stages: int) -> int:
    """How many of `count` pairs stand side by side, so that the figure is landscape."""

    def cost(across: int) -> float:
        rows = -(-count // across)
        return grid_cost(2 * across * rows, 2 * across) + MISALIGNED * (across % stages > 0)

    return min(range(1, min(count, MOST_COLUMNS // 2) + 1), key=cost)


def pair_layout(points: pd.DataFrame, keys: list[str]) -> Facets:
    """One pair a combination of `keys` that exists, the last key changing fastest."""
    panels, stages = distinct(points, keys), points["stage"].nunique()
    return Facets(tuple(keys), tuple(panels), pairs_across(len(panels), stages))


def blank_pairs(
    look: Look, layout: Facets, *, share_x: str, share_y: str
) -> tuple[Figure, list[tuple[Axes, Axes]]]:
    """An empty figure with a pair of panels for each of the layout, in reading order."""
    columns, count = 2 * layout.columns, 2 * len(layout.panels)
    figure, axes = blank(
        look, layout.rows, columns, count, share_x=share_x, share_y=share_y, taller=1.5
    )
    return figure, list(zip(axes[::2], axes[1::2], strict=True))


def pair_titles(names: Iterable[str], left: str, right: str) -> list[str]:
    """The titles of all panels: what a pair is about, and what each half shows."""
    return [
        " · ".join(part for part in (name, half) if part)
        for name in names
        for half in (left, right)
    ]
