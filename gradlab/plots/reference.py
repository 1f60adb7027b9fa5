"""The path lengths that people quote, n + k among them, where they are exactly true."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from gradlab.plots.aggregate import target_lengths
from gradlab.plots.states import BACKWARD, LAYER
from gradlab.plots.style import INK, Dash, Look
from gradlab.plots.words import Language, say

REFERENCES: dict[str, Dash] = {"reference_last": (0, (5, 2)), "reference_shortest": (0, (1, 1.5))}

APART = ("which", "direction", "layer", "model.layers", "task.delay", "task.keep")
"""References that differ in these are lines of their own."""


def with_reference(frame: pd.DataFrame) -> pd.DataFrame:
    """Add `reference`: the edges from the last (or, for other losses, first) target token to h_i.

    (n + delay - i) + 1 + j without attention, where the last state alone starts the decoder, and
    one more for each layer above; i - 1 in place of n + delay - i for a layer that reads backwards.
    NaN for other models, and for two-way encoders of several layers, whose paths turn around.
    """
    last = frame["record.loss"] == "last"
    targets = target_lengths(frame)
    backward = frame["direction"] == BACKWARD
    steps = frame["source_length"] + frame["task.delay"] - frame["position"]
    steps = steps.where(~backward, frame["position"] - 1)
    layers = pd.Series(1, frame.index)
    if "model.layers" in frame:
        layers = pd.to_numeric(frame["model.layers"]).fillna(1).astype(int)
    known = (frame["model.kind"] == "seq2seq") & (frame["model.bridge"] == "initial")
    if "model.bidirectional" in frame:
        known &= (layers == 1) | (frame["model.bidirectional"] != True)  # noqa: E712
    edges = steps + 1 + targets.where(last, 1) + layers - frame["layer"]
    name = last.map({True: "last", False: "shortest"})
    return frame.assign(reference=edges.where(known), which="reference_" + name)


def draw_reference(axis: Axes, look: Look, rows: pd.DataFrame, x: str) -> None:
    """The exact length without attention, over the lines that may follow it; equal ones once."""
    rows = rows.dropna(subset="reference")
    drawn = set()
    for (name, *_), line in rows.groupby([*(key for key in APART if key in rows)], dropna=False):
        table = line.drop_duplicates(x).sort_values(x)
        dash, points = REFERENCES[str(name)], tuple(zip(table[x], table["reference"], strict=True))
        if points in drawn:
            continue
        drawn.add(points)
        axis.plot(table[x], table["reference"], color=INK, ls=dash, lw=0.5 * look.line,
                  label=name, zorder=4)  # fmt: skip


def key_references(look: Look, frame: pd.DataFrame) -> list[Line2D]:
    """Legend entries of the references that are drawn."""
    drawn = frame[frame["reference"].notna()]
    shown, delays = set(drawn["which"]), sorted({int(delay) for delay in drawn["task.delay"]})
    words = {"d": " + d" if any(delays) else "", "delay": ""}
    if any(delays):
        name = "delay_of" if len(delays) == 1 else "delay_several"
        words["delay"] = say(look.lang, name, delay=delays[0])
    return [
        Line2D([], [], color=INK, ls=dash, lw=0.5 * look.line, label=say(look.lang, name, **words))
        for name, dash in REFERENCES.items()
        if name in shown
    ]


def about_references(lang: Language, frame: pd.DataFrame) -> list[str]:
    """Where the formulas of the legend are to be read otherwise, if anywhere."""
    drawn = frame[frame["reference"].notna()]
    backward = (drawn["direction"] == BACKWARD).any()
    return [
        *([say(lang, "about_backward_reference")] if backward else []),
        *([say(lang, "about_layer_reference")] if drawn[LAYER].notna().any() else []),
    ]
