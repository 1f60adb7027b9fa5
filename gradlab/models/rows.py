"""How a hand-written loop over time sees its tensors: (time, replicas, rows, features).

To the reader a sequence is (..., batch, time, features) and a weight (..., out, in), whose leading
axes, if any, are replicas. A loop has time first, so that each step lies in one piece of memory,
then the replicas, one unless weights are stacked, and then the rows that share a replica's weights:
the batch, or the batch once for every signal that is pulled back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from gradlab.models.counted import Counted

Edge = Callable[[Tensor], Tensor]
Gradients = tuple[Tensor | None, ...]


def time_first(x: Tensor) -> Tensor:
    """View (..., batch, time, features) as (time, ..., batch, features)."""
    return x.movedim(-2, 0)


def time_last(x: Tensor) -> Tensor:
    """View (time, ..., batch, features) as (..., batch, time, features)."""
    return x.movedim(0, -2)


def steps(parts: tuple[Tensor, ...]) -> list[tuple[Tensor, ...]]:
    """Return tensors that are time first as one tuple a step; views, which may be filled."""
    return list(zip(*(part.unbind() for part in parts), strict=True))


def room_for_steps(like: Tensor, length: int, replicas: int, *sizes: int) -> Tensor:
    """Return a tensor (time, replicas, ...) to be filled, each replica in one piece of memory."""
    return like.new_empty(replicas, length, *sizes).transpose(0, 1)


def by_replica(x: Tensor) -> Tensor:
    """Return (time, replicas, rows, features) as (replicas, time * rows, features)."""
    return x.transpose(0, 1).flatten(1, 2)


def weight_gradients(d: Tensor, x: Tensor) -> Tensor:
    """Return dL/dW of y = x W^T at every step, d = dL/dy, as one product, (replicas, out, in).

    d: (time, replicas, rows, out), x: (time, replicas, rows, in).
    """
    return torch.bmm(by_replica(d).mT, by_replica(x))


def bias_gradients(d: Tensor) -> Tensor:
    """Return dL/db of y = x W^T + b at every step, d = dL/dy, (replicas, out)."""
    return by_replica(d).sum(1)


def as_rows(x: Tensor) -> Tensor:
    """View (..., replicas, rows, features) as the matrices (..., replicas * rows, 1, features)."""
    return x.view(*x.shape[:-3], -1, 1, x.shape[-1])


def by_example(x: Tensor, matrices: Tensor, out: Tensor) -> Tensor:
    """Return in `out` x_b M_b for every example b, and for every signal the same M_b.

    x: (replicas, signals * examples, in), M: (replicas, examples, in, out features).
    """
    examples = matrices.shape[1]
    if x.shape[1] == examples:
        torch.bmm(as_rows(x), matrices.flatten(0, 1), out=as_rows(out))
        return out
    by_b, to_b = (
        part.view(len(part), -1, examples, part.shape[-1]).transpose(1, 2) for part in (x, out)
    )
    for of_replica, matrix, product in zip(by_b, matrices, to_b, strict=True):
        multiply(of_replica, matrix, out=product)
    return out


def multiply(a: Tensor, b: Tensor, out: Tensor) -> None:
    """Fill `out` with the products of matrices a and b, (batch, ...); it may lie in any order."""
    if out.is_contiguous():
        torch.bmm(a, b, out=out)
    else:
        out.copy_(torch.bmm(a, b))  # `out=` would go one matrix after the other


def map_steps(x: Tensor, weight: Tensor) -> Tensor:
    """Return x W^T at every step, as one product; x (time, replicas, rows, in), W by replica."""
    mapped = torch.bmm(by_replica(x), weight.mT)
    by_step: Tensor = mapped.unflatten(1, (len(x), -1))
    return by_step.transpose(0, 1).contiguous()


def value_gradients(alpha: Tensor, d_context: Tensor) -> Tensor:
    """Return dL/dvalues (replicas, rows, n, features) of contexts alpha v, as one product.

    alpha: (time, replicas, rows, n), d_context: dL/dcontext (time, replicas, rows, features).
    """
    alpha, d_context = (part.permute(1, 2, 3, 0) for part in (alpha, d_context))
    return alpha @ d_context.mT


def given(tensor: Tensor | None) -> Tensor:
    """Return a tensor that must be there."""
    assert tensor is not None
    return tensor


def shaped_as(gradients: Sequence[Tensor | None], tensors: Sequence[Tensor | None]) -> Gradients:
    """Return gradients by replica in the shapes of their tensors; None stays None."""
    pairs = zip(gradients, tensors, strict=True)
    return tuple(None if d is None else d.reshape(given(tensor).shape) for d, tensor in pairs)


class Rows:
    """The layout of one loop: (..., batch) axes as (replicas, rows), and back.

    With counted edges the first axis is one of signals that gradients are pulled back by. All of
    them read the same, so a forward pass is made of one, and `each` repeats what it kept.
    """

    def __init__(self, batch: torch.Size, weight: Tensor, counted: Counted | None = None) -> None:
        """Take the (..., batch) sizes of what is computed, and a weight (..., out, in)."""
        stacked = self.stacked = weight.dim() - 2
        signals = len(batch) - 1 - stacked
        self.batch, self.replicas = batch, weight.shape[:-2].numel()
        self.signals, self.counted = batch[:signals].numel(), counted
        self.count = self.signals * batch[-1]
        self.order = (*range(signals, signals + stacked), *range(signals), len(batch) - 1)
        self.forward = self if counted is None else Rows(batch[1:], weight)

    def once(self, x: Tensor) -> Tensor:
        """Return what a forward pass takes of a tensor (..., batch, ...)."""
        return x if self.counted is None else x[0]

    def every(self, x: Tensor) -> Tensor:
        """Return an output of a forward pass, (..., batch, ...), for all signals."""
        return x if self.counted is None else x.expand(self.batch[0], *x.shape)

    def each(self, parts: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Return what a forward pass kept, (time, replicas, rows, ...), for all signals."""
        if self.counted is None:
            return parts
        return tuple(
            x.unsqueeze(2).expand(-1, -1, self.signals, *x.shape[2:]).flatten(2, 3) for x in parts
        )

    def weight(self, weight: Tensor) -> Tensor:
        """Return a weight with its own replicas' axes in front as (replicas, ...)."""
        return weight.reshape(self.replicas, *weight.shape[self.stacked :])

    def split(self, x: Tensor) -> Tensor:
        """Return (..., batch, features) as (replicas, rows, features), in one piece of memory."""
        axes = (*self.order, *range(len(self.batch), x.dim()))
        rows = x.permute(axes).reshape(self.replicas, -1, *x.shape[len(self.batch) :])
        return rows.contiguous()

    def join(self, x: Tensor) -> Tensor:
        """Undo `split`."""
        wide = x.reshape(*(self.batch[axis] for axis in self.order), *x.shape[2:])
        back = [self.order.index(axis) for axis in range(len(self.batch))]
        return wide.permute(*back, *range(len(self.batch), wide.dim()))

    def split_steps(self, x: Tensor) -> Tensor:
        """Return (..., batch, time, features) as (time, replicas, rows, features)."""
        axes = (len(self.batch), *self.order, *range(len(self.batch) + 1, x.dim()))
        rows = x.permute(axes)
        shape = len(rows), self.replicas, -1, *x.shape[len(self.batch) + 1 :]
        return rows.reshape(shape).contiguous()

    def join_steps(self, x: Tensor) -> Tensor:
        """Undo `split_steps`."""
        return self.join(x.movedim(0, 2))

    def crossings(self) -> tuple[Edge, Edge]:
        """Return what gradients (replicas, rows, features) cross: edges of time, and of queries."""
        if self.counted is None:
            return _same, _same
        return partial(self.cross, self.counted.time), partial(self.cross, self.counted.query)

    def cross(self, edge: Edge, d: Tensor) -> Tensor:
        """Return what `edge`, which takes signals first, does to d (replicas, rows, features)."""
        by_signal = d.unflatten(1, (self.signals, -1)).transpose(0, 1)
        return edge(by_signal).transpose(0, 1).flatten(1, 2)


def _same(d: Tensor) -> Tensor:
    return d
