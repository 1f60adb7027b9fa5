"""Titles over panels, and what the panels of a row share beside the row instead."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes

from gradlab.plots.lettering import INCH, literal, printable, wrap
from gradlab.plots.style import INK, Look

MOST_LINES = 2
"""Titles that need more lines than this leave what a row shares to a label beside it."""
DOT = " · "


def set_titles(look: Look, axes: Sequence[Axes], titles: Sequence[str], *, by_row: bool) -> None:
    """A title over each panel; in a grid with crowded titles, labels beside its rows as well.

    `by_row` asks for the labels even where the titles have room.
    """
    width = inches(axes)[0]
    lines = break_titles(look, titles, width)
    shared = shared_by_rows(axes, titles)
    if shared and (by_row or max(map(len, lines)) > MOST_LINES):
        label_rows(look, axes, shared)
        panels = [(row_of(a), column_of(a)) for a in axes]
        own = [without(t, shared[row]) for t, (row, _) in zip(titles, panels, strict=True)]
        lines = break_titles(look, own, width)
        first = min(row for row, _ in panels)
        top = {column: t for t, (row, column) in zip(own, panels, strict=True) if row == first}
        if all(top.get(column) == t for t, (_, column) in zip(own, panels, strict=True)):
            lines = [t if row == first else [] for t, (row, _) in zip(lines, panels, strict=True)]
    size = size_of(look, width)
    for axis, parts in zip(axes, lines, strict=True):
        axis.set_title(literal(printable(look, "\n".join(parts))), fontsize=size, color=INK)


def inches(axes: Sequence[Axes]) -> tuple[float, float]:
    """The smallest width and height of the panels, as they are laid out now."""
    figure = axes[0].get_figure(root=True)
    assert figure is not None
    boxes = [axis.get_position() for axis in axes]
    width, height = min(box.width for box in boxes), min(box.height for box in boxes)
    return width * figure.get_figwidth(), height * figure.get_figheight()


def size_of(look: Look, width: float) -> float:
    """Points: as large as a heading where panels are wide."""
    return look.heading if width > 3.5 * look.heading / 16 else look.text


def break_titles(look: Look, titles: Sequence[str], width: float) -> list[list[str]]:
    """The lines of each title, `width` inches wide, broken between its parts where it must be."""
    size = size_of(look, width)
    split = [wrap(look, title, size, width * INCH, DOT).split("\n") for title in titles]
    if any(len(parts) > 1 for parts in split) and all(DOT in title for title in titles):
        split = [title.rsplit(DOT, 1) for title in titles]  # the same break everywhere
    return [[line for part in parts for line in fit(look, part, size, width)] for parts in split]


def fit(look: Look, text: str, size: float, width: float) -> list[str]:
    """Lines of at most `width` inches, broken between parts, or words, or at hyphens if needed."""
    parts = wrap(look, text, size, width * INCH, DOT).split("\n")
    words = [line for part in parts for line in wrap(look, part, size, width * INCH).split("\n")]
    broken = [wrap(look, word, size, width * INCH, "-").replace("\n", "-\n") for word in words]
    return [line for word in broken for line in word.split("\n")]


def row_of(axis: Axes) -> int:
    """The row of the grid that a panel stands in, 0 where there is no grid."""
    spec = axis.get_subplotspec()
    return 0 if spec is None else int(spec.rowspan.start)


def column_of(axis: Axes) -> int:
    """The column of the grid that a panel stands in, 0 where there is no grid."""
    spec = axis.get_subplotspec()
    return 0 if spec is None else int(spec.colspan.start)


def shared_by_rows(axes: Sequence[Axes], titles: Sequence[str]) -> dict[int, list[str]]:
    """The parts that the titles of each row share, and not all others; none if a row has none."""
    rows: dict[int, list[list[str]]] = {}
    for axis, title in zip(axes, titles, strict=True):
        rows.setdefault(row_of(axis), []).append(title.split(DOT))
    everywhere = set.intersection(*(set(parts) for found in rows.values() for parts in found))
    shared = {
        row: [p for p in parts[0] if p not in everywhere and all(p in other for other in parts)]
        for row, parts in rows.items()
    }
    whole = any(set(parts) <= set(shared[row]) for row, found in rows.items() for parts in found)
    return {} if whole or not all(shared.values()) else shared


def without(title: str, parts: Sequence[str]) -> str:
    """A title less the parts that stand beside its row."""
    return DOT.join(part for part in title.split(DOT) if part not in parts)


def label_rows(look: Look, axes: Sequence[Axes], shared: dict[int, list[str]]) -> None:
    """Upright words at the left of each row, beside its first panel."""
    height = inches(axes)[1]
    for axis in axes:
        if column_of(axis) == 0:
            words = "\n".join(fit(look, DOT.join(shared[row_of(axis)]), look.text, height))
            axis.set_ylabel(literal(printable(look, words)), fontsize=look.text, color=INK)
            axis.yaxis.label.set_gid("row_label")
