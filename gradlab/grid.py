"""From a scenario to its points: the product of the sweep's axes, each point with its run id."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from gradlab.errors import ScenarioError
from gradlab.limits import LARGEST_EXAMPLE, hops_bytes, map_bytes
from gradlab.mistakes import alternatives, show
from gradlab.schema import TABLES, Model, Record, Scenario, Task, Training

NUMERICS_VERSION: Final = 1  # raised when the same config would give other numbers
MAX_POINTS: Final = 100_000

# Where this key has this value, these keys have no effect.
IDLE: Final[tuple[tuple[str, object, tuple[str, ...]], ...]] = (
    ("model.attention", "none", ("model.timing", "model.scope", "model.window")),
    ("model.scope", "global", ("model.window",)),
    ("model.init", "torch", ("model.gain",)),
    (
        "training.steps",
        0,
        (
            "training.optimizer",
            "training.lr",
            "training.clip",
            "training.teacher_forcing",
            "record.every",
        ),
    ),
)

# What can be run now, where that is less than the schema allows. Entries go as features arrive.
AVAILABLE: Final[dict[str, tuple[object, ...]]] = {
    "model.kind": ("seq2seq",),
    "model.layers": (1,),
    "model.bidirectional": (False,),
    "model.attention": ("none", "additive", "dot"),
    "model.scope": ("global",),
    "model.bridge": ("initial", "every_step", "none"),
    "model.init": ("torch",),
    "training.optimizer": ("adam",),
    "training.teacher_forcing": (1.0,),
}


@dataclass(frozen=True)
class Point:
    """One run of a sweep: every value it needs, derived defaults filled in.

    `label` is the label of the point's case, if the sweep has cases, and `swept` the keys that the
    sweep's axes set; both are for people and do not change the run.
    """

    task: Task
    model: Model
    training: Training
    record: Record
    seed: int
    label: str | None = None
    swept: tuple[str, ...] = field(default=(), compare=False)

    @property
    def min_length(self) -> int:
        """Shortest training length, in symbols."""
        return self.task.length if self.task.min_length is None else self.task.min_length

    @property
    def lengths(self) -> tuple[int, ...]:
        """Source lengths that are measured, in symbols."""
        return (self.task.length,) if self.record.lengths is None else self.record.lengths

    def value(self, key: str) -> Any:
        """The value of a dotted key."""
        table, _, name = key.partition(".")
        return getattr(getattr(self, table), name)

    @property
    def config(self) -> dict[str, Any]:
        """The resolved values, `{task: {..}, .., seed}`, JSON-ready; None where without effect."""
        config: dict[str, Any] = {
            table: getattr(self, table).model_dump(mode="json") for table in TABLES
        }
        config["task"]["min_length"] = self.min_length
        config["record"]["lengths"] = list(self.lengths)
        for key in ineffective_keys(self):
            table, _, name = key.partition(".")
            config[table][name] = None
        config["seed"] = self.seed
        return config

    @cached_property
    def run_id(self) -> str:
        """16 hex digits that name the run: equal for points that compute the same numbers."""
        config = self.config
        derived = {
            "task.min_length": self.task.length,
            "record.lengths": [self.task.length],
        }
        told = {"numerics_version": NUMERICS_VERSION, "seed": self.seed}
        for table, model in TABLES.items():
            for name, known in model.model_fields.items():
                key, value = f"{table}.{name}", config[table][name]
                if value is not None and value != derived.get(key, known.default):
                    told[key] = value
        canonical = json.dumps(told, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(canonical.encode()).hexdigest()[:16]


def points(scenario: Scenario) -> tuple[Point, ...]:
    """The points of a scenario: axes in the order written, the last one and then seed fastest.

    Points with the same run id and label appear once.

    Raises ScenarioError if a point asks for something impossible or not available yet, or if
    the sweep has more than MAX_POINTS points.
    """
    found = expand(scenario)
    mistakes = dict.fromkeys(message for _, message in combination_mistakes(found))
    if mistakes:
        raise ScenarioError("\n".join(mistakes))
    return found


def expand(scenario: Scenario) -> tuple[Point, ...]:
    """The points of a scenario as `points` orders them, whether or not they make sense.

    Raises ScenarioError if there are more than MAX_POINTS of them.
    """
    axes = scenario.sweep.axes
    sizes = [*(len(axis.cases) for axis in axes), len(scenario.sweep.seed)]
    if math.prod(sizes) > MAX_POINTS:
        product = " x ".join(str(size) for size in sizes)
        raise ScenarioError(
            f"sweep: expected at most {MAX_POINTS} runs, found {product} = {math.prod(sizes)}"
        )
    unique: dict[tuple[str, str | None], Point] = {}
    for cases in itertools.product(*(axis.cases for axis in axes)):
        settings = {key: value for case in cases for key, value in case.settings}
        label = next((case.label for case in cases if case.label is not None), None)
        for seed in scenario.sweep.seed:
            point = _point(scenario, settings, seed, label)
            unique.setdefault((point.run_id, label), point)
    return tuple(unique.values())


def _point(scenario: Scenario, settings: dict[str, Any], seed: int, label: str | None) -> Point:
    updates: dict[str, dict[str, Any]] = {table: {} for table in TABLES}
    for key, value in settings.items():
        table, _, name = key.partition(".")
        updates[table][name] = value
    task = scenario.task.model_copy(update=updates["task"])
    record = scenario.record.model_copy(update=updates["record"])
    if task.min_length is None:
        task = task.model_copy(update={"min_length": task.length})
    if record.lengths is None:
        record = record.model_copy(update={"lengths": (task.length,)})
    model = scenario.model.model_copy(update=updates["model"])
    training = scenario.training.model_copy(update=updates["training"])
    swept = tuple(axis.key for axis in scenario.sweep.axes if axis.key != "cases")
    return Point(task, model, training, record, seed, label, swept)


def describe(point: Point) -> str:
    """Return a point in a few words, for progress and messages."""
    words = [point.label or f"{point.model.cell}, attention {point.model.attention}"]
    words.append(f"{point.task.name} n = {point.task.length}")
    told = ("model.cell", "model.attention", "task.name", "task.length")
    idle = (*told, *ineffective_keys(point))
    words += [f"{key} = {point.value(key)}" for key in point.swept if key not in idle]
    return ", ".join([*words, f"seed {point.seed}"])


def ineffective_keys(point: Point) -> frozenset[str]:
    """The dotted keys whose value changes nothing at this point."""
    return frozenset(
        key for cause, value, keys in IDLE if point.value(cause) == value for key in keys
    )


def idle_everywhere(found: Iterable[Point]) -> dict[str, dict[str, str]]:
    """Keys without effect at every point, each with why: {key: {cause: "cause is value"}}."""
    found = tuple(found)
    idle = frozenset.intersection(*(ineffective_keys(point) for point in found))
    return {
        key: {
            cause: f"{cause} is {show(value)}"
            for cause, value, keys in IDLE
            if key in keys and any(point.value(cause) == value for point in found)
        }
        for key in sorted(idle)
    }


def combination_mistakes(found: Iterable[Point]) -> list[tuple[frozenset[str], str]]:
    """What these points ask for that cannot be run: (the keys involved, a line that says why)."""
    mistakes = []
    for point in found:
        if point.min_length > point.task.length:
            mistakes.append(
                (
                    frozenset({"task.min_length", "task.length"}),
                    f"task.min_length: expected at most task.length, {point.task.length}, "
                    f"found {point.min_length}",
                )
            )
        if point.model.attention == "none" and point.model.bridge == "none":
            mistakes.append(
                (
                    frozenset({"model.attention", "model.bridge"}),
                    'model.bridge: expected another value than "none" where model.attention is '
                    '"none": no path is left from the encoder to the loss',
                )
            )
        mistakes += _too_large(point)
        idle = ineffective_keys(point)
        for key, supported in AVAILABLE.items():
            if key not in idle and point.value(key) not in supported:
                mistakes.append((frozenset({key}), _not_available(key, point.value(key))))
    return mistakes


def _too_large(point: Point) -> list[tuple[frozenset[str], str]]:
    """Requests whose smallest piece of work, one example, would not fit in memory."""
    longest, states = max(point.lengths), 2 if point.model.cell == "lstm" else 1
    steps, hidden = longest + point.task.delay, point.model.hidden
    found = []
    for key, asked, needed in (
        ("record.map", point.record.map, map_bytes(steps, longest, hidden, states)),
        ("record.hops", point.record.hops, hops_bytes(steps, hidden, states)),
    ):
        if asked and needed > LARGEST_EXAMPLE:
            message = (
                f"{key}: expected a request of at most {LARGEST_EXAMPLE:,} bytes for one example, "
                f"found about {needed:,} at source length {longest}; leave {key} out, measure "
                "shorter record.lengths or lower model.hidden"
            )
            found.append((frozenset({key, "record.lengths", "task.length"}), message))
    return found


def _not_available(key: str, value: object) -> str:
    supported = alternatives(show(choice) for choice in AVAILABLE[key])
    return f"{key}: {show(value)} is not available yet; expected {supported} for now"
