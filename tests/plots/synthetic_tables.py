"""Invented hops, maps, exponents and path lengths of one run at one training step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

Point = dict[str, Any]
LARGEST = 20
"""Maps and hops of longer sources are cut off here; they grow with the square of the length."""


def attends(point: Point) -> bool:
    """Whether the model of a point has attention."""
    named = isinstance(point["model.attention"], str) and point["model.attention"] != "none"
    return named or point["model.kind"] == "transformer"


def places(point: Point) -> list[tuple[int, str]]:
    """The layers and directions of a point's encoder."""
    both = ("forward", "backward") if point["model.bidirectional"] else ("forward",)
    return [(layer, way) for layer in range(1, point["model.layers"] + 1) for way in both]


def everywhere(point: Point, frame: pd.DataFrame) -> pd.DataFrame:
    """A table of one state for every layer and direction."""
    frames = [frame.assign(layer=layer, direction=way) for layer, way in places(point)]
    return pd.concat(frames).assign(state="h", source_length=point["task.length"])


def targets(point: Point) -> int:
    """The number of target tokens."""
    length: int = point["task.length"]
    return length if pd.isna(point["task.keep"]) else min(length, int(point["task.keep"]))


def edges(point: Point, length: int, position: int, step: int) -> float:
    """Effective path length: exact for the last target token, else near the shortest path."""
    last = point["record.loss"] == "last"
    wobble = 0.1 * np.sin(3 * point["seed"] + position)
    if not attends(point):
        late = targets(point) if last else 1 if step == 0 else 1 + 0.2 * length
        return float((length - position) + 1 + late + (0 if last else 0.2 + abs(wobble)))
    return float(3.3 + 0.3 * last + 0.04 * (length - position) * (1 + bool(step)) + wobble)


def hop_table(point: Point, step: int) -> pd.DataFrame:
    """Without attention all of the gradient left after the last step, with it most at once."""
    length = min(point["task.length"], LARGEST)
    rows = []
    for distance in range(length):
        hops = np.arange(distance + 1 if point["model.kind"] != "transformer" else 1)
        if not attends(point):
            share = (hops == hops[-1]).astype(float)
        else:
            share = 0.6**hops * (1 + 0.1 * np.sin(hops + point["seed"]))
            share = share / share.sum()
        frame = pd.DataFrame({"hops": hops, "share": share, "norm_mean": abs(share) * 1e-3})
        rows.append(frame.assign(distance=distance))
    table = everywhere(point, pd.concat(rows[::-1]))
    forward, away = table["direction"] == "forward", table.pop("distance")
    return table.assign(position=(length - away).where(forward, 1 + away))


def weights(point: Point, step: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Attention weights (k, n), which sharpen with training; local ones fade with distance."""
    length = min(point["task.length"], LARGEST)
    target, source = np.indices((min(targets(point), LARGEST), length)) + 1
    aim = source if point["task.name"] == "copy" else length + 1 - source
    scores = -abs(target - aim) * (1.2 if step else 0.05)
    found = np.exp(scores)
    found = found / found.sum(1, keepdims=True)
    if str(point["model.scope"]).startswith("local"):
        found = found * np.exp(-(np.square(target - aim) / 2))
    return np.asarray(found)


def attention_table(point: Point, step: int) -> pd.DataFrame:
    """The weights of two examples, the second less sure; no rows without attention."""
    if not attends(point):
        return pd.DataFrame()
    first = weights(point, step)
    both = np.stack([first, 0.7 * first + 0.3 * first.mean(1, keepdims=True)])
    example, target, source = (grid.ravel() for grid in np.indices(both.shape))
    symbols = (3 * np.arange(first.shape[1]) + point["seed"] + 1) % point["task.symbols"]
    answer = symbols if point["task.name"] == "copy" else symbols[::-1]
    return pd.DataFrame(
        {"example": example, "target_position": target + 1, "position": source + 1,
         "weight": both.ravel(), "source_symbol": symbols[source],
         "target_symbol": answer[target]}
    ).assign(source_length=point["task.length"])  # fmt: skip


def map_table(point: Point, step: int) -> pd.DataFrame:
    """A diagonal that sharpens with training, or without attention a fall from the end."""
    weight = weights(point, step)
    target, source = (grid.ravel() + 1 for grid in np.indices(weight.shape))
    if not attends(point):
        norm = 10.0 ** (-2 - 0.2 * (weight.shape[1] - source + target))
        weight = np.full(weight.shape, np.nan)
    else:
        norm = 10 ** (-1 + 0.05 * np.sin(point["seed"])) * weight.ravel() + 1e-6
    table = {"target_position": target, "position": source, "gradient_norm": norm}
    return everywhere(point, pd.DataFrame(table).assign(attention_weight=weight.ravel()))


def lyapunov_table(point: Point, step: int) -> pd.DataFrame:
    """Exponents of an encoder that contracts, less so after training."""
    if point["model.kind"] == "transformer":
        return pd.DataFrame()
    index = np.arange(1, point["model.hidden"] + 1)
    largest = -0.43 + 0.3 * bool(step) + 0.02 * np.sin(point["seed"])
    exponent = largest - 1.2 * (index - 1) / len(index) - 1.0 / point["task.length"]
    frame = pd.DataFrame({"index": index, "exponent": exponent})
    return everywhere(point, frame).drop(columns="state")
