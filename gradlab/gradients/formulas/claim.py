"""What a formula is, what it says in one random case, and the two referees that judge it.

A case holds numbers by name and the loss they define. A claim says: this tensor is the derivative
of that loss at that number. Autograd of the plain definition is one referee, central differences
are the other; they share the definition of the loss and nothing else.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

Tensors = tuple[Tensor, ...]

STEP = 1e-2
STENCIL = (45.0, -9.0, 1.0)


@dataclass(frozen=True)
class Draw:
    """The numbers of one random case, from a generator of its own."""

    index: int
    generator: np.random.Generator

    def __call__(self, *shape: int) -> Tensor:
        """Return float64 numbers from N(0, 1)."""
        return torch.from_numpy(np.asarray(self.generator.standard_normal(shape)))


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
    """

    says: Tensors
    loss: Callable[..., Tensor]
    at: Tensors


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


def claim(case: Case, name: str, says: Tensor) -> Claim:
    """Return the claim that `says` is the derivative of the case's loss at its number `name`."""

    def loss(moved: Tensor) -> Tensor:
        return replace(case, **{name: moved}).loss()

    return Claim((says,), torch.vmap(loss), (getattr(case, name),))


def autograd(claim: Claim) -> Tensors:
    """Return the derivatives by automatic differentiation; one that is absent is an error."""
    leaves = [at.detach().clone().requires_grad_() for at in claim.at]
    loss = claim.loss(*(leaf.unsqueeze(0) for leaf in leaves)).sum()
    return torch.autograd.grad(loss, leaves)


@torch.no_grad()
def central_differences(claim: Claim) -> Tensors:
    """Return the derivatives by sixth-order central differences, one entry at a time.

        f'(0) = (45 (f_1 - f_-1) - 9 (f_2 - f_-2) + (f_3 - f_-3)) / 60h + O(h^6 f^(7) / 140)

    Why sixth order: rounding adds eps |f| / h whatever the order. The usual two points leave
    h^2 f''' / 6, so h must be near 1e-5 and ten digits after the point are the most there is. Six
    points leave 7e-15 f^(7) at h = 0.01, where rounding is 1e-14 too: gradients of 1e-8 still have
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


def relative_error(says: Tensors, truth: Tensors) -> float:
    """Return the largest ||says - truth|| / ||truth|| over the tensors.

    Zero against zero is 0; anything else against zero, or a wrong shape, is infinite.
    """
    return float(np.max([_of_tensor(a, b) for a, b in zip(says, truth, strict=True)]))


def _of_tensor(says: Tensor, truth: Tensor) -> float:
    if says.shape != truth.shape:
        return float("inf")
    error, size = float((says - truth).norm()), float(truth.norm())
    if size == 0:
        return 0.0 if error == 0 else float("inf")
    return error / size
