"""Attention: scores, their hand-written comparisons, and weights under a mask."""

from __future__ import annotations

import pytest
import torch
from reference import assert_close, build, make_batch, stack
from torch import Tensor

from gradlab import schema
from gradlab.errors import GradlabError
from gradlab.models.additive import AdditiveScores
from gradlab.models.attention import Score, masked_softmax
from gradlab.models.comparisons import Comparison, unit
from gradlab.models.layers import draw_parameters
from gradlab.models.scores import SCORES
from gradlab.models.seq2seq import Seq2Seq

HIDDEN, BATCH, N, K = 3, 2, 4, 5


def drawn(*shape: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator).requires_grad_()


def score_of(name: str, seed: int = 0, state_size: int = HIDDEN, longest: int = N) -> Score:
    score = SCORES[name](HIDDEN, state_size, longest)
    draw_parameters(score, seed)
    return score.double()


def attend(scores: Tensor, values: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    weights = masked_softmax(scores, mask.unsqueeze(-2))
    return weights, weights @ values


def test_the_schema_names_every_score() -> None:
    names = schema.key_schema("model.attention")["enum"]
    assert sorted(names) == sorted(["none", *SCORES])


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
    scores = [score_of(name, seed) for seed in range(3)]
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
    if not score.reads_keys:  # it looks at places, whatever stands there
        _, context = attend(score(query, score.project_keys(states)), shuffled, mask[:, order])
        assert torch.equal(same, context)
        return
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


def compare_all(comparison: Comparison, asked: Tensor, g: Tensor) -> tuple[Tensor, ...]:
    """Return scores, dL/dquery and what `gradients` returns; asked (k, replicas, rows, F)."""
    scores, d_query, asked = torch.empty_like(g), torch.empty_like(asked), comparison.prepare(asked)
    for q, e in zip(asked, scores, strict=True):
        comparison.scores(q, out=e)
    for j in reversed(range(len(g))):
        comparison.pull_back(asked[j], g[j], out=d_query[j])
    return scores, d_query, *comparison.gradients()


@pytest.mark.parametrize("name", SCORES)
def test_a_comparison_equals_the_score_and_its_autograd(name: str) -> None:
    score, replicas, rows = score_of(name, longest=N + 2), 1, 2
    keys = drawn(replicas, rows, N, HIDDEN, seed=1)
    state = drawn(K, replicas, rows, HIDDEN, seed=2)
    with torch.no_grad():
        state[1, 0, 0] = 0.0
        keys[0, 1, 2] = 0.0
    g = drawn(K, replicas, rows, N, seed=3).detach()
    matrix = score.query_weight()
    asked = state if matrix is None else state @ matrix.mT
    compared = score.compared_with()
    projected = score.project_keys(keys)
    weights = (weight.detach()[None] for weight in compared)
    found = compare_all(score.compare(K, projected.detach(), *weights), asked.detach(), g)

    plain = torch.cat([score(q.unsqueeze(-2), projected) for q in state], dim=-2)
    plain = plain.permute(2, 0, 1, 3)
    assert_close(found[0], plain.detach(), rtol=1e-12)
    wanted = (state, keys, *compared)
    truth = torch.autograd.grad(plain, wanted, g, retain_graph=True, materialize_grads=True)
    through = [(asked, found[1])]
    if projected.requires_grad:
        through.append((projected, found[2]))
    for (part, d), tensor, expected in zip(through, (state, keys), truth, strict=False):
        same = part is tensor
        mine = d if same else torch.autograd.grad(part, tensor, d, retain_graph=True)[0]
        assert_close(mine, expected)
    for mine, expected in zip(found[3:], truth[2:], strict=True):
        assert_close(mine[0], expected)


@pytest.mark.parametrize("name", SCORES)
def test_scores_and_all_their_gradients_pass_gradcheck(name: str) -> None:
    """With states of another size than the query's, where the score can compare the two."""
    size = HIDDEN if name in ("dot", "scaled_dot", "cosine") else 2 * HIDDEN
    score = score_of(name, state_size=size)
    query, keys = drawn(BATCH, K, HIDDEN, seed=1), drawn(BATCH, N, size, seed=2)
    names = [key for key, _ in score.named_parameters()]

    def scores(query: Tensor, keys: Tensor, *weights: Tensor) -> Tensor:
        given = dict(zip(names, weights, strict=True))
        whole: Tensor = torch.func.functional_call(
            Whole(score), {f"score.{k}": v for k, v in given.items()}, (query, keys)
        )
        return whole + 0.0 * keys.sum()

    inputs = (query, keys, *(p.detach().requires_grad_() for p in score.parameters()))
    assert torch.autograd.gradcheck(scores, inputs, rtol=1e-6, atol=1e-8)


class Whole(torch.nn.Module):
    """A score from unprojected keys."""

    def __init__(self, score: Score) -> None:
        super().__init__()
        self.score = score

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        scores: Tensor = self.score(query, self.score.project_keys(keys))
        return scores


# What each score is known for.


def test_concat_is_additive_with_the_two_matrices_side_by_side_and_a_smaller_draw() -> None:
    concat, additive = score_of("concat"), score_of("additive")
    bound = (2 * HIDDEN) ** -0.5
    joint = dict(concat.named_parameters())["concat.weight"]
    assert joint.shape == (HIDDEN, 2 * HIDDEN)
    assert 0.8 * bound < float(joint.detach().abs().max()) <= bound
    with torch.no_grad():
        halves = dict(additive.named_parameters())
        joint.copy_(torch.cat([halves["key.weight"], halves["query.weight"]], dim=-1))
        dict(concat.named_parameters())["energy.weight"].copy_(halves["energy.weight"])
    query, keys = drawn(BATCH, K, HIDDEN, seed=1), drawn(BATCH, N, HIDDEN, seed=2)
    found, expected = (s(query, s.project_keys(keys)).detach() for s in (concat, additive))
    assert_close(found, expected, rtol=1e-12)


def test_cosine_does_not_depend_on_sizes_and_is_one_along_itself() -> None:
    score, query = score_of("cosine"), drawn(1, 2, HIDDEN, seed=1).detach()
    for factor in (1e-300, 1.0, 1e300):
        scores = score(factor * query, score.project_keys(query)).detach()
        torch.testing.assert_close(scores.diagonal(dim1=1, dim2=2), torch.ones(1, 2).double())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_zero_vector_has_cosines_of_zero_and_no_gradient(dtype: torch.dtype) -> None:
    x = torch.tensor([[0.0, 0.0], [3.0, 4.0]], dtype=dtype, requires_grad=True)
    direction, size = unit(x)
    assert direction.tolist()[0] == [0.0, 0.0]
    assert size[1].item() == 5
    (gradient,) = torch.autograd.grad(direction.sum(), x)
    assert gradient[0].tolist() == [0.0, 0.0]
    assert bool(torch.isfinite(gradient).all())
    score = SCORES["cosine"](2, 2)
    draw_parameters(score.to(dtype), 0)
    zeros = torch.zeros(1, 3, 2, dtype=dtype)
    comparison = score.compare(1, zeros[None], *score.compared_with())
    out = torch.empty(1, 1, 2, dtype=dtype)
    comparison.pull_back(zeros[:, :1], torch.ones(1, 1, 3, dtype=dtype), out=out)
    assert out.tolist() == [[[0.0, 0.0]]]


def test_location_draws_each_row_the_same_whatever_the_longest_source() -> None:
    short, long = (
        Seq2Seq(schema.Model(attention="location", hidden=HIDDEN), 4, 7, longest)
        for longest in (5, 50)
    )
    for name, weight in short.named_parameters():
        other = long.get_parameter(name)
        assert torch.equal(weight, other[:5] if name == "attention.location.weight" else other)


def test_location_refuses_more_positions_than_it_has_weights_for() -> None:
    model = Seq2Seq(schema.Model(attention="location", hidden=HIDDEN), 4, 0, longest=5)
    model(make_batch("copy", [4, 3], delay=1))
    with pytest.raises(GradlabError) as error:
        model(make_batch("copy", [6]))
    assert str(error.value) == (
        'attention "location" was built for at most 5 source steps, found 6; build the model with '
        "a larger `longest`, which a run takes from task.length, record.lengths and task.delay"
    )
    with pytest.raises(GradlabError, match="expected the largest number of source steps"):
        Seq2Seq(schema.Model(attention="location"), 4)


def test_location_does_not_see_what_stands_in_the_source() -> None:
    model = build(attention="location", timing="luong", bridge="none")
    weights = [model(make_batch("copy", [5, 5], seed=s)).decoded.weights[:, 0] for s in (1, 2)]
    assert torch.equal(*weights)
