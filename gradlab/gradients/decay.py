"""How fast the gradient falls towards the start.

    exponential   log10 norm_i = a + slope * distance_i          half-life log10(2) / |slope|
    power law     log10 norm_i = a + power * log10(1 + distance_i)

distance_i = n + delay - i timesteps from the last state (i - 1 for a backward encoder). Least
squares, one fit a run and length: lengths are never pooled, and seeds meet only as fitted slopes.
Both laws have two parameters, so the smaller residual sum of squares decides between them. Works
on stored tables alone, without torch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Final, Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

Array = NDArray[np.float64]

WORDS: Final = {
    "case": "{}", "model.cell": "{}", "task.name": "{}", "model.attention": "{} attention",
    "model.timing": "{} timing", "record.loss": "loss {}",
}  # fmt: skip
LENGTHS: Final = ("task.length", "task.min_length", "record.lengths")
UNNAMED: Final = (*LENGTHS, "training.steps", "record.every")  # said otherwise, or not at all

SMALLEST_NORMAL: Final = float(np.finfo(np.float64).tiny)  # below it float64 loses digits
FEWEST_POINTS: Final = 3  # two laws of two parameters cannot be told apart by less
LEVEL: Final = 1e-12  # decades per timestep; a slope below it is rounding
PROFILE: Final = ("train_step", "source_length", "state", "layer", "direction", "path")
COUNTS: Final = ("points", "zeros", "subnormal", "nonfinite", "zero_examples")
FITTED: Final = ("slope", "r2", "power", "power_r2", "exponential_wins", "power_wins")
POOLED: Final = (
    "seeds", "diverged", *COUNTS,
    "slope", "slope_low", "slope_high", "r2", "power", "power_low", "power_high", "power_r2",
    "exponential_wins", "law", "profile", "half_life", "half_life_low", "half_life_high",
)  # fmt: skip


class Results(Protocol):
    """What is read of a sweep; `lab.results.Results` is one."""

    @property
    def runs(self) -> pd.DataFrame: ...

    @property
    def gradients(self) -> pd.DataFrame: ...

    @property
    def training(self) -> pd.DataFrame: ...


def decay(results: Results) -> pd.DataFrame:
    """Return how the total gradient's `norm_mean` depends on distance, over seeds.

    One row for each config (`case` and the dotted columns of `results.runs`), first and last
    measured `train_step` of its runs, `source_length`, `state`, `layer` and `direction`. A run that
    diverged was last measured there, so it has that row of its own.

    seeds: runs with a fit. diverged: runs of the row whose training diverged.
    points, zeros, subnormal, nonfinite: positions over all runs of the row, by their norm: fitted;
        exactly 0 (by structure, or below 5e-324); below 2.2e-308, where float64 loses digits; NaN
        or infinite. The last three are not in the fit.
    zero_examples: probe examples, over all positions, whose own norm is exactly 0; they are in
        `norm_mean` as zeros.
    slope, slope_low, slope_high: decades per timestep of distance, negative where the gradient
        falls towards the start; mean over seeds and 95 % t-interval, NaN with one seed.
    power, power_low, power_high: the same for the exponent of the power law, without a unit.
    r2, power_r2: part of the variance of log10 norm that each law explains, mean over seeds.
    exponential_wins: the number of seeds in which the exponential fits better.
    law: "exponential" or "power" where it wins in more than half of the seeds, else "neither".
    profile: "falls" or "grows" towards the start; "level" where the slope's interval holds zero, or
        the slope is mere rounding; "no fit" where fewer than three positions are left in each run.
    half_life, half_life_low, half_life_high: timesteps, log10(2) / |slope| of the slope and of the
        ends of its interval, so not symmetric. Where the interval holds zero, no half-life is too
        long and the upper end is infinite. NaN unless the exponential wins and the slope is
        negative.
    """
    runs = results.runs
    config = ["case", *dotted(runs)]
    per_run = fits(results).merge(
        runs.reindex(columns=["run_id", "seed", "status", *config]), on="run_id"
    )
    keys = [*config, *PROFILE]
    rows = [
        {**dict(zip(keys, values, strict=True)), **_over_seeds(seeds)}
        for values, seeds in per_run.groupby(keys, dropna=False, sort=False)
    ]
    return pd.DataFrame(rows, columns=[*keys, *POOLED])


def fits(results: Results) -> pd.DataFrame:
    """Return one row a run, first and last measured step, length and state: `fit_profile` of it."""
    total = results.gradients[results.gradients["path"] == "total"]
    total = total.drop_duplicates(["run_id", *PROFILE, "position"])  # a run of several cases
    steps = total.groupby("run_id")["train_step"]
    ends = (total["train_step"] == steps.transform("min")) | (
        total["train_step"] == steps.transform("max")
    )
    rows = []
    for values, profile in total[ends].groupby(["run_id", *PROFILE], sort=False):
        found = dict(zip(("run_id", *PROFILE), values, strict=True))
        position = profile["position"].to_numpy(np.float64)
        backward = found["direction"] == "backward"
        distance = position - position.min() if backward else position.max() - position
        found |= fit_profile(distance, profile["norm_mean"].to_numpy(np.float64))
        rows.append({**found, "zero_examples": int(profile["zeros"].sum())})
    return pd.DataFrame(rows, columns=["run_id", *PROFILE, *COUNTS, *FITTED])


def fit_profile(distance: Array, norm: Array) -> dict[str, float | int | bool]:
    """Fit both laws to the norms of one profile; see `decay` for what is returned and its units.

    distance, norm: (positions,). Slopes are NaN below three usable positions; a constant profile
    has slope 0, R2 NaN and no winner.
    """
    usable = np.isfinite(norm) & (norm >= SMALLEST_NORMAL)
    counts = {
        "points": int(usable.sum()),
        "zeros": int((norm == 0).sum()),
        "subnormal": int(((norm > 0) & (norm < SMALLEST_NORMAL)).sum()),
        "nonfinite": int((~np.isfinite(norm)).sum()),
    }
    x, y = distance[usable], np.log10(norm[usable])
    if len(y) < FEWEST_POINTS:
        nothing = dict.fromkeys(("slope", "r2", "power", "power_r2"), math.nan)
        return {**counts, **nothing, "exponential_wins": False, "power_wins": False}
    slope, residual = _line(x, y)
    power, power_residual = _line(np.log10(1 + x), y)
    spread = float(np.square(y - y.mean()).sum()) if np.ptp(y) > 0 else math.nan
    return {
        **counts,
        "slope": slope,
        "r2": 1 - residual / spread,
        "power": power,
        "power_r2": 1 - power_residual / spread,
        "exponential_wins": residual < power_residual,
        "power_wins": power_residual < residual,
    }


def dotted(frame: pd.DataFrame) -> list[str]:
    """Return the config columns of a table."""
    return [key for key in map(str, frame.columns) if "." in key]


def _line(x: Array, y: Array) -> tuple[float, float]:
    """Return slope and residual sum of squares of the least-squares line through (x, y)."""
    if np.ptp(y) == 0:
        return 0.0, 0.0
    x, y = x - x.mean(), y - y.mean()
    slope = float(x @ y / (x @ x))
    return slope, float(np.square(y - slope * x).sum())


def t_interval(values: Iterable[float]) -> tuple[float, float, float]:
    """Return mean and 95 % t-interval, mean ± t(0.975, m - 1) sd / sqrt(m); NaN ends if m < 2."""
    numbers = np.asarray(list(values), dtype=np.float64)
    m = len(numbers)
    mean = float(numbers.mean()) if m else math.nan
    if m < 2:
        return mean, math.nan, math.nan
    half = float(stats.t.ppf(0.975, m - 1) * numbers.std(ddof=1) / math.sqrt(m))
    return mean, mean - half, mean + half


def _over_seeds(runs: pd.DataFrame) -> dict[str, Any]:
    """Pool the fits of runs that differ in nothing but their seed."""
    fitted = runs[runs["slope"].notna()]
    seeds = len(fitted)
    row: dict[str, Any] = {name: int(runs[name].sum()) for name in COUNTS}
    row |= {"seeds": seeds, "diverged": int((runs["status"] == "diverged").sum())}
    for name in ("slope", "power"):
        row[name], row[f"{name}_low"], row[f"{name}_high"] = t_interval(fitted[name])
    row |= {name: fitted[name].mean() for name in ("r2", "power_r2")}
    wins = {law: int(fitted[f"{law}_wins"].sum()) for law in ("exponential", "power")}
    row["exponential_wins"] = wins["exponential"]
    row["law"] = next((law for law, count in wins.items() if 2 * count > seeds), "neither")
    slope, low, high = row["slope"], row["slope_low"], row["slope_high"]
    if seeds == 0:
        row["profile"] = "no fit"
    elif low <= 0 <= high or abs(slope) < LEVEL:
        row["profile"] = "level"
    else:
        row["profile"] = "falls" if slope < 0 else "grows"
    if row["law"] == "exponential" and slope <= -LEVEL:
        row["half_life"], row["half_life_low"] = (math.log10(2) / -s for s in (slope, low))
        row["half_life_high"] = math.inf if high >= 0 else math.log10(2) / -high
    return row


def summary_lines(table: pd.DataFrame) -> list[str]:
    """Return a plain-text line for each model and task of a `decay` table, untrained and trained.

    At the longest measured length, for the state h alone. A model is named by its case, and by the
    config keys that vary (within a case, where there are cases).
    """
    names = [key for key in dotted(table) if key not in UNNAMED]
    names.sort(key=lambda key: not key.startswith("model."))
    if len(table) and table["case"].notna().all():
        within = table.groupby("case")
        names = ["case", *(key for key in names if within[key].nunique().max() > 1)]
    else:
        names = [key for key in names if table[key].nunique() > 1]
    lines = []
    for _, model in table[table["state"] == "h"].groupby(names or "path", dropna=False, sort=False):
        longest = model[model["source_length"] == model["source_length"].max()]
        for row in longest.to_dict("records"):
            lines.append(f"{_name(row, names)}: {_finding(row)}")
    return lines or ["no gradient was measured: nothing to fit"]


def _name(row: dict[Any, Any], names: list[str]) -> str:
    words = []
    for key in names:
        if pd.notna(value := row[key]):
            shown = f"{value:g}" if isinstance(value, float) else value
            words.append(WORDS.get(key, key.partition(".")[2] + " {}").format(shown))
    n, trained = row["source_length"], row.get("task.length", row["source_length"])
    words.append(f"n = {n}" if n == trained else f"n = {n} (trained on {trained})")
    words.append(f"after {row['train_step']} steps" if row["train_step"] else "untrained")
    return ", ".join(words).replace("none attention", "no attention")


def _finding(row: dict[Any, Any]) -> str:
    seeds = f"over {row['seeds']} seed" + ("" if row["seeds"] == 1 else "s")
    rate = f"{abs(row['slope']):.2g} decades a timestep"
    slopes = "[{slope_low:.2g}, {slope_high:.2g}] " if row["seeds"] > 1 else ""
    ends = "[{half_life_low:.3g}, {half_life_high:.3g}] " if row["seeds"] > 1 else ""
    text = {
        "no fit": "no fit",
        "level": f"no decay that could be told from none, slope {row['slope']:.2g} {slopes}"
        f"decades a timestep {seeds}",
        "grows": f"no decay, grows {rate} towards the start {seeds}",
        "falls exponential": f"falls {rate}, half-life {{half_life:.3g}} timesteps {ends}{seeds} "
        "(exponential, R2 = {r2:.3f})",
        "falls power": f"falls as (1 + distance)^{{power:.2g}}, no half-life, {seeds} "
        "(power law, R2 = {power_r2:.3f}; exponential {r2:.3f})",
        "falls neither": f"falls {rate}, no half-life, {seeds} (neither law wins)",
    }
    profile = row["profile"]
    found = text[f"falls {row['law']}" if profile == "falls" else profile].format(**row)
    words = {"zeros": "exactly 0", "subnormal": "below 2.2e-308", "nonfinite": "not finite"}
    left = [f"{row[name]} {word}" for name, word in words.items() if row[name]]
    found += f"; norms left out: {', '.join(left)}" if left else ""
    return found + (f"; runs that diverged: {row['diverged']}" if row["diverged"] else "")
