"""Norms, shares and cancellation: hand-computed, at any size, with zeros counted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from reference import MODELS, build, label, make_batch
from torch import Tensor

from gradlab.gradients.measurement import Measurement
from gradlab.gradients.probe import SPLIT as EXIT_EDGES
from gradlab.gradients.probe import measure
from gradlab.gradients.summary import Pool, cancellation, norms, summarise
from gradlab.lab.tables import TABLES

NAN, INF = np.nan, np.inf


@pytest.mark.parametrize("size", [1e-300, 1e-200, 1e-170, 1e-25, 1.0, 1e170, 1e200, 1e300])
def test_norms_of_any_size_are_right(size: float) -> None:
    vectors = size * np.array([[3.0, -4.0], [0.0, 2.0]])
    np.testing.assert_allclose(norms(vectors), [5 * size, 2 * size], rtol=1e-14, atol=0)


def test_norms_of_subnormal_zero_and_non_finite_vectors() -> None:
    tiny = np.nextafter(0, 1)
    vectors = np.array([[tiny, 0.0], [0.0, 0.0], [INF, 1.0], [NAN, 1.0], [1e200, 1e-200]])
    np.testing.assert_array_equal(norms(vectors), [tiny, 0.0, INF, NAN, 1e200])


@pytest.mark.parametrize("size", [1e-200, 1e-170, 1.0, 1e200])
def test_pooled_share_is_the_signed_projection_of_the_pool(size: float) -> None:
    total = size * np.array([[[1.0, 0.0]], [[0.0, 2.0]]])
    part = size * np.array([[[3.0, 5.0]], [[1.0, -1.0]]])
    share, low, high = Pool(total).share(part)
    # (3 * 1 + -1 * 2) / (1 + 4)
    np.testing.assert_allclose(share, [0.2], rtol=1e-14, atol=0)
    # a resample holds one example twice or both: shares 3, -1/2 or 1/5
    np.testing.assert_allclose([low[0], high[0]], [-0.5, 3.0], rtol=1e-14, atol=0)


def test_share_is_null_where_every_total_is_zero_and_only_there() -> None:
    total = np.zeros((2, 2, 3))
    total[0, 1] = 1e-200
    for result in Pool(total).share(total)[:1]:
        np.testing.assert_array_equal(result, [NAN, 1.0])


def test_share_interval_is_the_same_each_time_and_leaves_the_global_generator_alone() -> None:
    generator = np.random.default_rng(0)
    part, total = generator.normal(size=(2, 20, 3, 4))
    before = repr(np.random.get_state())
    first, second = Pool(total).share(part), Pool(total).share(part)
    assert repr(np.random.get_state()) == before
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one, other)
    share, low, high = first
    assert np.all((low < share) & (share < high))


@pytest.mark.parametrize("size", [1e-200, 1.0, 1e200])
def test_cancellation_is_the_median_of_part_norms_over_the_total(size: float) -> None:
    first = size * np.array([[[2.0, 0.0]], [[3.0, 4.0]], [[1.0, 0.0]]])
    second = size * np.array([[[-1.0, 0.0]], [[0.0, 0.0]], [[-1.0, 0.0]]])
    ratio = cancellation([norms(first), norms(second)], norms(first + second))
    # 3 / 1 and 5 / 5; the third total is zero and has no ratio
    np.testing.assert_allclose(ratio, [2.0], rtol=1e-14, atol=0)
    np.testing.assert_array_equal(
        cancellation([norms(first), norms(-first)], norms(0 * first)), [NAN]
    )


def measurement(total: np.ndarray, parts: dict[str, np.ndarray] | None = None) -> Measurement:
    """Return what `measure` might: a total and its parts, h alone."""
    zero = np.zeros_like(total)
    parts = dict.fromkeys(EXIT_EDGES, zero) | (parts or {"bridge": total})
    vectors = {"total": total, "direct": total, **parts}
    as_tensors: dict[str, dict[str, Tensor]] = {
        path: {"h": torch.from_numpy(vector)} for path, vector in vectors.items()
    }
    length = {"h": 7 * as_tensors["total"]["h"]}  # as if all had come over seven edges
    return Measurement(as_tensors, length, frozenset(), torch.zeros(len(total)), None)


def total_rows(measured: Measurement) -> pd.DataFrame:
    rows = summarise(measured)
    return rows[rows["path"] == "total"].reset_index(drop=True)


@pytest.mark.parametrize("size", [1e-200, 1e-170, 1.0, 1e170])
def test_statistics_over_examples_are_hand_computed(size: float) -> None:
    total = size * np.array([[[3.0, 4.0]], [[-3.0, 4.0]], [[0.0, 1.0]], [[0.0, 0.0]]])
    (row,) = total_rows(measurement(total)).to_dict("records")
    sizes = np.array([5.0, 5.0, 1.0, 0.0])
    expected = {
        "norm_mean": 11 / 4,
        "norm_std": sizes.std(),
        "norm_median": 3.0,
        "norm_p05": 0.15,
        "norm_p95": 5.0,
        "batch_norm": 9 / 4,
    }
    for column, value in expected.items():
        assert row[column] == pytest.approx(size * value, rel=1e-13, abs=0), column
    assert (row["examples"], row["zeros"], row["position"]) == (4, 1, 1)
    assert row["share"] == pytest.approx(1, rel=1e-14)
    assert row["path_length"] == pytest.approx(7, rel=1e-14)


def test_a_true_zero_and_a_tiny_number_are_told_apart() -> None:
    total = np.zeros((3, 2, 2))
    total[:, 0] = 1e-300
    first, second = total_rows(measurement(total)).to_dict("records")
    assert (first["zeros"], second["zeros"]) == (0, 3)
    assert first["norm_mean"] > 0
    assert second["norm_mean"] == second["norm_std"] == second["norm_p95"] == 0
    assert np.isnan(second["share"])
    assert np.isnan(second["cancellation"])


@pytest.mark.parametrize("bad", [NAN, INF, -INF, 1e308])
def test_a_gradient_that_is_not_finite_is_reported_without_a_warning(bad: float) -> None:
    total = np.ones((3, 2, 2))
    total[0, 0, 0], total[1, 0, 1], total[2, 0] = bad, -bad, bad
    broken, fine = total_rows(measurement(total)).to_dict("records")
    assert np.isfinite(broken["norm_mean"]) == (bad == 1e308)
    assert fine["norm_mean"] == pytest.approx(np.sqrt(2))
    assert fine["share"] == pytest.approx(1)


@pytest.mark.parametrize("spec", MODELS, ids=label)
def test_rows_of_a_measurement(spec: dict[str, Any]) -> None:
    model, batch = build(**spec), make_batch("copy", [4, 4, 4])
    measured = measure(model, batch)
    rows = summarise(measured)
    assert set(rows.columns) == set(TABLES["gradients"]) - {"train_step", "source_length"}
    paths = 5 if model.attention is None else 9  # with attention, four more through queries
    assert len(rows) == len(model.state_names) * paths * 4
    for (state, path), group in rows.groupby(["state", "path"]):
        vectors = measured.vectors[str(path)][str(state)]
        np.testing.assert_allclose(
            group["norm_mean"], vectors.norm(dim=-1).mean(0), rtol=1e-12, atol=0
        )
        assert list(group["position"]) == [1, 2, 3, 4]
        assert set(group["examples"]) == {3}
        assert (path in measured.absent) <= bool((group["zeros"] == 3).all())
    alive = rows[rows["share"].notna()]
    by_place = alive[alive["path"].isin(EXIT_EDGES)].groupby(["state", "position"])["share"].sum()
    np.testing.assert_allclose(by_place, 1, rtol=1e-10, atol=0)
    totals = rows[(rows["path"] == "total") & rows["share"].notna()]
    assert bool((totals["cancellation"] > 1 - 1e-12).all())
    assert bool(rows.loc[rows["path"] != "total", "cancellation"].isna().all())


def test_without_parts_there_are_two_paths_and_no_cancellation() -> None:
    rows = summarise(measure(build(), make_batch("copy", [4, 4]), paths=False))
    assert set(rows["path"]) == {"total", "direct"}
    assert bool(rows["cancellation"].isna().all())


def test_only_a_total_that_is_not_zero_has_a_length() -> None:
    total = np.zeros((3, 2, 2))
    total[:, 0] = 1e-300
    rows = summarise(measurement(total))
    with_length = rows[rows["path_length"].notna()]
    assert list(zip(with_length["path"], with_length["position"], strict=True)) == [("total", 1)]
