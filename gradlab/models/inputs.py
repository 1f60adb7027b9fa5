"""The projected inputs of a layer; a loop over time takes and gives them a few steps at a time.

Where a layer reads symbols, the projected input of a step is a row of a small table. The rows are
looked up as the loop comes to them, and on the way back added up there, so that the projected
inputs of all steps and their gradients, the largest tensors of a pass, never stand in memory.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from gradlab.models.layers import embed
from gradlab.models.rows import Rows, by_replica

CACHED = 2**17
"""How many numbers of a tensor, of one replica, are worked on at a time to stay in the cache."""


@dataclass(frozen=True)
class Projected:
    """The projected input of every step of a layer.

    rows: (..., batch, time, features) without ids, else the table (..., symbols, features).
    ids: which row each step reads, (..., batch, time).
    """

    rows: Tensor
    ids: Tensor | None = None

    @property
    def batch(self) -> torch.Size:
        """The sizes (..., batch)."""
        if self.ids is None:
            return self.rows.shape[:-2]
        shapes = self.ids.shape[:-1], (*self.rows.shape[:-2], 1)
        return torch.Size(torch.broadcast_shapes(*shapes))

    def full(self) -> Tensor:
        """Return the projected inputs, (..., batch, time, features)."""
        return self.rows if self.ids is None else embed(self.ids, self.rows)

    def expand(self, *batch: int) -> Projected:
        """Return the same for more (..., batch), each of which reads the same."""
        if self.ids is None:
            return Projected(self.rows.expand(*batch, *self.rows.shape[-2:]))
        return Projected(self.rows, self.ids.expand(*batch, self.ids.shape[-1]))


def blocks(step: Tensor, length: int, least: int = 0) -> list[slice]:
    """Return slices of `length` steps to work on; step: what one takes, (replicas, ...).

    least: how many numbers are worked on at a time where that is more than `CACHED`.
    """
    size = max(1, max(CACHED, least) // step[0].numel())
    return [slice(at, min(at + size, length)) for at in range(0, length, size)]


def laid_out(rows: Rows, ids: Tensor, symbols: int) -> Tensor:
    """Return ids (..., batch, time) as places in all replicas' tables, (time, replicas, rows)."""
    first = symbols * torch.arange(rows.replicas, device=ids.device)
    return rows.split_steps(ids.unsqueeze(-1)).squeeze(-1) + first.unsqueeze(-1)


class Inputs:
    """Projected inputs, to be read forwards."""

    def __init__(self, rows: Rows, ids: Tensor | None, projected: Tensor) -> None:
        """Take the two tensors of a `Projected`."""
        if ids is None:
            self.ids, self.table = None, rows.forward.split_steps(rows.once(projected))
        else:
            self.ids = laid_out(rows.forward, rows.once(ids), projected.shape[-2])
            self.table = projected.reshape(-1, projected.shape[-1])

    def __len__(self) -> int:
        return len(self.table if self.ids is None else self.ids)

    def at(self, block: slice) -> Tensor:
        """Return the projected inputs of some steps, (time, replicas, rows, features), to be used.

        They may be overwritten.
        """
        if self.ids is None:
            return self.table[block].clone()
        return F.embedding(self.ids[block], self.table)


class Entering:
    """What stands in the gates of a step before its product with W_hh: p + b_hh, and b_hh apart."""

    def __init__(self, inputs: Inputs, bias: Tensor, gates: int, apart: int) -> None:
        """Take b_hh (replicas, features); the last `apart` gates take p and a not as a sum."""
        self.inputs, self.bias = inputs, bias.unsqueeze(-2)
        self.sums = bias.shape[-1] // gates * (gates - apart)
        if inputs.ids is not None:
            table = inputs.table.view(len(bias), -1, bias.shape[-1])
            self.start = self.add(table, torch.empty_like(table)).flatten(0, 1)
            self.apart = inputs.table[..., self.sums :].contiguous()

    def add(self, p: Tensor, out: Tensor) -> Tensor:
        """Fill `out`, (..., replicas, rows, features), with p + b_hh; in the gates apart b_hh."""
        torch.add(p, self.bias, out=out)
        out[..., self.sums :] = self.bias[..., self.sums :]
        return out

    def fill(self, block: slice, out: Tensor) -> Tensor:
        """Fill `out`, (time, replicas, rows, features), for some steps; return p apart."""
        if self.inputs.ids is None:
            p = self.inputs.table[block]
            self.add(p, out)
            return p[..., self.sums :]
        ids = self.inputs.ids[block]
        torch.index_select(self.start, 0, ids.flatten(), out=out.view(-1, out.shape[-1]))
        return F.embedding(ids, self.apart) if self.apart.numel() else out[..., self.sums :]


class Gathered:
    """What comes back to projected inputs, gathered from the last steps of a loop to the first."""

    def __init__(
        self, rows: Rows, ids: Tensor | None, shape: torch.Size, steps: int, like: Tensor
    ) -> None:
        """Take the ids and the shape of the rows of a `Projected`, and the number of steps."""
        self.rows, self.shape, self.ids = rows, shape, None
        if ids is None:
            self.d = like.new_empty(steps, rows.replicas, rows.count, shape[-1])
        else:
            self.ids = laid_out(rows, ids, shape[-2])
            self.d = like.new_zeros(shape[:-1].numel(), shape[-1])

    def add(self, block: slice, dp: Tensor) -> None:
        """Take the gradients of some steps, (time, replicas, rows, features)."""
        if self.ids is None:
            self.d[block] = dp
            return
        ids, d = self.ids[block].transpose(0, 1).flatten(), by_replica(dp).flatten(0, 1)
        if d.is_cuda:  # where `index_add_` adds in any order
            self.d += torch.ops.aten.embedding_dense_backward(d, ids, len(self.d), -1, False)
        else:
            self.d.index_add_(0, ids, d)

    def gradient(self) -> Tensor:
        """Return the gradient of the rows of the `Projected`."""
        return self.rows.join_steps(self.d) if self.ids is None else self.d.view(self.shape)
