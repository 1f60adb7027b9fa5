"""What a formula is, what it says in one random case, and the two referees that judge it.

A case holds numbers by name and the loss they define. A claim says: this tensor is the derivative
of that loss at that number. Autograd of the plain definition is one referee, central differences
are the other; they share the definition of the loss and nothing else.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

Tensors = tuple[Tensor, ...]

STEP = 5e-3
STENCIL = (45.0, -9.0, 1.0)


@dataclass(frozen=True)
class Draw:
    """The numbers of one random case, from a generator of its own."""

    index: int
    generator: np.random.Generator

    def __call__(self, *shape: int) -> Tensor:
        """Return float64 numbers from N(0, 1)."""
        return torch.from_numpy(np.asarray(self.generator.standard_normal(shape)))

    def seed(self) -> int:
        """Return a seed for what draws its own weights."""
        return int(self.generator.integers(2**31))

    def weight(self, rows: int, columns: int) -> Tensor:
        """Return a matrix that keeps the size of what it multiplies: N(0, 1 / columns)."""
        return self(rows, columns) / math.sqrt(columns)


@dataclass(frozen=True)
class Case(ABC):
    """Numbers by name, and the scalar loss that they define."""

    @abstractmethod
    def loss(self) -> Tensor:
        """Return L from its plain definition; no derivative is written here."""


@dataclass(frozen=True)
class Claim:
    """`says` are the derivatives of `loss` at the tensors `at`.

    loss: takes the tensors of `at` with one axis of copies in front, returns one loss a copy.
    each_vector: compare every vector on the last axis by itself, so that a vanishing gradient is
        not judged by the size of its neighbours.
    """

    says: Tensors
    loss: Callable[..., Tensor]
    at: Tensors
    each_vector: bool = False

    def distance(self, truth: Tensors, rounding: float = 0.0) -> float:
        """Return the largest relative error of a tensor, or of a vector, from `truth`.

        rounding: what a truth that is zero may be computed as.
        """
        pairs = list(zip(self.says, truth, strict=True))
        if self.each_vector and all(a.shape == b.shape for a, b in pairs):
            vectors = [(a.flatten(0, -2), b.flatten(0, -2)) for a, b in pairs]
            pairs = [pair for a, b in vectors for pair in zip(a, b, strict=True)]
        return float(np.max([relative_error(a, b, rounding) for a, b in pairs]))


@dataclass(frozen=True)
class Group:
    """Rows that share their letters; `text` and `latex` (math mode) say what the letters are."""

    title: str
    text: str
    latex: str


@dataclass(frozen=True)
class Formula:
    """A row of the table.

    text, latex: the formula, in Unicode and for math mode. holds: False for a variant that
    circulates and is wrong; `truth` and `truth_latex` then say what is true.
    """

    name: str
    group: Group
    text: str
    latex: str
    source: str
    evaluate: Callable[[Draw], Claim]
    holds: bool = True
    truth: str = ""
    truth_latex: str = ""


def claim(case: Case, **says: Tensor) -> Claim:
    """Return the claim that each of `says` is the derivative at the case's number of that name."""

    def loss(*moved: Tensor) -> Tensor:
        return replace(case, **dict(zip(says, moved, strict=True))).loss()

    return Claim(tuple(says.values()), torch.vmap(loss), tuple(getattr(case, x) for x in says))


def autograd(claim: Claim) -> Tensors:
    """Return the derivatives by automatic differentiation; one that is absent is an error."""
    leaves = [at.detach().clone().requires_grad_() for at in claim.at]
    loss = claim.loss(*(leaf.unsqueeze(0) for leaf in leaves)).sum()
    return torch.autograd.grad(loss, leaves)


DIFFERENCE_ROUNDING = 1e-12
"""What rounding of a loss of a few nats may add to a central difference: eps |f| / h, and room.

A position that the loss does not depend on need not give the same loss bit for bit wherever it
stands in a batch, so its difference is not exactly zero.
"""


@torch.no_grad()
def central_differences(claim: Claim) -> Tensors:
    """Return the derivatives by sixth-order central differences, one entry at a time.

        f'(0) = (45 (f_1 - f_-1) - 9 (f_2 - f_-2) + (f_3 - f_-3)) / 60h + O(h^6 f^(7) / 140)

    Why sixth order: rounding adds about 2 eps |f| / h whatever the order. The usual two points
    leave h^2 f''' / 6, so h must be near 1e-5 and an error of 1e-10 is the least there is. Six
    points leave 1e-16 f^(7) at h = 0.005, where rounding adds 4e-14: a gradient of 1e-7 still has
    six digits.
    """
    weights = torch.tensor(STENCIL, dtype=torch.float64) / (60 * STEP)
    gradients = []
    for index, at in enumerate(claim.at):
        unit = torch.eye(at.numel(), dtype=torch.float64).view(-1, *at.shape)
        moves = torch.cat([STEP * m * unit for m in (1, 2, 3, -1, -2, -3)])
        moved = [other.expand(len(moves), *other.shape) for other in claim.at]
        moved[index] = at + moves
        up, down = claim.loss(*moved).view(2, 3, -1)
        gradients.append((weights @ (up - down)).view_as(at))
    return tuple(gradients)


def relative_error(says: Tensor, truth: Tensor, rounding: float = 0.0) -> float:
    """Return ||says - truth|| / ||truth||, also where squares would underflow.

    Zero against zero is 0; anything else against zero, or a wrong shape, is infinite. Zero against
    no more than `rounding` is 0 too.
    """
    if says.shape != truth.shape:
        return float("inf")
    size = float(truth.abs().max())
    if size <= rounding and bool((says == 0).all()):
        return 0.0
    if size == 0:
        return 0.0 if bool((says == 0).all()) else float("inf")
    return float(((says - truth) / size).norm() / (truth / size).norm())
