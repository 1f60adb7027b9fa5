"""How many recurrent steps before state h_i the gradient left the encoder.

    d_i = sum_{m=0}^{n-i} (J_{i+1}^T ... J_{i+m}^T) g_{i+m}

Term m left the encoder m recurrent steps after i; climbing a layer is no hop. Every number of hops
is pulled back as a row of its own; the rows add up to the total. With one direction the exit
position tells the hops, whatever the layers. With two a path may turn round between layers, and the
rows are moved on at each step.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from gradlab.gradients.maps import safe_norm
from gradlab.gradients.measurement import Measurement, place
from gradlab.gradients.paths import encoder_sizes
from gradlab.limits import CHUNK_BYTES, hops_bytes
from gradlab.models.cells import State
from gradlab.models.family import AnyModel
from gradlab.models.seq2seq import Seq2Seq
from gradlab.models.synchronous import Synchronous
from gradlab.models.transformer import Transformer
from gradlab.tasks import Batch

Cells = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]


@torch.inference_mode(False)
@torch.no_grad()
def hop_rows(model: AnyModel, batch: Batch, measurement: Measurement) -> pd.DataFrame:
    """Return the rows of the `hops` table for a probe batch of one source length.

    measurement: of the same model and batch; its `direct` vectors are the injections.
    """
    if isinstance(model, Transformer):
        return _without_hops(measurement)
    frames = []
    names = list(measurement.vectors["total"])
    totals = measurement.vectors["total"]
    scale = {name: _largest(totals[name]) for name in names}
    n = totals[names[0]].shape[1]
    leaving = _leaving(model, n)  # exit positions, or hops
    norm = {name: totals[name].new_zeros(leaving, n) for name in names}
    projected = {name: totals[name].new_zeros(leaving, n) for name in names}
    for rows, part in _terms(model, batch, measurement):
        for name, term in zip(names, part, strict=True):
            norm[name] += safe_norm(term).sum(1)
            onto = totals[name][rows] / scale[name]
            projected[name] += (term / scale[name] * onto).sum((1, -1))
    for name in names:
        squared = (totals[name] / scale[name]).square().sum((0, -1))
        mean, share = norm[name] / len(totals[name]), projected[name] / squared
        frames.append(_frame(name, mean, share, _cells(model, name, n)))
    return pd.concat(frames, ignore_index=True)


def _two_way(model: Seq2Seq | Synchronous) -> bool:
    return len(model.encoder.ways) > 1


def _leaving(model: Seq2Seq | Synchronous, n: int) -> int:
    """Return the number of rows that are pulled back."""
    return 1 + model.encoder.layers * (n - 1) if _two_way(model) else n


def _cells(model: Seq2Seq | Synchronous, name: str, n: int) -> Cells:
    """Return row, position and hops, from 0, of every term that a state can have."""
    if not _two_way(model):
        row, position = np.triu_indices(n)[::-1]
        return row, position, row - position
    state = place(name)
    position, hops = (axis.ravel() for axis in np.indices((n, _leaving(model, n))))
    ahead = n - 1 - position if state.direction == "forward" else position
    there = hops <= ahead + (model.encoder.layers - state.layer) * (n - 1)
    return hops[there], position[there], hops[there]


def _without_hops(measurement: Measurement) -> pd.DataFrame:
    """Return the rows of a model without recurrence: everything left where it is measured."""
    frames = []
    for name, total in measurement.vectors["total"].items():
        norm = safe_norm(total).mean(0)
        share = torch.where(norm == 0, torch.nan, 1.0)
        each = np.arange(len(norm))
        frames.append(_frame(name, norm[None], share[None], (0 * each, each, 0 * each)))
    return pd.concat(frames, ignore_index=True)


def _largest(total: Tensor) -> Tensor:
    """Return the largest component at each position, (n, 1); 1 where all are zero."""
    largest = total.abs().amax((0, -1)).unsqueeze(-1)
    return torch.where((largest == 0) | ~largest.isfinite(), 1.0, largest)


def _terms(
    model: Seq2Seq | Synchronous, batch: Batch, measurement: Measurement
) -> Iterator[tuple[slice, State]]:
    """Yield examples and, for each state, the terms (leaving, examples, n, hidden)."""
    twin = copy.deepcopy(model).to(torch.float64)
    direct = tuple(measurement.vectors["direct"].values())
    examples, n, hidden = direct[0].shape
    leaving, two_way = _leaving(model, n), _two_way(model)
    size = max(1, CHUNK_BYTES // hops_bytes(n, hidden, *encoder_sizes(model)))
    only = torch.eye(leaving, n, dtype=torch.float64, device=direct[0].device)[:, None, :, None]
    only = only[:, :, :1] if two_way else only
    for start in range(0, examples, size):
        rows = slice(start, start + size)
        encoded = twin.encode(batch.examples(rows))
        entering = tuple(part[rows] * only for part in direct)
        yield rows, twin.encoder.pull_back(encoded, entering, _one_more_hop if two_way else None)


def _one_more_hop(d: Tensor) -> Tensor:
    """Return what m hops brought here as what m + 1 hops will; none takes more than there are."""
    return torch.cat([torch.zeros_like(d[:1]), d[:-1]])


def _frame(state: str, norm: Tensor, share: Tensor, cells: Cells) -> pd.DataFrame:
    """Lay (exit positions or hops, position) out as one row a position and number of hops."""
    leaves, position, hops = cells
    return pd.DataFrame(
        {
            **place(state)._asdict(),
            "position": position + 1,
            "hops": hops,
            "share": share.cpu().numpy()[leaves, position],
            "norm_mean": norm.cpu().numpy()[leaves, position],
        }
    )
