"""Weights that act on the last axis, with any number of axes in front.

A weight is (..., out, in); its leading axes, if any, are replicas (seeds trained in lockstep) and
meet the same axes of the input. Sequences are (..., batch, time, feature) to the reader and lie
time-first in memory, so that a recurrence reads each of its steps in one piece.

Every layer draws its weights from a generator keyed by seed and parameter name: two models that
share a part start from the same part.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gradlab.seeding import keyed_generator


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return x W^T + b for x (..., batch, in), W (..., out, in), b (..., out).

    A product is always a batched one, over one replica or several: each replica's numbers are then
    the same, bit for bit, whatever stands beside it. (It is also faster than `F.linear`.)
    """
    if weight.dim() > 2 and x.shape[:-2] != weight.shape[:-2]:
        product = x @ weight.mT
        return product if bias is None else product + bias.unsqueeze(-2)
    rows, per_replica = by_replica(x, weight), weight.reshape(-1, *weight.shape[-2:]).mT
    if bias is None:
        mapped = torch.bmm(rows, per_replica)
    else:
        mapped = torch.baddbmm(bias.reshape(len(rows), 1, -1), rows, per_replica)
    return mapped.view(*x.shape[:-1], weight.shape[-2])


def by_replica(x: Tensor, weight: Tensor) -> Tensor:
    """Lay x (..., rows, features) out as (replicas, rows, features) for a weight's replicas."""
    return x.reshape(math.prod(weight.shape[:-2]), -1, x.shape[-1])


def rows_over_time(x: Tensor) -> Tensor:
    """Lay (..., batch, time, features) out as (..., time * batch, features); mostly a view."""
    return x.transpose(-3, -2).flatten(-3, -2)


def linear_over_time(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return the linear map of every step of x (..., batch, time, in) as one matrix product."""
    rows = linear(rows_over_time(x), weight, bias)
    by_step: Tensor = rows.unflatten(-2, (x.shape[-2], x.shape[-3]))
    return by_step.transpose(-3, -2)


def embed(ids: Tensor, weight: Tensor) -> Tensor:
    """Return the rows `ids` (..., batch, time) of weight (..., rows, features)."""
    replicas, rows = weight.shape[:-2], weight.shape[-2]
    first_row = torch.arange(replicas.numel(), device=ids.device).view(*replicas, 1, 1) * rows
    table = weight.flatten(0, -2)
    return F.embedding((ids + first_row).transpose(-2, -1), table).transpose(-3, -2)


def uniform(shape: tuple[int, ...], bound: float, *key: object) -> Tensor:
    """Draw U(-bound, bound) in float64 from the generator of `key`."""
    return torch.from_numpy(keyed_generator(*key).uniform(-bound, bound, shape))


class Layer(nn.Module, ABC):
    """A module with parameters of its own, drawn by `draw`."""

    @abstractmethod
    def draw(self, seed: int, name: str) -> None:
        """Fill the parameters of the layer called `name` from generators keyed by `seed`."""


class Embedding(Layer):
    """One row a symbol, drawn from N(0, 1) as in `torch.nn.Embedding`."""

    def __init__(self, rows: int, features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(rows, features))

    def draw(self, seed: int, name: str) -> None:
        generator = keyed_generator(seed, f"{name}.weight")
        normal = generator.standard_normal(tuple(self.weight.shape))
        _fill(self.weight, torch.from_numpy(np.asarray(normal)))

    def forward(self, ids: Tensor) -> Tensor:
        """Return (..., batch, time, features) of ids (..., batch, time)."""
        return embed(ids, self.weight)


class Linear(Layer):
    """x W^T + b over time, drawn from U(-1/sqrt(in), 1/sqrt(in)) as in `torch.nn.Linear`."""

    def __init__(self, inputs: int, outputs: int, *, bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs))
        self.bias = nn.Parameter(torch.empty(outputs)) if bias else None

    def draw(self, seed: int, name: str) -> None:
        bound = self.weight.shape[-1] ** -0.5
        for suffix, parameter in self.named_parameters(recurse=False):
            shape = tuple(parameter.shape)
            _fill(parameter, uniform(shape, bound, seed, f"{name}.{suffix}"))

    def forward(self, x: Tensor) -> Tensor:
        """Return (..., batch, time, out) of x (..., batch, time, in)."""
        return linear_over_time(x, self.weight, self.bias)


class Readout(Linear):
    """A linear layer with few outputs, such as symbols; what it returns has each in one piece.

    That order makes a softmax over the symbols ten times faster, and the gradient of the weights
    five times.
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, bias=True)

    def forward(self, x: Tensor) -> Tensor:
        """Return (..., batch, time, out) of x (..., batch, time, in)."""
        assert self.bias is not None
        replicas, features = self.weight.shape[:-2], self.weight.shape[-2:]
        if replicas and x.shape[:-3] != replicas:
            return super().forward(x)
        rows = by_replica(rows_over_time(x), self.weight)
        weight, bias = self.weight.reshape(-1, *features), self.bias.reshape(len(rows), -1, 1)
        by_output = torch.baddbmm(bias, weight, rows.mT)
        shape = *x.shape[len(replicas) : -3], x.shape[-2], x.shape[-3]
        y: Tensor = by_output.view(*replicas, features[0], *shape)
        return y.movedim(len(replicas), -1).transpose(-3, -2)


class Scale(Layer):
    """One learnt factor, which starts at 1; its weight is (..., 1, 1)."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(1, 1))

    def draw(self, seed: int, name: str) -> None:
        _fill(self.weight, torch.ones(1, 1))

    def forward(self, x: Tensor) -> Tensor:
        """Return (..., batch, time, features) times the factor."""
        return x * self.weight.unsqueeze(-3)


def draw_parameters(model: nn.Module, seed: int) -> None:
    """Draw every layer of `model` for `seed`; independent of order, dtype and the other layers."""
    for name, module in model.named_modules():
        if isinstance(module, Layer):
            module.draw(seed, name)


@torch.no_grad()
def _fill(parameter: nn.Parameter, drawn: Tensor) -> None:
    parameter.copy_(drawn)
