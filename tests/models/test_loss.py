"""Cross-entropy and its reductions: hand-computed, masked, and blind to what stands on pads."""

from __future__ import annotations

import math

import pytest
import reference
import torch
from reference import assert_close, make_batch

from gradlab.models.loss import REDUCTIONS, batch_loss, example_loss, token_loss

BATCH = make_batch("copy", [3, 1, 2])


def logits(seed: int = 0, *leading: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*leading, 3, 3, 4, dtype=torch.float64, generator=generator).requires_grad_()


def test_uniform_logits_cost_ln_v_nats_per_token() -> None:
    zero = torch.zeros(3, 3, 4, dtype=torch.float64)
    scored = torch.tensor([[1, 1, 1], [1, 0, 0], [1, 1, 0]], dtype=torch.float64)
    expected = math.log(4) * scored
    torch.testing.assert_close(token_loss(zero, BATCH), expected, rtol=1e-15, atol=0)
    assert float(batch_loss(zero, BATCH)) == pytest.approx(math.log(4), rel=1e-15, abs=0)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_reductions_run_over_each_examples_own_tokens(reduction: str) -> None:
    found = example_loss(logits(), BATCH, reduction)
    for b, k in enumerate([3, 1, 2]):
        picked = torch.log_softmax(logits()[b, :k], -1)[torch.arange(k), BATCH.target[b, :k]]
        expected = reference.REDUCTIONS[reduction](-picked[None])
        torch.testing.assert_close(found[b : b + 1], expected, rtol=1e-13, atol=0)


def test_the_training_loss_is_the_mean_over_all_unpadded_tokens() -> None:
    nats = [
        -torch.log_softmax(logits()[b, j], -1)[BATCH.target[b, j]]
        for b, k in enumerate([3, 1, 2])
        for j in range(k)
    ]
    expected = torch.stack(nats).mean()
    torch.testing.assert_close(batch_loss(logits(), BATCH), expected, rtol=1e-13, atol=0)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("content", [0.0, 7.0, torch.nan, torch.inf])
def test_logits_on_pads_never_matter(reduction: str, content: float) -> None:
    changed = torch.where(BATCH.target_mask[..., None], logits(), content).detach().requires_grad_()
    found = example_loss(changed, BATCH, reduction)
    assert torch.equal(found, example_loss(logits(), BATCH, reduction))
    (gradient,) = torch.autograd.grad(found.sum(), changed)
    assert bool((gradient[~BATCH.target_mask] == 0).all())


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_leading_axes_are_free(reduction: str) -> None:
    stacked = logits(0, 2)
    found = example_loss(stacked, BATCH, reduction)
    for r in range(2):
        assert torch.equal(found[r], example_loss(stacked[r], BATCH, reduction))
    assert_close(batch_loss(stacked, BATCH)[1:], batch_loss(stacked[1], BATCH)[None])
