"""Figures of maps and rates: decoder by encoder, half-lives, Lyapunov exponents."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, QuadMesh
from matplotlib.figure import Figure
from reading import caption, legend, lines, panel, texts, xs, ys
from scipy import stats
from synthetic import Axes as Sweep
from synthetic import Point, make

from gradlab.errors import NothingToPlotError
from gradlab.plots import FIGURES

BOTH = {"model.attention": ["none", "additive"]}


def mesh(axis: Axes, label: str) -> QuadMesh:
    (found,) = (c for c in axis.collections if c.get_label() == label)
    assert isinstance(found, QuadMesh)
    return found


def test_map_shows_geometric_means_beside_mean_weights_first_target_on_top() -> None:
    results = make({**BOTH, "task.length": [3, 6]}, seeds=2, steps=(0, 9))
    figure = FIGURES["gradient_map"](results)
    left = panel(figure, "additive attention", "after 9 steps", "gradient")
    right = panel(figure, "additive attention", "after 9 steps", "attention weight")
    table = results.maps.query(
        "source_length == 6 and train_step == 9 and `model.attention` == 'additive'"
    ).groupby(["target_position", "position"])
    norm = table["gradient_norm"].agg(stats.gmean).unstack().map(np.log10)
    np.testing.assert_allclose(np.asarray(mesh(left, "norms").get_array()), norm, rtol=1e-12)
    weight = table["attention_weight"].mean().unstack()
    np.testing.assert_allclose(np.asarray(mesh(right, "centre").get_array()), weight, rtol=1e-12)
    assert mesh(right, "centre").get_clim() == (0, 1)
    assert left.get_ylim() == right.get_ylim() == (6.5, 0.5)
    assert left.get_position().y0 == right.get_position().y0
    assert left.get_position().x1 < right.get_position().x0
    words = caption(figure)
    assert "geometric mean over 2 seeds" in words
    assert "no reduction over tokens" in words
    assert "n = 6" in words


def test_map_without_attention_is_the_gradient_alone() -> None:
    both = FIGURES["gradient_map"](make({**BOTH, "task.length": [4]}, steps=(0, 9)))
    assert texts(both, "note") == ["no attention"] * 2
    for stage in ("untrained", "after 9 steps"):
        empty = panel(both, "no attention", stage, "attention weight")
        assert not empty.collections
        assert mesh(panel(both, "no attention", stage, "gradient"), "norms")
        assert mesh(panel(both, "additive attention", stage, "attention weight"), "centre")
    alone = FIGURES["gradient_map"](make({"task.length": [4]}))
    assert [axis.get_title() for axis in alone.axes[:-1]] == ["untrained · gradient"]
    assert "Weights" not in caption(alone)
    assert "1 seed: no interval" in caption(alone)


def test_map_has_a_row_a_model_and_task_and_columns_by_stage_and_kind() -> None:
    axes: Sweep = {**BOTH, "task.name": ["copy", "reverse"], "task.length": [4]}
    figure = FIGURES["gradient_map"](make(axes, steps=(0, 9)))
    labels = [f"{model} {task}" for model in ("no attention", "additive attention")
              for task in ("copy", "reverse")]  # fmt: skip
    found = [label.replace(" · ", " ").replace("\n", " ") for label in texts(figure, "row_label")]
    assert found == labels
    columns = [axis.get_title().replace("\n", " ") for axis in figure.axes[:4]]
    assert columns == ["untrained gradient", "untrained attention weight",
                       "after 9 steps gradient", "after 9 steps attention weight"]  # fmt: skip
    assert not any(axis.get_title() for axis in figure.axes[4:16])


def test_map_of_models_trained_for_different_steps_names_each_stage() -> None:
    results = make({**BOTH, "task.length": [4]}, steps=(0, 9))
    for table in (results.runs, results.maps):
        table.loc[table["model.attention"] == "none", "training.steps"] = 0
    figure = FIGURES["gradient_map"](results)
    assert len(figure.axes) == 2 + 4 + 2  # the cells of both rows, and two scales
    assert mesh(panel(figure, "additive attention", "after 9 steps", "gradient"), "norms")


def test_map_ignores_the_loss_reduction() -> None:
    results = make({"record.loss": ["mean", "last"], "task.length": [3]})
    assert len(FIGURES["gradient_map"](results).axes) == 2
    assert "target token j alone" in caption(FIGURES["gradient_map"](results))


def test_map_counts_zeros_and_what_is_not_finite() -> None:
    results = make({"model.attention": ["additive"], "task.length": [4]})
    results.maps.loc[results.maps["position"] == 1, "gradient_norm"] = 0.0
    results.maps.loc[(results.maps["position"] == 2).idxmax(), "gradient_norm"] = np.inf
    results.maps.loc[(results.maps["position"] == 3).idxmax(), "attention_weight"] = np.nan
    figure = FIGURES["gradient_map"](results)
    words = caption(figure)
    assert "4 of 16 norms are exactly 0 and not in the means" in words
    assert words.count("Not finite and left out: 1 of 16 values") == 2
    assert legend(figure) == ["exactly 0", "no finite value"]
    zeros = np.ma.masked_invalid(np.asarray(mesh(figure.axes[0], "zeros").get_array(), float))
    assert zeros.count() == 4
    results.maps["gradient_norm"] = 0.0
    assert legend(FIGURES["gradient_map"](results)) == ["exactly 0"]


def profiles(point: Point, length: int, position: int, step: int) -> float:
    """Exponential without attention; with it a power law, or after training a growing profile."""
    distance = length - position
    wobble = 1 + 0.01 * np.sin(point["seed"] + 2 * position)
    if point["model.attention"] == "none":
        return float(10 ** (-(0.1 + 0.01 * point["seed"]) * distance) * wobble)
    return float((1 + distance) ** (1.0 if step else -1.0) * wobble)


def bars(axis: Axes) -> list[np.ndarray[tuple[int, ...], np.dtype[np.float64]]]:
    found = [c for c in axis.collections if isinstance(c, LineCollection)]
    return [np.asarray(segment)[:, 1] for c in found for segment in c.get_segments()]


def test_half_lives_and_intervals_are_those_of_the_table() -> None:
    results = make({**BOTH, "task.length": [10, 20]}, seeds=3, steps=(0, 9), norm=profiles)
    figure = FIGURES["half_life"](results)
    table = results.decay.query("train_step == 0 and `model.attention` == 'none'")
    axis = panel(figure, "untrained")
    (line,) = lines(axis, "no attention")
    assert xs(line) == [10, 20]
    np.testing.assert_allclose(ys(line), table["half_life"], rtol=1e-12)
    ends = table[["half_life_low", "half_life_high"]]
    np.testing.assert_allclose(bars(axis), ends, rtol=1e-12)
    assert "3 seeds: point = half-life of their mean slope, bar = 95% t-interval" in caption(figure)
    assert "log10(2)/|slope|" in caption(figure)
    assert "mean over target tokens" in caption(figure)


def test_a_profile_without_half_life_stands_in_the_strip_under_its_word() -> None:
    results = make({**BOTH, "task.length": [10, 20]}, seeds=3, steps=(0, 9), norm=profiles)
    figure = FIGURES["half_life"](results)
    before, after = panel(figure, "untrained"), panel(figure, "after 9 steps")
    assert [xs(m) for m in lines(before, "no_law")] == [[10, 20]]
    assert [xs(m) for m in lines(after, "grows")] == [[10, 20]]
    assert not lines(before, "additive attention")
    labels = [t.get_text() for t in before.get_yticklabels()]
    assert labels[-2:] == ["not exponential", "grows"]
    (mark,) = lines(after, "grows")
    shown = ys(lines(after, "no attention")[0])
    assert max(shown) < ys(mark)[0] < after.get_ylim()[1]
    words = caption(figure)
    assert "no half-life at 4 of 8 points" in words
    assert "2 grow towards the start; 2 fall, but no better" in words


def scattered(point: Point, length: int, position: int, step: int) -> float:
    """Of two seeds: one falls and the other grows; all fall, unlike; after training, level."""
    signs = (-0.3, 0.1) if point["model.attention"] == "none" else (-0.336, -0.264)
    return float(10 ** ((0.001 if step else signs[point["seed"]]) * (length - position)))


def test_level_unclear_and_endless_intervals_are_told_apart() -> None:
    axes: Sweep = {**BOTH, "task.length": [20]}
    results = make(axes, seeds=2, steps=(0, 9), model__hidden=4, norm=scattered)
    figure = FIGURES["half_life"](results)
    before, after = panel(figure, "untrained"), panel(figure, "after 9 steps")
    assert [xs(m) for m in lines(before, "unclear")] == [[20]]
    assert [xs(m) for m in lines(after, "level")] == [[20], [20]]
    labels = [t.get_text() for t in before.get_yticklabels()]
    assert labels[-2:] == ["no clear trend", "level"]
    ((low, high),) = bars(before)
    assert low == results.decay["half_life_low"].dropna().item()
    assert ys(lines(before, "additive attention")[0])[0] < high < ys(lines(before, "unclear")[0])[0]
    words = caption(figure)
    assert "Bars up to the top (1) have no upper end: interval too wide with 2 seeds" in words
    assert "no half-life at 3 of 4 points" in words
    assert "2 level: changes by less than a factor of two" in words
    assert "1 with no clear trend: some seeds fall and others grow" in words
    exponents = FIGURES["lyapunov"](results)
    for stage, label, hollow in (
        ("untrained", "additive attention", False),
        ("untrained", "no attention", True),
        ("after 9 steps", "additive attention", True),
    ):
        (point,) = lines(panel(exponents, stage, "measured decay"), label)
        assert (point.get_markerfacecolor() == "white") == hollow
    assert "Hollow: level, no clear trend" in caption(exponents)


def test_half_life_with_one_seed_has_no_interval_and_few_points_no_fit() -> None:
    results = make({"task.length": [2, 10]}, norm=profiles)
    figure = FIGURES["half_life"](results)
    (axis,) = figure.axes
    assert not bars(axis)
    assert "1 seed: no interval" in caption(figure)
    assert [xs(m) for m in lines(axis, "no_fit")] == [[2]]
    assert "1 with fewer than 3 usable norms" in caption(figure)


def test_half_life_of_zeros_alone_and_of_nothing() -> None:
    figure = FIGURES["half_life"](make({"task.length": [5]}, norm=lambda *_: 0.0))
    assert [t.get_text() for t in figure.axes[0].get_yticklabels()] == ["no fit"]
    assert "Norms left out of the fits: 5 exactly 0" in caption(figure)
    results = make({"task.length": [5]})
    results.decay = pd.DataFrame()
    with pytest.raises(NothingToPlotError, match="half_life needs a fitted gradient profile"):
        FIGURES["half_life"](results)


def spectra(figure: Figure) -> list[Axes]:
    return [axis for axis in figure.axes if "all exponents" in axis.get_title()]


def test_lyapunov_lines_are_the_spectrum_and_points_the_measured_decay() -> None:
    results = make({"task.length": [10, 20]}, seeds=2, steps=(0, 9), model__hidden=8, norm=profiles)
    figure = FIGURES["lyapunov"](results)
    left = panel(figure, "untrained", "all exponents")
    right = panel(figure, "untrained", "measured decay")
    table = results.lyapunov.query("train_step == 0 and source_length == 20")
    expected = table.groupby("index")["exponent"].mean()
    (line,) = lines(left, "n = 20")
    np.testing.assert_allclose(ys(line), expected, rtol=1e-12)
    assert xs(line) == list(range(1, 9))
    assert [ys(zero) for zero in lines(left, "zero")] == [[0, 0]]
    (point,) = lines(right, "n = 20")
    fit = results.decay.query("train_step == 0 and source_length == 20").iloc[0]
    assert xs(point) == pytest.approx([expected[1]])
    assert ys(point) == pytest.approx([fit["slope"] * np.log(10)])
    (diagonal,) = lines(right, "diagonal")
    assert xs(diagonal) == ys(diagonal)
    assert len(bars(right)) == 2
    assert legend(figure) == ["n = 10", "n = 20", "0: neither shrinks nor grows",
                              "measured = largest exponent"]  # fmt: skip
    assert "nats per timestep" in texts(figure, "y_label")[0]
    assert "times ln 10" in caption(figure)


def test_lyapunov_without_a_fit_or_a_finite_exponent_says_so() -> None:
    results = make({"task.length": [2, 5]}, model__hidden=4, norm=profiles)
    results.lyapunov.loc[results.lyapunov["index"] == 4, "exponent"] = -np.inf
    figure = FIGURES["lyapunov"](results)
    assert "Not finite and left out: 2 of 8 values" in caption(figure)
    assert "1 of 2 points are missing on the right" in caption(figure)
    (line,) = lines(spectra(figure)[0], "n = 5")
    assert np.isnan(ys(line)).tolist() == [False, False, False, True]
    results.decay = pd.DataFrame()
    assert texts(FIGURES["lyapunov"](results), "note") == ["nothing to draw here:\nno finite value"]


def test_lyapunov_point_is_hollow_where_no_exponential_fits() -> None:
    results = make({**BOTH, "task.length": [10]}, model__hidden=4, norm=profiles)
    figure = FIGURES["lyapunov"](results)
    for words, hollow in (("no attention", False), ("additive attention", True)):
        (point,) = lines(panel(figure, "untrained", "measured decay"), words)
        assert (point.get_markerfacecolor() == "white") == hollow


def test_lyapunov_has_a_pair_a_stage_and_a_line_a_model_at_its_longest_length() -> None:
    axes: Sweep = {**BOTH, "task.name": ["copy", "reverse"], "task.length": [10, 20]}
    results = make(axes, steps=(0, 9), model__hidden=4, norm=profiles)
    figure = FIGURES["lyapunov"](results)
    assert len(figure.axes) == 4
    table = results.lyapunov.query(
        "train_step == 9 and source_length == 20 and `task.name` == 'copy'"
        " and `model.attention` == 'additive'"
    )
    (line,) = lines(panel(figure, "after 9 steps", "all exponents"), "additive attention · copy")
    np.testing.assert_allclose(ys(line), table["exponent"], rtol=1e-12)
    points = lines(panel(figure, "after 9 steps", "measured decay"), "additive attention · copy")
    assert len(points) == 2
    assert len({point.get_marker() for axis in figure.axes for point in axis.lines}) >= 4
    assert "All exponents: n = 20." in caption(figure)
    many: Sweep = {**axes, "model.cell": ["rnn", "gru", "lstm"], "task.length": [5]}
    crowded = FIGURES["lyapunov"](make(many, model__hidden=4, norm=profiles))
    assert lines(panel(crowded, "reverse", "all exponents"), "LSTM · no attention")
