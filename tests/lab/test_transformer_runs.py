"""A transformer from scenario to tables: trained, measured, stored and walked through."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from gradlab.grid import Point, describe, points
from gradlab.lab.run import build_model, run_point
from gradlab.lab.sweep import expected_work
from gradlab.lab.walkthrough import walk_through
from gradlab.models.transformer import Transformer
from gradlab.scenario import load_scenario


def point(**keys: Any) -> Point:
    """The only point of a tiny transformer's scenario."""
    tiny = {
        "title": "tiny",
        "task": {"name": "copy", "length": 3, "symbols": 3},
        "model": {"kind": "transformer", "hidden": 4, "heads": 2, "feedforward": 5, "layers": 2},
        "training": {"steps": 2, "batch": 4},
        "record": {"every": 1, "examples": 4, "map": True, "hops": True},
    }
    overrides = {name.replace("__", "."): value for name, value in keys.items()}
    (only,) = points(load_scenario(tiny, overrides))
    return only


def test_a_run_fills_every_table_and_depends_on_its_point_alone() -> None:
    run, again = run_point(point()), run_point(point())
    assert set(run.tables) == {
        *("training", "gradients", "positions", "attention", "maps", "hops"),
    }
    for name, table in run.tables.items():
        assert table.equals(again.tables[name]), name
    for name in ("gradients", "maps", "hops"):
        assert set(run.tables[name]["layer"]) == {1, 2}
    assert set(run.tables["hops"]["hops"]) == {0}
    weights = run.tables["attention"].groupby(["train_step", "example", "target_position"])
    np.testing.assert_allclose(weights["weight"].sum(), 1, rtol=1e-12)
    assert run.record["status"] == "done"
    assert run.record["structural_zeros"] == ["keys.2.query", "values.2.query"]
    assert run.record["query_paths"] == "split by queries of cross-attention"
    loaded = Transformer(point().model, 3)
    loaded.load_state_dict({name: torch.from_numpy(w) for name, w in run.weights.items()})


def test_a_transformer_can_read_its_own_symbols_in_training() -> None:
    run = run_point(point(training__teacher_forcing=0.5, record__map=False, record__hops=False))
    assert np.isfinite(run.tables["training"]["loss"]).all()


def test_the_point_is_described_by_its_kind() -> None:
    assert describe(point()) == "transformer, copy n = 3, seed 0"
    assert isinstance(build_model(point()), Transformer)
    assert expected_work(point(model__layers=3)) > expected_work(point())


@pytest.mark.parametrize("layers", [1, 3])
def test_the_walk_through_names_every_tensor_of_every_layer(layers: int) -> None:
    rows = walk_through(point(model__layers=layers, task__delay=1))
    sizes = {"B": 4, "n": 4, "k": 3, "H": 4, "V": 3, "heads": 2}
    for row in rows:
        names = row.symbols.strip("()").split(", ")
        assert row.shape == tuple(sizes[name] for name in names), row.name
    found = [row.name for row in rows]
    for layer in range(1, layers + 1):
        for name in ("encoder_states", "queries", "keys", "values", "attention_weights"):
            assert f"{name}.{layer}" in found
    assert found[-2:] == ["token_loss", "loss"]
