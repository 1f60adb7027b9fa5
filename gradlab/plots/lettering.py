"""Lettering: how wide words are, where lines break, and which characters a font has."""

from __future__ import annotations

import functools

import matplotlib.font_manager as fonts
from matplotlib.ft2font import FT2Font

from gradlab.plots.style import Look

INCH = 72.0


@functools.cache
def open_font(family: str) -> FT2Font:
    """A font of our own to measure with; matplotlib's are shared and have a size set."""
    font = FT2Font(fonts.findfont(family))
    font.set_size(100, INCH)
    return font


@functools.cache
def advance(character: str, families: tuple[str, ...]) -> float:
    """How far a character moves the pen, in ems, in the first font that has it; 0 if none."""
    for font in map(open_font, families):
        if ord(character) in font.get_charmap():
            return float(font.load_char(ord(character)).linearHoriAdvance) / 65536 / 100
    return 0.0


def wrap(look: Look, text: str, size: float, width: float, glue: str = " ") -> str:
    """Break a text at `glue` so that no line is wider than `width` points, where it can be."""
    lines: list[str] = []
    for part in text.split(glue):
        longer = lines[-1] + glue + part if lines else part
        if lines and sum(advance(c, look.families) for c in longer) * size <= width:
            lines[-1] = longer
        else:
            lines.append(part)
    return "\n".join(lines)


def literal(text: str) -> str:
    """A user's words, in which a dollar is no mathematics."""
    return text.replace("$", r"\$")


def printable(look: Look, text: str) -> str:
    """The text with "?" for a character that no chosen font has, not a box and a warning."""
    return "".join(c if c == "\n" or advance(c, look.families) else "?" for c in text)
