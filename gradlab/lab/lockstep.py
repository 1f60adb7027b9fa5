"""What trains a point fastest: seeds of one experiment in lockstep, or torch's fused layers.

A pass over several seeds is one pass over stacked parameters. It saves what every operation costs
whatever its size, and loses once the tensors of a step no longer fit in the processor's cache.
Measured on two cores (`tests/bench/step.py --seeds`): a GRU of 16 units trains 2 times as many
steps a second with 8 seeds as with one, of 64 units 1.2 times with 4, of 128 units no more.

An LSTM without attention trains alone 1.2 to 1.4 times faster by torch's fused layers than by a
scan, from 64 units on as fast as four seeds in lockstep, or faster. Of fewer units groups win (of
16 by up to 2); a seed alone would gain 1.7 there by the layers and goes without. For who goes which
way is a matter of the point and the machine, never of the group, so that a seed's numbers are too.
"""

from __future__ import annotations

import platform
from collections import defaultdict
from collections.abc import Callable, Sequence

from gradlab.grid import Point

SMALL, LARGE = 2**10, 2**12
"""Numbers in a decoder state of the whole batch, up to which eight and four seeds pay."""
ATTENDED = 2**17
"""Numbers in all encoder states of the batch, up to which four seeds pay with attention."""
LONG = 2**18
"""The same for two seeds."""
HAS_FUSED_LSTM = platform.machine().lower() in ("x86_64", "amd64")
"""Whether torch's LSTM is one kernel on the processor, oneDNN's; elsewhere it is a loop."""


def by_fused_layers(point: Point, device: str) -> bool:
    """Return whether a point is trained by torch's fused layers, `models.fused`, seed by seed."""
    model = point.model
    lstm = model.kind == "seq2seq" and model.cell == "lstm" and model.attention == "none"
    simple = model.layers == 1 and not model.bidirectional and model.bridge == "initial"
    one_length = point.min_length == point.task.length
    large = point.training.batch * model.hidden >= LARGE
    there = HAS_FUSED_LSTM and device == "cpu" and point.training.dtype == "float32"
    return lstm and simple and one_length and large and there


def most_together(point: Point, device: str = "cpu") -> int:
    """Return how many seeds of a point's experiment are worth training in lockstep."""
    model, state = point.model, point.training.batch * point.model.hidden
    same_shapes = point.min_length == point.task.length and point.training.steps > 0
    plain = model.kind != "transformer" and model.layers == 1 and not model.bidirectional
    if not (same_shapes and plain and point.training.teacher_forcing == 1.0):
        return 1
    if by_fused_layers(point, device):
        return 1
    if model.kind == "seq2seq" and model.attention != "none":
        steps = point.task.length + point.task.delay
        if model.scope != "global":
            return 1
        return 4 if state * steps <= ATTENDED else 2 if state * steps <= LONG else 1
    return 8 if state <= SMALL else 4 if state <= LARGE else 1


def groups(
    points: Sequence[Point], lanes: int, work: Callable[[Point], float], device: str = "cpu"
) -> list[tuple[Point, ...]]:
    """Return the points in groups to be computed one after the other, in the order of the points.

    Points of a group differ in their seeds alone. work: what a point takes, in any unit. Of several
    lanes no group takes more than half of one's share, or they would not end at about one time;
    unless each lane gets as many groups of that experiment.
    """
    whole = sum(map(work, points))
    share = whole / (2 * lanes) if lanes > 1 else whole
    experiments: defaultdict[str, list[Point]] = defaultdict(list)
    for point in points:
        experiments[repr({**point.config, "seed": None})].append(point)
    found = []
    for same in experiments.values():
        size = most_together(same[0], device)
        while size > 1 and size * work(same[0]) > share and len(same) % (size * lanes):
            size -= 1
        found += [tuple(same[i : i + size]) for i in range(0, len(same), size)]
    return found
