"""Parts by exit edge and query, and path lengths: against every path walked by itself."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from reference import (
    MODELS,
    Route,
    Twin,
    assert_close,
    build,
    label,
    make_batch,
    norm,
    path_graph,
)
from torch import Tensor

from gradlab.gradients.hops import hop_rows
from gradlab.gradients.measurement import Measurement
from gradlab.gradients.paths import query_edges
from gradlab.gradients.probe import SPLIT as EXIT_EDGES
from gradlab.gradients.probe import measure
from gradlab.models.cells import CELLS
from gradlab.models.loss import REDUCTIONS
from gradlab.models.seq2seq import Seq2Seq
from gradlab.tasks import Batch

Spec = dict[str, Any]
Keep = Callable[[Route], float]
EXTENTS = [(3, 3), (2, 3), (3, 1), (1, 2)]
"""Source and target lengths of the enumerated examples."""


def uneven_batch(source_lengths: list[int], target_lengths: list[int], symbols: int = 4) -> Batch:
    """Return random sources and targets of lengths that have nothing to do with each other."""
    generator = torch.Generator().manual_seed(7)
    count, pad = len(source_lengths), symbols + 2
    lengths = torch.tensor(source_lengths), torch.tensor(target_lengths)
    ids = [
        torch.randint(symbols, (count, int(some.max())), generator=generator).where(
            torch.arange(int(some.max())) < some[:, None], pad
        )
        for some in lengths
    ]
    return Batch(ids[0], lengths[0], ids[1], lengths[1], symbols)


@dataclass(frozen=True)
class Walked:
    """All paths of one example, by route; gradients are (states * hidden,)."""

    routes: dict[Route, Tensor]
    source_length: int
    states: int

    def gather(self, weight: Keep) -> tuple[tuple[Tensor, Tensor], ...]:
        """Return, for each state, the weighted sum of the routes and the sum of their norms."""
        size = next(iter(self.routes.values())).shape[0]
        total = torch.zeros(self.source_length, size, dtype=torch.float64)
        scale = torch.zeros(self.states, self.source_length, dtype=torch.float64)
        for route, gradient in self.routes.items():
            total[route.position - 1] += weight(route) * gradient
            parts = torch.stack(gradient.chunk(self.states))
            scale[:, route.position - 1] += abs(weight(route)) * norm(parts)
        return tuple(zip(total.chunk(self.states, dim=-1), scale, strict=True))


def walk(model: Seq2Seq, batch: Batch, example: int, reduction: str = "mean") -> Walked:
    routes = path_graph(Twin(model), batch, example, reduction).walk()
    return Walked(routes, int(batch.source_lengths[example]), len(model.state_names))


def leaves_by(edge: str, *, by_query: bool = False) -> Keep:
    return lambda route: route.edge == edge and (route.query or not by_query)


def has_length(m: int) -> Keep:
    return lambda route: route.length == m


def by_path(model: Seq2Seq) -> dict[str, Keep]:
    """Return path -> which routes belong to it."""
    found: dict[str, Keep] = {"total": lambda route: 1, "direct": lambda route: route.hops == 0}
    found |= {edge: leaves_by(edge) for edge in EXIT_EDGES}
    if model.attention is not None:
        found["total.query"] = lambda route: route.query
        found |= {f"{edge}.query": leaves_by(edge, by_query=True) for edge in EXIT_EDGES}
    return found


def path_lengths(measured: Measurement, state: str) -> Tensor:
    """Return sum_b <d'_b, d_b> / sum_b <d_b, d_b> at each position."""
    total, length = measured.vectors["total"][state], measured.length[state]
    unit = total.abs().amax((0, -1))[:, None]
    return (length / unit * (total / unit)).sum((0, -1)) / (total / unit).square().sum((0, -1))


@pytest.mark.parametrize(("n", "k"), EXTENTS)
@pytest.mark.parametrize("spec", MODELS, ids=label)
def test_every_split_and_length_is_the_sum_over_all_paths(spec: Spec, n: int, k: int) -> None:
    model, batch = build(hidden=2, **spec), uneven_batch([n, n], [k, k])
    measured = measure(model, batch, "sum")
    for b in range(2):
        walked = walk(model, batch, b, "sum")
        expected = {path: walked.gather(keep) for path, keep in by_path(model).items()}
        assert set(expected) == set(measured.vectors)
        lengths = walked.gather(lambda route: route.length)
        for s, state in enumerate(model.state_names):
            for path, parts in expected.items():
                vectors, scale = parts[s]
                assert_close(measured.vectors[path][state][b], vectors, scale=scale)
            assert_close(measured.length[state][b], lengths[s][0], scale=lengths[s][1])


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("spec", MODELS[:: len(MODELS) // len(CELLS) + 1], ids=label)
def test_all_paths_of_every_reduction(spec: Spec, reduction: str) -> None:
    model, batch = build(hidden=3, **spec), uneven_batch([3, 2], [2, 3])
    measured = measure(model, batch, reduction)
    for b, n in enumerate([3, 2]):
        lengths = walk(model, batch, b, reduction).gather(lambda route: route.length)
        for (vectors, scale), state in zip(lengths, model.state_names, strict=True):
            assert_close(measured.length[state][b, :n], vectors, scale=scale)


@pytest.mark.parametrize("spec", MODELS, ids=label)
def test_path_length_is_the_share_weighted_mean_number_of_edges(spec: Spec) -> None:
    model, batch = build(hidden=2, **spec), uneven_batch([3, 3], [3, 3])
    measured, walks = measure(model, batch), [walk(model, batch, b) for b in range(2)]
    lengths = {route.length for walked in walks for route in walked.routes}
    for s, state in enumerate(model.state_names):
        total = measured.vectors["total"][state]
        shares = {
            m: torch.stack([walked.gather(has_length(m))[s][0] for walked in walks])
            .mul(total)
            .sum((0, -1))
            / total.square().sum((0, -1))
            for m in lengths
        }
        reached = total.square().sum((0, -1)) > 0
        one = torch.ones(int(reached.sum()), dtype=torch.float64)
        whole = torch.stack(list(shares.values())).sum(0)[reached]
        torch.testing.assert_close(whole, one, rtol=1e-12, atol=0)
        mean = torch.stack([m * share for m, share in shares.items()]).sum(0)
        found = path_lengths(measured, state)
        torch.testing.assert_close(found[reached], mean[reached], rtol=1e-9, atol=0)


@pytest.mark.parametrize("spec", MODELS, ids=label)
def test_edges_that_paths_reach_through_a_query_are_those_that_have_such_a_path(
    spec: Spec,
) -> None:
    model, batch = build(hidden=2, **spec), uneven_batch([2], [3])
    routes = walk(model, batch, 0).routes
    assert {route.edge for route in routes if route.query} == set(query_edges(model))


@pytest.mark.parametrize("attention", ["additive", "dot"])
def test_luong_queries_lead_back_to_the_bridge_and_to_nothing_else(attention: str) -> None:
    batch = make_batch("copy", [4, 4])
    with_bridge = measure(build(attention=attention, timing="luong"), batch).vectors
    assert bool((with_bridge["bridge.query"]["h"] != 0).any())
    assert torch.equal(with_bridge["total.query"]["h"], with_bridge["bridge.query"]["h"])
    without = measure(build(attention=attention, timing="luong", bridge="none"), batch).vectors
    for vectors in (with_bridge, without):
        for path in ("values.query", "keys.query"):
            assert bool((vectors[path]["h"] == 0).all())
    assert bool((without["total.query"]["h"] == 0).all())


@pytest.mark.parametrize("spec", MODELS, ids=label)
def test_every_path_has_its_least_and_its_most_edges(spec: Spec) -> None:
    n, k = 3, 3
    model, batch = build(hidden=2, **spec), uneven_batch([n], [k])
    for route in walk(model, batch, 0).routes:
        assert route.length >= route.hops + 1
        # one edge for each step of the decoder, by time or by query, a luong query besides
        queries = 1 if model.luong else 0
        assert route.length <= route.hops + 1 + k + queries


# Closed forms.


@pytest.mark.parametrize("cell", CELLS)
def test_without_attention_the_length_is_known_exactly(cell: str) -> None:
    n, targets = 9, list(range(1, 7))
    model, batch = build(cell=cell, attention="none"), uneven_batch([n] * 6, targets)
    distance = n - torch.arange(1, n + 1, dtype=torch.float64)[:, None]
    for reduction in ("first", "last"):
        measured = measure(model, batch, reduction)
        for state in model.state_names:
            for b, k in enumerate(targets):
                edges = distance + 1 + (k if reduction == "last" else 1)
                total, length = (v[state][b] for v in (measured.vectors["total"], measured.length))
                assert_close(length, edges * total, rtol=1e-12)


@pytest.mark.parametrize("j", [1, 4])
@pytest.mark.parametrize("cell", CELLS)
def test_the_pooled_length_without_attention_is_a_whole_number(cell: str, j: int) -> None:
    n = 6
    model, batch = build(cell=cell, attention="none"), uneven_batch([n] * 5, [j] * 5)
    measured = measure(model, batch, "last")
    expected = n - torch.arange(1, n + 1, dtype=torch.float64) + 1 + j
    for state in model.state_names:
        found = path_lengths(measured, state)
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize("cell", CELLS)
def test_a_bridge_fed_at_every_step_is_one_edge_from_each(cell: str) -> None:
    """l_1 comes by s_1: over s_0 and a time step (2 edges), or straight into s_1 (1 edge)."""
    model = build(cell=cell, attention="none", bridge="every_step")
    batch = uneven_batch([4], [1])
    fed = model.decoder.block("bridge").detach().clone()
    bridge = model(batch).edges.bridge[0][0].detach()
    whole = measure(model, batch, "first")
    graph = walk(model, batch, 0, "first").routes
    assert {route.length - route.hops for route in graph} == {1, 2}
    with torch.no_grad():
        model.decoder.block("bridge").zero_()
        model.decoder.bias_ih_l0.add_(fed @ bridge)
    once = measure(model, batch, "first").vectors["total"]
    distance = torch.arange(3.0, -1.0, -1.0, dtype=torch.float64)[:, None]
    for state in model.state_names:
        by_first, total = once[state][0], whole.vectors["total"][state][0]
        expected = (distance + 1) * total + by_first
        scale = (distance[:, 0] + 1) * norm(total) + norm(by_first)
        assert_close(whole.length[state][0], expected, rtol=1e-12, scale=scale)


def test_two_source_steps_and_one_target_step_by_hand() -> None:
    """One hidden unit, dot attention, bahdanau timing, bridge initial; all by pencil.

    Encoder: h_2 = tanh(... + w h_1), chosen so that h_1 = 1/2 - 2 ln 2, h_2 = 1/2, and w = 2/3:

        J_2 = (1 - h_2^2) w = 3/4 * 2/3 = 1/2

    Attention: the query is s_0 = h_2, so e_1 - e_2 = h_2 (h_1 - h_2) = -ln 2 and

        alpha = (1/3, 2/3)        c_1 = h_1 / 3 + 2 h_2 / 3

    Decoder: s_1 = tanh(y + 4 c_1 + 2 s_0), with y such that s_1 = 1/2. Output: logits s_1 - 1/2 and
    1/2 - s_1, both zero; the target is the first of the two symbols:

        dL/ds_1 = (1/2 - 1) - (1/2) = -1        p = dL/ds_1 (1 - s_1^2) = -3/4
        dL/dc_1 = 4 p = -3
        dL/de_1 = alpha_1 alpha_2 (h_1 - h_2) dL/dc_1 = 2/9 (-2 ln 2) (-3) = 4/3 ln 2 = -dL/de_2

    Into h_2 come, with their edges counted:

        bridge, by time     2 p = -3/2                                  s_1 -> s_0 -> h_2: 2
        bridge, by query    dL/de_1 (h_1 - h_2) = -8/3 ln^2 2           q_1 -> s_0 -> h_2: 2
        values              alpha_2 dL/dc_1 = -2                                   to h_2: 1
        keys                dL/de_2 h_2 = -2/3 ln 2                                to h_2: 1

    Into h_1: values -1 (1), keys 2/3 ln 2 (1), and half of each of the four, over one edge more.
    """
    ln2 = math.log(2)
    h_1, h_2, s_1 = 0.5 - 2 * ln2, 0.5, 0.5
    context = h_1 / 3 + 2 * h_2 / 3
    weights = {
        "source_embedding.weight": [
            [math.atanh(h_1)],
            [math.atanh(h_2) - 2 / 3 * h_1],
            *[[0.0]] * 3,
        ],
        "target_embedding.weight": [
            *[[0.0]] * 2,
            [math.atanh(s_1) - 4 * context - 2 * h_2],
            *[[0.0]] * 2,
        ],
        "encoder.weight_ih_l0": [[1.0]],
        "encoder.weight_hh_l0": [[2 / 3]],
        "decoder.weight_ih_l0": [[1.0, 4.0]],
        "decoder.weight_hh_l0": [[2.0]],
        "output.weight": [[1.0], [-1.0]],
        "output.bias": [-s_1, s_1],
    } | {
        f"{part}.bias_{which}_l0": [0.0]
        for part in ("encoder", "decoder")
        for which in ("ih", "hh")
    }
    model = build(2, cell="rnn", attention="dot", hidden=1, embedding=1)
    model.load_state_dict(
        {name: torch.tensor(value, dtype=torch.float64) for name, value in weights.items()}
    )
    ids = torch.tensor
    batch = Batch(ids([[0, 1]]), ids([2]), ids([[0]]), ids([1]), symbols=2)
    measured = measure(model, batch)

    time, query, values, keys = -3 / 2, -8 / 3 * ln2**2, -2.0, -2 / 3 * ln2
    into_h_2 = time + query + values + keys
    expected = {
        "bridge": [(time + query) / 2, time + query],
        "values": [-1 + values / 2, values],
        "keys": [2 / 3 * ln2 + keys / 2, keys],
        "bridge.query": [query / 2, query],
        "values.query": [0.0, 0.0],
        "keys.query": [0.0, 0.0],
        "total.query": [query / 2, query],
        "direct": [-1 + 2 / 3 * ln2, into_h_2],
        "total": [-1 + 2 / 3 * ln2 + into_h_2 / 2, into_h_2],
    }
    lengths = [
        -1 + 2 / 3 * ln2 + (3 * (time + query) + 2 * (values + keys)) / 2,
        2 * (time + query) + values + keys,
    ]
    assert set(measured.vectors) == set(expected)
    assert measured.attention_weights is not None
    alpha = measured.attention_weights.flatten().tolist()
    assert alpha == pytest.approx([1 / 3, 2 / 3], rel=1e-14, abs=0)
    assert measured.loss.item() == pytest.approx(ln2, rel=1e-14, abs=0)
    for path, numbers in expected.items():
        found = measured.vectors[path]["h"].flatten().tolist()
        assert found == pytest.approx(numbers, rel=1e-13, abs=0), path
    found = measured.length["h"].flatten().tolist()
    assert found == pytest.approx(lengths, rel=1e-13, abs=0)
    hops = hop_rows(model, batch, measured).set_index(["position", "hops"])["norm_mean"]
    assert hops[1, 0] == pytest.approx(abs(expected["direct"][0]), rel=1e-13)
    assert hops[1, 1] == pytest.approx(abs(expected["direct"][1]) / 2, rel=1e-13)
