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
_GEOMETRIC = "geometric mean over examples; 0 where exactly zero or below 5e-324"
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
        "path": "total; direct (no recurrence); exit edge bridge, values, keys or output, by "
        "decoder layer in a transformer (values.2); with .query what passed at least one "
        "attention query",
        "norm_mean": f"{_NORM}, mean over examples",
        "norm_std": f"{_NORM}, standard deviation over examples",
        "norm_median": f"{_NORM}, median over examples",
        "norm_p05": f"{_NORM}, 5 % quantile over examples",
        "norm_p95": f"{_NORM}, 95 % quantile over examples",
        "batch_norm": "nats per unit of the state: L2 norm of the mean gradient over examples",
        "share": "signed projection on the total, pooled over examples; null where the total is 0",
        "share_low": "lower end of the 95 % bootstrap interval over examples",
        "share_high": "upper end of the 95 % bootstrap interval over examples",
        "path_length": "edges: mean length of the paths to this state, weighted by signed share; "
        "total only",
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
    "maps": {
        **_WHEN,
        "state": _STATE["state"],
        "layer": _STATE["layer"],
        "direction": _STATE["direction"],
        "target_position": "target timestep j, from 1; the loss is that of this step alone",
        "position": _STATE["position"],
        "gradient_norm": f"{_NORM}, mean over examples",
        "attention_weight": "mean over examples; null without attention",
    },
    "hops": {
        **_WHEN,
        **_STATE,
        "hops": "recurrent steps after which the gradient left the encoder",
        "share": "signed projection on the total, pooled over examples; null where the total is 0",
        "norm_mean": f"{_NORM}, mean over examples",
    },
    "jacobians": {
        **_WHEN,
        **{key: unit for key, unit in _STATE.items() if key != "state"},
        "sigma_max": f"largest singular value of dz_i/dz_(i-1), {_GEOMETRIC}",
        "sigma_max_to_end": f"largest singular value of dz_n/dz_i, {_GEOMETRIC}",
        "sigma_min_to_end": f"smallest singular value of dz_n/dz_i, {_GEOMETRIC}",
    },
    "lyapunov": {
        **_WHEN,
        "layer": _STATE["layer"],
        "direction": _STATE["direction"],
        "index": "1 is the largest",
        "exponent": "nats per timestep, mean over examples",
    },
}

# Tables that only some runs have, with the key that asks for each.
ON_REQUEST = {
    "maps": "record.map",
    "hops": "record.hops",
    "jacobians": "record.jacobians",
    "lyapunov": "record.jacobians",
}
