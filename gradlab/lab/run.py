"""One point of a sweep: train, measure at each checkpoint, return the tables."""

from __future__ import annotations

import platform
import time
from collections import defaultdict
from collections.abc import Iterator
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
from gradlab.models.seq2seq import Seq2Seq
from gradlab.tasks import Batch, probe_batch


@dataclass(frozen=True)
class Run:
    """A finished run, ready to be stored. status: "done" or "diverged"."""

    record: dict[str, Any]
    tables: dict[str, pd.DataFrame]
    weights: dict[str, NDArray[Any]]
    probes: dict[str, NDArray[Any]]


def build_model(point: Point) -> Seq2Seq:
    """Return the untrained model of a point, in its dtype, on the CPU."""
    model = Seq2Seq(point.model, point.task.symbols, point.seed)
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
    started = time.perf_counter()
    with one_thread():
        model = build_model(point).to(device)
        batches = {n: batch.to(device) for n, batch in probes(point).items()}
        observations: defaultdict[str, list[pd.DataFrame]] = defaultdict(list)
        for checkpoint in train(model, point, torch.device(device)):
            for length, batch in batches.items():
                for name, frame in observe(model, point, batch, checkpoint).items():
                    frame.insert(0, "train_step", checkpoint.step)
                    frame.insert(1, "source_length", length)
                    observations[name].append(frame)
        tables = {name: pd.concat(rows, ignore_index=True) for name, rows in observations.items()}
        threads = torch.get_num_threads()
    statuses = set(tables["training"]["status"])
    record = {
        "config": point.config,
        "seed": point.seed,
        "status": "diverged" if "diverged" in statuses else "done",
        "structural_zeros": sorted(absent_paths(model)),
        "query_paths": "no attention, so no queries" if model.attention is None else "split",
        "seconds": round(time.perf_counter() - started, 3),
        "device": device,
        "threads": threads,
        "versions": versions(),
        "schema_version": SCHEMA_VERSION,
    }
    state = model.state_dict().items()
    arrays = {
        f"{n}.{side}": getattr(batch, side).cpu().numpy()
        for n, batch in batches.items()
        for side in ("source", "target")
    }
    return Run(record, tables, {name: w.cpu().numpy() for name, w in state}, arrays)


def versions() -> dict[str, str]:
    """Return the versions that a result may depend on."""
    return {
        "gradlab": gradlab.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
    }
