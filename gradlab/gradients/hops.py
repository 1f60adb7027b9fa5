"""How many recurrent steps before state h_i the gradient left the encoder.

    d_i = sum_{m=0}^{n-i} (J_{i+1}^T ... J_{i+m}^T) g_{i+m}

Term m left the encoder m recurrent steps after i. Every exit position is pulled back as a row of
its own; the rows add up to the total.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from gradlab.gradients.maps import safe_norm
from gradlab.gradients.measurement import Measurement
from gradlab.limits import CHUNK_BYTES, hops_bytes
from gradlab.models.cells import State
from gradlab.models.seq2seq import Seq2Seq
from gradlab.tasks import Batch


@torch.inference_mode(False)
@torch.no_grad()
def hop_rows(model: Seq2Seq, batch: Batch, measurement: Measurement) -> pd.DataFrame:
    """Return the rows of the `hops` table for a probe batch of one source length.

    measurement: of the same model and batch; its `direct` vectors are the injections.
    """
    frames = []
    names = list(measurement.vectors["total"])
    totals = measurement.vectors["total"]
    scale = {name: _largest(totals[name]) for name in names}
    n = totals[names[0]].shape[1]
    norm = {name: totals[name].new_zeros(n, n) for name in names}  # exit position x position
    projected = {name: totals[name].new_zeros(n, n) for name in names}
    for rows, part in _terms(model, batch, measurement):
        for name, term in zip(names, part, strict=True):
            norm[name] += safe_norm(term).sum(1)
            onto = totals[name][rows] / scale[name]
            projected[name] += (term / scale[name] * onto).sum((1, -1))
    for name in names:
        squared = (totals[name] / scale[name]).square().sum((0, -1))
        frames.append(_frame(name, norm[name] / len(totals[name]), projected[name] / squared))
    return pd.concat(frames, ignore_index=True)


def _largest(total: Tensor) -> Tensor:
    """Return the largest component at each position, (n, 1); 1 where all are zero."""
    largest = total.abs().amax((0, -1)).unsqueeze(-1)
    return torch.where((largest == 0) | ~largest.isfinite(), 1.0, largest)


def _terms(model: Seq2Seq, batch: Batch, measurement: Measurement) -> Iterator[tuple[slice, State]]:
    """Yield examples and, for each state, the terms (exit position, examples, n, hidden)."""
    twin = copy.deepcopy(model).to(torch.float64)
    encoded = twin.encode(batch)
    direct = tuple(measurement.vectors["direct"].values())
    examples, n, hidden = direct[0].shape
    size = max(1, CHUNK_BYTES // hops_bytes(n, hidden, len(direct)))
    only_here = torch.eye(n, dtype=torch.float64, device=direct[0].device)[:, None, :, None]
    for start in range(0, examples, size):
        rows = slice(start, start + size)
        yield (
            rows,
            twin.encoder.pull_back(
                encoded.projected[rows],
                tuple(part[rows] for part in encoded.initial),
                tuple(part[rows] for part in encoded.states),
                tuple(part[rows] * only_here for part in direct),
            ),
        )


def _frame(state: str, norm: Tensor, share: Tensor) -> pd.DataFrame:
    """Lay (exit position, position) out as one row a position and number of hops."""
    leaves, position = np.triu_indices(norm.shape[0])[::-1]
    return pd.DataFrame(
        {
            "state": state,
            "layer": 1,
            "direction": "forward",
            "position": position + 1,
            "hops": leaves - position,
            "share": share.cpu().numpy()[leaves, position],
            "norm_mean": norm.cpu().numpy()[leaves, position],
        }
    )
