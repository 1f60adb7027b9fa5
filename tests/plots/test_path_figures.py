"""Figures of which way the gradient came: path lengths, query parts and hops."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from reading import caption, legend, lines, panel, texts, xs, ys
from synthetic import Axes as Sweep
from synthetic import make

from gradlab.errors import NothingToPlotError
from gradlab.plots import FIGURES, save

BOTH = {"model.attention": ["none", "additive"]}


def hatched(axis: Axes) -> list[float]:
    """The middles of the hatched bars of a panel."""
    bars = [p for p in axis.patches if isinstance(p, Rectangle) and p.get_hatch()]
    return [bar.get_x() + bar.get_width() / 2 for bar in bars]


def test_length_lines_are_the_table_over_what_is_exact_without_attention() -> None:
    results = make({**BOTH, "task.length": [4, 8]}, steps=(0, 9), record__loss="last")
    figure = FIGURES["path_length"](results)
    axis = panel(figure, "no attention", "untrained")
    (line,) = lines(axis, "8")
    (reference, longest) = lines(axis, "reference_last")
    np.testing.assert_array_equal(ys(longest), [16 - i for i in range(8)])
    np.testing.assert_array_equal(ys(line), ys(longest))
    assert len(xs(reference)) == 4
    table = results.gradients.query(
        "path == 'total' and train_step == 9 and source_length == 8"
        " and `model.attention` == 'additive'"
    )
    (line,) = lines(panel(figure, "additive attention", "after 9 steps"), "8")
    np.testing.assert_array_equal(line.get_ydata(), table["path_length"])
    assert any("at h₁ n + k" in label for label in legend(figure))
    assert not any("shortest" in label for label in legend(figure))


def test_length_at_the_first_state_has_a_line_a_model_against_n() -> None:
    results = make({**BOTH, "task.length": [4, 8, 16]}, steps=(0, 9))
    figure = FIGURES["path_length"](results)
    axis = panel(figure, "untrained", "at h₁")
    first = results.gradients.query("path == 'total' and train_step == 0 and position == 1")
    for name, words in (("none", "no attention"), ("additive", "additive attention")):
        (line,) = lines(axis, words)
        assert xs(line) == [4, 8, 16]
        expected = first[first["model.attention"] == name]["path_length"]
        np.testing.assert_array_equal(line.get_ydata(), expected)
    (reference,) = lines(axis, "reference_shortest")
    assert ys(reference) == [5, 9, 17]
    assert axis.get_xscale() == axis.get_yscale() == "linear"
    assert legend(figure)[:5] == [*(f"n = {n}" for n in (4, 8, 16)), "no attention",
                                  "additive attention"]  # fmt: skip


def test_models_are_rows_over_one_row_of_the_first_state() -> None:
    figure = FIGURES["path_length"](
        make({**BOTH, "record.loss": ["mean", "last"], "task.length": [3, 4]}, steps=(0, 9))
    )
    places = {(round(a.get_position().x0, 3), round(a.get_position().y0, 3)) for a in figure.axes}
    assert len(places) == len(figure.axes) == 12
    assert (len({x for x, _ in places}), len({y for _, y in places})) == (4, 3)
    (left, right) = FIGURES["path_length"](make({"task.length": [3, 4]})).axes
    assert left.get_position().y0 == right.get_position().y0


MANY = {**BOTH, "model.cell": ["rnn", "gru", "lstm"], "record.loss": ["mean", "last"]}


def test_many_models_are_lines_at_the_longest_length() -> None:
    results = make({**MANY, "task.length": [4, 8]}, steps=(0, 9))
    figure = FIGURES["path_length"](results)
    assert len(figure.axes) == 4
    axis = panel(figure, "last target token only", "after 9 steps")
    (reference,) = lines(axis, "reference_last")
    np.testing.assert_array_equal(ys(reference), [16 - i for i in range(8)])
    table = results.gradients.query(
        "path == 'total' and train_step == 9 and source_length == 8 and `model.cell` == 'lstm'"
        " and `model.attention` == 'additive' and `record.loss` == 'last'"
    )
    (line,) = lines(axis, "LSTM · additive attention")
    np.testing.assert_array_equal(line.get_ydata(), table["path_length"])
    assert sorted(hatched(axis)) == sorted([*range(3, 9)] * 3)
    assert "Over source timestep: n = 8." in caption(figure)
    assert not any(label.startswith("n = ") for label in legend(figure))


def test_many_models_have_a_row_of_the_first_state_from_three_lengths_on() -> None:
    results = make({**MANY, "task.length": [4, 6, 8]})
    figure = FIGURES["path_length"](results)
    assert len(figure.axes) == 4
    (line,) = lines(panel(figure, "last target token only", "at h₁"), "RNN · no attention")
    assert (xs(line), ys(line)) == ([4, 6, 8], [8, 12, 16])
    above = panel(figure, "last target token only")
    below = panel(figure, "last target token only", "at h₁")
    assert above.get_position().x0 == below.get_position().x0


def test_no_reference_where_it_would_not_be_true() -> None:
    turning: dict[str, object] = {"model__layers": 2, "model__bidirectional": True}
    for settings in ({"model__bridge": "every_step"}, turning):
        figure = FIGURES["path_length"](make({"task.length": [5]}, **settings))
        assert not any(lines(axis, "reference_shortest") for axis in figure.axes)
        assert not any("attention" in label for label in legend(figure))
    delayed = make({"task.length": [5]}, task__delay=2)
    (reference,) = lines(FIGURES["path_length"](delayed).axes[0], "reference_shortest")
    assert ys(reference)[0] == (5 + 2 - 1) + 1 + 1


@pytest.mark.parametrize(("delays", "words"), [([2], "d = 2"), ([0, 2], "d: delay")])
def test_the_legend_of_a_reference_names_the_delay_in_its_formula(
    delays: list[int], words: str
) -> None:
    sweep: Sweep = {"task.delay": delays, "record.loss": ["mean", "last"], "task.length": [5]}
    labels = legend(FIGURES["path_length"](make(sweep)))
    assert [label for label in labels if "attention" in label] == [
        "last target token without attention: n + d − i steps, 1 exit, k decoder steps,"
        f"\n(n + d − i) + 1 + k, at h₁ n + d + k ({words})",
        "shortest path without attention: n + d − i steps, 1 exit, 1 decoder step,"
        f"\n(n + d − i) + 1 + 1, at h₁ n + d + 1 ({words})",
    ]
    plain = legend(FIGURES["path_length"](make({"task.length": [5]})))
    assert plain[-1] == (
        "shortest path without attention: n − i steps, 1 exit, 1 decoder step,"
        "\n(n − i) + 1 + 1, at h₁ n + 1"
    )


def test_lengths_where_parts_oppose_are_hatched_with_the_reason() -> None:
    results = make({**BOTH, "task.length": [4, 10]}, steps=(0, 9))
    figure = FIGURES["path_length"](results)
    shown = hatched(panel(figure, "additive attention", "after 9 steps"))
    assert sorted(shown) == sorted([*range(1, 5), *range(5, 11)])
    assert hatched(panel(figure, "after 9 steps", "at h₁")) == pytest.approx([4])
    assert not hatched(panel(figure, "no attention", "after 9 steps"))
    assert "mean length is not the length of any one path" in caption(figure)
    assert "parts oppose each other" in legend(figure)
    untrained = FIGURES["path_length"](make({"task.length": [4]}))
    assert "Hatched" not in caption(untrained)


def test_a_length_out_of_reason_is_marked_and_an_undefined_one_counted() -> None:
    results = make({"model.attention": ["additive"], "task.length": [6]})
    table = results.gradients
    total = table["path"] == "total"
    table.loc[total & (table["position"] == 2), ["path_length", "cancellation"]] = [-500.0, 90.0]
    table.loc[total & (table["position"] == 4), "path_length"] = np.nan
    figure = FIGURES["path_length"](results)
    (mark,) = lines(figure.axes[0], "beyond")
    assert (xs(mark), mark.get_marker()) == ([2], "v")
    assert "beyond the axis (1)" in caption(figure)
    assert "Not finite and left out: 1 of 6 values" in caption(figure)
    assert figure.axes[0].get_ylim()[0] > -1


def test_a_panel_without_any_length_has_a_note_and_a_sweep_without_is_refused() -> None:
    results = make({**BOTH, "task.length": [4]})
    results.gradients.loc[results.gradients["model.attention"] == "none", "path_length"] = np.nan
    notes = texts(FIGURES["path_length"](results), "note")
    assert notes == ["nothing to draw here:\nno finite value"]
    results.gradients["path_length"] = np.nan
    with pytest.raises(NothingToPlotError, match=r"record\.paths is false"):
        FIGURES["path_length"](results)
    results.gradients = results.gradients.drop(columns="path_length")
    with pytest.raises(NothingToPlotError, match="column path_length in the table gradients"):
        FIGURES["path_length"](results)


def test_the_part_through_a_query_is_a_thinner_line_that_is_not_added() -> None:
    results = make({**BOTH, "task.length": [6]})
    figure = FIGURES["path_shares"](results)
    axis = panel(figure, "additive attention")
    table = results.gradients.query("path == 'total.query' and `model.attention` == 'additive'")
    (line,) = lines(axis, "total.query")
    np.testing.assert_array_equal(line.get_ydata(), table["share"])
    assert line.get_linewidth() < lines(axis, "values")[0].get_linewidth()
    assert not lines(panel(figure, "no attention"), "total.query")
    assert "of which through a query" in legend(figure)
    assert "is not added to them" in caption(figure)


def test_no_word_about_queries_where_nothing_passes_through_one() -> None:
    luong = make({"model.attention": ["additive"], "task.length": [6]}, model__timing="luong")
    for results in (luong, make({"task.length": [6]})):
        figure = FIGURES["path_shares"](results)
        assert "query" not in caption(figure)
        assert not any("query" in label for label in legend(figure))


def test_hop_lines_are_the_shares_of_the_first_and_the_middle_state() -> None:
    results = make({**BOTH, "task.length": [4, 7]}, seeds=1)
    figure = FIGURES["hops"](results)
    axis = panel(figure, "additive attention")
    for label, position in (("hops_first", 1), ("hops_middle", 4)):
        table = results.hops.query(
            "source_length == 7 and `model.attention` == 'additive' and position == @position",
            local_dict={"position": position},
        )
        (line,) = lines(axis, label)
        np.testing.assert_array_equal(line.get_xdata(), table["hops"])
        np.testing.assert_array_equal(line.get_ydata(), table["share"])
    peaks = lines(panel(figure, "no attention"), "peak")
    assert [(xs(peak), ys(peak)) for peak in peaks] == [([6], [1]), ([3], [1])]
    assert "9 of 22 terms are exactly 0, drawn as 0." in caption(figure)
    assert "Middle: state 4." in caption(figure)
    assert "n = 7" in caption(figure)
    assert legend(figure) == ["first state h₁", "state in the middle"]


def test_hops_that_oppose_leave_the_axis_or_are_missing_are_told() -> None:
    results = make({"model.attention": ["additive"], "task.length": [6]})
    first = (results.hops["position"] == 1) & (results.hops["state"] == "h")
    results.hops.loc[first & (results.hops["hops"] == 2), "share"] = 70.0
    results.hops.loc[first & (results.hops["hops"] == 3), "share"] = np.nan
    words = caption(figure := FIGURES["hops"](results))
    assert "In 1 of 2 states, seeds and stages the terms pull against each other" in words
    assert "Not finite and left out: 1 of 10 values" in words
    (mark,) = lines(figure.axes[0], "beyond")
    assert xs(mark) == [2]


@pytest.mark.parametrize(
    ("name", "table", "key"),
    [
        ("hops", "hops", "record.hops"),
        ("gradient_map", "maps", "record.map"),
        ("lyapunov", "lyapunov", "record.jacobians"),
    ],
)
def test_what_was_not_recorded_names_the_key_to_set(name: str, table: str, key: str) -> None:
    results = make({"task.length": [3]})
    empty = getattr(results, table).head(0)
    for nothing in (empty, pd.DataFrame()):
        setattr(results, table, nothing)
        with pytest.raises(NothingToPlotError, match=rf"set {key} = true"):
            FIGURES[name](results)


@pytest.mark.parametrize(
    "name",
    ["path_length", "hops", "gradient_map", "attention_weights", "half_life", "lyapunov"],
)
def test_new_figures_save_to_equal_bytes(name: str, tmp_path: Path) -> None:
    results = make({**BOTH, "task.length": [4, 6]}, seeds=2, steps=(0, 9))
    figures = (FIGURES[name](results) for _ in range(2))
    first, again = (save(f, tmp_path / f"{i}.svg").read_bytes() for i, f in enumerate(figures))
    assert first == again
