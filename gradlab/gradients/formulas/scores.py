"""Additive and dot scores: derivatives by hand, with all weights, from dL/dc_j down.

    e_ji = score(q_j, h_i)      alpha_ji = softmax_i(e_ji)      c_j = sum_i alpha_ji h_i

Encoder states enter twice, as keys (scored) and as values (summed), and stay apart here. A number
called d_x is dL/dx. Shapes: keys and values (n, H), query q (k, H), W1 and W2 (A, H), v (A,),
scores and weights (k, n), context (k, H).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from gradlab.gradients.formulas.claim import Case, Claim, Draw, Formula, Group, claim

n, k, H, A = 5, 2, 3, 4


@dataclass(frozen=True)
class Additive(Case):
    """e_ji = v . tanh(W1 h_i + W2 q_j), and L depends on the context c_j by d_c."""

    keys: Tensor
    values: Tensor
    query: Tensor
    d_c: Tensor
    W1: Tensor
    W2: Tensor
    v: Tensor

    def tanh(self) -> Tensor:
        """(k, n, A): the tanh of W1 h_i + W2 q_j."""
        return torch.tanh(self.keys @ self.W1.T + (self.query @ self.W2.T)[:, None])

    def scores(self) -> Tensor:
        return self.tanh() @ self.v

    def weights(self) -> Tensor:
        return torch.softmax(self.scores(), -1)

    def loss(self) -> Tensor:
        return (self.d_c * (self.weights() @ self.values)).sum()

    def d_e(self) -> Tensor:
        """By hand: dL/de_ji = α_ji (dL/dα_ji − Σ_m α_jm dL/dα_jm), dL/dα_ji = dL/dc_j · h_i."""
        alpha, d_alpha = self.weights(), self.d_c @ self.values.T
        return alpha * (d_alpha - (alpha * d_alpha).sum(-1, keepdim=True))

    def delta(self) -> Tensor:
        """By hand: δ_ji = dL/de_ji v ⊙ (1 − tanh²(W1 h_i + W2 q_j)), (k, n, A)."""
        return self.d_e()[..., None] * self.v * (1 - self.tanh() ** 2)


class Dot(Additive):
    """e_ji = q_j . h_i; W1, W2 and v play no part."""

    def scores(self) -> Tensor:
        return self.query @ self.keys.T


Score = TypeVar("Score", bound=Additive)


def drawn(score: type[Score], draw: Draw) -> Score:
    """Draw one case; keys and values are the same states."""
    h = draw(n, H)
    return score(h, h, draw(k, H), draw(k, H), draw.weight(A, H), draw.weight(A, H), draw(A))


def additive_w1(draw: Draw) -> Claim:
    x = drawn(Additive, draw)
    return claim(x, W1=torch.einsum("jia,ih->ah", x.delta(), x.keys))


def additive_w2(draw: Draw) -> Claim:
    x = drawn(Additive, draw)
    return claim(x, W2=torch.einsum("jia,jh->ah", x.delta(), x.query))


def additive_v(draw: Draw) -> Claim:
    x = drawn(Additive, draw)
    return claim(x, v=torch.einsum("ji,jia->a", x.d_e(), x.tanh()))


def additive_keys(draw: Draw) -> Claim:
    x = drawn(Additive, draw)
    return claim(x, keys=x.delta().sum(0) @ x.W1)


def additive_query(draw: Draw) -> Claim:
    x = drawn(Additive, draw)
    return claim(x, query=x.delta().sum(1) @ x.W2)


def dot_keys(draw: Draw) -> Claim:
    x = drawn(Dot, draw)
    return claim(x, keys=x.d_e().T @ x.query)


def dot_query(draw: Draw) -> Claim:
    x = drawn(Dot, draw)
    return claim(x, query=x.d_e() @ x.keys)


ADDITIVE = Group(
    "additive score",
    "e_ji = v · tanh(W₁ h_i + W₂ q_j), δ_ji = dL/de_ji v ⊙ (1 − tanh²(W₁ h_i + W₂ q_j))",
    r"e_{ji} = v \cdot \tanh(W_1 h_i + W_2 q_j),\  \delta_{ji} = "
    r"\frac{\partial L}{\partial e_{ji}} v \odot (1 - \tanh^2(W_1 h_i + W_2 q_j))",
)
DOT = Group(
    "dot score",
    "e_ji = q_j · h_i: no weights, so no gradient of weights",
    r"e_{ji} = q_j \cdot h_i\ \text{(no weights, so no gradient of weights)}",
)
BAHDANAU = "Bahdanau et al. 2015, appendix A.1.2"
LUONG = "Luong et al. 2015, section 3.1"

FORMULAS = [
    Formula(
        "additive W1",
        ADDITIVE,
        "dL/dW₁ = Σ_j Σ_i δ_ji h_iᵀ",
        r"\frac{\partial L}{\partial W_1} = \sum_j \sum_i \delta_{ji} h_i^{\top}",
        BAHDANAU,
        additive_w1,
    ),
    Formula(
        "additive W2",
        ADDITIVE,
        "dL/dW₂ = Σ_j Σ_i δ_ji q_jᵀ",
        r"\frac{\partial L}{\partial W_2} = \sum_j \sum_i \delta_{ji} q_j^{\top}",
        BAHDANAU,
        additive_w2,
    ),
    Formula(
        "additive v",
        ADDITIVE,
        "dL/dv = Σ_j Σ_i dL/de_ji tanh(W₁ h_i + W₂ q_j)",
        r"\frac{\partial L}{\partial v} = \sum_j \sum_i \frac{\partial L}{\partial e_{ji}}"
        r" \tanh(W_1 h_i + W_2 q_j)",
        BAHDANAU,
        additive_v,
    ),
    Formula(
        "additive keys path",
        ADDITIVE,
        "dL/dh_i = W₁ᵀ Σ_j δ_ji (values fixed)",
        r"\frac{\partial L}{\partial h_i} = W_1^{\top} \sum_j \delta_{ji}"
        r"\ \text{(values fixed)}",
        BAHDANAU,
        additive_keys,
    ),
    Formula(
        "additive query",
        ADDITIVE,
        "dL/dq_j = W₂ᵀ Σ_i δ_ji",
        r"\frac{\partial L}{\partial q_j} = W_2^{\top} \sum_i \delta_{ji}",
        BAHDANAU,
        additive_query,
    ),
    Formula(
        "dot keys path",
        DOT,
        "dL/dh_i = Σ_j dL/de_ji q_j (values fixed)",
        r"\frac{\partial L}{\partial h_i} = \sum_j \frac{\partial L}{\partial e_{ji}} q_j"
        r"\ \text{(values fixed)}",
        LUONG,
        dot_keys,
    ),
    Formula(
        "dot query",
        DOT,
        "dL/dq_j = Σ_i dL/de_ji h_i",
        r"\frac{\partial L}{\partial q_j} = \sum_i \frac{\partial L}{\partial e_{ji}} h_i",
        LUONG,
        dot_query,
    ),
]
