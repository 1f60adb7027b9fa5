"""Invented gradients: norms, shares and path lengths at every state of every kind of model."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import synthetic_tables as tables
from synthetic_tables import Point

QUERIES = ("total", "bridge", "values", "keys")
Norm = Callable[[Point, int, int, int], float]
"""(point, source length, position, training step) -> norm"""


def falling(point: Point, length: int, position: int, step: int) -> float:
    """Exponential decay, steep without attention and before training; seeds differ a little."""
    slope = {"rnn": 0.30, "gru": 0.19, "lstm": 0.24}.get(point["model.cell"], 0.1)
    if tables.attends(point):
        slope *= 0.02
    if point["record.loss"] == "last":
        slope *= 1.7
    if step:
        slope *= 0.3
    wobble = 0.1 * np.sin(1.7 * point["seed"] + 0.3 * position)
    return float(10 ** (-1.5 - slope * (length - position) + wobble))


def shares_of(point: Point, step: int, length: int, distance: int) -> dict[str, float]:
    """The signed share of each path, `distance` steps from the bridge; trained keys pull back."""
    keys = (0.2 if step == 0 else -0.9) + 0.05 * np.sin(length - distance + point["seed"])
    if point["model.kind"] == "synchronous":
        return {"total": 1.0, "direct": 0.5, "output": 1.0}
    if point["model.kind"] == "transformer":
        layers = point["model.layers"]
        parts = {"total": 1.0, "direct": 0.5, "total.query": 0.1}
        for layer in range(1, layers + 1):
            weight = 2 * layer / layers / (layers + 1)
            parts |= {f"keys.{layer}": keys * weight, f"values.{layer}": (1 - keys) * weight}
            parts |= {f"values.{layer}.query": 0.1 * weight, f"keys.{layer}.query": 0.0}
        return parts
    attention = tables.attends(point)
    near = 0.55**distance
    parts = {
        "total": 1.0,
        "direct": 0.5,
        "bridge": near if attention else 1.0,
        "values": (1 - near - keys) if attention else 0.0,
        "keys": keys if attention else 0.0,
    }
    if attention:
        early = point["model.timing"] == "bahdanau"
        parts |= {f"{edge}.query": 0.3 * parts[edge] if early else 0.0 for edge in QUERIES}
    return parts


def gradient_rows(point: Point, step: int, norm: Norm) -> list[dict[str, object]]:
    """Every path at every state of every layer and direction."""
    length = point["task.length"]
    return [
        row
        for layer, direction in tables.places(point)
        for position in range(1, length + 1)
        for row in state_rows(point, step, norm, (layer, direction, position))
    ]


def state_rows(
    point: Point, step: int, norm: Norm, state: tuple[int, str, int]
) -> list[dict[str, object]]:
    """Every path at one state."""
    (layer, direction, position), length = state, point["task.length"]
    mirrored = position if direction == "forward" else length + 1 - position
    below = point["model.layers"] - layer
    size = norm(point, length, mirrored, step) * 10.0 ** (-0.4 * below)
    parts = shares_of(point, step, length, length - mirrored)
    opposed = step and mirrored > length - 6 and tables.attends(point)
    edges = tables.edges(point, length, mirrored, step) + below
    return [
        {
            "run_id": point["run_id"],
            "train_step": step,
            "source_length": length,
            "state": "h",
            "layer": layer,
            "direction": direction,
            "position": position,
            "path": path,
            "norm_mean": size * abs(share),
            "share": np.nan if size == 0 else share,
            "cancellation": (3.5 if opposed else 1.2) if path == "total" else np.nan,
            "path_length": edges if path == "total" and size else np.nan,
            "examples": 64,
            "zeros": 64 if share == 0 or size == 0 else 0,
        }
        for path, share in parts.items()
    ]
