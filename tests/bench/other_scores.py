"""The other attention scores, as one would write them: at every target step from its formula."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Score(nn.Module):
    """Scores (batch, n) of a query (batch, hidden) against states (batch, n, hidden)."""

    def __init__(self, hidden: int) -> None:
        super().__init__()

    def prepare(self, states: Tensor) -> Tensor:
        return states


class ScaledDot(Score):
    def forward(self, query: Tensor, states: Tensor) -> Tensor:
        scores = torch.bmm(states, query.unsqueeze(-1)).squeeze(-1)
        return scores / math.sqrt(states.shape[-1])


class General(Score):
    def __init__(self, hidden: int) -> None:
        super().__init__(hidden)
        self.general = nn.Linear(hidden, hidden, bias=False)

    def forward(self, query: Tensor, states: Tensor) -> Tensor:
        return torch.bmm(self.general(states), query.unsqueeze(-1)).squeeze(-1)


class Concat(Score):
    def __init__(self, hidden: int) -> None:
        super().__init__(hidden)
        self.concat = nn.Linear(2 * hidden, hidden, bias=False)
        self.energy = nn.Linear(hidden, 1, bias=False)

    def forward(self, query: Tensor, states: Tensor) -> Tensor:
        pairs = torch.cat([states, query.unsqueeze(1).expand_as(states)], -1)
        scores: Tensor = self.energy(torch.tanh(self.concat(pairs))).squeeze(-1)
        return scores


class One(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1, 1))


class Cosine(Score):
    def __init__(self, hidden: int) -> None:
        super().__init__(hidden)
        self.scale = One()

    def forward(self, query: Tensor, states: Tensor) -> Tensor:
        return self.scale.weight * F.cosine_similarity(states, query.unsqueeze(1), dim=-1)


OTHERS: dict[str, Callable[[int], Score]] = {
    "scaled_dot": ScaledDot,
    "general": General,
    "concat": Concat,
    "cosine": Cosine,
}
"""Location is left out: it needs a longest length, and costs a product of a query alone."""
