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


class Pool:
    """Examples' totals, of which parts have a share: sum_b <p_b, d_b> / sum_b <d_b, d_b>.

    total: (examples, positions, hidden).
    """

    def __init__(self, total: Array) -> None:
        largest = np.abs(total).max((0, -1))
        self.scale = np.where((largest == 0) | ~np.isfinite(largest), 1.0, largest)[:, None]
        self.scaled, self.counts = total / self.scale, _resamples(len(total))
        self.whole = self.counts @ np.square(self.scaled).sum(-1)

    def share(self, part: Array) -> tuple[Array, Array, Array]:
        """Return the share of parts shaped as the total, and its 95 % bootstrap interval.

        Each result is (positions,); NaN where every total is zero. The interval is the percentile
        interval of 1,000 resamples of the examples.
        """
        projected = (part / self.scale * self.scaled).sum(-1)
        with np.errstate(invalid="ignore", divide="ignore"):
            shares = (self.counts @ projected) / self.whole
        low, high = np.quantile(shares[1:], [0.025, 0.975], axis=0)
        return shares[0], low, high


@lru_cache(maxsize=8)
def _resamples(examples: int) -> Array:
    """How often each example counts: once, then as drawn, (1 + RESAMPLES, examples)."""
    drawn = keyed_generator("bootstrap", examples).multinomial(
        examples, np.full(examples, 1 / examples), size=RESAMPLES
    )
    return np.concatenate([np.ones((1, examples)), drawn])


def cancellation(parts: list[Array], whole: Array) -> Array:
    """Return the median over examples of the sum of parts' norms / norm of the total, (positions,).

    Takes norms (examples, positions). Examples whose total is zero have no ratio and are left out;
    NaN where that leaves none.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = np.where(whole > 0, sum(parts) / whole, np.nan)
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
        sizes = {path: norms(v) for path, v in vectors.items()}
        pool, length = Pool(vectors["total"]), measurement.length[state].cpu().numpy()
        for path, of_path in vectors.items():
            frame = _frame(path, of_path, sizes[path], pool)
            if path == "total":
                edges = [size for edge, size in sizes.items() if is_edge(edge)]
                frame["path_length"] = pool.share(length)[0]
                frame["cancellation"] = cancellation(edges, sizes[path]) if edges else np.nan
            frames.append(frame.assign(**place(state)._asdict()))
    return pd.concat(frames, ignore_index=True)


def _frame(path: str, vectors: Array, size: Array, pool: Pool) -> pd.DataFrame:
    """Return the rows of one path; vectors (examples, n, hidden) and their norms (examples, n)."""
    share, low, high = pool.share(vectors)
    return pd.DataFrame(
        {
            "position": np.arange(1, size.shape[1] + 1),
            "path": path,
            **_norm_columns(vectors, size),
            "share": share,
            "share_low": low,
            "share_high": high,
            "path_length": np.nan,
            "cancellation": np.nan,
        }
    )


def _norm_columns(vectors: Array, size: Array) -> dict[str, Array | NDArray[np.int64] | int]:
    """Statistics over examples of the norms (examples, positions) of one path's vectors."""
    unit = np.where((top := size.max(0)) > 0, top, 1.0)
    low, median, high = np.quantile(size, [0.05, 0.5, 0.95], axis=0)
    return {
        "norm_mean": unit * (size / unit).mean(0),
        "norm_std": unit * (size / unit).std(0),
        "norm_median": median,
        "norm_p05": low,
        "norm_p95": high,
        "batch_norm": norms(vectors.mean(0)),
        "examples": len(vectors),
        "zeros": (size == 0).sum(0),
    }
