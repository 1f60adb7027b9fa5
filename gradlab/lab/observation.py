"""What is recorded at a checkpoint: the rows of every table for one probe batch."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from gradlab.gradients.hops import hop_rows
from gradlab.gradients.jacobians import tables as jacobian_tables
from gradlab.gradients.maps import gradient_map, map_rows
from gradlab.gradients.measurement import Measurement
from gradlab.gradients.probe import measure
from gradlab.gradients.summary import summarise
from gradlab.grid import Point
from gradlab.lab.evaluation import evaluate
from gradlab.lab.tables import TABLES
from gradlab.lab.training import Checkpoint
from gradlab.models.family import AnyModel
from gradlab.tasks import Batch

ATTENTION_EXAMPLES = 2


def observe(
    model: AnyModel, point: Point, batch: Batch, checkpoint: Checkpoint
) -> dict[str, pd.DataFrame]:
    """Return the rows of every table that the point records, without step and length."""
    row, positions = evaluate(model, batch)
    finite = math.isfinite(row["loss"]) and not checkpoint.diverged
    status = "ok" if finite else "diverged"
    measurement = measure(model, batch, point.record.loss, paths=point.record.paths)
    tables = {
        "training": pd.DataFrame(
            [{**row, "gradient_norm": checkpoint.gradient_norm, "status": status}]
        ),
        "gradients": summarise(measurement),
        "positions": positions,
        "attention": attention_rows(measurement, batch),
    }
    if point.record.map:
        tables["maps"] = map_rows(gradient_map(model, batch))
    if point.record.hops:
        tables["hops"] = hop_rows(model, batch, measurement)
    if point.record.jacobians:
        tables["jacobians"], tables["lyapunov"] = jacobian_tables(model, batch)
    return tables


def attention_rows(measurement: Measurement, batch: Batch) -> pd.DataFrame:
    """Return the attention weights of the first probe examples; no rows without attention."""
    columns = list(TABLES["attention"])[2:]
    if measurement.attention_weights is None:
        return pd.DataFrame({name: np.array([], dtype=_dtype(name)) for name in columns})
    weights = measurement.attention_weights[:ATTENTION_EXAMPLES].cpu().numpy()
    example, target, source = (axis.ravel() for axis in np.indices(weights.shape))
    values = (
        example,
        target + 1,
        source + 1,
        weights.ravel(),
        batch.source.cpu().numpy()[example, source],
        batch.target.cpu().numpy()[example, target],
    )
    return pd.DataFrame(dict(zip(columns, values, strict=True)))


def _dtype(column: str) -> type:
    return float if column == "weight" else int
