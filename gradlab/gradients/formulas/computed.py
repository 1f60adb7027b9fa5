"""As gradlab computes it: its own adjoints, scores and softmax, against plain autograd.

Every cell of `CELLS` and every score of `SCORES` has its rows here from the day it arrives. The
referee runs the same weights through loops over `Cell.step` and plain scores, so that no
hand-written backward pass has a part in the truth. A score without a plain twin is compared
with its own autograd, and it is central differences that judge it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor, nn
from torch.func import functional_call

from gradlab.gradients.formulas.claim import Claim, Draw, Formula, Group
from gradlab.gradients.formulas.plain_scores import PLAIN_SCORES
from gradlab.models.attention import masked_softmax
from gradlab.models.cells import CELLS, Cell, State
from gradlab.models.layers import draw_parameters, linear
from gradlab.models.recurrence import Scan
from gradlab.models.scores import SCORES

B, n, k, H = 2, 4, 2, 3


def plain_scan(
    cell: Cell, p: Tensor, W: Tensor, b: Tensor, initial: State, taps: State | None = None
) -> State:
    """Return the states of every step by a loop over `Cell.step`, taps added after each."""
    state, history = initial, []
    for i in range(p.shape[-2]):
        state = cell.step(p[..., i, :], linear(state[0], W, b), state)
        if taps is not None:
            state = tuple(part + tap[..., i, :] for part, tap in zip(state, taps, strict=True))
        history.append(state)
    return tuple(torch.stack(part, -2) for part in zip(*history, strict=True))


def adjoint(name: str) -> Callable[[Draw], Claim]:
    """`Cell.pull_to_input` and `pull_to_hidden`, and `adjoint`, which holds them."""

    def evaluate(draw: Draw) -> Claim:
        cell = CELLS[name]
        rows = cell.gates * H
        W, b, p = draw.weight(rows, H), draw(rows), draw(B, rows)
        state, d = (tuple(draw(B, H) for _ in cell.states) for _ in range(2))

        def loss(p: Tensor, tap: Tensor, *state: Tensor) -> Tensor:
            after = cell.step(p, linear(state[0], W, b) + tap, state)
            return sum_of_products(after, d)

        gates, after = cell.run(p, linear(state[0], W, b), state)
        local = cell.linearise(gates, state, after)
        da = cell.pull_to_hidden(local, d)
        by_gate = cell.pull_to_input(local, d, da), da
        says = (*(part.flatten(-2) for part in by_gate), *cell.adjoint(local, d, W))
        return Claim(says, loss, (p, torch.zeros_like(p), *state))

    return evaluate


def sum_of_products(states: State, d: State) -> Tensor:
    """Return sum over states of <d, state>, one for each copy in front."""
    products = [(a * b).flatten(1).sum(1) for a, b in zip(states, d, strict=True)]
    return torch.stack(products).sum(0)


def over_time(name: str) -> Callable[[Draw], Claim]:
    """`Scan`: the projected inputs, the weights and the first state of a whole layer."""

    def evaluate(draw: Draw) -> Claim:
        cell = CELLS[name]
        rows = cell.gates * H
        at = (
            draw(B, n, rows),
            draw.weight(rows, H),
            draw(rows),
            *(draw(B, H) for _ in cell.states),
        )
        g = tuple(draw(B, n, H) for _ in cell.states)

        def loss(p: Tensor, W: Tensor, b: Tensor, *initial: Tensor) -> Tensor:
            return sum_of_products(plain_scan(cell, p, W, b, initial), g)

        leaves = [tensor.clone().requires_grad_() for tensor in at]
        scan: Callable[..., State] = Scan.apply
        return Claim(torch.autograd.grad(scan(name, None, None, *leaves), leaves, g), loss, at)

    return evaluate


class Scored(nn.Module):
    """A score function from queries and unprojected keys; its plain twin where `plain`."""

    def __init__(self, name: str, *, plain: bool) -> None:
        super().__init__()
        self.score = SCORES[name](H, H, n)
        self.plain = PLAIN_SCORES.get(name) if plain else None

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        projected = self.score.project_keys(keys)
        scored = self.score if self.plain is None else partial(self.plain, self.score)
        scores: Tensor = scored(query, projected)
        if self.score.reads_keys:
            return scores
        return scores + 0.0 * keys.sum(-1).unsqueeze(-2)  # derivatives of zero, but there


def score(name: str) -> Callable[[Draw], Claim]:
    """The score's queries, keys and all weights."""

    def evaluate(draw: Draw) -> Claim:
        mine, plain = (Scored(name, plain=plain).double() for plain in (False, True))
        draw_parameters(mine, draw.seed())
        names = [key for key, _ in mine.named_parameters()]
        at = (draw(B, k, H), draw(B, n, H), *(p.detach() for p in mine.parameters()))
        g = draw(B, k, n)

        def loss(query: Tensor, keys: Tensor, *weights: Tensor) -> Tensor:
            parameters = dict(zip(names, weights, strict=True))
            scores: Tensor = functional_call(plain, parameters, (query, keys))
            return sum_of_products((scores,), (g,))

        leaves = [tensor.clone().requires_grad_() for tensor in at]
        scores = functional_call(mine, dict(zip(names, leaves[2:], strict=True)), tuple(leaves[:2]))
        return Claim(torch.autograd.grad(scores, leaves, g), loss, at)

    return evaluate


def score_jacobians(name: str) -> Callable[[Draw], Claim]:
    """`Score.jacobians`, summed with dL/de_ji over what the query and the key are scored with."""

    def evaluate(draw: Draw) -> Claim:
        scored = Scored(name, plain=True).double().requires_grad_(False)
        draw_parameters(scored, draw.seed())
        query, keys, g = draw(B, k, H), draw(B, n, H), draw(B, k, n)

        def loss(query: Tensor, keys: Tensor) -> Tensor:
            return sum_of_products((scored(query, keys),), (g,))

        of_query, of_keys = scored.score.jacobians(query, keys)
        says = (g.unsqueeze(-1) * of_query).sum(-2), (g.unsqueeze(-1) * of_keys).sum(-3)
        return Claim(says, loss, (query, keys))

    return evaluate


def masked(draw: Draw) -> Claim:
    """`masked_softmax`, with one row that is masked throughout."""
    e, g = draw(k + 1, n), draw(k + 1, n)
    mask = torch.from_numpy(draw.generator.random((k + 1, n)) < 0.7)
    mask[0], mask[1] = False, True

    def loss(e: Tensor) -> Tensor:
        exponentials = torch.exp(e) * mask
        total = exponentials.sum(-1, keepdim=True)
        return sum_of_products((exponentials / torch.where(total > 0, total, 1.0),), (g,))

    leaf = e.clone().requires_grad_()
    return Claim(torch.autograd.grad(masked_softmax(leaf, mask), leaf, g), loss, (e,))


COMPUTED = Group(
    "as gradlab computes it",
    "every cell, score and measured gradient of the code, against plain autograd of the same steps",
    r"\text{every cell, score and measured gradient of the code}",
)


def formulas() -> Iterator[Formula]:
    """Yield a row for each cell, each score, and masked softmax."""
    for name in CELLS:
        yield Formula(
            f"{name} adjoint",
            COMPUTED,
            "dL/dz_{t−1} = Jᵀ dL/dz_t, dL/da, dL/da'",
            r"\frac{\partial L}{\partial z_{t-1}} = J^{\top} \frac{\partial L}{\partial z_t},\ "
            r" \frac{\partial L}{\partial a},\  \frac{\partial L}{\partial a'}",
            "gradlab.models.cells",
            adjoint(name),
        )
        yield Formula(
            f"{name} over time",
            COMPUTED,
            "dL/dW_hh, dL/db_hh, dL/da_t, dL/dz_0",
            r"\frac{\partial L}{\partial W_{hh}},\  \frac{\partial L}{\partial b_{hh}},\ "
            r" \frac{\partial L}{\partial a_t},\  \frac{\partial L}{\partial z_0}",
            "gradlab.models.recurrence",
            over_time(name),
        )
    for name in SCORES:
        yield Formula(
            f"{name} score",
            COMPUTED,
            "dL/dq_j, dL/dh_i (values fixed), all weights",
            r"\frac{\partial L}{\partial q_j},\  \frac{\partial L}{\partial h_i}"
            r"\ \text{(values fixed), all weights}",
            "gradlab.models.scores",
            score(name),
        )
        yield Formula(
            f"{name} Jacobians",
            COMPUTED,
            "de_ji/dq_j and de_ji/dh_i (values fixed)",
            r"\frac{\partial e_{ji}}{\partial q_j},\ \frac{\partial e_{ji}}{\partial h_i}"
            r"\ \text{(values fixed)}",
            "gradlab.models.scores",
            score_jacobians(name),
        )
    yield Formula(
        "masked softmax",
        COMPUTED,
        "dL/de, exactly 0 where masked, all of a row or part",
        r"\frac{\partial L}{\partial e}\ \text{, exactly 0 where masked, all of a row or part}",
        "gradlab.models.attention",
        masked,
    )
