"""Sweeps small enough for a test, computed and stored without any process but the test's own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gradlab.grid import Point, points
from gradlab.lab.run import Run, run_point
from gradlab.lab.store import prepare, write_run
from gradlab.scenario import load_scenario
from gradlab.schema import Scenario

TINY: Mapping[str, Any] = {
    "title": "tiny",
    "task": {"name": "copy", "length": 2, "symbols": 3},
    "model": {"hidden": 4, "embedding": 3},
    "training": {"steps": 2, "batch": 4},
    "record": {"every": 1, "examples": 4, "map": True, "hops": True, "jacobians": True},
}
CASES = [
    {"label": "vanilla", "model.attention": "none"},
    {"label": "attention", "model.attention": "additive"},
    {"label": "vanilla again", "model.attention": "none"},
]


def tiny(sweep: Mapping[str, Any] | None = None, /, **tables: Mapping[str, Any]) -> Scenario:
    """The tiny scenario with keys of its tables replaced, and with a sweep."""
    replaced = {
        f"{table}.{name}": value for table, keys in tables.items() for name, value in keys.items()
    }
    return load_scenario({**TINY, "sweep": dict(sweep or {})}, replaced)


def point(**tables: Mapping[str, Any]) -> Point:
    """The only point of a tiny scenario."""
    (only,) = points(tiny(**tables))
    return only


def fill(out: Path, scenario: Scenario, *, leave: int = 0) -> dict[str, Run]:
    """Compute the runs of a scenario into `out`, all but the last `leave`; return them by id."""
    prepare(out, scenario)
    unique = {each.run_id: each for each in points(scenario)}
    runs = {run_id: run_point(each) for run_id, each in list(unique.items())[: len(unique) - leave]}
    for run_id, run in runs.items():
        write_run(out, run_id, run)
    return runs
