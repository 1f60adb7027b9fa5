"""Cross-entropy of the target tokens in nats, and its reductions over an example's own tokens.

The reduction is part of every measured gradient: a mean over k tokens shrinks it by 1/k, a sum
does not, and "first" or "last" asks for a single target step.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from gradlab.tasks import Batch


def _mean(nats: Tensor, mask: Tensor) -> Tensor:
    return nats.sum(-1) / mask.sum(-1)


def _sum(nats: Tensor, mask: Tensor) -> Tensor:
    return nats.sum(-1)


def _first(nats: Tensor, mask: Tensor) -> Tensor:
    return nats[..., 0]


def _last(nats: Tensor, mask: Tensor) -> Tensor:
    last = (mask.sum(-1, keepdim=True) - 1).expand(*nats.shape[:-1], 1)
    return torch.take_along_dim(nats, last, -1).squeeze(-1)


REDUCTIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mean": _mean,
    "sum": _sum,
    "first": _first,
    "last": _last,
}


def token_loss(logits: Tensor, batch: Batch) -> Tensor:
    """Return the cross-entropy of every target token in nats, (..., batch, k), zero on pads."""
    mask = batch.target_mask
    safe_target = batch.target.masked_fill(~mask, 0).expand(logits.shape[:-1])
    safe_logits = logits.masked_fill(~mask.unsqueeze(-1), 0.0)
    log_probabilities = torch.log_softmax(safe_logits, -1)
    nats = -log_probabilities.gather(-1, safe_target.unsqueeze(-1)).squeeze(-1)
    return nats.masked_fill(~mask, 0.0)


def example_loss(logits: Tensor, batch: Batch, reduction: str) -> Tensor:
    """Return the loss of every example in nats, (..., batch), reduced over its target tokens.

    reduction: "mean", "sum", "first" or "last", over the example's own (unpadded) tokens.
    """
    return REDUCTIONS[reduction](token_loss(logits, batch), batch.target_mask)


def batch_loss(logits: Tensor, batch: Batch) -> Tensor:
    """Return the mean over all unpadded target tokens of the batch, (...,): what is trained."""
    return token_loss(logits, batch).sum((-2, -1)) / batch.target_mask.sum((-2, -1))
