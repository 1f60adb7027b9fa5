"""Axes of attention: symbols of an example as ticks, and the path that its task asks for."""

from __future__ import annotations

import math

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from gradlab.plots.lettering import INCH
from gradlab.plots.lines import whole_steps
from gradlab.plots.style import Dash, Look
from gradlab.plots.words import Language, describe, say

IDEAL_COLOUR = "#4cc9f0"
"""Told from every colour of the weights, dark or bright."""
IDEAL_DASH: Dash = (0, (4, 3))
DIGITS, LETTERS = 10, 26
BLANK = "_"


def thinning(look: Look, axis: Axes, rows: pd.DataFrame) -> int:
    """How many steps lie between two symbols that are written, so that they have room."""
    figure = axis.get_figure(root=True)
    assert figure is not None
    box = axis.get_position()
    side = min(box.width * figure.get_figwidth(), box.height * figure.get_figheight()) * INCH
    wide = max([1, *(len(name) for name in names_of(rows, "source_symbol"))])
    steps = max([1, *map(int, rows["position"]), *map(int, rows["target_position"])])
    return math.ceil(steps * look.text * max(1.15, 0.75 * wide + 0.2) / side)


def names_of(rows: pd.DataFrame, column: str) -> list[str]:
    """The name of each symbol: a digit, a letter where there are more than ten, or its number."""
    return [name(s, v) for s, v in zip(rows[column], rows["task.symbols"], strict=True)]


def name(symbol: int, symbols: int) -> str:
    """One symbol of an alphabet of `symbols`; what is none of them is a blank."""
    if symbol >= symbols:
        return BLANK
    return chr(ord("a") + int(symbol)) if DIGITS < symbols <= LETTERS else str(int(symbol))


def label_symbols(axis: Axes, rows: pd.DataFrame, every: int) -> None:
    """The example's source symbols below and its target symbols at the left, thinned out."""
    for scale, step, symbol in (
        (axis.xaxis, "position", "source_symbol"),
        (axis.yaxis, "target_position", "target_symbol"),
    ):
        own = rows.drop_duplicates(step).sort_values(step)
        own = own[(own[step] - 1) % every == 0]
        scale.set_ticks([float(at) for at in own[step]], labels=names_of(own, symbol))
    axis.tick_params(labelbottom=True, labelleft=True)


def label_steps(axis: Axes) -> None:
    """Whole numbers along both axes."""
    whole_steps(axis)
    axis.yaxis.set_major_locator(MaxNLocator(6, integer=True))
    axis.tick_params(labelbottom=True, labelleft=True)


def runs_down(rows: pd.DataFrame) -> pd.Series:
    """Whether target step j is symbol j of the source as read (else n + 1 - j), for each row."""
    turned = pd.Series(False, rows.index)
    if "task.reverse_source" in rows:
        turned = rows["task.reverse_source"].map(lambda value: value is True or value == 1)
    return (rows["task.name"] == "copy") != turned


def draw_ideal(axis: Axes, look: Look, rows: pd.DataFrame) -> None:
    """A thin dashed line through the cells in which the symbol to be written stands."""
    if rows.empty:
        return
    n, k = int(rows["source_length"].iloc[0]), int(rows["target_position"].max())
    targets = list(range(1, min(n, k) + 1))
    down = bool(runs_down(rows).iloc[0])
    sources = targets if down else [n + 1 - j for j in targets]
    axis.plot(
        sources, targets, color=IDEAL_COLOUR, ls=IDEAL_DASH, lw=look.thin, label="ideal", zorder=3,
    )  # fmt: skip


def name_ideal(lang: Language, rows: pd.DataFrame) -> list[str]:
    """Which path the dashed line is, for each task where that differs."""
    tasks = rows.assign(down=runs_down(rows)).drop_duplicates(["task.name", "down"])
    paths = {True: say(lang, "diagonal"), False: say(lang, "antidiagonal")}
    if tasks["down"].nunique() == 1:
        return [say(lang, "about_ideal", paths=paths[bool(tasks["down"].iloc[0])])]
    if not tasks["task.name"].is_unique:
        return [say(lang, "about_ideal", paths=say(lang, "either_diagonal"))]
    named = [
        say(lang, "ideal_of", path=paths[bool(down)], task=describe(lang, "task.name", task))
        for task, down in zip(tasks["task.name"], tasks["down"], strict=True)
    ]
    return [say(lang, "about_ideal", paths=", ".join(named))]


def about_symbols(lang: Language, rows: pd.DataFrame, every: int) -> list[str]:
    """How symbols are written, where that is not plain."""
    letters = rows["task.symbols"].between(DIGITS + 1, LETTERS).any()
    blanks = (rows["source_symbol"] >= rows["task.symbols"]).any()
    return [
        *([say(lang, "letters")] if letters else []),
        *([say(lang, "blanks")] if blanks else []),
        *([say(lang, "thinned", every=every)] if every > 1 else []),
    ]
