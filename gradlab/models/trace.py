"""What one forward pass of the encoder-decoder keeps: for the adjoint, and to be looked at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gradlab.models.cells import State


@dataclass(frozen=True)
class ExitEdges:
    """The ways out of the encoder, each a tensor of its own that gradients can be asked for.

    bridge: h (and c) at each example's last source step, (..., batch, hidden); empty for "none".
    values, keys: all states, (..., batch, n, hidden); None without attention.
    """

    bridge: State
    values: Tensor | None
    keys: Tensor | None


@dataclass(frozen=True)
class Memory:
    """What the decoder may read of the source, prepared once for all of its steps."""

    edges: ExitEdges
    projected_keys: Tensor | None
    mask: Tensor


@dataclass(frozen=True)
class Counted:
    """What to do to a gradient, on its way back, at an edge of the decoder that path lengths count.

    time: at the way from one decoder state to the next. query: at the way from a decoder state to
    a query. Both take gradients (signals, ...) and return the same shape.
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


@dataclass(frozen=True)
class Decoded:
    """What the decoder computed over k steps; tensors of attention are None without it.

    projected: the projected inputs, (..., batch, k, gates * hidden).
    states: s_1 .. s_k, each (..., batch, k, hidden); last: s_k.
    query, context: (..., batch, k, hidden); scores, weights: (..., batch, k, n).
    logits: (..., batch, k, V).
    """

    projected: Tensor
    states: State
    last: State
    query: Tensor | None
    scores: Tensor | None
    weights: Tensor | None
    context: Tensor | None
    logits: Tensor


@dataclass(frozen=True)
class Encoded:
    """What the encoder computed, and what its adjoint needs.

    projected: the projected inputs, (..., batch, n, gates * hidden).
    initial: z_0. states: z_1 .. z_n, each (..., batch, n, hidden).
    """

    projected: Tensor
    initial: State
    states: State


@dataclass(frozen=True)
class Trace:
    """One forward pass: what the adjoint needs and what a lecture wants to see."""

    encoded: Encoded
    memory: Memory
    decoded: Decoded

    @property
    def encoder_states(self) -> State:
        return self.encoded.states

    @property
    def edges(self) -> ExitEdges:
        return self.memory.edges

    @property
    def logits(self) -> Tensor:
        return self.decoded.logits
