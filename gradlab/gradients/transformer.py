"""The exact gradient at every layer of a transformer's encoder, its parts, and how far it came.

    memory      g_e = dL/dm by exit edge e     e = values.1 .. values.M, keys.1 .. keys.M
    last layer  d^L = N^T sum_e g_e            N: Jacobian of the encoder's final norm
    below       d^l = J^T d^{l+1}              J: of encoder layer l + 1, all positions at once
    length      d'^L = N^T sum_e (g'_e + g_e);  d'^l = d^l + J^T d'^{l+1}

Edge e leads from the memory to the values or keys of one decoder layer. An edge counts 1 if it
leaves the encoder, climbs one encoder layer or climbs one decoder layer, however the layer is
crossed; a query inside a layer counts nothing more. What left by decoder layer m of M from encoder
layer l of L came over (L - l) + 1 + (M - m) edges exactly.

The decoder's backward pass carries three signals on a leading axis: total, length, and what passed
at least one query of cross-attention since (see `paths`). Nothing is subtracted. A layer's queries
are asked before it reads, so what left by the last decoder layer can pass none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from gradlab.gradients.measurement import Measurement, Place
from gradlab.gradients.paths import SIGNALS, time_edge
from gradlab.limits import transformer_bytes
from gradlab.models.loss import example_loss, token_loss
from gradlab.models.transformer import Climbed, CrossEdges, Transformer
from gradlab.models.transformer_layers import key_mask
from gradlab.tasks import Batch


def asked(g: Tensor) -> Tensor:
    """Return the signals once they entered a query: no edge more, but all of it passed one."""
    total, length, _ = g
    return torch.stack([total, length, total])


CLIMBED = Climbed(layer=time_edge, query=asked)


@dataclass(frozen=True)
class MemoryInjections:
    """What enters the encoder's memory through each exit edge.

    total, length: edge -> (..., batch, n, hidden), the signals as they arrive at the memory, before
    the exit edge itself is counted. query: edge.query -> the part that passed a query.
    loss: (..., batch) nats. attention_weights: of the last decoder layer, mean over heads,
    (..., batch, k, n).
    """

    total: dict[str, Tensor]
    length: dict[str, Tensor]
    query: dict[str, Tensor]
    loss: Tensor
    attention_weights: Tensor


def measure_transformer(twin: Transformer, batch: Batch, loss: str, paths: bool) -> Measurement:
    """Return the measurement of a transformer in float64; states "h", "h.2" .. by `Place.name`."""
    encoded = twin.encode(batch)
    entering = memory_injections(twin, encoded.memory, batch, loss)
    edges, queries = edge_names(twin), query_names(twin) if paths else ()
    injections = [*entering.total.values(), *(entering.query[path] for path in queries)]
    counted = torch.stack([*entering.length.values(), *entering.total.values()]).sum(0)

    def climb(g: Tensor) -> Tensor:
        return torch.cat([g[:-1], g[-1:] + g[: len(edges)].sum(0, keepdim=True)])

    leaving = torch.stack([*injections, counted])
    pulled = pull_back(twin, encoded.states, batch, leaving, climb)
    names = layer_names(twin)
    found = {
        name: dict(zip((*edges, *queries), parts, strict=False))
        for name, parts in zip(names, pulled, strict=True)
    }
    total = {name: parts[: len(edges)].sum(0) for name, parts in zip(names, pulled, strict=True)}
    *lower, last = names
    nothing = torch.zeros_like(total[last])
    direct = dict.fromkeys(lower, nothing) | {last: total[last]}
    vectors = {"total": total, "direct": direct}
    for path in path_names(twin) if paths else ():
        vectors[path] = {name: found[name].get(path, nothing) for name in names}
    if paths:
        vectors["total.query"] = {
            name: sum((found[name][path] for path in queries), nothing) for name in names
        }
    return Measurement(
        vectors=vectors,
        length={name: parts[-1] for name, parts in zip(names, pulled, strict=True)},
        absent=absent_transformer_paths(twin) if paths else frozenset(),
        loss=entering.loss,
        attention_weights=entering.attention_weights,
    )


def memory_injections(
    model: Transformer, memory: Tensor, batch: Batch, reduction: str = "mean"
) -> MemoryInjections:
    """Run the decoder from the memory (..., batch, n, hidden) and bring the signals back to it.

    An exit edge that the loss does not depend on is an error of the model, not a zero.
    """
    once_each, edges = memory.detach().expand(SIGNALS, *memory.shape), edge_names(model)
    read = [once_each.clone().requires_grad_() for _ in edges]
    layers = model.spec.layers
    with torch.enable_grad():
        cross = CrossEdges(values=tuple(read[:layers]), keys=tuple(read[layers:]))
        decoded = model.decode(batch.decoder_input, cross, batch.source_mask, CLIMBED)
        loss = example_loss(decoded.logits, batch, reduction)[0]
        gradients = torch.autograd.grad(loss.sum(), read)
    total, length, query = (
        {edge: g[signal] for edge, g in zip(edges, gradients, strict=True)}
        for signal in range(SIGNALS)
    )
    return MemoryInjections(
        total,
        length,
        query={f"{edge}.query": g for edge, g in query.items()},
        loss=loss.detach(),
        attention_weights=decoded.weights[-1][0].detach(),
    )


def target_rows(model: Transformer, batch: Batch) -> tuple[tuple[Tensor, ...], Tensor]:
    """Return dl_j/dh^l as (k, batch, n, hidden) for each layer, and the attention weights.

    The weights are those of the last decoder layer, mean over heads, (batch, k, n).
    """
    encoded = model.encode(batch)
    memory = encoded.memory.detach().requires_grad_()
    with torch.enable_grad():
        decoded = model.decode(batch.decoder_input, model.exit_edges(memory), batch.source_mask)
        nats = token_loss(decoded.logits, batch).sum(-2)
        each_alone = torch.eye(len(nats), dtype=nats.dtype, device=nats.device)
        (rows,) = torch.autograd.grad(nats, memory, each_alone, is_grads_batched=True)
    states = tuple(pull_back(model, encoded.states, batch, rows))
    return states, decoded.weights[-1].detach()


def pull_back(
    model: Transformer,
    states: tuple[Tensor, ...],
    batch: Batch,
    entering: Tensor,
    climb: Callable[[Tensor], Tensor] = lambda g: g,
) -> list[Tensor]:
    """Return the gradients at the states of each encoder layer, the first layer first.

    states: of every layer, (..., batch, n, hidden). entering: gradients at the memory, (rows, ...,
    batch, n, hidden), as is each result. climb: what a layer adds to them when it is climbed.
    """
    mask = key_mask(batch.source_mask)
    pulled = [_through(model.encoder.norm, states[-1], entering)]
    for number in range(len(states) - 1, 0, -1):
        layer = partial(model.encoder.layers[number], mask=mask)
        pulled.append(climb(_through(layer, states[number - 1], pulled[-1])))
    return pulled[::-1]


def _through(function: Callable[[Tensor], Tensor], x: Tensor, g: Tensor) -> Tensor:
    """Return J^T g of a function at x, for gradients g with one more axis in front."""
    x = x.detach().requires_grad_()
    with torch.enable_grad():
        (pulled,) = torch.autograd.grad(function(x), x, g, is_grads_batched=True)
    return pulled


def example_bytes(model: Transformer, batch: Batch, rows: int) -> int:
    """Return about how many bytes one example of the batch takes with so many gradient rows."""
    spec = model.spec
    sizes = spec.layers, spec.hidden, spec.heads, spec.feedforward
    return transformer_bytes(batch.source.shape[-1], batch.target.shape[-1], sizes, rows)


def layer_names(model: Transformer) -> tuple[str, ...]:
    """Return the names of the encoder's states, the first layer first."""
    return tuple(Place("h", layer).name for layer in range(1, model.spec.layers + 1))


def edge_names(model: Transformer) -> tuple[str, ...]:
    """Return the exit edges, which split the total: values.1 .. values.M, keys.1 .. keys.M."""
    layers = range(1, model.spec.layers + 1)
    return tuple(f"{edge}.{layer}" for edge in ("values", "keys") for layer in layers)


def query_names(model: Transformer) -> tuple[str, ...]:
    """Return the parts that pass a query: of every edge but those of the last decoder layer."""
    last = f".{model.spec.layers}"
    return tuple(f"{edge}.query" for edge in edge_names(model) if not edge.endswith(last))


def path_names(model: Transformer) -> tuple[str, ...]:
    """Return the paths that split the total and its part through queries, the absent included."""
    edges = edge_names(model)
    return (*edges, *(f"{edge}.query" for edge in edges))


def absent_transformer_paths(model: Transformer) -> frozenset[str]:
    """Return the paths that are zero by structure; with one layer, all that pass a query."""
    none = {"total.query"} if model.spec.layers == 1 else set()
    return frozenset(path_names(model)) - {*edge_names(model), *query_names(model)} | none
