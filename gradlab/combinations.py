"""What a point may not combine, though each of its values is allowed: one rule a function.

A rule takes a point and gives what cannot be run: the keys involved, and a line that says what was
expected and found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from gradlab.limits import LARGEST_EXAMPLE, hops_bytes, map_bytes, transformer_bytes
from gradlab.mistakes import show

if TYPE_CHECKING:
    from gradlab.grid import Point

Mistake = tuple[frozenset[str], str]


def _min_length(point: Point) -> Iterator[Mistake]:
    if point.min_length > point.task.length:
        yield (
            frozenset({"task.min_length", "task.length"}),
            f"task.min_length: expected at most task.length, {point.task.length}, "
            f"found {point.min_length}",
        )


def _keep(point: Point) -> Iterator[Mistake]:
    """More symbols kept than there are, or none to keep in order."""
    keep = point.task.keep
    if keep is None:
        return
    if point.task.name != "copy":
        yield (
            frozenset({"task.keep", "task.name"}),
            'task.keep: expected to be left out unless task.name is "copy", '
            f"found {keep} where task.name is {show(point.task.name)}",
        )
    if point.model.kind == "synchronous":
        yield (
            frozenset({"task.keep", "model.kind"}),
            "task.keep: expected to be left out where model.kind is "
            f'"synchronous", found {keep}; its outputs stand beside all the symbols',
        )
    for name, key, shortest in (
        ("the shortest training length", "task.min_length", point.min_length),
        ("the shortest of record.lengths", "record.lengths", min(point.lengths)),
    ):
        if keep > shortest:
            yield (
                frozenset({"task.keep", "task.length", key}),
                f"task.keep: expected at most {name}, {shortest}, found {keep}",
            )


def _no_path(point: Point) -> Iterator[Mistake]:
    apart = point.model.attention == "none" and point.model.bridge == "none"
    if apart and point.model.kind == "seq2seq":
        yield (
            frozenset({"model.attention", "model.bridge"}),
            'model.bridge: expected another value than "none" where model.attention is '
            '"none": no path is left from the encoder to the loss',
        )


def _synchronous(point: Point) -> Iterator[Mistake]:
    """What no model can do that answers at every input step, or this one does not."""
    if point.model.kind != "synchronous":
        return
    kind, shortest, longest = "model.kind", point.min_length, point.task.length
    if point.task.name == "reverse" and shortest < longest and point.task.delay < longest:
        yield (
            frozenset({kind, "task.name", "task.min_length", "task.length", "task.delay"}),
            f"task.min_length: expected task.length, {longest}, or a task.delay of at least that, "
            f'where model.kind is "synchronous" and task.name is "reverse", found {shortest} and '
            f"a delay of {point.task.delay}: y_1 = x_n stands at an unknown step, for while "
            "reading the model cannot know n",
        )
    if point.model.bidirectional:
        yield (
            frozenset({kind, "model.bidirectional"}),
            'model.bidirectional: expected false where model.kind is "synchronous", found true: '
            "to read backwards it would wait for the whole source, and not answer at every step",
        )


def _backwards(point: Point) -> Iterator[Mistake]:
    """A reversed source where answers stand beside what is read: only the other task's name."""
    if point.task.reverse_source and point.model.kind == "synchronous":
        other = "copy" if point.task.name == "reverse" else "reverse"
        yield (
            frozenset({"task.reverse_source", "model.kind"}),
            'task.reverse_source: expected false where model.kind is "synchronous", found true; '
            f"set task.name = {show(other)}, which asks for the same",
        )


def _transformer(point: Point) -> Iterator[Mistake]:
    """Heads of unequal size, and what only a recurrence has."""
    if point.model.kind != "transformer":
        return
    if point.model.hidden % point.model.heads:
        yield (
            frozenset({"model.kind", "model.heads", "model.hidden"}),
            f"model.heads: expected a divisor of model.hidden, {point.model.hidden}, "
            f"found {point.model.heads}",
        )
    if point.record.jacobians:
        yield (
            frozenset({"model.kind", "record.jacobians"}),
            'record.jacobians: expected false where model.kind is "transformer", found true: '
            "it has no recurrence",
        )


def _two_sizes(point: Point) -> Iterator[Mistake]:
    """A product of query and encoder state where a two-way encoder's state is twice as long."""
    same = ("dot", "scaled_dot", "cosine")
    ways = point.model.kind == "seq2seq" and point.model.bidirectional
    if ways and point.model.attention in same:
        yield (
            frozenset({"model.attention", "model.bidirectional"}),
            f"model.attention: {show(point.model.attention)} needs a query and an encoder state of "
            "one size, and where model.bidirectional is true a state has 2 model.hidden numbers; "
            'set model.attention = "general", which maps it to the size of the query',
        )


def _too_large(point: Point) -> Iterator[Mistake]:
    """Requests whose smallest piece of work, one example, would not fit in memory."""
    model, longest = point.model, max(point.lengths)
    steps, hidden = longest + point.task.delay, model.hidden
    sizes = 2 if model.cell == "lstm" else 1, model.layers, 2 if model.bidirectional else 1
    targets = point.task.keep or longest
    mapping = map_bytes(steps, targets, hidden, *sizes)
    hopping = hops_bytes(steps, hidden, *sizes)
    if point.model.kind == "transformer":
        layers = model.layers, hidden, model.heads, model.feedforward
        mapping, hopping = transformer_bytes(steps, targets, layers, rows=targets), 0
    for key, asked, needed in (
        ("record.map", point.record.map, mapping),
        ("record.hops", point.record.hops, hopping),
    ):
        if asked and needed > LARGEST_EXAMPLE:
            yield (
                frozenset({key, "record.lengths", "task.length"}),
                f"{key}: expected a request of at most {LARGEST_EXAMPLE:,} bytes for one example, "
                f"found about {needed:,} at source length {longest}; leave {key} out, measure "
                "shorter record.lengths or lower model.hidden",
            )


RULES: Final[tuple[Callable[[Point], Iterator[Mistake]], ...]] = (
    _min_length,
    _keep,
    _no_path,
    _synchronous,
    _backwards,
    _transformer,
    _two_sizes,
    _too_large,
)


def impossible(point: Point) -> list[Mistake]:
    """What this point asks for that makes no sense or would not fit in memory."""
    return [mistake for rule in RULES for mistake in rule(point)]
