"""The gradient of a synchronous model: twins, finite differences, one edge a step and one exit."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from reference import (
    assert_close,
    finite_differences,
    label,
    length_gradient,
    make_batch,
    norm,
    stack,
    step_gradients,
)
from synchronous_twin import (
    MODELS,
    SHAPES,
    SynchronousTwin,
    build_synchronous,
    direct_gradient,
    total_gradients,
)

from gradlab.gradients import probe
from gradlab.gradients.hops import hop_rows
from gradlab.gradients.jacobians import jacobians
from gradlab.gradients.maps import gradient_map, target_gradients
from gradlab.gradients.measurement import Measurement, Place, place
from gradlab.gradients.probe import absent_paths, measure
from gradlab.gradients.summary import summarise
from gradlab.models.cells import CELLS
from gradlab.models.loss import REDUCTIONS
from gradlab.tasks import TASKS, Batch

DELAYS = [0, 2]
Spec = dict[str, Any]


def assert_equals_twin(
    measured: Measurement, twin: SynchronousTwin, batch: Batch, reduction: str
) -> None:
    for b, n in enumerate(batch.source_lengths.tolist()):
        direct, top = direct_gradient(twin, batch, b, reduction), Place("h", twin.spec.layers)
        for state, expected in total_gradients(twin, batch, b, reduction).items():
            reads = direct if place(state) == top else torch.zeros_like(direct)
            assert_close(measured.vectors["total"][state][b, :n], expected)
            assert_close(measured.vectors["output"][state][b, :n], expected)
            assert_close(measured.vectors["direct"][state][b, :n], reads)
        for state, expected in length_gradient(twin, batch, b, reduction).items():
            assert_close(measured.length[state][b, :n], expected)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("spec", MODELS, ids=label)
def test_every_vector_equals_its_twin_and_pads_get_exactly_nothing(
    spec: Spec, task: str, shape: str
) -> None:
    model, batch = build_synchronous(**spec), make_batch(task, **SHAPES[shape])
    measured, twin = measure(model, batch), SynchronousTwin(model)
    assert set(measured.vectors) == {"total", "direct", "output"}
    assert measured.absent == absent_paths(model) == frozenset()
    assert measured.attention_weights is None
    assert_equals_twin(measured, twin, batch, "mean")
    for b, n in enumerate(batch.source_lengths.tolist()):
        for states in (*measured.vectors.values(), measured.length):
            assert all(bool((vectors[b, n:] == 0).all()) for vectors in states.values())
        expected_loss = twin.run(batch, b, "mean").loss[0]
        torch.testing.assert_close(measured.loss[b], expected_loss, rtol=1e-12, atol=0)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("spec", MODELS, ids=label)
def test_every_reduction_equals_its_twin(spec: Spec, reduction: str) -> None:
    model, batch = build_synchronous(**spec), make_batch("reverse", [5, 2, 1], delay=1)
    measured = measure(model, batch, reduction)
    assert_equals_twin(measured, SynchronousTwin(model), batch, reduction)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("spec", MODELS, ids=label)
def test_the_total_equals_finite_differences(spec: Spec, shape: str) -> None:
    model, batch = build_synchronous(**spec), make_batch("copy", **SHAPES[shape])
    measured, b = measure(model, batch), len(batch.source) - 1
    n, twin = int(batch.source_lengths[b]), SynchronousTwin(model)
    for state, expected in finite_differences(twin, batch, b, "mean").items():
        found = measured.vectors["total"][state][b, :n]
        reached = norm(found) > 0
        assert bool((expected[~reached].abs() < 1e-12).all())
        assert_close(found[reached], expected[reached], rtol=1e-6)


@pytest.mark.parametrize(("reduction", "target"), [("first", 1), ("last", 6)])
@pytest.mark.parametrize("delay", DELAYS)
@pytest.mark.parametrize("cell", CELLS)
def test_a_single_step_comes_over_one_exit_and_the_steps_between(
    cell: str, delay: int, reduction: str, target: int
) -> None:
    model, batch = build_synchronous(cell=cell), make_batch("copy", [6, 6], delay=delay)
    measured, stands = measure(model, batch, reduction), target + delay
    edges = (stands - torch.arange(1.0, 7 + delay, dtype=torch.float64)) + 1
    for state, length in measured.length.items():
        total = measured.vectors["total"][state]
        assert_close(length, edges.clamp(min=0)[:, None] * total, rtol=1e-12)
        assert bool((total[:, stands:] == 0).all())
        assert bool((norm(total[:, : stands - (state == "c")]) > 0).all())
    rows = summarise(measured).query("path == 'total' and state == 'h'")
    found = rows.set_index("position")["path_length"].loc[:stands]
    np.testing.assert_allclose(found, edges[:stands], rtol=1e-12)


@pytest.mark.parametrize("cell", CELLS)
def test_every_layer_climbed_is_one_edge_more(cell: str) -> None:
    model, batch = build_synchronous(cell=cell, layers=3), make_batch("copy", [5, 5])
    measured = measure(model, batch, "last")
    assert len(measured.length) == 3 * len(model.state_names)
    for state, length in measured.length.items():
        climbs = 3 - place(state).layer
        edges = climbs + 1 + torch.arange(4.0, -1.0, -1.0, dtype=torch.float64)
        assert_close(length, edges[:, None] * measured.vectors["total"][state], rtol=1e-12)
        direct = measured.vectors["direct"][state]
        assert bool((direct[:, -1] != 0).any()) == (state == "h.3")


@pytest.mark.parametrize("delay", DELAYS)
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("spec", MODELS, ids=label)
def test_the_map_is_a_backward_pass_for_each_target_and_zero_after_its_step(
    spec: Spec, task: str, delay: int
) -> None:
    lengths = [4, 1, 6]
    model, batch = build_synchronous(**spec), make_batch(task, lengths, delay=delay)
    with torch.no_grad():
        found, weights = target_gradients(model, batch)
    assert weights is None
    for b, k in enumerate(lengths):
        for j, (states, _, _) in enumerate(step_gradients(SynchronousTwin(model), batch, b)):
            for part, expected in zip(found, states, strict=True):
                assert_close(part[j, b, : k + delay], expected[0])
                assert bool((part[j, b, j + delay + 1 :] == 0).all())
        assert all(bool((part[k:, b] == 0).all()) for part in found)


@pytest.mark.parametrize("delay", DELAYS)
@pytest.mark.parametrize("cell", CELLS)
def test_a_term_of_some_hops_is_the_map_of_the_target_where_it_left(cell: str, delay: int) -> None:
    model, batch = build_synchronous(cell=cell), make_batch("copy", [5, 5, 5], delay=delay)
    rows = hop_rows(model, batch, measure(model, batch, "sum"))
    norms = gradient_map(model, batch).norms
    assert len(rows) == len(norms) * (5 + delay) * (6 + delay) // 2
    for state, expected in norms.items():
        of_state = rows[rows["state"] == state]
        position, leaves = of_state["position"] - 1, of_state["position"] + of_state["hops"] - 1
        blank, row = leaves < delay, (leaves - delay).clip(lower=0)
        by_target = np.where(blank, 0.0, expected.numpy()[row, position])
        np.testing.assert_allclose(of_state["norm_mean"], by_target, rtol=1e-12, atol=0)
        shares = of_state.groupby("position")["share"].sum(min_count=1)
        read = shares.index[: len(shares) - (state == "c")]  # c_n is read by nothing
        np.testing.assert_allclose(shares.loc[read], 1, rtol=1e-12)


@pytest.mark.parametrize("cell", CELLS)
def test_jacobians_are_those_of_the_states_alone(cell: str) -> None:
    model, batch = build_synchronous(cell=cell), make_batch("copy", [5, 5])
    found, size = jacobians(model, batch), 4 * len(model.state_names)
    assert found.lyapunov.shape == (2, size)
    # a gradient that enters at the last step alone stays between the singular values
    total = measure(model, batch, "last").vectors["total"]
    length = torch.cat(list(total.values()), -1).square().sum(-1).sqrt().log()
    rise = length - length[:, -1:]
    assert bool((rise <= found.log_sigma_max_to_end + 1e-12).all())
    assert bool((rise >= found.log_sigma_min_to_end - 1e-12).all())


@pytest.mark.parametrize("spec", MODELS, ids=label)
def test_an_example_in_a_batch_is_measured_as_if_alone(spec: Spec) -> None:
    model, batch = build_synchronous(**spec), make_batch("copy", [5, 2, 7], delay=1, seed=3)
    together = measure(model, batch)
    for b, n in enumerate(batch.source_lengths.tolist()):
        one = slice(b, b + 1)
        sizes = batch.source_lengths[one], batch.target_lengths[one]
        source, target = batch.source[one, :n], batch.target[one, : n - 1]
        alone = measure(model, Batch(source, sizes[0], target, sizes[1], batch.symbols))
        for path, states in alone.vectors.items():
            for state, vectors in states.items():
                assert_close(together.vectors[path][state][b, :n], vectors[0])
        for state, length in alone.length.items():
            assert_close(together.length[state][b, :n], length[0])


@pytest.mark.parametrize("spec", MODELS, ids=label)
def test_stacked_models_are_measured_together(spec: Spec) -> None:
    models = [build_synchronous(seed=seed, **spec) for seed in range(3)]
    batch, stacked = make_batch("copy", [4, 2, 6], delay=1), stack(models)
    for reduction in REDUCTIONS:
        together = measure(stacked, batch, reduction)
        for r, model in enumerate(models):
            alone = measure(model, batch, reduction)
            assert_close(together.loss[r], alone.loss, rtol=1e-12)
            for path, states in alone.vectors.items():
                for state, vectors in states.items():
                    assert_close(together.vectors[path][state][r], vectors, rtol=1e-12)
            for state, length in alone.length.items():
                assert_close(together.length[state][r], length, rtol=1e-11)


def test_a_measurement_in_pieces_and_without_parts_is_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, batch = build_synchronous(cell="lstm"), make_batch("copy", [4, 2, 6])
    whole = measure(model, batch)
    monkeypatch.setattr(probe, "CHUNK_BYTES", 1)
    for paths in (True, False):
        found = measure(model, batch, paths=paths)
        assert set(found.vectors) == {"total", "direct"} | ({"output"} if paths else set())
        for path, states in found.vectors.items():
            for state, vectors in states.items():
                assert_close(vectors, whole.vectors[path][state], rtol=1e-12)


def test_measuring_leaves_the_model_untouched_and_rides_with_any_dtype() -> None:
    single = build_synchronous(cell="lstm").float().eval()
    batch = make_batch("copy", [4, 4], delay=1)
    for index, parameter in enumerate(single.parameters()):
        parameter.grad = torch.full_like(parameter, 0.5) if index % 2 else None
    before, random = copy.deepcopy(single), torch.get_rng_state()
    gradients = copy.deepcopy([parameter.grad for parameter in single.parameters()])

    def everything(model: Any) -> list[torch.Tensor]:
        measured = measure(model, batch)
        rows = hop_rows(model, batch, measured)
        parts = [*measured.vectors["total"].values(), *gradient_map(model, batch).norms.values()]
        shares = torch.tensor(rows["share"].to_numpy(copy=True))
        return [*parts, shares, jacobians(model, batch).lyapunov]

    found = everything(single)
    assert torch.equal(torch.get_rng_state(), random)
    assert not single.training
    weights = zip(single.parameters(), before.parameters(), gradients, strict=True)
    for parameter, old, gradient in weights:
        assert torch.equal(parameter, old)
        assert parameter.dtype == torch.float32
        assert (parameter.grad is None) == (gradient is None)
        if parameter.grad is not None and gradient is not None:
            assert torch.equal(parameter.grad, gradient)
    double = copy.deepcopy(before).double()
    for part, expected in zip(found, everything(double), strict=True):
        assert part.dtype == torch.float64
        assert not part.requires_grad
        torch.testing.assert_close(part, expected, rtol=0, atol=0, equal_nan=True)
