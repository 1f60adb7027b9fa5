"""Edges of the decoder that path lengths count, as gradients see them on their way back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Counted:
    """What to do to a gradient, on its way back, at an edge of the decoder that path lengths count.

    time: at the way from one decoder state to the next, in time or a layer up. query: at the way
    from a decoder state to a query. Both take gradients (signals, ...) and return the same shape.
    """

    time: Callable[[Tensor], Tensor]
    query: Callable[[Tensor], Tensor]


class Crossing(torch.autograd.Function):
    """The identity, whose gradient crosses an edge."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, edge: Callable[[Tensor], Tensor]) -> Tensor:
        ctx.edge = edge
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        return ctx.edge(g), None
