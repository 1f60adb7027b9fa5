"""Accuracy is compared between models: which of them are lines, and which settings are panels."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from gradlab.plots.facets import Facets, Values, distinct, varying_keys
from gradlab.plots.style import MARKERS, Mark, categorical_marks, sequential_marks
from gradlab.plots.words import Language


@dataclass(frozen=True)
class Models:
    """Lines by what the model is, panels by task and training."""

    panel_keys: list[str]
    lines: Facets
    marks: list[Mark]

    def labels(self, lang: Language) -> list[str]:
        """The name of each line; empty for the only line of a sweep of one model."""
        return self.lines.titles(lang)

    def locate(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The frame with a column `line`, the index of the model of each row."""
        return frame.assign(line=self.lines.locate(frame)["panel"])


def keys_of_accuracy(runs: pd.DataFrame, frame: pd.DataFrame) -> list[str]:
    """The varying keys that can change an accuracy: what is recorded cannot."""
    return [key for key in varying_keys(runs, frame) if not key.startswith("record.")]


def compare_models(
    runs: pd.DataFrame, frame: pd.DataFrame, keys: list[str] | None = None
) -> Models:
    """Split the varying keys (default: `keys_of_accuracy`) into lines and panels.

    There are at most as many lines as markers.
    """
    keys = keys_of_accuracy(runs, frame) if keys is None else keys
    line_keys = [key for key in keys if key == "case" or key.startswith(("model.", "state."))]
    while len(distinct(runs, line_keys)) > len(MARKERS):
        line_keys.pop(0)
    found = distinct(runs, line_keys)
    ordered = len(line_keys) == 1 and all(map(is_number, found))
    marks = sequential_marks(len(found)) if ordered else categorical_marks(len(found))
    panel_keys = [key for key in keys if key not in line_keys]
    return Models(panel_keys, Facets(tuple(line_keys), tuple(found), 1), marks)


def is_number(values: Values) -> bool:
    """Whether the only value of a line is a number, so that lines have an order."""
    return isinstance(values[0], int | float) and not isinstance(values[0], bool)
