"""Which points of a sweep are trained in lockstep: seeds of one experiment, where that is faster.

A pass over several seeds is one pass over stacked parameters. It saves what every operation costs
whatever its size, and loses once the tensors of a step no longer fit in the processor's cache.
Measured on two cores (`tests/bench/step.py --seeds`): a GRU of 16 units trains 2 times as many
steps a second with 8 seeds as with one, of 64 units 1.2 times with 4, of 128 units no more.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

from gradlab.grid import Point

SMALL, LARGE = 2**10, 2**12
"""Numbers in a decoder state of the whole batch, up to which eight and four seeds pay."""
ATTENDED = 2**17
"""Numbers in all encoder states of the batch, up to which four seeds pay with attention."""
LONG = 2**18
"""The same for two seeds."""


def most_together(point: Point) -> int:
    """Return how many seeds of a point's experiment are worth training in lockstep."""
    model, state = point.model, point.training.batch * point.model.hidden
    same_shapes = point.min_length == point.task.length and point.training.steps > 0
    plain = model.kind != "transformer" and model.layers == 1 and not model.bidirectional
    if not (same_shapes and plain and point.training.teacher_forcing == 1.0):
        return 1
    if model.kind == "seq2seq" and model.attention != "none":
        steps = point.task.length + point.task.delay
        if model.scope != "global":
            return 1
        return 4 if state * steps <= ATTENDED else 2 if state * steps <= LONG else 1
    return 8 if state <= SMALL else 4 if state <= LARGE else 1


def groups(
    points: Sequence[Point], lanes: int, work: Callable[[Point], float]
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
        size = most_together(same[0])
        while size > 1 and size * work(same[0]) > share and len(same) % (size * lanes):
            size -= 1
        found += [tuple(same[i : i + size]) for i in range(0, len(same), size)]
    return found
