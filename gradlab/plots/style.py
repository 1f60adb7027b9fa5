"""How figures look: sizes for a lecture hall and for a paper, fonts, and marks without colour."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, get_args

import matplotlib
import matplotlib.font_manager as fonts
import numpy as np
import seaborn as sns

from gradlab.plots.words import Language, say

StyleName = Literal["lecture", "paper"]
Color = tuple[float, float, float]
Dash = str | tuple[int, tuple[float, ...]]

HANGUL_FONTS = (
    "NanumGothic",
    "NanumBarunGothic",
    "Noto Sans CJK KR",
    "Noto Sans KR",
    "Noto Sans CJK JP",  # the face of the CJK collection that matplotlib reads, Hangul included
    "Malgun Gothic",
    "Apple SD Gothic Neo",
    "AppleGothic",
    "Pretendard",
    "Source Han Sans KR",
    "Source Han Sans K",
    "UnDotum",
    "Arial Unicode MS",
)
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "*", "p", "h")
DASHES: tuple[Dash, ...] = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (6, 1.5, 1.5, 1.5)))
INK = "#222222"
GREY = "#777777"


@dataclass(frozen=True)
class Look:
    """Sizes in points (fonts, lines, markers) and inches (panels), and the language in use."""

    lang: Language
    title: float
    heading: float
    text: float
    line: float
    thin: float
    marker: float
    width: float
    height: float
    panel_width: float
    panel_height: float
    dpi: int
    families: tuple[str, ...]


@dataclass(frozen=True)
class Mark:
    """What tells one line from another: colour, marker and dash, never colour alone."""

    color: Color
    marker: str
    dash: Dash = "-"
    hollow: bool = False


@functools.cache
def hangul_font() -> str | None:
    """The first installed font that has Hangul, or None."""
    installed = set(fonts.fontManager.get_font_names())
    for name in HANGUL_FONTS:
        if name in installed and ord("한") in fonts.get_font(fonts.findfont(name)).get_charmap():
            return name
    return None


@functools.cache
def warn_without_hangul() -> None:
    """Say once, not once a figure, that Korean has no font."""
    warnings.warn(say("en", "no_hangul"), UserWarning, stacklevel=5)


def choose_look(style: StyleName, lang: Language) -> Look:
    """The look of a figure; English instead of Korean where no font has Hangul."""
    if style not in get_args(StyleName) or lang not in get_args(Language):
        raise ValueError(
            f"expected style 'lecture' or 'paper' and lang 'en' or 'ko', found style {style!r}"
            f" and lang {lang!r}"
        )
    hangul = hangul_font()
    if lang == "ko" and hangul is None:
        warn_without_hangul()
        lang = "en"
    names = ("DejaVu Sans",) if hangul is None else ("DejaVu Sans", hangul)
    families = names[::-1] if lang == "ko" else names
    if style == "paper":
        return Look(lang, 9, 7.5, 7, 1.3, 0.5, 3.5, 7.2, 3.2, 1.75, 1.45, 200, families)
    return Look(lang, 22, 16, 14, 3.0, 1.1, 8.5, 13.33, 7.5, 3.45, 2.35, 100, families)


@contextmanager
def drawing(style: StyleName, lang: Language) -> Iterator[Look]:
    """Matplotlib's settings for one figure, whatever the user's are, put back afterwards."""
    look = choose_look(style, lang)
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        sns.set_style("whitegrid")
        matplotlib.rcParams.update(
            {
                "font.family": list(look.families),
                "font.size": look.text,
                "xtick.labelsize": look.text,
                "ytick.labelsize": look.text,
                "axes.titlesize": look.heading,
                "legend.fontsize": look.text,
                "legend.title_fontsize": look.text,
                "text.color": INK,
                "hatch.color": GREY,
                "hatch.linewidth": look.thin,
                "grid.color": "#dddddd",
                "axes.edgecolor": GREY,
            }
        )
        yield look


def sequential_marks(count: int) -> list[Mark]:
    """Marks for an ordered family such as lengths: dark to light, each with its own marker."""
    colours = sns.color_palette("viridis", as_cmap=True)(np.linspace(0.0, 0.85, max(count, 2)))
    return [
        Mark(
            (float(r), float(g), float(b)),
            MARKERS[i % len(MARKERS)],
            DASHES[i // len(MARKERS) % len(DASHES)],
        )
        for i, (r, g, b, _) in enumerate(colours[:count])
    ]


def categorical_marks(count: int) -> list[Mark]:
    """Marks for an unordered family such as models: colour, marker and dash all differ."""
    colours = sns.color_palette("colorblind", count)
    return [
        Mark(colour, MARKERS[i % len(MARKERS)], DASHES[i % len(DASHES)])
        for i, colour in enumerate(colours)
    ]
