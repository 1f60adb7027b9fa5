"""A figure as a page: header, legend, grid of panels, axis labels and caption, none on another.

The page is laid out once, in inches, and then frozen, so that saving it twice gives equal bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.legend import Legend
from matplotlib.ticker import FixedLocator

from gradlab.plots.lettering import INCH, literal, printable, wrap
from gradlab.plots.style import GREY, INK, Look
from gradlab.plots.titles import set_titles

LEADING = 1.28
SIDE_LEGEND = 0.2
"""A legend wider than this share of the figure goes above the panels instead of beside them."""


@dataclass
class Page:
    """The words around the panels; `finish` gives them their places."""

    title: str
    subtitle: str
    titles: Sequence[str]
    x_label: str = ""
    y_label: str = ""
    legend_title: str = ""
    handles: Sequence[Artist] = ()
    caption: list[str] = field(default_factory=list)
    by_row: bool = False
    """Name beside each row what all its panels share, even where titles have room for it."""


def blank(
    look: Look, rows: int, columns: int, count: int, *, share_y: str = "all", share_x: str = "all",
    taller: float = 1.0,
) -> tuple[Figure, list[Axes]]:  # fmt: skip
    """An empty figure with `count` panels in reading order; the cells left over are removed.

    `taller` stretches the panels, as far as the figure stays landscape, or squeezes them.
    """
    width = max(look.width, columns * look.panel_width + 0.16 * look.width)
    height = max(look.height, rows * min(taller, 1) * look.panel_height + 0.32 * look.height)
    height = max(height, min(rows * taller * look.panel_height + 0.32 * look.height, 0.8 * width))
    figure = Figure(figsize=(width, max(height, 0.5 * width)), dpi=look.dpi)
    FigureCanvasAgg(figure)
    grid = figure.subplots(rows, columns, sharex=share_x, sharey=share_y, squeeze=False)  # type: ignore[call-overload]
    axes: list[Axes] = list(grid.flat)
    for axis in axes[count:]:
        axis.remove()
    for axis in axes[max(0, count - columns) : count]:
        axis.tick_params(labelbottom=True)
    for axis in axes[:count]:
        axis.spines[["top", "right"]].set_visible(False)
    return figure, axes[:count]


def note(look: Look, axis: Axes, text: str) -> None:
    """A sentence in the middle of a panel that has nothing to show."""
    axis.text(
        0.5, 0.5, text, transform=axis.transAxes, ha="center", va="center",
        fontsize=look.text, color=GREY, gid="note",
    )  # fmt: skip


def finish(figure: Figure, axes: Sequence[Axes], look: Look, page: Page) -> Figure:
    """Place everything around the panels, lay the panels out in what is left, and freeze."""
    width, height = figure.get_figwidth(), figure.get_figheight()
    pad = 0.6 * look.text / INCH
    line = LEADING * look.heading / INCH
    top, bottom = write_words(figure, look, page, pad)
    left = pad + (line + pad / 2 if page.y_label else 0)

    right = width - pad
    for handle in page.handles:
        handle.set_label(literal(printable(look, str(handle.get_label()))))
    if page.handles:
        side, box = place_legend(figure, page, pad, top)
        right, top = (right - box[0] - pad, top) if side else (right, top - box[1] - pad / 2)

    floor = bottom + (line if page.x_label else pad / 2)
    rect = (left / width, floor / height, (right - left) / width, (top - floor) / height)
    gap = 0.35 * look.text / INCH
    engine = ConstrainedLayoutEngine(rect=rect, w_pad=gap, h_pad=gap)
    engine.execute(figure)
    set_titles(look, axes, page.titles, by_row=page.by_row)
    engine.execute(figure)  # it solves twice, since ticks follow the size of the panels
    freeze(figure)

    write_axis_labels(figure, axes, look, page, bottom)
    return figure


def write_words(figure: Figure, look: Look, page: Page, pad: float) -> tuple[float, float]:
    """Title and subtitle at the top, caption at the bottom; the heights in inches between them."""
    usable = (figure.get_figwidth() - 2 * pad) * INCH
    leading = LEADING / INCH
    top = figure.get_figheight() - pad
    title = wrap(look, page.title, look.title * 1.12, usable)
    write(figure, look, pad, top, title, look.title, va="top", weight="bold", gid="title")
    top -= leading * look.title * (1 + title.count("\n"))
    subtitle = wrap(look, page.subtitle, look.text, usable)
    write(figure, look, pad, top, subtitle, look.text, va="top", color=GREY, gid="subtitle")
    top -= leading * look.text * (1.2 + subtitle.count("\n"))

    caption = wrap(look, " ".join(page.caption), look.text, usable)
    below: dict[str, Any] = {"va": "bottom", "color": INK, "linespacing": 1.2, "gid": "caption"}
    write(figure, look, pad, pad, caption, look.text, **below)
    return top, pad + leading * look.text * (1.1 + caption.count("\n"))


def write(
    figure: Figure, look: Look, x: float, y: float, text: str, size: float, **how: Any
) -> None:
    """A text at a place in inches."""
    words = literal(printable(look, text))
    figure.text(x / figure.get_figwidth(), y / figure.get_figheight(), words, fontsize=size, **how)


def write_axis_labels(
    figure: Figure, axes: Sequence[Axes], look: Look, page: Page, bottom: float
) -> None:
    """One label for all panels along each side, in the middle of them."""
    boxes = [axis.get_position() for axis in axes]
    x = (min(b.x0 for b in boxes) + max(b.x1 for b in boxes)) / 2 * figure.get_figwidth()
    y = (min(b.y0 for b in boxes) + max(b.y1 for b in boxes)) / 2 * figure.get_figheight()
    side: dict[str, Any] = {"va": "bottom", "ha": "center", "gid": "x_label"}
    write(figure, look, x, bottom, page.x_label, look.heading, **side)
    side = {"va": "center", "rotation": 90, "gid": "y_label"}
    write(figure, look, 0.3 * look.text / INCH, y, page.y_label, look.heading, **side)


def freeze(figure: Figure) -> None:
    """Keep places and ticks as they are; the layout solver's last digits differ between runs."""
    figure.set_layout_engine("none")
    for axis in figure.axes:
        for scale in (axis.xaxis, axis.yaxis):
            scale.set_major_locator(FixedLocator(list(scale.get_majorticklocs())))
        left, low, wide, high = axis.get_position().bounds
        axis.set_position((round(left, 4), round(low, 4), round(wide, 4), round(high, 4)))


def place_legend(
    figure: Figure, page: Page, pad: float, top: float
) -> tuple[bool, tuple[float, float]]:
    """The one legend, beside the panels if narrow, else above; which, and its size in inches."""
    width, height = figure.get_figwidth(), figure.get_figheight()

    def draw(
        columns: int, x: float, corner: Literal["upper left", "upper right"]
    ) -> tuple[Legend, tuple[float, float]]:
        legend = figure.legend(
            handles=list(page.handles),
            title=page.legend_title or None, loc=corner, ncols=columns,
            bbox_to_anchor=(x / width, top / height), frameon=False, borderaxespad=0, borderpad=0.1,
            handlelength=2.4, columnspacing=1.4, alignment="left",
        )  # fmt: skip
        extent = legend.get_window_extent(figure.canvas.get_renderer())  # type: ignore[attr-defined]
        return legend, (extent.width / figure.dpi, extent.height / figure.dpi)

    legend, size = draw(1, width - pad, "upper right")
    if size[0] <= SIDE_LEGEND * width:
        return True, size
    for columns in range(len(page.handles), 0, -1):
        legend.remove()
        legend, size = draw(columns, pad, "upper left")
        if size[0] <= width - 2 * pad:
            break
    return False, size
