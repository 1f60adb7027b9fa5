"""The weights of recurrent layers, and the layers run over time with them.

A layer, in one direction, goes by torch's suffix: "l0", "l0_reverse", "l1" ... The input of the
first layer is made of blocks (an embedding, a context); above, it is the states of the layer below,
those of both directions side by side.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gradlab.models.cells import CELLS, Coefficients, State
from gradlab.models.counted import Counted, Crossing
from gradlab.models.inputs import Projected
from gradlab.models.layers import Embedding, Layer, linear, linear_over_time, uniform
from gradlab.models.recurrence import Scan, linearise
from gradlab.models.rows import time_first
from gradlab.models.starts import controlled

FIRST = "l0"


class Recurrent(Layer):
    """Recurrent layers, in the layout and names of `torch.nn.GRU` and kin.

    A method speaks of one layer in one direction, the first unless it is told. The columns of
    weight_ih are blocks, one for each part of the input. Each block is drawn from a generator of
    its own and bounded by 1/sqrt(hidden), so a model with one more block starts from the same
    weights in the others. What `init` and `gain` change in that is told in `starts`.
    """

    weight_ih_l0: nn.Parameter
    weight_hh_l0: nn.Parameter
    bias_ih_l0: nn.Parameter
    bias_hh_l0: nn.Parameter

    def __init__(
        self,
        cell: str,
        blocks: dict[str, int],
        hidden: int,
        init: str = "torch",
        gain: float = 1.0,
        layers: int = 1,
        bidirectional: bool = False,
    ) -> None:
        super().__init__()
        self.init, self.gain, self.layers = init, gain, layers
        self.cell_name, self.blocks, self.hidden = cell, blocks, hidden
        self.ways = ("", "_reverse") if bidirectional else ("",)
        below = {"states": len(self.ways) * hidden}
        self.inputs = {
            f"l{index}{way}": below if index else blocks
            for index in range(layers)
            for way in self.ways
        }
        rows = CELLS[cell].gates * hidden
        for layer, parts in self.inputs.items():
            shapes: dict[str, tuple[int, ...]] = {
                "weight_ih": (rows, sum(parts.values())),
                "weight_hh": (rows, hidden),
                "bias_ih": (rows,),
                "bias_hh": (rows,),
            }
            for name, shape in shapes.items():
                self.register_parameter(f"{name}_{layer}", nn.Parameter(torch.empty(shape)))

    def weight(self, name: str, layer: str) -> Tensor:
        """Return a weight of a layer: a parameter, or what stands in its place for one pass."""
        found: Tensor = getattr(self, f"{name}_{layer}")
        return found

    def draw(self, seed: int, name: str) -> None:
        bound = self.hidden**-0.5
        drawn = {}
        for key, parameter in self.named_parameters():
            layer = key.split("_", 2)[2]
            blocks = {f"{key}.{block}": size for block, size in self.inputs[layer].items()}
            if not key.startswith("weight_ih"):
                drawn[key] = uniform(tuple(parameter.shape), bound, seed, f"{name}.{key}")
                continue
            parts = [
                uniform((parameter.shape[0], size), bound, seed, f"{name}.{block}")
                for block, size in blocks.items()
            ]
            drawn[key] = torch.cat(parts, dim=-1)
        if self.init != "torch":
            gates = CELLS[self.cell_name].gates
            for layer in self.inputs:
                drawn |= controlled(self.init, self.gain, gates, self.hidden, seed, name, layer)
        self.load_state_dict(drawn)

    def weight_ih(self, layer: str = FIRST) -> Tensor:
        """Return W_ih of a layer, (..., gates * hidden, inputs)."""
        return self.weight("weight_ih", layer)

    def hidden_weights(self, layer: str = FIRST) -> tuple[Tensor, Tensor]:
        """Return W_hh (..., gates * hidden, hidden) and b_hh (..., gates * hidden) of a layer."""
        return self.weight("weight_hh", layer), self.weight("bias_hh", layer)

    def stacked_weights(self, block: str) -> list[Tensor]:
        """Return what a loop over steps takes of every layer; `block` is read at each step.

        W_ih of the block, W_hh and b_hh of the first layer; W_ih, b_ih, W_hh and b_hh above it.
        """
        found = [self.block(block), *self.hidden_weights()]
        for layer in list(self.inputs)[1:]:
            bias = self.weight("bias_ih", layer)
            found += [self.weight_ih(layer), bias, *self.hidden_weights(layer)]
        return found

    def block(self, name: str, layer: str = FIRST) -> Tensor:
        """Return the columns of weight_ih that act on one block of the input."""
        blocks = self.inputs[layer]
        columns: tuple[Tensor, ...] = self.weight_ih(layer).split(list(blocks.values()), dim=-1)
        return dict(zip(blocks, columns, strict=True))[name]

    def project(self, block: str, x: Tensor) -> Tensor:
        """Return the part of the projected input that comes from one block of the first layer's.

        x: (..., batch, time, features). The bias comes with the embedding.
        """
        return linear_over_time(x, self.block(block))

    def project_symbols(self, embedding: Embedding, ids: Tensor, layer: str = FIRST) -> Projected:
        """Return the projected embeddings of ids (..., batch, time), bias included.

        Only as many rows are projected as there are symbols; each step then looks up its own.
        """
        bias = self.weight("bias_ih", layer)
        return Projected(linear(embedding.weight, self.block("embedding", layer), bias), ids)

    def project_states(self, below: Tensor, layer: str) -> Projected:
        """Return the projected states of the layer below (..., batch, time, features) and bias."""
        bias = self.weight("bias_ih", layer)
        return Projected(linear_over_time(below, self.weight_ih(layer), bias))

    def zero_state(self, batch: torch.Size) -> State:
        """Return z_0 = 0 of a layer for the sizes (..., batch)."""
        zeros = self.weight_hh_l0.new_zeros(*batch, self.hidden)
        return tuple(zeros for _ in CELLS[self.cell_name].states)

    def forward(
        self,
        projected: Projected,
        initial: State,
        counted: Counted | None = None,
        layer: str = FIRST,
    ) -> State:
        """Return the states of every step of a layer, each (..., batch, time, hidden)."""
        batch = torch.broadcast_shapes(projected.batch, initial[0].shape[:-1])
        read = projected.expand(*batch)
        weights = *self.hidden_weights(layer), *(part.expand(*batch, -1) for part in initial)
        inputs = self.cell_name, counted, read.ids, read.rows, *weights
        states: State = Scan.apply(*inputs)  # type: ignore[no-untyped-call]
        return states

    def climb(self, projected: Projected, initial: State, counted: Counted | None = None) -> State:
        """Return the states of every step of every layer, from the first layer up.

        projected: of the first layer. initial: z_0 of every layer, one after the other. The way
        from a state to the layer above is an edge that path lengths count.
        """
        count = len(CELLS[self.cell_name].states)
        states: State = ()
        for index, layer in enumerate(self.inputs):
            if index:
                below = states[-count]
                if counted is not None:
                    below = Crossing.apply(below, counted.time)  # type: ignore[no-untyped-call]
                projected = self.project_states(below, layer)
            first = initial[index * count : (index + 1) * count]
            states += self(projected, first, counted, layer)
        return states

    @torch.no_grad()
    def linearise(
        self, projected: Tensor, initial: State, states: State, layer: str = FIRST
    ) -> Coefficients:
        """Return the coefficients of a layer's adjoint at every step, time first.

        projected: (..., batch, time, gates * hidden).
        """
        p, z = time_first(projected), tuple(map(time_first, states))
        return linearise(CELLS[self.cell_name], p, initial, z, *self.hidden_weights(layer))
