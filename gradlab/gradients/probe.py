"""The exact gradient of the loss at every encoder state, its parts, and how far it came.

    injection   g_i = bridge_i + values_i + keys_i       what enters state i from outside
    total       d_i = g_i + J_{i+1}^T d_{i+1}            J_i = dz_i / dz_{i-1}, d_{n+1} = 0
    length      d'_i = g'_i + d_i + J_{i+1}^T d'_{i+1}   derivative by lambda; see `paths`

Autograd of the per-example loss with respect to the exit edges gives the injections; the encoder's
adjoint pulls each path's injections back on a leading axis, and the paths add up to the total.
Autograd on the output of a recurrent layer gives the injections alone (`direct`).

Everything is float64 whatever the model's dtype, on a copy of the model: its weights, its
gradients, its mode and every random state stay as they were.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from gradlab.errors import GradlabError
from gradlab.gradients.measurement import Measurement
from gradlab.gradients.paths import exit_injections, place_names, query_edges, read_edges
from gradlab.gradients.synchronous import measure_synchronous
from gradlab.gradients.transformer import (
    absent_transformer_paths,
    example_bytes,
    measure_transformer,
)
from gradlab.limits import CHUNK_BYTES, measure_bytes
from gradlab.models.cells import State
from gradlab.models.family import AnyModel
from gradlab.models.loss import REDUCTIONS
from gradlab.models.seq2seq import Seq2Seq
from gradlab.models.synchronous import Synchronous
from gradlab.models.trace import Encoded
from gradlab.models.transformer import Transformer
from gradlab.tasks import Batch

SPLIT = ("bridge", "values", "keys")


@torch.inference_mode(False)
@torch.no_grad()
def measure(
    model: AnyModel, batch: Batch, loss: str = "mean", *, paths: bool = True
) -> Measurement:
    """Measure the gradient of each example's loss at every encoder state; `model` is untouched.

    loss: reduction over target tokens, "mean", "sum", "first" or "last".
    paths: also return the parts by exit edge and query (they sum to the total either way).
    Teacher-forced, float64. Padded positions have exactly zero gradient. Raises GradlabError for
    an unknown `loss`.
    """
    if loss not in REDUCTIONS:
        raise GradlabError(f"loss: expected one of {', '.join(REDUCTIONS)}, found {loss!r}")
    twin = copy.deepcopy(model).to(torch.float64).requires_grad_(False)
    measure_part = next(found for kind, found in FAMILIES.items() if isinstance(twin, kind))
    parts = [measure_part(twin, part, loss, paths) for part in _pieces(twin, batch)]
    if len(parts) == 1:
        return parts[0]
    weights = [part.attention_weights for part in parts if part.attention_weights is not None]
    first = parts[0]
    return Measurement(
        vectors={
            path: {state: _join([part.vectors[path][state] for part in parts]) for state in states}
            for path, states in first.vectors.items()
        },
        length={state: _join([part.length[state] for part in parts]) for state in first.length},
        absent=first.absent,
        loss=torch.cat([part.loss for part in parts], dim=-1),
        attention_weights=_join(weights) if weights else None,
    )


def _pieces(model: AnyModel, batch: Batch) -> Iterator[Batch]:
    """Yield the batch in pieces of examples that fit in memory; they do not depend on another."""
    examples = batch.source.shape[-2]
    if isinstance(model, Transformer):
        each = example_bytes(model, batch, rows=4 * model.spec.layers)
    else:
        passes = len(model.encoder.inputs) + model.spec.input_feeding
        size = model.spec.hidden * passes
        each = measure_bytes(batch.source.shape[-1], batch.target.shape[-1], size)
    pieces = math.ceil(examples / max(1, CHUNK_BYTES // each))
    if pieces == 1 or batch.source.dim() > 2:
        yield batch
        return
    size = math.ceil(examples / pieces)
    for start in range(0, examples, size):
        yield batch.examples(slice(start, start + size))


def _join(parts: list[Tensor]) -> Tensor:
    """Put the examples (..., batch, n or k, features) of the pieces together again."""
    return torch.cat(parts, dim=-3)


def measure_seq2seq(twin: Seq2Seq, batch: Batch, loss: str, paths: bool) -> Measurement:
    """Return the measurement of an encoder-decoder in float64."""
    encoded = twin.encode(batch)
    entering = exit_injections(twin, encoded, batch, loss)
    through_query = {f"{edge}.query": entering.query[edge] for edge in query_edges(twin)}
    injections = {**entering.total, **(through_query if paths else {})}
    pulled = dict(zip(injections, _pull_back_each(twin, encoded, injections), strict=True))
    found = {"total": _sum(pulled[edge] for edge in entering.total)}
    found["direct"] = _sum(entering.total.values())
    counted = _sum([*entering.length.values(), found["total"]])
    (length,) = _pull_back_each(twin, encoded, {"length": counted})
    zeros = tuple(torch.zeros_like(part) for part in found["direct"])
    if paths:
        found |= {path: pulled.get(path, zeros) for path in path_names(twin)}
    if paths and twin.attention is not None:
        found["total.query"] = _sum([zeros, *(pulled[path] for path in through_query)])
    return Measurement(
        vectors={path: _named(twin, state) for path, state in found.items()},
        length=_named(twin, length),
        absent=absent_paths(twin) if paths else frozenset(),
        loss=entering.loss,
        attention_weights=entering.attention_weights,
    )


def path_names(model: Seq2Seq) -> tuple[str, ...]:
    """Return the paths that split the total, those that this model lacks included.

    Without attention there is no query to pass, and the split by queries is left out.
    """
    by_query = () if model.attention is None else tuple(f"{edge}.query" for edge in SPLIT)
    return (*SPLIT, *by_query)


def absent_paths(model: AnyModel) -> frozenset[str]:
    """Return the measured paths that this model lacks: zero by structure."""
    if isinstance(model, Synchronous):
        return frozenset()
    if isinstance(model, Transformer):
        return absent_transformer_paths(model)
    edges = {*read_edges(model), *(("bridge",) if model.spec.bridge != "none" else ())}
    present = edges | {f"{edge}.query" for edge in query_edges(model)}
    return frozenset(path_names(model)) - present


def _pull_back_each(model: Seq2Seq, encoded: Encoded, injections: dict[str, State]) -> list[State]:
    """Pull the injections of each path back through the encoder, all of them at once."""
    stacked = tuple(torch.stack(part) for part in zip(*injections.values(), strict=True))
    pulled = model.encoder.pull_back(encoded, stacked)
    return list(zip(*(part.unbind() for part in pulled), strict=True))


def _sum(states: Iterable[State]) -> State:
    return tuple(sum(part[1:], part[0]) for part in zip(*states, strict=True))


def _named(model: Seq2Seq, state: State) -> dict[str, Tensor]:
    return dict(zip(place_names(model), state, strict=True))


FAMILIES: dict[type, Callable[[Any, Batch, str, bool], Measurement]] = {
    Seq2Seq: measure_seq2seq,
    Synchronous: measure_synchronous,
    Transformer: measure_transformer,
}
