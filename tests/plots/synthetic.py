"""Invented results of a sweep, as tables, for figures to be drawn from without running a model."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import synthetic_tables as tables
from synthetic_gradients import Norm, falling, gradient_rows

from gradlab.gradients.decay import decay

__all__ = ["Axes", "Norm", "Point", "Synthetic", "diverge", "falling", "lose", "make"]

DEFAULTS: Mapping[str, object] = {
    "task.name": "copy",
    "task.length": 20,
    "task.symbols": 10,
    "task.delay": 0,
    "task.keep": None,
    "task.reverse_source": False,
    "model.kind": "seq2seq",
    "model.cell": "gru",
    "model.hidden": 64,
    "model.layers": 1,
    "model.bidirectional": False,
    "model.init": "torch",
    "model.gain": None,
    "model.attention": "none",
    "model.scope": "global",
    "model.timing": "bahdanau",
    "model.bridge": "initial",
    "training.steps": 0,
    "training.lr": 3e-3,
    "record.loss": "mean",
    "record.examples": 64,
    "record.paths": True,
}

Point = dict[str, Any]
Axes = Mapping[str, Sequence[object]]


@dataclass
class Title:
    title: str = "An invented sweep"


@dataclass
class Synthetic:
    """The attributes of results that figures read."""

    runs: pd.DataFrame
    gradients: pd.DataFrame
    training: pd.DataFrame
    positions: pd.DataFrame
    scenario: Title = field(default_factory=Title)
    steps: Sequence[int] = (0,)
    until: dict[str, int] = field(default_factory=dict)
    """The last good training step of runs that diverged."""

    @cached_property
    def attention(self) -> pd.DataFrame:
        return self.recorded(tables.attention_table)

    @cached_property
    def hops(self) -> pd.DataFrame:
        return self.recorded(tables.hop_table)

    @cached_property
    def maps(self) -> pd.DataFrame:
        return self.recorded(tables.map_table)

    @cached_property
    def lyapunov(self) -> pd.DataFrame:
        return self.recorded(tables.lyapunov_table)

    @cached_property
    def decay(self) -> pd.DataFrame:
        return decay(self) if len(self.gradients) else pd.DataFrame()

    def recorded(self, table: Callable[[Any, int], pd.DataFrame]) -> pd.DataFrame:
        """A table of the runs that are not missing, up to where they diverged."""
        frames = [
            found.assign(run_id=point["run_id"], train_step=step)
            for point in self.runs[self.runs["status"] != "missing"].to_dict("records")
            for step in self.steps
            if step <= self.until.get(point["run_id"], step) and len(found := table(point, step))
        ]
        if not frames:
            return pd.DataFrame()
        return pd.concat(frames).merge(self.runs.drop(columns="status"), on="run_id")


def idle(point: Point) -> None:
    """Make null what has no effect at a point."""
    if point["model.kind"] == "transformer":
        point |= dict.fromkeys(("model.cell", "model.attention", "model.bridge", "model.init"))
    if point["model.kind"] == "synchronous":
        point |= {"model.attention": None, "model.bridge": None}
    if point["model.attention"] in (None, "none"):
        point |= {"model.timing": None, "model.scope": None}


def points_of(axes: Axes, seeds: int, fixed: Point) -> list[Point]:
    points: list[Point] = []
    for values in itertools.product(*axes.values(), range(seeds)):
        point: Point = {**DEFAULTS, **fixed, **dict(zip([*axes, "seed"], values, strict=True))}
        idle(point)
        point |= {"run_id": f"run{len(points):04}", "case": None, "status": "done"}
        point["record.lengths"] = (point["task.length"],)
        points.append(point)
    return points


def make(
    axes: Axes,
    *,
    seeds: int = 1,
    steps: Sequence[int] = (0,),
    norm: Norm = falling,
    **fixed: object,
) -> Synthetic:
    """Tables of a sweep over `axes` (dotted keys), measured at `steps`."""
    more = {key.replace("__", "."): value for key, value in fixed.items()}
    points = points_of(axes, seeds, {"training.steps": steps[-1], **more})
    gradients = [row for p in points for s in steps for row in gradient_rows(p, s, norm)]
    training = [training_row(p, s, steps[-1]) for p in points for s in steps]
    positions = [row for p in points for s in steps for row in position_rows(p, s, steps[-1])]
    runs = pd.DataFrame(points)
    config = runs.drop(columns="status")
    found = [
        pd.DataFrame(rows).merge(config, on="run_id") for rows in (gradients, training, positions)
    ]
    return Synthetic(runs, found[0], found[1], found[2], steps=steps)


def skill(point: Point, step: int, last: int) -> float:
    """How well a run does, between 0 and 1."""
    if not last:
        return 0.0
    progress = step / last
    if tables.attends(point):
        return float(progress**0.5)
    reach = 14 * (point["model.hidden"] / 64) ** 0.5 * (1.5 if point["task.name"] != "copy" else 1)
    return float(progress / (1 + (point["task.length"] / reach) ** 3))


def training_row(point: Point, step: int, last: int) -> dict[str, object]:
    able = np.clip(skill(point, step, last) + 0.03 * np.sin(5 * point["seed"]), 0, 1)
    return {
        "run_id": point["run_id"],
        "train_step": step,
        "source_length": point["task.length"],
        "loss": (1 - 0.97 * able) * np.log(10),
        "token_accuracy_forced": 0.1 + 0.9 * able,
        "token_accuracy": 0.1 + 0.9 * able**1.3,
        "sequence_accuracy": able**4,
        "gradient_norm": 1.0,
        "status": "ok",
    }


def position_rows(point: Point, step: int, last: int) -> list[dict[str, object]]:
    able = skill(point, step, last)
    return [
        {
            "run_id": point["run_id"],
            "train_step": step,
            "source_length": point["task.length"],
            "position": j,
            "token_accuracy": 0.1 + 0.9 * able ** (0.2 * j) * (0.97 - 0.02 * point["seed"]),
            "token_accuracy_forced": 0.1 + 0.9 * able ** (0.12 * j),
        }
        for j in range(1, tables.targets(point) + 1)
    ]


def diverge(results: Synthetic, run_ids: Sequence[str], after: int = 0) -> None:
    """Make runs diverge: only rows up to training step `after` stay, then a row of no numbers."""
    results.runs.loc[results.runs["run_id"].isin(run_ids), "status"] = "diverged"
    results.until |= dict.fromkeys(run_ids, after)
    for name in ("gradients", "positions"):
        table = getattr(results, name)
        bad = table["run_id"].isin(run_ids) & (table["train_step"] > after)
        setattr(results, name, table[~bad].reset_index(drop=True))
    table = results.training
    bad = table["run_id"].isin(run_ids) & (table["train_step"] > after)
    numbers = ["loss", "token_accuracy_forced", "token_accuracy", "sequence_accuracy"]
    table.loc[bad, numbers] = np.nan
    table.loc[bad, "status"] = "diverged"


def lose(results: Synthetic, run_ids: Sequence[str]) -> None:
    """Make runs missing: they have a row in `runs` and nothing else."""
    results.runs.loc[results.runs["run_id"].isin(run_ids), "status"] = "missing"
    for name in ("gradients", "positions", "training"):
        table = getattr(results, name)
        setattr(results, name, table[~table["run_id"].isin(run_ids)].reset_index(drop=True))
