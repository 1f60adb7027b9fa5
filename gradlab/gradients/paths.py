"""Which way the gradient came: through queries or not, and over how many edges.

An edge counts 1 if it leaves the encoder, moves one step in encoder or decoder time, climbs one
layer of either, or is a query edge, and 0 otherwise. Multiply the backward signal by lambda at
every counted edge: the gradient at an encoder state becomes a polynomial d_i(lambda) whose
coefficient of lambda^m came over m edges, and its derivative at lambda = 1 weighs what arrived by
the length of its path.

The decoder's backward pass is linear, so three signals ride through it on a leading axis:

    total     d                             leaves the loss as dL, crosses every edge unchanged
    length    d'                            leaves the loss as 0, gains d at every counted edge
    query     passed at least one query     leaves the loss as 0, becomes d at every query edge

Nothing is subtracted and no step size is chosen: all three are exact to rounding.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gradlab.gradients.measurement import DIRECTIONS, Place
from gradlab.models.cells import State
from gradlab.models.counted import Counted
from gradlab.models.loss import example_loss
from gradlab.models.seq2seq import Seq2Seq
from gradlab.models.synchronous import Synchronous
from gradlab.models.trace import Encoded, ExitEdges
from gradlab.tasks import Batch

SIGNALS = 3


def time_edge(g: Tensor) -> Tensor:
    """Return the signals once they crossed an edge that counts."""
    total, length, query = g
    return torch.stack([total, length + total, query])


def query_edge(g: Tensor) -> Tensor:
    """Return the signals once they crossed an edge that counts and led to a query."""
    total, length, _ = g
    return torch.stack([total, length + total, total])


COUNTED = Counted(time_edge, query_edge)


@dataclass(frozen=True)
class Injections:
    """What enters the encoder's states through each exit edge the model has.

    total, length, query: edge -> tensors (..., batch, n, hidden), one for each of `place_names`,
    the three signals as they arrive at the state, before the exit edge itself is counted.
    loss: (..., batch) nats. attention_weights: (..., batch, k, n), None without attention.
    """

    total: dict[str, State]
    length: dict[str, State]
    query: dict[str, State]
    loss: Tensor
    attention_weights: Tensor | None


def exit_injections(
    model: Seq2Seq, encoded: Encoded, batch: Batch, reduction: str = "mean"
) -> Injections:
    """Run the decoder from the encoder's states and bring the three signals back to them.

    encoded: of the same batch. reduction: of the loss over target tokens.
    An exit edge that the loss does not depend on is an error of the model, not a zero.
    """
    edges = model.exit_edges(encoded)
    bridge = tuple(map(_once_a_signal, edges.bridge))
    read = {
        name: _once_a_signal(edge)
        for name, edge in (("values", edges.values), ("keys", edges.keys))
        if edge is not None
    }
    with torch.enable_grad():
        memory = model.remember(ExitEdges(bridge, read.get("values"), read.get("keys")), batch)
        replicas, inputs = encoded.states[0].shape[:-3], batch.decoder_input
        inputs = inputs.expand(SIGNALS, *replicas, *inputs.shape[-2:])
        decoded = model.decode(inputs, memory, model.first_state(memory), COUNTED)
        loss = example_loss(decoded.logits, batch, reduction)[0]
        gradients = torch.autograd.grad(loss.sum(), [*bridge, *read.values()])
    found = {}
    if bridge:
        found["bridge"] = model.pull_back_bridge(encoded, gradients[: len(bridge)])
    for edge, g in zip(read, gradients[len(bridge) :], strict=True):
        found[edge] = model.encoder.at_top(g)
    total, length, query = (
        {edge: tuple(part[signal] for part in g) for edge, g in found.items()}
        for signal in range(SIGNALS)
    )
    weights = None if decoded.weights is None else decoded.weights[0].detach()
    return Injections(total, length, query, loss.detach(), weights)


def _once_a_signal(edge: Tensor) -> Tensor:
    """Return the edge once for every signal, as a tensor that gradients can be asked for."""
    once_each = edge.detach().expand(SIGNALS, *edge.shape)
    return once_each.clone(memory_format=torch.contiguous_format).requires_grad_()


def place_names(model: Seq2Seq | Synchronous) -> tuple[str, ...]:
    """Return the names of all encoder states, in the order in which the encoder gives them."""
    encoder = model.encoder
    return tuple(
        Place(state, layer, direction).name
        for layer in range(1, encoder.layers + 1)
        for direction in DIRECTIONS[: len(encoder.ways)]
        for state in model.state_names
    )


def read_edges(model: Seq2Seq) -> tuple[str, ...]:
    """Return the exit edges of attention; a score that reads no keys has none there."""
    if model.attention is None:
        return ()
    return ("values", "keys") if model.attention.reads_keys else ("values",)


def encoder_sizes(model: Seq2Seq | Synchronous) -> tuple[int, int, int]:
    """Return how many states, layers and directions the encoder has, as `limits` takes them."""
    return len(model.state_names), model.encoder.layers, len(model.encoder.ways)


def query_edges(model: Seq2Seq) -> tuple[str, ...]:
    """Return the exit edges that some path reaches through a query.

    The query of bahdanau timing is s_{j-1}, which earlier context vectors reached too. The query of
    luong timing is s_j, and no context vector reaches a state unless it is fed to the next step:
    what passes a query there goes back along the decoder to the bridge, and values and keys have no
    part in it. With input feeding c_{j-1} reaches s_j, a time step on.
    """
    if model.attention is None:
        return ()
    bridge = ("bridge",) if model.spec.bridge != "none" else ()
    return (*bridge, *(read_edges(model) if model.bahdanau or model.feeds else ()))
