"""How fast the gradient falls towards the start.

    exponential   log10 norm_i = a + slope * distance_i          half-life log10(2) / |slope|
    power law     log10 norm_i = a + power * log10(1 + distance_i)

distance_i = n + delay - i timesteps from the last state (i - 1 for a backward encoder). Least
squares, one fit a run and length: lengths are never pooled, and seeds meet only as fitted slopes.
Both laws have two parameters, so the smaller residual sum of squares decides. No torch is needed.
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
LEVEL_CHANGE: Final = math.log10(2)  # decades from end to end; a smaller change is no trend
LEAST_R2: Final = 0.5  # a law that explains less of the variance shows no direction
ENOUGH_SEEDS: Final = 5  # t is 2.8 here, but 12.7 with two seeds, too wide to speak of zero
PROFILE: Final = ("train_step", "source_length", "state", "layer", "direction", "path")
COUNTS: Final = ("points", "zeros", "subnormal", "nonfinite", "zero_examples")
FITTED: Final = ("distance", "slope", "r2", "power", "power_r2", "exponential_wins", "power_wins")
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

    One row for each config (`case` and dotted columns), first and last measured `train_step` (which
    is its own for a run that diverged), `source_length`, `state`, `layer` and `direction`.

    seeds, diverged: runs with a fit; runs of the row whose training diverged.
    points, zeros, subnormal, nonfinite: positions over all runs of the row, by their norm: fitted;
        exactly 0; below 2.2e-308, where float64 loses digits; NaN or infinite, none of them fitted.
    zero_examples: probe examples over all positions of norm 0; `norm_mean` includes them.
    slope, slope_low, slope_high: decades per timestep of distance, negative where the gradient
        falls towards the start; mean over seeds and 95 % t-interval, NaN with one seed.
    power, power_low, power_high: the same for the exponent of the power law, without a unit.
    r2, power_r2: part of the variance of log10 norm that each law explains, mean over seeds.
    exponential_wins: the number of seeds in which the exponential fits better.
    law: "exponential" or "power" where it wins in more than half of the seeds, else "neither".
    profile: the first of these that holds. "no fit": fewer than three positions left in each run.
        "level": in every seed |slope| x distance < `LEVEL_CHANGE`, a factor of two from end to end.
        "unclear": slopes of seeds differ in sign, or neither law explains `LEAST_R2` of the
        variance, or from `ENOUGH_SEEDS` on the slope's interval holds zero. "falls" or "grows".
    half_life, half_life_low, half_life_high: timesteps, log10(2) / |slope| of the slope and of its
        interval's ends, so not symmetric; the upper end is infinite where the interval holds zero.
        NaN unless the profile falls and the exponential wins.
    """
    config = ["case", *dotted(results.runs)]
    known = results.runs.reindex(columns=["run_id", "seed", "status", *config])
    per_run, keys = fits(results).merge(known, on="run_id"), [*config, *PROFILE]
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
    first, last = (total["train_step"] == steps.transform(end) for end in ("min", "max"))
    rows = []
    for values, profile in total[first | last].groupby(["run_id", *PROFILE], sort=False):
        found = dict(zip(("run_id", *PROFILE), values, strict=True))
        position = profile["position"].to_numpy(np.float64)
        backward = found["direction"] == "backward"
        distance = position - position.min() if backward else position.max() - position
        found |= fit_profile(distance, profile["norm_mean"].to_numpy(np.float64))
        rows.append({**found, "zero_examples": int(profile["zeros"].sum())})
    return pd.DataFrame(rows, columns=["run_id", *PROFILE, *COUNTS, *FITTED])


def fit_profile(distance: Array, norm: Array) -> dict[str, float | int | bool]:
    """Fit both laws to the norms of one profile; see `decay` for what is returned and its units.

    distance, norm: (positions,). In the result, distance is the largest that was fitted. Slopes are
    NaN below three usable positions; a constant profile has slope 0, R2 NaN and no winner.
    """
    usable = np.isfinite(norm) & (norm >= SMALLEST_NORMAL)
    subnormal = (norm > 0) & (norm < SMALLEST_NORMAL)
    kinds = zip(COUNTS[:-1], (usable, norm == 0, subnormal, ~np.isfinite(norm)), strict=True)
    counts = {name: int(kind.sum()) for name, kind in kinds}
    x, y = distance[usable], np.log10(norm[usable])
    if len(y) < FEWEST_POINTS:
        nothing = dict.fromkeys(FITTED, math.nan)
        return {**counts, **nothing, "exponential_wins": False, "power_wins": False}
    slope, residual = _line(x, y)
    power, power_residual = _line(np.log10(1 + x), y)
    spread = float(np.square(y - y.mean()).sum()) if np.ptp(y) > 0 else math.nan
    return {
        **counts,
        "distance": float(x.max()),
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
    m, mean = len(numbers), float(numbers.mean()) if len(numbers) else math.nan
    if m < 2:
        return mean, math.nan, math.nan
    half = float(stats.t.ppf(0.975, m - 1) * numbers.std(ddof=1) / math.sqrt(m))
    return mean, mean - half, mean + half


def _over_seeds(runs: pd.DataFrame) -> dict[str, Any]:
    """Pool the fits of runs that differ in nothing but their seed."""
    seeds = len(fitted := runs[runs["slope"].notna()])
    row: dict[str, Any] = {"seeds": seeds, "diverged": int((runs["status"] == "diverged").sum())}
    row |= {name: int(runs[name].sum()) for name in COUNTS}
    for name in ("slope", "power"):
        row[name], row[f"{name}_low"], row[f"{name}_high"] = t_interval(fitted[name])
    row |= {name: fitted[name].mean() for name in ("r2", "power_r2")}
    wins = {law: int(fitted[f"{law}_wins"].sum()) for law in ("exponential", "power")}
    row["exponential_wins"] = wins["exponential"]
    row["law"] = next((law for law, count in wins.items() if 2 * count > seeds), "neither")
    row["profile"] = _verdict(fitted, row)
    if row["law"] == "exponential" and row["profile"] == "falls":
        for end in ("", "_low", "_high"):  # NaN with one seed
            rate = -row[f"slope{end}"]
            row[f"half_life{end}"] = math.inf if rate <= 0 else math.log10(2) / rate
    return row


def _verdict(fitted: pd.DataFrame, row: dict[str, Any]) -> str:
    """Return the `profile` of `decay`; few seeds with a wide interval are no sign of no decay."""
    if fitted.empty:
        return "no fit"
    if (fitted["slope"].abs() * fitted["distance"]).max() < LEVEL_CHANGE:
        return "level"
    holds_zero = row["slope_low"] <= 0 <= row["slope_high"] and len(fitted) >= ENOUGH_SEEDS
    one_sign = fitted["slope"].map(np.sign).nunique() == 1
    if holds_zero or not one_sign or not max(row["r2"], row["power_r2"]) >= LEAST_R2:
        return "unclear"
    return "falls" if row["slope"] < 0 else "grows"


def summary_lines(table: pd.DataFrame) -> list[str]:
    """Return a plain-text line for each model and task of a `decay` table, untrained and trained.

    For the state h at the longest length. A model is named by its case and the keys that vary.
    """
    names = [key for key in dotted(table) if key not in UNNAMED]
    names.sort(key=lambda key: not key.startswith("model."))
    cases = len(table) > 0 and bool(table["case"].notna().all())
    within = table.groupby("case") if cases else table
    names = ["case"] * cases + [key for key in names if np.max(within[key].nunique()) > 1]
    lines = []
    for _, model in table[table["state"] == "h"].groupby(names or "path", dropna=False, sort=False):
        longest = model[model["source_length"] == model["source_length"].max()]
        lines += [f"{_name(row, names)}: {_finding(row)}" for row in longest.to_dict("records")]
    return lines or ["no gradient was measured: nothing to fit"]


def _name(row: dict[Any, Any], names: list[str]) -> str:
    words = []
    for key in names:
        if pd.notna(value := row[key]):
            shown = f"{value:g}" if isinstance(value, float) else value
            words.append(WORDS.get(key, key.partition(".")[2] + " {}").format(shown))
    n, step = row["source_length"], row["train_step"]
    trained = row.get("task.length", n)
    words.append(f"n = {n}" if n == trained else f"n = {n} (trained on {trained})")
    words.append(f"after {step} step{'s' * (step != 1)}" if step else "untrained")
    return ", ".join(words).replace("none attention", "no attention")


def _finding(row: dict[Any, Any]) -> str:
    seeds = f"over {row['seeds']} seed" + ("" if row["seeds"] == 1 else "s")
    rate, best = f"{abs(row['slope']):.2g} decades a timestep", max(row["r2"], row["power_r2"])
    slopes = " [{slope_low:.2g}, {slope_high:.2g}]" if row["seeds"] > 1 else ""
    slopes = f"slope {{slope:.2g}}{slopes} decades a timestep {seeds}"
    ends = "[{half_life_low:.3g}, {half_life_high:.3g}] " if row["seeds"] > 1 else ""
    if ends and not np.isfinite([row["half_life_low"], row["half_life_high"]]).all():
        ends = "(interval too wide with {seeds} seeds) "
    why = "seeds disagree" if best >= LEAST_R2 else "no law explains half of the variance"
    text = {
        "level": f"level, less than a factor of two from end to end, {slopes}",
        "unclear": f"no clear trend, {slopes} ({why}, R2 = {best:.3f})",
        "grows": f"grows {rate} towards the start {seeds} (R2 = {best:.3f})",
        "falls exponential": f"falls {rate}, half-life {{half_life:.3g}} timesteps {ends}{seeds} "
        "(exponential, R2 = {r2:.3f})",
        "falls power": f"falls as (1 + distance)^{{power:.2g}}, no half-life, {seeds} "
        "(power law, R2 = {power_r2:.3f}; exponential {r2:.3f})",
        "falls neither": f"falls {rate}, no half-life, {seeds} (neither law wins, R2 = {best:.3f})",
    }
    profile = f"falls {row['law']}" if row["profile"] == "falls" else row["profile"]
    found = text.get(profile, profile).format(**row)
    words = {"zeros": "exactly 0", "subnormal": "below 2.2e-308", "nonfinite": "not finite"}
    left = [f"{row[name]} {word}" for name, word in words.items() if row[name]]
    found += f"; norms left out: {', '.join(left)}" if left else ""
    return found + (f"; runs that diverged: {row['diverged']}" if row["diverged"] else "")
