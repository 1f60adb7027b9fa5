"""Layers, both directions, the mean bridge and input feeding: every measured number by a twin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from reference import (
    DEEP,
    EDGES,
    PLAIN,
    QUERIES_CUT,
    SOME_DEEP,
    Crossing,
    Twin,
    Vectors,
    assert_close,
    build,
    finite_differences,
    label,
    length_gradient,
    make_batch,
    named,
    norm,
    stack,
    step_gradients,
    times,
)
from torch import Tensor

from gradlab.gradients import hops, maps
from gradlab.gradients.hops import hop_rows
from gradlab.gradients.jacobians import jacobians, tables
from gradlab.gradients.maps import gradient_map, map_rows, target_gradients
from gradlab.gradients.measurement import Measurement, place
from gradlab.gradients.paths import place_names, query_edges
from gradlab.gradients.probe import measure
from gradlab.models.cells import CELLS
from gradlab.models.seq2seq import Seq2Seq
from gradlab.tasks import Batch

Spec = dict[str, Any]
LENGTHS = [3, 1, 5]


def gradients(
    twin: Twin,
    batch: Batch,
    example: int,
    through: tuple[str, ...] = EDGES,
    crossing: Crossing = PLAIN,
) -> dict[str, Tensor]:
    """Return place -> (n, H): the gradient of the mean loss by a tap, over some of the exits."""
    taps = twin.taps(batch, example)
    loss = twin.run(batch, example, "mean", taps, through, crossing).loss.sum()
    if not loss.requires_grad:
        return named(twin, [torch.zeros_like(tap) for tap in taps.states])
    return named(twin, torch.autograd.grad(loss, taps.states, materialize_grads=True))


def split(twin: Twin, batch: Batch, example: int) -> Vectors:
    """Return the total and the parts by exit edge and query; a query's part is what a cut takes."""
    wanted: dict[str, tuple[str, ...]] = {"total": EDGES, **{edge: (edge,) for edge in EDGES}}
    found = {path: gradients(twin, batch, example, edges) for path, edges in wanted.items()}
    if twin.spec.attention != "none":
        for path, edges in wanted.items():
            left = gradients(twin, batch, example, edges, QUERIES_CUT)
            found[f"{path}.query"] = {name: found[path][name] - left[name] for name in left}
    return found


def exits(measured: Measurement, name: str, b: int, n: int) -> Tensor:
    """Return the sum of the norms of the parts at every position of one example."""
    return torch.stack([norm(measured.vectors[edge][name][b, :n]) for edge in EDGES]).sum(0)


@pytest.mark.parametrize("spec", DEEP, ids=label)
def test_every_path_and_length_equals_its_twin_at_every_layer_and_direction(spec: Spec) -> None:
    model, batch = build(**spec), make_batch("copy", LENGTHS)
    measured, twin = measure(model, batch), Twin(model)
    for b, n in enumerate(LENGTHS):
        truth = split(twin, batch, b)
        assert set(truth) | {"direct"} == set(measured.vectors)
        for path, states in truth.items():
            assert list(states) == list(measured.vectors[path]) == twin.names
            for name, expected in states.items():
                found, size = measured.vectors[path][name][b, :n], exits(measured, name, b, n)
                assert_close(found, expected, scale=size)
        for name, expected in length_gradient(twin, batch, b, "mean").items():
            size = exits(measured, name, b, n)
            assert_close(measured.length[name][b, :n], expected, scale=20 * size)
        for states in (*measured.vectors.values(), measured.length):
            assert all(bool((vectors[b, n:] == 0).all()) for vectors in states.values())


@pytest.mark.parametrize("spec", SOME_DEEP, ids=label)
def test_every_exit_equals_finite_differences(spec: Spec) -> None:
    model, batch = build(**spec), make_batch("reverse", [3, 2], delay=1)
    measured, twin = measure(model, batch), Twin(model)
    for path in ("total", *EDGES):
        for name, expected in finite_differences(twin, batch, 1, "mean", path).items():
            found, size = measured.vectors[path][name][1, :3], exits(measured, name, 1, 3)
            assert_close(found, expected, rtol=1e-6, scale=size)


@pytest.mark.parametrize("spec", SOME_DEEP, ids=label)
def test_direct_is_what_the_exits_inject(spec: Spec) -> None:
    """Without recurrence and without layers above, the total is all direct."""
    model, batch = build(**spec), make_batch("copy", [4, 4])
    measured, twin = measure(model, batch), Twin(model)
    for b in range(2):
        cut = Crossing(hop=times(0.0))  # no way from a state to the next
        top = gradients(twin, batch, b, crossing=cut)
        for name, expected in top.items():
            if place(name).layer == model.spec.layers:
                found, size = measured.vectors["direct"][name][b], exits(measured, name, b, 4)
                assert_close(found, expected, scale=size)
    if spec["bridge"] == "initial" and model.spec.layers > 1:
        lower = measured.vectors["direct"]["h"]
        assert bool((lower[:, :-1] == 0).all())
        assert bool((lower[:, -1] != 0).any())


@pytest.mark.parametrize("spec", SOME_DEEP, ids=label)
def test_parts_sum_to_the_total_and_absent_paths_are_zero(spec: Spec) -> None:
    model, batch = build(**spec), make_batch("copy", [5, 3])
    measured = measure(model, batch)
    for name, total in measured.vectors["total"].items():
        parts = torch.stack([measured.vectors[edge][name] for edge in EDGES])
        assert_close(parts.sum(0), total, 1e-12, scale=norm(parts).sum(0))
    asked = set() if spec["attention"] == "none" else {"bridge", "values", "keys"}
    if spec.get("timing") == "luong" and not spec.get("input_feeding"):
        asked = {"bridge"}
    asked -= {"bridge"} if spec["bridge"] == "none" else set()
    assert set(query_edges(model)) == asked
    for path, states in measured.vectors.items():
        there = any(bool((vectors != 0).any()) for vectors in states.values())
        nothing_asked = path == "total.query" and not asked
        assert there == (path not in measured.absent and not nothing_asked)


@pytest.mark.parametrize("spec", SOME_DEEP, ids=label)
def test_an_example_in_a_batch_and_a_model_in_a_stack_are_measured_as_if_alone(spec: Spec) -> None:
    models, batch = [build(seed=seed, **spec) for seed in range(2)], make_batch("copy", LENGTHS)
    together = measure(stack(models), batch)
    for r, model in enumerate(models):
        for b, n in enumerate(LENGTHS):
            one = batch.examples(slice(b, b + 1))
            alone = measure(
                model,
                Batch(
                    one.source[:, :n],
                    one.source_lengths,
                    one.target[:, :n],
                    one.target_lengths,
                    batch.symbols,
                ),
            )
            for path, states in alone.vectors.items():
                for name, expected in states.items():
                    size = exits(alone, name, 0, n)
                    found = together.vectors[path][name][r, b, :n]
                    assert_close(found, expected[0], scale=size)


# Known lengths.


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("two_way", [False, True])
@pytest.mark.parametrize("cell", CELLS)
def test_without_attention_the_length_is_known_at_every_layer(
    cell: str, two_way: bool, layers: int
) -> None:
    """(n - i) + 1 + j + (layers - layer), with i - 1 for n - i backward; two-way from the top."""
    n, j = 5, 3
    settings: Spec = {"layers": layers, "bidirectional": two_way, "attention": "none"}
    model, batch = build(cell=cell, **settings), make_batch("copy", [n, n])
    batch = Batch(batch.source, batch.source_lengths, batch.target[:, :j], torch.tensor([j, j]), 4)
    measured, position = measure(model, batch, "last"), torch.arange(1.0, n + 1)
    for name, total in measured.vectors["total"].items():
        where = place(name)
        if two_way and where.layer < layers:
            continue  # a path may turn round on its way up
        hops = n - position if where.direction == "forward" else position - 1
        edges = (hops + 1 + j + layers - where.layer).double()[:, None]
        assert_close(measured.length[name], edges * total, rtol=1e-11)


@pytest.mark.parametrize("cell", CELLS)
def test_a_mean_bridge_is_left_at_every_step(cell: str) -> None:
    """Its last state is one edge from s_0, and its share is the n-th part of what s_0 gets."""
    n = 4
    mean = build(cell=cell, attention="none", bridge="mean")
    last = measure(mean, make_batch("copy", [n]), "first")
    for name, total in last.vectors["total"].items():
        direct = last.vectors["direct"][name]
        assert_close(direct, direct[:, -1:].expand_as(direct), rtol=1e-12)
        assert_close(last.length[name][:, -1], 2 * total[:, -1], rtol=1e-12)


@pytest.mark.parametrize("layers", [1, 2])
def test_input_feeding_leads_queries_to_values_and_keys(layers: int) -> None:
    spec: Spec = {"timing": "luong", "bridge": "none", "layers": layers}
    batch = make_batch("copy", [4, 4])
    without = measure(build(**spec), batch).vectors
    fed = measure(build(input_feeding=True, **spec), batch)
    for path in ("values.query", "keys.query"):
        assert bool((without[path]["h"] == 0).all())
        assert bool((fed.vectors[path]["h"] != 0).any())
    first = measure(build(input_feeding=True, **spec), batch, "first").vectors
    assert bool((first["total.query"]["h"] == 0).all())  # nothing was fed yet


# Map, hops and Jacobians.


@pytest.mark.parametrize("spec", DEEP, ids=label)
def test_every_row_of_the_map_is_a_backward_pass_of_its_own(spec: Spec) -> None:
    model, batch = build(**spec), make_batch("copy", [3, 1])
    with torch.no_grad():
        found, _ = target_gradients(model, batch)
    twin = Twin(model)
    for b, n in enumerate([3, 1]):
        for j, (states, _, _) in enumerate(step_gradients(twin, batch, b)):
            for part, expected in zip(found, states, strict=True):
                assert_close(part[j, b, :n], expected[0], scale=1e-6 + norm(expected[0]))


@pytest.mark.parametrize("spec", SOME_DEEP, ids=label)
def test_the_map_has_a_row_for_each_layer_and_direction(
    spec: Spec, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, batch = build(**spec), make_batch("copy", [3] * 3)
    found = gradient_map(model, batch)
    assert tuple(found.norms) == place_names(model)
    vectors, _ = target_gradients(model, batch)
    for name, rows in zip(place_names(model), vectors, strict=True):
        torch.testing.assert_close(found.norms[name], norm(rows).mean(1).detach())
    monkeypatch.setattr(maps, "CHUNK_BYTES", 1)
    pd.testing.assert_frame_equal(map_rows(gradient_map(model, batch)), map_rows(found))
    places = map_rows(found)[["state", "layer", "direction"]].drop_duplicates()
    assert [tuple(row) for row in places.itertuples(index=False)] == [
        tuple(place(name)) for name in place_names(model)
    ]


def terms_by_hops(model: Seq2Seq, batch: Batch) -> dict[str, Tensor]:
    """Return place -> (hops, batch, n, hidden), as `hops` pulls them back."""
    measured = measure(model, batch)
    (found,) = (terms for _, terms in hops._terms(model, batch, measured))
    n = batch.source.shape[1]
    by_hops = {}
    for name, terms in zip(place_names(model), found, strict=True):
        row, position, count = hops._cells(model, name, n)
        laid = torch.zeros(1 + int(count.max()), len(batch.source), n, terms.shape[-1]).double()
        laid[count, :, position] = terms[row, :, position]
        by_hops[name] = laid
    return by_hops


@pytest.mark.parametrize("factor", [0.5, -1.5])
@pytest.mark.parametrize("spec", SOME_DEEP, ids=label)
def test_terms_are_the_coefficients_of_a_factor_at_every_hop(spec: Spec, factor: float) -> None:
    """Times z at every time step of the encoder, the total is the sum of z^m times term m."""
    model, batch = build(**spec), make_batch("copy", [4, 4])
    terms, twin = terms_by_hops(model, batch), Twin(model)
    for b in range(2):
        whole = gradients(twin, batch, b, crossing=Crossing(hop=times(factor)))
        for name, expected in whole.items():
            part = terms[name][:, b]
            powers = factor ** torch.arange(len(part)).double()[:, None, None]
            weighed = powers * part
            assert_close(weighed.sum(0), expected, scale=norm(weighed).sum(0))


@pytest.mark.parametrize("spec", SOME_DEEP, ids=label)
def test_hops_have_rows_for_every_place_and_shares_that_sum_to_one(
    spec: Spec, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, batch = build(**spec), make_batch("reverse", [4, 4, 4])
    rows = hop_rows(model, batch, measure(model, batch))
    each = rows.groupby(["state", "layer", "direction", "position"])["share"]
    assert len(each) == 4 * len(place_names(model))
    size = each.apply(lambda share: share.abs().sum())
    assert (np.abs(each.sum() - 1) <= 1e-12 * size).all()
    monkeypatch.setattr(hops, "CHUNK_BYTES", 1)
    pd.testing.assert_frame_equal(hop_rows(model, batch, measure(model, batch)), rows)


@pytest.mark.parametrize("two_way", [False, True])
@pytest.mark.parametrize("cell", CELLS)
def test_jacobians_are_those_of_every_layer_and_direction(cell: str, two_way: bool) -> None:
    n = 3
    model = build(cell=cell, layers=2, bidirectional=two_way)
    batch, twin = make_batch("copy", [n, n]), Twin(model)
    sigmas, exponents = tables(model, batch)
    places = {(where.layer, where.direction) for where in map(place, place_names(model))}
    found = sigmas[["layer", "direction"]].drop_duplicates().itertuples(index=False)
    assert {tuple(row) for row in found} == places
    assert len(sigmas) == n * len(places)
    size = len(model.state_names) * 4
    assert len(exponents) == size * len(places)
    states = model.encode(batch).layers[0][0].detach()
    for layer, way in places:
        measured = jacobians(model, batch, layer, way)
        for b in range(2):
            inputs = (
                model.source_embedding.weight[batch.source[b]].detach() if layer == 1 else states[b]
            )
            explicit = explicit_jacobians(twin, inputs, layer, way)
            largest = torch.stack([torch.linalg.svdvals(j)[0] for j in explicit])
            torch.testing.assert_close(measured.log_sigma_max[b].exp(), largest, rtol=1e-9, atol=0)


def explicit_jacobians(twin: Twin, inputs: Tensor, layer: int, way: str) -> list[Tensor]:
    """Return J of every position, each (size, size), of one layer that reads `inputs` (n, E)."""
    cell = twin.encoders[layer - 1][way]
    count = len(twin.zeros(1))
    z = torch.cat([part[0] for part in twin.zeros(1)])
    found: dict[int, Tensor] = {}
    order = range(len(inputs)) if way == "forward" else reversed(range(len(inputs)))
    for i in order:

        def step(z: Tensor, x: Tensor = inputs[i]) -> Tensor:
            return torch.cat(twin.step(cell, x[None], z[None].chunk(count, dim=-1)), dim=-1)[0]

        jacobian: Callable[..., Tensor] = torch.autograd.functional.jacobian
        found[i], z = jacobian(step, z), step(z).detach()
    return [found[i] for i in range(len(inputs))]
