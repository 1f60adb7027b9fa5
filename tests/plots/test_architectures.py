"""Figures of every kind of model: layers, directions, synchronous, transformers, k != n, scores."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from reading import caption, legend, lines, panel, texts, xs, ys
from synthetic import Axes as Sweep
from synthetic import Synthetic, lose, make
from test_plots import assert_apart

from gradlab.plots import FIGURES
from gradlab.plots.words import Language, describe_all

SCORES = ["none", "additive", "dot", "scaled_dot", "general", "concat", "cosine", "location"]
BOTH: Sweep = {"model.attention": ["none", "additive"]}
KINDS: Sweep = {"model.kind": ["seq2seq", "synchronous", "transformer"]}
CASES: dict[str, tuple[Sweep, dict[str, object]]] = {
    "layers": ({**BOTH, "task.length": [3, 5]}, {"model__layers": 2}),
    "two-way": (BOTH, {"model__layers": 2, "model__bidirectional": True}),
    "all": ({**KINDS, "task.keep": [2, 5]}, {"model__layers": 2, "model__attention": "dot"}),
    "kinds": ({**KINDS, "task.name": ["copy", "reverse"]}, {"model__attention": "additive"}),
    "transformer": ({"model.layers": [1, 2]}, {"model__kind": "transformer"}),
    "keep": ({**BOTH, "task.keep": [2, 5]}, {}),
    "scores": ({"model.attention": SCORES}, {}),
}


@functools.cache
def case(name: str) -> Synthetic:
    """One of the sweeps, measured before and after training; not to be changed."""
    axes, fixed = CASES[name]
    fixed = {"model__hidden": 4, **fixed}
    return make({"task.length": [5], **axes}, steps=(0, 9), **fixed)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", FIGURES)
@pytest.mark.parametrize("sweep", ["all", "two-way", "scores"])
def test_every_figure_of_every_architecture_has_room_for_its_words(name: str, sweep: str) -> None:
    assert_apart(FIGURES[name](case(sweep)))


def total(results: Synthetic, column: str, query: str) -> list[float]:
    table = results.gradients.query(f"path == 'total' and {query}")
    return [float(value) for value in table.sort_values("position")[column]]


def test_decay_at_one_length_has_a_line_a_layer_and_direction() -> None:
    results = case("two-way")
    figure = FIGURES["gradient_decay"](results)
    axis = panel(figure, "no attention", "untrained")
    for layer, direction in ((1, "forward"), (2, "backward")):
        (line,) = lines(axis, f"layer {layer} · read {direction}s")
        chosen = f"train_step == 0 and layer == {layer} and direction == '{direction}'"
        expected = total(results, "norm_mean", f"{chosen} and `model.attention` == 'none'")
        np.testing.assert_allclose(ys(line), expected, rtol=1e-12)
    assert len(legend(figure)) == 4
    assert "n = 5" in caption(figure)
    assert "top layer" not in caption(figure)


def test_decay_at_several_lengths_has_panels_by_layer_or_the_top_one_if_many() -> None:
    results = case("layers")
    figure = FIGURES["gradient_decay"](results)
    assert legend(figure) == ["3", "5"]
    (line,) = lines(panel(figure, "layer 1", "no attention", "untrained"), "5")
    chosen = "train_step == 0 and layer == 1 and source_length == 5"
    expected = total(results, "norm_mean", f"{chosen} and `model.attention` == 'none'")
    np.testing.assert_allclose(ys(line), expected, rtol=1e-12)
    deep = make({**BOTH, "task.length": [3, 5]}, steps=(0, 9), model__layers=4)
    figure = FIGURES["gradient_decay"](deep)
    assert len(figure.axes) == 4
    (line,) = lines(panel(figure, "no attention", "untrained"), "5")
    chosen = "train_step == 0 and layer == 4 and source_length == 5"
    expected = total(deep, "norm_mean", f"{chosen} and `model.attention` == 'none'")
    np.testing.assert_allclose(ys(line), expected, rtol=1e-12)
    assert "states of the top layer" in caption(figure)


def test_missing_seeds_of_a_deep_model_do_not_add_a_panel() -> None:
    results = make({**BOTH, "task.length": [3, 5]}, seeds=2, model__layers=2)
    lose(results, results.runs["run_id"].tolist()[1:2])
    assert len(FIGURES["gradient_decay"](results).axes) == 4


def test_lengths_backwards_are_counted_from_the_first_state() -> None:
    results = make(
        {"task.length": [5]}, record__loss="last", model__bidirectional=True, model__hidden=4
    )
    figure = FIGURES["path_length"](results)
    (ahead,) = lines(panel(figure, "read forwards"), "reference_last")
    (back,) = lines(panel(figure, "read backwards"), "reference_last")
    assert ys(ahead) == [10, 9, 8, 7, 6]
    assert ys(back) == [6, 7, 8, 9, 10]
    (line,) = lines(panel(figure, "read backwards"), "5")
    np.testing.assert_array_equal(ys(line), ys(back))
    assert "i − 1 in place of n − i" in caption(figure)
    many = FIGURES["path_length"](case("two-way"))
    assert not any("reference" in str(line.get_label()) for a in many.axes for line in a.lines)


def test_lengths_below_the_top_layer_are_longer_by_the_climb() -> None:
    results = make({"task.length": [5]}, record__loss="last", model__layers=3)
    figure = FIGURES["path_length"](results)
    for layer, expected in ((1, 12), (2, 11), (3, 10)):
        axis = panel(figure, f"layer {layer}")
        assert ys(lines(axis, "reference_last")[0])[0] == expected
        assert ys(lines(axis, "5")[0])[0] == expected
    assert "Climbing one layer is an edge too" in caption(figure)


def test_hops_start_at_the_state_that_was_read_first() -> None:
    results = make({**BOTH, "task.length": [5]}, model__bidirectional=True)
    figure = FIGURES["hops"](results)
    for words, position in (("read forwards", 1), ("read backwards", 5)):
        direction = words.split()[1].removesuffix("s")
        (line,) = lines(panel(figure, "additive attention", words), "hops_first")
        table = results.hops.query(
            f"direction == '{direction}' and position == {position}"
            " and `model.attention` == 'additive'"
        )
        assert xs(line) == [0, 1, 2, 3, 4]
        np.testing.assert_array_equal(ys(line), table["share"])
    assert legend(figure)[0] == "first state h₁; read backwards: hₙ"


def test_half_lives_and_exponents_have_a_line_a_state() -> None:
    results = case("two-way")
    words = legend(FIGURES["half_life"](results))
    assert "no attention · layer 1 · read backwards" in words
    assert len(words) == 8
    figure = FIGURES["lyapunov"](results)
    assert "states of the top layer" in caption(figure)
    (line,) = lines(panel(figure, "untrained", "all exponents"), "no attention · read backwards")
    table = results.lyapunov.query(
        "train_step == 0 and layer == 2 and direction == 'backward' and `model.attention` == 'none'"
    )
    np.testing.assert_allclose(ys(line), table["exponent"], rtol=1e-12)
    many = make({"model.attention": SCORES, "task.length": [5]}, model__layers=2, model__hidden=4)
    assert "states of the top layer" in caption(FIGURES["half_life"](many))
    assert len(legend(FIGURES["half_life"](many))) == 8


def test_shares_of_a_synchronous_model_are_its_output() -> None:
    figure = FIGURES["path_shares"](case("kinds"))
    (line,) = lines(panel(figure, "synchronous", "copy", "untrained"), "output")
    assert ys(line) == [1, 1, 1, 1, 1]
    assert not lines(panel(figure, "synchronous", "copy", "untrained"), "bridge")
    assert "output: state to its own step's target" in legend(figure)
    assert not any("layer" in word for word in legend(figure))


def test_shares_of_a_transformer_are_by_edge_and_layer() -> None:
    results = case("transformer")
    figure = FIGURES["path_shares"](results)
    axis = panel(figure, "2 layers", "layer 2", "untrained")
    drawn = {}
    for path in ("values.1", "values.2", "keys.1", "keys.2"):
        (drawn[path],) = lines(axis, path)
        table = results.gradients.query(
            f"path == '{path}' and train_step == 0 and layer == 2 and `model.layers` == 2"
        )
        np.testing.assert_array_equal(ys(drawn[path]), table["share"])
    assert sum(to_rgb(drawn["keys.1"].get_color())) > sum(to_rgb(drawn["keys.2"].get_color()))
    assert len({str(line.get_marker()) for line in drawn.values()}) == 4
    assert legend(figure)[:4] == [
        "values: layer 1", "values: layer 2", "keys: layer 1", "keys: layer 2"
    ]  # fmt: skip


def test_a_transformer_leaves_at_once_and_has_no_exponents() -> None:
    figure = FIGURES["hops"](case("transformer"))
    (line,) = lines(panel(figure, "1 layer", "untrained"), "hops_first")
    assert (xs(line), ys(line)) == ([0], [1])
    assert [t.get_text() for t in figure.axes[-1].get_xticklabels()] == ["0"]
    assert "all leaves after 0 steps" in caption(figure)
    words = legend(FIGURES["lyapunov"](case("kinds")))
    assert "synchronous · copy" in words
    assert not any("transformer" in word for word in words)


def test_maps_of_fewer_targets_than_sources_are_k_by_n() -> None:
    figure = FIGURES["gradient_map"](case("keep"))
    axis = panel(figure, "additive attention", "first 2 symbols", "untrained", "gradient")
    (mesh,) = (c for c in axis.collections if c.get_label() == "norms")
    assert np.asarray(mesh.get_array()).shape == (2, 5)
    assert axis.get_ylim() == (2.5, 0.5)
    assert panel(
        figure, "additive attention", "first 5 symbols", "untrained", "gradient"
    ).get_ylim() == (5.5, 0.5)


def test_k_targets_set_the_longest_path_and_the_chance_of_a_sequence() -> None:
    results = make({"task.length": [5]}, steps=(0, 9), record__loss="last", task__keep=2)
    figure = FIGURES["path_length"](results)
    (reference,) = lines(panel(figure, "untrained"), "reference_last")
    assert ys(reference)[0] == (5 - 1) + 1 + 2
    curves = FIGURES["training"](results)
    (chance,) = lines(panel(curves, "sequence accuracy"), "chance")
    assert ys(chance) == pytest.approx([0.01, 0.01])


def test_a_sweep_over_gains_is_in_order() -> None:
    gains = [1.1, 0.7, 1.0, 0.9]
    sweep: Sweep = {"model.gain": gains, "task.length": [5, 8]}
    results = make(sweep, steps=(0, 9), model__init="orthogonal")
    assert legend(FIGURES["bottleneck"](results))[:4] == [
        "gain 0.7", "gain 0.9", "gain 1", "gain 1.1"
    ]  # fmt: skip
    assert "orthogonal" in texts(FIGURES["bottleneck"](results), "subtitle")[0]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"model.kind": "transformer"}, "transformer"),
        ({"model.kind": "synchronous", "model.cell": "gru"}, "synchronous GRU"),
        ({"model.kind": "seq2seq", "model.cell": "gru", "model.attention": "dot"},
         "GRU · dot attention"),
        ({"model.kind": "seq2seq"}, "encoder-decoder"),
        ({"model.cell": "gru", "model.attention": "dot", "model.scope": "local_predictive",
          "model.window": 2, "model.timing": "luong"},
         "GRU · dot attention (local predictive, D = 2, luong timing)"),
        ({"model.scope": "global"}, "global attention"),
        ({"model.cell": "gru", "model.layers": 2, "model.bidirectional": True},
         "GRU × 2 · two-way"),
        ({"model.cell": "rnn", "model.init": "orthogonal", "model.gain": 0.9},
         "RNN · orthogonal, gain 0.9"),
        ({"model.kind": "synchronous", "model.cell": "lstm", "model.layers": 2},
         "synchronous LSTM × 2"),
        ({"model.layers": 1, "task.keep": 3}, "1 layer · first 3 symbols"),
    ],
)  # fmt: skip
def test_models_are_named_in_few_words(values: dict[str, object], words: str) -> None:
    assert describe_all("en", values) == words
    korean: Language = "ko"
    assert describe_all(korean, values)


def test_captions_say_nothing_of_layers_where_there_is_one() -> None:
    results = make({**BOTH, "task.length": [4]}, steps=(0, 9), model__hidden=4)
    for name in ("gradient_decay", "path_shares", "path_length", "hops", "half_life"):
        figure = FIGURES[name](results)
        assert "layer" not in caption(figure)
        assert "ackwards" not in caption(figure)
