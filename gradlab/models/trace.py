"""What one forward pass of the encoder-decoder keeps: for the adjoint, and to be looked at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

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
    """What to do to a tensor where it crosses an edge of the decoder that path lengths count.

    time: a state on its way to the next decoder step. query: a state on its way to a query. Both
    must return their argument's values; what they change is the gradient that comes back.
    """

    time: Callable[[Tensor], Tensor]
    query: Callable[[Tensor], Tensor]


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

    embedded, projected: (..., batch, n, embedding), (..., batch, n, gates * hidden).
    initial: z_0. states: z_1 .. z_n, each (..., batch, n, hidden).
    """

    embedded: Tensor
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
