"""Figures to files whose bytes depend on the figure alone."""

from __future__ import annotations

from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

NO_TRACES: dict[str, dict[str, None]] = {
    ".svg": {"Date": None, "Creator": None},
    ".png": {"Software": None},
    ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
"""Metadata to leave out: dates and software versions."""


def save(figure: Figure, path: Path | str) -> Path:
    """Write a figure as svg, png or pdf, by the path's suffix; equal figures give equal bytes.

    Text in an svg is drawn as outlines, so that it looks the same without the fonts.
    """
    path = Path(path)
    if path.suffix not in NO_TRACES:
        raise ValueError(f"expected a path ending in .svg, .png or .pdf, found {str(path)!r}")
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams["svg.hashsalt"] = "gradlab"
        figure.savefig(path, dpi=figure.dpi, metadata=NO_TRACES[path.suffix])
    return path
