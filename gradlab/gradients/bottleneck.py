"""At which length accuracy crosses one half, and the bits that this length asks for."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
import pandas as pd

from gradlab.gradients.decay import LENGTHS, Array, Results, dotted, t_interval

L50: Final = (
    "seeds", "shortest", "longest", "l50", "l50_low", "l50_high", "reason",
    "bits", "bits_longest", "state_numbers",
)  # fmt: skip


def l50(results: Results) -> pd.DataFrame:
    """Return the source length at which sequence accuracy crosses one half, for each model.

    Free-running, after each run's last step. A curve joins the lengths of one seed: of its runs
    trained at each length or, where something was measured at another length than it was trained
    on, of one run. Linear interpolation at the first fall below one half.

    seeds, shortest, longest: runs' seeds, and the lengths measured.
    l50, l50_low, l50_high: symbols; mean over seeds, 95 % t-interval (NaN with one seed). NaN where
        some seed never crosses: `reason` says how many and why; an average of the others would lie.
    bits, bits_longest: l50 log2 V and longest log2 V, bits in such a source.
    state_numbers: numbers in the last encoder state, H (2H for the LSTM), which without attention
        must hold those bits. A fall with length shows a limit of training and precision, not of
        this capacity, unless the state was shrunk (Jelassi et al. 2024).
    """
    training = results.training.drop(columns="status")
    last = training["train_step"] == training.groupby("run_id")["train_step"].transform("max")
    curves = training[last].assign(case=training.get("case"))
    lengths, shortest = curves["task.length"], curves.get("task.min_length", curves["task.length"])
    keys = ["case", *(key for key in dotted(results.runs) if key not in LENGTHS)]
    keys += ["task.length"] if (curves["source_length"] != lengths).any() else []
    keys += ["task.min_length"] if (shortest != lengths).any() else []
    rows = [
        {**dict(zip(keys, values, strict=True)), **_l50_of(model)}
        for values, model in curves.groupby(keys, dropna=False, sort=False)
    ]
    return pd.DataFrame(rows, columns=[*keys, *L50])


def _l50_of(model: pd.DataFrame) -> dict[str, Any]:
    """Pool the crossings of curves that differ in nothing but their seed."""
    model = model.drop_duplicates(["seed", "source_length"]).sort_values("source_length")
    found = [
        _crossing(seed["source_length"].to_numpy(float), seed["sequence_accuracy"].to_numpy(float))
        for _, seed in model.groupby("seed")
    ]
    why = [reason for _, reason in found if reason]
    told = (f"{why.count(each)} of {len(found)} seeds {each}" for each in dict.fromkeys(why))
    length, low, high = t_interval([] if why else [n for n, _ in found])
    shortest, longest = (int(n) for n in model["source_length"].agg(["min", "max"]))
    first = model.iloc[0]
    bits = math.log2(first["task.symbols"])
    numbers = int(first["model.hidden"]) * (2 if first["model.cell"] == "lstm" else 1)
    values = (len(found), shortest, longest, length, low, high, "; ".join(told))
    return dict(zip(L50, (*values, length * bits, longest * bits, numbers), strict=True))


def _crossing(length: Array, accuracy: Array) -> tuple[float, str]:
    """Return where accuracy first falls below one half, or NaN and why it does not."""
    below = accuracy < 0.5
    if not np.isfinite(accuracy).all():
        return math.nan, "have an accuracy that is not finite"
    if below[0] or not below.any():
        side = "below one half already at" if below[0] else "at one half or above up to"
        return math.nan, f"are {side} n = {length[0 if below[0] else -1]:g}"
    k = int(below.argmax())
    fallen = (accuracy[k - 1] - 0.5) / (accuracy[k - 1] - accuracy[k])
    return float(length[k - 1] + fallen * (length[k] - length[k - 1])), ""
