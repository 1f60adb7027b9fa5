"""The public names: complete, lazy, and what the README does with them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from matplotlib.figure import Figure
from tiny import fill, tiny

import gradlab
from gradlab import drawing, plots
from gradlab.plots.results import Results as Drawable
from gradlab.schema import Model, Task


def test_every_public_name_is_there_and_documented() -> None:
    assert dir(gradlab) == sorted(gradlab.__all__)
    for name in gradlab.__all__:
        assert getattr(gradlab, name).__doc__, name


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError) as error:
        _ = gradlab.measurement
    assert str(error.value) == "module 'gradlab' has no attribute 'measurement'"


def test_importing_gradlab_imports_nothing_heavy() -> None:
    code = "import sys, gradlab; print(sorted({'torch', 'pandas', 'click'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_names_of_figures_are_those_of_plots() -> None:
    assert tuple(plots.FIGURES) == drawing.FIGURE_NAMES


def test_from_a_sweep_on_disk_to_a_figure_and_a_measurement(tmp_path: Path) -> None:
    scenario = tiny({"seed": [0, 1]}, training={"steps": 0})
    fill(tmp_path, scenario)
    results = gradlab.run(scenario, tmp_path, device="cpu")
    assert isinstance(results, gradlab.Results)
    assert set(results.gradients["seed"]) == {0, 1}
    drawable: Drawable = gradlab.open(tmp_path)
    assert isinstance(gradlab.plots.gradient_decay(drawable), Figure)

    point = gradlab.points(scenario)[0]
    batch = gradlab.probe_batch(point.task, 4, point.seed, 2)
    measurement = gradlab.measure(gradlab.build_model(point), batch)
    assert isinstance(measurement, gradlab.Measurement)


def test_every_error_is_a_gradlab_error() -> None:
    for error in (gradlab.ScenarioError, gradlab.StoreError, gradlab.NothingToPlotError):
        assert issubclass(error, gradlab.GradlabError)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: gradlab.run("first_look", out="nowhere"),  # type: ignore[arg-type]
            "run: expected a scenario, found 'first_look'; load one with gradlab.load_scenario",
        ),
        (
            lambda: gradlab.probe_batch(Task(name="copy"), examples=0, seed=0, length=3),
            "a batch needs at least 1 example and length 1, found 0 and 3",
        ),
        (
            lambda: gradlab.probe_batch(Task(name="copy"), examples=2, seed=0, length=0),
            "a batch needs at least 1 example and length 1, found 2 and 0",
        ),
        (
            lambda: gradlab.measure(
                gradlab.Seq2Seq(Model(hidden=2, embedding=2), 10),
                gradlab.probe_batch(Task(name="copy"), examples=2, seed=0, length=3),
                loss="median",
            ),
            "loss: expected one of mean, sum, first, last, found 'median'",
        ),
    ],
)
def test_mistakes_in_python_get_one_message(call: Callable[[], object], message: str) -> None:
    with pytest.raises(gradlab.GradlabError) as refused:
        call()
    assert str(refused.value) == message
