"""Which encoder states a figure shows: an encoder has layers and may read in two directions."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from gradlab.plots.facets import Values, distinct, plain_columns, rank_of_key
from gradlab.plots.words import Language, say

LAYER, DIRECTION = "state.layer", "state.way"
"""Columns that stand beside the config columns: null where a model has, or shows, but one."""
SHAPE = ("model.kind", "model.layers", "model.bidirectional")
"""Models that are equal in these have the same layers and directions."""
BACKWARD = "backward"


@dataclass(frozen=True)
class States:
    """The states that are shown of each model.

    places: shape of a model -> its (layer, direction) in the table -> what panels and lines call
    it. keys: LAYER and DIRECTION where they tell states apart. top: whether lower layers are left
    out.
    """

    places: dict[Values, dict[Values, Values]]
    keys: list[str]
    top: bool

    def with_keys(self, keys: list[str]) -> list[str]:
        """The keys of panels and lines, those of the states in their place among them."""
        return sorted([*keys, *self.keys], key=rank_of_key)

    def locate(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The rows of the states that are shown, with the columns LAYER and DIRECTION."""
        names = [
            self.places.get(shape, {place: (None, None)}).get(place)
            for shape, place in zip(shapes_of(frame), places_of(frame), strict=True)
        ]
        return named(frame, names)[[name is not None for name in names]]

    def expand(self, points: pd.DataFrame) -> pd.DataFrame:
        """Each point once for every state that is shown of its model."""
        shown = [list(self.places.get(s, {(): (None, None)}).values()) for s in shapes_of(points)]
        repeats = [len(names) for names in shown]
        every = points.loc[points.index.repeat(repeats)].reset_index(drop=True)
        return named(every, [name for names in shown for name in names])

    def sentences(self, lang: Language) -> list[str]:
        """That only top layers are shown, if lower ones were measured."""
        return [say(lang, "about_top_layer")] if self.top else []


def choose_states(frame: pd.DataFrame, points: pd.DataFrame, keys: list[str], most: int) -> States:
    """All states, or those of the top layers where `points` would have more than `most` of them.

    `keys` tell the points apart without their states; both directions are always shown.
    """
    every = all_states(frame, top=False)
    if LAYER in every.keys and len(distinct(every.expand(points), [*keys, *every.keys])) > most:
        return all_states(frame, top=True)
    return every


def all_states(frame: pd.DataFrame, *, top: bool) -> States:
    """The states that a table has rows of, or of its top layers alone."""
    found: dict[Values, set[Values]] = {}
    for shape, place in set(zip(shapes_of(frame), places_of(frame), strict=True)):
        found.setdefault(shape, set()).add(place)
    layered = any(len({layer for layer, _ in places}) > 1 for places in found.values())
    names: dict[Values, dict[Values, Values]] = {}
    for shape, places in found.items():
        layers = sorted({int(str(layer)) for layer, _ in places})
        directions = {direction for _, direction in places}
        names[shape] = {
            (layer, direction): (
                layer if len(layers) > 1 and not top else None,
                direction if len(directions) > 1 else None,
            )
            for layer, direction in sorted(places, key=lambda p: (p[0], p[1] == BACKWARD))
            if layer == layers[-1] or not top
        }
    shown = [name for places in names.values() for name in places.values()]
    keys = [key for i, key in enumerate((LAYER, DIRECTION)) if any(n[i] for n in shown)]
    return States(names, keys, top and layered)


def named(frame: pd.DataFrame, names: list[Values | None]) -> pd.DataFrame:
    """The frame with the two columns, from one name a row."""
    parts = [name or (None, None) for name in names]
    columns = {key: [part[i] for part in parts] for i, key in enumerate((LAYER, DIRECTION))}
    return frame.assign(
        **{key: pd.Series(values, frame.index, dtype=object) for key, values in columns.items()}
    )


def shapes_of(frame: pd.DataFrame) -> list[Values]:
    """What tells the encoders of rows apart, as far as the frame has it."""
    return tuples(frame, [key for key in SHAPE if key in frame])


def places_of(frame: pd.DataFrame) -> list[Values]:
    """The layer and direction of each row."""
    return tuples(frame, ["layer", "direction"])


def tuples(frame: pd.DataFrame, keys: list[str]) -> list[Values]:
    """Some columns of each row."""
    if not keys:
        return [()] * len(frame)
    return list(plain_columns(frame, keys).itertuples(index=False, name=None))
