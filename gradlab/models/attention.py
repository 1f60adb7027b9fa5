"""Attention: scores of queries against encoder states, weights over the source, context vectors.

At target step j and source position i, with query q_j and encoder state h_i:

    e_ji = score(q_j, h_i)      alpha_ji = softmax_i(e_ji)      c_j = sum_i alpha_ji h_i

The encoder states enter twice, as keys (scored) and as values (summed); the two are kept apart
because they are two paths of the gradient. Queries are (..., batch, k, query size), keys and values
(..., batch, n, state size), scores and weights (..., batch, k, n).

What a score is stands here, the family of scores in `scores`, and what takes the place of the
softmax over the whole source in `scopes`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn
from torch.func import functional_call

from gradlab.models.comparisons import ByAutograd, Comparison


class Score(nn.Module, ABC):
    """A score function over queries and states of given sizes.

    longest: the largest number of source steps that will be asked for, or None where it is not
    known; only a score with a weight for each position needs it. reads_keys: False where the
    encoder states do not enter the score, so that no gradient comes back by the keys.
    """

    reads_keys = True

    def __init__(self, query_size: int, state_size: int, longest: int | None = None) -> None:
        super().__init__()

    def project_keys(self, keys: Tensor) -> Tensor:
        """Return what `forward` takes as keys, (..., batch, n, features)."""
        return keys

    @abstractmethod
    def forward(self, query: Tensor, projected_keys: Tensor) -> Tensor:
        """Return the scores e (..., batch, k, n) of queries (..., batch, k, query size)."""

    def query_weight(self) -> Tensor | None:
        """Return the matrix that a query is multiplied with before it is compared, if any."""
        return None

    def compared_with(self) -> tuple[Tensor, ...]:
        """Return the weights that a comparison takes."""
        return tuple(self.parameters())

    def compare(self, queries: int, keys: Tensor, *weights: Tensor) -> Comparison:
        """Return the comparison of `queries` queries, one after the other, with projected keys."""
        names = [name for name, _ in self.named_parameters()]

        def score(query: Tensor, keys: Tensor, *weights: Tensor) -> Tensor:
            scores: Tensor = functional_call(
                self, dict(zip(names, weights, strict=True)), (query, keys)
            )
            return scores

        return ByAutograd(score, keys, *weights)

    def jacobians(self, query: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
        """Return de_ji/dq_j and de_ji/dh_i, each (..., batch, k, n, features); keys are h_i."""
        shape = *query.shape[:-1], keys.shape[-2]
        asked, read = (
            part.expand(*shape, -1).flatten(-4, -2).unsqueeze(-2).detach().requires_grad_()
            for part in (query.unsqueeze(-2), keys.unsqueeze(-3))
        )
        with torch.enable_grad():
            total = self(asked, self.project_keys(read)).sum()
        found = torch.autograd.grad(total, (asked, read), materialize_grads=True)
        of_query, of_keys = (part.view(*shape, -1) for part in found)
        return of_query, of_keys


def masked_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    """Return softmax over the last axis where `mask` is True, and exactly zero elsewhere.

    A row that is masked throughout has weights zero and gradient zero, not NaN.
    """
    lowest = torch.finfo(scores.dtype).min
    return torch.softmax(scores.masked_fill(~mask, lowest), dim=-1).masked_fill(~mask, 0.0)
