"""A synchronous model in a sweep: what has no effect, what is refused, and what a run holds."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from tiny import point, tiny

from gradlab.errors import ScenarioError
from gradlab.grid import describe, points
from gradlab.lab.run import build_model, run_point
from gradlab.lab.sweep import expected_work
from gradlab.lab.tables import TABLES
from gradlab.lab.walkthrough import walk_through
from gradlab.models.family import KINDS
from gradlab.models.synchronous import Synchronous

SYNCHRONOUS = {"kind": "synchronous"}
IDLE = ("attention", "timing", "scope", "window", "bridge")


def refusal(**tables: Any) -> str:
    with pytest.raises(ScenarioError) as refused:
        points(tiny(**tables))
    return str(refused.value)


def test_the_class_of_a_model_goes_by_its_kind() -> None:
    assert KINDS["synchronous"] is Synchronous
    assert isinstance(build_model(point(model=SYNCHRONOUS)), Synchronous)


def test_keys_of_attention_bridge_and_feedback_are_null_and_change_no_run() -> None:
    at = point(model=SYNCHRONOUS)
    assert all(at.config["model"][key] is None for key in IDLE)
    assert at.config["training"]["teacher_forcing"] is None
    changed = {"attention": "none", "bridge": "none"}
    other = replace(at, model=at.model.model_copy(update=changed))
    assert other.run_id == at.run_id != point().run_id
    assert expected_work(other) == expected_work(at) < expected_work(point())


def test_a_key_without_effect_at_any_point_is_an_error_that_names_the_kind() -> None:
    message = refusal(model={**SYNCHRONOUS, "attention": "dot"})
    assert "model.attention: " in message
    assert 'no effect at any point of the sweep (model.kind is "synchronous")' in message


def test_a_point_is_described_by_its_kind_and_cell() -> None:
    at = point(model={**SYNCHRONOUS, "cell": "lstm"})
    assert describe(at) == "synchronous lstm, copy n = 2, seed 0"


def test_a_reverse_of_unknown_length_is_refused_unless_the_delay_tells_it() -> None:
    task = {"name": "reverse", "length": 6, "min_length": 4}
    assert refusal(task=task, model=SYNCHRONOUS).endswith(
        "task.min_length: expected task.length, 6, or a task.delay of at least that, where "
        'model.kind is "synchronous" and task.name is "reverse", found 4 and a delay of 0: y_1 = '
        "x_n stands at an unknown step, for while reading the model cannot know n"
    )
    refusal(task={**task, "delay": 5}, model=SYNCHRONOUS)
    point(task={**task, "delay": 6}, model=SYNCHRONOUS)
    point(task={**task, "min_length": 6}, model=SYNCHRONOUS)
    point(task={**task, "name": "copy"}, model=SYNCHRONOUS)
    point(task=task)


def test_reading_in_both_directions_is_refused() -> None:
    assert refusal(model={**SYNCHRONOUS, "bidirectional": True}).endswith(
        'model.bidirectional: expected false where model.kind is "synchronous", found true: to '
        "read backwards it would wait for the whole source, and not answer at every step"
    )


def test_a_run_holds_every_table_with_one_path_and_no_attention() -> None:
    run = run_point(point(model=SYNCHRONOUS, task={"delay": 1}, record={"lengths": [2, 3]}))
    assert run.record["status"] == "done"
    assert run.record["structural_zeros"] == []
    assert run.record["query_paths"] == "no attention, so no queries"
    json.dumps(run.record, allow_nan=False)
    for name, columns in TABLES.items():
        assert set(run.tables[name].columns) == set(columns), name
        assert run.tables[name].empty == (name == "attention"), name
    gradients = run.tables["gradients"]
    assert set(gradients["path"]) == {"total", "direct", "output"}
    assert (gradients.query("path == 'output'")["share"] - 1).abs().max() < 1e-12
    assert set(gradients.query("source_length == 3")["position"]) == {1, 2, 3, 4}
    maps = run.tables["maps"]
    later = maps["position"] > maps["target_position"] + 1
    assert (maps.loc[later, "gradient_norm"] == 0).all()
    assert (maps.loc[~later, "gradient_norm"] > 0).all()
    encoder = [f"encoder.{name}_l0" for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
    assert set(run.weights) == {
        "source_embedding.weight", *encoder, "output.weight", "output.bias"
    }  # fmt: skip


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_the_walk_through_names_every_tensor(cell: str) -> None:
    rows = walk_through(point(model={**SYNCHRONOUS, "cell": cell}, task={"delay": 1}))
    cells = ["encoder_cells"] if cell == "lstm" else []
    assert [row.name for row in rows] == [
        *("source", "source_embedded", "encoder_states"), *cells,
        *("output", "logits", "target", "token_loss", "loss"),
    ]  # fmt: skip
    shapes = {row.name: (row.shape, row.symbols) for row in rows}
    assert shapes["encoder_states"] == ((4, 3, 4), "(B, n, H)")
    assert shapes["output"] == ((4, 2, 4), "(B, k, H)")
