"""The decoder x encoder map: how strongly each target step's loss depends on each encoder state.

    M_ji = mean over examples of || dl_j / dh_i ||        l_j the loss of target step j alone, nats

All target steps are pulled back together through the decoder (`models.decoder_adjoint`, autograd
for a transformer) and, as rows, through the encoder. Examples are taken in chunks so that memory
stays bounded.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from gradlab.errors import GradlabError
from gradlab.gradients import transformer
from gradlab.gradients.measurement import place
from gradlab.gradients.paths import encoder_sizes, place_names
from gradlab.gradients.synchronous import target_rows
from gradlab.limits import CHUNK_BYTES, map_bytes
from gradlab.models.cells import State
from gradlab.models.decoder_adjoint import pull_back_targets
from gradlab.models.family import AnyModel
from gradlab.models.synchronous import Synchronous
from gradlab.models.transformer import Transformer
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
def gradient_map(model: AnyModel, batch: Batch) -> GradientMap:
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
    names, each = _states_and_bytes(twin, batch)
    norms: dict[str, list[Tensor]] = {name: [] for name in names}
    weights: list[Tensor] = []
    chunk = max(1, CHUNK_BYTES // each)
    for start in range(0, size, chunk):
        part = batch.examples(slice(start, start + chunk))
        vectors, alpha = target_gradients(twin, part)
        for name, vector in zip(names, vectors, strict=True):
            norms[name].append(safe_norm(vector).sum(1))
        if alpha is not None:
            weights.append(alpha.sum(0))
    return GradientMap(
        {name: torch.stack(sums).sum(0) / size for name, sums in norms.items()},
        torch.stack(weights).sum(0) / size if weights else None,
    )


def _states_and_bytes(model: AnyModel, batch: Batch) -> tuple[tuple[str, ...], int]:
    """Return the names of the states, and about how many bytes the map of one example takes."""
    n, k = batch.source.shape[-1], batch.target.shape[-1]
    if isinstance(model, Transformer):
        return transformer.layer_names(model), transformer.example_bytes(model, batch, rows=k)
    names = place_names(model)
    return names, map_bytes(n, k, model.spec.hidden, *encoder_sizes(model))


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
        frames.append(frame.assign(**place(state)._asdict()))
    return pd.concat(frames, ignore_index=True)


def target_gradients(model: AnyModel, batch: Batch) -> tuple[State, Tensor | None]:
    """Return dl_j/dz_i as (k, batch, n, hidden) for each state, and the attention weights."""
    if isinstance(model, Synchronous):
        return target_rows(model, batch), None
    if isinstance(model, Transformer):
        return transformer.target_rows(model, batch)
    encoded = model.encode(batch)
    memory = model.remember(model.exit_edges(encoded), batch)
    decoded = model.decode(batch.decoder_input, memory, model.first_state(memory))
    rows = pull_back_targets(model, batch, memory, decoded)
    entering = []
    if rows.bridge:
        bridge = tuple(part.transpose(0, 1) for part in rows.bridge)
        entering.append(model.pull_back_bridge(encoded, bridge))
    if rows.read is not None:
        entering.append(model.encoder.at_top(rows.read.transpose(0, 1)))
    injections = tuple(sum(parts[1:], parts[0]) for parts in zip(*entering, strict=True))
    pulled = model.encoder.pull_back(encoded, injections)
    return pulled, decoded.weights


def safe_norm(vectors: Tensor) -> Tensor:
    """Return L2 norms over the last axis, without squaring very small or large numbers."""
    largest = vectors.abs().amax(-1)
    scale = torch.where((largest == 0) | ~largest.isfinite(), 1.0, largest)
    norm: Tensor = torch.linalg.vector_norm(vectors / scale.unsqueeze(-1), dim=-1)
    return scale * norm
