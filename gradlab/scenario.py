"""TOML to a validated scenario and back; every mistake a reader can make in one is told here.

A scenario is read into a draft of plain values by dotted key, overrides change the draft, and
the draft is judged as a whole, so that all mistakes of a file come in one message.
"""

from __future__ import annotations

import difflib
import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tomli_w

from gradlab.errors import ScenarioError
from gradlab.grid import combination_mistakes, expand, idle_everywhere
from gradlab.schema import (
    KEYS,
    LIST_KEYS,
    TABLES,
    Axis,
    Case,
    Model,
    Record,
    Scenario,
    Sweep,
    Task,
    Training,
    alternatives,
    check_value,
    did_you_mean,
    show,
)

TEXTS = ("title", "notes")
BASE_KEYS = (*TEXTS, *KEYS)
SWEEP_KEYS = ("seed", "cases", *KEYS)
OVERRIDE_KEYS = (*TEXTS, "seed", *KEYS)
BARE_WORD = re.compile(r"[^\W\d][\w.-]*")


@dataclass
class Draft:
    """A scenario as written: unchecked values, what was found wrong, where each key was set."""

    base: dict[str, object] = field(default_factory=dict)
    axes: dict[str, Any] = field(default_factory=dict)  # in order, with "seed" and "cases"
    cases: list[tuple[str, dict[str, object]]] = field(default_factory=list)  # label, values
    mistakes: list[str] = field(default_factory=list)
    wrong: set[str] = field(default_factory=set)  # keys with a mistake of their own
    written: dict[str, str] = field(default_factory=dict)  # key -> the place that sets it

    def check(self, key: str, value: object, place: str) -> Any:
        """The value as the models hold it, or None after noting what is wrong with it."""
        self.written.setdefault(key, place)
        checked, mistakes = check_value(key, value, place)
        if mistakes:
            self.wrong.add(key)
            self.mistakes += mistakes
        return checked


def load_scenario(
    source: str | Path | Mapping[str, Any], overrides: Mapping[str, object] | None = None
) -> Scenario:
    """Read a shipped scenario (by name), a TOML file (by path) or a mapping shaped like one.

    Overrides are dotted keys to values: a list makes an axis of the sweep, any other value
    replaces the key, and its axis if it has one.

    Raises ScenarioError that names the file and lists all of its mistakes, a line each.
    """
    name, raw = _read(source)
    draft = _draft(raw)
    for key, value in (overrides or {}).items():
        _override(draft, key, value)
    scenario = _scenario(draft)
    _check_points(draft, scenario)
    mistakes = list(dict.fromkeys(draft.mistakes))
    if mistakes:
        count = "1 mistake" if len(mistakes) == 1 else f"{len(mistakes)} mistakes"
        raise ScenarioError("\n  ".join([f"{name}: {count}", *mistakes]))
    return scenario


def shipped_scenarios() -> dict[str, Path]:
    """The scenarios that come with gradlab, by name, in order of name."""
    package = Path(__file__).parent
    installed = package / "scenarios"
    folder = installed if installed.is_dir() else package.parent / "scenarios"
    return {path.stem: path for path in sorted(folder.glob("*.toml"), key=lambda path: path.stem)}


def scenario_name(source: str | Path | Mapping[str, Any]) -> str:
    """The name of a scenario's default folder: its file's stem."""
    return "scenario" if isinstance(source, Mapping) else Path(source).stem


def parse_override(text: str) -> tuple[str, object]:
    """Split KEY=VALUE; VALUE is read as TOML, a bare word as a string.

    Raises ScenarioError if there is no KEY= or VALUE is neither.
    """
    key, equals, value = (part.strip() for part in text.partition("="))
    if not (key and equals):
        raise ScenarioError(f"--set: expected KEY=VALUE, found {show(text)}")
    try:
        table = tomllib.loads(f"value = {value}")
    except (ValueError, RecursionError):
        table = {}
    if len(table) == 1:
        return key, table["value"]
    if BARE_WORD.fullmatch(value):
        return key, value
    raise ScenarioError(
        f"--set {key}: expected a TOML value or a bare word, found {show(value or None)}; "
        "text with spaces or signs needs double quotes of its own"
    )


def _read(source: str | Path | Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """The name that messages give the source, and its raw content."""
    if isinstance(source, Mapping):
        return "scenario", source
    shipped = shipped_scenarios()
    path = shipped.get(source, Path(source)) if isinstance(source, str) else source
    try:
        return str(path), _parse(path, path.read_bytes().decode("utf-8-sig"))
    except FileNotFoundError:
        names = alternatives(shipped) if shipped else "none"
        raise ScenarioError(
            f"{source}: expected the path of a TOML file or the name of a shipped scenario "
            f"({names}), found neither{did_you_mean(path.stem, shipped)}"
        ) from None
    except IsADirectoryError:
        inside = path / "scenario.toml"
        hint = f"; did you mean {inside}?" if inside.is_file() else ""
        raise ScenarioError(f"{path}: expected a TOML file, found a directory{hint}") from None
    except UnicodeDecodeError as error:
        raise ScenarioError(
            f"{path}: expected UTF-8 text, found another byte at offset {error.start}"
        ) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ScenarioError(f"{path}: expected a readable file, found: {reason}") from None


def _parse(path: Path, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ScenarioError(f"{path}: expected TOML, found values nested too deeply") from None
    except ValueError as error:
        end = f"at line {max(1, len(text.splitlines()))}, the end of the file"
        reason = str(error).replace("at end of document", end)
        raise ScenarioError(f"{path}: expected TOML, found a mistake: {reason}") from None


def _draft(raw: Mapping[str, Any]) -> Draft:
    draft = Draft()
    sweep = raw.get("sweep", {})
    if not isinstance(sweep, Mapping):
        draft.mistakes.append(f"sweep: expected a table, found {show(sweep)}")
        sweep = {}
    base = {key: value for key, value in raw.items() if key != "sweep"}
    draft.base = _collect(draft, base, "", BASE_KEYS)
    draft.axes = _collect(draft, sweep, "sweep", SWEEP_KEYS)
    for index, case in enumerate(_values(draft, "cases") if "cases" in draft.axes else ()):
        place = f"sweep.cases[{index}]"
        if isinstance(case, Mapping):
            values = {key: value for key, value in case.items() if key != "label"}
            label = _label(draft, case.get("label"), f"{place}.label")
            draft.cases.append((label, _collect(draft, values, place, KEYS)))
        else:
            draft.mistakes.append(f"{place}: expected a table with a label, found {show(case)}")
    return draft


def _label(draft: Draft, label: object, place: str) -> str:
    if not isinstance(label, str) or not label:
        draft.mistakes.append(f"{place}: expected a non-empty string, found {show(label)}")
    elif label in (earlier for earlier, _ in draft.cases):
        draft.mistakes.append(f"{place}: expected different labels, found {show(label)} again")
    return str(label)


def _collect(
    draft: Draft, table: Mapping[str, Any], prefix: str, known: tuple[str, ...]
) -> dict[str, Any]:
    """The known dotted keys of a table; unknown and repeated ones are noted as mistakes."""
    found: dict[str, Any] = {}
    for key, value in _flatten(table):
        place = _place(prefix, key)
        if key not in known:
            draft.mistakes.append(f"{place}: {_unknown(key, value, known)}")
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


def _unknown(key: str, value: object, known: tuple[str, ...]) -> str:
    """What to say of a key that does not exist: what does, and the nearest."""
    table, _, name = key.partition(".")
    if key in TABLES and not isinstance(value, Mapping):
        return f"expected a table, found {show(value)}"
    if table in TABLES:
        expected = alternatives(TABLES[table].model_fields)
    elif known is BASE_KEYS:
        expected = alternatives([*TEXTS, *TABLES, "sweep"])
        known = (*known, "sweep", "sweep.seed", "sweep.cases")
    else:
        expected = alternatives(
            [*(word for word in known if "." not in word), "a key such as task.length"]
        )
    found = name if table in TABLES and name else key
    return f"expected {expected}, found {show(found)}{_nearest(key, known)}"


def _nearest(key: str, known: tuple[str, ...]) -> str:
    """A hint at the nearest known key, first by name in the same table, then in any."""
    table, _, name = key.lower().rpartition(".")
    places = {place.rpartition(".")[2]: place for place in (*TABLES, *known)}
    same_table = [word for word, place in places.items() if place == f"{table}.{word}"]
    close = (
        difflib.get_close_matches(name, same_table, n=1)
        or difflib.get_close_matches(name, places, n=1)
        or (table not in TABLES and difflib.get_close_matches(table, TABLES, n=1))
    )
    return f"; did you mean {places[close[0]]}?" if close else ""


def _override(draft: Draft, key: str, value: object) -> None:
    several = isinstance(value, (list, tuple))
    if key in LIST_KEYS and isinstance(value, (list, tuple)):
        several = any(isinstance(item, (list, tuple)) for item in value)
    labels = [show(label) for label, values in draft.cases if key in values]
    if key not in OVERRIDE_KEYS:
        draft.mistakes.append(f"override {_place('', key)}: {_unknown(key, value, OVERRIDE_KEYS)}")
    elif labels:
        draft.mistakes.append(
            f"override {key}: expected a key that no case sets, "
            f"found one that sweep.cases sets ({', '.join(labels)})"
        )
    elif key == "seed":
        draft.axes[key] = value if several else [value]
    elif several and key not in TEXTS:
        draft.axes[key] = value
    else:
        draft.base[key] = value
        draft.axes.pop(key, None)


def _scenario(draft: Draft) -> Scenario:
    """Check every value of the draft; wrong ones are noted and left at their default."""
    values = {key: draft.check(key, value, key) for key, value in draft.base.items()}
    axes = [_axis(draft, key) for key in draft.axes]
    seed = tuple(case.settings[0][1] for axis in axes if axis.key == "seed" for case in axis.cases)
    axes = [axis for axis in axes if axis.cases and axis.key != "seed"]
    if "title" not in values:
        draft.mistakes.append("title: expected a string, found nothing")
    if "task.name" not in values:
        swept = [axis.cases[0].settings for axis in axes if "task.name" in _always_set(axis)]
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
    place = _place("sweep", key)
    if key == "cases":
        return Axis(key=key, cases=tuple(_case(draft, index) for index in range(len(draft.cases))))
    if any(key in values for _, values in draft.cases):
        draft.mistakes.append(f"{place}: expected here or in sweep.cases, found in both")
    checked: list[Any] = []
    for index, raw in enumerate(_values(draft, key)):
        value = draft.check(key, raw, f"{place}[{index}]")
        if value is not None and value in checked:
            draft.mistakes.append(f"{place}: expected different values, found {show(value)} twice")
        elif value is not None:
            checked.append(value)
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
    if isinstance(values, (list, tuple)) and values:
        return values
    draft.wrong.add(key)
    found = "an empty list" if isinstance(values, (list, tuple)) else show(values)
    draft.mistakes.append(f"{_place('sweep', key)}: expected a list of values, found {found}")
    return []


def _always_set(axis: Axis) -> frozenset[str]:
    """The keys that every case of an axis sets."""
    return frozenset.intersection(*(frozenset(dict(case.settings)) for case in axis.cases))


def _check_points(draft: Draft, scenario: Scenario) -> None:
    """Note what the points of the sweep cannot do, leaving out what follows from other mistakes."""
    try:
        points = expand(scenario)
    except ScenarioError as error:
        draft.mistakes.append(str(error))
        return
    for keys, message in combination_mistakes(points):
        if not keys & draft.wrong:
            draft.mistakes.append(message)
    for key, causes in idle_everywhere(points).items():
        if key in draft.written and not draft.wrong & {key, *causes}:
            draft.mistakes.append(
                f"{draft.written[key]}: expected to be left out, found it set: it has no "
                f"effect at any point of the sweep ({' and '.join(causes.values())})"
            )


def to_toml(scenario: Scenario) -> str:
    """The resolved scenario as TOML; loading it gives an equal scenario with equal run ids.

    Left out are keys without effect at any point, derived defaults, and defaults that the sweep
    replaces at every point.
    """
    idle = idle_everywhere(expand(scenario))
    swept = frozenset[str]().union(*(_always_set(axis) for axis in scenario.sweep.axes))
    lines = [f"title = {_toml(scenario.title)}"]
    if scenario.notes:
        lines.append(f"notes = {_toml(scenario.notes)}")
    for table, model in TABLES.items():
        lines += ["", f"[{table}]"]
        for name, known in model.model_fields.items():
            key, value = f"{table}.{name}", getattr(getattr(scenario, table), name)
            replaced = key in swept and value == known.default
            if value is not None and key not in idle and not replaced:
                lines.append(f"{name} = {_toml(value)}")
    lines += ["", "[sweep]"]
    for axis in scenario.sweep.axes:
        if axis.key == "cases":
            lines += ["cases = [", *(f"  {_toml_case(case)}," for case in axis.cases), "]"]
        else:
            values = tuple(value for case in axis.cases for _, value in case.settings)
            lines.append(f'"{axis.key}" = {_toml(values)}')
    return "\n".join([*lines, f"seed = {_toml(scenario.sweep.seed)}", ""])


def _toml_case(case: Case) -> str:
    settings = [f'"{key}" = {_toml(value)}' for key, value in case.settings]
    return f"{{ {', '.join([f'label = {_toml(case.label)}', *settings])} }}"


def _toml(value: object) -> str:
    """One value as TOML, on one line."""
    if isinstance(value, tuple):
        return f"[{', '.join(_toml(item) for item in value)}]"
    return tomli_w.dumps({"v": value}).removeprefix("v = ").rstrip("\n")
