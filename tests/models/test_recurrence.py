"""A cell over time: the scan's gradient, linear cells with known answers, stacked replicas."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from reference import TORCH_LAYERS, assert_close, norm
from torch import Tensor

from gradlab.models.cells import CELLS, RNN, Cell, Coefficients, Gates, State, Views
from gradlab.models.inputs import Inputs, Projected
from gradlab.models.recurrence import Scan, linearise, pull_back, run_forward
from gradlab.models.rows import Rows, time_first, time_last

HIDDEN, BATCH, STEPS = 3, 2, 4


def drawn(*shape: int, seed: int, scale: float = 1.0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(*shape, dtype=torch.float64, generator=generator)


def scan_inputs(cell: Cell, *leading: int, seed: int = 0, steps: int = STEPS) -> list[Tensor]:
    """Return projected inputs, recurrent weight and bias, and initial states."""
    gates = cell.gates * HIDDEN
    shapes: list[tuple[int, ...]] = [(BATCH, steps, gates), (gates, HIDDEN), (gates,)]
    shapes += [(BATCH, HIDDEN) for _ in cell.states]
    tensors = [drawn(*leading, *shape, seed=10 * seed + i) for i, shape in enumerate(shapes)]
    return [tensor.requires_grad_() for tensor in tensors]


def plain_loop(cell: Cell, projected: Tensor, state: State, weight: Tensor, bias: Tensor) -> State:
    history = []
    for p in projected.unbind(-2):
        state = cell.step(p, state[0] @ weight.T + bias, state)
        history.append(state)
    return tuple(torch.stack(part, -2) for part in zip(*history, strict=True))


def scan(name: str, *inputs: Tensor) -> State:
    states: State = Scan.apply(name, None, None, *inputs)  # type: ignore[no-untyped-call]
    return states


@pytest.mark.parametrize("steps", [1, STEPS])
@pytest.mark.parametrize("name", CELLS)
def test_scan_passes_gradcheck_in_every_input(name: str, steps: int) -> None:
    inputs = scan_inputs(CELLS[name], steps=steps)
    assert torch.autograd.gradcheck(partial(scan, name), inputs, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("leading", [(2,), (2, 2)])
@pytest.mark.parametrize("name", CELLS)
def test_scan_passes_gradcheck_with_leading_axes(name: str, leading: tuple[int, ...]) -> None:
    inputs = scan_inputs(CELLS[name], *leading, steps=2)
    assert torch.autograd.gradcheck(
        partial(scan, name), inputs, rtol=1e-6, atol=1e-8, fast_mode=True
    )


@pytest.mark.parametrize("name", CELLS)
def test_scan_has_the_gradient_of_the_unrolled_loop(name: str) -> None:
    inputs = scan_inputs(CELLS[name], steps=8)
    projected, weight, bias, *initial = inputs
    states = scan(name, *inputs)
    unrolled = plain_loop(CELLS[name], projected, tuple(initial), weight, bias)
    seeds = [drawn(*part.shape, seed=50 + i) for i, part in enumerate(states)]
    for found, truth in zip(states, unrolled, strict=True):
        assert_close(found.detach(), truth.detach(), rtol=1e-12)
    found_gradients = torch.autograd.grad(states, inputs, seeds)
    expected_gradients = torch.autograd.grad(unrolled, inputs, seeds)
    for found, truth in zip(found_gradients, expected_gradients, strict=True):
        assert_close(found, truth)


@pytest.mark.parametrize("replicas", [(), (2,)])
@pytest.mark.parametrize("name", CELLS)
def test_symbols_looked_up_in_a_table_are_the_same_as_their_projections(
    name: str, replicas: tuple[int, ...]
) -> None:
    projected, *others = scan_inputs(CELLS[name], steps=7)
    table = drawn(*replicas, 3, projected.shape[-1], seed=90).requires_grad_()
    ids = torch.arange(7 * BATCH).view(BATCH, 7).square() % 3
    read = Projected(table, ids).expand(*replicas, BATCH)
    weight, bias, *initial = (
        part.detach().expand(*replicas, *part.shape).clone().requires_grad_() for part in others
    )
    looked_up = Scan.apply(name, None, read.ids, table, weight, bias, *initial)  # type: ignore[no-untyped-call]
    in_full = scan(name, read.full(), weight, bias, *initial)
    g = [drawn(*part.shape, seed=91 + i) for i, part in enumerate(in_full)]
    for found, expected in zip(looked_up, in_full, strict=True):
        assert torch.equal(found, expected)
    wanted = table, weight, bias, *initial
    found_gradients = torch.autograd.grad(looked_up, wanted, g)
    for found, expected in zip(
        found_gradients, torch.autograd.grad(in_full, wanted, g), strict=True
    ):
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("cached", [1, BATCH * HIDDEN * 8])
@pytest.mark.parametrize("name", CELLS)
def test_it_does_not_matter_how_many_steps_are_worked_on_at_a_time(
    name: str, cached: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = scan_inputs(CELLS[name], steps=7)
    at_once = scan(name, *inputs)
    g = [drawn(*part.shape, seed=95 + i) for i, part in enumerate(at_once)]
    expected = torch.autograd.grad(at_once, inputs, g)
    monkeypatch.setattr("gradlab.models.inputs.CACHED", cached)
    a_few = scan(name, *inputs)
    for mine, truth in zip(a_few, at_once, strict=True):
        assert torch.equal(mine, truth)
    for mine, truth in zip(torch.autograd.grad(a_few, inputs, g), expected, strict=True):
        torch.testing.assert_close(mine, truth, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", CELLS)
def test_a_state_that_nothing_reads_has_gradient_zero_not_none(name: str) -> None:
    inputs = scan_inputs(CELLS[name])
    first_step = scan(name, *inputs)[0][:, 0].sum()
    projected, *_ = torch.autograd.grad(first_step, inputs)
    assert bool((projected[:, 1:] == 0).all())
    assert bool((projected[:, 0] != 0).any())


@pytest.mark.parametrize("name", CELLS)
def test_scan_is_the_layer_of_torch(name: str) -> None:
    twin = TORCH_LAYERS[name](5, HIDDEN, batch_first=True).double()
    x = drawn(BATCH, 6, 5, seed=7)
    initial = tuple(drawn(BATCH, HIDDEN, seed=8 + i) for i, _ in enumerate(CELLS[name].states))
    weights = {key: value.detach() for key, value in twin.named_parameters()}
    for value in weights.values():
        value.copy_(drawn(*value.shape, seed=value.numel(), scale=0.5))
    projected = x @ weights["weight_ih_l0"].T + weights["bias_ih_l0"]
    states = scan(name, projected, weights["weight_hh_l0"], weights["bias_hh_l0"], *initial)
    stacked = tuple(part[None] for part in initial)
    with torch.no_grad():
        expected, _ = twin(x, stacked if len(stacked) > 1 else stacked[0])
    assert_close(states[0], expected, rtol=1e-12)


class LinearCell(RNN):
    """h' = p + a: a recurrence whose Jacobian is the recurrent weight itself."""

    def activate(self, seen: Views) -> None:
        pass

    def linearise(self, gates: Gates, before: State, after: State) -> Coefficients:
        return (torch.ones_like(gates[0]),)


def pulled(weight: Tensor, injections: Tensor) -> Tensor:
    """Return the total gradients of a linear cell for injections (..., batch, time, hidden)."""
    cell, bias = LinearCell(), torch.zeros(1, HIDDEN, dtype=torch.float64)
    p = drawn(BATCH, injections.shape[-2], HIDDEN, seed=1)
    initial = (torch.zeros(1, BATCH, HIDDEN, dtype=torch.float64),)
    inputs = Inputs(Rows(p.shape[:1], weight), None, p)
    (states,), _ = run_forward(cell, inputs, initial, weight[None], bias)
    local = linearise(cell, time_first(p)[:, None], initial, (states[1:],), weight, bias)
    (total,), _ = pull_back(cell, local, (time_first(injections)[:, None],), weight)
    return time_last(total[:, 0])


@pytest.mark.parametrize("a", [0.5, -0.9, 1.0, 1.5, 0.0])
def test_a_linear_cell_scales_the_gradient_by_its_factor_at_each_step(a: float) -> None:
    n = 30
    injections = torch.zeros(BATCH, n, HIDDEN, dtype=torch.float64)
    injections[:, -1] = last = drawn(BATCH, HIDDEN, seed=2)
    total = pulled(a * torch.eye(HIDDEN, dtype=torch.float64), injections)
    distance = torch.arange(n - 1, -1, -1, dtype=torch.float64)
    expected = last.norm(dim=-1, keepdim=True) * abs(a) ** distance
    torch.testing.assert_close(norm(total), expected, rtol=1e-12, atol=0)


def test_an_orthogonal_linear_cell_keeps_the_norm() -> None:
    n = 200
    orthogonal, _ = torch.linalg.qr(drawn(HIDDEN, HIDDEN, seed=3))
    injections = torch.zeros(BATCH, n, HIDDEN, dtype=torch.float64)
    injections[:, -1] = last = drawn(BATCH, HIDDEN, seed=4)
    expected = last.norm(dim=-1, keepdim=True).expand(BATCH, n)
    found = norm(pulled(orthogonal, injections))
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)


def test_pull_back_is_the_sum_over_explicit_jacobian_products() -> None:
    n, weight = 6, drawn(HIDDEN, HIDDEN, seed=5)
    injections = drawn(BATCH, n, HIDDEN, seed=6)
    total = pulled(weight, injections)
    for i in range(n):
        terms = [injections[:, m] @ torch.linalg.matrix_power(weight, m - i) for m in range(i, n)]
        scale = torch.stack([term.norm(dim=-1) for term in terms]).sum(0)
        assert_close(total[:, i], sum(terms, torch.zeros_like(terms[0])), 1e-12, scale)


@pytest.mark.parametrize("name", CELLS)
def test_stacked_replicas_equal_each_alone(name: str) -> None:
    cell = CELLS[name]
    alone = [scan_inputs(cell, seed=seed, steps=6) for seed in range(3)]
    stacked = [torch.stack(parts).detach().requires_grad_() for parts in zip(*alone, strict=True)]
    states = scan(name, *stacked)
    seeds = [drawn(*part.shape, seed=60 + i) for i, part in enumerate(states)]
    gradients = torch.autograd.grad(states, stacked, seeds)
    for r, inputs in enumerate(alone):
        own_states = scan(name, *inputs)
        own_gradients = torch.autograd.grad(own_states, inputs, [seed[r] for seed in seeds])
        for together, own in zip([*states, *gradients], [*own_states, *own_gradients], strict=True):
            assert_close(together[r].detach(), own.detach(), rtol=1e-12)
