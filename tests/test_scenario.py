"""Scenarios: defaults, every mistake in a reader's words, overrides, and the way back to TOML."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from gradlab.errors import ScenarioError
from gradlab.grid import points
from gradlab.scenario import (
    load_scenario,
    parse_override,
    scenario_name,
    shipped_scenarios,
    to_toml,
)
from gradlab.schema import KEYS, TABLES, Record, Scenario, Task, key_schema

HEAD = 'title = "t"\n[task]\nname = "copy"\n'
MANY_MISTAKES = """\
[task]
name = "copyy"
lenght = 3
symbols = 1
[model]
layers = 0
hidden = true
[training]
lr = "1e-3"
clip = nan
batch = 64.0
[record]
lengths = [10, 10]
paths = "True"
[modle]
cell = "rnn"
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return path


def mistakes(folder: Path, text: str, overrides: dict[str, object] | None = None) -> list[str]:
    """The lines of the message, after the first, which names the file and counts them."""
    path = write(folder, text)
    with pytest.raises(ScenarioError) as error:
        load_scenario(path, overrides)
    first, *rest = str(error.value).split("\n  ")
    assert first == f"{path}: {len(rest)} mistake{'s' if len(rest) > 1 else ''}"
    return rest


def whole(call: Any, *arguments: object) -> str:
    with pytest.raises(ScenarioError) as error:
        call(*arguments)
    return str(error.value)


def test_defaults_are_those_of_the_design() -> None:
    scenario = load_scenario({"title": "t", "task": {"name": "reverse"}})
    assert scenario.notes == ""
    assert scenario.model_dump(exclude={"title", "notes", "sweep"}) == {
        "task": {
            "name": "reverse",
            "length": 20,
            "min_length": None,
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
            "window": 2,
            "timing": "bahdanau",
            "input_feeding": False,
            "bridge": "initial",
            "init": "torch",
            "gain": 1.0,
            "heads": 4,
            "feedforward": 128,
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
            "lengths": None,
            "examples": 64,
            "loss": "mean",
            "paths": True,
            "map": False,
            "hops": False,
            "jacobians": False,
        },
    }
    assert (scenario.sweep.axes, scenario.sweep.seed) == ((), (0,))


def test_all_mistakes_of_a_file_come_together(tmp_path: Path) -> None:
    assert mistakes(tmp_path, MANY_MISTAKES) == [
        "task.lenght: expected name, length, min_length, symbols, delay, reverse_source or keep, "
        'found "lenght"; '
        "did you mean task.length?",
        "modle.cell: expected title, notes, task, model, training, record or sweep, "
        'found "modle.cell"; did you mean model.cell?',
        'task.name: expected "copy" or "reverse", found "copyy"; did you mean "copy"?',
        "task.symbols: expected an integer of at least 2, found 1",
        "model.layers: expected an integer of at least 1, found 0",
        "model.hidden: expected an integer of at least 1, found true",
        "training.lr: expected a finite number greater than 0, found the string "
        '"1e-3"; drop the quotes',
        "training.clip: expected a finite number of at least 0, found nan",
        "training.batch: expected an integer of at least 1, found 64.0",
        "record.lengths: expected a list of one or more different values, each an integer of "
        "at least 1, found [10, 10]",
        'record.paths: expected true or false, found the string "True"; write true, without quotes',
        "title: expected a string, found nothing",
    ]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "[training]\nteacher_forcing = 1.5",
            "training.teacher_forcing: expected a finite number from 0 to 1, found 1.5",
        ),
        (
            '[model]\ncell = "GRUU"',
            'model.cell: expected "gru", "rnn" or "lstm", found "GRUU"; did you mean "gru"?',
        ),
        (
            "[model]\nlength = 3",
            "model.length: expected kind, cell, hidden, embedding, layers, bidirectional, "
            "attention, scope, window, timing, input_feeding, bridge, init, gain, heads or "
            'feedforward, found "length"; did you mean task.length?',
        ),
        (
            "[record]\nlengths = []",
            "record.lengths: expected a list of one or more different values, each an integer "
            "of at least 1, found []",
        ),
        (
            '[record]\nlengths = [3, "x"]',
            'record.lengths[1]: expected an integer of at least 1, found the string "x"',
        ),
        (
            "[training]\nsteps = 0xffffffffffffffffffff",
            "training.steps: expected an integer of at least 0 and below 2**63, "
            "found 1208925819614629174706175",
        ),
        (
            "[training]\nclip = 2020-01-02",
            "training.clip: expected a finite number of at least 0, found 2020-01-02",
        ),
        (
            "[task.length]\nx = 1",
            "task.length: expected an integer of at least 1, found a table",
        ),
        ("[[model]]\nx = 1", "model: expected a table, found [a table]"),
        (
            "[empty]",
            'empty: expected title, notes, task, model, training, record or sweep, found "empty"',
        ),
        (
            '[model]\nattention = "none"\ntiming = "luong"',
            "model.timing: expected to be left out, found it set: it has no effect at any point "
            'of the sweep (model.attention is "none")',
        ),
        (
            "[task]\nlength = 5\nmin_length = 6",
            "task.min_length: expected at most task.length, 5, found 6",
        ),
        (
            '[model]\nattention = "none"\nbridge = "none"',
            'model.bridge: expected another value than "none" where model.attention is "none": '
            "no path is left from the encoder to the loss",
        ),
        (
            '[sweep]\n"task.lenght" = [3]',
            'sweep."task.lenght": expected name, length, min_length, symbols, delay, '
            'reverse_source or keep, found "lenght"; did you mean task.length?',
        ),
        (
            "[sweep]\nsead = [3]",
            "sweep.sead: expected seed, cases or a key such as task.length, "
            'found "sead"; did you mean seed?',
        ),
        (
            '[sweep]\n"task.length" = [3, "4"]',
            'sweep."task.length"[1]: expected an integer of at least 1, '
            'found the string "4"; drop the quotes',
        ),
        (
            "[sweep]\ntask.length = [3, 0]",
            'sweep."task.length"[1]: expected an integer of at least 1, found 0',
        ),
        (
            "[sweep]\ntask.length = []",
            'sweep."task.length": expected a list of values, found an empty list',
        ),
        (
            "[sweep]\ntask.length = 3",
            'sweep."task.length": expected a list of values, found 3',
        ),
        ("[sweep]\nseed = 3", "sweep.seed: expected a list of values, found 3"),
        ("[sweep]\nseed = [-1]", "sweep.seed[0]: expected an integer of at least 0, found -1"),
        (
            "[sweep]\ntraining.clip = [1, 1.0]",
            'sweep."training.clip": expected different values, found 1.0 twice',
        ),
        (
            "[sweep]\nrecord.lengths = [3]",
            'sweep."record.lengths"[0]: expected a list of one or more different values, '
            "each an integer of at least 1, found 3",
        ),
        (
            '[sweep]\n"task.length" = [3]\ntask.length = [4]',
            'sweep."task.length": expected once, found dotted and in a table',
        ),
        ("[sweep]\ncases = []", "sweep.cases: expected a list of values, found an empty list"),
        ("[sweep]\ncases = [3]", "sweep.cases[0]: expected a table with a label, found 3"),
        (
            "[sweep]\ncases = [{model.cell = 'rnn'}]",
            "sweep.cases[0].label: expected a non-empty string, found nothing",
        ),
        (
            "[sweep]\ncases = [{label = 'a'}, {label = 'a'}]",
            'sweep.cases[1].label: expected different labels, found "a" again',
        ),
        (
            "[sweep]\ncases = [{label = 'a', 'model.cell' = 'gro'}]",
            'sweep.cases[0]."model.cell": expected "gru", "rnn" or "lstm", '
            'found "gro"; did you mean "gru"?',
        ),
        (
            "[sweep]\ntask.length = [3, 4]\ncases = [{label = 'a', task.length = 5}]",
            'sweep."task.length": expected here or in sweep.cases, found in both',
        ),
        (
            "[sweep]\ncases = [{label = 'a', model.window = 5}]",
            'sweep.cases[0]."model.window": expected to be left out, found it set: it has no '
            'effect at any point of the sweep (model.scope is "global")',
        ),
    ],
)
def test_each_mistake_has_its_line(tmp_path: Path, text: str, line: str) -> None:
    assert mistakes(tmp_path, HEAD + text.removeprefix("[task]\n")) == [line]


def test_what_follows_from_another_mistake_is_not_told(tmp_path: Path) -> None:
    text = HEAD + 'length = "9"\nmin_length = 30\n[model]\nscope = "near"\nwindow = 3\n'
    assert mistakes(tmp_path, text) == [
        'task.length: expected an integer of at least 1, found the string "9"; drop the quotes',
        'model.scope: expected "global", "local_monotonic" or "local_predictive", found "near"',
    ]


def test_a_mistake_at_many_points_is_told_once(tmp_path: Path) -> None:
    text = HEAD + "min_length = 6\n[sweep]\ntask.length = [5, 9]\nseed = [0, 1, 2]\n"
    assert mistakes(tmp_path, text) == ["task.min_length: expected at most task.length, 5, found 6"]


def test_a_base_value_that_the_sweep_replaces_is_not_combined() -> None:
    scenario = load_scenario(
        {
            "title": "t",
            "task": {"name": "copy", "length": 5, "min_length": 6},
            "sweep": {"task.length": [7, 8]},
        }
    )
    assert [point.task.length for point in points(scenario)] == [7, 8]


def test_the_sweep_may_name_the_task() -> None:
    scenario = load_scenario({"title": "t", "sweep": {"task.name": ["reverse", "copy"]}})
    assert [point.task.name for point in points(scenario)] == ["reverse", "copy"]
    assert load_scenario(_saved(scenario)) == scenario


def test_nested_and_dotted_writing_are_one(tmp_path: Path) -> None:
    nested = HEAD + "[sweep]\ntask.length = [3, 4]\ncases = [{label = 'a', model.cell = 'rnn'}]"
    dotted = HEAD + (
        '[sweep]\n"task.length" = [3, 4]\ncases = [{label = "a", "model.cell" = "rnn"}]'
    )
    assert load_scenario(write(tmp_path, nested)) == load_scenario(write(tmp_path, dotted))


def test_integers_are_numbers_and_a_byte_order_mark_is_no_matter(tmp_path: Path) -> None:
    path = write(tmp_path, "\ufeff" + HEAD + "[training]\nclip = 2\n")
    assert load_scenario(str(path)).training.clip == 2.0
    assert isinstance(load_scenario(path).training.clip, float)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    path = write(tmp_path, "title = 1\nx = = 2\n")
    assert whole(load_scenario, path) == (
        f"{path}: expected TOML, found a mistake: Invalid value (at line 2, column 5)"
    )
    path = write(tmp_path, 'title = "a"\nnotes = [1,\n2')
    assert whole(load_scenario, path) == (
        f"{path}: expected TOML, found a mistake: Unclosed array (at line 3, the end of the file)"
    )
    path = write(tmp_path, "x = " + "[" * 100_000)
    assert whole(load_scenario, path) == f"{path}: expected TOML, found values nested too deeply"
    path.write_bytes(b'title = "caf\xe9"')
    assert whole(load_scenario, path) == (
        f"{path}: expected UTF-8 text, found another byte at offset 12"
    )
    assert whole(load_scenario, tmp_path) == f"{tmp_path}: expected a TOML file, found a directory"
    (tmp_path / "scenario.toml").write_text(HEAD)
    assert whole(load_scenario, tmp_path) == (
        f"{tmp_path}: expected a TOML file, found a directory; "
        f"did you mean {tmp_path / 'scenario.toml'}?"
    )
    assert whole(load_scenario, path / "inside.toml") == (
        f"{path / 'inside.toml'}: expected a readable file, found: Not a directory"
    )


@pytest.mark.parametrize("source", ["bottelneck", "nowhere/bottelneck.toml"])
def test_an_unknown_name_lists_those_that_exist(
    monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    known = {"bottleneck": Path("a/bottleneck.toml"), "decay": Path("a/decay.toml")}
    monkeypatch.setattr("gradlab.scenario.shipped_scenarios", lambda: known)
    assert whole(load_scenario, source) == (
        f"{source}: expected the path of a TOML file or the name of a shipped scenario "
        "(bottleneck or decay), found neither; did you mean bottleneck?"
    )


def test_shipped_scenarios_are_sorted_and_load() -> None:
    shipped = shipped_scenarios()
    assert list(shipped) == sorted(shipped)
    for name, path in shipped.items():
        assert scenario_name(path) == name
        assert load_scenario(name) == load_scenario(path)


def test_scenario_name() -> None:
    assert scenario_name("bottleneck") == "bottleneck"
    assert scenario_name("some/where/mine.toml") == "mine"
    assert scenario_name({"title": "t"}) == "scenario"


@pytest.mark.parametrize(
    ("text", "pair"),
    [
        ("seed=3", ("seed", 3)),
        ("seed = [1, 2]", ("seed", [1, 2])),
        ("model.cell=lstm", ("model.cell", "lstm")),
        ('title="a b = c"', ("title", "a b = c")),
        ("training.lr=1e-3", ("training.lr", 1e-3)),
        ("record.map=true", ("record.map", True)),
    ],
)
def test_parse_override(text: str, pair: tuple[str, object]) -> None:
    assert parse_override(text) == pair


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("seed", '--set: expected KEY=VALUE, found "seed"'),
        ("=3", '--set: expected KEY=VALUE, found "=3"'),
        (
            "title=a b",
            '--set title: expected a TOML value or a bare word, found "a b"; '
            "text with spaces or signs needs double quotes of its own",
        ),
        (
            "seed=",
            "--set seed: expected a TOML value or a bare word, found nothing; "
            "text with spaces or signs needs double quotes of its own",
        ),
        (
            "model.cell=rnn,lstm",
            '--set model.cell: expected a TOML value or a bare word, found "rnn,lstm"; '
            'write --set \'model.cell=["rnn", "lstm"]\'',
        ),
        (
            "seed=1\nx=2",
            r'--set seed: expected a TOML value or a bare word, found "1\nx=2"; '
            "text with spaces or signs needs double quotes of its own",
        ),
    ],
)
def test_parse_override_mistakes(text: str, message: str) -> None:
    assert whole(parse_override, text) == message


SWEPT = {
    "title": "t",
    "task": {"name": "copy"},
    "sweep": {
        "task.length": [5, 9],
        "cases": [{"label": "v", "model.attention": "none"}, {"label": "a"}],
        "training.steps": [1, 2],
    },
}


def axes(overrides: dict[str, object]) -> dict[str, list[object]]:
    sweep = load_scenario(SWEPT, overrides).sweep
    found: dict[str, list[object]] = {
        axis.key: [case.label or case.settings[0][1] for case in axis.cases] for axis in sweep.axes
    }
    return {**found, "seed": list(sweep.seed)}


def test_overrides_make_and_remove_axes() -> None:
    plain = {"task.length": [5, 9], "cases": ["v", "a"], "training.steps": [1, 2], "seed": [0]}
    assert axes({}) == plain
    assert axes({"seed": 3}) == {**plain, "seed": [3]}
    assert axes({"seed": [3, 4]}) == {**plain, "seed": [3, 4]}
    assert next(iter(axes({"task.length": [7]}).items())) == ("task.length", [7])
    assert axes({"model.cell": ["rnn", "gru"]})["model.cell"] == ["rnn", "gru"]
    assert "task.length" not in axes({"task.length": 7})
    assert load_scenario(SWEPT, {"task.length": 7}).task.length == 7
    assert "record.lengths" not in axes({"record.lengths": [7, 8]})
    assert load_scenario(SWEPT, {"record.lengths": [7, 8]}).record.lengths == (7, 8)
    assert axes({"record.lengths": [[7], [8, 9]]})["record.lengths"] == [(7,), (8, 9)]
    assert load_scenario(SWEPT, {"title": "u"}).title == "u"


@pytest.mark.parametrize(
    ("overrides", "line"),
    [
        (
            {"task.lenght": 3},
            "override task.lenght: expected name, length, min_length, symbols, delay, "
            'reverse_source or keep, found "lenght"; did you mean task.length?',
        ),
        (
            {"sede": 3},
            'override sede: expected title, notes, seed or a key such as task.length, found "sede"'
            "; did you mean seed?",
        ),
        (
            {"model.attention": "dot"},
            "override model.attention: expected a key that no case sets, "
            'found one that sweep.cases sets ("v")',
        ),
        (
            {"task.length": []},
            "override task.length: expected a list of values, found an empty list",
        ),
        ({"title": ["a"]}, 'override title: expected a string, found ["a"]'),
        ({"seed": "x"}, 'override seed: expected an integer of at least 0, found the string "x"'),
        (
            {"task.length": [3] * 100_001},
            "override task.length: expected at most 100000 values, found 100001",
        ),
        (
            {"task.length": [3, 0]},
            "override task.length[1]: expected an integer of at least 1, found 0",
        ),
        (
            {"task.min_length": 6},
            "override task.min_length: expected at most task.length, 5, found 6",
        ),
        (
            {"model.window": 3},
            "override model.window: expected to be left out, found it set: it has no effect at any "
            'point of the sweep (model.attention is "none" and model.scope is "global")',
        ),
    ],
)
def test_override_mistakes(overrides: dict[str, object], line: str) -> None:
    assert whole(load_scenario, SWEPT, overrides) == line


def test_a_value_of_the_file_that_an_override_made_wrong_is_told_of_the_override() -> None:
    raw = {"title": "t", "task": {"name": "copy", "length": 5, "min_length": 3}}
    assert whole(load_scenario, raw, {"task.length": 2}) == (
        "override task.length: task.min_length: expected at most task.length, 2, found 3"
    )
    raw["task"] = {"name": "copy", "length": 0}
    assert whole(load_scenario, raw, {"task.length": [2, 3]}) == (
        "scenario: 1 mistake\n  task.length: expected an integer of at least 1, found 0"
    )


def test_a_key_that_only_an_override_left_without_effect_is_excused(tmp_path: Path) -> None:
    text = HEAD + '[model]\ntiming = "luong"\n[training]\nsteps = 9\nlr = 0.1\n'
    scenario = load_scenario(write(tmp_path, text), {"training.steps": 0})
    assert [point.config["training"]["lr"] for point in points(scenario)] == [None]
    assert "lr" not in _saved(scenario)["training"]
    load_scenario(write(tmp_path, text), {"training.steps": 0, "model.attention": "none"})
    reason = "expected to be left out, found it set: it has no effect at any point of the sweep"
    assert whole(
        load_scenario, write(tmp_path, text), {"training.steps": 0, "training.lr": 0.2}
    ) == (f"override training.lr: {reason} (training.steps is 0)")
    unrelated: dict[str, object] = {"model.attention": "none", "task.length": 4}
    assert mistakes(tmp_path, text.replace("steps = 9", "steps = 0"), unrelated) == [
        f"training.lr: {reason} (training.steps is 0)"
    ]


def _saved(scenario: Scenario) -> dict[str, Any]:
    return tomllib.loads(to_toml(scenario))


@pytest.mark.parametrize(
    "raw",
    [
        {"title": "t", "task": {"name": "copy"}},
        {"title": 'a "b" \\ 한\n', "notes": "n\n\tm", "task": {"name": "reverse", "min_length": 3}},
        {"title": "t", "task": {"name": "copy"}, "model": {"attention": "none"}},
        {"title": "t", "task": {"name": "copy"}, "training": {"steps": 0}},
        {"title": "t", "task": {"name": "copy"}, "training": {"lr": 1e-30, "clip": 10**16}},
        SWEPT,
        {
            "title": "t",
            "task": {"name": "copy", "length": 7},
            "record": {"lengths": [3, 4]},
            "sweep": {
                "cases": [
                    {"label": "a" * 200, "record.lengths": [5, 6], "model.cell": "rnn"},
                    {"label": 'quote " and, comma', "record.lengths": [8]},
                ],
                "task.length": [8, 9],
                "model.timing": ["luong", "bahdanau"],
                "seed": [2, 1],
            },
        },
    ],
)
def test_to_toml_and_back(raw: dict[str, Any]) -> None:
    scenario = load_scenario(raw)
    again = load_scenario(_saved(scenario))
    assert again == scenario
    assert to_toml(again) == to_toml(scenario)
    assert [(p.run_id, p.label) for p in points(again)] == [
        (p.run_id, p.label) for p in points(scenario)
    ]


def test_to_toml_leaves_out_what_says_nothing() -> None:
    assert to_toml(load_scenario({**SWEPT, "training": {"clip": 0}})) == (
        """\
title = "t"

[task]
name = "copy"
symbols = 10
delay = 0
reverse_source = false

[model]
kind = "seq2seq"
cell = "gru"
hidden = 64
embedding = 32
layers = 1
bidirectional = false
attention = "additive"
scope = "global"
timing = "bahdanau"
bridge = "initial"
init = "torch"

[training]
batch = 64
optimizer = "adam"
lr = 0.003
weight_decay = 0.0
clip = 0.0
teacher_forcing = 1.0
dtype = "float32"

[record]
every = 100
examples = 64
loss = "mean"
paths = true
map = false
hops = false
jacobians = false

[sweep]
"task.length" = [5, 9]
cases = [
  { label = "v", "model.attention" = "none" },
  { label = "a" },
]
"training.steps" = [1, 2]
seed = [0]
"""
    )


def test_every_key_is_described_and_frozen() -> None:
    for key in KEYS:
        assert key_schema(key)["description"]
    with pytest.raises(ValueError, match="frozen"):
        Task(name="copy").length = 3  # type: ignore[misc]
    assert Record(lengths=[3, 4]).lengths == (3, 4)  # type: ignore[arg-type]


def test_json_schema_describes_the_file() -> None:
    schema = Scenario.model_json_schema()
    assert schema["required"] == ["title", "task"]
    sweep = schema["$defs"]["Sweep"]["properties"]
    assert set(sweep) == {"seed", "cases", *KEYS, *TABLES}
    assert sweep["task.length"]["items"]["minimum"] == 1
    assert sweep["cases"]["items"]["required"] == ["label"]


def test_reading_a_scenario_imports_nothing_heavy() -> None:
    code = "import sys, gradlab.scenario; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "numpy", "pandas", "matplotlib", "scipy"} & set(done.stdout.split())
