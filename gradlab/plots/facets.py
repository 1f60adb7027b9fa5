"""Which panels a figure has: one for each combination of the config values that vary."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pandas as pd

from gradlab.plots.words import Language, describe_all

Value = object
Values = tuple[Value, ...]

NEVER_A_FACET = {"task.length", "training.steps", "record.lengths", "record.every"}
"""Lengths are lines or an axis; steps appear as the stage (untrained, after n steps)."""
KEY_ORDER = ("case", "model.kind", "model.cell", "model.layers", "model.bidirectional",
             "model.init", "model.gain", "model.attention", "model.scope", "model.window",
             "model.timing")  # fmt: skip
NATURAL_ORDER: dict[str, tuple[str, ...]] = {
    "model.kind": ("seq2seq", "synchronous", "transformer"),
    "model.cell": ("rnn", "gru", "lstm"),
    "model.init": ("torch", "orthogonal", "identity"),
    "model.attention": ("none", "additive", "dot", "scaled_dot", "general", "concat", "cosine",
                        "location"),
    "model.scope": ("global", "local_monotonic", "local_predictive"),
    "state.way": ("forward", "backward"),
    "record.loss": ("mean", "sum", "first", "last"),
}  # fmt: skip
TABLE_ORDER = ("model", "state", "task", "training", "record")
LANDSCAPE = 1.6
MOST_COLUMNS = 6


def plain(value: object) -> Value:
    """A config value that compares and hashes: null is None, 64.0 is 64, a list is a tuple."""
    if isinstance(value, list | tuple | np.ndarray):
        return tuple(plain(item) for item in value)
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def plain_columns(frame: pd.DataFrame, keys: Iterable[str]) -> pd.DataFrame:
    """The columns `keys` of a frame with each value made plain."""
    return pd.DataFrame(
        {key: pd.Series([plain(v) for v in frame[key]], frame.index, dtype=object) for key in keys}
    )


def varying_keys(runs: pd.DataFrame, frame: pd.DataFrame) -> list[str]:
    """The config keys that tell the points of a sweep apart, seed and length left aside.

    The trained length joins them where something was measured at another length. A key that is
    null at some points and the same at all others counts only if nothing else tells them apart.
    Where all points have a `case` label, it stands for the keys that are constant within each case,
    except the loss reduction, without which no norm can be read.
    """
    names = [key for key in runs.columns if "." in key and key not in NEVER_A_FACET]
    values = plain_columns(runs, [*names, "task.length"])
    lengths = values["task.length"]
    if "task.min_length" in names and (values["task.min_length"].fillna(lengths) == lengths).all():
        names.remove("task.min_length")
    if (frame["source_length"] != frame["task.length"]).any():
        names.append("task.length")
    keys = [key for key in names if values[key].nunique() > 1]
    points = values.assign(seed=runs["seed"])
    for key in names:
        if values[key].isna().any() and values[key].nunique() == 1:
            groups = points.groupby([*keys, "task.length", "seed"], dropna=False)[key]
            keys += [key] if groups.nunique(dropna=False).max() > 1 else []
    if "case" in runs and runs["case"].notna().all() and runs["case"].nunique() > 1:
        within = values.groupby(runs["case"])
        set_by_case = [k for k in keys if within[k].nunique(dropna=False).max() == 1]
        keys = ["case", *(k for k in keys if k not in set_by_case or k == "record.loss")]
    return sorted(keys, key=rank_of_key)


def rank_of_key(key: str) -> tuple[int, str]:
    """The model first, then its states, task, training and what is recorded."""
    if key in KEY_ORDER:
        return KEY_ORDER.index(key), key
    return len(KEY_ORDER) + TABLE_ORDER.index(key.split(".")[0]), key


def distinct(points: pd.DataFrame, keys: list[str]) -> list[Values]:
    """The combinations of values that exist, each key in its natural order."""
    columns = plain_columns(points, keys)
    ranks = {key: ranks_of_values(key, columns[key]) for key in keys}
    found = set(columns.itertuples(index=False, name=None)) if keys else {()}
    return sorted(
        found, key=lambda values: [ranks[k][v] for k, v in zip(keys, values, strict=True)]
    )


def ranks_of_values(key: str, values: pd.Series) -> dict[Value, int]:
    """A place for each value: null first, numbers ascending, known words, then as they come."""
    found = list(dict.fromkeys(values))
    known = NATURAL_ORDER.get(key, ())

    def place(value: Value) -> tuple[int, float]:
        if value is None:
            return 0, 0.0
        if isinstance(value, int | float):
            return 1, float(value)
        return 2, known.index(value) if value in known else len(known) + found.index(value)

    return {value: i for i, value in enumerate(sorted(found, key=place))}


@dataclass(frozen=True)
class Facets:
    """Panels in reading order; `keys` name the values of each, `columns` stand side by side."""

    keys: tuple[str, ...]
    panels: tuple[Values, ...]
    columns: int

    @property
    def rows(self) -> int:
        return -(-len(self.panels) // self.columns)

    def titles(self, lang: Language) -> list[str]:
        """Each panel in plain words, naming only what varies."""
        return [
            describe_all(lang, dict(zip(self.keys, values, strict=True))) for values in self.panels
        ]

    def locate(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The frame with a column `panel`, the index of the panel that each row belongs to."""
        if not self.keys:
            return frame.assign(panel=0)
        index = {values: i for i, values in enumerate(self.panels)}
        rows = plain_columns(frame, self.keys).itertuples(index=False, name=None)
        return frame.assign(panel=[index[row] for row in rows])

    def split(self, frame: pd.DataFrame) -> Iterator[pd.DataFrame]:
        """The rows of each panel in turn, possibly none."""
        located = self.locate(frame)
        for i in range(len(self.panels)):
            yield located[located["panel"] == i]


def facets(points: pd.DataFrame, keys: list[str]) -> Facets:
    """One panel a combination of `keys` that exists, in a landscape grid.

    Rows and columns follow the keys where the combinations are a full product of two groups of
    keys, so that one look along a row or a column changes one thing; otherwise panels wrap.
    """
    panels = distinct(points, keys)
    best: tuple[float, list[Values], int] = (math.inf, panels, 1)
    for columns in range(1, min(len(panels), MOST_COLUMNS) + 1):
        shape = grid_cost(len(panels), columns) + 0.3
        best = min(best, (shape, panels, columns), key=lambda option: option[0])
    places = range(len(keys))[::-1]
    for size in range(min(len(keys), 6) + 1):
        for down in combinations(places, size):
            across = [i for i in places if i not in down]
            rows, columns = count_parts(panels, down), count_parts(panels, across)
            if rows * columns == len(panels) and columns <= MOST_COLUMNS:
                by_row = sorted(panels, key=lambda p: [panels_order(panels, p, i) for i in down])
                option = (grid_cost(len(panels), columns), by_row, columns)
                best = min(best, option, key=lambda option: option[0])
    return Facets(tuple(keys), tuple(best[1]), best[2])


def count_parts(panels: list[Values], places: Iterable[int]) -> int:
    """How many different values the panels have at these places together."""
    chosen = list(places)
    return len({tuple(panel[i] for i in chosen) for panel in panels})


def panels_order(panels: list[Values], panel: Values, place: int) -> int:
    """The rank of a panel's value at one place, by first appearance in the sorted panels."""
    return list(dict.fromkeys(p[place] for p in panels)).index(panel[place])


def grid_cost(count: int, columns: int) -> float:
    """How far a grid is from landscape, plus its empty cells."""
    rows = -(-count // columns)
    return abs(math.log(columns / rows / LANDSCAPE)) + (rows * columns - count) / count
