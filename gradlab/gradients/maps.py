"""The decoder x encoder map: how strongly each target step's loss depends on each encoder state.

    M_ji = mean over examples of || dl_j / dh_i ||        l_j the loss of target step j alone, nats

All target steps are pulled back together through the decoder (`models.decoder_adjoint`) and, as
rows, through the encoder. Examples are taken in chunks so that memory stays bounded.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from gradlab.errors import GradlabError
from gradlab.gradients.paths import at_last_step
from gradlab.limits import CHUNK_BYTES, map_bytes
from gradlab.models.cells import State
from gradlab.models.decoder_adjoint import pull_back_targets
from gradlab.models.seq2seq import Seq2Seq
from gradlab.tasks import Batch


@dataclass(frozen=True)
class GradientMap:
    """Means over examples, for every target and source position.

    norms: state -> (k, n), nats per unit of the state. attention_weights: (k, n), or None.
    """

    norms: dict[str, Tensor]
    attention_weights: Tensor | None


@torch.inference_mode(False)
@torch.no_grad()
def gradient_map(model: Seq2Seq, batch: Batch) -> GradientMap:
    """Measure the map of a batch in float64; `model` is untouched.

    Raises GradlabError if the examples differ in length: their positions are not to be pooled.
    """
    for side, lengths in (("source", batch.source_lengths), ("target", batch.target_lengths)):
        if int(lengths.min()) != int(lengths.max()):
            raise GradlabError(
                f"a map needs examples of one {side} length, found {int(lengths.min())} to "
                f"{int(lengths.max())}"
            )
    twin = copy.deepcopy(model).to(torch.float64)
    size = batch.source.shape[0]
    shape = (batch.source.shape[-1], batch.target.shape[-1], twin.spec.hidden)
    each = map_bytes(*shape, len(twin.state_names))
    norms: dict[str, list[Tensor]] = {name: [] for name in twin.state_names}
    weights: list[Tensor] = []
    chunk = max(1, CHUNK_BYTES // each)
    for start in range(0, size, chunk):
        part = batch.examples(slice(start, start + chunk))
        vectors, alpha = target_gradients(twin, part)
        for name, vector in zip(twin.state_names, vectors, strict=True):
            norms[name].append(safe_norm(vector).sum(1))
        if alpha is not None:
            weights.append(alpha.sum(0))
    return GradientMap(
        {name: torch.stack(sums).sum(0) / size for name, sums in norms.items()},
        torch.stack(weights).sum(0) / size if weights else None,
    )


def map_rows(found: GradientMap) -> pd.DataFrame:
    """Return the rows of the `maps` table for a probe batch of one source length."""
    frames = []
    for state, norm in found.norms.items():
        target, source = (axis.ravel() for axis in np.indices(tuple(norm.shape)))
        weights = found.attention_weights
        frame = pd.DataFrame(
            {
                "target_position": target + 1,
                "position": source + 1,
                "gradient_norm": norm.cpu().numpy().ravel(),
                "attention_weight": np.nan if weights is None else weights.cpu().numpy().ravel(),
            }
        )
        frames.append(frame.assign(state=state, layer=1, direction="forward"))
    return pd.concat(frames, ignore_index=True)


def target_gradients(model: Seq2Seq, batch: Batch) -> tuple[State, Tensor | None]:
    """Return dl_j/dz_i as (k, batch, n, hidden) for each state, and the attention weights."""
    encoded = model.encode(batch)
    memory = model.remember(model.exit_edges(encoded.states, batch), batch)
    decoded = model.decode(batch.decoder_input, memory, model.first_state(memory))
    rows = pull_back_targets(model, batch, memory, decoded)
    entering = [torch.zeros_like(part) for part in encoded.states]
    if rows.bridge:
        bridge = tuple(part.transpose(0, 1) for part in rows.bridge)
        entering = list(at_last_step(bridge, encoded.states, batch))
    if rows.read is not None:
        entering[0] = entering[0] + rows.read.transpose(0, 1)
    shape = torch.broadcast_shapes(*(part.shape for part in entering))
    injections = tuple(part.expand(shape) for part in entering)
    pulled = model.encoder.pull_back(encoded.projected, encoded.initial, encoded.states, injections)
    return pulled, decoded.weights


def safe_norm(vectors: Tensor) -> Tensor:
    """Return L2 norms over the last axis, without squaring very small or large numbers."""
    largest = vectors.abs().amax(-1)
    scale = torch.where((largest == 0) | ~largest.isfinite(), 1.0, largest)
    norm: Tensor = torch.linalg.vector_norm(vectors / scale.unsqueeze(-1), dim=-1)
    return scale * norm
