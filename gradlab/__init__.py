"""gradlab: along which paths does the gradient of a Seq2Seq model reach each encoder timestep?

The map of the house, in the order in which things happen:

    scenario, draft          a TOML file -> what it says, overrides and all -> validated values
    schema, mistakes         what a scenario may say, and what to say when it does not
    grid, combinations       a scenario -> the points of its sweep, each with its run id, or what
                             cannot be combined
    tasks, seeding           copy and reverse batches, drawn by key
    models                   cells and their adjoints, attention, the encoder-decoder, the loss;
                             the synchronous model
    gradients                the total gradient at every encoder state, its parts, how far it came
    lab                      training, one run, the sweep of runs, the tables on disk
    plots                    tables -> figures
    cli, drawing, progress   the commands, the figures they draw, what they say meanwhile
    running                  `gradlab.run`, for Python
    errors, limits           every error meant for people; what fits in memory

Imports point one way: scenario, tasks <- models <- gradients, lab <- cli and lab.results <- plots.

    import gradlab
    scenario = gradlab.load_scenario("first_look", {"task.length": 20})
    results = gradlab.run(scenario, out="runs/first_look")
    results.gradients                          # a pandas DataFrame
    gradlab.plots.gradient_decay(results)      # a matplotlib Figure
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gradlab import plots
    from gradlab.errors import GradlabError, NothingToPlotError, ScenarioError, StoreError
    from gradlab.gradients.bottleneck import l50
    from gradlab.gradients.decay import decay
    from gradlab.gradients.jacobians import jacobians
    from gradlab.gradients.maps import gradient_map
    from gradlab.gradients.measurement import Measurement
    from gradlab.gradients.probe import measure
    from gradlab.grid import Point, points
    from gradlab.lab.results import Results
    from gradlab.lab.results import open_results as open
    from gradlab.lab.run import build_model, run_point
    from gradlab.models.seq2seq import Seq2Seq
    from gradlab.models.synchronous import Synchronous
    from gradlab.models.transformer import Transformer
    from gradlab.running import run
    from gradlab.scenario import load_scenario
    from gradlab.schema import Scenario
    from gradlab.tasks import Batch, draw_batch, probe_batch

__version__ = "0.1.0"

# Loaded on first use: torch takes a second to import, and `gradlab --help` should not wait for it.
_HOME = {
    "GradlabError": "errors",
    "NothingToPlotError": "errors",
    "ScenarioError": "errors",
    "StoreError": "errors",
    "load_scenario": "scenario",
    "Scenario": "schema",
    "Point": "grid",
    "points": "grid",
    "Batch": "tasks",
    "draw_batch": "tasks",
    "probe_batch": "tasks",
    "Seq2Seq": "models.seq2seq",
    "Synchronous": "models.synchronous",
    "Transformer": "models.transformer",
    "Measurement": "gradients.measurement",
    "measure": "gradients.probe",
    "gradient_map": "gradients.maps",
    "jacobians": "gradients.jacobians",
    "decay": "gradients.decay",
    "l50": "gradients.bottleneck",
    "build_model": "lab.run",
    "run_point": "lab.run",
    "run": "running",
    "open": "lab.results",
    "Results": "lab.results",
    "plots": "plots",
}

__all__ = [  # noqa: RUF022
    "GradlabError",
    "NothingToPlotError",
    "ScenarioError",
    "StoreError",
    "load_scenario",
    "Scenario",
    "Point",
    "points",
    "Batch",
    "draw_batch",
    "probe_batch",
    "Seq2Seq",
    "Synchronous",
    "Transformer",
    "Measurement",
    "measure",
    "gradient_map",
    "jacobians",
    "decay",
    "l50",
    "build_model",
    "run_point",
    "run",
    "open",
    "Results",
    "plots",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'gradlab' has no attribute {name!r}")
    module = importlib.import_module(f"gradlab.{_HOME[name]}")
    value = {"plots": module}.get(name) or getattr(module, {"open": "open_results"}.get(name, name))
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
