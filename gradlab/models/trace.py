"""What one forward pass of the encoder-decoder keeps: for the adjoint, and to be looked at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from torch import Tensor

from gradlab.models.cells import State
from gradlab.models.comparisons import Comparison
from gradlab.models.inputs import Projected


@dataclass(frozen=True)
class ExitEdges:
    """The ways out of the encoder, each a tensor of its own that gradients can be asked for.

    bridge: h (and c) of each layer after the last step that it read, or their means, (..., batch,
        width); empty for "none". Width is hidden, or twice that of a two-way encoder.
    values, keys: all states of the last layer, (..., batch, n, width); None without attention.
    """

    bridge: State
    values: Tensor | None
    keys: Tensor | None


@dataclass(frozen=True)
class Memory:
    """What the decoder may read of the source, prepared once for all of its steps.

    mask: (..., batch, 1 or k, n), True where a target step may look.
    first: what the bridge makes of its edge, h (and c) of each layer, (..., batch, hidden).
    compare: makes a comparison of a number of queries, keys and weights; None without attention.
    """

    edges: ExitEdges
    projected_keys: Tensor | None
    mask: Tensor
    first: State
    compare: Callable[..., Comparison] | None = None

    def for_steps(self, queries: int) -> Memory:
        """Return the same for a decoder that comes back with so many queries, one at a time.

        Keys and values are laid out once, and the first query's comparison serves all of them: no
        gradient comes back.
        """
        assert self.edges.values is not None and self.projected_keys is not None
        edges, made = replace(self.edges, values=self.edges.values.contiguous()), list[Comparison]()

        def compare(_: int, *given: Tensor) -> Comparison:
            if not made:
                assert self.compare is not None
                made.append(self.compare(queries, *given))
            return made[0]

        keys = self.projected_keys.contiguous()
        return replace(self, edges=edges, projected_keys=keys, compare=compare)

    def at(self, j: int) -> Memory:
        """Return what target step j alone may read, counted from 0."""
        if self.mask.shape[-2] == 1:
            return self
        return replace(self, mask=self.mask[..., j : j + 1, :])


@dataclass(frozen=True)
class Decoded:
    """What the decoder computed over k steps; tensors of attention are None without it.

    projected: the projected inputs of the first layer, without what it reads of contexts.
    states: s_1 .. s_k of each layer from the first up, each (..., batch, k, hidden); last: what the
        next step starts from, s_k and, with input feeding, the attentional vector a_k.
    query: (..., batch, k, hidden); context: (..., batch, k, width); scores, weights: (..., batch,
        k, n).
    logits: (..., batch, k, V).
    """

    projected: Projected
    states: State
    last: State
    query: Tensor | None
    scores: Tensor | None
    weights: Tensor | None
    context: Tensor | None
    logits: Tensor


@dataclass(frozen=True)
class Pass:
    """What one layer computed in one direction, in the order in which it read.

    projected: the projected inputs.
    initial: z_0. states: z_1 .. z_n, each (..., batch, n, hidden).
    """

    projected: Projected
    initial: State
    states: State


@dataclass(frozen=True)
class Encoded:
    """What the encoder computed, and what its adjoint needs.

    passes: by torch's suffix, "l0", "l0_reverse", "l1" ...
    layers: h (and c) of each layer in the order of the source, both directions side by side, each
        (..., batch, n, width). lengths: the source lengths, (batch,).
    """

    passes: dict[str, Pass]
    layers: tuple[State, ...]
    lengths: Tensor

    @property
    def states(self) -> State:
        """The states of the last layer, which attention reads."""
        return self.layers[-1]

    @property
    def steps(self) -> int:
        """The number of source steps n, pads included."""
        return self.states[0].shape[-2]


@dataclass(frozen=True)
class Trace:
    """One forward pass: what the adjoint needs and what a lecture wants to see."""

    encoded: Encoded
    memory: Memory
    decoded: Decoded

    @property
    def encoder_states(self) -> State:
        """The states of the encoder's last layer."""
        return self.encoded.states

    @property
    def edges(self) -> ExitEdges:
        return self.memory.edges

    @property
    def logits(self) -> Tensor:
        return self.decoded.logits
