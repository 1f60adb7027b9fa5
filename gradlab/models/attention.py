"""Attention: scores of queries against encoder states, weights over the source, context vectors.

At target step j and source position i, with query q_j and encoder state h_i:

    e_ji = score(q_j, h_i)      alpha_ji = softmax_i(e_ji)      c_j = sum_i alpha_ji h_i

The encoder states enter twice, as keys (scored) and as values (summed); the two are kept apart
because they are two paths of the gradient. Queries are (..., batch, k, hidden), keys and values
(..., batch, n, hidden), scores and weights (..., batch, k, n).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from gradlab.models.layers import Linear, linear


class Score(nn.Module, ABC):
    """A score function. `project_keys` is what can be computed once for all target steps."""

    @abstractmethod
    def project_keys(self, keys: Tensor) -> Tensor:
        """Return what `forward` takes as keys, (..., batch, n, features)."""

    @abstractmethod
    def forward(self, query: Tensor, projected_keys: Tensor) -> Tensor:
        """Return the scores e (..., batch, k, n) of query (..., batch, k, hidden)."""

    @abstractmethod
    def jacobians(self, query: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
        """Return de_ji/dq_j and de_ji/dh_i, each (..., batch, k, n, hidden); keys are h_i."""


class AdditiveScore(Score):
    """e_ji = v . tanh(W1 h_i + W2 q_j); Bahdanau et al. 2015, appendix A.1.2."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.key = Linear(hidden, hidden, bias=False)
        self.query = Linear(hidden, hidden, bias=False)
        self.energy = Linear(hidden, 1, bias=False)

    def project_keys(self, keys: Tensor) -> Tensor:
        projected: Tensor = self.key(keys)
        return projected.contiguous()

    def forward(self, query: Tensor, projected_keys: Tensor) -> Tensor:
        inputs = self.query(query), projected_keys, self.energy.weight
        scores: Tensor = Additive.apply(*inputs)  # type: ignore[no-untyped-call]
        return scores

    def jacobians(self, query: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
        """Return v (1 - tanh^2) W2 and v (1 - tanh^2) W1."""
        activation = torch.tanh(self.key(keys).unsqueeze(-3) + self.query(query).unsqueeze(-2))
        slope = self.energy.weight.unsqueeze(-2).unsqueeze(-2) * (1 - activation * activation)
        w1, w2 = (part.weight.unsqueeze(-3).unsqueeze(-3) for part in (self.key, self.query))
        return (slope @ w2).contiguous(), slope @ w1


class Additive(torch.autograd.Function):
    """v . tanh(key + query), one target step at a time.

    The n x k x hidden activations are computed again in the backward pass instead of kept, so that
    memory grows with n and not with n k. With g_ji = dL/de_ji:

        dL/dquery_j = sum_i g_ji v (1 - tanh^2)      dL/dkey_i = sum_j g_ji v (1 - tanh^2)
        dL/dv = sum_ji g_ji tanh
    """

    @staticmethod
    def forward(ctx: Any, query: Tensor, keys: Tensor, energy: Tensor) -> Tensor:
        ctx.save_for_backward(query, keys, energy)
        columns = []
        for q in query.unbind(-2):
            activation = _tanh_(keys + q.unsqueeze(-2))
            rows = linear(activation.flatten(-3, -2), energy)
            columns.append(rows.view(activation.shape[:-1]))
        return torch.stack(columns, dim=-2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        query, keys, energy = ctx.saved_tensors
        v = energy.unsqueeze(-2)  # (..., 1, 1, hidden): meets (..., batch, n, hidden)
        d_query, d_keys, d_energy = [], torch.zeros_like(keys), torch.zeros_like(energy)
        for q, g_j in zip(query.unbind(-2), g.unbind(-2), strict=True):
            activation = _tanh_(keys + q.unsqueeze(-2))
            g_rows = g_j.flatten(-2).unsqueeze(-2)
            d_energy += (g_rows @ activation.flatten(-3, -2)).sum_to_size(energy.shape)
            slope = activation.square_().neg_().add_(1).mul_(g_j.unsqueeze(-1) * v)
            d_query.append(slope.sum(-2))
            d_keys += slope
        return torch.stack(d_query, dim=-2), d_keys, d_energy


def _tanh_(x: Tensor) -> Tensor:
    """Return tanh(x) = 2 sigmoid(2x) - 1 in place; torch's tanh is several times slower on CPUs."""
    return x.mul_(2).sigmoid_().mul_(2).sub_(1)


class DotScore(Score):
    """e_ji = q_j . h_i; Luong et al. 2015, section 3.1."""

    def __init__(self, hidden: int) -> None:
        super().__init__()

    def project_keys(self, keys: Tensor) -> Tensor:
        return keys

    def forward(self, query: Tensor, projected_keys: Tensor) -> Tensor:
        return query @ projected_keys.mT

    def jacobians(self, query: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
        """Return h_i and q_j."""
        of_query, of_keys = torch.broadcast_tensors(keys.unsqueeze(-3), query.unsqueeze(-2))
        return of_query, of_keys


SCORES: dict[str, type[AdditiveScore] | type[DotScore]] = {
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
