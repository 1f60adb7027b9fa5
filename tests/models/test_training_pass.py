"""What training differentiates: every parameter, in both precisions, saturated, and for long."""

from __future__ import annotations

import gc
import resource
from typing import Any

import pytest
import torch
from reference import assert_close, build, label, make_batch
from torch import Tensor
from torch.func import functional_call

from gradlab.models.additive import Additive
from gradlab.models.cells import CELLS
from gradlab.models.inputs import blocks
from gradlab.models.loss import batch_loss
from gradlab.models.scopes import SCOPES
from gradlab.models.scores import SCORES
from gradlab.models.seq2seq import Seq2Seq

Spec = dict[str, Any]
ATTENTIONS: list[Spec] = [
    {"attention": "none"},
    {"attention": "additive", "timing": "bahdanau"},
    {"attention": "additive", "timing": "luong"},
    {"attention": "dot", "timing": "bahdanau", "bridge": "every_step"},
]
MODELS = [{"cell": cell, **spec} for cell in CELLS for spec in ATTENTIONS]


def gradients(model: Seq2Seq, lengths: list[int], scale: float = 1.0) -> dict[str, Tensor]:
    loss = batch_loss(model(batch := make_batch("copy", lengths)).logits, batch) * scale
    names, weights = zip(*model.named_parameters(), strict=True)
    return dict(zip(names, torch.autograd.grad(loss, weights), strict=True))


@pytest.mark.parametrize("spec", MODELS, ids=label)
def test_everything_a_pass_returns_has_the_gradient_of_differences(spec: Spec) -> None:
    """States, weights and contexts too: whoever adds a term to the loss may read any of them."""
    model, batch = build(hidden=3, **spec), make_batch("copy", [3, 2])
    names, weights = zip(*model.named_parameters(), strict=True)

    def outputs(*moved: Tensor) -> tuple[Tensor, ...]:
        trace = functional_call(model, dict(zip(names, moved, strict=True)), (batch,))
        decoded = trace.decoded
        found = (*trace.encoder_states, *decoded.states, decoded.context, decoded.logits)
        real = batch.source_mask[:, None] if decoded.weights is not None else None
        seen = () if real is None else (decoded.weights, decoded.scores.masked_fill(~real, 0.0))
        return tuple(part for part in (*found, *seen) if part is not None)

    inputs = tuple(weight.detach().requires_grad_() for weight in weights)
    assert torch.autograd.gradcheck(outputs, inputs, rtol=1e-6, atol=1e-8, fast_mode=True)


@pytest.mark.parametrize("spec", MODELS, ids=label)
def test_float32_has_the_gradient_of_float64_to_its_own_precision(spec: Spec) -> None:
    """To 1e-5 of the largest gradient of each parameter, which is about 100 roundings.

    What a query's weights send through a softmax nearly cancels: no less than 1e-3 of the largest
    gradient of all is taken for the largest of one.
    """
    model = build(hidden=16, embedding=8, **spec)
    exact = gradients(model, [12, 12, 7])
    least = 1e-3 * max(float(g.abs().max()) for g in exact.values())
    for name, found in gradients(model.float(), [12, 12, 7]).items():
        error = (found.double() - exact[name]).abs().max()
        assert float(error) <= 1e-5 * max(least, float(exact[name].abs().max())), name


@pytest.mark.parametrize(
    "spec",
    [*ATTENTIONS, {"layers": 2, "timing": "bahdanau"}, {"timing": "luong", "input_feeding": True}],
    ids=label,
)
def test_a_parameter_has_its_gradient_also_where_all_others_are_frozen(spec: Spec) -> None:
    model = build(hidden=3, **spec)
    expected = gradients(model, [3, 2])
    for name, weight in model.named_parameters():
        model.requires_grad_(False)
        weight.requires_grad_()
        loss = batch_loss(model(batch := make_batch("copy", [3, 2])).logits, batch)
        (found,) = torch.autograd.grad(loss, weight)
        assert torch.equal(found, expected[name]), name


@pytest.mark.parametrize("timing", ["bahdanau", "luong"])
@pytest.mark.parametrize("spec", [*SCORES, *SCOPES])
def test_a_pass_can_be_gone_back_over_more_than_once(spec: str, timing: str) -> None:
    named: Spec = {"attention" if spec in SCORES else "scope": spec}
    model = build(hidden=3, timing=timing, **named)
    loss = batch_loss(model(batch := make_batch("copy", [3, 2])).logits, batch)
    weights = list(model.parameters())
    once, again = (torch.autograd.grad(loss, weights, retain_graph=True) for _ in range(2))
    assert all(map(torch.equal, once, again))


@pytest.mark.parametrize("spec", MODELS, ids=label)
def test_it_does_not_matter_how_many_steps_are_worked_on_at_a_time(
    spec: Spec, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = build(hidden=3, **spec)
    expected = gradients(model, [7, 4])
    cuts: list[int] = []

    def counted(step: Tensor, length: int, least: int = 0) -> list[slice]:
        cut = blocks(step, length, least // 4)
        cuts.append(len(cut))
        return cut

    monkeypatch.setattr("gradlab.models.inputs.CACHED", 1)
    for loop in ("recurrence", "attentive"):
        monkeypatch.setattr(f"gradlab.models.{loop}.blocks", counted)
    for name, found in gradients(model, [7, 4]).items():
        torch.testing.assert_close(found, expected[name], rtol=1e-12, atol=1e-14)
    assert min(cuts) > 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("spec", MODELS, ids=label)
def test_saturated_gates_and_scores_give_finite_gradients(spec: Spec, dtype: torch.dtype) -> None:
    model = build(hidden=4, **spec).to(dtype)
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(300.0)
    for name, found in gradients(model, [6, 3]).items():
        assert bool(found.isfinite().all()), name


@pytest.mark.parametrize(
    ("dtype", "limit", "eps"), [(torch.float32, 21.9, 1.2e-7), (torch.float64, 177.0, 2.3e-16)]
)
@pytest.mark.parametrize(
    ("size", "asked"),
    [(size, size) for size in (1e-3, 1.0, 10.0, 40.0, 80.0, 350.0, 700.0, 1e6)]
    + [(1e-3, 1e6), (1.0, 45.0), (21.0, 45.0), (21.0, 360.0), (170.0, 1e6), (1e6, 1.0)],
)
def test_the_additive_activation_is_a_tanh_over_the_whole_range(
    dtype: torch.dtype, limit: float, eps: float, size: float, asked: float
) -> None:
    """Scores against tanh in float64, for all pairs, also where exponentials would overflow.

    A sum of size s is rounded to s eps before any tanh, so that is what the scores may be off by.
    """
    grid, far = (torch.linspace(-most, most, 81, dtype=dtype) for most in (size, asked))
    keys, queries = grid.view(1, 1, -1, 1), far.view(-1, 1, 1, 1)
    comparison = Additive(len(queries), keys, torch.ones(1, 1, 1, dtype=dtype))
    found = torch.stack(
        [
            comparison.scores(query, torch.empty(1, 1, len(grid), dtype=dtype))[0, 0]
            for query in comparison.prepare(queries)
        ]
    )
    exact = torch.tanh(grid.double() + far.double()[:, None])
    assert bool(found.isfinite().all())
    slope = 1 - exact**2
    allowed = 4 * eps * (1 + (1 + 2 * max(size, asked)) * slope)
    assert bool(((found.double() - exact).abs() <= allowed).all())
    assert comparison.replicas[0].exponential == (size < limit)


@pytest.mark.parametrize("size", [0.5, 5.0, 400.0])
def test_the_additive_adjoint_is_that_of_the_formula_in_and_out_of_range(size: float) -> None:
    def drawn(*shape: int, seed: int, scale: float) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        values = scale * torch.randn(*shape, dtype=torch.float64, generator=generator)
        return values.requires_grad_()

    keys, query = drawn(2, 3, 4, 5, seed=1, scale=size), drawn(2, 3, 5, seed=2, scale=size)
    energy, g = drawn(2, 1, 5, seed=3, scale=1.0), drawn(2, 3, 4, seed=4, scale=1.0).detach()
    plain = (torch.tanh(keys + query.unsqueeze(-2)) * energy.unsqueeze(-2)).sum(-1)
    expected = torch.autograd.grad(plain, (query, keys, energy), g)
    with torch.no_grad():
        comparison = Additive(3, keys, energy)
        asked = comparison.prepare(query)
        found = (comparison.pull_back(asked, g, torch.empty_like(asked)), *comparison.gradients())
    for mine, truth in zip(found, expected, strict=True):
        # tanh within eps of 1 has no slope left to compare: hence the scale of the unsaturated
        assert_close(mine, truth, scale=truth.norm(dim=-1).clamp_min(1e-6))


def additive(keys: Tensor, query: Tensor, g: Tensor, energy: Tensor) -> list[Tensor]:
    """Return what an additive comparison gives of one query, both ways."""
    forward, backward = Additive(2, keys, energy), Additive(2, keys, energy)
    query = forward.prepare(query)
    scores = forward.scores(query, torch.empty(keys.shape[:-1]))
    d_query = torch.empty(*g.shape[:2], keys.shape[-1])
    again = query.repeat(1, g.shape[1] // query.shape[1], 1)
    return [scores, backward.pull_back(again, g, d_query), *backward.gradients()]


def test_keys_out_of_range_leave_the_replicas_beside_them_as_they_were() -> None:
    generator = torch.Generator().manual_seed(1)
    keys, query, g, energy = (
        torch.randn(3, *shape, generator=generator) for shape in ((4, 5, 6), (4, 6), (4, 5), (1, 6))
    )
    keys[1] *= 100
    together = additive(keys, query, g, energy)
    for i in range(3):
        alone = additive(*(part[i : i + 1] for part in (keys, query, g, energy)))
        for found, expected in zip(together, alone, strict=True):
            assert torch.equal(found[i : i + 1], expected)


def test_signals_are_pulled_back_through_the_additive_score_as_each_alone() -> None:
    generator = torch.Generator().manual_seed(2)
    keys, query, energy = (
        torch.randn(2, *shape, generator=generator) for shape in ((4, 5, 6), (4, 6), (1, 6))
    )
    signals = torch.randn(2, 3, 4, 5, generator=generator)
    _, d_query, d_keys, _ = additive(keys, query, signals.flatten(1, 2), energy)
    for i in range(3):
        _, of_query, of_keys, _ = additive(keys, query, signals[:, i], energy)
        for found, alone in ((d_query, of_query), (d_keys, of_keys)):
            torch.testing.assert_close(found.unflatten(1, (3, 4))[:, i], alone, rtol=1e-5, atol=0)


@pytest.mark.parametrize("spec", ATTENTIONS, ids=label)
def test_memory_does_not_grow_over_200_training_steps(spec: Spec) -> None:
    model, batch = build(hidden=32, embedding=8, **spec).float(), make_batch("copy", [20] * 8)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def steps(count: int) -> tuple[int, int]:
        for _ in range(count):
            optimizer.zero_grad()
            batch_loss(model(batch).logits, batch).backward()
            optimizer.step()
        gc.collect()
        alive = sum(issubclass(type(thing), Tensor) for thing in gc.get_objects())
        return alive, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    alive, peak = steps(20)
    after = steps(200)
    assert after[0] == alive
    assert after[1] - peak < 8 * 1024  # KiB; one step's states, kept 200 times, would be 80 MiB
