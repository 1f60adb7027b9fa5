"""Attention: scores of queries against encoder states, weights over the source, context vectors.

At target step j and source position i, with query q_j and encoder state h_i:

    e_ji = score(q_j, h_i)      alpha_ji = softmax_i(e_ji)      c_j = sum_i alpha_ji h_i

The encoder states enter twice, as keys (scored) and as values (summed); the two are kept apart
because they are two paths of the gradient. Queries are (..., batch, k, hidden), keys and values
(..., batch, n, hidden), scores and weights (..., batch, k, n).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.func import functional_call

from gradlab.models.comparisons import Additive, AdditiveScores, ByAutograd, Comparison, Product
from gradlab.models.layers import Linear


class Score(nn.Module, ABC):
    """A score function; `forward` is enough to define one, the rest makes it faster.

    `project_keys` is what can be computed once for all target steps. `compare`, with its weights
    and the query's matrix, is the score for a decoder that asks one query at a time.
    """

    def project_keys(self, keys: Tensor) -> Tensor:
        """Return what `forward` takes as keys, (..., batch, n, features)."""
        return keys

    @abstractmethod
    def forward(self, query: Tensor, projected_keys: Tensor) -> Tensor:
        """Return the scores e (..., batch, k, n) of query (..., batch, k, hidden)."""

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
        """Return de_ji/dq_j and de_ji/dh_i, each (..., batch, k, n, hidden); keys are h_i."""
        pairs = torch.broadcast_tensors(query.unsqueeze(-2), keys.unsqueeze(-3))
        asked, read = (
            part.flatten(-4, -2).unsqueeze(-2).detach().requires_grad_() for part in pairs
        )
        with torch.enable_grad():
            scores = self(asked, self.project_keys(read))
        found = torch.autograd.grad(scores.sum(), (asked, read), materialize_grads=True)
        of_query, of_keys = (part.view(pairs[0].shape) for part in found)
        return of_query, of_keys


class AdditiveScore(Score):
    """e_ji = v . tanh(W1 h_i + W2 q_j); Bahdanau et al. 2015, appendix A.1.2."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.key = Linear(hidden, hidden, bias=False)
        self.query = Linear(hidden, hidden, bias=False)
        self.energy = Linear(hidden, 1, bias=False)

    def project_keys(self, keys: Tensor) -> Tensor:
        projected: Tensor = self.key(keys)
        return projected

    def forward(self, query: Tensor, projected_keys: Tensor) -> Tensor:
        inputs = self.query(query), projected_keys, self.energy.weight
        scores: Tensor = AdditiveScores.apply(*inputs)  # type: ignore[no-untyped-call]
        return scores

    def query_weight(self) -> Tensor:
        return self.query.weight

    def compared_with(self) -> tuple[Tensor, ...]:
        return (self.energy.weight,)

    def compare(self, queries: int, keys: Tensor, *weights: Tensor) -> Comparison:
        return Additive(queries, keys, *weights)

    def jacobians(self, query: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
        """Return v (1 - tanh^2) W2 and v (1 - tanh^2) W1."""
        activation = torch.tanh(self.key(keys).unsqueeze(-3) + self.query(query).unsqueeze(-2))
        slope = self.energy.weight.unsqueeze(-2).unsqueeze(-2) * (1 - activation * activation)
        w1, w2 = (part.weight.unsqueeze(-3).unsqueeze(-3) for part in (self.key, self.query))
        return (slope @ w2).contiguous(), slope @ w1


class DotScore(Score):
    """e_ji = q_j . h_i; Luong et al. 2015, section 3.1."""

    def __init__(self, hidden: int) -> None:
        super().__init__()

    def forward(self, query: Tensor, projected_keys: Tensor) -> Tensor:
        return query @ projected_keys.mT

    def compared_with(self) -> tuple[Tensor, ...]:
        return ()

    def compare(self, queries: int, keys: Tensor, *weights: Tensor) -> Comparison:
        return Product(keys)

    def jacobians(self, query: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
        """Return h_i and q_j."""
        of_query, of_keys = torch.broadcast_tensors(keys.unsqueeze(-3), query.unsqueeze(-2))
        return of_query, of_keys


SCORES: dict[str, Callable[[int], Score]] = {
    "additive": AdditiveScore,
    "dot": DotScore,
}


def masked_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    """Return softmax over the last axis where `mask` is True, and exactly zero elsewhere.

    A row that is masked throughout has weights zero and gradient zero, not NaN.
    """
    lowest = torch.finfo(scores.dtype).min
    return torch.softmax(scores.masked_fill(~mask, lowest), dim=-1).masked_fill(~mask, 0.0)


def attend(scores: Tensor, values: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Return weights (..., batch, k, n) and context vectors (..., batch, k, hidden).

    mask: (..., batch, n), True where the source is real.
    """
    weights = masked_softmax(scores, mask.unsqueeze(-2))
    return weights, weights @ values
