"""Signed shares of the gradient by path: bridge, values and keys."""

from __future__ import annotations

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MultipleLocator

from gradlab.errors import NothingToPlotError
from gradlab.plots import caption
from gradlab.plots.aggregate import at_stages, longest, one_per_seed, over_seeds, stages_of, usable
from gradlab.plots.canvas import Page, blank, finish
from gradlab.plots.facets import Facets, facets, varying_keys
from gradlab.plots.gradients import explain_empty, name_only_stage
from gradlab.plots.heatmap import state_longest
from gradlab.plots.lines import draw_line, key_line
from gradlab.plots.results import Results
from gradlab.plots.style import GREY, INK, Look, Mark, StyleName, categorical_marks, drawing
from gradlab.plots.words import Language, say

PATHS = ("bridge", "values", "keys")
MARKS: dict[str, Mark] = dict(zip(PATHS, categorical_marks(3), strict=True))
CANCELLATION_LIMIT = 3
WIDEST = (-3.0, 4.0)
"""Shares outside are marked at the edge: where parts cancel they can be arbitrarily large."""


def path_shares(results: Results, *, style: StyleName = "lecture", lang: Language = "en") -> Figure:
    """Signed shares of bridge, values and keys in the total gradient against source timestep.

    Shares may be negative or above one; timesteps where the paths cancel are hatched.
    """
    frame = path_rows(results)
    points = stages_of(results.runs)
    stage = ["stage"] if points["stage"].nunique() > 1 else []
    layout = facets(points, [*varying_keys(results.runs, frame), *stage])
    frame = longest(layout.locate(frame), "panel")
    frame = one_per_seed(frame, ["panel", "path", "position"])
    cancelling = cancelled(frame)
    frame = frame[frame["path"].isin(PATHS)]
    with drawing(style, lang) as look:
        figure, axes = blank(look, layout.rows, layout.columns, len(layout.panels))
        counts, beyond = share_panels(axes, look, layout, frame, cancelling)
        titles, sentence = state_longest(look, layout, frame)
        titles = name_only_stage(look, titles, points)
        examples = caption.examples(look.lang, results.runs)
        hatch = say(look.lang, "about_hatch", limit=CANCELLATION_LIMIT)
        page = Page(
            say(look.lang, "path_shares"),
            caption.subtitle(look.lang, results.scenario.title, results.runs, frame),
            titles,
            say(look.lang, "timestep"),
            say(look.lang, "share"),
            handles=share_keys(look, frame, results.runs, hatched=not cancelling.empty),
            caption=[
                say(look.lang, "about_shares", examples=examples),
                *([hatch] if not cancelling.empty else []),
                caption.reduction(look.lang, results.runs),
                *caption.lstm(look.lang, results.runs),
                sentence,
                *caption.seeds(look.lang, counts, log=False),
                *([say(look.lang, "beyond", count=beyond)] if beyond else []),
                *caption.nonfinite(look.lang, frame, "share", results.runs),
                *caption.statuses(look.lang, results.runs, "runs_diverged_later"),
            ],
        )
        return finish(figure, axes, look, page)


def path_rows(results: Results) -> pd.DataFrame:
    """The rows of the paths, and of their total, that exist in a model, for state h."""
    table = results.gradients
    if not table.empty:
        table = at_stages(table[table["state"] == "h"])
        table = table[table["path"].isin([*PATHS, "total"])]
        missing = (table["path"] != "total") & (table["zeros"] == table["examples"])
        structural = missing.groupby([table["run_id"], table["path"]]).transform("all")
        table = table[~structural]
    if table.empty or not table["path"].isin(PATHS).any():
        raise NothingToPlotError(
            "path_shares needs rows for the paths bridge, values or keys in the table gradients,"
            " found none: record.paths is false in this sweep, or no run of it is finished"
        )
    return table


def cancelled(frame: pd.DataFrame) -> pd.DataFrame:
    """The panels and positions where the median over seeds of `cancellation` is above the limit."""
    total = frame[(frame["path"] == "total") & usable(frame["cancellation"], log=False)]
    median = total.groupby(["panel", "position"])["cancellation"].median().reset_index()
    return median[median["cancellation"] > CANCELLATION_LIMIT]


def share_panels(
    axes: list[Axes], look: Look, layout: Facets, frame: pd.DataFrame, cancelling: pd.DataFrame
) -> tuple[list[int], int]:
    """Draw each panel; returns the seeds of each line and how many points lie beyond the axis."""
    low, high = share_limits(frame)
    counts, beyond = [], 0
    for panel, (axis, rows) in enumerate(zip(axes, layout.split(frame), strict=True)):
        axis.set_ylim(low, high)
        label_shares(axis, look, high - low)
        for level in (0, 1):
            axis.axhline(level, color=INK, lw=look.thin, zorder=1.5, label="reference")
        for position in cancelling.loc[cancelling["panel"] == panel, "position"]:
            axis.axvspan(
                position - 0.5, position + 0.5, facecolor="#eeeeee", edgecolor="#b5b5b5",
                hatch="//", lw=0, zorder=0.5, label="cancels",
            )  # fmt: skip
        for place, path in enumerate(PATHS):
            line = rows[rows["path"] == path]
            counts.append(
                draw_line(
                    axis, look, line, "position", "share", MARKS[path], label=path, place=place
                )
            )
            beyond += mark_beyond(axis, look, line, MARKS[path], (low, high))
        explain_empty(axis, look, rows, "share")
    return counts, beyond


def share_limits(frame: pd.DataFrame) -> tuple[float, float]:
    """Limits that show 0 and 1 with room around, and every share within reason."""
    shares = frame.loc[usable(frame["share"], log=False), "share"]
    low = max(min(shares.min(), 0.0), WIDEST[0]) if len(shares) else 0.0
    high = min(max(shares.max(), 1.0), WIDEST[1]) if len(shares) else 1.0
    margin = 0.1 * (high - low)
    return float(low - margin), float(high + margin)


def label_shares(axis: Axes, look: Look, span: float) -> None:
    """Ticks that include 0 and 1, negative ones with a minus that the font has."""
    minus = "-" if look.lang == "ko" else "−"
    axis.yaxis.set_major_locator(MultipleLocator(0.5 if span < 2.6 else 1.0))
    axis.yaxis.set_major_formatter(lambda share, _: f"{share:g}".replace("-", minus))


def mark_beyond(
    axis: Axes, look: Look, line: pd.DataFrame, mark: Mark, limits: tuple[float, float]
) -> int:
    """Triangles at the edge where a line leaves the axis; returns how many."""
    if line.empty:
        return 0
    table = over_seeds(line, ["position"], "share", log=False)
    count = 0
    for shape, height, out in (
        ("v", 0.025, table["centre"] < limits[0]),
        ("^", 0.975, table["centre"] > limits[1]),
    ):
        if out.any():
            axis.plot(
                table.loc[out, "position"], [height] * int(out.sum()), ls="", marker=shape,
                transform=axis.get_xaxis_transform(), color=mark.color, ms=0.8 * look.marker,
                label="beyond",
            )  # fmt: skip
            count += int(out.sum())
    return count


def share_keys(
    look: Look, frame: pd.DataFrame, runs: pd.DataFrame, *, hatched: bool
) -> list[Artist]:
    """Legend entries of the paths that exist, and of the hatching if there is any."""
    mean_bridge = (runs["model.bridge"] == "mean").any()
    names = {
        "bridge": "bridge_mean" if mean_bridge else "bridge",
        "values": "values",
        "keys": "keys",
    }
    keys: list[Artist] = [
        key_line(look, MARKS[path], say(look.lang, names[path]))
        for path in PATHS
        if (frame["path"] == path).any()
    ]
    if hatched:
        label = say(look.lang, "hatched")
        keys.append(Patch(facecolor="#eeeeee", edgecolor=GREY, hatch="//", lw=0, label=label))
    return keys
