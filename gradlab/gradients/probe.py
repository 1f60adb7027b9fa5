"""The exact gradient of the loss at every encoder state, and its split by exit edge.

    injection   g_i = bridge_i + values_i + keys_i       what enters state i from outside
    total       d_i = g_i + J_{i+1}^T d_{i+1}            J_i = dz_i / dz_{i-1}, d_{n+1} = 0

Autograd of the per-example loss with respect to the exit edges gives the injections; the encoder's
adjoint pulls each path's injections back on a leading axis, and the paths add up to the total.
Autograd on the output of a recurrent layer gives the injections alone (`direct`).

Everything is float64 whatever the model's dtype, on a copy of the model: its weights, its
gradients, its mode and every random state stay as they were.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from torch import Tensor

from gradlab.models.cells import State
from gradlab.models.loss import example_loss
from gradlab.models.seq2seq import Seq2Seq, Trace
from gradlab.tasks import Batch

EXIT_EDGES = ("bridge", "values", "keys")


@dataclass(frozen=True)
class Measurement:
    """Gradients of each example's loss at every encoder state, as vectors.

    vectors: path -> state -> (..., batch, n, hidden) float64, with the paths "total", "direct"
        and, where they were asked for, "bridge", "values", "keys"; states "h" and, for the LSTM,
        "c". dL/dc holds h of the same step fixed, and dL/dh holds c fixed.
    absent: the paths that this model does not have; their vectors are zero by structure.
    loss: (..., batch) nats, reduced over target tokens as asked.
    attention_weights: (..., batch, k, n), or None without attention.
    """

    vectors: dict[str, dict[str, Tensor]]
    absent: frozenset[str]
    loss: Tensor
    attention_weights: Tensor | None


def measure(model: Seq2Seq, batch: Batch, loss: str = "mean", *, paths: bool = True) -> Measurement:
    """Measure the gradient of each example's loss at every encoder state; `model` is untouched.

    loss: reduction over target tokens, "mean", "sum", "first" or "last".
    paths: also return the parts by exit edge (their sum is the total either way).
    Teacher-forced, float64. Padded positions have exactly zero gradient.
    """
    with torch.inference_mode(False), torch.enable_grad():
        twin = copy.deepcopy(model).to(torch.float64).requires_grad_(True)
        trace: Trace = twin(batch)
        example = example_loss(trace.logits, batch, loss)
        injections = exit_injections(trace, example.sum(), batch)
    stacked = tuple(torch.stack(part) for part in zip(*injections.values(), strict=True))
    pulled = twin.encoder.pull_back(trace.projected, trace.initial, trace.encoder_states, stacked)
    direct = tuple(part.sum(0) for part in stacked)
    found = {"total": tuple(part.sum(0) for part in pulled), "direct": direct}
    if paths:
        zeros = tuple(torch.zeros_like(part) for part in direct)
        found |= dict.fromkeys(EXIT_EDGES, zeros)
        found |= {
            edge: tuple(part[index] for part in pulled) for index, edge in enumerate(injections)
        }
    weights = trace.decoded.weights
    return Measurement(
        vectors={path: _named(twin, state) for path, state in found.items()},
        absent=frozenset(EXIT_EDGES) - injections.keys(),
        loss=example.detach(),
        attention_weights=None if weights is None else weights.detach(),
    )


def _named(model: Seq2Seq, state: State) -> dict[str, Tensor]:
    return dict(zip(model.state_names, state, strict=True))


def exit_injections(trace: Trace, loss: Tensor, batch: Batch) -> dict[str, State]:
    """Return, for each exit edge the model has, what enters every state through it.

    loss: a scalar. Returns edge -> state tensors (..., batch, n, hidden). An edge that the loss
    does not depend on is an error of the model, not a zero.
    """
    edges, like = trace.edges, trace.encoder_states
    attended = () if edges.values is None or edges.keys is None else (edges.values, edges.keys)
    gradients = torch.autograd.grad(loss, [*edges.bridge, *attended])
    bridge, read = gradients[: len(edges.bridge)], gradients[len(edges.bridge) :]
    injections: dict[str, State] = {}
    if bridge:
        last = (batch.source_lengths - 1)[..., None, None]
        injections["bridge"] = tuple(
            torch.zeros_like(part).scatter(-2, last.expand_as(g.unsqueeze(-2)), g.unsqueeze(-2))
            for part, g in zip(like, bridge, strict=True)
        )
    for edge, g in zip(("values", "keys"), read, strict=False):
        injections[edge] = (g, *(torch.zeros_like(part) for part in like[1:]))
    return injections
