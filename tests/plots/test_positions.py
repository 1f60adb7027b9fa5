"""Accuracy by position: what a synchronous model cannot know is marked, and nothing else."""

from __future__ import annotations

from matplotlib.patches import Rectangle
from reading import caption, legend, panel
from synthetic import make

from gradlab.plots import FIGURES

KINDS = {"model.kind": ["seq2seq", "synchronous"], "task.name": ["copy", "reverse"]}


def spans(axis: object) -> list[tuple[float, float]]:
    """The hatched parts of a panel, from and to."""
    patches = [p for p in axis.patches if p.get_label() == "unread"]  # type: ignore[attr-defined]
    assert all(isinstance(patch, Rectangle) for patch in patches)
    return [(patch.get_x(), patch.get_x() + patch.get_width()) for patch in patches]


def test_the_unread_half_of_a_reverse_is_hatched_for_synchronous_models_alone() -> None:
    results = make({**KINDS, "task.length": [5, 10]}, steps=(0, 9))
    figure = FIGURES["accuracy_by_position"](results)
    assert spans(panel(figure, "synchronous", "reverse")) == [(0.5, 2.5), (0.5, 5.5)]
    for words in (("synchronous", "copy"), ("encoder-decoder", "reverse")):
        assert spans(panel(figure, *words)) == []
    assert legend(figure)[-2:] == ["guessing, 1/V = 0.1", "symbol not read yet"]
    assert "Hatched: " in caption(figure)
    assert "reads no output" in caption(figure)


def test_a_delay_leaves_fewer_symbols_unread_and_then_none() -> None:
    for delay, expected in ((1, [(0.5, 2.5)]), (4, [(0.5, 1.5)]), (6, []), (9, [])):
        axes = {"model.kind": ["synchronous"], "task.name": ["reverse"]}
        results = make({**axes, "task.delay": [delay], "task.length": [6]}, steps=(0, 9))
        figure = FIGURES["accuracy_by_position"](results)
        assert spans(figure.axes[0]) == expected
        assert ("symbol not read yet" in legend(figure)) == bool(expected)


def test_without_a_synchronous_model_nothing_is_said_of_it() -> None:
    figure = FIGURES["accuracy_by_position"](make({"task.length": [5]}, steps=(0, 9)))
    assert legend(figure)[-1] == "guessing, 1/V = 0.1"
    assert "ynchronous" not in caption(figure)


def test_chance_is_a_number_only_where_all_runs_have_as_many_symbols() -> None:
    results = make({"task.symbols": [4, 8], "task.length": [5]}, steps=(0, 9))
    assert legend(FIGURES["accuracy_by_position"](results))[-1] == "guessing"
