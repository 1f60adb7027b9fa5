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
    """Return the cross-entropy of every target token in nats, (..., batch, k), zero on pads.

    Symbols go in front of steps and examples, where a softmax over few is ten times faster.
    """
    pad = ~batch.target_mask.mT
    target = batch.target.mT.masked_fill(pad, 0).expand(*logits.shape[:-3], *pad.shape[-2:])
    by_symbol = logits.transpose(-3, -2).movedim(-1, -3).masked_fill(pad.unsqueeze(-3), 0.0)
    log_probabilities = torch.log_softmax(by_symbol, -3)
    nats = -log_probabilities.gather(-3, target.unsqueeze(-3)).squeeze(-3)
    return nats.masked_fill(pad, 0.0).mT


def example_loss(logits: Tensor, batch: Batch, reduction: str) -> Tensor:
    """Return the loss of every example in nats, (..., batch), reduced over its target tokens.

    reduction: "mean", "sum", "first" or "last", over the example's own (unpadded) tokens.
    """
    return REDUCTIONS[reduction](token_loss(logits, batch), batch.target_mask)


def batch_loss(logits: Tensor, batch: Batch) -> Tensor:
    """Return the mean over all unpadded target tokens of the batch, (...,): what is trained."""
    return token_loss(logits, batch).sum((-2, -1)) / batch.target_mask.sum((-2, -1))
