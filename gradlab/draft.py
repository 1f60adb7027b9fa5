"""A scenario as written, before it is known to be right: plain values by dotted key.

The draft collects every mistake instead of stopping at the first, so that all mistakes of a file
come in one message. In the order of use: `read_draft`, `override`, `build_scenario`,
`check_points`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gradlab.errors import ScenarioError
from gradlab.grid import MAX_POINTS, combination_mistakes, expand, idle_everywhere
from gradlab.mistakes import check_value, explain_unknown, show
from gradlab.schema import (
    BASE_KEYS,
    KEYS,
    LIST_KEYS,
    OVERRIDE_KEYS,
    SWEEP_KEYS,
    TABLES,
    TEXTS,
    Axis,
    Case,
    Model,
    Record,
    Scenario,
    Sweep,
    Task,
    Training,
)


@dataclass
class Draft:
    """A scenario as written: unchecked values, what was found wrong, where each key was set."""

    base: dict[str, object] = field(default_factory=dict)
    axes: dict[str, Any] = field(default_factory=dict)  # in order, with "seed" and "cases"
    cases: list[tuple[str, dict[str, object]]] = field(default_factory=list)  # label, values
    mistakes: list[str] = field(default_factory=list)
    wrong: set[str] = field(default_factory=set)  # keys with a mistake of their own
    written: dict[str, str] = field(default_factory=dict)  # key -> the place that sets it
    origin: dict[str, str] = field(default_factory=dict)  # overridden key -> how messages say it

    def check(self, key: str, value: object, place: str) -> Any:
        """The value as the models hold it, or None after noting what is wrong with it."""
        self.written.setdefault(key, place)
        checked, mistakes = check_value(key, value, place)
        if mistakes:
            self.wrong.add(key)
            self.mistakes += mistakes
        return checked


def read_draft(raw: Mapping[str, Any]) -> Draft:
    """The draft of a scenario's raw content; keys that do not exist are noted as mistakes."""
    draft = Draft()
    sweep = raw.get("sweep", {})
    if not isinstance(sweep, Mapping):
        draft.mistakes.append(f"sweep: expected a table, found {show(sweep)}")
        sweep = {}
    base = {key: value for key, value in raw.items() if key != "sweep"}
    draft.base = _collect(draft, base, "", BASE_KEYS)
    draft.axes = _collect(draft, sweep, "sweep", SWEEP_KEYS)
    labels: set[str] = set()
    for index, case in enumerate(_values(draft, "cases") if "cases" in draft.axes else ()):
        place = f"sweep.cases[{index}]"
        if isinstance(case, Mapping):
            values = {key: value for key, value in case.items() if key != "label"}
            label = _label(draft, case.get("label"), f"{place}.label", labels)
            draft.cases.append((label, _collect(draft, values, place, KEYS)))
        else:
            draft.mistakes.append(f"{place}: expected a table with a label, found {show(case)}")
    return draft


def _label(draft: Draft, label: object, place: str, earlier: set[str]) -> str:
    if not isinstance(label, str) or not label:
        draft.mistakes.append(f"{place}: expected a non-empty string, found {show(label)}")
    elif label in earlier:
        draft.mistakes.append(f"{place}: expected different labels, found {show(label)} again")
    earlier.add(str(label))
    return str(label)


def _collect(
    draft: Draft, table: Mapping[str, Any], prefix: str, known: tuple[str, ...]
) -> dict[str, Any]:
    """The known dotted keys of a table; unknown and repeated ones are noted as mistakes."""
    found: dict[str, Any] = {}
    for key, value in _flatten(table):
        place = _place(prefix, key)
        if key not in known:
            draft.mistakes.append(f"{place}: {explain_unknown(key, value, known)}")
        elif key in found:
            draft.mistakes.append(f"{place}: expected once, found dotted and in a table")
        else:
            found[key] = value
    return found


def _flatten(table: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Keys of a table, those of tables inside it dotted: nested and dotted writing are one."""
    for key, value in table.items():
        if isinstance(value, Mapping) and (value or key in TABLES):
            yield from ((f"{key}.{name}", inner) for name, inner in value.items())
        else:
            yield str(key), value


def _place(prefix: str, key: str) -> str:
    """Where a key stands, as in task.length or sweep."task.length"."""
    plain = re.fullmatch(r"[\w-]+" if prefix else r"[\w.-]+", key)
    word = key if plain else json.dumps(key, ensure_ascii=False)
    return f"{prefix}.{word}" if prefix else word


def override(draft: Draft, key: str, value: object, flag: str) -> None:
    """Set one key: a list makes an axis, any other value replaces the key and its axis.

    `flag` is what messages call an override.
    """
    draft.origin[key] = place = f"{flag} {_place('', key)}"
    several = isinstance(value, (list, tuple))
    if key in LIST_KEYS and isinstance(value, (list, tuple)):
        several = any(isinstance(item, (list, tuple)) for item in value)
    labels = [show(label) for label, values in draft.cases if key in values]
    if key not in OVERRIDE_KEYS:
        draft.mistakes.append(f"{place}: {explain_unknown(key, value, OVERRIDE_KEYS)}")
    elif labels:
        draft.mistakes.append(
            f"{place}: expected a key that no case sets, "
            f"found one that sweep.cases sets ({', '.join(labels)})"
        )
    elif key == "seed":
        draft.axes[key] = value if several else [value]
    elif several and key not in TEXTS:
        draft.axes[key] = value
    else:
        draft.base[key] = value
        draft.axes.pop(key, None)


def build_scenario(draft: Draft) -> Scenario:
    """Check every value of the draft; wrong ones are noted and left at their default."""
    values = {
        key: draft.check(key, value, key if key in draft.axes else draft.origin.get(key, key))
        for key, value in draft.base.items()
    }
    axes = [_axis(draft, key) for key in draft.axes]
    seed = tuple(case.settings[0][1] for axis in axes if axis.key == "seed" for case in axis.cases)
    axes = [axis for axis in axes if axis.cases and axis.key != "seed"]
    if "title" not in values:
        draft.mistakes.append("title: expected a string, found nothing")
    if "task.name" not in values:
        swept = [axis.cases[0].settings for axis in axes if "task.name" in axis.always_set]
        values["task.name"] = dict(swept[0])["task.name"] if swept else None
        if not swept and "task.name" not in draft.wrong:
            draft.mistakes.append('task.name: expected "copy" or "reverse", found nothing')
    tables: dict[str, dict[str, Any]] = {table: {} for table in TABLES}
    tables["task"]["name"] = "copy"
    for key, value in values.items():
        table, _, name = key.partition(".")
        if name and value is not None:
            tables[table][name] = value
    return Scenario(
        title=values.get("title") or "",
        notes=values.get("notes") or "",
        task=Task(**tables["task"]),
        model=Model(**tables["model"]),
        training=Training(**tables["training"]),
        record=Record(**tables["record"]),
        sweep=Sweep(axes=tuple(axes), seed=seed or (0,)),
    )


def _axis(draft: Draft, key: str) -> Axis:
    place = draft.origin.get(key, _place("sweep", key))
    if key == "cases":
        return Axis(key=key, cases=tuple(_case(draft, index) for index in range(len(draft.cases))))
    if any(key in values for _, values in draft.cases):
        draft.mistakes.append(f"{place}: expected here or in sweep.cases, found in both")
    checked: dict[Any, None] = {}  # in order
    values = _values(draft, key)
    alone = key in draft.origin and len(values) == 1
    for index, raw in enumerate(values):
        value = draft.check(key, raw, place if alone else f"{place}[{index}]")
        if value is not None and value in checked:
            draft.mistakes.append(f"{place}: expected different values, found {show(value)} twice")
        elif value is not None:
            checked[value] = None
    return Axis(key=key, cases=tuple(Case(settings=((key, value),)) for value in checked))


def _case(draft: Draft, index: int) -> Case:
    label, values = draft.cases[index]
    settings = [
        (key, draft.check(key, value, _place(f"sweep.cases[{index}]", key)))
        for key, value in values.items()
    ]
    return Case(label=label, settings=tuple(pair for pair in settings if pair[1] is not None))


def _values(draft: Draft, key: str) -> list[Any] | tuple[Any, ...]:
    """The raw values of an axis; none, after noting it, where they are not a list of some."""
    values = draft.axes[key]
    listed = isinstance(values, (list, tuple))
    if listed and 0 < len(values) <= MAX_POINTS:
        return values  # type: ignore[no-any-return]
    draft.wrong.add(key)
    expected, found = "a list of values", "an empty list" if listed else show(values)
    if listed and values:
        expected, found = f"at most {MAX_POINTS} values", str(len(values))
    place = draft.origin.get(key, _place("sweep", key))
    draft.mistakes.append(f"{place}: expected {expected}, found {found}")
    return []


def check_points(draft: Draft, scenario: Scenario) -> None:
    """Note what the points of the sweep cannot do, leaving out what follows from other mistakes.

    A key of the file that only an override left without effect is no mistake: training.lr, say,
    under `--set training.steps=0`.
    """
    overridden = draft.origin.keys()
    try:
        points = expand(scenario)
    except ScenarioError as error:
        draft.mistakes.append(str(error))
        return
    for keys, message in combination_mistakes(points):
        if not keys & draft.wrong:
            key, _, rest = message.partition(":")
            causes = [f"{draft.origin[cause]}: {key}" for cause in sorted(keys & overridden)]
            draft.mistakes.append(f"{draft.origin.get(key, [*causes, key][0])}:{rest}")
    for key, reasons in idle_everywhere(points).items():
        excused = key not in overridden and reasons.keys() & overridden
        if key in draft.written and not excused and not draft.wrong & {key, *reasons}:
            draft.mistakes.append(
                f"{draft.written[key]}: expected to be left out, found it set: it has no "
                f"effect at any point of the sweep ({' and '.join(reasons.values())})"
            )
