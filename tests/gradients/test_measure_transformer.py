"""The gradient at every layer of a transformer: against torch's layers, differences, identities."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from reference import assert_close, label, make_batch, norm, stack
from torch import Tensor
from transformer_twin import TransformerTwin, build

from gradlab.errors import GradlabError
from gradlab.gradients.hops import hop_rows
from gradlab.gradients.jacobians import jacobians
from gradlab.gradients.maps import gradient_map, map_rows
from gradlab.gradients.measurement import Measurement
from gradlab.gradients.probe import absent_paths, measure
from gradlab.gradients.summary import summarise
from gradlab.models.loss import REDUCTIONS
from gradlab.models.transformer import CrossEdges, Transformer

Spec = dict[str, Any]
MODELS: list[Spec] = [
    {"layers": 1},
    {"layers": 2, "heads": 3},
    {"layers": 3, "hidden": 7, "heads": 1},
]
SHAPES: dict[str, dict[str, Any]] = {
    "fixed": {"lengths": [5, 5]},
    "variable": {"lengths": [3, 1, 8]},
    "delayed": {"lengths": [4, 2], "delay": 3},
}


def states(model: Transformer) -> list[str]:
    return ["h", *(f"h.{layer}" for layer in range(2, model.spec.layers + 1))]


def edges(model: Transformer) -> list[str]:
    return [f"{e}.{m}" for e in ("values", "keys") for m in range(1, model.spec.layers + 1)]


def expected_gradients(
    twin: TransformerTwin, example: int, reduction: str, batch: Any
) -> dict[str, list[Tensor]]:
    """Return path -> the gradient at each layer; a part through queries is what cutting loses."""
    found = {"total": twin.gradients(batch, example, reduction)}
    found |= {e: twin.gradients(batch, example, reduction, [e]) for e in twin.edges}
    for path, through in (("total", None), *((e, [e]) for e in twin.edges)):
        left = twin.gradients(batch, example, reduction, through, cut=True)
        found[f"{path}.query"] = [a - b for a, b in zip(found[path], left, strict=True)]
    nothing = [torch.zeros_like(g) for g in found["total"][:-1]]
    found["direct"] = [*nothing, found["total"][-1]]
    return found


@pytest.mark.parametrize(
    ("shape", "reduction"),
    [("fixed", "mean"), ("variable", "sum"), ("variable", "last"), ("delayed", "first")],
)
@pytest.mark.parametrize("spec", MODELS, ids=label)
def test_every_path_equals_its_twin_and_pads_get_exactly_nothing(
    spec: Spec, shape: str, reduction: str
) -> None:
    model, batch = build(**spec), make_batch("copy", **SHAPES[shape])
    measured, twin = measure(model, batch, reduction), TransformerTwin(model)
    for b, n in enumerate(batch.source_lengths.tolist()):
        truth = expected_gradients(twin, b, reduction, batch)
        assert set(truth) == set(measured.vectors)
        for path, layers in truth.items():
            assert list(measured.vectors[path]) == states(model)
            for layer, found in enumerate(measured.vectors[path].values()):
                whole = norm(truth[path.removesuffix(".query")][layer])
                slack = 1e-3 * whole if path.endswith(".query") else 0 * whole
                scale = norm(layers[layer]) + slack
                if n == 1 and path.startswith("keys"):  # one weight is 1: rounding is all there is
                    scale = 1e-3 * norm(truth["total"][layer])
                assert_close(found[b, :n], layers[layer], scale=scale)
                assert bool((found[b, n:] == 0).all())
        for length in measured.length.values():
            assert bool((length[b, n:] == 0).all())
        result = twin.run(batch, b, reduction)
        torch.testing.assert_close(measured.loss[b], result.loss, rtol=1e-12, atol=0)
        assert measured.attention_weights is not None
        weights = measured.attention_weights[b, : len(result.nats)]
        assert_close(weights[:, :n], result.weights[-1].mean(0), rtol=1e-12)
        assert bool((weights[:, n:] == 0).all())


@pytest.mark.parametrize("spec", MODELS, ids=label)
def test_the_total_equals_central_differences(spec: Spec) -> None:
    model, batch, step = build(**spec), make_batch("reverse", [3]), 1e-5
    total, twin = measure(model, batch).vectors["total"], TransformerTwin(model)
    for layer, name in enumerate(states(model)):
        found = torch.zeros_like(total[name][0])
        for entry in np.ndindex(*found.shape):
            losses = []
            for sign in (1, -1):
                taps = twin.taps(batch, 0)
                with torch.no_grad():
                    taps[layer][0][entry] = sign * step
                    losses.append(twin.run(batch, 0, "mean", taps).loss)
            found[entry] = (losses[0] - losses[1]) / (2 * step)
        assert_close(total[name][0], found, rtol=1e-6)


@pytest.mark.parametrize("spec", MODELS, ids=label)
def test_parts_sum_to_the_total(spec: Spec) -> None:
    model = build(**spec)
    vectors = measure(model, make_batch("copy", [6, 4, 6, 2])).vectors
    for name in states(model):
        for suffix in ("", ".query"):
            parts = torch.stack([vectors[f"{edge}{suffix}"][name] for edge in edges(model)])
            whole, scale = vectors[f"total{suffix}"][name], norm(parts).sum(0)
            assert_close(parts.sum(0), whole, 1e-12, scale=scale)


@pytest.mark.parametrize("spec", MODELS, ids=label)
def test_absent_paths_are_zero_by_structure_and_named(spec: Spec) -> None:
    model = build(**spec)
    measured, last = measure(model, make_batch("copy", [4, 4])), model.spec.layers
    absent = {f"values.{last}.query", f"keys.{last}.query"}
    absent |= {"total.query"} if last == 1 else set()
    assert measured.absent == absent_paths(model) == absent
    for path, of_states in measured.vectors.items():
        if path != "direct":
            for vectors in of_states.values():
                assert bool((vectors != 0).any()) == (path not in absent), path


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("spec", MODELS, ids=label)
def test_every_path_is_as_long_as_its_edges(spec: Spec, reduction: str) -> None:
    model, batch = build(**spec), make_batch("copy", [5, 3])
    measured, last = measure(model, batch, reduction), model.spec.layers
    for layer, name in enumerate(states(model), 1):
        weighed = torch.stack(
            [
                ((last - layer) + 1 + (last - int(edge[-1]))) * measured.vectors[edge][name]
                for edge in edges(model)
            ]
        )
        assert_close(measured.length[name], weighed.sum(0), 1e-12, scale=norm(weighed).sum(0))


def test_one_layer_is_one_edge_away() -> None:
    rows = summarise(measure(build(layers=1), make_batch("copy", [6, 6])))
    lengths = rows[rows["path"] == "total"]["path_length"].to_numpy()
    np.testing.assert_allclose(lengths, 1, rtol=1e-12)


def test_rows_name_layers_and_paths() -> None:
    rows = summarise(measure(build(layers=2), make_batch("copy", [3, 3])))
    assert rows.groupby("layer")["path"].nunique().to_dict() == {1: 11, 2: 11}
    assert set(rows["state"]) == {"h"}
    assert rows[rows["path"] == "total"]["cancellation"].ge(1 - 1e-12).all()
    split = rows[rows["path"].isin(edges(build(layers=2)))]
    shares = split.groupby(["layer", "position"])["share"].sum()
    np.testing.assert_allclose(shares, 1, rtol=1e-9)


def test_without_paths_there_is_the_same_total_alone() -> None:
    model, batch = build(), make_batch("copy", [4, 2])
    whole, plain = measure(model, batch), measure(model, batch, paths=False)
    assert list(plain.vectors) == ["total", "direct"]
    for name in states(model):
        assert_close(plain.vectors["total"][name], whole.vectors["total"][name], rtol=1e-12)
        assert_close(plain.length[name], whole.length[name], rtol=1e-12)


def assert_same(found: Measurement, expected: Measurement) -> None:
    assert found.absent == expected.absent
    for path, of_states in expected.vectors.items():
        for name, vectors in of_states.items():
            assert_close(found.vectors[path][name], vectors, rtol=1e-12)
    for name, length in expected.length.items():
        assert_close(found.length[name], length, rtol=1e-12)


def test_a_measurement_in_pieces_equals_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    model, batch = build(), make_batch("copy", [5, 5, 5])
    whole = measure(model, batch)
    monkeypatch.setattr("gradlab.gradients.probe.CHUNK_BYTES", 1)
    assert_same(measure(model, batch), whole)


def test_stacked_models_are_measured_as_each_alone() -> None:
    models, batch = [build(seed=seed) for seed in range(2)], make_batch("copy", [4, 4])
    together = measure(stack(models), batch)
    for r, model in enumerate(models):
        alone = measure(model, batch)
        for path, of_states in alone.vectors.items():
            for name, vectors in of_states.items():
                scale = norm(alone.vectors["total"][name])
                assert_close(together.vectors[path][name][r], vectors, 1e-12, scale=scale)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("frozen", [True, False])
def test_measuring_leaves_the_model_untouched(training: bool, frozen: bool) -> None:
    model, batch = build().float(), make_batch("copy", [4, 4])
    model.train(training).requires_grad_(not frozen)
    for index, parameter in enumerate(model.parameters()):
        parameter.grad = torch.full_like(parameter, 0.5) if index % 2 else None
    weights = copy.deepcopy(model.state_dict())
    gradients = copy.deepcopy([parameter.grad for parameter in model.parameters()])
    versions = [parameter._version for parameter in model.parameters()]
    generator = torch.get_rng_state()
    found = measure(model, batch)
    mapped = gradient_map(model, batch)
    assert model.training == training
    assert [parameter._version for parameter in model.parameters()] == versions
    for name, weight in model.state_dict().items():
        assert weight.dtype == torch.float32
        assert torch.equal(weight, weights[name])
    for parameter, before in zip(model.parameters(), gradients, strict=True):
        assert parameter.requires_grad != frozen
        same = parameter.grad is before is None
        assert same or torch.equal(parameter.grad, before)  # type: ignore[arg-type]
    assert torch.equal(torch.get_rng_state(), generator)
    assert found.vectors["total"]["h"].dtype == mapped.norms["h"].dtype == torch.float64
    assert not found.vectors["total"]["h"].requires_grad
    assert_same(measure(build().float().double(), batch), found)


class ReadsNothing(Transformer):
    """A model whose decoder forgets to read the source: every exit edge is cut."""

    def decode(self, inputs: Tensor, edges: CrossEdges, *rest: Any) -> Any:
        values, keys = (tuple(x.detach() for x in each) for each in (edges.values, edges.keys))
        return super().decode(inputs, CrossEdges(values, keys), *rest)


def test_an_edge_that_the_loss_does_not_depend_on_is_an_error_not_a_zero() -> None:
    broken = ReadsNothing(build().spec, 4)
    with pytest.raises(RuntimeError, match="does not require grad"):
        measure(broken, make_batch("copy", [4, 4]))


@pytest.mark.parametrize("chunk", [None, 1])
@pytest.mark.parametrize("spec", MODELS, ids=label)
def test_a_map_is_one_pass_a_target_step(
    monkeypatch: pytest.MonkeyPatch, spec: Spec, chunk: int | None
) -> None:
    if chunk:
        monkeypatch.setattr("gradlab.gradients.maps.CHUNK_BYTES", chunk)
    model, batch = build(**spec), make_batch("reverse", [4, 4, 4])
    found, twin = gradient_map(model, batch), TransformerTwin(model)
    expected = {name: torch.zeros(4, 4, dtype=torch.float64) for name in states(model)}
    weights = torch.zeros(4, 4, dtype=torch.float64)
    for b in range(3):
        taps = twin.taps(batch, b)
        result = twin.run(batch, b, "sum", taps)
        weights += result.weights[-1].mean(0).detach() / 3
        for j, nats in enumerate(result.nats):
            rows = torch.autograd.grad(nats, taps, retain_graph=True)
            for name, row in zip(states(model), rows, strict=True):
                expected[name][j] += norm(row[0]) / 3
    for name in states(model):
        torch.testing.assert_close(found.norms[name], expected[name], rtol=1e-9, atol=0)
    assert found.attention_weights is not None
    assert_close(found.attention_weights, weights, rtol=1e-12)
    table = map_rows(found)
    assert sorted(set(table["layer"])) == list(range(1, model.spec.layers + 1))


def test_everything_leaves_without_a_hop() -> None:
    model, batch = build(), make_batch("copy", [5, 5])
    measured = measure(model, batch)
    rows = hop_rows(model, batch, measured)
    assert (rows["hops"] == 0).all()
    assert (rows["share"] == 1).all()
    for layer, name in enumerate(states(model), 1):
        own = rows[rows["layer"] == layer].sort_values("position")
        expected = norm(measured.vectors["total"][name]).mean(0).numpy()
        np.testing.assert_allclose(own["norm_mean"], expected, rtol=1e-12)


def test_jacobians_need_a_recurrence() -> None:
    with pytest.raises(GradlabError) as error:
        jacobians(build(), make_batch("copy", [4, 4]))
    assert str(error.value) == "jacobians: expected a recurrent encoder, found a transformer's"
