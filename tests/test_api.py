"""The public names: complete, lazy, and what the README does with them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from matplotlib.figure import Figure
from tiny import fill, tiny

import gradlab
from gradlab import drawing, plots
from gradlab.plots.results import Results as Drawable


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
