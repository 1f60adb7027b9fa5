"""The rules that change weights: those of `torch.optim`, in their functional form.

The classes there import torch's compiler, which they do not use here and which takes a second and
70 MB in every process of a sweep. A test holds each rule against its class, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.optim.adam import adam
from torch.optim.rmsprop import rmsprop
from torch.optim.sgd import sgd

Rule = Callable[..., None]
"""Takes parameters, gradients, two running averages and counts of steps, a list of tensors each."""


class Optimizer:
    """A rule and what it remembers of each parameter."""

    def __init__(
        self, rule: Rule, parameters: Iterable[nn.Parameter], lr: float, weight_decay: float
    ) -> None:
        self.rule, self.parameters = rule, list(parameters)
        self.lr, self.weight_decay = lr, weight_decay
        first, second = ([torch.zeros_like(p) for p in self.parameters] for _ in range(2))
        steps = [torch.zeros((), device=p.device) for p in self.parameters]
        self.memory: Sequence[list[Tensor]] = first, second, steps

    @torch.no_grad()
    def step(self) -> None:
        """Change every parameter that has a gradient."""
        held = [i for i, p in enumerate(self.parameters) if p.grad is not None]
        parameters = [self.parameters[i] for i in held]
        memory = ([part[i] for i in held] for part in self.memory)
        lists = parameters, [p.grad for p in parameters], *memory
        self.rule(*lists, lr=self.lr, weight_decay=self.weight_decay)


def _adam(*lists: list[Tensor], decoupled: bool, lr: float, weight_decay: float) -> None:
    parameters, gradients, first, second, steps = lists
    adam(
        *(parameters, gradients, first, second, [], steps),
        lr=lr,
        weight_decay=weight_decay,
        decoupled_weight_decay=decoupled,
        beta1=0.9,
        beta2=0.999,
        eps=1e-8,
        amsgrad=False,
        maximize=False,
        fused=True,
    )


def _sgd(*lists: list[Tensor], lr: float, weight_decay: float) -> None:
    parameters, gradients, *_ = lists
    sgd(
        parameters,
        gradients,
        [None] * len(parameters),
        lr=lr,
        weight_decay=weight_decay,
        momentum=0.0,
        dampening=0.0,
        nesterov=False,
        maximize=False,
    )


def _rmsprop(*lists: list[Tensor], lr: float, weight_decay: float) -> None:
    parameters, gradients, first, _, steps = lists
    rmsprop(
        *(parameters, gradients, first, [], [], steps),
        lr=lr,
        weight_decay=weight_decay,
        alpha=0.99,
        eps=1e-8,
        momentum=0.0,
        centered=False,
    )


OPTIMIZERS: dict[str, Rule] = {
    "adam": partial(_adam, decoupled=False),  # Kingma and Ba 2015
    "sgd": _sgd,  # no momentum
    "rmsprop": _rmsprop,  # Tieleman and Hinton 2012; torch's smoothing, 0.99
    "adamw": partial(_adam, decoupled=True),  # Loshchilov and Hutter 2019
}
"""By name; what a rule does not take is torch's default."""
