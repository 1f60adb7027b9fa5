"""What a figure needs from a sweep: a title and its tables, nothing more."""

from __future__ import annotations

from typing import Protocol

import pandas as pd


class Titled(Protocol):
    """A scenario, as far as a figure is concerned."""

    @property
    def title(self) -> str: ...


class Results(Protocol):
    """The tables of a sweep, with the columns of `runs` joined on to the others.

    `runs` has one row a point: `run_id`, `case`, `status` ("done", "diverged", "missing"), `seed`
    and the dotted config columns, null where a key has no effect at that point.
    `hops`, `maps` and `lyapunov` are empty where they were not recorded. `decay` has one fit a
    config, step and length, over seeds: config columns, but neither `run_id` nor `seed`.
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

    @property
    def hops(self) -> pd.DataFrame: ...

    @property
    def maps(self) -> pd.DataFrame: ...

    @property
    def lyapunov(self) -> pd.DataFrame: ...

    @property
    def decay(self) -> pd.DataFrame: ...
