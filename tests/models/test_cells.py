"""Cells: each step against `torch.nn`, each hand-written adjoint against autograd of the step."""

from __future__ import annotations

import pytest
import torch
from reference import TORCH_CELLS, assert_close
from torch import Tensor

from gradlab.models.cells import CELLS, Cell, Coefficients, State

HIDDEN, BATCH = 4, 3


def drawn(*shape: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator)


def at_random(cell: Cell, *leading: int) -> tuple[Tensor, Tensor, State, Tensor, Tensor, State]:
    """Return p, x-free hidden weights and states: (p, a, state, weight_hh, bias_hh, d)."""
    gates = cell.gates * HIDDEN
    p = drawn(*leading, BATCH, gates, seed=1)
    weight, bias = drawn(gates, HIDDEN, seed=2), drawn(gates, seed=3)
    state = tuple(drawn(*leading, BATCH, HIDDEN, seed=4 + i) for i, _ in enumerate(cell.states))
    d = tuple(drawn(*leading, BATCH, HIDDEN, seed=14 + i) for i, _ in enumerate(cell.states))
    return p, state[0] @ weight.T + bias, state, weight, bias, d


def coefficients(cell: Cell, p: Tensor, a: Tensor, state: State) -> Coefficients:
    gates, after = cell.run(p, a.clone(), state)
    return cell.linearise(gates, state, after)


@pytest.mark.parametrize("name", CELLS)
def test_step_is_the_step_of_torch(name: str) -> None:
    cell = CELLS[name]
    p, a, state, weight, bias, _ = at_random(cell)
    inputs = cell.gates * HIDDEN  # the identity as input weights makes the projection the input
    twin = TORCH_CELLS[name](inputs, HIDDEN).double().requires_grad_(False)
    identity, zero = torch.eye(inputs, dtype=torch.float64), torch.zeros(inputs)
    twin.load_state_dict(
        {"weight_ih": identity, "weight_hh": weight, "bias_ih": zero, "bias_hh": bias}
    )
    several = len(state) > 1
    expected = twin(p, state if several else state[0])
    truths = expected if several else (expected,)
    for found, truth in zip(cell.step(p, a, state), truths, strict=True):
        assert_close(found, truth, rtol=1e-12)


@pytest.mark.parametrize(("dtype", "rtol"), [(torch.float64, 1e-12), (torch.float32, 1e-6)])
@pytest.mark.parametrize("scale", [1.0, 30.0])
@pytest.mark.parametrize("name", CELLS)
def test_the_two_halves_in_place_are_the_step(
    name: str, scale: float, dtype: torch.dtype, rtol: float
) -> None:
    """In float32 to rtol of the largest value a state may have, saturated gates or not."""
    cell = CELLS[name]
    p, a, state, *_ = at_random(cell, 2)
    p, a, state = (scale * p).to(dtype), (scale * a).to(dtype), tuple(s.to(dtype) for s in state)
    expected = cell.step(p, a, state)
    filled = tuple(torch.empty_like(part) for part in state)
    _, found = cell.run(p, a.clone(), state, filled)
    _, fresh = cell.run(p, a.clone(), state)
    for mine, here, new, truth in zip(found, filled, fresh, expected, strict=True):
        assert mine is here
        assert torch.equal(mine, new)
        torch.testing.assert_close(mine, truth, rtol=rtol, atol=0 if rtol < 1e-9 else rtol)


@pytest.mark.parametrize("name", CELLS)
def test_adjoint_is_the_transposed_jacobian_of_the_step(name: str) -> None:
    cell = CELLS[name]
    p, _, state, weight, bias, d = at_random(cell)
    inputs = tuple(part.requires_grad_() for part in state)
    outputs = cell.step(p, inputs[0] @ weight.T + bias, inputs)
    expected = torch.autograd.grad(outputs, inputs, d)
    with torch.no_grad():
        local = coefficients(cell, p, inputs[0] @ weight.T + bias, inputs)
        found = cell.adjoint(local, d, weight)
    for mine, truth in zip(found, expected, strict=True):
        assert_close(mine, truth, rtol=1e-12)


@pytest.mark.parametrize("name", CELLS)
def test_gradients_of_both_halves_are_those_of_autograd(name: str) -> None:
    cell = CELLS[name]
    p, a, state, _, _, d = at_random(cell)
    outputs = cell.step(p.requires_grad_(), a.requires_grad_(), state)
    expected = torch.autograd.grad(outputs, [p, a], d)
    with torch.no_grad():
        local = coefficients(cell, p, a, state)
        da = cell.pull_to_hidden(local, d)
        found = cell.pull_to_input(local, d, da), da
        filled = cell.pull_to_hidden(local, d, torch.empty_like(da))
        assert torch.equal(filled, da)
        assert torch.equal(cell.pull_to_input(local, d, filled, torch.empty_like(da)), found[0])
    for mine, truth in zip(found, expected, strict=True):
        assert_close(mine.flatten(-2), truth, rtol=1e-12)


@pytest.mark.parametrize("name", CELLS)
def test_adjoint_is_linear_and_takes_paths_on_a_leading_axis(name: str) -> None:
    cell = CELLS[name]
    p, a, state, weight, _, d = at_random(cell)
    other = tuple(part.flip(0) for part in d)
    local = coefficients(cell, p, a, state)
    together = cell.adjoint(
        local, tuple(torch.stack(pair) for pair in zip(d, other, strict=True)), weight
    )
    summed = cell.adjoint(local, tuple(a + b for a, b in zip(d, other, strict=True)), weight)
    for index, vectors in enumerate((d, other)):
        for both, alone in zip(together, cell.adjoint(local, vectors, weight), strict=True):
            assert_close(both[index], alone, rtol=1e-12)
    for both, whole in zip(together, summed, strict=True):
        assert_close(both.sum(0), whole, rtol=1e-12, scale=both.norm(dim=-1).sum(0))


@pytest.mark.parametrize("name", CELLS)
@pytest.mark.parametrize("size", [1e-170, 1e170])
def test_adjoint_keeps_very_small_and_very_large_gradients(name: str, size: float) -> None:
    cell = CELLS[name]
    p, a, state, weight, _, d = at_random(cell)
    local = coefficients(cell, p, a, state)
    for scaled, plain in zip(
        cell.adjoint(local, tuple(size * part for part in d), weight),
        cell.adjoint(local, d, weight),
        strict=True,
    ):
        assert_close(scaled, size * plain, rtol=1e-12)
