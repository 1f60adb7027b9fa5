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

from gradlab.combinations import impossible
from gradlab.errors import ScenarioError
from gradlab.mistakes import show
from gradlab.schema import TABLES, Model, Record, Scenario, Task, Training

NUMERICS_VERSION: Final = 7  # raised when the same config would give other numbers
MAX_POINTS: Final = 100_000

OF_ATTENTION: Final = ("model.timing", "model.input_feeding", "model.scope", "model.window")

# Where this key has this value, these keys have no effect.
IDLE: Final[tuple[tuple[str, object, tuple[str, ...]], ...]] = (
    (
        "model.kind",
        "synchronous",
        (
            "model.attention",
            *OF_ATTENTION,
            "model.bridge",
            "model.heads",
            "model.feedforward",
            "training.teacher_forcing",
        ),
    ),
    (
        "model.kind",
        "transformer",
        (
            "model.cell",
            "model.embedding",
            "model.bidirectional",
            "model.attention",
            *OF_ATTENTION,
            "model.bridge",
            "model.init",
            "model.gain",
        ),
    ),
    ("model.kind", "seq2seq", ("model.heads", "model.feedforward")),
    ("model.attention", "none", OF_ATTENTION),
    ("model.timing", "bahdanau", ("model.input_feeding",)),
    ("model.scope", "global", ("model.window",)),
    ("model.init", "torch", ("model.gain",)),
    (
        "training.steps",
        0,
        (
            "training.optimizer",
            "training.lr",
            "training.weight_decay",
            "training.clip",
            "training.teacher_forcing",
            "record.every",
        ),
    ),
)


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

    @property
    def longest_source(self) -> int:
        """The most source steps that are trained on or measured, the delay's blanks included."""
        return max(self.task.length, *self.lengths) + self.task.delay

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
    words = [point.label or _describe_model(point)]
    words.append(f"{point.task.name} n = {point.task.length}")
    told = ("model.kind", "model.cell", "model.attention", "task.name", "task.length")
    idle = (*told, *ineffective_keys(point))
    words += [f"{key} = {point.value(key)}" for key in point.swept if key not in idle]
    return ", ".join([*words, f"seed {point.seed}"])


def _describe_model(point: Point) -> str:
    if point.model.kind == "synchronous":
        return f"synchronous {point.model.cell}"
    if point.model.kind == "transformer":
        return "transformer"
    return f"{point.model.cell}, attention {point.model.attention}"


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
        mistakes += impossible(point)
    return mistakes
