"""Additive scores v . tanh(k_i + q): one query after the other, and all queries at once."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from gradlab.models.comparisons import Comparison
from gradlab.models.rows import Rows, multiply, steps
from gradlab.models.unrecorded import unrecorded


class Additive(Comparison):
    """e_i = v . tanh(k_i + q); n x F activations are computed again on the way back.

    With A = exp(2 k_i), B = exp(-2 q), r = B / (A + B): tanh = 1 - 2 r, 1 - tanh^2 = 4 (r - r^2),

        dL/dq = 4 v sum_i g_i (r - r^2)   dL/dk_i = 4 v g_i (r - r^2)   dL/dv = sum_i g_i (1 - 2 r)

    A is taken once for all queries; each then costs a sum and a quotient, ten times faster than a
    tanh. What is n x F is done one replica after the other, in the same cache.
    """

    def __init__(self, queries: int, keys: Tensor, energy: Tensor) -> None:
        """Take the number of queries to come, keys (R, rows, n, F) and energy v (R, 1, F)."""
        r = keys.new_empty(keys.shape[1:])
        self.replicas, self.r = [Reflected(queries, k, r) for k in keys], r.flatten(0, 1)
        self.alike = len({reflected.exponential for reflected in self.replicas}) == 1
        self.rows, self.v, self.four = keys.shape[1], energy.flatten(1), 4 * energy
        self.whole, self.each_v = self.v.sum(-1).unbind(), self.v.unbind()
        self.forget()

    def forget(self) -> None:
        self.sums: tuple[Tensor, ...] = ()  # over queries: of g, g r and g (r - r^2)
        self.of_each: list[tuple[Tensor, ...]] = []  # the last two, of each replica

    def prepare(self, query: Tensor) -> Tensor:
        prepared = query * -2
        parts = (prepared,) if self.alike else prepared.unbind(-3)
        for reflected, q in zip(self.replicas, parts, strict=False):
            reflected.prepare_(q)
        return prepared

    def scores(self, query: Tensor, out: Tensor) -> Tensor:
        parts = self.whole, self.each_v, self.each(query), self.each(out)
        for reflected, whole, v, q, e in zip(self.replicas, *parts, strict=True):
            reflected.at(q)
            torch.addmv(whole, self.r, v, alpha=-2, out=e.view(-1))
        return out

    def each(self, x: Tensor) -> tuple[Tensor, ...]:
        """View x, (replicas, signals * rows, features), as (rows, signals, features) of each."""
        if x.shape[1] > self.rows:
            by_signal = x.view(len(x), -1, self.rows, x.shape[-1])
            return by_signal.transpose(1, 2).unbind()
        alone, size = len(x) == 1, (self.rows, 1, x.shape[-1])
        return (x.view(size),) if alone else x.view(-1, *size).unbind()

    def pull_back(self, query: Tensor, g: Tensor, out: Tensor) -> Tensor:
        """Return dL/dquery in `out` for g = dL/dscores, of one signal or several."""
        if not self.sums:
            self.sums = self.room(g, out.shape[-1])
            self.of_each = list(zip(*(part.unbind() for part in self.sums[1:]), strict=True))
        if self.weighs:
            self.sums[0].add_(g)
        asked = query if g.shape[1] == self.rows else query[:, : self.rows]
        parts = self.each(asked), self.each(g), self.each(out), self.of_each
        for reflected, q, g_r, to_q, (r_sum, slope_sum) in zip(self.replicas, *parts, strict=True):
            r = reflected.at(q)
            if self.weighs:
                r_sum.baddbmm_(g_r, r)
            slope = r.addcmul_(r, r, value=-1)
            slope_sum.addcmul_(slope, g_r.transpose(0, 1).unsqueeze(-1))
            multiply(g_r, slope, out=to_q)
        return out.mul_(self.four)

    def room(self, g: Tensor, features: int) -> tuple[Tensor, ...]:
        """Return zeros for the sums of g, of g r, rows first, and of g (r - r^2), signals first."""
        replicas, wide, n = g.shape
        signals = wide // self.rows
        of_r, of_slope = (self.rows, signals), (signals, self.rows, n)
        sizes = g.shape, (replicas, *of_r, features), (replicas, *of_slope, features)
        return tuple(g.new_zeros(size) for size in sizes)

    def gradients(self) -> tuple[Tensor, ...]:
        of_g, of_r, of_slope = self.sums
        d_keys = of_slope.flatten(1, 2).mul_(self.four.unsqueeze(1))
        d_energy = of_g.sum((1, 2)).unsqueeze(-1) - 2 * of_r.sum((1, 2))
        return d_keys, d_energy.unsqueeze(1)


class Reflected:
    """r = (1 - tanh(k_i + q)) / 2 of one replica, for one query after the other.

    B is bounded: where it is huge, tanh is -1 in every digit whatever the key. Where a key is so
    large that this would not hold, r = sigmoid(-2 k_i - 2 q) is taken instead.
    """

    def __init__(self, queries: int, keys: Tensor, room: Tensor) -> None:
        """Take the number of queries, keys (rows, n, F) and room for r."""
        self.room = room
        self.largest = math.log(torch.finfo(keys.dtype).max) - 1  # that an exponent may be
        self.exponential = queries > 1 and float(keys.abs().max()) < self.largest / 4
        self.of_keys = torch.exp(keys + keys) if self.exponential else keys * -2

    def prepare_(self, query: Tensor) -> None:
        """Make B of -2 q, if it is used."""
        if self.exponential:
            query.clamp_(max=self.largest).exp_()

    def at(self, query: Tensor) -> Tensor:
        """Return r, (rows, n, F), to be used before the next query's; query (rows, 1, F)."""
        r = torch.add(self.of_keys, query, out=self.room)
        return torch.div(query, r, out=r) if self.exponential else r.sigmoid_()


class AdditiveScores(torch.autograd.Function):
    """Additive scores (..., batch, k, n) of all queries at once, one target step at a time."""

    @staticmethod
    @unrecorded()
    def forward(ctx: Any, query: Tensor, keys: Tensor, energy: Tensor) -> Tensor:
        rows = ctx.rows = Rows(query.shape[:-2], energy)
        ctx.save_for_backward(query, energy)
        comparison = Additive(query.shape[-2], rows.split(keys), rows.weight(energy))
        ctx.comparison, asked = comparison, comparison.prepare(rows.split_steps(query))
        scores = asked.new_empty(*asked.shape[:-1], keys.shape[-2])
        for q, e in steps((asked, scores)):
            comparison.scores(q, out=e)
        return rows.join_steps(scores)

    @staticmethod
    @once_differentiable
    @unrecorded()
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, ...]:
        rows: Rows = ctx.rows
        comparison: Additive = ctx.comparison
        query, energy = ctx.saved_tensors
        comparison.forget()
        asked = comparison.prepare(rows.split_steps(query))
        d_query = torch.empty_like(asked)
        for q, g_j, d_q in steps((asked, rows.split_steps(g), d_query)):
            comparison.pull_back(q, g_j, out=d_q)
        d_keys, d_energy = comparison.gradients()
        return rows.join_steps(d_query), rows.join(d_keys), d_energy.view(energy.shape)
