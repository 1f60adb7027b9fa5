"""The path lengths that people quote, n + k among them, where they are exactly true."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from gradlab.plots.style import INK, Dash, Look
from gradlab.plots.words import say

REFERENCES: dict[str, Dash] = {"reference_last": (0, (5, 2)), "reference_shortest": (0, (1, 1.5))}


def with_reference(frame: pd.DataFrame) -> pd.DataFrame:
    """Add `reference`: the edges from the last (or, for other losses, first) target token to h_i.

    (n + delay - i) + 1 + j without attention, where the last state alone starts the decoder; NaN
    for other models.
    """
    target = frame["source_length"].where(frame["record.loss"] == "last", 1)
    remaining = frame["source_length"] + frame["task.delay"] - frame["position"]
    known = (frame["model.kind"] == "seq2seq") & (frame["model.bridge"] == "initial")
    for key, simple in (("model.layers", 1), ("model.bidirectional", False)):
        known &= frame[key] == simple if key in frame else True
    name = (frame["record.loss"] == "last").map({True: "last", False: "shortest"})
    return frame.assign(reference=(remaining + 1 + target).where(known), which="reference_" + name)


def draw_reference(axis: Axes, look: Look, rows: pd.DataFrame, x: str) -> None:
    """The exact length without attention, over the lines that may follow it."""
    for name, line in rows.dropna(subset="reference").groupby("which"):
        table = line.drop_duplicates(x).sort_values(x)
        dash = REFERENCES[str(name)]
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
