"""One query after the other against all keys: the inner loop of attention, with its adjoint.

A decoder that attends asks one query at a time, and the gradient comes back one query at a time, in
the opposite order. A comparison holds the keys of one pass and answers both ways:

    p = prepare(q)            what the other two take of a query q (..., replicas, rows, features)
    e = scores(p)             e (replicas, rows, n)
    dL/dq = pull_back(p, g)   g = dL/de, (replicas, rows, n)
    gradients()               dL/dkeys and dL/dweights, summed over all queries pulled back so far
    forget()                  what was pulled back, so that another backward pass can begin

keys: (replicas, rows, n, features). Weights: (replicas, ...). Nothing here is seen by autograd.

Back may come several signals, all of which asked the same: then the rows of g and of dL/dq, and of
the query beside them, are those of the keys once for each signal, and so are those of dL/dkeys.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor

from gradlab.models.rows import as_rows, by_example


class Comparison(ABC):
    """Scores of one query after the other against the same keys.

    weighs: whether dL/dweights are wanted; else they may be anything. by_hand: whether it does
    without autograd.
    """

    weighs = True
    by_hand = True

    def prepare(self, query: Tensor) -> Tensor:
        """Return what is computed of a query, or of many at once, before it meets the keys."""
        return query

    @abstractmethod
    def scores(self, query: Tensor, out: Tensor) -> Tensor:
        """Return the scores of one query, in `out`."""

    @abstractmethod
    def pull_back(self, query: Tensor, g: Tensor, out: Tensor) -> Tensor:
        """Return dL/dquery in `out` for g = dL/dscores; add this query's part to the others."""

    @abstractmethod
    def gradients(self) -> tuple[Tensor, ...]:
        """Return dL/dkeys and dL/dweights."""

    @abstractmethod
    def forget(self) -> None:
        """Go back to before the first `pull_back`."""


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
        self.forget()

    def forget(self) -> None:
        self.queries: list[Tensor] = []
        self.g: list[Tensor] = []

    def scores(self, query: Tensor, out: Tensor) -> Tensor:
        torch.bmm(as_rows(query.contiguous()), self.keys.flatten(0, 1).mT, out=as_rows(out))
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
        self.forget()

    def forget(self) -> None:
        self.rows = self.keys.shape[1]

    def scores(self, query: Tensor, out: Tensor) -> Tensor:
        return out.copy_(query[..., : self.keys.shape[-2]])

    def pull_back(self, query: Tensor, g: Tensor, out: Tensor) -> Tensor:
        self.rows = g.shape[1]
        out.zero_()[..., : self.keys.shape[-2]] = g
        return out

    def gradients(self) -> tuple[Tensor, ...]:
        return (self.keys.new_zeros(len(self.keys), self.rows, *self.keys.shape[2:]),)


class ByAutograd(Comparison):
    """Any score, differentiated by autograd one query at a time: slower, and nothing to derive.

    score: what takes queries (replicas, rows, 1, features), keys and weights to scores
        (replicas, rows, 1, n).
    """

    by_hand = False

    def __init__(self, score: Callable[..., Tensor], keys: Tensor, *weights: Tensor) -> None:
        self.score, self.read = score, (keys, *weights)
        self.forget()

    def forget(self) -> None:
        self.inputs = tuple(part.detach().requires_grad_() for part in self.read)
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
