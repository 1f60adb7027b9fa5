"""The grid: product order, run ids, keys without effect, and what cannot run."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from gradlab.errors import ScenarioError
from gradlab.grid import IDLE, Point, idle_everywhere, ineffective_keys, points
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
        "task": {
            "name": "copy",
            "length": 20,
            "min_length": 20,
            "symbols": 10,
            "delay": 0,
            "reverse_source": False,
            "keep": None,
        },
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
            "input_feeding": None,
            "bridge": "initial",
            "init": "torch",
            "gain": None,
            "heads": None,
            "feedforward": None,
        },
        "training": {
            "steps": 600,
            "batch": 64,
            "optimizer": "adam",
            "lr": 3e-3,
            "weight_decay": 0.0,
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
    canonical = b'{"numerics_version":7,"seed":0,"task.name":"copy"}'
    assert point().run_id == hashlib.sha256(canonical).hexdigest()[:16] == "1048744f58c30e28"
    moved = point(
        task={"name": "reverse", "length": 8, "min_length": 3},
        model={"cell": "lstm", "attention": "none"},
        training={"lr": 1e-3},
        record={"lengths": [8, 16]},
    )
    assert moved.run_id == "4860d79a57ef5889"
    shipped = points(load_scenario("first_look"))
    assert (shipped[0].run_id, shipped[-1].run_id) == ("568685956f1720e9", "0265ad53aab06835")


@pytest.mark.parametrize(
    "tables",
    [
        {"task": {"length": 20}},
        {"task": {"min_length": 20}},
        {"record": {"lengths": [20]}},
        {"model": {"timing": "bahdanau"}},
        {"training": {"clip": 1}},
        {"training": {"weight_decay": 0}},
        {"task": {"reverse_source": False}},
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
        {"training": {"optimizer": "sgd"}},
        {"training": {"weight_decay": 1e-3}},
        {"training": {"teacher_forcing": 0.5}},
        {"task": {"reverse_source": True}},
        {"task": {"keep": 20}},
        {"model": {"init": "identity"}},
        {"model": {"init": "identity", "gain": 1.1}},
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


RECURRENT = (
    *("cell", "embedding", "bidirectional", "attention", "timing", "input_feeding", "scope"),
    *("window", "bridge", "init", "gain"),
)


@pytest.mark.parametrize(
    ("model", "training", "idle"),
    [
        ({}, {}, {"model.window", "model.gain", "model.input_feeding"}),
        ({"timing": "luong"}, {}, {"model.window", "model.gain"}),
        (
            {"attention": "none"},
            {},
            {f"model.{key}" for key in ("timing", "input_feeding", "scope", "window", "gain")},
        ),
        ({"scope": "local_monotonic"}, {}, {"model.gain", "model.input_feeding"}),
        (
            {"kind": "transformer", "init": "orthogonal"},
            {},
            {f"model.{key}" for key in RECURRENT},
        ),
        ({"init": "orthogonal"}, {}, {"model.window", "model.input_feeding"}),
        (
            {"init": "orthogonal", "scope": "local_predictive"},
            {"steps": 0},
            {
                "model.input_feeding",
                "training.optimizer",
                "training.lr",
                "training.weight_decay",
                "training.clip",
                "training.teacher_forcing",
                "record.every",
            },
        ),
    ],
)
def test_ineffective_keys(model: dict[str, Any], training: dict[str, Any], idle: set[str]) -> None:
    only = Point(Task(name="copy"), Model(**model), Training(**training), Record(), seed=0)
    idle |= {"model.heads", "model.feedforward"} if only.model.kind == "seq2seq" else set()
    assert ineffective_keys(only) == idle
    for key in KEYS:
        table, _, name = key.partition(".")
        null_is_all = key == "task.keep"
        assert (only.config[table][name] is None) == (key in idle or null_is_all)


def test_idle_everywhere_names_every_cause() -> None:
    assert idle_everywhere(grid(model={"attention": "none"}))["model.window"] == {
        "model.attention": 'model.attention is "none"',
        "model.scope": 'model.scope is "global"',
    }


def test_rules_speak_of_keys_that_exist() -> None:
    for cause, _, keys in IDLE:
        assert {cause, *keys} <= set(KEYS)


@pytest.mark.parametrize(
    ("scenario", "message"),
    [
        (
            Scenario(
                title="",
                task=Task(name="copy"),
                model=Model(kind="transformer", hidden=10, attention="none", bridge="none"),
                record=Record(jacobians=True, hops=True),
            ),
            "model.heads: expected a divisor of model.hidden, 10, found 4\n"
            'record.jacobians: expected false where model.kind is "transformer", found true: '
            "it has no recurrence",
        ),
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
    ],
)
def test_what_cannot_run_is_refused(scenario: Scenario, message: str) -> None:
    with pytest.raises(ScenarioError) as error:
        points(scenario)
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("task", "kind", "lengths", "message"),
    [
        (
            {"length": 5, "min_length": 3, "keep": 4},
            "seq2seq",
            None,
            "task.keep: expected at most the shortest training length, 3, found 4",
        ),
        (
            {"length": 5, "keep": 4},
            "seq2seq",
            [9, 3],
            "task.keep: expected at most the shortest of record.lengths, 3, found 4",
        ),
        (
            {"name": "reverse", "keep": 4},
            "seq2seq",
            None,
            'task.keep: expected to be left out unless task.name is "copy", '
            'found 4 where task.name is "reverse"',
        ),
        (
            {"keep": 4},
            "synchronous",
            None,
            'task.keep: expected to be left out where model.kind is "synchronous", found 4; '
            "its outputs stand beside all the symbols",
        ),
    ],
)
def test_keep_is_refused_where_it_asks_for_what_is_not_there(
    task: dict[str, Any], kind: str, lengths: list[int] | None, message: str
) -> None:
    raw: dict[str, Any] = {"title": "t", "task": {"name": "copy", **task}, "model": {"kind": kind}}
    if lengths is not None:
        raw["record"] = {"lengths": lengths}
    with pytest.raises(ScenarioError) as error:
        load_scenario(raw)
    assert str(error.value) == f"scenario: 1 mistake\n  {message}"


@pytest.mark.parametrize(("name", "other"), [("copy", "reverse"), ("reverse", "copy")])
def test_a_synchronous_model_reads_a_task_one_way(name: str, other: str) -> None:
    with pytest.raises(ScenarioError) as error:
        grid(task={"name": name, "reverse_source": True}, model={"kind": "synchronous"})
    assert str(error.value) == (
        "scenario: 1 mistake\n  task.reverse_source: expected false where model.kind is "
        f'"synchronous", found true; set task.name = "{other}", which asks for the same'
    )


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


@pytest.mark.parametrize("attention", ["dot", "scaled_dot", "cosine"])
def test_a_two_way_encoder_needs_a_score_that_takes_two_sizes(attention: Any) -> None:
    model = Model(attention=attention, bidirectional=True)
    with pytest.raises(ScenarioError) as error:
        points(Scenario(title="", task=Task(name="copy"), model=model))
    assert str(error.value) == (
        f'model.attention: "{attention}" needs a query and an encoder state of one size, and where '
        "model.bidirectional is true a state has 2 model.hidden numbers; set model.attention = "
        '"general", which maps it to the size of the query'
    )
    for other in ("additive", "concat", "general", "location"):
        grid(model={"attention": other, "bidirectional": True})


def test_the_longest_source_is_trained_on_or_measured_with_its_blanks() -> None:
    assert point(task={"length": 5}).longest_source == 5
    assert point(task={"length": 5, "delay": 2}, record={"lengths": [3, 9]}).longest_source == 11
    assert point(task={"length": 5}, record={"lengths": [3]}).longest_source == 5
