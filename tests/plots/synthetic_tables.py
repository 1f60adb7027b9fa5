"""Invented hops, maps, exponents and path lengths of one run at one training step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

Point = dict[str, Any]
LARGEST = 20
"""Maps and hops of longer sources are cut off here; they grow with the square of the length."""
PLACE: dict[str, Any] = {"state": "h", "layer": 1, "direction": "forward"}


def edges(point: Point, length: int, position: int, step: int) -> float:
    """Effective path length: exact for the last target token, else near the shortest path."""
    attention, last = point["model.attention"] != "none", point["record.loss"] == "last"
    wobble = 0.1 * np.sin(3 * point["seed"] + position)
    if not attention:
        late = length if last else 1 if step == 0 else 1 + 0.2 * length
        return float((length - position) + 1 + late + (0 if last else 0.2 + abs(wobble)))
    return float(3.3 + 0.3 * last + 0.04 * (length - position) * (1 + bool(step)) + wobble)


def hop_table(point: Point, step: int) -> pd.DataFrame:
    """Without attention all of the gradient left after the last step, with it most at once."""
    length = min(point["task.length"], LARGEST)
    rows = []
    for position in range(1, length + 1):
        hops = np.arange(length - position + 1)
        if point["model.attention"] == "none":
            share = (hops == hops[-1]).astype(float)
        else:
            share = 0.6**hops * (1 + 0.1 * np.sin(hops + point["seed"]))
            share = share / share.sum()
        frame = pd.DataFrame({"hops": hops, "share": share, "norm_mean": abs(share) * 1e-3})
        rows.append(frame.assign(position=position))
    return pd.concat(rows).assign(source_length=point["task.length"], **PLACE)


def map_table(point: Point, step: int) -> pd.DataFrame:
    """A diagonal that sharpens with training, or without attention a fall from the end."""
    length = min(point["task.length"], LARGEST)
    target, source = (grid.ravel() + 1 for grid in np.indices((length, length)))
    aim = source if point["task.name"] == "copy" else length + 1 - source
    scores = -abs(target - aim) * (1.2 if step else 0.05)
    weight = np.exp(scores).reshape(length, length)
    weight = (weight / weight.sum(1, keepdims=True)).ravel()
    if point["model.attention"] == "none":
        norm, weight = 10.0 ** (-2 - 0.2 * (length - source + target)), np.full(len(source), np.nan)
    else:
        norm = 10 ** (-1 + 0.05 * np.sin(point["seed"])) * weight + 1e-6
    return pd.DataFrame(
        {"target_position": target, "position": source, "gradient_norm": norm}
    ).assign(attention_weight=weight, source_length=point["task.length"], **PLACE)


def lyapunov_table(point: Point, step: int) -> pd.DataFrame:
    """Exponents of an encoder that contracts, less so after training."""
    index = np.arange(1, point["model.hidden"] + 1)
    largest = -0.43 + 0.3 * bool(step) + 0.02 * np.sin(point["seed"])
    exponent = largest - 1.2 * (index - 1) / len(index) - 1.0 / point["task.length"]
    frame = pd.DataFrame({"index": index, "exponent": exponent})
    return frame.assign(source_length=point["task.length"], layer=1, direction="forward")
