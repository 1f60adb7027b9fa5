"""From scores to attention weights, one target step after the other, with the adjoint.

    alpha_j = weigh(j, s, e_j)                      s: the decoder state that asks, before W_q
    dL/de_j, dL/ds = pull_back(j, s, e_j, alpha_j, dL/dalpha_j)
    gradients()                                     dL/dweights, summed over all steps pulled back

Scores and weights (replicas, rows, n), states (replicas, rows, features), weights (replicas, ...).
A forward and a backward pass have one each, and autograd sees nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor

from gradlab.models.activations import through_softmax


class Weighing(ABC):
    """What becomes of the scores of one target step after the other.

    by_hand: whether it does without autograd.
    """

    by_hand = True

    @abstractmethod
    def weigh(self, j: int, state: Tensor, scores: Tensor, out: Tensor) -> Tensor:
        """Return the weights of step j, counted from 0, in `out`."""

    @abstractmethod
    def pull_back(
        self, j: int, state: Tensor, scores: Tensor, alpha: Tensor, d_alpha: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """Return dL/dscores, and dL/dstate where the state has a part in the weights."""

    def gradients(self) -> tuple[Tensor, ...]:
        """Return dL/dweights, for weights of its own."""
        return ()


class Softmax(Weighing):
    """Softmax where a step may look, and exactly zero elsewhere, also where that is everywhere."""

    def __init__(self, mask: Tensor) -> None:
        """Take where the steps may look, (1 or k, replicas, rows, n)."""
        hidden = ~mask
        self.hidden = hidden.unbind() if bool(hidden.any()) else None
        self.may_see_nothing = bool(hidden.all(-1).any())

    def weigh(self, j: int, state: Tensor, scores: Tensor, out: Tensor) -> Tensor:
        if self.hidden is None:
            return torch.softmax(scores, -1, out=out)
        hidden = self.hidden[j % len(self.hidden)]
        lowest = torch.finfo(scores.dtype).min
        torch.softmax(scores.masked_fill(hidden, lowest), -1, out=out)
        return out.masked_fill_(hidden, 0.0) if self.may_see_nothing else out

    def pull_back(
        self, j: int, state: Tensor, scores: Tensor, alpha: Tensor, d_alpha: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """Return alpha_i (dL/dalpha_i - sum_m alpha_m dL/dalpha_m)."""
        return through_softmax(d_alpha, alpha), None


class ByAutograd(Weighing):
    """Any function of scores and query, differentiated by autograd one step at a time.

    weigh: takes scores (replicas, rows, 1, n), states (replicas, rows, 1, features), the mask
        (replicas, rows, 1, n) and weights, and gives the attention weights.
    """

    by_hand = False

    def __init__(self, weigh: Callable[..., Tensor], mask: Tensor, *weights: Tensor) -> None:
        self.function, self.mask = weigh, mask.unsqueeze(-2)
        self.weights = tuple(weight.detach().requires_grad_() for weight in weights)
        self.sums = [torch.zeros_like(weight) for weight in weights]

    def weigh(self, j: int, state: Tensor, scores: Tensor, out: Tensor) -> Tensor:
        return out.copy_(self.at(j, state, scores))

    def at(self, j: int, state: Tensor, scores: Tensor) -> Tensor:
        """Return the weights of step j, as autograd sees them."""
        inputs = scores.unsqueeze(-2), state.unsqueeze(-2), self.mask[j % len(self.mask)]
        return self.function(*inputs, *self.weights).squeeze(-2)

    def pull_back(
        self, j: int, state: Tensor, scores: Tensor, alpha: Tensor, d_alpha: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        with torch.enable_grad():
            asked, scored = state.detach().requires_grad_(), scores.detach().requires_grad_()
            weights = self.at(j, asked, scored)
        found = torch.autograd.grad(weights, (scored, asked, *self.weights), d_alpha)
        for total, part in zip(self.sums, found[2:], strict=True):
            total += part
        return found[0], found[1]

    def gradients(self) -> tuple[Tensor, ...]:
        return tuple(self.sums)
