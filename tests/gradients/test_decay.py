"""Fits of invented profiles of a known law: exact, noisy, flat, growing, zero, underflown."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from gradlab.gradients.bottleneck import L50, l50
from gradlab.gradients.decay import (
    COUNTS,
    FITTED,
    PROFILE,
    decay,
    fit_profile,
    fits,
    summary_lines,
    t_interval,
)
from gradlab.lab.tables import TABLES

Array = NDArray[np.float64]
Curve = Callable[[int, Array], Array]
"""(seed, distance) -> norms"""
NAN, INF = np.nan, np.inf
SUBNORMAL = 1e-310


@dataclass
class Tables:
    runs: pd.DataFrame
    gradients: pd.DataFrame
    training: pd.DataFrame = field(default_factory=pd.DataFrame)


def point(seed: int, length: int, **config: Any) -> dict[str, Any]:
    defaults = {
        "task.name": "copy", "task.length": length, "task.min_length": length, "task.symbols": 8,
        "task.delay": 0, "model.cell": "gru", "model.hidden": 16, "model.attention": "none",
        "model.timing": None, "record.lengths": (length,), "record.loss": "mean",
        "training.steps": 0,
    }  # fmt: skip
    named = {key.replace("__", "."): value for key, value in config.items()}
    found = {"case": None, "status": "done", "seconds": 1.0, "seed": seed, **defaults, **named}
    return {"run_id": "/".join(str(value) for value in found.values()), **found}


def profile(
    run: dict[str, Any], norm: Array, step: int = 0, state: str = "h", direction: str = "forward"
) -> pd.DataFrame:
    """Rows of `gradients` for norms at positions 1, 2, .. of one run."""
    frame = pd.DataFrame({"position": np.arange(1, len(norm) + 1), "norm_mean": norm})
    frame = frame.assign(train_step=step, source_length=len(norm) - run["task.delay"], layer=1)
    frame = frame.assign(zeros=np.where(norm == 0, 4, 0), state=state, direction=direction)
    return frame.assign(path="total", run_id=run["run_id"])


def tables(profiles: Sequence[pd.DataFrame], runs: Sequence[dict[str, Any]]) -> Tables:
    others = [frame.assign(path="bridge", norm_mean=1.0) for frame in profiles]
    return Tables(pd.DataFrame(list(runs)), pd.concat([*profiles, *others], ignore_index=True))


def results(curve: Curve, seeds: int = 1, length: int = 20, **config: Any) -> Tables:
    """A sweep over seeds of one model."""
    distance = np.arange(length - 1.0, -1, -1)
    runs = [point(seed, length, **config) for seed in range(seeds)]
    return tables([profile(run, curve(run["seed"], distance)) for run in runs], runs)


def records(found: pd.DataFrame) -> list[dict[Any, Any]]:
    return found.to_dict("records")


def row(found: pd.DataFrame) -> dict[Any, Any]:
    (only,) = records(found)
    return only


def exponential(half_life: float, scale: float = 1.0) -> Curve:
    return lambda seed, distance: scale * 2.0 ** (-distance / half_life)


@pytest.mark.parametrize("half_life", [0.5, 1.6, 40.0])
@pytest.mark.parametrize("scale", [1.0, 1e-200, 1e200])
def test_a_known_half_life_is_found_exactly(half_life: float, scale: float) -> None:
    found = row(decay(results(exponential(half_life, scale), seeds=3, length=60)))
    assert found["half_life"] == pytest.approx(half_life, rel=1e-10, abs=0)
    assert found["slope"] == pytest.approx(-np.log10(2) / half_life, rel=1e-10, abs=0)
    assert found["half_life_low"] == pytest.approx(half_life, rel=1e-6)
    assert found["half_life_high"] == pytest.approx(half_life, rel=1e-6)
    assert found["r2"] == pytest.approx(1, rel=1e-12)
    assert (found["law"], found["profile"], found["exponential_wins"]) == (
        "exponential",
        "falls",
        3,
    )
    assert (found["seeds"], found["points"], found["zeros"], found["diverged"]) == (3, 180, 0, 0)


def test_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    """Of 200 sweeps of 5 seeds, 95 % is 190; 3 standard deviations are 9."""
    generator, distance = np.random.default_rng(0), np.arange(19.0, -1, -1)
    runs = [point(seed, 20, training__lr=sweep) for sweep in range(200) for seed in range(5)]
    profiles = []
    for run in runs:
        rate, noise = 0.19 + 0.02 * generator.standard_normal(), generator.standard_normal(20)
        profiles.append(profile(run, 10 ** (-rate * distance + 0.2 * noise)))
    found = decay(tables(profiles, runs))
    assert len(found) == 200
    low, middle, high = (found[f"half_life{end}"] for end in ("_low", "", "_high"))
    assert bool(((low < middle) & (middle < high)).all())
    assert 181 <= int(low.le(np.log10(2) / 0.19).mul(high.ge(np.log10(2) / 0.19)).sum()) <= 199


def test_a_power_law_is_recognised_and_has_no_half_life() -> None:
    found = row(decay(results(lambda _, distance: 3.0 * (1 + distance) ** -1.5, seeds=3)))
    assert found["power"] == pytest.approx(-1.5, rel=1e-12)
    assert found["power_r2"] == pytest.approx(1, rel=1e-12)
    assert found["r2"] < 0.95
    assert (found["law"], found["exponential_wins"], found["profile"]) == ("power", 0, "falls")
    assert np.isnan(
        [found[name] for name in ("half_life", "half_life_low", "half_life_high")]
    ).all()


@pytest.mark.parametrize(("exponentials", "law"), [(1, "power"), (2, "exponential")])
def test_the_law_is_that_of_most_seeds(exponentials: int, law: str) -> None:
    def curve(seed: int, distance: Array) -> Array:
        return 10 ** (-0.2 * distance) if seed < exponentials else (1 + distance) ** -2.0

    found = row(decay(results(curve, seeds=3)))
    assert (found["law"], found["exponential_wins"]) == (law, exponentials)
    assert np.isnan(found["half_life"]) == (law == "power")


def test_a_tie_of_two_seeds_is_neither_law() -> None:
    def curve(seed: int, distance: Array) -> Array:
        return 10 ** (-0.2 * distance) if seed else (1 + distance) ** -2.0

    found = row(decay(results(curve, seeds=2)))
    assert found["law"] == "neither"
    assert np.isnan(found["half_life"])


def test_norms_that_cannot_be_fitted_are_counted_and_left_out() -> None:
    def curve(seed: int, distance: Array) -> Array:
        norm = 10 ** (-0.5 * distance)
        norm[:6] = [0, 0, SUBNORMAL, NAN, INF, np.nextafter(0, 1)]
        return norm

    found = row(decay(results(curve, seeds=2)))
    assert [found[name] for name in COUNTS] == [2 * 14, 4, 4, 4, 16]
    assert found["slope"] == pytest.approx(-0.5, rel=1e-12)
    (line,) = summary_lines(decay(results(curve, seeds=2)))
    assert line.endswith("; norms left out: 4 exactly 0, 4 below 2.2e-308, 4 not finite")


def test_a_profile_with_nothing_left_to_fit_says_so() -> None:
    for value, name in [(0.0, "zeros"), (SUBNORMAL, "subnormal"), (NAN, "nonfinite")]:
        table = decay(results(lambda _, distance, v=value: np.full_like(distance, v)))  # type: ignore[misc]
        found = row(table)
        assert (found["profile"], found["law"], found["seeds"]) == ("no fit", "neither", 0)
        assert (found[name], found["points"]) == (20, 0)
        assert np.isnan([found["slope"], found["half_life"], found["r2"]]).all()
        assert summary_lines(table)[0].startswith("n = 20, untrained: no fit; norms left out: 20 ")


def test_two_positions_are_too_few_and_three_are_enough() -> None:
    assert row(decay(results(exponential(2), length=2)))["profile"] == "no fit"
    assert row(decay(results(exponential(1), length=3)))["half_life"] == pytest.approx(1)


@pytest.mark.parametrize("value", [1.0, 0.1, 1e-200])
def test_a_constant_profile_is_level(value: float) -> None:
    found = row(decay(results(lambda _, distance: np.full_like(distance, value), seeds=3)))
    assert (found["slope"], found["power"]) == (0, 0)
    assert (found["profile"], found["law"]) == ("level", "neither")
    assert np.isnan([found["half_life"], found["r2"], found["power_r2"]]).all()


def test_a_growing_profile_is_called_that_and_has_no_half_life() -> None:
    table = decay(results(lambda seed, distance: 10 ** ((0.1 + 0.001 * seed) * distance), seeds=3))
    found = row(table)
    assert (found["profile"], found["law"]) == ("grows", "exponential")
    assert found["slope"] == pytest.approx(0.101, rel=1e-12)
    assert np.isnan(
        [found[name] for name in ("half_life", "half_life_low", "half_life_high")]
    ).all()
    assert summary_lines(table) == [
        "n = 20, untrained: grows 0.1 decades a timestep towards the start over 3 seeds "
        "(R2 = 1.000)"
    ]


def sloped(*slopes: float) -> Curve:
    """Exactly exponential, with a slope a seed."""
    return lambda seed, distance: 0.3 * 10 ** (slopes[seed] * distance)


def test_two_seeds_that_both_fall_fall_though_their_interval_holds_zero() -> None:
    table = decay(results(sloped(-0.336, -0.264), seeds=2))
    found = row(table)
    low, high = -0.3 - 0.036 * 12.7062047, -0.3 + 0.036 * 12.7062047
    assert [found["slope_low"], found["slope_high"]] == pytest.approx([low, high], rel=1e-7)
    assert (found["profile"], found["law"]) == ("falls", "exponential")
    assert found["half_life"] == pytest.approx(np.log10(2) / 0.3)
    assert found["half_life_low"] == pytest.approx(np.log10(2) / -low)
    assert found["half_life_high"] == INF
    assert summary_lines(table) == [
        "n = 20, untrained: falls 0.3 decades a timestep, half-life 1 timesteps "
        "(interval too wide with 2 seeds) over 2 seeds (exponential, R2 = 1.000)"
    ]


def test_seeds_of_both_signs_show_no_clear_trend() -> None:
    table = decay(results(sloped(-0.2, 0.1), seeds=2))
    found = row(table)
    low, high = -0.05 - 0.15 * 12.7062047, -0.05 + 0.15 * 12.7062047
    assert [found["slope_low"], found["slope_high"]] == pytest.approx([low, high], rel=1e-8)
    assert found["profile"] == "unclear"
    ends = ("half_life", "half_life_low", "half_life_high")
    assert np.isnan([found[name] for name in ends]).all()
    assert summary_lines(table) == [
        "n = 20, untrained: no clear trend, slope -0.05 [-2, 1.9] decades a timestep over 2 seeds "
        "(seeds disagree, R2 = 1.000)"
    ]


@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize("seeds", [1, 3])
def test_a_law_that_explains_little_shows_no_direction(sign: int, seeds: int) -> None:
    """A weak trend under alternating noise of a decade: one seed, or seeds of one sign."""

    def curve(seed: int, distance: Array) -> Array:
        return 10 ** (sign * (0.026 * distance + np.where(distance % 2 == 0, -1.0, 1.0)))

    table = decay(results(curve, seeds=seeds))
    found = row(table)
    assert 0 < max(found["r2"], found["power_r2"]) < 0.1
    assert abs(found["slope"]) * 19 > np.log10(2)
    assert found["profile"] == "unclear"
    assert np.isnan(found["half_life"])
    (line,) = summary_lines(table)
    assert "no clear trend" in line
    assert "(no law explains half of the variance, R2 = 0.0" in line
    assert "falls" not in line
    assert "grows" not in line


def test_a_power_law_of_almost_nothing_is_no_fall() -> None:
    """The critic's (1 + distance)^-0.0056 with R2 = 0.005: the change is below a factor of two."""
    wave = np.where(np.arange(20) % 4 < 2, 0.03, -0.03)
    table = decay(results(lambda _, distance: (1 + distance) ** -0.0056 * 10**wave))
    found = row(table)
    assert max(found["r2"], found["power_r2"]) < 0.1
    assert found["profile"] == "level"
    (line,) = summary_lines(table)
    assert "level, less than a factor of two from end to end" in line
    assert "falls" not in line


@pytest.mark.parametrize(("change", "verdict"), [(1.99, "level"), (2.01, "falls")])
@pytest.mark.parametrize("seeds", [1, 2, 6])
def test_level_is_less_than_a_factor_of_two_from_end_to_end(
    change: float, verdict: str, seeds: int
) -> None:
    found = row(decay(results(sloped(*[-np.log10(change) / 19] * seeds), seeds=seeds)))
    assert found["profile"] == verdict
    assert np.isnan(found["half_life"]) == (verdict == "level")


@pytest.mark.parametrize(("seeds", "verdict"), [(4, "falls"), (5, "unclear")])
def test_from_five_seeds_on_the_interval_must_not_hold_zero(seeds: int, verdict: str) -> None:
    table = decay(results(sloped(*[-0.02] * (seeds - 1), -1.5), seeds=seeds))
    found = row(table)
    assert found["slope_low"] < 0 < found["slope_high"]
    assert found["profile"] == verdict
    assert ("no clear trend" in summary_lines(table)[0]) == (verdict == "unclear")
    assert row(decay(results(sloped(*[-0.2] * (seeds - 1), -0.3), seeds=seeds)))["slope_high"] < 0


def test_one_seed_has_no_interval() -> None:
    found = row(decay(results(exponential(1.6))))
    assert found["half_life"] == pytest.approx(1.6)
    ends = ("slope_low", "slope_high", "half_life_low", "half_life_high", "power_low", "power_high")
    assert np.isnan([found[name] for name in ends]).all()
    assert (found["profile"], found["seeds"]) == ("falls", 1)


def test_lengths_are_never_pooled() -> None:
    short, long = point(0, 10), point(0, 40)
    two = tables(
        [
            profile(short, 10 ** (-0.3 * np.arange(9.0, -1, -1))),
            profile(long, 1e-9 * 10 ** (-0.1 * np.arange(39.0, -1, -1))),
        ],
        [short, long],
    )
    np.testing.assert_allclose(decay(two)["slope"], [-0.3, -0.1], rtol=1e-12)
    run = point(0, 40, record__lengths=(10, 40))  # one run measured at both
    curves = [10 ** (-rate * np.arange(n - 1.0, -1, -1)) for n, rate in [(10, 0.3), (40, 0.1)]]
    one = tables([profile(run, curve) for curve in curves], [run])
    found = decay(one)
    assert list(found["source_length"]) == [10, 40]
    np.testing.assert_allclose(found["slope"], [-0.3, -0.1], rtol=1e-12)
    (line,) = summary_lines(found)  # the longest alone
    assert "n = 40" in line


def test_states_directions_and_models_are_apart_and_seeds_together() -> None:
    runs = [point(seed, 12, model__cell=cell) for cell in ("gru", "lstm") for seed in (0, 1)]
    distance = np.arange(11.0, -1, -1)
    profiles = [profile(run, 10 ** (-0.2 * distance)) for run in runs]
    profiles += [profile(run, 10 ** (-0.4 * distance), state="c") for run in runs[2:]]
    profiles += [profile(runs[0], 10 ** (-0.6 * distance[::-1]), direction="backward")]
    keys = ["model.cell", "state", "direction"]
    found = {tuple(row[key] for key in keys): row for row in records(decay(tables(profiles, runs)))}
    expected = {
        ("gru", "h", "forward"): (-0.2, 2),
        ("lstm", "h", "forward"): (-0.2, 2),
        ("lstm", "c", "forward"): (-0.4, 2),
        ("gru", "h", "backward"): (-0.6, 1),
    }
    assert len(found) == len(expected)
    for key, (slope, seeds) in expected.items():
        assert found[key]["slope"] == pytest.approx(slope, rel=1e-12)
        assert found[key]["seeds"] == seeds


def test_distance_counts_from_the_last_state_delay_included() -> None:
    run = point(0, 10, task__delay=5)
    distance = np.arange(14.0, -1, -1)
    found = row(decay(tables([profile(run, (1 + distance) ** -2.0)], [run])))
    assert (found["power"], found["points"]) == (pytest.approx(-2, rel=1e-12), 15)


def test_first_and_last_step_and_what_diverged() -> None:
    runs = [point(0, 10, training__steps=200), point(1, 10, training__steps=200)]
    runs[1]["status"] = "diverged"
    distance = np.arange(9.0, -1, -1)
    healthy = [profile(runs[0], 10 ** (-0.1 * (1 + step) * distance), step) for step in (0, 1, 2)]
    broken = [profile(runs[1], 10 ** (-0.1 * distance)), profile(runs[1], distance + NAN, 1)]
    table = decay(tables([*healthy, *broken], runs))
    assert list(table["train_step"]) == [0, 2, 1]
    assert list(table["seeds"]) == [2, 1, 0]
    assert list(table["diverged"]) == [1, 0, 1]
    assert list(table["nonfinite"]) == [0, 0, 10]
    lines = summary_lines(table)
    assert lines[2] == (
        "n = 10, after 1 step: no fit; norms left out: 10 not finite; runs that diverged: 1"
    )


def test_a_run_of_two_cases_is_fitted_once_and_reported_twice() -> None:
    run = point(0, 10)
    cases = [{**run, "case": "vanilla"}, {**run, "case": "again"}]
    norm = 10 ** (-0.2 * np.arange(9.0, -1, -1))
    both = tables([profile(case, norm) for case in cases], cases)
    assert len(fits(both)) == 1
    table = decay(both)
    assert list(table["case"]) == ["vanilla", "again"]
    assert list(table["points"]) == [10, 10]
    assert [line.partition(",")[0] for line in summary_lines(table)] == ["vanilla", "again"]


def test_summary_names_what_varies() -> None:
    found = [
        results(exponential(1.6), seeds=5, length=40, model__attention=attention, task__name=task)
        for attention in ("none", "additive")
        for task in ("copy", "reverse")
    ]
    together = Tables(pd.concat([t.runs for t in found]), pd.concat([t.gradients for t in found]))
    lines = summary_lines(decay(together))
    assert len(lines) == 4
    assert lines[0] == (
        "no attention, copy, n = 40, untrained: falls 0.19 decades a timestep, half-life 1.6 "
        "timesteps [1.6, 1.6] over 5 seeds (exponential, R2 = 1.000)"
    )
    assert lines[3].startswith("additive attention, reverse, n = 40, untrained: falls")
    (line,) = summary_lines(decay(results(lambda _, distance: (1 + distance) ** -1.0)))
    assert line == (
        "n = 20, untrained: falls as (1 + distance)^-1, no half-life, over 1 seed "
        "(power law, R2 = 1.000; exponential 0.867)"
    )


def test_empty_tables() -> None:
    runs = pd.DataFrame([{**point(0, 10), "status": "missing"}])
    columns = [*TABLES["gradients"], "run_id", *runs.columns[1:]]
    nothing = Tables(runs, pd.DataFrame(columns=columns))
    table = decay(nothing)
    assert table.empty
    assert {"task.name", *PROFILE, "half_life"} <= set(table.columns)
    assert list(fits(nothing).columns) == ["run_id", *PROFILE, *COUNTS, *FITTED]
    assert summary_lines(table) == ["no gradient was measured: nothing to fit"]


def test_t_interval_is_the_textbook_one() -> None:
    assert t_interval([1.0, 2.0, 3.0]) == pytest.approx((2, 2 - 2.4841377, 2 + 2.4841377))
    np.testing.assert_equal(t_interval([2.0]), (2.0, NAN, NAN))
    np.testing.assert_equal(t_interval([]), (NAN, NAN, NAN))


def test_fit_of_one_profile_is_numpys() -> None:
    generator = np.random.default_rng(0)
    distance, norm = np.arange(15.0), 10 ** generator.standard_normal(15)
    found = fit_profile(distance, norm)
    slope, power = (np.polyfit(x, np.log10(norm), 1)[0] for x in (distance, np.log10(1 + distance)))
    assert [found["slope"], found["power"]] == pytest.approx([slope, power], rel=1e-10)
    r = np.corrcoef(distance, np.log10(norm))[0, 1]
    assert found["r2"] == pytest.approx(r**2, rel=1e-10)


def accuracies(curves: dict[int, dict[int, float]], **config: Any) -> Tables:
    """Seed -> length -> sequence accuracy; a run for each length, untrained rows included."""
    runs, rows = [], []
    for seed, curve in curves.items():
        for length, accuracy in curve.items():
            runs.append(point(seed, length, training__steps=9, **config))
            for step, value in ((0, 0.0), (9, accuracy)):
                measured = {"train_step": step, "source_length": length, "sequence_accuracy": value}
                rows.append({**measured, **runs[-1], "status": "ok"})
    return Tables(pd.DataFrame(runs), pd.DataFrame(), pd.DataFrame(rows))


def test_l50_is_interpolated_per_seed() -> None:
    curves = {
        0: {5: 1.0, 10: 0.9, 20: 0.1},
        1: {5: 1.0, 10: 0.7, 20: 0.3},
        2: {5: 1, 10: 0.5, 20: 0},
    }
    found = row(l50(accuracies(curves)))
    assert found["l50"] == pytest.approx((15 + 15 + 10) / 3)
    half = 4.3026527 * np.std([15, 15, 10], ddof=1) / np.sqrt(3)
    assert [found["l50_low"], found["l50_high"]] == pytest.approx(
        [found["l50"] - half, found["l50"] + half]
    )
    assert (found["seeds"], found["shortest"], found["longest"]) == (3, 5, 20)
    assert found["bits"] == pytest.approx(3 * found["l50"])  # V = 8
    assert (found["bits_longest"], found["state_numbers"], found["reason"]) == (60, 16, "")


def test_l50_that_is_never_crossed_has_a_reason() -> None:
    curves = {
        0: {5: 0.9, 10: 0.8}, 1: {5: 0.2, 10: 0.1}, 2: {5: 0.9, 10: 0.1}, 3: {5: 0.9, 10: NAN},
        4: {5: 0.9, 10: 0.8},
    }  # fmt: skip
    found = row(l50(accuracies(curves, model__cell="lstm")))
    assert np.isnan([found[name] for name in ("l50", "l50_low", "l50_high", "bits")]).all()
    assert found["reason"] == (
        "2 of 5 seeds are at one half or above up to n = 10; 1 of 5 seeds are below one half "
        "already at n = 5; 1 of 5 seeds have an accuracy that is not finite"
    )
    assert (found["state_numbers"], found["bits_longest"]) == (32, 30)


def test_l50_of_runs_measured_at_several_lengths_is_one_curve_a_run() -> None:
    runs = [point(0, trained, record__lengths=(5, 10, 20)) for trained in (5, 20)]
    rows = [
        {"train_step": 0, "source_length": n, "sequence_accuracy": accuracy, **run, "status": "ok"}
        for run, curve in zip(runs, [(1, 0, 0), (1, 1, 0)], strict=True)
        for n, accuracy in zip((5, 10, 20), curve, strict=True)
    ]
    found = l50(Tables(pd.DataFrame(runs), pd.DataFrame(), pd.DataFrame(rows)))
    assert list(found["task.length"]) == [5, 20]
    assert list(found["l50"]) == [7.5, 15]
    assert bool(found["l50_low"].isna().all())


def test_l50_of_nothing_is_empty() -> None:
    nothing = accuracies({0: {5: 1.0}})
    nothing.training = nothing.training.iloc[:0]
    found = l50(nothing)
    assert found.empty
    assert set(L50) < set(found.columns)


def test_torch_is_not_needed() -> None:
    code = "import sys, gradlab.gradients.decay; print('torch' in sys.modules)"
    command = [sys.executable, "-c", code]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "False\n"
