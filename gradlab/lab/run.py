"""Points of a sweep: train, measure at each checkpoint, return the tables."""

from __future__ import annotations

import platform
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

import gradlab
from gradlab.gradients.probe import absent_paths
from gradlab.grid import Point
from gradlab.lab.observation import observe
from gradlab.lab.tables import SCHEMA_VERSION
from gradlab.lab.training import train
from gradlab.models.family import KINDS, AnyModel
from gradlab.models.seq2seq import Seq2Seq
from gradlab.models.synchronous import Synchronous
from gradlab.models.transformer import Transformer
from gradlab.tasks import Batch, probe_batch


@dataclass(frozen=True)
class Run:
    """A finished run, ready to be stored. status: "done" or "diverged"."""

    record: dict[str, Any]
    tables: dict[str, pd.DataFrame]
    weights: dict[str, NDArray[Any]]
    probes: dict[str, NDArray[Any]]


def build_model(point: Point) -> AnyModel:
    """Return the untrained model of a point, in its dtype, on the CPU."""
    told = point.model, point.task.symbols, point.seed
    model: AnyModel
    if point.model.kind == "seq2seq":
        model = Seq2Seq(*told, point.longest_source)
    else:
        model = KINDS[point.model.kind](*told)
    return model.to(getattr(torch, point.training.dtype))


def probes(point: Point) -> dict[int, Batch]:
    """Return the held-out batch of each of the point's `record.lengths`."""
    examples = point.record.examples
    return {n: probe_batch(point.task, examples, point.seed, n) for n in point.lengths}


@contextmanager
def one_thread() -> Iterator[None]:
    """Use one thread, so that numbers do not depend on the machine's number of cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def run_point(point: Point, device: str = "cpu") -> Run:
    """Train the point's model and measure it; depends on the point alone, not on other runs.

    Weights and data are drawn on the CPU. A run whose loss is no longer finite ends there and is
    returned with the status "diverged".
    """
    (run,) = run_points([point], device)
    return run


def run_points(points: Sequence[Point], device: str = "cpu") -> list[Run]:
    """Train and measure points that differ only in their seeds, in lockstep; each as if alone."""
    started = time.perf_counter()
    with one_thread():
        models = [build_model(point).to(device) for point in points]
        batches = [{n: batch.to(device) for n, batch in probes(point).items()} for point in points]
        observations: list[defaultdict[str, list[pd.DataFrame]]] = [
            defaultdict(list) for _ in points
        ]
        for checkpoint in train(models, points, torch.device(device)):
            i = checkpoint.index
            for length, batch in batches[i].items():
                for name, frame in observe(models[i], points[i], batch, checkpoint).items():
                    frame.insert(0, "train_step", checkpoint.step)
                    frame.insert(1, "source_length", length)
                    observations[i][name].append(frame)
        threads = torch.get_num_threads()
    facts = {
        "seconds": round((time.perf_counter() - started) / len(points), 3),
        "device": device,
        "threads": threads,
        "versions": versions(),
        "schema_version": SCHEMA_VERSION,
    }
    return [
        _finished(*each, facts) for each in zip(points, models, batches, observations, strict=True)
    ]


def _finished(
    point: Point,
    model: AnyModel,
    batches: dict[int, Batch],
    observations: dict[str, list[pd.DataFrame]],
    facts: dict[str, Any],
) -> Run:
    """Return a run from what was observed; `facts` are those of the whole group."""
    tables = {name: pd.concat(rows, ignore_index=True) for name, rows in observations.items()}
    statuses = set(tables["training"]["status"])
    record = {
        "config": point.config,
        "seed": point.seed,
        "status": "diverged" if "diverged" in statuses else "done",
        "structural_zeros": sorted(absent_paths(model)),
        "query_paths": _query_paths(model),
        **facts,
    }
    state = model.state_dict().items()
    arrays = {
        f"{n}.{side}": getattr(batch, side).cpu().numpy()
        for n, batch in batches.items()
        for side in ("source", "target")
    }
    return Run(record, tables, {name: w.cpu().numpy() for name, w in state}, arrays)


def _query_paths(model: AnyModel) -> str:
    """Return how the gradient was split by queries, for readers of the tables."""
    if isinstance(model, Transformer):
        return "split by queries of cross-attention"
    if isinstance(model, Synchronous) or model.attention is None:
        return "no attention, so no queries"
    return "split"


def versions() -> dict[str, str]:
    """Return the versions that a result may depend on."""
    return {
        "gradlab": gradlab.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
    }
