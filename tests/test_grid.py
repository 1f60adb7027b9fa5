"""The grid: product order, run ids, keys without effect, and what cannot run."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from gradlab.errors import ScenarioError
from gradlab.grid import AVAILABLE, IDLE, Point, idle_everywhere, ineffective_keys, points
from gradlab.scenario import load_scenario
from gradlab.schema import KEYS, Model, Record, Scenario, Task, Training


def grid(sweep: dict[str, Any] | None = None, **tables: dict[str, Any]) -> tuple[Point, ...]:
    tables["task"] = {"name": "copy", **tables.get("task", {})}
    return points(load_scenario({"title": "t", **tables, "sweep": sweep or {}}))


def point(**tables: dict[str, Any]) -> Point:
    (only,) = grid(**tables)
    return only


def test_default_point() -> None:
    only = point()
    assert only.config == {
        "task": {"name": "copy", "length": 20, "min_length": 20, "symbols": 10, "delay": 0},
        "model": {
            "kind": "seq2seq",
            "cell": "gru",
            "hidden": 64,
            "embedding": 32,
            "layers": 1,
            "bidirectional": False,
            "attention": "additive",
            "scope": "global",
            "window": None,
            "timing": "bahdanau",
            "bridge": "initial",
            "init": "torch",
            "gain": None,
        },
        "training": {
            "steps": 600,
            "batch": 64,
            "optimizer": "adam",
            "lr": 3e-3,
            "clip": 1.0,
            "teacher_forcing": 1.0,
            "dtype": "float32",
        },
        "record": {
            "every": 100,
            "lengths": [20],
            "examples": 64,
            "loss": "mean",
            "paths": True,
            "map": False,
            "hops": False,
            "jacobians": False,
        },
        "seed": 0,
    }
    assert (only.task.min_length, only.record.lengths, only.label) == (20, (20,), None)
    assert (only.min_length, only.lengths) == (20, (20,))


def test_run_ids_never_move() -> None:
    canonical = b'{"numerics_version":1,"seed":0,"task.name":"copy"}'
    assert point().run_id == hashlib.sha256(canonical).hexdigest()[:16] == "57683a47440b223d"
    moved = point(
        task={"name": "reverse", "length": 8, "min_length": 3},
        model={"cell": "lstm", "attention": "none"},
        training={"lr": 1e-3},
        record={"lengths": [8, 16]},
    )
    assert moved.run_id == "8162fe72fdc065f9"


@pytest.mark.parametrize(
    "tables",
    [
        {"task": {"length": 20}},
        {"task": {"min_length": 20}},
        {"record": {"lengths": [20]}},
        {"model": {"timing": "bahdanau"}},
        {"training": {"clip": 1}},
    ],
)
def test_a_value_at_its_default_does_not_move_the_run_id(tables: dict[str, Any]) -> None:
    assert point(**tables).run_id == point().run_id


@pytest.mark.parametrize(
    "tables",
    [
        {"task": {"length": 21}},
        {"task": {"min_length": 19}},
        {"record": {"lengths": [20, 21]}},
        {"model": {"attention": "none"}},
        {"training": {"steps": 0}},
        {"sweep": {"seed": [1]}},
    ],
)
def test_another_value_moves_the_run_id(tables: dict[str, Any]) -> None:
    assert point(**tables).run_id != point().run_id


def test_a_derived_default_follows_the_length() -> None:
    short, long = grid({"task.length": [5, 9]})
    assert (short.task.min_length, short.record.lengths) == (5, (5,))
    assert (long.task.min_length, long.record.lengths) == (9, (9,))
    assert short.run_id == point(task={"length": 5, "min_length": 5}).run_id


def test_title_notes_and_label_do_not_move_the_run_id() -> None:
    task = Task(name="copy")
    assert points(Scenario(title="a", task=task)) == points(
        Scenario(title="b", notes="c", task=task)
    )
    labelled = grid({"cases": [{"label": "x", "model.cell": "gru"}]})
    assert labelled[0].run_id == point().run_id


def test_axes_vary_in_the_order_written_and_seed_fastest() -> None:
    found = grid(
        {
            "seed": [0, 1],
            "task.length": [5, 9],
            "cases": [{"label": "v", "model.attention": "none"}, {"label": "a"}],
        }
    )
    assert [(p.task.length, p.label, p.model.attention, p.seed) for p in found] == [
        (length, label, attention, seed)
        for length in (5, 9)
        for label, attention in (("v", "none"), ("a", "additive"))
        for seed in (0, 1)
    ]


def test_equal_points_appear_once() -> None:
    found = grid(
        {"model.attention": ["none", "additive"], "model.timing": ["bahdanau", "luong"]},
    )
    assert [(p.model.attention, p.config["model"]["timing"]) for p in found] == [
        ("none", None),
        ("additive", "bahdanau"),
        ("additive", "luong"),
    ]


def test_equal_points_under_two_labels_stay_two() -> None:
    first, second = grid({"cases": [{"label": "a"}, {"label": "b", "model.cell": "gru"}]})
    assert first.run_id == second.run_id
    assert (first.label, second.label) == ("a", "b")


def test_order_of_keys_does_not_matter_to_the_run_id() -> None:
    one = grid({"task.length": [5], "model.cell": ["rnn"]})[0]
    two = grid({"model.cell": ["rnn"], "task.length": [5]})[0]
    assert one.run_id == two.run_id


@pytest.mark.parametrize(
    ("model", "training", "idle"),
    [
        ({}, {}, {"model.window", "model.gain"}),
        (
            {"attention": "none"},
            {},
            {"model.timing", "model.scope", "model.window", "model.gain"},
        ),
        ({"scope": "local_monotonic"}, {}, {"model.gain"}),
        ({"init": "orthogonal"}, {}, {"model.window"}),
        (
            {"init": "orthogonal", "scope": "local_predictive"},
            {"steps": 0},
            {
                "training.optimizer",
                "training.lr",
                "training.clip",
                "training.teacher_forcing",
                "record.every",
            },
        ),
    ],
)
def test_ineffective_keys(model: dict[str, Any], training: dict[str, Any], idle: set[str]) -> None:
    only = Point(Task(name="copy"), Model(**model), Training(**training), Record(), seed=0)
    assert ineffective_keys(only) == idle
    for key in KEYS:
        table, _, name = key.partition(".")
        assert (only.config[table][name] is None) == (key in idle)


def test_idle_everywhere_names_every_cause() -> None:
    assert idle_everywhere(grid(model={"attention": "none"}))["model.window"] == {
        "model.attention": 'model.attention is "none"',
        "model.scope": 'model.scope is "global"',
    }


def test_rules_speak_of_keys_that_exist() -> None:
    for cause, _, keys in IDLE:
        assert {cause, *keys} <= set(KEYS)
    assert set(AVAILABLE) <= set(KEYS)


@pytest.mark.parametrize(
    ("scenario", "message"),
    [
        (
            Scenario(title="", task=Task(name="copy", length=5, min_length=6)),
            "task.min_length: expected at most task.length, 5, found 6",
        ),
        (
            Scenario(
                title="", task=Task(name="copy"), model=Model(attention="none", bridge="none")
            ),
            'model.bridge: expected another value than "none" where model.attention is "none": '
            "no path is left from the encoder to the loss",
        ),
        (
            Scenario(title="", task=Task(name="copy"), model=Model(attention="cosine", layers=2)),
            "model.layers: 2 is not available yet; expected 1 for now\n"
            'model.attention: "cosine" is not available yet; '
            'expected "none", "additive" or "dot" for now',
        ),
    ],
)
def test_what_cannot_run_is_refused(scenario: Scenario, message: str) -> None:
    with pytest.raises(ScenarioError) as error:
        points(scenario)
    assert str(error.value) == message


def test_a_huge_product_is_refused() -> None:
    with pytest.raises(ScenarioError) as error:
        grid({"task.length": list(range(1, 1001)), "seed": list(range(101))})
    assert str(error.value) == (
        "scenario: 1 mistake\n  sweep: expected at most 100000 runs, found 1000 x 101 = 101000"
    )


@pytest.mark.parametrize(
    ("key", "bytes_asked"), [("map", "144,384,000,000"), ("hops", "10,240,000,000")]
)
def test_a_request_too_large_for_memory_is_refused_before_any_run(
    key: str, bytes_asked: str
) -> None:
    raw = {"title": "large", "task": {"name": "copy", "length": 2000}, "record": {key: True}}
    with pytest.raises(ScenarioError) as refused:
        load_scenario(raw)
    assert str(refused.value) == (
        "scenario: 1 mistake\n"
        f"  record.{key}: expected a request of at most 2,147,483,648 bytes for one example, found "
        f"about {bytes_asked} at source length 2000; leave record.{key} out, measure shorter "
        "record.lengths or lower model.hidden"
    )
