"""A figure as a page: header, legend, grid of panels, axis labels and caption, none on another.

The page is laid out once, in inches, and then frozen, so that saving it twice gives equal bytes.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field

import matplotlib.font_manager as fonts
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.legend import Legend
from matplotlib.text import Text

from gradlab.plots.style import GREY, INK, Look

INCH = 72.0
LEADING = 1.28
SIDE_LEGEND = 0.2
"""A legend wider than this share of the figure goes above the panels instead of beside them."""


@dataclass
class Page:
    """The words around the panels; `finish` gives them their places."""

    title: str
    subtitle: str
    x_label: str
    y_label: str = ""
    legend_title: str = ""
    handles: Sequence[Artist] = ()
    caption: list[str] = field(default_factory=list)


def blank(
    look: Look, rows: int, columns: int, count: int, *, share_y: str = "all", share_x: str = "all"
) -> tuple[Figure, list[Axes]]:
    """An empty figure and its first `count` panels in reading order; the other cells are removed."""
    width = max(look.width, columns * look.panel_width + 0.16 * look.width)
    height = max(look.height, rows * look.panel_height + 0.32 * look.height)
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


def text_width(text: str, size: float) -> float:
    """A safe estimate of the width of a text in points: Hangul is as wide as it is high."""
    return sum(0.98 if unicodedata.east_asian_width(c) in "WF" else 0.585 for c in text) * size


def wrap(text: str, size: float, width: float, glue: str = " ") -> str:
    """Break a text at `glue` so that no line is wider than `width` points."""
    lines: list[str] = []
    for part in text.split(glue):
        if lines and text_width(lines[-1] + glue + part, size) <= width:
            lines[-1] += glue + part
        else:
            lines.append(part)
    return "\n".join(lines)


def set_titles(look: Look, axes: Sequence[Axes], titles: Sequence[str], columns: int) -> None:
    """A title over each panel, broken between its parts where a panel is narrow."""
    figure = axes[0].get_figure(root=True)
    assert figure is not None
    width = 0.82 * figure.get_figwidth() * INCH / columns
    size = look.heading if columns < 4 else look.text
    for axis, title in zip(axes, titles, strict=True):
        wrapped = wrap(wrap(title, size, width, " · "), size, width) if title else ""
        axis.set_title(literal(wrapped), fontsize=size, color=INK)


def note(look: Look, axis: Axes, text: str) -> None:
    """A sentence in the middle of a panel that has nothing to show."""
    axis.text(
        0.5, 0.5, text, transform=axis.transAxes, ha="center", va="center",
        fontsize=look.text, color=GREY, gid="note",
    )  # fmt: skip


def literal(text: str) -> str:
    """A user's words, in which a dollar is no mathematics."""
    return text.replace("$", r"\$")


def finish(figure: Figure, axes: Sequence[Axes], look: Look, page: Page) -> Figure:
    """Place everything around the panels, lay the panels out in what is left, and freeze."""
    width, height = figure.get_figwidth(), figure.get_figheight()
    pad = 0.6 * look.text / INCH
    line = {size: LEADING * size / INCH for size in (look.title, look.heading, look.text)}

    def write(x: float, y: float, text: str, size: float, **how: object) -> None:
        figure.text(x / width, y / height, literal(text), fontsize=size, **how)  # type: ignore[arg-type]

    usable = (width - 2 * pad) * INCH
    top = height - pad
    title = wrap(page.title, look.title * 1.08, usable)
    write(pad, top, title, look.title, va="top", weight="bold", gid="title")
    top -= line[look.title] * (1 + title.count("\n"))
    subtitle = wrap(page.subtitle, look.text, usable)
    write(pad, top, subtitle, look.text, va="top", color=GREY, gid="subtitle")
    top -= line[look.text] * (1.2 + subtitle.count("\n"))

    caption = wrap(" ".join(page.caption), look.text, usable)
    write(pad, pad, caption, look.text, va="bottom", color=INK, linespacing=1.2, gid="caption")
    bottom = pad + line[look.text] * (1.1 + caption.count("\n"))
    left = pad + (line[look.heading] if page.y_label else 0)

    right = width - pad
    if page.handles:
        side, box = place_legend(figure, page, pad, top)
        right, top = (right - box[0] - pad, top) if side else (right, top - box[1] - pad / 2)

    floor = bottom + line[look.heading]
    rect = (left / width, floor / height, (right - left) / width, (top - floor) / height)
    gap = 0.35 * look.text / INCH
    figure.set_layout_engine(ConstrainedLayoutEngine(rect=rect, w_pad=gap, h_pad=gap))
    figure.draw_without_rendering()
    figure.draw_without_rendering()
    figure.set_layout_engine("none")

    boxes = [axis.get_position() for axis in axes]
    middle_x = (min(b.x0 for b in boxes) + max(b.x1 for b in boxes)) / 2 * width
    middle_y = (min(b.y0 for b in boxes) + max(b.y1 for b in boxes)) / 2 * height
    write(middle_x, bottom, page.x_label, look.heading, ha="center", va="bottom", gid="x_label")
    if page.y_label:
        write(pad / 2, middle_y, page.y_label, look.heading, va="center", rotation=90, gid="y_label")
    replace_missing_glyphs(figure, look)
    return figure


def place_legend(
    figure: Figure, page: Page, pad: float, top: float
) -> tuple[bool, tuple[float, float]]:
    """The one legend: beside the panels if it is narrow, else above; its side and size in inches."""
    width, height = figure.get_figwidth(), figure.get_figheight()

    def draw(columns: int, x: float, corner: str) -> tuple[Legend, tuple[float, float]]:
        legend = figure.legend(
            handles=page.handles, title=page.legend_title or None, loc=corner, ncols=columns,
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


def replace_missing_glyphs(figure: Figure, look: Look) -> None:
    """Print "?" for a character that no chosen font has, rather than a box and a warning."""
    known: set[int] = {ord("\n")}
    for family in look.families:
        known |= set(fonts.get_font(fonts.findfont(family)).get_charmap())
    for artist in figure.findobj(Text):
        assert isinstance(artist, Text)
        text = artist.get_text()
        if any(ord(c) not in known for c in text):
            artist.set_text("".join(c if ord(c) in known else "?" for c in text))
