"""Figures are tested by the data on their artists and by the words around them."""

from __future__ import annotations

import functools
import subprocess
import sys
import warnings
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text
from reading import MODELS, caption, legend, lines, panel, small, texts, xs, ys
from scipy import stats
from synthetic import Axes as Sweep
from synthetic import Point, Synthetic, diverge, falling, lose, make

from gradlab.errors import NothingToPlotError
from gradlab.plots import FIGURES, save
from gradlab.plots import style as styles
from gradlab.plots.aggregate import over_seeds
from gradlab.plots.facets import facets, varying_keys
from gradlab.plots.lines import decades
from gradlab.plots.style import categorical_marks, sequential_marks
from gradlab.plots.words import KEYS, PHRASES, VALUES

WITHOUT_SEED_LINES = {"gradient_heatmap", "gradient_map", "attention_weights", "half_life"}
OF_NO_LOSS = {"gradient_map", "attention_weights", "bottleneck", "accuracy_by_position", "training"}


def test_decay_line_is_the_geometric_mean_of_the_table() -> None:
    results = small(seeds=2)
    axis = panel(FIGURES["gradient_decay"](results), "no attention", "copy", "untrained")
    table = results.gradients.query(
        "path == 'total' and train_step == 0 and source_length == 10"
        " and `model.attention` == 'none' and `task.name` == 'copy'"
    )
    expected = table.groupby("position")["norm_mean"].agg(stats.gmean)
    (line,) = lines(axis, "10")
    np.testing.assert_array_equal(line.get_xdata(), expected.index)
    np.testing.assert_allclose(ys(line), expected, rtol=1e-12)
    for seed in (0, 1):
        (thin,) = lines(axis, f"10 seed {seed}")
        own = table[table["seed"] == seed]["norm_mean"]
        np.testing.assert_array_equal(thin.get_ydata(), own)


def test_decay_band_is_the_t_interval_in_log10() -> None:
    results = make({"task.length": [6]}, seeds=5)
    figure = FIGURES["gradient_decay"](results)
    (axis,) = figure.axes
    (band,) = (c for c in axis.collections if isinstance(c, PolyCollection))
    first = np.log10(results.gradients.query("path == 'total' and position == 1")["norm_mean"])
    half = stats.t.ppf(0.975, 4) * first.std() / np.sqrt(5)
    edge = np.asarray(band.get_paths()[0].vertices)
    at_first = np.unique(edge[edge[:, 0] == 1][:, 1])
    expected = 10 ** np.array([first.mean() - half, first.mean() + half])
    np.testing.assert_allclose([at_first.min(), at_first.max()], expected, rtol=1e-12)
    assert "5 seeds: line = their geometric mean, band = 95% t-interval" in caption(figure)
    assert "log10" in caption(figure)


@pytest.mark.parametrize(
    ("seeds", "words"),
    [
        (1, "1 seed: no interval"),
        (2, "2 seeds: each thin line is one seed"),
        (4, "4 seeds: each thin line is one seed"),
        (5, "5 seeds: line = their"),
    ],
)
@pytest.mark.parametrize("name", [n for n in FIGURES if n not in WITHOUT_SEED_LINES])
def test_caption_tells_seeds(name: str, seeds: int, words: str) -> None:
    results = make({"task.length": [3, 4]}, seeds=seeds, steps=(0, 10))
    figure = FIGURES[name](results)
    assert words in caption(figure)
    bands = [c for a in figure.axes for c in a.collections if isinstance(c, PolyCollection)]
    assert bool(bands) == (seeds >= 5)


@pytest.mark.parametrize("name", FIGURES)
def test_every_caption_tells_examples_and_reduction(name: str) -> None:
    results = make({"task.length": [3, 4]}, seeds=2, steps=(0, 10), model__attention="additive")
    words = caption(FIGURES[name](results))
    assert "64 " in words
    assert "2 seeds" in words
    if name not in OF_NO_LOSS:
        assert "L: cross-entropy in nats, mean over target tokens" in words


@pytest.mark.parametrize("name", ["gradient_decay", "accuracy_by_position", "training"])
def test_legend_lists_exactly_the_lengths_that_exist(name: str) -> None:
    lengths = [5, 6, 7, 9, 11, 14, 20, 23, 31, 40, 51, 60]
    figure = FIGURES[name](make({"task.length": lengths}, steps=(0, 10)))
    assert legend(figure)[:12] == [str(n) for n in lengths]
    assert not any(word.isdigit() for word in legend(figure)[12:])
    handles = [h for h in figure.legends[0].legend_handles if isinstance(h, Line2D)][:12]
    assert len({h.get_marker() for h in handles}) == 12
    assert len({str(h.get_color()) for h in handles}) == 12


@pytest.mark.parametrize("marks", [sequential_marks, categorical_marks])
def test_marks_differ_without_colour(marks: object) -> None:
    assert callable(marks)
    assert len({(m.marker, m.dash) for m in marks(12)}) == 12


def test_decay_panels_say_model_task_stage_and_loss() -> None:
    axes: Sweep = {
        "model.cell": ["rnn", "gru", "lstm"],
        "model.attention": ["none", "additive"],
        "record.loss": ["sum", "last"],
        "task.length": [4, 8],
    }
    figure = FIGURES["gradient_decay"](make(axes))
    panel(figure, "LSTM", "additive attention", "last target token only")
    columns = {round(axis.get_position().x0, 3) for axis in figure.axes}
    assert (len(figure.axes), len(columns)) == (12, 4)
    assert "LSTM: hidden state h" in caption(figure)
    assert "LSTM: hidden state h" in caption(FIGURES["path_shares"](make(axes)))
    assert "Untrained." in caption(figure)
    shared = {axis.get_ylim() for axis in figure.axes}
    assert len(shared) == 1


def zero_early(point: Point, length: int, position: int, step: int) -> float:
    return 0.0 if position <= 2 else 10.0 ** (-30 * (length - position))


def test_zeros_stand_at_the_floor_and_are_counted() -> None:
    figure = FIGURES["gradient_decay"](make({"task.length": [5]}, norm=zero_early))
    (axis,) = figure.axes
    (floor,) = lines(axis, "zeros")
    np.testing.assert_array_equal(floor.get_xdata(), [1, 2])
    assert floor.get_marker() == "v"
    (line,) = lines(axis, "5")
    np.testing.assert_allclose(ys(line), [np.nan, np.nan, 1e-60, 1e-30, 1.0], rtol=1e-12)
    assert "exactly 0, 2 of 5 values, not in the lines" in caption(figure)
    assert axis.get_ylim()[0] < 1e-60
    labels = [label.get_text() for label in axis.get_yticklabels()]
    assert labels[0] == "0"
    assert 3 <= len(labels) <= 7
    assert len({patch.get_facecolor() for patch in axis.patches}) == 1
    assert axis.patches[0].get_window_extent().height < 0.2 * axis.bbox.height
    highest_zero = axis.transAxes.transform((0, ys(floor)[0]))[1]
    assert highest_zero < axis.transData.transform((1, 1e-60))[1]


def test_all_zero_panel_says_so() -> None:
    figure = FIGURES["gradient_decay"](make({"task.length": [5]}, norm=lambda *_: 0.0))
    assert texts(figure, "note") == ["every value is exactly 0"]
    assert [t.get_text() for t in figure.axes[0].get_yticklabels()] == ["0"]
    heat = FIGURES["gradient_heatmap"](
        make({"task.length": [5]}, steps=(0, 9), norm=lambda *_: 0.0)
    )
    assert legend(heat) == ["exactly 0"]
    shares = FIGURES["path_shares"]
    with pytest.raises(NothingToPlotError):
        shares(make({"task.length": [5]}, norm=lambda *_: 0.0))


def test_partly_zero_examples_are_mentioned() -> None:
    results = make({"task.length": [5]})
    results.gradients.loc[results.gradients["position"] == 1, "zeros"] = 3
    words = caption(FIGURES["gradient_decay"](results))
    assert "Some probe examples are exactly 0 in 1 of 5 values" in words


def test_values_that_are_not_finite_leave_a_gap_and_are_counted() -> None:
    results = make({"task.length": [5]})
    total = results.gradients["path"] == "total"
    results.gradients.loc[total & (results.gradients["position"] == 3), "norm_mean"] = np.nan
    figure = FIGURES["gradient_decay"](results)
    (line,) = lines(figure.axes[0], "5")
    assert np.isnan(ys(line)).tolist() == [
        False,
        False,
        True,
        False,
        False,
    ]
    assert "Not finite and left out: 1 of 5 values" in caption(figure)


def test_a_panel_of_nan_alone_has_a_note() -> None:
    results = make({**MODELS, "task.length": [5]})
    rows = (results.gradients["model.attention"] == "none") & (
        results.gradients["task.name"] == "copy"
    )
    results.gradients.loc[rows, "norm_mean"] = np.nan
    assert texts(FIGURES["gradient_decay"](results), "note") == [
        "nothing to draw here:\nno finite value"
    ]


def test_diverged_and_missing_runs_are_counted_and_crossed() -> None:
    results = small(seeds=2)
    none_copy = results.runs.query(
        "`model.attention` == 'none' and `task.name` == 'copy' and `task.length` == 10"
    )
    diverge(results, none_copy["run_id"].tolist()[:1], after=300)
    lose(results, none_copy["run_id"].tolist()[1:])
    figure = FIGURES["bottleneck"](results)
    assert "1 of 16 runs diverged: not in the lines, shown as ×." in caption(figure)
    assert "1 of 16 runs missing." in caption(figure)
    (cross,) = lines(panel(figure, "copy", "token accuracy"), "diverged")
    assert (xs(cross), ys(cross)) == ([10], [0.0])
    assert "diverged run" in legend(figure)
    assert not lines(panel(figure, "reverse", "token accuracy"), "diverged")
    (line,) = lines(panel(figure, "copy", "token accuracy"), "no attention")
    assert np.isnan(ys(line)).tolist() == [False, True]
    curves = FIGURES["training"](results)
    assert "× at the top: a loss beyond the axis or not finite (1)." in caption(curves)


@pytest.mark.parametrize("name", FIGURES)
def test_every_caption_counts_diverged_and_missing_runs(name: str) -> None:
    results = make({"model.attention": ["none", "additive"], "task.length": [3, 5]}, steps=(0, 9))
    diverge(results, results.runs["run_id"].tolist()[:1])
    lose(results, results.runs["run_id"].tolist()[1:2])
    words = caption(FIGURES[name](results))
    assert "1 of 4 runs diverged: " in words
    assert "1 of 4 runs missing" in words


def test_a_panel_whose_runs_all_diverged_has_a_note() -> None:
    results = make({"task.name": ["copy", "reverse"], "task.length": [5]}, steps=(0, 9))
    diverge(results, results.runs.query("`task.name` == 'copy'")["run_id"].tolist())
    for name in ("gradient_decay", "path_shares", "accuracy_by_position"):
        notes = texts(FIGURES[name](results), "note")
        assert notes == ["nothing to draw here:\nall runs diverged or are missing"]


def test_bottleneck_lines_chance_and_caution() -> None:
    results = small(seeds=1)
    figure = FIGURES["bottleneck"](results)
    axis = panel(figure, "reverse", "sequence accuracy")
    table = results.training.query(
        "train_step == 600 and `task.name` == 'reverse' and `model.attention` == 'none'"
    )
    (line,) = lines(axis, "no attention")
    np.testing.assert_array_equal(line.get_ydata(), table["sequence_accuracy"])
    (chance,) = lines(axis, "chance")
    np.testing.assert_allclose(ys(chance), [1e-5, 1e-10], rtol=1e-12)
    (chance,) = lines(panel(figure, "copy", "token accuracy"), "chance")
    np.testing.assert_allclose(ys(chance), [0.1, 0.1], rtol=1e-12)
    words = caption(figure)
    assert "after 600 training steps" in words
    assert "not how much a state can hold" in words
    assert "limit" not in words
    assert legend(figure) == ["no attention", "additive attention", "guessing"]


def test_bottleneck_of_a_capacity_sweep_has_a_line_for_each_size() -> None:
    sizes = [4, 8, 16, 32, 64, 128]
    results = make({"model.hidden": sizes, "task.length": [2, 4, 12]}, steps=(0, 9))
    figure = FIGURES["bottleneck"](results)
    assert legend(figure)[:-1] == [f"hidden size {size}" for size in sizes]
    assert [axis.get_title() for axis in figure.axes] == ["token accuracy", "sequence accuracy"]


def test_bottleneck_counts_a_seed_once_where_only_the_recorded_loss_differs() -> None:
    results = make({"record.loss": ["sum", "last"], "task.length": [5]}, steps=(0, 9))
    assert "1 seed: no interval" in caption(FIGURES["bottleneck"](results))


def test_positions_are_solid_when_free_and_dashed_when_forced() -> None:
    results = make({"task.length": [5]}, steps=(0, 9))
    (axis,) = FIGURES["accuracy_by_position"](results).axes
    table = results.positions.query("train_step == 9")
    for column, dash in (("token_accuracy", "-"), ("token_accuracy_forced", "--")):
        (line,) = lines(axis, f"5 {column}")
        np.testing.assert_array_equal(line.get_ydata(), table[column])
        assert line.get_linestyle() == dash


def test_training_draws_the_table_and_ln_v() -> None:
    results = small(seeds=1)
    figure = FIGURES["training"](results)
    axis = panel(figure, "no attention", "copy", "loss (nats/token)")
    table = results.training.query(
        "source_length == 5 and `task.name` == 'copy' and `model.attention` == 'none'"
    )
    (line,) = lines(axis, "5")
    np.testing.assert_array_equal(line.get_ydata(), table["loss"])
    assert {ys(c)[0] for c in lines(axis, "chance")} == {np.log(10)}


def test_shares_are_signed_and_cancelling_steps_are_hatched() -> None:
    results = make({"model.attention": ["none", "additive"], "task.length": [10]}, steps=(0, 9))
    figure = FIGURES["path_shares"](results)
    axis = panel(figure, "additive attention", "after 9 steps")
    table = results.gradients.query(
        "path == 'keys' and train_step == 9 and `model.attention` == 'additive'"
    )
    (line,) = lines(axis, "keys")
    np.testing.assert_array_equal(line.get_ydata(), table["share"])
    assert max(ys(line)) < 0
    assert sorted(ys(r)[0] for r in lines(axis, "reference")) == [0, 1]
    hatched = [patch for patch in axis.patches if patch.get_hatch()]
    centres = [patch.get_window_extent().x0 for patch in hatched]
    assert len(centres) == 6
    assert "pull against each other" in caption(figure)
    other = panel(figure, "no attention", "untrained")
    assert not other.patches
    assert not lines(other, "values")
    assert lines(other, "bridge")


def test_shares_beyond_the_axis_are_marked_and_counted() -> None:
    results = make({"model.attention": ["additive"], "task.length": [5]})
    rows = (results.gradients["path"] == "values") & (results.gradients["position"] == 2)
    results.gradients.loc[rows, "share"] = 80.0
    figure = FIGURES["path_shares"](results)
    (mark,) = lines(figure.axes[0], "beyond")
    assert xs(mark) == [2]
    assert "beyond the axis (1)" in caption(figure)


def test_heatmap_cells_are_log10_norms_of_the_longest_length() -> None:
    results = make({"task.length": [3, 6]}, steps=(0, 5, 9))
    figure = FIGURES["gradient_heatmap"](results)
    (mesh,) = (c for c in figure.axes[0].collections if c.get_label() == "norms")
    table = results.gradients.query("path == 'total' and source_length == 6")
    expected = np.log10(table.pivot(index="train_step", columns="position", values="norm_mean"))
    np.testing.assert_allclose(np.asarray(mesh.get_array()), expected, rtol=1e-12)
    assert "n = 6" in caption(figure)


def test_longest_length_stands_in_titles_where_it_differs() -> None:
    results = make({"model.attention": ["none", "additive"], "task.length": [3, 6]}, steps=(0, 9))
    short = results.runs.query("`model.attention` == 'none' and `task.length` == 6")["run_id"]
    lose(results, short.tolist())
    figure = FIGURES["gradient_heatmap"](results)
    panel(figure, "no attention", "n = 3")
    panel(figure, "additive attention", "n = 6")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "gradient_heatmap",
            "this figure needs at least two measured training steps; training.steps is 0 in this"
            " sweep",
        ),
        ("training", "this figure needs at least two measured training steps; training.steps is 0"),
        ("bottleneck", "bottleneck shows accuracy after training; training.steps is 0"),
    ],
)
def test_figures_about_training_refuse_a_sweep_without(name: str, message: str) -> None:
    with pytest.raises(NothingToPlotError) as error:
        FIGURES[name](make({"task.length": [3]}))
    assert str(error.value).startswith(message)


def test_shares_refuse_a_sweep_without_paths() -> None:
    results = make({"task.length": [3]})
    results.gradients = results.gradients.query("path == 'total'")
    with pytest.raises(NothingToPlotError, match=r"record\.paths is false"):
        FIGURES["path_shares"](results)


@pytest.mark.parametrize("name", FIGURES)
def test_a_sweep_without_any_finished_run_is_refused(name: str) -> None:
    results = small()
    lose(results, results.runs["run_id"].tolist())
    with pytest.raises(NothingToPlotError):
        FIGURES[name](results)
    for table in ("gradients", "training", "positions"):
        setattr(results, table, pd.DataFrame())
    with pytest.raises(NothingToPlotError):
        FIGURES[name](results)


def test_cases_name_panels_in_place_of_their_keys() -> None:
    results = small(seeds=1)
    for table in (results.runs, results.gradients, results.training, results.positions):
        table["case"] = table["model.attention"].map({"none": "vanilla", "additive": "looks $back"})
    figure = FIGURES["gradient_decay"](results)
    panel(figure, "vanilla", "copy", "untrained")
    panel(figure, r"looks \$back", "reverse", "after 600 steps")
    assert legend(FIGURES["bottleneck"](results))[:2] == ["vanilla", r"looks \$back"]


def test_timing_is_named_beside_attention_and_null_is_no_value() -> None:
    results = make(
        {
            "model.attention": ["none", "additive"],
            "model.timing": ["luong", "bahdanau"],
            "task.length": [3],
        }
    )
    results.runs = results.runs.drop_duplicates(["model.attention", "model.timing"])
    titles = {axis.get_title() for axis in FIGURES["gradient_decay"](results).axes}
    assert "additive attention (luong timing)" in {title.replace("\n", " ") for title in titles}
    assert "no attention" in titles


def test_trained_length_is_a_panel_where_measured_lengths_differ() -> None:
    results = make({"task.length": [4, 8]}, steps=(0, 9))
    extra = results.gradients.query("`task.length` == 8").assign(source_length=16)
    results.gradients = pd.concat([results.gradients, extra], ignore_index=True)
    figure = FIGURES["gradient_decay"](results)
    assert legend(figure) == ["4", "8", "16"]
    panel(figure, "trained at n = 8", "untrained")


def test_a_key_that_only_goes_with_another_is_no_facet() -> None:
    results = make({**MODELS, "task.length": [3]})
    assert varying_keys(results.runs, results.gradients) == ["model.attention", "task.name"]


@pytest.mark.parametrize(
    ("counts", "shape"),
    [
        ((1,), (1, 1)),
        ((2,), (1, 2)),
        ((2, 2), (2, 2)),
        ((3, 2), (2, 3)),
        ((2, 2, 2), (2, 4)),
        ((6,), (2, 3)),
        ((3, 2, 2), (3, 4)),
    ],
)
def test_grids_are_landscape(counts: tuple[int, ...], shape: tuple[int, int]) -> None:
    keys = [f"model.key{i}" for i in range(len(counts))]
    points = pd.DataFrame([dict(zip(keys, p, strict=True)) for p in np.ndindex(*counts)])
    layout = facets(points, keys)
    assert (layout.rows, layout.columns) == shape
    assert set(layout.panels) == set(np.ndindex(*counts))


def test_interval_needs_five_seeds_and_skips_what_a_log_axis_cannot_show() -> None:
    frame = pd.DataFrame({"x": [1] * 5 + [2] * 5, "y": [1, 10, 100, 10, 10, 0, 1, 1, np.inf, 1]})
    table = over_seeds(frame, ["x"], "y", log=True)
    np.testing.assert_allclose(table["centre"], [10, 1], rtol=1e-12)
    half = stats.t.ppf(0.975, 4) * np.std([0, 1, 2, 1, 1], ddof=1) / np.sqrt(5)
    np.testing.assert_allclose(table["high"][0], 10 ** (1 + half), rtol=1e-12)
    assert np.isnan(table["low"][1])
    assert list(table["seeds"]) == [5, 3]


@pytest.mark.parametrize(("low", "high"), [(-80, 0), (-3, -1), (-300, 10), (-1, 0), (-17, -16)])
def test_log_axes_have_a_few_whole_decades(low: float, high: float) -> None:
    ticks = decades(low, high)
    assert 1 <= len(ticks) <= 6
    assert low <= ticks[0] <= ticks[-1] <= high
    assert len(set(np.diff(ticks))) <= 1


@functools.cache
def wide_or_narrow(*, wide: bool) -> Synthetic:
    """A sweep of eight panels and a long length, or of one model; not to be changed."""
    axes: Sweep = {**MODELS, "task.length": [5, 160]} if wide else {"task.length": [5, 6, 8]}
    return make(axes, seeds=5, steps=(0, 600), model__attention="additive")


@pytest.mark.parametrize("name", FIGURES)
@pytest.mark.parametrize("style", ["lecture", "paper"])
@pytest.mark.parametrize("wide", [True, False])
def test_words_stay_on_the_page_and_off_each_other(
    name: str, style: styles.StyleName, wide: bool
) -> None:
    figure = FIGURES[name](wide_or_narrow(wide=wide), style=style)
    assert_apart(figure)
    if style == "lecture":
        sizes = [float(t.get_fontsize()) for t in figure.findobj(Text) if t.get_text()]
        assert min(sizes) >= 14
        assert 1.2 < figure.bbox.width / figure.bbox.height < 2.1


def assert_apart(figure: Figure) -> None:
    """Panels with their words, legend and texts lie on the page, and none on another."""
    figure.canvas.draw()
    width, height = figure.bbox.width, figure.bbox.height
    boxes = [text.get_window_extent() for text in figure.texts if text.get_text()]
    boxes += [box for axis in figure.axes if (box := axis.get_tightbbox())]
    boxes += [legend.get_window_extent() for legend in figure.legends]
    for i, box in enumerate(boxes):
        assert box.x0 >= 0
        assert box.y0 >= 0
        assert box.x1 <= width
        assert box.y1 <= height
        for other in boxes[:i]:
            apart_x = box.x0 >= other.x1 - 1 or other.x0 >= box.x1 - 1
            apart_y = box.y0 >= other.y1 - 1 or other.y0 >= box.y1 - 1
            assert apart_x or apart_y


@functools.cache
def drawn(style: styles.StyleName, again: bool = False) -> Figure:
    if not again:
        return FIGURES["path_shares"](small(), style=style)
    with matplotlib.rc_context({"lines.linewidth": 9, "svg.fonttype": "none", "axes.grid": False}):
        return FIGURES["path_shares"](small(), style=style)


@pytest.mark.parametrize("suffix", ["svg", "png", "pdf"])
def test_saved_files_are_byte_identical(suffix: str, tmp_path: Path) -> None:
    first = save(drawn("lecture"), tmp_path / f"1.{suffix}").read_bytes()
    again = save(drawn("lecture"), tmp_path / f"2.{suffix}").read_bytes()
    with matplotlib.rc_context({"lines.linewidth": 9, "svg.fonttype": "none", "axes.grid": False}):
        anew = save(drawn("lecture", again=True), tmp_path / f"3.{suffix}").read_bytes()
    assert first == again
    assert first == anew
    assert matplotlib.__version__.encode() not in first
    assert save(drawn("paper"), tmp_path / f"4.{suffix}").read_bytes() != first


def test_save_refuses_other_formats(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"expected a path ending in \.svg, \.png or \.pdf"):
        save(Figure(), tmp_path / "figure.jpeg")


def test_settings_and_pyplot_are_left_alone() -> None:
    before = dict(matplotlib.rcParams)
    FIGURES["training"](small())
    assert dict(matplotlib.rcParams) == before
    assert matplotlib._pylab_helpers.Gcf.figs == {}  # type: ignore[attr-defined]


@pytest.fixture
def no_hangul(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(styles, "hangul_font", lambda: None)
    fresh = functools.cache(styles.warn_without_hangul.__wrapped__)
    monkeypatch.setattr(styles, "warn_without_hangul", fresh)


@pytest.mark.usefixtures("no_hangul")
def test_korean_without_a_font_warns_once_and_is_english() -> None:
    results = small()
    results.scenario.title = "병목 ①"
    with pytest.warns(UserWarning, match="install NanumGothic or Noto Sans CJK KR") as caught:
        figures = [FIGURES[name](results, lang="ko") for name in ("bottleneck", "training")]
    assert len(caught) == 1
    assert texts(figures[0], "title") == ["Accuracy against source length"]
    assert texts(figures[0], "subtitle")[0].startswith("?? ")


def test_korean_with_a_font_is_korean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """DejaVu stands in for a Hangul font, so the glyphs are exempt here and the words are not."""
    monkeypatch.setattr(styles, "hangul_font", lambda: "DejaVu Serif")
    for module in ("canvas", "titles"):
        monkeypatch.setattr(f"gradlab.plots.{module}.printable", lambda look, text: text)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figures = {name: FIGURES[name](small(), lang="ko") for name in FIGURES}
        save(figures["path_shares"], tmp_path / "shares.svg")
        save(figures["gradient_decay"], tmp_path / "decay.png")
    decay = figures["gradient_decay"]
    panel(decay, "어텐션 없음", "복사", "학습 전")
    assert texts(decay, "x_label") == ["원본 시점"]
    assert texts(decay, "y_label")[0].startswith("기울기 노름")
    assert "시드 2개" in caption(decay)
    panel(figures["bottleneck"], "복사", "토큰 정확도")
    for figure in figures.values():
        words = [t.get_text() for t in figure.findobj(Text)]
        assert not any("seed" in word or "panel" in word for word in words)
    for name, number in (("gradient_decay", "1e-2"), ("path_shares", "-1")):
        ticks = [t.get_text() for t in figures[name].axes[0].get_yticklabels()]
        assert number in ticks
        assert not any("−" in tick for tick in ticks)


def test_every_phrase_has_the_same_blanks_in_both_languages() -> None:
    def blanks(text: str) -> set[str]:
        return {part.split("}")[0] for part in text.split("{")[1:]}

    for english, korean in [*PHRASES.values(), *VALUES.values(), *KEYS.values()]:
        assert not korean or blanks(english) == blanks(korean)


@pytest.mark.parametrize(("style", "lang"), [("poster", "en"), ("lecture", "fr")])
def test_unknown_style_and_language_are_refused(style: str, lang: str) -> None:
    with pytest.raises(ValueError, match="expected style 'lecture' or 'paper' and lang 'en'"):
        FIGURES["training"](small(), style=style, lang=lang)  # type: ignore[arg-type]


def test_plots_do_not_import_torch_or_pyplot_state() -> None:
    code = "import sys, gradlab.plots; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_norms_far_below_one_have_sane_ticks() -> None:
    def tiny(point: Point, length: int, position: int, step: int) -> float:
        return falling(point, length, position, step) * 1e-60

    (axis,) = FIGURES["gradient_decay"](make({"task.length": [40]}, norm=tiny)).axes
    labels = [label.get_text() for label in axis.get_yticklabels()]
    assert 3 <= len(labels) <= 7
    assert labels[0].startswith("$10^{-")
