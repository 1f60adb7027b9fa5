"""The figure of attention weights: one example with its symbols beside the mean."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from reading import caption, legend, lines, panel, texts, xs, ys
from synthetic import Axes as Sweep
from synthetic import Synthetic, diverge, make

from gradlab.errors import NothingToPlotError
from gradlab.plots import FIGURES

SCORES = ["additive", "dot", "scaled_dot", "general", "concat", "cosine", "location"]
TASKS: Sweep = {"task.name": ["copy", "reverse"]}


def attentive(axes: Sweep | None = None, **settings: object) -> Synthetic:
    """A sweep with additive attention at length 6, after 9 steps."""
    kind = {"model__attention": "additive", **settings}
    return make({"task.length": [6], **(axes or {})}, steps=(0, 9), **kind)  # type: ignore[arg-type]


def values(axis: Axes) -> np.ma.MaskedArray[tuple[int, ...], np.dtype[np.float64]]:
    (mesh,) = (c for c in axis.collections if isinstance(c, QuadMesh) and c.get_label() == "centre")
    assert mesh.get_clim() == (0, 1)
    return np.ma.masked_invalid(np.asarray(mesh.get_array(), float))


def symbols(axis: Axes) -> tuple[str, str]:
    x, y = ([t.get_text() for t in a.get_ticklabels()] for a in (axis.xaxis, axis.yaxis))
    return "".join(x), "".join(y)


def test_example_is_the_table_with_its_symbols_and_the_mean_that_of_the_maps() -> None:
    results = attentive(TASKS, seeds=2)
    figure = FIGURES["attention_weights"](results)
    left = panel(figure, "reverse", "after 9 steps", "one example")
    right = panel(figure, "reverse", "after 9 steps", "mean of 64 examples")
    chosen = "train_step == 9 and `task.name` == 'reverse'"
    table = results.attention.query(f"{chosen} and seed == 0 and example == 0")
    one = table.pivot(index="target_position", columns="position", values="weight")
    np.testing.assert_array_equal(values(left), one)
    mean = results.maps.query(chosen).groupby(["target_position", "position"])["attention_weight"]
    np.testing.assert_allclose(values(right), mean.mean().unstack(), rtol=1e-12)
    assert symbols(left) == ("147036", "630741")
    assert left.get_ylim() == right.get_ylim() == (6.5, 0.5)
    assert left.get_aspect() == 1
    words = caption(figure)
    assert "on a scale from 0 to 1" in words
    assert "probe example 1, seed 0" in words
    assert "mean over 64 probe examples of each of 2 seeds" in words
    assert "n = 6" in words


def test_without_maps_the_mean_is_over_the_recorded_examples_and_says_so() -> None:
    results = attentive(seeds=2)
    results.maps = pd.DataFrame()
    figure = FIGURES["attention_weights"](results)
    right = panel(figure, "after 9 steps", "mean of 2 examples")
    table = results.attention.query("train_step == 9").groupby(["target_position", "position"])
    np.testing.assert_allclose(values(right), table["weight"].mean().unstack(), rtol=1e-12)
    assert "2 are all that are recorded without record.map = true" in caption(figure)
    assert "record.map" not in caption(FIGURES["attention_weights"](attentive()))


@pytest.mark.parametrize("turned", [False, True])
def test_the_ideal_path_is_the_diagonal_or_the_other_one(turned: bool) -> None:
    figure = FIGURES["attention_weights"](attentive(TASKS, task__reverse_source=turned))
    for task, down in (("copy", not turned), ("reverse", turned)):
        for half in ("one example", "mean of 64 examples"):
            (ideal,) = lines(panel(figure, task, "after 9 steps", half), "ideal")
            assert ys(ideal) == [1, 2, 3, 4, 5, 6]
            assert xs(ideal) == (ys(ideal) if down else ys(ideal)[::-1])
    first, other = ("the anti-diagonal", "the diagonal")[:: 1 if turned else -1]
    assert f"ideal path, {first} for copy, {other} for reverse." in caption(figure)


def test_fewer_targets_than_sources_have_fewer_rows() -> None:
    figure = FIGURES["attention_weights"](attentive({"task.name": ["reverse"]}, task__keep=2))
    left = panel(figure, "after 9 steps", "one example")
    assert values(left).shape == (2, 6)
    (ideal,) = lines(left, "ideal")
    assert (xs(ideal), ys(ideal)) == ([6, 5], [1, 2])


def test_seven_scores_are_seven_pairs_after_training_alone() -> None:
    figure = FIGURES["attention_weights"](attentive({"model.attention": SCORES}))
    assert len(figure.axes) == 2 * 7 + 1
    panel(figure, "location attention", "one example")
    assert not any("untrained" in axis.get_title() for axis in figure.axes)
    figure.canvas.draw()
    boxes = [axis.title.get_window_extent() for axis in figure.axes[:-1]]
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])


def test_models_without_attention_are_left_out_or_nothing_is_drawn() -> None:
    figure = FIGURES["attention_weights"](attentive({"model.attention": ["none", "additive"]}))
    assert "Models without attention are not shown" in caption(figure)
    assert len(figure.axes) == 4 + 1
    for without in ({"model.attention": ["none"]}, {"model.kind": ["synchronous"]}):
        with pytest.raises(NothingToPlotError, match="needs a model with attention"):
            FIGURES["attention_weights"](attentive(without))


def test_local_attention_may_sum_to_less_than_one() -> None:
    scopes = ["global", "local_monotonic"]
    results = attentive({"model.scope": scopes})
    table = results.attention
    sums = table.groupby(["run_id", "train_step", "example", "target_position"])["weight"].sum()
    figure = FIGURES["attention_weights"](results)
    assert f"rows may sum to less than 1 (here down to {sums.min():.2g})" in caption(figure)
    panel(figure, "local attention (monotonic)", "after 9 steps", "one example")
    assert "less than 1" not in caption(FIGURES["attention_weights"](attentive()))


def test_weights_that_are_not_finite_are_hatched_and_counted() -> None:
    results = attentive()
    first = (results.attention["train_step"] == 9) & (results.attention["example"] == 0)
    results.attention.loc[first.idxmax(), "weight"] = np.nan
    figure = FIGURES["attention_weights"](results)
    left = panel(figure, "after 9 steps", "one example")
    assert values(left).mask.sum() == 1
    assert left.patch.get_hatch()
    assert legend(figure) == ["no finite value"]
    assert "Not finite and left out: 1 of 144 values" in caption(figure)


def test_a_transformer_says_which_layer_and_heads() -> None:
    kinds: Sweep = {"model.kind": ["seq2seq", "synchronous", "transformer"]}
    figure = FIGURES["attention_weights"](attentive(kinds, model__layers=2))
    panel(figure, "transformer", "after 9 steps", "one example")
    assert "Transformer: last decoder layer, mean over heads." in caption(figure)
    assert len(figure.axes) == 8 + 1
    assert "heads" not in caption(FIGURES["attention_weights"](attentive()))


def test_long_examples_write_some_symbols_and_many_symbols_are_letters() -> None:
    results = attentive({"task.length": [20]}, task__symbols=26)
    figure = FIGURES["attention_weights"](results)
    written = symbols(panel(figure, "after 9 steps", "one example"))[0]
    assert written == "bhntzflrxd"
    assert "One symbol in 2 is written." in caption(figure)
    assert "Letters: a is symbol 0." in caption(figure)


def test_a_model_whose_runs_all_diverged_has_a_note() -> None:
    results = attentive({"model.attention": ["additive", "dot"]})
    diverge(results, results.runs.query("`model.attention` == 'dot'")["run_id"].tolist())
    figure = FIGURES["attention_weights"](results)
    assert texts(figure, "note") == ["nothing to draw here:\nall runs diverged or are missing"] * 2
    assert "1 of 2 runs diverged" in caption(figure)
