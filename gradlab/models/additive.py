"""Additive scores v . tanh(k_i + q): one query after the other, and all queries at once."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from gradlab.models.comparisons import Comparison
from gradlab.models.rows import Rows, by_example, steps


class Additive(Comparison):
    """e_i = v . tanh(k_i + q), one replica after the other: each as alone, in the same cache."""

    def __init__(self, queries: int, keys: Tensor, energy: Tensor) -> None:
        """Take the number of queries to come, keys (R, rows, n, F) and energy v (R, 1, F)."""
        r = torch.empty_like(keys[:1])
        each = zip(keys.split(1), energy.split(1), strict=True)
        self.replicas = [Tanhs(queries, k, v, r) for k, v in each]

    def scores(self, query: Tensor, out: Tensor) -> Tensor:
        for tanhs, q, e in zip(self.replicas, query.split(1), out.split(1), strict=True):
            tanhs.scores(q, out=e)
        return out

    def pull_back(self, query: Tensor, g: Tensor, out: Tensor) -> Tensor:
        parts = query.split(1), g.split(1), out.split(1)
        for tanhs, q, d, back in zip(self.replicas, *parts, strict=True):
            tanhs.pull_back(q, d, out=back)
        return out

    def gradients(self) -> tuple[Tensor, ...]:
        found = [tanhs.gradients() for tanhs in self.replicas]
        return tuple(torch.cat(parts) for parts in zip(*found, strict=True))


class Tanhs:
    """The additive scores of one replica; n x F activations are computed again on the way back.

    With A = exp(2 k_i), B = exp(-2 q), r = B / (A + B): tanh = 1 - 2 r, 1 - tanh^2 = 4 (r - r^2),

        dL/dq = 4 v sum_i g_i (r - r^2)   dL/dk_i = 4 v g_i (r - r^2)   dL/dv = sum_i g_i (1 - 2 r)

    A is taken once for all queries; each then costs a sum and a quotient, ten times faster than a
    tanh. B is bounded: where it is huge, tanh is -1 in every digit whatever the key. Where a key
    is so large that this would not hold, the sigmoid of the sum is taken instead.
    """

    def __init__(self, queries: int, keys: Tensor, energy: Tensor, r: Tensor) -> None:
        """Take the number of queries, keys (1, rows, n, F), v (1, 1, F) and room for r."""
        self.keys, self.r, self.v = keys, r, energy.flatten()
        self.whole, self.four = self.v.sum(), 4 * self.v
        self.largest = math.log(torch.finfo(keys.dtype).max) - 1  # that an exponent may be
        worth_it = queries > 1 and float(keys.abs().max()) < self.largest / 4
        self.powers = torch.exp(keys + keys) if worth_it else None
        self.sums: tuple[Tensor, ...] = ()  # over queries: of g, g r and g (r - r^2)

    def reflected(self, query: Tensor) -> Tensor:
        """Return r, (1, rows, n, F), to be used before the next query's."""
        query = query.unsqueeze(-2)
        if self.powers is None:
            return torch.add(self.keys, query, out=self.r).mul_(-2).sigmoid_()
        power = (query * -2).clamp_(max=self.largest).exp_()
        return torch.div(power, torch.add(self.powers, power, out=self.r), out=self.r)

    def scores(self, query: Tensor, out: Tensor) -> None:
        """Fill `out` with the scores of one query."""
        r = self.reflected(query).flatten(0, 2)
        torch.addmv(self.whole, r, self.v, alpha=-2, out=out.view(-1))

    def pull_back(self, query: Tensor, g: Tensor, out: Tensor) -> None:
        """Fill `out` with dL/dquery for g = dL/dscores, of one signal or several."""
        rows, signals = self.keys.shape[1], g.shape[1] // self.keys.shape[1]
        if not self.sums:
            per_key = self.keys.new_zeros(signals, *self.keys.shape[1:])
            self.sums = torch.zeros_like(g), torch.zeros_like(out), per_key
        of_g, of_r, of_slope = self.sums
        r = self.reflected(query[:, :rows])
        of_g += g
        of_r += by_example(g, r, out)
        slope = r.addcmul_(r, r, value=-1)
        of_slope.addcmul_(slope, g.view(signals, rows, -1, 1))
        by_example(g, slope, out).mul_(self.four)

    def gradients(self) -> tuple[Tensor, Tensor]:
        """Return dL/dkeys (1, signals * rows, n, F) and dL/dv (1, 1, F)."""
        of_g, of_r, of_slope = self.sums
        d_energy = of_g.sum() - 2 * of_r.sum(1, keepdim=True)
        return of_slope.mul_(self.four).flatten(0, 1).unsqueeze(0), d_energy


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
        weights = rows.weight(energy)
        return Additive(query.shape[-2], rows.split(keys), weights), rows.split_steps(query)

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
