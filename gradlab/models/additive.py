"""Additive scores v . tanh(k_i + q): one query after the other, and all queries at once."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from gradlab.models.comparisons import Comparison
from gradlab.models.rows import Rows, steps


class Additive(Comparison):
    """e_i = v . tanh(k_i + q), one replica after the other: each as alone, in the same cache."""

    def __init__(self, queries: int, keys: Tensor, energy: Tensor) -> None:
        """Take the number of queries to come, keys (R, rows, n, F) and energy v (R, 1, F)."""
        r = torch.empty_like(keys[0])
        self.replicas = [Tanhs(queries, k, v, r) for k, v in zip(keys, energy, strict=True)]

    def prepare(self, query: Tensor) -> Tensor:
        prepared = query * -2
        for tanhs, q in zip(self.replicas, prepared.unbind(-3), strict=True):
            if tanhs.exponential:
                q.clamp_(max=tanhs.largest).exp_()
        return prepared

    def scores(self, query: Tensor, out: Tensor) -> Tensor:
        for tanhs, q, e in zip(self.replicas, query.unbind(), out.unbind(), strict=True):
            tanhs.scores(q, e)
        return out

    def pull_back(self, query: Tensor, g: Tensor, out: Tensor) -> Tensor:
        parts = query.unbind(), g.unbind(), out.unbind()
        for tanhs, q, d, back in zip(self.replicas, *parts, strict=True):
            tanhs.pull_back(q, d, back)
        return out

    def gradients(self) -> tuple[Tensor, ...]:
        found = [tanhs.gradients() for tanhs in self.replicas]
        return tuple(torch.stack(parts) for parts in zip(*found, strict=True))


class Tanhs:
    """The additive scores of one replica; n x F activations are computed again on the way back.

    With A = exp(2 k_i), B = exp(-2 q), r = B / (A + B): tanh = 1 - 2 r, 1 - tanh^2 = 4 (r - r^2),

        dL/dq = 4 v sum_i g_i (r - r^2)   dL/dk_i = 4 v g_i (r - r^2)   dL/dv = sum_i g_i (1 - 2 r)

    A is taken once for all queries; each then costs a sum and a quotient, ten times faster than a
    tanh. B is bounded: where it is huge, tanh is -1 in every digit whatever the key. Where a key
    is so large that this would not hold, r = sigmoid(-2 k_i - 2 q) is taken instead.
    """

    def __init__(self, queries: int, keys: Tensor, energy: Tensor, r: Tensor) -> None:
        """Take the number of queries, keys (rows, n, F), v (1, F) and room for r."""
        self.r, self.v = r, energy.flatten()
        self.whole, self.four = self.v.sum(), 4 * self.v
        self.largest = math.log(torch.finfo(keys.dtype).max) - 1  # that an exponent may be
        self.exponential = queries > 1 and float(keys.abs().max()) < self.largest / 4
        self.of_keys = torch.exp(keys + keys) if self.exponential else keys * -2
        self.sums: tuple[Tensor, ...] = ()  # over queries: of g, g r and g (r - r^2)

    def reflected(self, query: Tensor) -> Tensor:
        """Return r, (rows, n, F), of B or -2 q, to be used before the next query's."""
        query = query.unsqueeze(1)
        r = torch.add(self.of_keys, query, out=self.r)
        return torch.div(query, r, out=r) if self.exponential else r.sigmoid_()

    def scores(self, query: Tensor, out: Tensor) -> None:
        """Fill `out` with the scores of one query."""
        r = self.reflected(query).flatten(0, 1)
        torch.addmv(self.whole, r, self.v, alpha=-2, out=out.view(-1))

    def pull_back(self, query: Tensor, g: Tensor, out: Tensor) -> None:
        """Fill `out` with dL/dquery for g = dL/dscores, of one signal or several."""
        rows = len(self.r)
        by_row, to_query = (x.view(-1, rows, x.shape[-1]).transpose(0, 1) for x in (g, out))
        if not self.sums:
            shapes = g.shape, to_query.shape, (len(g) // rows, *self.r.shape)
            self.sums = tuple(g.new_zeros(shape) for shape in shapes)
        of_g, of_r, of_slope = self.sums
        r = self.reflected(query[:rows])
        of_g += g
        of_r.baddbmm_(by_row, r)
        slope = r.addcmul_(r, r, value=-1)
        of_slope.addcmul_(slope, g.view(-1, rows, g.shape[-1], 1))
        torch.bmm(by_row, slope, out=to_query)
        out.mul_(self.four)

    def gradients(self) -> tuple[Tensor, Tensor]:
        """Return dL/dkeys (signals * rows, n, F) and dL/dv (1, F)."""
        of_g, of_r, of_slope = self.sums
        d_energy = of_g.sum() - 2 * of_r.sum((0, 1))
        return of_slope.mul_(self.four).flatten(0, 1), d_energy.unsqueeze(0)


class AdditiveScores(torch.autograd.Function):
    """Additive scores (..., batch, k, n) of all queries at once, one target step at a time."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, keys: Tensor, energy: Tensor) -> Tensor:
        rows = ctx.rows = Rows(query.shape[:-2], energy)
        ctx.save_for_backward(query, keys, energy)
        comparison, asked = AdditiveScores.begin(ctx, query, keys, energy)
        scores = asked.new_empty(*asked.shape[:-1], keys.shape[-2])
        for q, e in steps((asked, scores)):
            comparison.scores(q, out=e)
        return rows.join_steps(scores)

    @staticmethod
    def begin(ctx: Any, query: Tensor, keys: Tensor, energy: Tensor) -> tuple[Additive, Tensor]:
        rows: Rows = ctx.rows
        comparison = Additive(query.shape[-2], rows.split(keys), rows.weight(energy))
        return comparison, comparison.prepare(rows.split_steps(query))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, ...]:
        rows: Rows = ctx.rows
        comparison, asked = AdditiveScores.begin(ctx, *ctx.saved_tensors)
        d_query = torch.empty_like(asked)
        for q, g_j, d_q in steps((asked, rows.split_steps(g).contiguous(), d_query)):
            comparison.pull_back(q, g_j, out=d_q)
        d_keys, d_energy = comparison.gradients()
        shape = ctx.saved_tensors[2].shape
        return rows.join_steps(d_query), rows.join(d_keys), d_energy.view(shape)
