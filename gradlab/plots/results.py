"""What a figure needs from a sweep: a title and five tables, nothing more."""

from __future__ import annotations

from typing import Protocol

import pandas as pd


class Titled(Protocol):
    """A scenario, as far as a figure is concerned."""

    @property
    def title(self) -> str: ...


class Results(Protocol):
    """The tables of a sweep, with the columns of `runs` joined on to the other four.

    `runs` has one row a point: `run_id`, `case`, `status` ("done", "diverged", "missing"), `seed`
    and the dotted config columns, null where a key has no effect at that point.
    """

    @property
    def scenario(self) -> Titled: ...

    @property
    def runs(self) -> pd.DataFrame: ...

    @property
    def gradients(self) -> pd.DataFrame: ...

    @property
    def training(self) -> pd.DataFrame: ...

    @property
    def positions(self) -> pd.DataFrame: ...

    @property
    def attention(self) -> pd.DataFrame: ...
