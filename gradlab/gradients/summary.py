"""Gradient vectors -> the rows of the `gradients` table: norms, signed shares, cancellation.

Norms and shares are computed after dividing by the largest component, since the square of 1e-170 is
zero even in float64. Shares are pooled over examples, so the shares of a full split sum to one.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gradlab.gradients.measurement import Measurement, is_edge, place
from gradlab.seeding import keyed_generator

Array = NDArray[np.float64]
RESAMPLES = 1000


def norms(vectors: Array) -> Array:
    """Return the L2 norms over the last axis, without squaring very small or large numbers."""
    largest = np.abs(vectors).max(-1)
    scale = np.where((largest == 0) | ~np.isfinite(largest), 1.0, largest)
    return np.asarray(scale * np.sqrt(np.square(vectors / scale[..., None]).sum(-1)))


def pooled_share(part: Array, total: Array) -> tuple[Array, Array, Array]:
    """Return sum_b <p_b, d_b> / sum_b <d_b, d_b> and its 95 % bootstrap interval over examples.

    part, total: (examples, positions, hidden). Each result is (positions,); NaN where every total
    is zero. The interval is the percentile interval of 1,000 resamples of the examples.
    """
    largest = np.abs(total).max((0, -1))
    scale = np.where((largest == 0) | ~np.isfinite(largest), 1.0, largest)[:, None]
    projected = (part / scale * (total / scale)).sum(-1)
    squared = np.square(total / scale).sum(-1)
    counts = _resamples(len(total))
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = (counts @ projected) / (counts @ squared)
    low, high = np.quantile(shares[1:], [0.025, 0.975], axis=0)
    return shares[0], low, high


@lru_cache(maxsize=8)
def _resamples(examples: int) -> Array:
    """How often each example counts: once, then as drawn, (1 + RESAMPLES, examples)."""
    drawn = keyed_generator("bootstrap", examples).multinomial(
        examples, np.full(examples, 1 / examples), size=RESAMPLES
    )
    return np.concatenate([np.ones((1, examples)), drawn])


def cancellation(parts: list[Array], total: Array) -> Array:
    """Return the median over examples of sum of part norms / norm of the total, (positions,).

    Examples whose total is zero have no ratio and are left out; NaN where that leaves none.
    """
    whole = norms(total)
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = np.where(whole > 0, sum(norms(part) for part in parts) / whole, np.nan)
    defined = ~np.isnan(ratio).all(0)
    median = np.full(ratio.shape[1], np.nan)
    median[defined] = np.nanmedian(ratio[:, defined], axis=0)
    return median


@np.errstate(all="ignore")  # a diverged run's gradients are not finite, and neither are its rows
def summarise(measurement: Measurement) -> pd.DataFrame:
    """Return the rows of the `gradients` table for a probe batch of one source length.

    One row a state, path and position (1 .. n); see `lab.tables` for the columns and units.
    """
    frames = []
    for state in measurement.vectors["total"]:
        vectors = {path: v[state].cpu().numpy() for path, v in measurement.vectors.items()}
        length = measurement.length[state].cpu().numpy()
        frames += [_frame(state, path, vectors, length) for path in vectors]
    return pd.concat(frames, ignore_index=True)


def _frame(state: str, path: str, vectors: dict[str, Array], length: Array) -> pd.DataFrame:
    """Return the rows of one state and path; vectors of every path, (examples, n, hidden)."""
    vector, total = vectors[path], vectors["total"]
    share, low, high = pooled_share(vector, total)
    frame = pd.DataFrame(
        {
            "position": np.arange(1, total.shape[1] + 1),
            "path": path,
            **_norm_columns(vector),
            "share": share,
            "share_low": low,
            "share_high": high,
            "path_length": np.nan,
            "cancellation": np.nan,
        }
    )
    if path == "total":
        frame["path_length"] = pooled_share(length, total)[0]
        parts = [vectors[path] for path in vectors if is_edge(path)]
        frame["cancellation"] = cancellation(parts, total) if parts else np.nan
    return frame.assign(**place(state)._asdict())


def _norm_columns(vectors: Array) -> dict[str, Array | NDArray[np.int64] | int]:
    """Statistics over examples of the norms (examples, positions) of one path's vectors."""
    size = norms(vectors)
    unit = np.where((top := size.max(0)) > 0, top, 1.0)
    return {
        "norm_mean": unit * (size / unit).mean(0),
        "norm_std": unit * (size / unit).std(0),
        "norm_median": np.median(size, axis=0),
        "norm_p05": np.quantile(size, 0.05, axis=0),
        "norm_p95": np.quantile(size, 0.95, axis=0),
        "batch_norm": norms(vectors.mean(0)),
        "examples": len(vectors),
        "zeros": (size == 0).sum(0),
    }
