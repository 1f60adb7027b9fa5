"""What a measurement returns, and how its encoder states are named."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

EXIT_EDGES = ("bridge", "values", "keys", "output")
"""The ways out of an encoder; a path is `edge[.layer][.query]`, or "total" or "direct"."""


DIRECTIONS = ("forward", "backward")
"""The ways in which an encoder may read; a two-way encoder's states come in this order."""


def is_edge(path: str) -> bool:
    """Return whether a path is all that leaves by one exit edge; such paths split the total."""
    return path not in ("total", "direct") and not path.endswith(".query")


class Place(NamedTuple):
    """Which of a model's encoder states is meant; layers count from 1."""

    state: str
    layer: int = 1
    direction: str = "forward"

    @property
    def name(self) -> str:
        """How the place is written: "h"; "h.2" in layer 2; "h.1.backward" where read backwards."""
        if self.direction != "forward":
            return f"{self.state}.{self.layer}.{self.direction}"
        return self.state if self.layer == 1 else f"{self.state}.{self.layer}"


def place(name: str) -> Place:
    """Return the place that a name means; undoes `Place.name`."""
    state, *rest = name.split(".")
    layer = int(rest[0]) if rest else 1
    return Place(state, layer, rest[1] if len(rest) > 1 else "forward")


@dataclass(frozen=True)
class Measurement:
    """Gradients of each example's loss at every encoder state, as vectors.

    vectors: path -> state -> (..., batch, n, hidden) float64, with the paths "total", "direct"
        and, where they were asked for, "bridge", "values", "keys" and each with ".query", the part
        that passes at least one attention query (no such paths without attention), or "output"
        alone for a synchronous model, or values and keys by decoder layer ("values.1") for a
        transformer; states as `Place.name` writes them: "h" and, for the LSTM, "c". dL/dc holds h
        of the same step fixed, and dL/dh holds c fixed.
    length: state -> d', shaped as the vectors: sum over path lengths m of m times what came over m
        edges. Its share of the total is the effective path length.
    absent: the paths that this model does not have; their vectors are zero by structure.
    loss: (..., batch) nats, reduced over target tokens as asked.
    attention_weights: (..., batch, k, n), or None without attention.
    """

    vectors: dict[str, dict[str, Tensor]]
    length: dict[str, Tensor]
    absent: frozenset[str]
    loss: Tensor
    attention_weights: Tensor | None
