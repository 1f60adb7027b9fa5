"""The decoder's adjoint for all target steps at once: against one backward pass for each."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from reference import (
    MODELS,
    Twin,
    assert_close,
    build,
    label,
    make_batch,
    norm,
    stack,
    step_gradients,
)
from torch import Tensor

from gradlab.models.attention import Score
from gradlab.models.decoder_adjoint import TargetRows, pull_back_targets
from gradlab.models.layers import draw_parameters
from gradlab.models.scores import SCORES
from gradlab.models.seq2seq import Seq2Seq
from gradlab.tasks import Batch

Spec = dict[str, Any]
LENGTHS = [4, 1, 6]


@torch.no_grad()
def target_rows(model: Seq2Seq, batch: Batch) -> TargetRows:
    trace = model(batch)
    return pull_back_targets(model, batch, trace.memory, trace.decoded)


@pytest.mark.parametrize("delay", [0, 2])
@pytest.mark.parametrize("spec", MODELS, ids=label)
def test_every_row_is_the_backward_pass_of_its_target_step(spec: Spec, delay: int) -> None:
    model, batch = build(**spec), make_batch("copy", LENGTHS, delay=delay)
    rows, twin = target_rows(model, batch), Twin(model)
    assert bool(rows.bridge) == (spec["bridge"] != "none")
    assert (rows.read is None) == (spec["attention"] == "none")
    for b, k in enumerate(LENGTHS):
        n = k + delay
        for j, (_, bridge, read) in enumerate(step_gradients(twin, batch, b)):
            for found, expected in zip(rows.bridge, bridge, strict=bool(rows.bridge)):
                assert_close(found[b, j], expected[0])
            if rows.read is not None:
                assert_close(rows.read[b, j, :n], read[0])
        for part in (*rows.bridge, *([] if rows.read is None else [rows.read])):
            assert bool((part[b, k:] == 0).all())
        if rows.read is not None:
            assert bool((rows.read[b, :, n:] == 0).all())


def drawn(*shape: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator)


def score_of(name: str, seed: int = 0) -> Score:
    score = SCORES[name](3, 3, 4)
    draw_parameters(score, seed)
    return score.double()


@pytest.mark.parametrize("name", SCORES)
def test_jacobians_of_a_score_equal_autograd(name: str) -> None:
    score, query, keys = score_of(name), drawn(5, 3, seed=1), drawn(4, 3, seed=2)

    def scores(query: Tensor, keys: Tensor) -> Tensor:
        found: Tensor = score(query[None], score.project_keys(keys[None]))
        return found[0]

    by_query, by_keys = torch.autograd.functional.jacobian(scores, (query, keys))
    of_query, of_keys = score.jacobians(query[None], keys[None])
    for j in range(5):
        for i in range(4):
            assert_close(of_query[0, j, i].detach(), by_query[j, i, j])
            assert_close(of_keys[0, j, i].detach(), by_keys[j, i, i])


@pytest.mark.parametrize("name", SCORES)
def test_jacobians_of_stacked_scores_equal_each_alone(name: str) -> None:
    scores = [score_of(name, seed) for seed in range(3)]
    query, keys = drawn(3, 2, 5, 3, seed=1), drawn(3, 2, 4, 3, seed=2)
    together = stack(scores).jacobians(query, keys)
    for r, score in enumerate(scores):
        for found, alone in zip(together, score.jacobians(query[r], keys[r]), strict=True):
            assert_close(found[r].detach(), alone.detach(), rtol=1e-12)


@pytest.mark.parametrize("spec", MODELS, ids=label)
def test_a_loss_reaches_the_decoder_before_it_alone(spec: Spec) -> None:
    """Changing what is read at step j leaves the rows of earlier steps as they were."""
    model, batch = build(**spec), make_batch("copy", [5, 5])
    before = target_rows(model, batch)
    last = batch.target[:, -1:]
    changed = torch.cat([batch.target[:, :-1], (last + 1) % batch.symbols], dim=1)
    after = target_rows(
        model,
        Batch(batch.source, batch.source_lengths, changed, batch.target_lengths, batch.symbols),
    )
    for was, now in zip((*before.bridge, before.read), (*after.bridge, after.read), strict=True):
        if was is not None and now is not None:
            assert torch.equal(was[:, :-1], now[:, :-1])
            assert bool((norm(was[:, -1] - now[:, -1]) > 0).any())
