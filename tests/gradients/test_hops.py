"""Paths by hops: against all paths walked, the total, and encoders whose Jacobian is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from reference import MODELS, Twin, build, label, make_batch, norm, path_graph
from torch import Tensor

from gradlab.gradients import hops
from gradlab.gradients.hops import hop_rows
from gradlab.gradients.probe import measure
from gradlab.models.seq2seq import Seq2Seq
from gradlab.tasks import Batch

Spec = dict[str, Any]


def rows_of(model: Seq2Seq, batch: Batch, reduction: str = "mean") -> pd.DataFrame:
    return hop_rows(model, batch, measure(model, batch, reduction))


def walked_terms(model: Seq2Seq, batch: Batch) -> Tensor:
    """Return every term by walking all paths: (batch, hops, n, states * hidden)."""
    n, size = batch.source.shape[1], model.spec.hidden * len(model.state_names)
    terms = torch.zeros(len(batch.source), n, n, size, dtype=torch.float64)
    for b in range(len(batch.source)):
        for route, gradient in path_graph(Twin(model), batch, b, "mean").walk().items():
            terms[b, route.hops, route.position - 1] += gradient
    return terms


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("spec", MODELS, ids=label)
def test_every_term_is_the_sum_over_the_paths_of_as_many_hops(spec: Spec, n: int) -> None:
    model, batch = build(hidden=3, **spec), make_batch("copy", [n, n])
    rows, states = rows_of(model, batch), model.state_names
    parts = walked_terms(model, batch).chunk(len(states), dim=-1)
    assert len(rows) == len(states) * n * (n + 1) // 2
    for state, terms in zip(states, parts, strict=True):
        of_state = rows[rows["state"] == state]
        m, i = of_state["hops"].to_numpy(), of_state["position"].to_numpy() - 1
        total = terms.sum(1)
        squared = total.square().sum((0, -1)).numpy()
        inner = (terms * total[:, None]).sum((0, -1)).numpy()
        bound = (norm(terms) * norm(total)[:, None]).sum((0, 1)).numpy()
        expected = norm(terms).mean(0).numpy()
        np.testing.assert_allclose(of_state["norm_mean"], expected[m, i], rtol=1e-9, atol=0)
        assert np.array_equal(of_state["share"].isna(), (squared == 0)[i])
        read = squared[i] > 0
        error = np.abs(of_state["share"].to_numpy() * squared[i] - inner[m, i])
        assert (error <= 1e-9 * bound[i])[read].all()


@pytest.mark.parametrize("spec", MODELS, ids=label)
def test_the_shares_of_every_position_sum_to_one(spec: Spec) -> None:
    model, batch = build(**spec), make_batch("reverse", [6, 6, 6])
    rows = rows_of(model, batch)
    assert set(rows["layer"]) == {1}
    assert set(rows["direction"]) == {"forward"}
    for state in model.state_names:
        shares = rows[rows["state"] == state].groupby("position")["share"]
        whole = shares.sum(min_count=1)
        size = shares.apply(lambda share: share.abs().sum())
        assert list(shares.size()) == [6, 5, 4, 3, 2, 1]
        if state == "c" and spec["bridge"] == "none":  # c_n is read by nothing
            assert np.isnan(whole[6])
            whole, size = whole.drop(6), size.drop(6)
        assert (np.abs(whole - 1) <= 1e-12 * size).all()


@pytest.mark.parametrize("spec", MODELS, ids=label)
def test_terms_add_up_to_the_total_vector(spec: Spec) -> None:
    model, batch = build(**spec), make_batch("copy", [5, 5])
    measured = measure(model, batch)
    for _, terms in hops._terms(model, batch, measured):
        for state, term in zip(model.state_names, terms, strict=True):
            error = norm(term.sum(0) - measured.vectors["total"][state])
            assert bool((error <= 1e-12 * norm(term).sum(0)).all())
            later = torch.ones(5, 5, dtype=torch.bool).triu(1)  # leaves before the state
            assert bool((term.transpose(1, 2)[later] == 0).all())


def transparent(weight_hh: Tensor) -> Seq2Seq:
    """Return a model whose encoder is linear at its states, which are zero: J = weight_hh."""
    hidden = len(weight_hh)
    model = build(cell="rnn", attention="dot", bridge="none", hidden=hidden)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.startswith(("source_embedding", "encoder.bias")):
                parameter.zero_()
        model.encoder.weight_hh_l0.copy_(weight_hh)
    return model


@pytest.mark.parametrize("a", [0.5, -0.9, 1.0, 1.25, 1e-20])
def test_a_linear_encoder_scales_a_term_by_a_for_every_hop(a: float) -> None:
    n = 16
    model, batch = transparent(a * torch.eye(4, dtype=torch.float64)), make_batch("copy", [n, n])
    rows = rows_of(model, batch, "last")
    direct = rows[rows["hops"] == 0].set_index("position")["norm_mean"]
    leaves = rows["position"] + rows["hops"]
    expected = direct.loc[leaves].to_numpy() * np.abs(a) ** rows["hops"].to_numpy(float)
    assert (rows["norm_mean"] > 0).all()
    np.testing.assert_allclose(rows["norm_mean"], expected, rtol=1e-12, atol=0)
    # every state is injected with the same vector: a geometric series of shares
    series = np.sign(a) ** rows["hops"] * np.abs(a) ** rows["hops"].astype(float)
    whole = series.groupby(rows["position"]).transform("sum")
    np.testing.assert_allclose(rows["share"], series / whole, rtol=1e-11, atol=0)


def test_an_orthogonal_encoder_keeps_the_norm_of_every_term() -> None:
    n = 30
    generator = torch.Generator().manual_seed(0)
    matrix = torch.randn(4, 4, dtype=torch.float64, generator=generator)
    model, batch = transparent(torch.linalg.qr(matrix)[0]), make_batch("copy", [n])
    rows = rows_of(model, batch)
    direct = rows[rows["hops"] == 0].set_index("position")["norm_mean"]
    expected = direct.loc[rows["position"] + rows["hops"]]
    np.testing.assert_allclose(rows["norm_mean"], expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_examples_taken_in_chunks_give_the_same_rows(
    cell: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, batch = build(cell=cell), make_batch("copy", [5, 5, 5])
    whole = rows_of(model, batch)
    monkeypatch.setattr(hops, "CHUNK_BYTES", 1)
    pd.testing.assert_frame_equal(rows_of(model, batch), whole, rtol=1e-12, atol=0)


def test_a_delay_is_part_of_the_source_and_a_batch_may_hold_one_example() -> None:
    model, batch = build(), make_batch("copy", [3], delay=2)
    rows = rows_of(model, batch)
    assert rows["position"].max() == 5
    assert rows["hops"].max() == 4
    measured = measure(model, batch)
    last = rows[(rows["position"] == 5) & (rows["hops"] == 0)]
    expected = norm(measured.vectors["total"]["h"][0, -1])
    assert float(last["norm_mean"].iloc[0]) == pytest.approx(float(expected), rel=1e-12, abs=0)
    assert float(last["share"].iloc[0]) == pytest.approx(1, rel=1e-12)


def test_measuring_hops_leaves_the_model_untouched_and_rides_with_any_dtype() -> None:
    single, batch = build().float(), make_batch("copy", [4, 4])
    before = {name: weight.clone() for name, weight in single.state_dict().items()}
    rows = rows_of(single, batch)
    for name, weight in single.state_dict().items():
        assert weight.dtype == torch.float32
        assert torch.equal(weight, before[name])
    pd.testing.assert_frame_equal(rows, rows_of(single.double(), batch), rtol=0, atol=0)
