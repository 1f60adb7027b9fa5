"""The gradient at every encoder state: against twins, finite differences, identities and limits."""

from __future__ import annotations

import copy
import gc
import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from reference import (
    ARCHITECTURES,
    MODELS,
    Twin,
    all_gradients,
    assert_close,
    build,
    finite_differences,
    label,
    length_gradient,
    make_batch,
    norm,
    stack,
    step_gradients,
    total_gradient,
)
from torch import Tensor

from gradlab.gradients.measurement import Measurement
from gradlab.gradients.paths import exit_injections, query_edges
from gradlab.gradients.probe import SPLIT as EXIT_EDGES
from gradlab.gradients.probe import measure
from gradlab.models.attention import Score
from gradlab.models.cells import CELLS
from gradlab.models.decoder_adjoint import pull_back_targets
from gradlab.models.layers import Scale
from gradlab.models.loss import REDUCTIONS
from gradlab.models.scopes import SCOPES
from gradlab.models.scores import SCORES
from gradlab.models.seq2seq import Seq2Seq
from gradlab.schema import Task
from gradlab.tasks import TASKS, Batch, probe_batch

Spec = dict[str, Any]
SHAPES: dict[str, dict[str, Any]] = {
    "fixed": {"lengths": [5, 5]},
    "variable": {"lengths": [3, 1, 8]},
    "delayed": {"lengths": [4, 2], "delay": 3},
}
ATTENDING = [spec for spec in MODELS if spec["attention"] != "none"]


def each_vector(measured: Measurement) -> Iterator[tuple[str, str, Tensor]]:
    for path, states in measured.vectors.items():
        for state, vectors in states.items():
            yield path, state, vectors


def splits(spec: Spec) -> dict[str, list[str]]:
    """Return path -> the parts that sum to it."""
    found = {"total": list(EXIT_EDGES)}
    if spec["attention"] != "none":
        found["total.query"] = [f"{edge}.query" for edge in EXIT_EDGES]
    return found


def assert_equals_twin(measured: Measurement, twin: Twin, batch: Batch, reduction: str) -> None:
    """Compare every vector, at 1e-9 of its own norm.

    The twin's parts through queries are differences, and carry the rounding of what they were
    taken from: 1e-12 of its norm is allowed to them.
    """
    for b, n in enumerate(batch.source_lengths.tolist()):
        truth = all_gradients(twin, batch, b, reduction)
        assert set(truth) == set(measured.vectors)
        for path, state, vectors in each_vector(measured):
            whole = norm(truth[path.removesuffix(".query")][state])
            slack = 1e-3 * whole if path.endswith(".query") else 0 * whole
            scale = norm(truth[path][state]) + slack
            assert_close(vectors[b, :n], truth[path][state], scale=scale)
        for state, expected in length_gradient(twin, batch, b, reduction).items():
            assert_close(measured.length[state][b, :n], expected)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("spec", MODELS, ids=label)
def test_every_path_equals_its_twin_and_pads_get_exactly_nothing(
    spec: Spec, task: str, shape: str
) -> None:
    model, batch = build(**spec), make_batch(task, **SHAPES[shape])
    measured, twin = measure(model, batch), Twin(model)
    assert_equals_twin(measured, twin, batch, "mean")
    for b, n in enumerate(batch.source_lengths.tolist()):
        for vectors in (*(v for _, _, v in each_vector(measured)), *measured.length.values()):
            assert bool((vectors[b, n:] == 0).all())
        if measured.attention_weights is not None:
            assert bool((measured.attention_weights[b, :, n:] == 0).all())
        expected_loss = twin.run(batch, b, "mean").loss[0]
        torch.testing.assert_close(measured.loss[b], expected_loss, rtol=1e-12, atol=0)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("spec", MODELS, ids=label)
def test_every_path_equals_finite_differences(spec: Spec, task: str, shape: str) -> None:
    model, batch = build(**spec), make_batch(task, **SHAPES[shape])
    measured, twin, b = measure(model, batch), Twin(model), len(batch.source) - 1
    if spec.get("scope") == "local_predictive":  # p starts near n / 2, which is no end if n is odd
        b = 0
    n = int(batch.source_lengths[b])
    sizes = {
        state: sum(norm(measured.vectors[edge][state][b, :n]) for edge in EXIT_EDGES)
        for state in model.state_names
    }
    for path in ("total", *EXIT_EDGES):
        for state, expected in finite_differences(twin, batch, b, "mean", path).items():
            found = measured.vectors[path][state][b, :n]
            assert_close(found, expected, rtol=1e-6, scale=torch.as_tensor(sizes[state]))


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("spec", ARCHITECTURES, ids=label)
def test_every_reduction_equals_its_twin(spec: Spec, reduction: str) -> None:
    model, batch = build(cell="lstm", **spec), make_batch("reverse", [5, 2, 1])
    assert_equals_twin(measure(model, batch, reduction), Twin(model), batch, reduction)


@pytest.mark.parametrize("spec", MODELS, ids=label)
def test_parts_sum_to_the_total_and_shares_to_one(spec: Spec) -> None:
    model, batch = build(**spec), make_batch("copy", [6, 4, 6, 2])
    vectors = measure(model, batch).vectors
    for state in model.state_names:
        for whole, names in splits(spec).items():
            parts = torch.stack([vectors[name][state] for name in names])
            assert_close(parts.sum(0), vectors[whole][state], 1e-12, scale=norm(parts).sum(0))
        total = vectors["total"][state]
        parts = torch.stack([vectors[edge][state] for edge in EXIT_EDGES])
        squared = total.square().sum((0, -1))
        share = ((parts * total).sum((1, -1)) / squared).sum(0)
        nothing_reads_it = torch.zeros(6, dtype=torch.bool)
        nothing_reads_it[-1] = state == "c" and spec["bridge"] == "none"
        assert torch.equal(squared == 0, nothing_reads_it)
        one = torch.ones_like(share)
        torch.testing.assert_close(share[squared > 0], one[squared > 0], rtol=1e-12, atol=0)


@pytest.mark.parametrize("spec", MODELS, ids=label)
def test_absent_paths_are_zero_by_structure_and_named(spec: Spec) -> None:
    model = build(**spec)
    measured = measure(model, make_batch("copy", [4, 4]))
    edges = {"bridge"} if spec["attention"] == "none" else set(EXIT_EDGES)
    edges -= {"bridge"} if spec["bridge"] == "none" else set()
    edges -= {"keys"} if spec["attention"] == "location" else set()
    asked = set() if spec["attention"] == "none" else set(edges)
    asked &= {"bridge"} if spec["timing"] == "luong" else asked
    assert set(query_edges(model)) == asked
    present = edges | {f"{edge}.query" for edge in asked}
    parts = {name for names in splits(spec).values() for name in names}
    assert measured.absent == parts - present
    for path in parts:
        reached = bool((measured.vectors[path]["h"] != 0).any())
        assert reached == (path in present)


@pytest.mark.parametrize("spec", MODELS, ids=label)
def test_leaving_the_parts_out_gives_the_same_total(spec: Spec) -> None:
    model, batch = build(**spec), make_batch("copy", [4, 3])
    with_parts, without = measure(model, batch), measure(model, batch, paths=False)
    assert set(without.vectors) == {"total", "direct"}
    for path, state, vectors in each_vector(without):
        assert torch.equal(vectors, with_parts.vectors[path][state])
        assert torch.equal(without.length[state], with_parts.length[state])


@pytest.mark.parametrize("timing", ["bahdanau", "luong"])
@pytest.mark.parametrize("cell", CELLS)
def test_uniform_attention_shares_the_context_gradient_equally(cell: str, timing: str) -> None:
    n = 6
    model, batch = build(cell=cell, timing=timing), make_batch("copy", [n, n])
    with torch.no_grad():
        model.attention.energy.weight.zero_()  # type: ignore[union-attr,operator]
    measured = measure(model, batch)
    assert measured.attention_weights is not None
    uniform = torch.full((2, n, n), 1 / n, dtype=torch.float64)
    torch.testing.assert_close(measured.attention_weights, uniform, rtol=1e-15, atol=0)
    for path in ("keys", *(path for path in measured.vectors if path.endswith(".query"))):
        assert all(bool((vectors == 0).all()) for vectors in measured.vectors[path].values())
    with torch.no_grad():
        encoded = model.encode(batch)
    injected = exit_injections(model, encoded, batch).total["values"][0]
    twin = Twin(model)
    for b in range(2):
        run = twin.run(batch, b, "mean", taps := twin.taps(batch, b))
        (through_values,) = torch.autograd.grad(run.loss.sum(), taps.values, retain_graph=True)
        by_context = torch.autograd.grad(run.loss.sum(), run.contexts, allow_unused=True)
        context_gradient = sum(g for g in by_context if g is not None)
        assert isinstance(context_gradient, Tensor)
        equal = (context_gradient / n).expand(n, -1)
        assert_close(injected[b], equal, rtol=1e-12)
        assert_close(through_values[0], equal, rtol=1e-12)


@pytest.mark.parametrize("spec", MODELS, ids=label)
def test_an_example_in_a_batch_is_measured_as_if_alone(spec: Spec) -> None:
    model = build(**spec)
    batch = make_batch("copy", [5, 2, 7], seed=3)
    together = measure(model, batch)
    for b, n in enumerate(batch.source_lengths.tolist()):
        one = slice(b, b + 1)
        alone = measure(
            model,
            Batch(
                batch.source[one, :n],
                batch.source_lengths[one],
                batch.target[one, :n],
                batch.target_lengths[one],
                batch.symbols,
            ),
        )
        for path, state, vectors in each_vector(alone):
            assert_close(together.vectors[path][state][b, :n], vectors[0])
        for state, length in alone.length.items():
            assert_close(together.length[state][b, :n], length[0])


@pytest.mark.parametrize("spec", MODELS, ids=label)
def test_a_source_of_one_symbol_in_a_batch_of_one(spec: Spec) -> None:
    model, batch = build(2, **spec), make_batch("copy", [1], symbols=2)
    measured = measure(model, batch)
    assert all(vectors.shape == (1, 1, 4) for _, _, vectors in each_vector(measured))
    assert_equals_twin(measured, Twin(model), batch, "mean")
    if spec["attention"] != "none":  # one weight, whatever its score
        assert bool((measured.vectors["keys"]["h"] == 0).all())
    if spec["attention"] != "none" and spec.get("scope") != "local_predictive":  # always 1
        assert bool((measured.vectors["total.query"]["h"] == 0).all())
        assert measured.attention_weights is not None
        assert bool((measured.attention_weights == 1).all())


@pytest.mark.parametrize("spec", MODELS, ids=label)
def test_stacked_models_are_measured_together(spec: Spec) -> None:
    models, batch = [build(seed=seed, **spec) for seed in range(3)], make_batch("copy", [4, 2, 6])
    for reduction in REDUCTIONS:
        together = measure(stack(models), batch, reduction)
        for r, model in enumerate(models):
            alone = measure(model, batch, reduction)
            assert_close(together.loss[r], alone.loss, rtol=1e-12)
            for path, state, vectors in each_vector(alone):
                found = together.vectors[path][state][r]
                parts = [together.vectors[edge][state][r] for edge in EXIT_EDGES]
                scale = torch.stack([norm(part) for part in [*parts, vectors]]).sum(0)
                assert_close(found, vectors, rtol=1e-12, scale=scale)
            for state, length in alone.length.items():
                assert_close(together.length[state][r], length, rtol=1e-11)


# Measuring changes nothing.


def model_in_use(dtype: torch.dtype = torch.float32) -> Seq2Seq:
    """Return a model with a gradient on half of its parameters, in evaluation mode in part."""
    model = build(cell="lstm").to(dtype)
    for index, parameter in enumerate(model.parameters()):
        parameter.grad = torch.full_like(parameter, 0.5) if index % 2 else None
    model.decoder.eval()
    return model


def random_states() -> list[Any]:
    return [torch.get_rng_state().tolist(), random.getstate(), repr(np.random.get_state())]


def test_measuring_leaves_weights_gradients_mode_and_random_states_untouched() -> None:
    model, batch = model_in_use(), make_batch("copy", [5, 3])
    weights = copy.deepcopy(model.state_dict())
    gradients = copy.deepcopy([parameter.grad for parameter in model.parameters()])
    versions = [parameter._version for parameter in model.parameters()]
    modes = [module.training for module in model.modules()]
    ids, generators = copy.deepcopy(batch), random_states()
    measure(model, batch)
    assert [module.training for module in model.modules()] == modes
    assert [parameter._version for parameter in model.parameters()] == versions
    for name, weight in model.state_dict().items():
        assert weight.dtype == torch.float32
        assert torch.equal(weight, weights[name])
    for parameter, before in zip(model.parameters(), gradients, strict=True):
        assert parameter.requires_grad
        same = parameter.grad is before is None
        assert same or torch.equal(parameter.grad, before)  # type: ignore[arg-type]
    assert random_states() == generators
    assert torch.equal(batch.source, ids.source)
    assert torch.equal(batch.target, ids.target)


CONTEXTS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "plain": nullcontext,
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "enable_grad": torch.enable_grad,
}


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("frozen", [True, False])
def test_measuring_works_in_any_mode_and_gives_the_same(
    context: str, training: bool, frozen: bool
) -> None:
    model, batch = build(cell="lstm"), make_batch("copy", [5, 3])
    expected = measure(model, batch)
    model.train(training).requires_grad_(not frozen)
    grad_mode = torch.is_grad_enabled()
    with CONTEXTS[context]():
        found = measure(model, batch)
    assert torch.is_grad_enabled() == grad_mode
    assert model.training == training
    for path, state, vectors in each_vector(expected):
        assert torch.equal(found.vectors[path][state], vectors)
        assert torch.equal(found.length[state], expected.length[state])
        for tensor in (found.vectors[path][state], found.length[state], found.loss):
            assert not tensor.requires_grad


def test_a_model_and_batch_made_in_inference_mode_can_be_measured() -> None:
    with torch.inference_mode():
        model, batch = build(), make_batch("copy", [5, 3])
    expected = measure(build(), make_batch("copy", [5, 3]))
    found = measure(model, batch)
    assert torch.equal(found.vectors["total"]["h"], expected.vectors["total"]["h"])


def test_a_float32_model_is_measured_as_its_float64_copy() -> None:
    single, batch = model_in_use(), make_batch("copy", [5, 3])
    double = copy.deepcopy(single).double()
    expected = measure(double, batch)
    for path, state, vectors in each_vector(measure(single, batch)):
        assert vectors.dtype == torch.float64
        assert torch.equal(vectors, expected.vectors[path][state])


def test_memory_is_flat_over_200_measurements() -> None:
    def tensors_alive() -> int:
        gc.collect()
        return sum(issubclass(type(thing), Tensor) for thing in gc.get_objects())

    model, batch = build(cell="lstm"), make_batch("copy", [3, 2])
    kept = [measure(model, batch)]
    before = tensors_alive()
    for _ in range(200):
        kept = [measure(model, batch)]
    assert tensors_alive() == before
    assert all(vectors.grad_fn is None for _, _, vectors in each_vector(kept[0]))


class ReadsNothing(Seq2Seq):
    """A model whose decoder forgets to read the source: every exit edge is cut."""

    def decode(self, inputs: Tensor, memory: Any, state: Any, counted: Any = None) -> Any:
        edges = memory.edges
        cut = replace(edges, values=edges.values.detach(), keys=edges.keys.detach())
        return super().decode(inputs, replace(memory, edges=cut), state, counted)


def test_an_edge_that_the_loss_does_not_depend_on_is_an_error_not_a_zero() -> None:
    broken = ReadsNothing(build(attention="dot").spec, 4)
    with pytest.raises(RuntimeError, match="not have been used in the graph"):
        measure(broken, make_batch("copy", [4, 4]))


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("timing", ["bahdanau", "luong"])
def test_a_new_score_needs_one_definition_and_one_entry(
    monkeypatch: pytest.MonkeyPatch, timing: str, scope: str
) -> None:
    class Distance(Score):
        """e_ji = -|w q_j - h_i|^2, with a learnt w and nothing by hand."""

        def __init__(self, query_size: int, state_size: int, longest: int | None = None) -> None:
            super().__init__(query_size, state_size)
            self.scale = Scale()

        def forward(self, query: Tensor, projected_keys: Tensor) -> Tensor:
            apart: Tensor = self.scale(query).unsqueeze(-2) - projected_keys.unsqueeze(-3)
            return -apart.square().sum(-1)

    monkeypatch.setitem(SCORES, "distance", Distance)
    known = build(timing=timing, scope=scope, cell="lstm").spec
    spec = known.model_copy(update={"attention": "distance"})
    model, batch = Seq2Seq(spec, 4).double(), make_batch("reverse", [5, 3, 7])
    measured, twin = measure(model, batch), Twin(model)
    assert_equals_twin(measured, twin, batch, "mean")
    for state, expected in finite_differences(twin, batch, 0, "mean").items():
        assert_close(measured.vectors["total"][state][0, :5], expected, rtol=1e-6)
    for j, (_, _, read) in enumerate(step_gradients(twin, batch, 0)):
        with torch.no_grad():
            trace = model(batch)
            rows = pull_back_targets(model, batch, trace.memory, trace.decoded)
        assert rows.read is not None
        assert_close(rows.read[0, j, :5], read[0])


# Vanishing gradients: tiny numbers are numbers.


def untrained(n: int, attention: str, examples: int = 16) -> tuple[Seq2Seq, Batch]:
    task = Task(name="copy", length=n, symbols=8)
    model = build(8, hidden=32, embedding=32, attention=attention)
    return model, probe_batch(task, examples, 0, n)


@pytest.mark.parametrize(
    ("n", "attention", "first", "last"),
    [
        (20, "none", 8.4e-7, 1.6e-2),
        (40, "none", 2.6e-11, 7.7e-3),
        (20, "additive", 7.2e-3, 1.9e-2),
        (40, "additive", 2.7e-3, 8.5e-3),
    ],
)
def test_the_vanishing_gradient_has_its_known_size(
    n: int, attention: str, first: float, last: float
) -> None:
    model, batch = untrained(n, attention)
    size = norm(measure(model, batch).vectors["total"]["h"])
    assert bool((size > 0).all())
    factor = 3 if attention == "additive" else 30  # the decay is a matter of the draw
    assert first / factor < float(size[:, 0].mean()) < factor * first
    assert last / 3 < float(size[:, -1].mean()) < 3 * last


@pytest.mark.parametrize("n", [40, 160])
def test_a_vanished_gradient_is_exact_and_not_rounded_to_zero(n: int) -> None:
    model, batch = untrained(n, "none", examples=2)
    total = measure(model, batch, "last").vectors["total"]["h"]
    twin = Twin(model)
    for b in range(2):
        assert_close(total[b], total_gradient(twin, batch, b, "last")["h"])
    smallest = float(norm(total[:, 0]).max())
    assert 0 < smallest < {40: 1e-14, 160: 1e-50}[n]


@pytest.mark.parametrize("attention", SCORES)
def test_attention_keeps_the_gradient_alive_at_every_length(attention: str) -> None:
    sizes = []
    for n in (5, 40):
        model, batch = untrained(n, attention, examples=4)
        total = measure(model, batch, "sum").vectors["total"]["h"]
        sizes.append(float(norm(total[:, 0]).mean()))
    assert sizes[1] > sizes[0] / 30


@pytest.mark.parametrize("attention", ["none", "additive"])
def test_a_measurement_in_pieces_equals_the_whole(
    monkeypatch: pytest.MonkeyPatch, attention: str
) -> None:
    model = build(cell="lstm", attention=attention, timing="bahdanau", bridge="initial")
    batch = make_batch("copy", **SHAPES["variable"])
    whole = measure(model, batch)
    monkeypatch.setattr("gradlab.gradients.probe.CHUNK_BYTES", 1)
    pieces = measure(model, batch)
    assert pieces.absent == whole.absent
    for path, state, vectors in each_vector(pieces):
        assert_close(vectors, whole.vectors[path][state])
    for state, length in pieces.length.items():
        assert_close(length, whole.length[state])
    assert_close(pieces.loss, whole.loss)
    if whole.attention_weights is not None and pieces.attention_weights is not None:
        assert_close(pieces.attention_weights, whole.attention_weights)
