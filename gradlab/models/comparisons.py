"""One query after the other against all keys: the inner loop of attention, with its adjoint.

A decoder that attends asks one query at a time, and the gradient comes back one query at a time, in
the opposite order. A comparison holds the keys of one pass and answers both ways:

    e = scores(q)             q (replicas, rows, features) -> e (replicas, rows, n)
    dL/dq = pull_back(q, g)   g = dL/de, (replicas, rows, n)
    gradients()               dL/dkeys and dL/dweights, summed over all queries pulled back so far

keys: (replicas, rows, n, features). Weights: (replicas, ...). Forward passes and backward passes
use a comparison of their own each; nothing here is seen by autograd.

Back may come several signals, all of which asked the same: then the rows of g and of dL/dq, and of
the query beside them, are those of the keys once for each signal, and so are those of dL/dkeys.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from gradlab.models.rows import Rows, as_rows, by_example, steps


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
        self.keys = keys
        self.queries: list[Tensor] = []
        self.g: list[Tensor] = []

    def scores(self, query: Tensor, out: Tensor) -> Tensor:
        torch.bmm(as_rows(query), self.keys.flatten(0, 1).mT, out=as_rows(out))
        return out

    def pull_back(self, query: Tensor, g: Tensor, out: Tensor) -> Tensor:
        self.queries.append(query)
        self.g.append(g)
        return by_example(g, self.keys, out)

    def gradients(self) -> tuple[Tensor, ...]:
        g, queries = (torch.stack(part, 2) for part in (self.g, self.queries))
        return (g.mT @ queries,)


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
        self.rows = keys.shape[1]

    def scores(self, query: Tensor, out: Tensor) -> Tensor:
        return out.copy_(query[..., : self.keys.shape[-2]])

    def pull_back(self, query: Tensor, g: Tensor, out: Tensor) -> Tensor:
        self.rows = g.shape[1]
        out.zero_()[..., : self.keys.shape[-2]] = g
        return out

    def gradients(self) -> tuple[Tensor, ...]:
        return (self.keys.new_zeros(len(self.keys), self.rows, *self.keys.shape[2:]),)


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


class ByAutograd(Comparison):
    """Any score, differentiated by autograd one query at a time: slower, and nothing to derive.

    score: what takes queries (replicas, rows, 1, features), keys and weights to scores
        (replicas, rows, 1, n).
    """

    def __init__(self, score: Callable[..., Tensor], keys: Tensor, *weights: Tensor) -> None:
        self.score = score
        self.inputs = tuple(part.detach().requires_grad_() for part in (keys, *weights))
        self.sums: tuple[Tensor, ...] = ()

    def scores(self, query: Tensor, out: Tensor) -> Tensor:
        return out.copy_(self.score(query.unsqueeze(-2), *self.inputs).squeeze(-2))

    def pull_back(self, query: Tensor, g: Tensor, out: Tensor) -> Tensor:
        if not self.sums:
            keys, *weights = self.inputs
            keys = keys.detach().repeat(1, g.shape[1] // keys.shape[1], 1, 1).requires_grad_()
            self.inputs = keys, *weights
            self.sums = tuple(map(torch.zeros_like, self.inputs))
        with torch.enable_grad():
            asked = query.detach().requires_grad_()
            scores = self.score(asked.unsqueeze(-2), *self.inputs).squeeze(-2)
        wanted = (asked, *self.inputs)
        found = torch.autograd.grad(scores, wanted, g, materialize_grads=True)
        for total, part in zip(self.sums, found[1:], strict=True):
            total += part
        return out.copy_(found[0])

    def gradients(self) -> tuple[Tensor, ...]:
        return self.sums


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
