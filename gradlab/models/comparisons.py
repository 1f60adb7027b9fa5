"""One query after the other against all keys: the inner loop of attention, with its adjoint.

A decoder that attends asks one query at a time, and the gradient comes back one query at a time, in
the opposite order. A comparison holds the keys of one pass and answers both ways:

    e = scores(q)             q (replicas, rows, features) -> e (replicas, rows, n)
    dL/dq = pull_back(q, g)   g = dL/de, (replicas, rows, n)
    gradients()               dL/dkeys and dL/dweights, summed over all queries pulled back so far

keys: (replicas, rows, n, features). Weights: (replicas, ...). Forward passes and backward passes
use a comparison of their own each; nothing here is seen by autograd.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from gradlab.models.rows import Rows, as_rows, steps


class Comparison(ABC):
    """Scores of one query after the other against the same keys."""

    @abstractmethod
    def scores(self, query: Tensor, out: Tensor) -> Tensor:
        """Return the scores of one query, in `out`."""

    @abstractmethod
    def pull_back(self, query: Tensor, g: Tensor, out: Tensor) -> Tensor:
        """Return dL/dquery in `out` for g = dL/dscores; add this query's part to the others."""

    @abstractmethod
    def gradients(self) -> tuple[Tensor, ...]:
        """Return dL/dkeys and dL/dweights."""


def unit(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return x / |x| on the last axis, and |x| (..., 1), which passes no gradient on.

    Where x is 0 they are 0 and infinity, and the gradient is 0. Nothing small is squared.
    """
    largest = x.detach().abs().amax(-1, keepdim=True)
    scale = torch.where(largest == 0, torch.inf, largest)
    scaled = x / scale
    size = scaled.square().sum(-1, keepdim=True).clamp(min=1).sqrt()  # 1 at least, unless x is 0
    return scaled / size, scale * size.detach()


class Product(Comparison):
    """e_i = q . k_i."""

    def __init__(self, keys: Tensor) -> None:
        self.keys = keys.flatten(0, 1)
        self.shape = keys.shape
        self.queries: list[Tensor] = []
        self.g: list[Tensor] = []

    def scores(self, query: Tensor, out: Tensor) -> Tensor:
        torch.bmm(as_rows(query), self.keys.mT, out=as_rows(out))
        return out

    def pull_back(self, query: Tensor, g: Tensor, out: Tensor) -> Tensor:
        self.queries.append(query)
        self.g.append(g)
        torch.bmm(as_rows(g), self.keys, out=as_rows(out))
        return out

    def gradients(self) -> tuple[Tensor, ...]:
        g, queries = (torch.stack(part, 2).flatten(0, 1) for part in (self.g, self.queries))
        return (torch.bmm(g.mT, queries).view(self.shape),)


class Cosine(Product):
    """e_i = k_i . u with u = q / |q|, and 0 where q is 0.

    dL/dq = (d - (u . d) u) / |q| with d = dL/du = sum_i g_i k_i
    """

    def scores(self, query: Tensor, out: Tensor) -> Tensor:
        return super().scores(unit(query)[0], out)

    def pull_back(self, query: Tensor, g: Tensor, out: Tensor) -> Tensor:
        direction, size = unit(query)
        super().pull_back(direction, g, out)
        along = (direction * out).sum(-1, keepdim=True)
        return out.addcmul_(direction, along, value=-1).div_(size)


class First(Comparison):
    """e_i = q_i for the first n features of the query: the keys only say how many there are."""

    def __init__(self, keys: Tensor) -> None:
        self.keys = keys

    def scores(self, query: Tensor, out: Tensor) -> Tensor:
        return out.copy_(query[..., : self.keys.shape[-2]])

    def pull_back(self, query: Tensor, g: Tensor, out: Tensor) -> Tensor:
        out.zero_()[..., : self.keys.shape[-2]] = g
        return out

    def gradients(self) -> tuple[Tensor, ...]:
        return (torch.zeros_like(self.keys),)


class Additive(Comparison):
    """e_i = v . tanh(k_i + q); the n x features activations are computed again on the way back.

    With r = 1 / (1 + exp(2 (k_i + q))): tanh = 1 - 2 r and 1 - tanh^2 = 4 (r - r^2), so

        dL/dq = 4 v sum_i g_i (r - r^2)   dL/dk_i = 4 v g_i (r - r^2)   dL/dv = sum_i g_i (1 - 2 r)

    exp(2 k_i) exp(2 q) is exp(2 (k_i + q)): the exponentials of the keys are taken once and a query
    costs a product and a reciprocal, ten times faster than a tanh. Where one of the two could leave
    the range of the dtype, the sigmoid of the sum is taken instead.
    """

    def __init__(self, queries: int, keys: Tensor, energy: Tensor) -> None:
        """Take the number of queries to come, keys (R, rows, n, F) and energy v (R, 1, F)."""
        self.keys, self.energy = keys, energy
        self.whole, self.four = energy.sum(-1, keepdim=True), 4 * energy
        self.limit = math.log(torch.finfo(keys.dtype).max) / 2 - 1
        worth_it = queries > 1 and float(keys.abs().max()) < self.limit
        self.powers = torch.exp(keys + keys) if worth_it else None
        self.d_keys, self.d_energy = torch.zeros_like(keys), torch.zeros_like(energy)
        self.one, self.r = keys.new_ones(1), torch.empty_like(keys)

    def reflected(self, query: Tensor) -> Tensor:
        """Return r, (R, rows, n, F), to be used before the next query's."""
        if self.powers is None or not float(query.abs().max()) < self.limit:
            return torch.add(self.keys, query.unsqueeze(-2), out=self.r).mul_(-2).sigmoid_()
        power = torch.exp(query + query).unsqueeze(-2)
        return torch.addcmul(self.one, self.powers, power, out=self.r).reciprocal_()

    def scores(self, query: Tensor, out: Tensor) -> Tensor:
        r = self.reflected(query).flatten(1, 2)
        for whole, r_of, v, e in zip(self.whole, r, self.energy, out.flatten(1), strict=True):
            torch.addmv(whole[0], r_of, v[0], alpha=-2, out=e)  # by replica: the same bits alone
        return out

    def pull_back(self, query: Tensor, g: Tensor, out: Tensor) -> Tensor:
        r, row = self.reflected(query), g.flatten(1).unsqueeze(-2)
        self.d_energy += row.sum(-1, keepdim=True)
        for d, r_of, g_of in zip(self.d_energy, r.flatten(1, 2), row, strict=True):
            d[0].addmv_(r_of.mT, g_of[0], alpha=-2)
        slope = r.addcmul_(r, r, value=-1)
        self.d_keys.addcmul_(slope, g.unsqueeze(-1))
        torch.bmm(as_rows(g), slope.flatten(0, 1), out=as_rows(out))
        return out.mul_(self.four)

    def gradients(self) -> tuple[Tensor, ...]:
        return self.d_keys.mul_(self.four.unsqueeze(-2)), self.d_energy


class ByAutograd(Comparison):
    """Any score, differentiated by autograd one query at a time: slower, and nothing to derive.

    score: what takes queries (replicas, rows, 1, features), keys and weights to scores
        (replicas, rows, 1, n).
    """

    def __init__(self, score: Callable[..., Tensor], keys: Tensor, *weights: Tensor) -> None:
        self.score = score
        self.inputs = tuple(part.detach().requires_grad_() for part in (keys, *weights))
        self.sums = [torch.zeros_like(part) for part in self.inputs]

    def scores(self, query: Tensor, out: Tensor) -> Tensor:
        return out.copy_(self.score(query.unsqueeze(-2), *self.inputs).squeeze(-2))

    def pull_back(self, query: Tensor, g: Tensor, out: Tensor) -> Tensor:
        with torch.enable_grad():
            asked = query.detach().requires_grad_()
            scores = self.score(asked.unsqueeze(-2), *self.inputs).squeeze(-2)
        wanted = (asked, *self.inputs)
        found = torch.autograd.grad(scores, wanted, g, materialize_grads=True)
        for total, part in zip(self.sums, found[1:], strict=True):
            total += part
        return out.copy_(found[0])

    def gradients(self) -> tuple[Tensor, ...]:
        return tuple(self.sums)


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
