"""The exact gradient of a synchronous model at every state: one exit edge, and no queries.

    injection   g_i = dL/dlogits_j dlogits_j/dh_i         where target j stands at step i, else 0
    total       d_i = g_i + J_{i+1}^T d_{i+1}             d_{n+1} = 0
    length      d'_i = d_i + J_{i+1}^T d'_{i+1}           the exit is one edge, and each step is one

A path from the loss of the target at step j back to state i <= j is (j - i) + 1 edges long, and
there is no other; from i > j there is none, so dl_j/dh_i is zero by structure. With several layers
the output reads the last, and each layer climbed is one edge more.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gradlab.gradients.measurement import Measurement
from gradlab.gradients.paths import place_names
from gradlab.models.cells import State
from gradlab.models.loss import example_loss, token_loss
from gradlab.models.synchronous import Synchronous, scored_steps
from gradlab.tasks import Batch


def measure_synchronous(twin: Synchronous, batch: Batch, loss: str, paths: bool) -> Measurement:
    """Return the measurement of a synchronous model in float64; its only part is "output"."""
    encoded = twin.encode(batch)
    edge = twin.exit_edge(encoded, batch).detach().requires_grad_()
    with torch.enable_grad():
        nats = example_loss(twin.output(edge), batch, loss)
        (gradient,) = torch.autograd.grad(nats.sum(), edge)
    direct = at_scored_steps(twin, gradient, batch)
    total = twin.encoder.pull_back(encoded, direct)
    found = {"total": total, "direct": direct, **({"output": total} if paths else {})}
    return Measurement(
        vectors={path: _named(twin, state) for path, state in found.items()},
        length=_named(twin, twin.encoder.pull_back(encoded, total)),
        absent=frozenset(),
        loss=nats.detach(),
        attention_weights=None,
    )


def target_rows(model: Synchronous, batch: Batch) -> State:
    """Return dl_j/dz_i as (k, batch, n, hidden) for each state; zero after the step of target j."""
    encoded = model.encode(batch)
    edge = model.exit_edge(encoded, batch).detach().requires_grad_()
    with torch.enable_grad():
        nats = token_loss(model.output(edge), batch)  # l_j reads row j of the edge and no other
        (gradient,) = torch.autograd.grad(nats.sum(), edge)
    only_j = torch.eye(gradient.shape[-2]).to(gradient)[:, None, :, None]
    entering = at_scored_steps(model, gradient * only_j, batch)
    return model.encoder.pull_back(encoded, entering)


def at_scored_steps(model: Synchronous, gradient: Tensor, batch: Batch) -> State:
    """Place gradients (..., batch, k, hidden) of the exit edge at the steps of their targets.

    Returns one (..., batch, n, hidden) for each state; the output reads h of the last layer alone.
    """
    *batches, _, hidden = gradient.shape
    steps = scored_steps(batch).unsqueeze(-1).expand_as(gradient)
    placed = gradient.new_zeros(*batches, batch.source.shape[-1], hidden)
    return model.encoder.at_top(placed.scatter_add(-2, steps, gradient))


def _named(model: Synchronous, state: State) -> dict[str, Tensor]:
    return dict(zip(place_names(model), state, strict=True))
