"""Pairs of panels that belong together, side by side, and never broken over two rows."""

from __future__ import annotations

from collections.abc import Iterable

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gradlab.plots.canvas import blank
from gradlab.plots.facets import MOST_COLUMNS, grid_cost
from gradlab.plots.style import Look

MISALIGNED = 0.2
"""How much worse a grid is whose rows do not hold all stages of one model."""


def pairs_across(count: int, stages: int) -> int:
    """How many of `count` pairs stand side by side, so that the figure is landscape."""

    def cost(across: int) -> float:
        rows = -(-count // across)
        return grid_cost(2 * across * rows, 2 * across) + MISALIGNED * (across % stages > 0)

    return min(range(1, min(count, MOST_COLUMNS // 2) + 1), key=cost)


def blank_pairs(
    look: Look, count: int, stages: int, *, share_x: str, share_y: str
) -> tuple[Figure, list[tuple[Axes, Axes]]]:
    """An empty figure with `count` pairs of panels in reading order."""
    across = pairs_across(count, stages)
    rows = -(-count // across)
    figure, axes = blank(look, rows, 2 * across, 2 * count, share_x=share_x, share_y=share_y)
    return figure, list(zip(axes[::2], axes[1::2], strict=True))


def pair_titles(names: Iterable[str], left: str, right: str) -> list[str]:
    """The titles of all panels: what a pair is about, and what each half shows."""
    return [
        " · ".join(part for part in (name, half) if part)
        for name in names
        for half in (left, right)
    ]
