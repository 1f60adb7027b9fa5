"""Jacobians against autograd, linear cells of known singular values, bounds and measured decay."""

from __future__ import annotations

import copy
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from reference import Twin, build, make_batch, norm, stack
from torch import Tensor

from gradlab.errors import GradlabError
from gradlab.gradients import jacobians as module
from gradlab.gradients.decay import fit_profile
from gradlab.gradients.jacobians import (
    Jacobians,
    as_tables,
    jacobians,
    pascanu_bound,
    pascanu_step_bounds,
    step_jacobian,
)
from gradlab.gradients.probe import measure
from gradlab.models.cells import CELLS
from gradlab.models.seq2seq import Seq2Seq
from gradlab.tasks import Batch

LONG = 160


def drawn(*shape: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator)


def vanilla(**spec: Any) -> Seq2Seq:
    return build(attention="none", **spec)


def linear_rnn(weight: Tensor) -> Seq2Seq:
    """Return an RNN whose states are all 0, so that tanh has slope 1 and J_i = W_hh exactly."""
    model = vanilla(cell="rnn", hidden=len(weight))
    with torch.no_grad():
        for parameter in (model.source_embedding.weight, *model.encoder.parameters()):
            parameter.zero_()
        model.encoder.weight_hh_l0.copy_(weight)
    return model


def rotation(size: int, seed: int = 0) -> Tensor:
    orthogonal: Tensor = torch.linalg.qr(drawn(size, size, seed=seed)).Q
    return orthogonal


def steps_to_end(n: int) -> Tensor:
    return torch.arange(n - 1, -1, -1, dtype=torch.float64)


def close(found: Tensor, expected: Tensor, rtol: float) -> None:
    torch.testing.assert_close(found, expected.expand_as(found), rtol=rtol, atol=0)


@pytest.mark.parametrize("name", CELLS)
def test_a_step_is_the_jacobian_of_autograd(name: str) -> None:
    cell, hidden, batch = CELLS[name], 4, 3
    p = drawn(batch, cell.gates * hidden, seed=1)
    weight, bias = drawn(cell.gates * hidden, hidden, seed=2), drawn(cell.gates * hidden, seed=3)
    z = drawn(batch, len(cell.states) * hidden, seed=4)
    state = z.split(hidden, -1)
    gates, after = cell.run(p, state[0] @ weight.T + bias, state)
    local = cell.linearise(gates, state, after)
    found = step_jacobian(cell, local, weight)
    for b in range(batch):

        def step(z: Tensor, p: Tensor = p[b]) -> Tensor:
            state = z.split(hidden, -1)
            return torch.cat(cell.step(p, state[0] @ weight.T + bias, state), -1)

        expected = torch.autograd.functional.jacobian(step, z[b])
        torch.testing.assert_close(found[b], expected, rtol=1e-12, atol=1e-15)


def products_by_autograd(model: Seq2Seq, batch: Batch, example: int) -> list[Tensor]:
    """Return P_1 .. P_n by autograd through `torch.nn` cells: d z_n / d (a tap on z_i)."""
    twin = Twin(model)
    taps = twin.taps(batch, example)

    def last(*states: Tensor) -> Tensor:
        found = twin.encode(batch, example, replace(taps, states=states))
        return torch.cat([part[0, -1] for part in found])

    by_state = torch.autograd.functional.jacobian(last, taps.states)
    products = torch.cat([part[:, 0] for part in by_state], -1)  # (D, n, D)
    return list(products.unbind(1))


@pytest.mark.parametrize("cell", CELLS)
def test_short_products_are_those_of_autograd(cell: str) -> None:
    model, batch = vanilla(cell=cell), make_batch("copy", [5, 5])
    found = jacobians(model, batch)
    for b in range(2):
        products = products_by_autograd(model, batch, b)
        sigma = torch.stack([torch.linalg.svdvals(p) for p in products]).log()
        close(found.log_sigma_max_to_end[b, :-1], sigma[:-1, 0], 1e-10)
        # the smallest value of an explicit product is good to 1e-16 of the largest
        error = (found.log_sigma_min_to_end[b] - sigma[:, -1]).abs()
        assert bool((error <= 1e-14 * (sigma[:, 0] - sigma[:, -1]).exp()).all())
        for i in range(1, 5):  # J_i = P_i^-1 P_{i-1}
            step = torch.linalg.solve(products[i], products[i - 1])
            close(found.log_sigma_max[b, i], torch.linalg.matrix_norm(step, 2).log(), 1e-8)
        short = jacobians(model, make_batch_of_first(batch, b, 1))
        volume = products[0].slogdet().logabsdet + short.lyapunov.sum()
        close(found.lyapunov[b].sum() * 5, volume, 1e-8)
    # an identity has singular values of exactly one
    assert bool((found.log_sigma_max_to_end[:, -1] == 0).all())
    assert bool((found.log_sigma_min_to_end[:, -1] == 0).all())


def make_batch_of_first(batch: Batch, example: int, n: int) -> Batch:
    ids, one = batch.source[example : example + 1, :n], torch.tensor([n])
    return Batch(ids, one, ids, one, batch.symbols)


@pytest.mark.parametrize("a", [0.9, -0.2, 1e-3, 1.3])
def test_a_linear_cell_a_identity(a: float) -> None:
    found = jacobians(
        linear_rnn(a * torch.eye(4, dtype=torch.float64)), make_batch("copy", [LONG, LONG])
    )
    expected = np.log(abs(a)) * steps_to_end(LONG)
    close(found.log_sigma_max, torch.tensor(np.log(abs(a))), 1e-13)
    for sigma in (found.log_sigma_max_to_end, found.log_sigma_min_to_end):
        close(sigma, expected, 1e-12)  # 1e-3^159 is far below the least float64
    close(found.lyapunov, torch.tensor(np.log(abs(a))), 1e-12)


def test_an_orthogonal_cell_keeps_every_norm() -> None:
    found = jacobians(linear_rnn(rotation(6)), make_batch("copy", [LONG]))
    for name, values in vars(found).items():
        assert float(values.abs().max()) < 1e-12, name


@pytest.mark.parametrize("turned", [False, True])
def test_small_singular_values_are_not_lost_to_rounding(turned: bool) -> None:
    logs = -torch.tensor([0.0, 0.3, 1.0, np.log(1e100) / (LONG - 1)], dtype=torch.float64)
    basis = rotation(4) if turned else torch.eye(4, dtype=torch.float64)
    model = linear_rnn(basis @ logs.exp().diag() @ basis.T)
    found = jacobians(model, make_batch("copy", [LONG]))
    sigma_min = found.log_sigma_min_to_end[0].exp()
    assert sigma_min[0] == pytest.approx(1e-100, rel=1e-11, abs=0)
    close(sigma_min, (logs[-1] * steps_to_end(LONG)).exp(), 1e-11)
    close(found.log_sigma_max_to_end.exp(), torch.ones(LONG, dtype=torch.float64), 1e-12)
    # over 160 steps the first Q, which is not the basis, still shows by about 1/160
    tolerance = 0.02 if turned else 1e-12
    torch.testing.assert_close(found.lyapunov[0], logs, rtol=0, atol=tolerance)
    close(found.lyapunov.sum(-1), logs.sum(), 1e-12)


def test_a_singular_step_has_a_smallest_value_of_exactly_zero_from_there_on() -> None:
    weight = torch.diag(torch.tensor([0.5, 0.25, 0.0], dtype=torch.float64))
    found = jacobians(linear_rnn(weight), make_batch("copy", [4]))
    table, exponents = as_tables(found)
    assert list(table["sigma_min_to_end"]) == [0, 0, 0, 1]
    np.testing.assert_allclose(table["sigma_max_to_end"], [0.125, 0.25, 0.5, 1], rtol=1e-14)
    assert list(exponents["exponent"])[-1] == -np.inf


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_diverged_model_is_nan_and_no_exception(cell: str, bad: float) -> None:
    model = vanilla(cell=cell)
    with torch.no_grad():
        model.encoder.weight_hh_l0[0, 0] = bad
    found = jacobians(model, make_batch("copy", [4, 4]))
    assert all(bool(values.isnan().all()) for values in vars(found).values())


def test_bound_of_pascanu_holds_at_every_step() -> None:
    batch = make_batch("copy", [20, 20, 20])
    for seed, gain in [(0, 1.0), (1, 3.0), (2, 0.5)]:
        model = vanilla(cell="rnn", hidden=8, seed=seed)
        with torch.no_grad():
            model.encoder.weight_hh_l0.mul_(gain)
        bound, by_step = pascanu_bound(model), pascanu_step_bounds(model, batch)
        assert bound is not None
        assert by_step is not None
        local = jacobians(model, batch).log_sigma_max.exp()
        assert bool((local <= by_step * (1 + 1e-12)).all())
        assert bool((by_step <= bound).all())


def test_measured_gradient_shrinks_at_every_step_when_sigma_max_is_below_one() -> None:
    model, batch = vanilla(cell="rnn", hidden=8), make_batch("copy", [20, 20, 20])
    with torch.no_grad():
        model.encoder.weight_hh_l0.mul_(
            0.95 / torch.linalg.matrix_norm(model.encoder.weight_hh_l0, 2)
        )
    by_step = pascanu_step_bounds(model, batch)
    assert pascanu_bound(model) == pytest.approx(0.95, rel=1e-12)
    assert by_step is not None
    size = norm(measure(model, batch).vectors["total"]["h"])
    shrunk = size[:, :-1] / size[:, 1:]  # ||d_{i-1}|| / ||d_i||, i = 2 .. n
    assert bool((shrunk < 0.95).all())
    assert bool((shrunk <= by_step[:, 1:] * (1 + 1e-12)).all())


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_bound_does_not_apply_to_gated_cells(cell: str) -> None:
    model = vanilla(cell=cell)
    assert pascanu_bound(model) is None
    assert pascanu_step_bounds(model, make_batch("copy", [3])) is None


@pytest.mark.parametrize("cell", CELLS)
def test_measured_gradient_lies_between_the_singular_values(cell: str) -> None:
    model, batch = vanilla(cell=cell), make_batch("copy", [12, 12])
    total = measure(model, batch).vectors["total"]
    size = norm(torch.cat(list(total.values()), -1)).log()
    found, relative = jacobians(model, batch), size - size[:, -1:]
    assert bool((relative <= found.log_sigma_max_to_end + 1e-10).all())
    assert bool((relative >= found.log_sigma_min_to_end - 1e-10).all())


@pytest.mark.parametrize("loss", ["mean", "last"])
@pytest.mark.parametrize("seed", range(3))
def test_largest_exponent_is_the_slope_of_the_measured_decay(seed: int, loss: str) -> None:
    model = vanilla(cell="gru", hidden=64, embedding=32, symbols=10, seed=seed)
    batch = make_batch("copy", [40] * 8, symbols=10, seed=seed)
    size = norm(measure(model, batch, loss).vectors["total"]["h"]).mean(0).numpy()
    slope = fit_profile(np.arange(39.0, -1, -1), size)["slope"] * np.log(10)
    exponent = as_tables(jacobians(model, batch))[1]["exponent"].iloc[0]
    # Within 3 % as measured: both are averages over only 40 steps, the one of a gradient that has
    # yet to turn into the slowest direction, the other from Q_0 = I. 5 % is allowed.
    assert slope == pytest.approx(exponent, rel=0.05, abs=0)


def test_examples_in_chunks_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    model, batch = vanilla(), make_batch("copy", [6] * 5)
    together = jacobians(model, batch)
    monkeypatch.setattr(module, "CHUNK", 1)
    for name, values in vars(jacobians(model, batch)).items():
        torch.testing.assert_close(values, getattr(together, name), rtol=1e-9, atol=1e-14)


def test_tables_have_the_columns_and_geometric_means() -> None:
    logs = torch.tensor([[0.0, 1.0], [2.0, 5.0]], dtype=torch.float64)
    lyapunov = torch.tensor([[0.5, -1.0, -2.0], [0.0, -2.0, -4.0]], dtype=torch.float64)
    table, exponents = as_tables(Jacobians(logs, -logs, -1000 * logs, lyapunov))
    assert list(table.columns) == [
        "layer", "direction", "position", "sigma_max", "sigma_max_to_end", "sigma_min_to_end",
    ]  # fmt: skip
    assert list(exponents.columns) == ["layer", "direction", "index", "exponent"]
    np.testing.assert_allclose(table["sigma_max"], np.exp([1.0, 3.0]), rtol=1e-14)
    np.testing.assert_allclose(table["sigma_max_to_end"], np.exp([-1.0, -3.0]), rtol=1e-14)
    assert list(table["sigma_min_to_end"]) == [0, 0]  # e^-1000 is below the least float64
    assert list(exponents["exponent"]) == [0.25, -1.5, -3.0]
    assert set(table["layer"]) == {1}
    assert set(table["direction"]) == set(exponents["direction"]) == {"forward"}
    assert list(table["position"]) == [1, 2]
    assert list(exponents["index"]) == [1, 2, 3]


def test_measuring_is_float64_and_leaves_everything_as_it_was() -> None:
    model, batch = vanilla(cell="lstm").float().eval(), make_batch("copy", [4, 4])
    before = copy.deepcopy(model.state_dict())
    states = torch.get_rng_state(), repr(np.random.get_state()), random.getstate()
    found = jacobians(model, batch)
    assert all(values.dtype == torch.float64 for values in vars(found).values())
    assert found.lyapunov.shape == (2, 8)
    assert bool((torch.get_rng_state() == states[0]).all())
    assert (repr(np.random.get_state()), random.getstate()) == states[1:]
    assert not model.training
    for key, value in model.state_dict().items():
        assert value.dtype == torch.float32
        assert torch.equal(value, before[key])
    assert all(parameter.grad is None for parameter in model.parameters())


def test_attention_and_delay_do_not_matter_to_the_encoder() -> None:
    batch = make_batch("copy", [3, 3], delay=2)
    plain, attending = jacobians(vanilla(), batch), jacobians(build(attention="additive"), batch)
    for name, values in vars(plain).items():
        assert torch.equal(values, getattr(attending, name))
    assert plain.log_sigma_max.shape == (2, 5)


def test_lengths_that_differ_and_stacked_models_are_refused() -> None:
    with pytest.raises(GradlabError, match=r"one source length without padding.*\[2, 3\] in a"):
        jacobians(vanilla(), make_batch("copy", [2, 3]))
    with pytest.raises(GradlabError, match="expected one model, found several"):
        jacobians(stack([vanilla(), vanilla(seed=1)]), make_batch("copy", [3]))
