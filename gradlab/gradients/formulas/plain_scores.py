"""Scores written plainly, for autograd to differentiate: the twins of those in `models.scores`.

Each takes the score module for its weights, queries (..., batch, k, H) and what `project_keys` made
of the keys, which is plain already, and gives the scores (..., batch, k, n).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gradlab.models.layers import linear_over_time


def plain_tanh(score: Any, asked: Tensor, projected_keys: Tensor) -> Tensor:
    """Return v . tanh(W1 h_i + W2 q_j), with W1 h_i and W2 q_j given."""
    activation = torch.tanh(projected_keys.unsqueeze(-3) + asked.unsqueeze(-2))
    scores: Tensor = (activation * score.energy.weight[..., None, None, :]).sum(-1)
    return scores


def plain_additive(score: Any, query: Tensor, projected_keys: Tensor) -> Tensor:
    return plain_tanh(score, score.query(query), projected_keys)


def plain_dot(score: Any, query: Tensor, projected_keys: Tensor) -> Tensor:
    return (query.unsqueeze(-2) * projected_keys.unsqueeze(-3)).sum(-1)


def plain_concat(score: Any, query: Tensor, projected_keys: Tensor) -> Tensor:
    """Return v . tanh(W [h_i; q_j]), with the half of W [h_i; q_j] that is h_i's given."""
    weight = score.concat.weight[..., score.state_size :]
    return plain_tanh(score, linear_over_time(query, weight), projected_keys)


def plain_cosine(score: Any, query: Tensor, projected_keys: Tensor) -> Tensor:
    """Return q_j . (g h_i / |h_i|) / |q_j|, what stands in brackets given; 0 where q_j is 0."""
    square = query.square().sum(-1, keepdim=True)
    return (
        plain_dot(score, query, projected_keys) / torch.where(square == 0, torch.inf, square).sqrt()
    )


def plain_location(score: Any, query: Tensor, projected_keys: Tensor) -> Tensor:
    weight = score.location.weight[..., : projected_keys.shape[-2], :]
    return plain_dot(score, query, weight.unsqueeze(-3))


PLAIN_SCORES: dict[str, Callable[[Any, Tensor, Tensor], Tensor]] = {
    "additive": plain_additive,
    "concat": plain_concat,
    "dot": plain_dot,
    "scaled_dot": plain_dot,  # of keys that `project_keys` divided, by plain autograd
    "general": plain_dot,  # of keys W h_i, likewise
    "cosine": plain_cosine,
    "location": plain_location,
}
