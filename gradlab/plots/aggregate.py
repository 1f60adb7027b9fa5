"""From long tables to what is drawn: pandas in, pandas out."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from scipy.special import stdtrit

CONFIDENCE = 0.95
SEEDS_FOR_A_BAND = 5
"""Below this many seeds a t-interval is so wide that the seeds themselves say more."""


def usable(values: pd.Series, *, log: bool) -> pd.Series:
    """Which values a line can show: finite and, on a log axis, above zero."""
    numbers = values.astype(float)
    finite = pd.Series(np.isfinite(numbers.to_numpy()), index=values.index)
    return finite & (numbers > 0) if log else finite


def one_per_seed(frame: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Drop rows that repeat a seed within a group, as when only a `record` key differs."""
    return frame.drop_duplicates([*by, "seed"])


def count_seeds(frame: pd.DataFrame, value: str, *, log: bool) -> int:
    """The number of seeds with at least one value that a line can show."""
    return int(frame.loc[usable(frame[value], log=log), "seed"].nunique())


def over_seeds(frame: pd.DataFrame, by: list[str], value: str, *, log: bool) -> pd.DataFrame:
    """Centre and 95% t-interval over seeds, one row a group of `by`.

    The interval is mean ± t(0.975, m - 1) sd / sqrt(m) over m seeds. With `log` it is computed on
    log10 of the values and taken back, so `centre` is the geometric mean. Zeros (with `log`) and
    non-finite values are left out; `centre` is NaN where nothing is left, `low` and `high` are NaN
    below five seeds.
    """
    numbers = frame[value].astype(float).where(usable(frame[value], log=log))
    spread = frame[by].assign(y=np.log10(numbers) if log else numbers)
    table = spread.groupby(by)["y"].agg(["mean", "std", "count"]).reset_index()
    enough = table["count"] >= SEEDS_FOR_A_BAND
    seeds = table["count"].where(enough)
    half = stdtrit(seeds - 1, (1 + CONFIDENCE) / 2) * table["std"] / np.sqrt(seeds)
    bounds = {"centre": table["mean"], "low": table["mean"] - half, "high": table["mean"] + half}
    if log:
        bounds = {name: 10.0**exponent for name, exponent in bounds.items()}
    return table[by].assign(**bounds, seeds=table["count"])


def at_stages(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows before training and after a run's last step, with `stage` = steps trained (0, ...)."""
    step = frame["train_step"]
    chosen = frame[(step == 0) | (step == frame["training.steps"])]
    return chosen.assign(stage=chosen["train_step"].astype(int))


def at_last_step(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows after the last planned step; a run that diverged on the way has none."""
    return frame[frame["train_step"] == frame["training.steps"]]


def stages_of(runs: pd.DataFrame) -> pd.DataFrame:
    """Each run once untrained and, if it trains, once after its last step."""
    trained = runs[runs["training.steps"] > 0]
    return pd.concat(
        [runs.assign(stage=0), trained.assign(stage=trained["training.steps"].astype(int))],
        ignore_index=True,
    )


def stage_key(points: pd.DataFrame) -> list[str]:
    """The key of the panels by stage, if there is more than one stage."""
    return ["stage"] if points["stage"].nunique() > 1 else []


def target_lengths(frame: pd.DataFrame) -> pd.Series:
    """The number of target tokens k of each row: n, or `task.keep` where that is less."""
    lengths = frame["source_length"].astype(float)
    if "task.keep" not in frame:
        return lengths
    return lengths.clip(upper=pd.to_numeric(frame["task.keep"]).fillna(math.inf))


def longest(frame: pd.DataFrame, by: str) -> pd.DataFrame:
    """Only the rows of the largest source length in each group."""
    return frame[frame["source_length"] == frame.groupby(by)["source_length"].transform("max")]
