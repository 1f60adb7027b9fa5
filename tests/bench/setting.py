"""The sweep that is timed, and its cells: one length with one attention, for all seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gradlab import Point, Scenario, load_scenario, points

SEEDS = (0, 1, 2, 3)
ATTENTION = ("none", "additive")
LENGTHS = (20, 50, 100)


@dataclass(frozen=True)
class Size:
    """How large everything but the lengths is."""

    hidden: int = 64
    embedding: int = 32
    batch: int = 64
    steps: int = 100
    every: int = 100
    clip: float = 1.0
    dtype: str = "float32"


FULL = Size()


def scenario(attention: Sequence[str], lengths: Sequence[int], size: Size = FULL) -> Scenario:
    """Return the sweep over these models and lengths and all seeds; copying, GRU."""
    return load_scenario(
        {
            "title": "what a sweep costs",
            "task": {"name": "copy", "symbols": 10},
            "model": {
                "cell": "gru",
                "hidden": size.hidden,
                "embedding": size.embedding,
                "bridge": "initial",
            },
            "training": {
                "steps": size.steps,
                "batch": size.batch,
                "lr": 3e-3,
                "clip": size.clip,
                "dtype": size.dtype,
            },
            "record": {"every": size.every, "examples": size.batch},
            "sweep": {
                "model.attention": list(attention),
                "task.length": list(lengths),
                "seed": list(SEEDS),
            },
        }
    )


def seeds_of(attention: str, length: int, size: Size = FULL) -> list[Point]:
    """Return the points of one cell, one a seed. Additive attention is that of Bahdanau."""
    found = list(points(scenario([attention], [length], size)))
    assert attention == "none" or found[0].model.timing == "bahdanau"
    return found
