"""Attention: scores, weights under a mask, contexts, and the hand-written additive score."""

from __future__ import annotations

import pytest
import torch
from reference import assert_close, stack
from torch import Tensor

from gradlab.models.attention import SCORES, Score, attend, masked_softmax
from gradlab.models.comparisons import AdditiveScores
from gradlab.models.layers import draw_parameters

HIDDEN, BATCH, N, K = 3, 2, 4, 5


def drawn(*shape: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator).requires_grad_()


def score_of(name: str) -> Score:
    score = SCORES[name](HIDDEN)
    draw_parameters(score, 0)
    return score.double()


@pytest.mark.parametrize("leading", [(), (2,), (2, 2)])
def test_additive_passes_gradcheck(leading: tuple[int, ...]) -> None:
    inputs = (
        drawn(*leading, BATCH, K, HIDDEN, seed=1),
        drawn(*leading, BATCH, N, HIDDEN, seed=2),
        drawn(*leading, 1, HIDDEN, seed=3),
    )
    assert torch.autograd.gradcheck(AdditiveScores.apply, inputs, rtol=1e-6, atol=1e-8)


def test_additive_equals_the_formula_and_its_autograd() -> None:
    query, keys, energy = (
        drawn(BATCH, K, HIDDEN, seed=1),
        drawn(BATCH, N, HIDDEN, seed=2),
        drawn(1, HIDDEN, seed=3),
    )
    found = AdditiveScores.apply(query, keys, energy)  # type: ignore[no-untyped-call]
    plain = torch.tanh(keys[:, None] + query[:, :, None]) @ energy[0]
    assert_close(found, plain, rtol=1e-12)
    seed = drawn(*found.shape, seed=4).detach()
    for mine, truth in zip(
        torch.autograd.grad(found, [query, keys, energy], seed),
        torch.autograd.grad(plain, [query, keys, energy], seed),
        strict=True,
    ):
        assert_close(mine, truth)


@pytest.mark.parametrize("name", SCORES)
def test_scores_of_stacked_replicas_equal_each_alone(name: str) -> None:
    scores: list[Score] = [SCORES[name](HIDDEN) for _ in range(3)]
    for seed, score in enumerate(scores):
        draw_parameters(score.double(), seed)
    together = stack(scores)
    query, keys = drawn(3, BATCH, K, HIDDEN, seed=1), drawn(3, BATCH, N, HIDDEN, seed=2)
    found = together(query, together.project_keys(keys))
    for r, score in enumerate(scores):
        alone = score(query[r], score.project_keys(keys[r]))
        assert_close(found[r].detach(), alone.detach(), rtol=1e-12)


@pytest.mark.parametrize("name", SCORES)
def test_permuting_encoder_states_permutes_the_weights_and_keeps_the_context(name: str) -> None:
    score = score_of(name)
    query, states = drawn(BATCH, K, HIDDEN, seed=1), drawn(BATCH, N, HIDDEN, seed=2)
    mask = torch.tensor([[True] * N, [True, True, True, False]])
    order = torch.tensor([2, 0, 3, 1])
    weights, context = attend(score(query, score.project_keys(states)), states, mask)
    shuffled = states[:, order]
    permuted, same = attend(score(query, score.project_keys(shuffled)), shuffled, mask[:, order])
    assert_close(permuted, weights[..., order], rtol=1e-12)
    assert_close(same, context, rtol=1e-12, scale=states.norm(dim=-1).sum(-1, keepdim=True))


def test_rows_sum_to_one_over_the_source_and_pads_get_exactly_nothing() -> None:
    mask = torch.tensor([[True, True, True, True], [True, True, False, False]])
    scores = drawn(BATCH, K, N, seed=1)
    weights, _ = attend(scores, drawn(BATCH, N, HIDDEN, seed=2), mask)
    torch.testing.assert_close(
        weights.sum(-1), torch.ones(BATCH, K, dtype=torch.float64), rtol=1e-15, atol=0
    )
    assert bool((weights[1, :, 2:] == 0).all())
    (gradient,) = torch.autograd.grad(weights.square().sum(), scores)
    assert bool((gradient[1, :, 2:] == 0).all())
    alone = torch.softmax(scores[1, :, :2], dim=-1)
    torch.testing.assert_close(weights[1, :, :2], alone, rtol=1e-15, atol=0)


def test_masked_softmax_passes_gradcheck_with_a_fully_masked_row() -> None:
    mask = torch.tensor([[True, False, True, True], [False] * N])
    assert torch.autograd.gradcheck(masked_softmax, (drawn(BATCH, N, seed=1), mask))


@pytest.mark.parametrize("content", [0.0, -torch.inf, torch.inf, torch.nan, 1e308])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_what_lies_under_the_mask_never_matters(content: float, dtype: torch.dtype) -> None:
    scores = torch.tensor([[1.0, content, 2.0], [content] * 3], dtype=dtype, requires_grad=True)
    mask = torch.tensor([[True, False, True], [False] * 3])
    weights = masked_softmax(scores, mask)
    (gradient,) = torch.autograd.grad(weights[:, 0].sum(), scores)
    expected = torch.softmax(torch.tensor([1.0, 2.0], dtype=dtype), -1)
    torch.testing.assert_close(weights[0, ::2], expected)
    for result in (weights.detach(), gradient):
        assert bool(torch.isfinite(result).all())
        assert bool((result[1] == 0).all())
        assert result[0, 1] == 0
