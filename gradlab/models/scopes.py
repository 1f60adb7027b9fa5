"""Which source positions a query may attend to, and what becomes of its scores there.

A scope takes the place of the softmax over the whole source. Positions i and j count from 1; n and
k are the source and target steps of the example, delay and all, and D is half the window's width:

    global             alpha_ji = softmax over all i
    local_monotonic    p_j = j n / k; softmax over |i - p_j| <= D
    local_predictive   p_j = n sigmoid(v_p . tanh(W_p q_j)); softmax over |i - p_j| <= D, and then
                       times exp(-(i - p_j)^2 / (2 (D / 2)^2))

Luong et al. 2015, section 3.2, whose monotonic window has p_j = j, the same where n = k. Target
step j looks about source step j n / k: a copy can be read so, a reverse cannot. The predicted p_j
is a real number, and what moves it is the query: q_j -> p_j is a second way from a query to the
weights. The factor is not renormalised: these rows sum to less than one. Where an end of the window
passes a position its weight jumps from or to about exp(-2) of its share; a gradient has no part in
that. A window without a real position gives weights of zero.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from gradlab.models.attention import masked_softmax
from gradlab.models.layers import Layer, Linear, linear_over_time
from gradlab.models.weighing import ByAutograd, Softmax, Weighing


class Scope(ABC):
    """How scores become weights. A mask here has an axis of target steps, 1 where all are alike.

    layer_names: of the layers that the scope adds to the attention; their weights are passed along.
    """

    layer_names: tuple[str, ...] = ()

    def __init__(self, window: int) -> None:
        """Take the half-width D of the window, in timesteps."""
        self.window = window

    def layers(self, query_size: int) -> dict[str, Layer]:
        """Return the layers of `layer_names`, not drawn yet."""
        return {}

    @abstractmethod
    def reach(self, source: Tensor, target_lengths: Tensor, steps: range) -> Tensor:
        """Return where the target steps may look as far as is known without their queries.

        source: (..., batch, n) bool, True where real. target_lengths: (..., batch). steps: the
        numbers j. Returns (..., batch, 1 or k, n) bool.
        """

    def weigh(self, scores: Tensor, query: Tensor, mask: Tensor, *weights: Tensor) -> Tensor:
        """Return alpha for scores (..., batch, k, n) and queries (..., batch, k, query size)."""
        return masked_softmax(scores, mask)

    def weighing(self, mask: Tensor, *weights: Tensor) -> Weighing:
        """Return `weigh` for one target step after the other; mask (1 or k, replicas, rows, n)."""
        return Softmax(mask)


class Global(Scope):
    """All real positions."""

    def reach(self, source: Tensor, target_lengths: Tensor, steps: range) -> Tensor:
        return source.unsqueeze(-2)


class LocalMonotonic(Scope):
    """Real positions within D of j n / k, compared as the whole numbers i k and j n."""

    def reach(self, source: Tensor, target_lengths: Tensor, steps: range) -> Tensor:
        k = target_lengths[..., None, None]
        n = source.sum(-1)[..., None, None]
        i = torch.arange(1, source.shape[-1] + 1, device=source.device)
        j = torch.arange(steps.start, steps.stop, device=source.device).unsqueeze(-1)
        return source.unsqueeze(-2) & ((i * k - j * n).abs() <= self.window * k)


class LocalPredictive(Scope):
    """Real positions within D of the position that the query predicts, the near ones favoured."""

    layer_names = ("position", "position_energy")

    def layers(self, query_size: int) -> dict[str, Layer]:
        """Return W_p and v_p."""
        square = Linear(query_size, query_size, bias=False)
        return {"position": square, "position_energy": Linear(query_size, 1, bias=False)}

    def reach(self, source: Tensor, target_lengths: Tensor, steps: range) -> Tensor:
        return source.unsqueeze(-2)

    def weigh(self, scores: Tensor, query: Tensor, mask: Tensor, *weights: Tensor) -> Tensor:
        """Return alpha; weights are W_p (..., H, H) and v_p (..., 1, H)."""
        w_p, v_p = weights
        predicted = torch.sigmoid(linear_over_time(torch.tanh(linear_over_time(query, w_p)), v_p))
        i = torch.arange(1, scores.shape[-1] + 1, dtype=scores.dtype, device=scores.device)
        away = i - mask.sum(-1, keepdim=True) * predicted
        inside = mask & (away.detach().abs() <= self.window)
        return masked_softmax(scores, inside) * torch.exp(-2 * (away / self.window) ** 2)

    def weighing(self, mask: Tensor, *weights: Tensor) -> Weighing:
        return ByAutograd(self.weigh, mask, *weights)


SCOPES: dict[str, type[Scope]] = {
    "global": Global,
    "local_monotonic": LocalMonotonic,
    "local_predictive": LocalPredictive,
}
