"""The columns of every table, with units: the contract between runs and everything that reads them.

Every table is in long form, one row per observation. Units go into the Parquet schema.
"""

from __future__ import annotations

SCHEMA_VERSION = 1

_WHEN = {
    "train_step": "updates made before this observation",
    "source_length": "data symbols n of the held-out examples",
}
_STATE = {
    "state": "h or c of the encoder; dL/dc holds h of the same step fixed, dL/dh holds c fixed",
    "layer": "encoder layer, from 1",
    "direction": "forward or backward in source time",
    "position": "source timestep, 1 .. n + delay",
}
_NORM = "nats per unit of the state: L2 norm of the per-example gradient"

TABLES: dict[str, dict[str, str]] = {
    "training": {
        **_WHEN,
        "loss": "nats per target token, held-out, teacher-forced",
        "token_accuracy_forced": "fraction of target tokens, teacher-forced",
        "token_accuracy": "fraction of target tokens, free-running greedy decoding",
        "sequence_accuracy": "fraction of whole sequences, free-running greedy decoding",
        "gradient_norm": "L2 norm over all parameters, next training batch, before clipping",
        "status": "ok, or diverged where a loss is no longer finite",
    },
    "gradients": {
        **_WHEN,
        **_STATE,
        "path": "total; direct (no recurrence); exit edge bridge, values or keys",
        "norm_mean": f"{_NORM}, mean over examples",
        "norm_std": f"{_NORM}, standard deviation over examples",
        "norm_median": f"{_NORM}, median over examples",
        "norm_p05": f"{_NORM}, 5 % quantile over examples",
        "norm_p95": f"{_NORM}, 95 % quantile over examples",
        "batch_norm": "nats per unit of the state: L2 norm of the mean gradient over examples",
        "share": "signed projection on the total, pooled over examples; null where the total is 0",
        "share_low": "lower end of the 95 % bootstrap interval over examples",
        "share_high": "upper end of the 95 % bootstrap interval over examples",
        "cancellation": "median over examples of sum of part norms / norm of the total; total only",
        "examples": "number of probe examples",
        "zeros": "examples whose norm is exactly 0 (by structure, or below the least float64)",
    },
    "positions": {
        **_WHEN,
        "position": "target timestep, from 1",
        "token_accuracy": "fraction of examples, free-running greedy decoding",
        "token_accuracy_forced": "fraction of examples, teacher-forced",
    },
    "attention": {
        **_WHEN,
        "example": "index of the probe example, from 0",
        "target_position": "target timestep, from 1",
        "position": "source timestep, from 1",
        "weight": "attention weight; sums to 1 over the source",
        "source_symbol": "symbol id at the source timestep",
        "target_symbol": "symbol id at the target timestep",
    },
}
