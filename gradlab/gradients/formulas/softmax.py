"""Softmax, cross-entropy and context vectors: derivatives by hand.

    alpha_ji = softmax_i(e_ji)      c_j = sum_i alpha_ji h_i

A number called d_x is dL/dx. Shapes: states h (n, H), weights alpha (k, n), context c (k, H).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gradlab.gradients.formulas.claim import Case, Claim, Draw, Formula, Group, claim

n, k, H, V = 5, 2, 3, 6


@dataclass(frozen=True)
class Softmax(Case):
    """alpha = softmax(e), and L depends on alpha by d_alpha."""

    e: Tensor
    d_alpha: Tensor

    def loss(self) -> Tensor:
        return (self.d_alpha * torch.softmax(self.e, 0)).sum()


@dataclass(frozen=True)
class CrossEntropy(Case):
    """L = -sum_v y_v log softmax(logits)_v, with y one-hot."""

    logits: Tensor
    y: Tensor

    def loss(self) -> Tensor:
        return -(self.y * torch.log_softmax(self.logits, 0)).sum()


@dataclass(frozen=True)
class Context(Case):
    """c_j = sum_i alpha_ji h_i, and L depends on c_j by d_c."""

    alpha: Tensor
    h: Tensor
    d_c: Tensor

    def loss(self) -> Tensor:
        return (self.d_c * (self.alpha @ self.h)).sum()


def softmax(draw: Draw) -> Claim:
    x = Softmax(e=draw(n), d_alpha=draw(n))
    alpha = torch.softmax(x.e, 0)
    return claim(x, e=alpha * (x.d_alpha - (alpha * x.d_alpha).sum()))


def cross_entropy(draw: Draw) -> Claim:
    x = CrossEntropy(logits=draw(V), y=torch.eye(V, dtype=torch.float64)[draw.index % V])
    p = torch.exp(x.logits) / torch.exp(x.logits).sum()
    return claim(x, logits=p - x.y)


def context(draw: Draw) -> Context:
    return Context(alpha=torch.softmax(draw(k, n), -1), h=draw(n, H), d_c=draw(k, H))


def weights(draw: Draw) -> Claim:
    x = context(draw)
    return claim(x, alpha=x.d_c @ x.h.T)


def values(draw: Draw) -> Claim:
    x = context(draw)
    return claim(x, h=x.alpha.T @ x.d_c)


def worked_example(c: list[float]) -> Claim:
    """0.2 [1, 2, 9] + 0.8 [9, 1, 1]; with L = u . c, dL/du is the context vector itself."""
    alpha, h, u, says = (
        torch.tensor(rows, dtype=torch.float64)
        for rows in ([[0.2, 0.8]], [[1.0, 2.0, 9.0], [9.0, 1.0, 1.0]], [[1.0, 1.0, 1.0]], [c])
    )
    return claim(Context(alpha, h, d_c=u), d_c=says)


LOSS = Group(
    "softmax and loss",
    "α = softmax(e), L = −log p_y",
    r"\alpha = \mathrm{softmax}(e),\  L = -\log p_y",
)
CONTEXT = Group(
    "context vector",
    "c_j = Σ_i α_ji h_i",
    r"c_j = \sum_i \alpha_{ji} h_i",
)
BISHOP = "Bishop 2006, section 4.3.4"
BAHDANAU = "Bahdanau et al. 2015, section 3.1"

FORMULAS = [
    Formula(
        "softmax",
        LOSS,
        "dL/de_i = α_i (dL/dα_i − Σ_m α_m dL/dα_m)",
        r"\frac{\partial L}{\partial e_i} = \alpha_i \left(\frac{\partial L}{\partial \alpha_i}"
        r" - \sum_m \alpha_m \frac{\partial L}{\partial \alpha_m}\right)",
        BISHOP,
        softmax,
    ),
    Formula(
        "cross-entropy",
        LOSS,
        "dL/dlogits = p − y, p = softmax(logits)",
        r"\frac{\partial L}{\partial \mathrm{logits}} = p - y,\  p = \mathrm{softmax}"
        r"(\mathrm{logits})",
        BISHOP,
        cross_entropy,
    ),
    Formula(
        "weights",
        CONTEXT,
        "dL/dα_ji = dL/dc_j · h_i",
        r"\frac{\partial L}{\partial \alpha_{ji}} = \frac{\partial L}{\partial c_j} \cdot h_i",
        BAHDANAU,
        weights,
    ),
    Formula(
        "values path",
        CONTEXT,
        "dL/dh_i = Σ_j α_ji dL/dc_j (keys fixed)",
        r"\frac{\partial L}{\partial h_i} = \sum_j \alpha_{ji} \frac{\partial L}{\partial c_j}"
        r"\ \text{(keys fixed)}",
        BAHDANAU,
        values,
    ),
    Formula(
        "worked example",
        CONTEXT,
        "0.2 [1, 2, 9] + 0.8 [9, 1, 1] = [7.4, 1.2, 2.6]",
        r"0.2\ [1, 2, 9] + 0.8\ [9, 1, 1] = [7.4, 1.2, 2.6]",
        BAHDANAU,
        lambda draw: worked_example([7.4, 1.2, 2.6]),
    ),
]
