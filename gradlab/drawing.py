"""The figures of a sweep, drawn into a directory; what is not drawn is told, with the reason."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gradlab.errors import NothingToPlotError, StoreError
from gradlab.progress import counted, say

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from gradlab.lab.results import Results
    from gradlab.plots.style import StyleName
    from gradlab.plots.words import Language

# As in plots.FIGURES, which takes seconds to import.
FIGURE_NAMES = (
    "gradient_decay",
    "gradient_heatmap",
    "path_shares",
    "path_length",
    "hops",
    "gradient_map",
    "attention_weights",
    "half_life",
    "lyapunov",
    "bottleneck",
    "accuracy_by_position",
    "training",
)
ON_REQUEST = {"hops": "record.hops", "gradient_map": "record.map", "lyapunov": "record.jacobians"}


def draw(
    results: Results,
    names: tuple[str, ...],
    formats: tuple[str, ...],
    style: StyleName,
    lang: Language,
    to: Path,
    *,
    strict: bool,
) -> int:
    """Draw figures into a directory and print their paths; return how many were drawn.

    A figure that the tables do not allow is named with the reason, or raised if `strict`.
    """
    for remark in remarks(results):
        say(remark)
    drawn = 0
    for name in names:
        try:
            figure = one_figure(results, name, style, lang)
        except NothingToPlotError as error:
            if strict:
                raise
            say(f"{name}: not drawn: {error}")
            continue
        for ending in formats:
            click.echo(save(figure, to / f"{name}.{ending}"))
        drawn += 1
    return drawn


def recorded(results: Results, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the figures whose tables the sweep asks for; name the others in one line."""
    asked = results.runs
    without = [name for name in names if name in ON_REQUEST and not asked[ON_REQUEST[name]].any()]
    if without:
        told = ", ".join(f"{name} ({ON_REQUEST[name]})" for name in without)
        say(f"not drawn, since not recorded: {told}")
    return tuple(name for name in names if name not in without)


def remarks(results: Results) -> list[str]:
    """Return what a reader of the figures must know about the runs behind them."""
    total = results.runs["run_id"].nunique()
    found = []
    if missing := results.count("missing"):
        found.append(f"{missing} of {counted(total, 'run')} missing from {results.out}")
    if diverged := results.count("diverged"):
        found.append(
            f"{diverged} of {counted(total, 'run')} diverged: the loss is no longer finite"
        )
    if others := results.others:
        found.append(f"{counted(others, 'run')} of other sweeps in {results.out}, not drawn")
    return found


def one_figure(results: Results, name: str, style: StyleName, lang: Language) -> Figure:
    """Draw one figure; its warnings become messages."""
    from gradlab import plots

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            return plots.FIGURES[name](results, style=style, lang=lang)
        finally:
            for message in dict.fromkeys(str(warning.message) for warning in caught):
                say(f"{name}: {message}")


def save(figure: Figure, path: Path) -> Path:
    """Save one figure. Raises StoreError where that cannot be written."""
    from gradlab import plots

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        plots.save(figure, path)
    except OSError as error:
        raise StoreError(f"{path}: cannot be written ({error.strerror})") from error
    return path
