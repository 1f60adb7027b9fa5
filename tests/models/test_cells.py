"""Cells: each step against `torch.nn`, each hand-written adjoint against autograd of the step."""

from __future__ import annotations

import pytest
import torch
from reference import TORCH_CELLS, assert_close
from torch import Tensor

from gradlab.models.cells import CELLS, Cell, State

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


@pytest.mark.parametrize("name", CELLS)
def test_adjoint_is_the_transposed_jacobian_of_the_step(name: str) -> None:
    cell = CELLS[name]
    p, _, state, weight, bias, d = at_random(cell)
    inputs = tuple(part.requires_grad_() for part in state)
    outputs = cell.step(p, inputs[0] @ weight.T + bias, inputs)
    expected = torch.autograd.grad(outputs, inputs, d)
    with torch.no_grad():
        local = cell.linearise(p, inputs[0] @ weight.T + bias, inputs)
        found = cell.adjoint(local, d, weight)
    for mine, truth in zip(found, expected, strict=True):
        assert_close(mine, truth, rtol=1e-12)


@pytest.mark.parametrize("name", CELLS)
def test_gate_gradients_are_those_of_autograd(name: str) -> None:
    cell = CELLS[name]
    p, a, state, _, _, d = at_random(cell)
    outputs = cell.step(p.requires_grad_(), a.requires_grad_(), state)
    expected = torch.autograd.grad(outputs, [p, a], d)
    with torch.no_grad():
        found = cell.gate_gradients(cell.linearise(p, a, state), d)
    for mine, truth in zip(found, expected, strict=True):
        assert_close(mine, truth, rtol=1e-12)


@pytest.mark.parametrize("name", CELLS)
def test_adjoint_is_linear_and_takes_paths_on_a_leading_axis(name: str) -> None:
    cell = CELLS[name]
    p, a, state, weight, _, d = at_random(cell)
    other = tuple(part.flip(0) for part in d)
    local = cell.linearise(p, a, state)
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
    local = cell.linearise(p, a, state)
    for scaled, plain in zip(
        cell.adjoint(local, tuple(size * part for part in d), weight),
        cell.adjoint(local, d, weight),
        strict=True,
    ):
        assert_close(scaled, size * plain, rtol=1e-12)
