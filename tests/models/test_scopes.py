"""Scopes: windows over source positions, what they leave of the scores, and their adjoints."""

from __future__ import annotations

import pytest
import torch
from reference import assert_close, build, make_batch
from torch import Tensor

from gradlab import schema
from gradlab.gradients.probe import measure
from gradlab.models.layers import draw_parameters
from gradlab.models.scopes import SCOPES, LocalMonotonic, LocalPredictive, Scope

HIDDEN, BATCH, N, K = 3, 2, 7, 4
LENGTHS = torch.tensor([7, 4])


def drawn(*shape: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator).requires_grad_()


def real(n: int = N) -> Tensor:
    """Return the mask of two examples, 7 and 4 source steps long."""
    return torch.arange(n) < LENGTHS[:, None]


def scope_and_weights(name: str, window: int = 2) -> tuple[Scope, tuple[Tensor, ...]]:
    scope = SCOPES[name](window)
    layers = torch.nn.ModuleDict(scope.layers(HIDDEN)).double()
    draw_parameters(layers, 1)
    return scope, tuple(layers.get_parameter(f"{layer}.weight") for layer in scope.layer_names)


def weigh(name: str, scores: Tensor, query: Tensor, window: int = 2) -> Tensor:
    scope, weights = scope_and_weights(name, window)
    mask = scope.reach(real(), torch.tensor([K, K]), range(1, K + 1))
    return scope.weigh(scores, query, mask, *weights)


def test_the_schema_names_every_scope() -> None:
    assert schema.key_schema("model.scope")["enum"] == list(SCOPES)


@pytest.mark.parametrize(
    ("n", "k", "window", "inside"),
    [
        (4, 4, 1, ["12", "123", "234", "34"]),
        (6, 3, 1, ["123", "345", "56"]),  # p = 2, 4, 6
        (2, 4, 1, ["1", "12", "12", "12"]),  # p = 0.5, 1, 1.5, 2: |2 - 0.5| > 1
        (3, 2, 1, ["12", "23"]),  # p = 1.5, 3
        (10, 3, 1, ["34", "67", "9T"]),  # p = 3.33, 6.67, 10
        (3, 3, 9, ["123", "123", "123"]),
    ],
)
def test_a_monotonic_window_lies_about_j_n_over_k(
    n: int, k: int, window: int, inside: list[str]
) -> None:
    source = torch.arange(n + 2) < torch.tensor([[n], [n + 2]])
    lengths = torch.tensor([k, k])
    mask = LocalMonotonic(window).reach(source, lengths, range(1, k + 1))
    found = ["".join("123456789T.."[i] for i in row.nonzero().flatten()) for row in mask[0]]
    assert found == inside
    for j in range(1, k + 1):
        alone = LocalMonotonic(window).reach(source, lengths, range(j, j + 1))
        assert torch.equal(alone, mask[:, j - 1 : j])


def test_rows_sum_to_one_unless_nearness_takes_its_part() -> None:
    scores, query = drawn(BATCH, K, N, seed=1), drawn(BATCH, K, HIDDEN, seed=2)
    one = torch.ones(BATCH, K, dtype=torch.float64)
    for name in SCOPES:
        weights = weigh(name, scores, query).detach()
        assert bool((weights >= 0).all())
        assert bool((weights[1, :, 4:] == 0).all())
        if name == "local_predictive":
            assert bool(((weights.sum(-1) > 0.2) & (weights.sum(-1) < 1)).all())
        else:
            torch.testing.assert_close(weights.sum(-1), one, rtol=1e-15, atol=0)


def test_predictive_weights_equal_the_formula_written_out() -> None:
    scores, query = drawn(BATCH, K, N, seed=1).detach(), drawn(BATCH, K, HIDDEN, seed=2).detach()
    scope, (w_p, v_p) = scope_and_weights("local_predictive", window=2)
    found = scope.weigh(scores, query, real().unsqueeze(-2), w_p, v_p).detach()
    for b, n in enumerate(LENGTHS.tolist()):
        for j in range(K):
            p = n / (1 + torch.exp(-(v_p[0] @ torch.tanh(w_p @ query[b, j])))).item()
            inside = [i for i in range(1, n + 1) if abs(i - p) <= 2]
            total = sum(float(scores[b, j, i - 1].exp()) for i in inside)
            expected = torch.zeros(N, dtype=torch.float64)
            for i in inside:
                near = torch.exp(torch.tensor(-((i - p) ** 2) / (2 * 1.0**2)).double())
                expected[i - 1] = scores[b, j, i - 1].exp() / total * near
            assert_close(found[b, j], expected, rtol=1e-6)


@pytest.mark.parametrize("name", SCOPES)
def test_all_gradients_of_weights_pass_gradcheck(name: str) -> None:
    scope, weights = scope_and_weights(name)
    mask = scope.reach(real(), torch.tensor([K, 2]), range(1, K + 1))

    def alpha(scores: Tensor, query: Tensor, *weights: Tensor) -> Tensor:
        return scope.weigh(scores, query, mask, *weights) + 0.0 * query.sum()

    inputs = drawn(BATCH, K, N, seed=1), drawn(BATCH, K, HIDDEN, seed=2)
    weights = tuple(weight.detach().requires_grad_() for weight in weights)
    assert torch.autograd.gradcheck(alpha, (*inputs, *weights), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", SCOPES)
def test_a_step_at_a_time_equals_all_steps_and_their_autograd(name: str) -> None:
    scope, weights = scope_and_weights(name)
    scores, query = drawn(BATCH, K, N, seed=1), drawn(BATCH, K, HIDDEN, seed=2)
    g = drawn(BATCH, K, N, seed=3).detach()
    mask = scope.reach(real(), torch.tensor([K, 2]), range(1, K + 1))
    alpha = scope.weigh(scores, query, mask, *weights)
    wanted = (scores, query, *weights)
    truth = torch.autograd.grad(alpha, wanted, g, materialize_grads=True)

    by_step = mask.expand(BATCH, -1, -1).transpose(0, 1).unsqueeze(1)
    weighing = scope.weighing(by_step, *(weight.detach()[None] for weight in weights))
    for j in reversed(range(K)):
        asked, scored = query.detach()[None, :, j], scores.detach()[None, :, j]
        found = weighing.weigh(j, asked, scored, out=torch.empty_like(scored))
        assert_close(found[0], alpha[:, j].detach(), rtol=1e-12)
        d_scores, d_query = weighing.pull_back(j, asked, scored, found, g[None, :, j])
        assert_close(d_scores[0], truth[0][:, j])
        if d_query is not None:
            assert_close(d_query[0], truth[1][:, j])
        assert (d_query is not None) == (name == "local_predictive")
    for mine, expected in zip(weighing.gradients(), truth[2:], strict=True):
        assert_close(mine[0], expected)


@pytest.mark.parametrize("name", ["local_monotonic", "local_predictive"])
def test_a_window_without_a_real_position_gives_zeros_and_no_nan(name: str) -> None:
    """The monotonic window of a padded target step lies behind the source; a predicted never does.

    So the predictive scope is given a mask with nothing in it.
    """
    scope, weights = scope_and_weights(name, window=1)
    scores, query = drawn(BATCH, K, N, seed=1), drawn(BATCH, K, HIDDEN, seed=2)
    mask = scope.reach(real(), torch.tensor([K, 1]), range(1, K + 1)).expand(-1, K, -1).clone()
    empty = ~mask.any(-1)
    if name == "local_predictive":
        mask[1, 2:] = False
        empty[1, 2:] = True
    assert bool(empty[1, 2:].all())
    assert not bool(empty[0].any())
    alpha = scope.weigh(scores, query, mask, *weights)
    for found in (
        alpha,
        *torch.autograd.grad(alpha.sum(), (scores, query), materialize_grads=True),
    ):
        assert bool((found[empty] == 0).all())
        assert bool(torch.isfinite(found).all())
    weighing = scope.weighing(
        mask.transpose(0, 1).unsqueeze(1), *(w.detach()[None] for w in weights)
    )
    asked, scored = query.detach()[None, :, 3], scores.detach()[None, :, 3]
    found = weighing.weigh(3, asked, scored, out=torch.empty_like(scored))
    assert_close(found[0], alpha[:, 3].detach(), rtol=1e-12)
    d_scores, d_query = weighing.pull_back(3, asked, scored, found, torch.ones_like(scored))
    for d in (d_scores, *([] if d_query is None else [d_query])):
        assert bool((d[0, 1] == 0).all())


def test_both_ends_of_a_predicted_window_belong_to_it() -> None:
    """A query of zero predicts p = n / 2 exactly: 2 of 4, and with D = 1 the window is 1 .. 3."""
    scope, weights = scope_and_weights("local_predictive", window=1)
    query, scores = torch.zeros(1, 1, HIDDEN).double(), torch.zeros(1, 1, 4).double()
    alpha = scope.weigh(scores, query, torch.ones(1, 1, 4, dtype=torch.bool), *weights)
    near = torch.tensor([-2.0, 0.0, -2.0]).double().exp() / 3
    expected = torch.cat([near, torch.zeros(1).double()])
    torch.testing.assert_close(alpha[0, 0].detach(), expected, rtol=1e-15, atol=0)


@pytest.mark.parametrize("scope", SCOPES)
def test_the_way_from_a_query_to_its_window_is_a_query_edge(scope: str) -> None:
    """With scores that depend on nothing, a query matters by the window it predicts alone."""
    model = build(attention="additive", scope=scope, timing="bahdanau")
    with torch.no_grad():
        model.get_parameter("attention.energy.weight").zero_()
    found = measure(model, make_batch("copy", [5, 3])).vectors
    predicted = scope == "local_predictive"
    assert bool((found["keys"]["h"] == 0).all())
    for path in ("total.query", "bridge.query", "values.query"):
        assert bool((found[path]["h"] != 0).any()) == predicted


def test_only_the_predictive_scope_adds_weights_and_common_ones_start_alike() -> None:
    models = {scope: build(attention="dot", scope=scope) for scope in SCOPES}
    names = {scope: set(model.state_dict()) for scope, model in models.items()}
    assert names["local_monotonic"] == names["global"]
    added = {"attention.position.weight", "attention.position_energy.weight"}
    assert names["local_predictive"] == names["global"] | added
    assert isinstance(models["local_predictive"].scope, LocalPredictive)
    for name in names["global"]:
        weights = [model.get_parameter(name) for model in models.values()]
        assert all(torch.equal(weights[0], weight) for weight in weights)
