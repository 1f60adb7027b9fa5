"""A mistake explained in a reader's words: what was expected, what was found, the way out.

`check_value` judges a value, `explain_unknown` a key that does not exist; `alternatives`, `show`
and `did_you_mean` are the phrases that every message about a scenario is made of.
"""

from __future__ import annotations

import datetime
import difflib
import json
import math
from collections.abc import Iterable, Mapping
from typing import Any, Final

from pydantic import ValidationError

from gradlab.schema import (
    BASE_KEYS,
    INTEGER_LIMIT,
    TABLES,
    TEXTS,
    Frozen,
    Scenario,
    Task,
    key_schema,
    model_and_field,
)

FOUND_WIDTH: Final = 60  # characters of a wrong value that a message shows

_REQUIRED: Final[dict[type[Frozen], dict[str, Any]]] = {
    Task: {"name": "copy"},
    Scenario: {"title": "", "task": Task(name="copy")},
}


def check_value(key: str, value: object, place: str) -> tuple[Any, list[str]]:
    """Judge one value of a known key.

    Returns the value as the models hold it (lists become tuples, integers become floats where a
    float is meant) and no mistakes; or None and one line per mistake, each beginning with `place`.
    """
    model, name = model_and_field(key)
    if value is None:
        return None, [f"{place}: {_explain(key_schema(key), value)}"]
    try:
        table = model.model_validate({**_REQUIRED.get(model, {}), name: value})
    except ValidationError as error:
        mistakes = []
        for detail in error.errors(include_url=False, include_context=False):
            indices = detail["loc"][1:]
            schema = key_schema(key)
            for _ in indices:
                schema = schema.get("anyOf", [schema])[0]["items"]
            where = place + "".join(f"[{index}]" for index in indices)
            mistakes.append(f"{where}: {_explain(schema, detail['input'])}")
        return None, mistakes
    return getattr(table, name), []


def _explain(schema: dict[str, Any], value: object) -> str:
    schema = schema.get("anyOf", [schema])[0]
    text = f"expected {expectation(schema)}"
    if isinstance(value, int) and value >= INTEGER_LIMIT:
        text += " and below 2**63"
    if not isinstance(value, str):
        return f"{text}, found {show(value)}"
    if "enum" in schema:
        return f"{text}, found {show(value)}{did_you_mean(value, schema['enum'], quote=True)}"
    text += f", found the string {show(value)}"
    if schema["type"] == "boolean" and value.lower() in ("true", "false"):
        return f"{text}; write {value.lower()}, without quotes"
    if schema["type"] in ("integer", "number") and _reads_as_number(value):
        return f"{text}; drop the quotes"
    return text


def _reads_as_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def explain_unknown(key: str, value: object, known: tuple[str, ...]) -> str:
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


def expectation(schema: dict[str, Any]) -> str:
    """What a JSON schema asks for, in words: "an integer of at least 1"."""
    if "enum" in schema:
        return alternatives(show(choice) for choice in schema["enum"])
    if schema["type"] == "array":
        item = expectation(schema["items"])
        return f"a list of one or more different values, each {item}"
    noun = {
        "boolean": "true or false",
        "string": "a string",
        "integer": "an integer",
        "number": "a finite number",
    }[schema["type"]]
    if "maximum" in schema:
        return f"{noun} from {schema['minimum']:g} to {schema['maximum']:g}"
    if "exclusiveMinimum" in schema:
        return f"{noun} greater than {schema['exclusiveMinimum']:g}"
    return f"{noun} of at least {schema['minimum']:g}" if "minimum" in schema else noun


def alternatives(words: Iterable[str]) -> str:
    """Join words as in "a, b or c"."""
    *head, last = words
    return f"{', '.join(head)} or {last}" if head else last


def show(value: object) -> str:
    """One short line that shows a value as a scenario file would write it."""
    if value is None:
        return "nothing"
    if isinstance(value, Mapping):
        return "a table"
    if isinstance(value, int) and value.bit_length() > 3 * FOUND_WIDTH:
        return "an integer of very many digits"
    if isinstance(value, (str, bool)):
        text = json.dumps(value, ensure_ascii=False)
    elif isinstance(value, (list, tuple)):
        text = f"[{', '.join(show(item) for item in value[:FOUND_WIDTH])}]"
    elif isinstance(value, (int, float, datetime.date, datetime.time)):
        text = str(value)
    else:
        text = f"{type(value).__name__} {str(value)!r}"
    return text if len(text) <= FOUND_WIDTH else f"{text[:FOUND_WIDTH]}..."


def did_you_mean(word: str, options: Iterable[str], *, quote: bool = False) -> str:
    """A hint at the nearest option, "; did you mean X?", or "" when none is near."""
    known = {option.lower(): option for option in options}
    near = difflib.get_close_matches(word.lower(), known, n=1)
    if not near:
        return ""
    return f"; did you mean {show(known[near[0]]) if quote else known[near[0]]}?"
