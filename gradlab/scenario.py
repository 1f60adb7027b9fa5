"""TOML to a validated scenario and back; every mistake a reader can make in one is told here.

A scenario is read into a draft, overrides change the draft, and the draft is judged as a whole.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import tomli_w

from gradlab.draft import build_scenario, check_points, override, read_draft
from gradlab.errors import ScenarioError
from gradlab.grid import expand, idle_everywhere
from gradlab.mistakes import alternatives, did_you_mean, show
from gradlab.schema import TABLES, TEXTS, Case, Scenario

BARE_WORD = re.compile(r"[^\W\d][\w.-]*")


def load_scenario(
    source: str | Path | Mapping[str, Any],
    overrides: Mapping[str, object] | None = None,
    flag: str = "override",
) -> Scenario:
    """Read a shipped scenario (by name), a TOML file (by path) or a mapping shaped like one.

    Overrides are dotted keys to values: a list makes an axis of the sweep, any other value
    replaces the key, and its axis if it has one. Messages call one `flag`.

    Raises ScenarioError that names the file and lists all of its mistakes, a line each; one that
    is only in overrides does not name the file.
    """
    name, raw = _read(source)
    draft = read_draft(raw)
    for key, value in (overrides or {}).items():
        override(draft, key, value, flag)
    scenario = build_scenario(draft)
    check_points(draft, scenario)
    mistakes = list(dict.fromkeys(draft.mistakes))
    if mistakes and all(line.startswith(f"{flag} ") for line in mistakes):
        raise ScenarioError("\n".join(mistakes))
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


def parse_overrides(texts: Iterable[str]) -> dict[str, object]:
    """What the --set of a call say together. Raises ScenarioError as `parse_override` does."""
    found: dict[str, object] = {}
    for key, value in map(parse_override, texts):
        if key in found:
            raise ScenarioError(
                f"--set {key}: expected once, found {show(found[key])} and {show(value)}"
            )
        found[key] = value
    return found


def parse_override(text: str) -> tuple[str, object]:
    """Split KEY=VALUE; VALUE is read as TOML, a bare word as a string.

    Raises ScenarioError if there is no KEY= or VALUE is neither.
    """
    key, equals, value = (part.strip() for part in text.partition("="))
    if not (key and equals):
        raise ScenarioError(f"--set: expected KEY=VALUE, found {show(text)}")
    if (read := _value(value)) is not None:
        return key, read
    hint = "text with spaces or signs needs double quotes of its own"
    items = [_value(item.strip()) for item in value.strip("[]").split(",")]
    listed = value.startswith("[") or "," in value
    if listed and None not in items and key not in TEXTS:
        hint = f"write --set '{key}=[{', '.join(map(show, items))}]'"
    raise ScenarioError(
        f"--set {key}: expected a TOML value or a bare word, found {show(value or None)}; {hint}"
    )


def _value(text: str) -> object | None:
    """A TOML value, or a bare word as a string; None if the text is neither."""
    try:
        table = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        table = {}
    if len(table) == 1:
        return table["value"]  # type: ignore[no-any-return]
    return text if BARE_WORD.fullmatch(text) else None


def _read(source: str | Path | Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """The name that messages give the source, and its raw content."""
    if isinstance(source, Mapping):
        return "scenario", source
    if source == "":
        raise ScenarioError(
            "scenario: expected the path of a TOML file or the name of a shipped scenario, "
            "found an empty name"
        )
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


def to_toml(scenario: Scenario) -> str:
    """The resolved scenario as TOML; loading it gives an equal scenario with equal run ids.

    Left out are keys without effect at any point, derived defaults, and defaults that the sweep
    replaces at every point.
    """
    idle = idle_everywhere(expand(scenario))
    swept = frozenset[str]().union(*(axis.always_set for axis in scenario.sweep.axes))
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
