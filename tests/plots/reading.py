"""What a test reads off a figure: words by their place, lines by their label, and their data."""

from __future__ import annotations

import copy
import functools

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text
from synthetic import Synthetic, make

MODELS = {"model.attention": ["none", "additive"], "task.name": ["copy", "reverse"]}


def small(seeds: int = 2) -> Synthetic:
    """A sweep of two models, two tasks and two lengths, to change at will."""
    return copy.deepcopy(made_small(seeds))


@functools.cache
def made_small(seeds: int) -> Synthetic:
    return make({**MODELS, "task.length": [5, 10]}, seeds=seeds, steps=(0, 300, 600))


def texts(figure: Figure, gid: str) -> list[str]:
    found = figure.findobj(lambda artist: artist.get_gid() == gid)
    return [artist.get_text() for artist in found if isinstance(artist, Text)]


def caption(figure: Figure) -> str:
    return " ".join(texts(figure, "caption")).replace("\n", " ")


def panel(figure: Figure, *words: str) -> Axes:
    """The only panel that is called exactly this, wherever its lines are broken."""
    wanted = sorted(" ".join(words).split())
    found = [a for a in figure.axes if sorted(name(figure, a).split()) == wanted]
    assert len(found) == 1, [name(figure, a) for a in figure.axes]
    return found[0]


def name(figure: Figure, axis: Axes) -> str:
    """The title of a panel, or of its column, and the label beside its row, without dots."""
    spec = axis.get_subplotspec()
    if spec is None:
        return axis.get_title()
    grid = [(other, s) for other in figure.axes if (s := other.get_subplotspec())]
    column = [a for a, s in grid if s.colspan.start == spec.colspan.start]
    row = [a for a, s in grid if s.rowspan.start == spec.rowspan.start]
    title = axis.get_title() or column[0].get_title()
    labels = [a.get_ylabel() for a in row if a.yaxis.label.get_gid() == "row_label"]
    return " ".join([title, *labels]).replace("·", " ")


def lines(axis: Axes, label: str) -> list[Line2D]:
    return [line for line in axis.lines if line.get_label() == label]


def xs(line: Line2D) -> list[float]:
    return [float(x) for x in np.asarray(line.get_xdata(), dtype=float)]


def ys(line: Line2D) -> list[float]:
    return [float(y) for y in np.asarray(line.get_ydata(), dtype=float)]


def legend(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]
