"""The commands: what they print and where, their exit codes, and what must not crash them."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from click.testing import CliRunner, Result
from tiny import fill, point, tiny

from gradlab import __version__
from gradlab.cli import main
from gradlab.grid import Point, points
from gradlab.lab.lanes import Event, Lane
from gradlab.lab.store import prepare, stored_runs
from gradlab.lab.walkthrough import SYMBOLS, walk_through
from gradlab.scenario import load_scenario, shipped_scenarios, to_toml
from gradlab.schema import Scenario

COMMANDS = sorted(main.commands)
SHIPPED = list(shipped_scenarios())


def call(*words: object) -> Result:
    """Call a command in this process; whatever is not a deliberate exit is raised."""
    result = CliRunner().invoke(main, [str(word) for word in words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def process(
    *words: object, code: str = "from gradlab.cli import main; main()", **environment: str
) -> subprocess.CompletedProcess[bytes]:
    """Call a command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, words)],
        capture_output=True,
        env={**os.environ, **environment},
        check=False,
    )


def saved(folder: Path, scenario: Scenario) -> Path:
    path = folder / "mine.toml"
    path.write_text(to_toml(scenario), encoding="utf-8")
    return path


# Help and imports


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str) -> None:
    result = call(command, "-h")
    assert result.exit_code == 0
    assert result.stdout.startswith(f"Usage: main {command}")
    assert main.commands[command].help


def test_the_group_lists_every_command_and_has_a_version() -> None:
    listed = call("--help").stdout
    assert all(re.search(rf"^  {command} ", listed, re.MULTILINE) for command in COMMANDS)
    assert __version__ in call("--version").stdout


LIGHT = """
import atexit, sys
heavy = {"torch", "pandas", "matplotlib", "seaborn", "scipy", "pyarrow"}
atexit.register(lambda: print("loaded:", sorted(heavy & set(sys.modules)), file=sys.stderr))
from gradlab.cli import main
main()
"""


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--help"], 0),
        (["run", "--help"], 0),
        (["show", "first_look"], 0),
        (["scenarios"], 0),
        (["run", "first_look", "--set", "task.length=0"], 2),
        (["trace", "nowhere"], 2),
    ],
)
def test_help_and_mistakes_do_not_wait_for_torch(words: list[str], code: int) -> None:
    done = process(*words, code=LIGHT)
    assert done.returncode == code
    assert done.stderr.decode().splitlines()[-1] == "loaded: []"


# show, scenarios


@pytest.mark.parametrize("name", SHIPPED)
def test_show_prints_toml_that_loads_to_the_same_runs(name: str, tmp_path: Path) -> None:
    result = call("show", name)
    assert (result.exit_code, result.stderr) == (0, "")
    path = tmp_path / "shown.toml"
    path.write_text(result.stdout, encoding="utf-8")
    expected = [each.run_id for each in points(load_scenario(name))]
    assert [each.run_id for each in points(load_scenario(path))] == expected
    assert result.stdout.startswith(f"# {len(expected)} runs\n")


def test_show_counts_one_run_as_one() -> None:
    settings = ["task.length=3", "seed=0", "model.attention=none"]
    words = [word for text in settings for word in ("--set", text)]
    assert call("show", "first_look", *words).stdout.startswith("# 1 run\n")


def test_show_schema_is_the_schema() -> None:
    result = call("show", "--schema")
    assert json.loads(result.stdout) == json.loads(json.dumps(Scenario.model_json_schema()))


def test_show_needs_a_scenario() -> None:
    result = call("show")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Missing argument 'SCENARIO' (or give --schema)." in result.stderr


def test_scenarios_lists_each_with_title_runs_and_notes() -> None:
    result = call("scenarios")
    assert (result.exit_code, result.stderr) == (0, "")
    for name in SHIPPED:
        scenario = load_scenario(name)
        assert f"{name}  ({len(points(scenario))} runs)  {scenario.title}\n" in result.stdout
        assert " ".join(scenario.notes.split()) in " ".join(result.stdout.split())


# Mistakes in the call


def test_a_missing_scenario_lists_those_that_exist() -> None:
    *head, last = SHIPPED
    for command in ("run", "show", "trace"):
        result = call(command, "first_lok")
        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr == (
            "gradlab: first_lok: expected the path of a TOML file or the name of a shipped "
            f"scenario ({', '.join(head)} or {last}), found neither; did you mean first_look?\n"
        )


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("task.length", '--set: expected KEY=VALUE, found "task.length"'),
        (
            "task.lenght=3",
            "--set task.lenght: expected name, length, min_length, symbols, delay, reverse_source "
            'or keep, found "lenght"; did you mean task.length?',
        ),
        (
            "training.lr='1e-3'",
            "--set training.lr: expected a finite number greater than 0, found "
            'the string "1e-3"; drop the quotes',
        ),
        (
            "model.cell=[rnn, lstm]",
            '--set model.cell: expected a TOML value or a bare word, found "[rnn, lstm]"; '
            'write --set \'model.cell=["rnn", "lstm"]\'',
        ),
    ],
)
def test_a_mistake_in_a_setting(tmp_path: Path, setting: str, message: str) -> None:
    path = saved(tmp_path, tiny())
    result = call("run", path, "--set", setting, "--out", tmp_path / "out")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"gradlab: {message}\n"
    assert not (tmp_path / "out").exists()


def test_mistakes_of_the_file_and_of_settings_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('title = "t"\n[task]\nname = "copy"\nlength = 0\n')
    result = call("show", path, "--set", "training.stepz=3", "--set", "model.layers=0")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == (
        f"gradlab: {path}: 3 mistakes\n"
        "  --set training.stepz: expected steps, batch, optimizer, lr, weight_decay, clip, "
        'teacher_forcing or dtype, found "stepz"; did you mean training.steps?\n'
        "  task.length: expected an integer of at least 1, found 0\n"
        "  --set model.layers: expected an integer of at least 1, found 0\n"
    )


def test_a_key_set_twice_is_exit_2() -> None:
    result = call("show", "first_look", "--set", "task.length=5", "--set", "task.length=6")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "gradlab: --set task.length: expected once, found 5 and 6\n"


@pytest.mark.parametrize("command", ["run", "show", "trace"])
def test_an_empty_name_is_exit_2(command: str) -> None:
    result = call(command, "")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == (
        "gradlab: scenario: expected the path of a TOML file or the name of a shipped scenario, "
        "found an empty name\n"
    )


def test_a_million_seeds_are_exit_2_at_once() -> None:
    result = call("run", "first_look", "--set", f"seed={list(range(1_000_000))}", "--dry-run")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "gradlab: --set seed: expected at most 100000 values, found 1000000\n"


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (["task.length=5"], {"task.length": {5}}),
        (["task.length=[5, 6]", "seed=3"], {"task.length": {5, 6}, "seed": {3}}),
        (["task.name=reverse"], {"task.name": {"reverse"}}),
        (['model.attention=["dot", "none"]'], {"model.attention": {"dot", "none"}}),
        (["record.lengths=[3, 4]"], {"record.lengths": {(3, 4)}}),
        (["training.lr=1e-2", "record.paths=false"], {"training.lr": {0.01}}),
    ],
)
def test_settings(settings: list[str], expected: dict[str, Any], tmp_path: Path) -> None:
    words = [word for text in settings for word in ("--set", text)]
    path = tmp_path / "shown.toml"
    path.write_text(call("show", saved(tmp_path, tiny()), *words).stdout, encoding="utf-8")
    found = points(load_scenario(path))
    for key, values in expected.items():
        assert {each.seed if key == "seed" else each.value(key) for each in found} == values


# trace

ATTENTIONS = ("additive", "dot")
BRIDGES = ("initial", "every_step", "mean", "none")
CELLS = ("gru", "rnn", "lstm")
MODELS: list[dict[str, Any]] = [
    {"cell": cell, "attention": attention, "timing": timing, "bridge": bridge}
    for cell, attention, timing, bridge in itertools.product(
        CELLS, ATTENTIONS, ("bahdanau", "luong"), BRIDGES
    )
]
MODELS += [
    {"cell": cell, "attention": attention, "bridge": "every_step", "layers": 2, **more}
    for cell, attention in itertools.product(CELLS, ("additive", "general"))
    for more in (
        {"timing": "bahdanau"},
        {"timing": "luong", "input_feeding": True, "bidirectional": True},
    )
]
MODELS += [
    {"attention": attention, "timing": timing, "bridge": "initial", "cell": "gru", "scope": scope}
    for attention, timing, scope in (
        ("location", "bahdanau", "global"),
        ("location", "luong", "local_monotonic"),
        ("concat", "bahdanau", "local_predictive"),
    )
]
MODELS += [
    {"cell": cell, "attention": "none", "bridge": bridge}
    for cell, bridge in itertools.product(CELLS, ("initial", "every_step"))
]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: "-".join(map(str, model.values())))
def test_the_shapes_of_a_trace_agree_with_their_symbols(model: dict[str, Any]) -> None:
    each = point(model=model, task={"length": 5, "delay": 2, "symbols": 6}, training={"batch": 9})
    sizes = {"B": 9, "n": 7, "k": 5, "H": 4, "E": 3, "V": 6, "heads": 4}
    assert sizes.keys() == SYMBOLS.keys()
    sizes["2H"] = 8  # both directions
    rows = walk_through(each)
    for row in rows:
        letters = [letter for letter in row.symbols.strip("()").split(", ") if letter]
        assert row.shape == tuple(sizes[letter] for letter in letters), row.name
    names = [row.name for row in rows]
    assert len(set(names)) == len(names)
    assert ("context" in names) == (model["attention"] != "none")
    assert ("bridge.h" in names) == (model["bridge"] != "none")
    assert ("bridge.c" in names) == (model["bridge"] != "none" and model["cell"] == "lstm")
    assert ("encoder_cells" in names) == (model["cell"] == "lstm")
    assert names[0] == "source"
    assert names[-1] == "loss"


def test_trace_prints_a_table_and_its_legend_apart(tmp_path: Path) -> None:
    result = call("trace", saved(tmp_path, tiny()))
    assert result.exit_code == 0
    head, *rows = result.stdout.splitlines()
    assert head.split() == ["tensor", "shape", "what", "it", "is"]
    assert rows[0].startswith("source ")
    assert re.search(r"^encoder_states +\(4, 2, 4\) +\(B, n, H\) +h_i = cell", result.stdout, re.M)
    assert result.stderr.startswith("gru, attention additive, copy n = 2, seed 0; B = ")


# run


def test_a_dry_run_lists_the_runs_and_touches_nothing(tmp_path: Path) -> None:
    scenario = tiny({"seed": [0, 1]}, training={"steps": 0})
    path, out = saved(tmp_path, scenario), tmp_path / "out"
    ids = [each.run_id for each in points(scenario)]
    name = "gru, attention additive, copy n = 2, seed"
    result = call("run", path, "--out", out, "--dry-run")
    assert result.stdout == f"{ids[0]}  missing  {name} 0\n{ids[1]}  missing  {name} 1\n"
    assert not out.exists()
    fill(out, scenario, leave=1)
    result = call("run", path, "--out", out, "--dry-run")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == f"{ids[0]}  stored   {name} 0\n{ids[1]}  missing  {name} 1\n"


@pytest.fixture
def one_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `run` draw one figure at its end instead of all, for the sake of time."""
    monkeypatch.setattr("gradlab.cli.FIGURE_NAMES", ("gradient_decay",))


def failing(lane: Lane, each: Point) -> Event:
    return Event("failed", each, "RuntimeError: no luck")


@pytest.mark.usefixtures("one_figure")
@pytest.mark.parametrize("kind", ["auto", "plain", "none"])
def test_failed_runs_exit_1_and_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(Lane, "compute", failing)
    out, scenario = tmp_path / "out", tiny({"seed": [0, 1]}, training={"steps": 0})
    fill(out, scenario, leave=1)
    words = ["--out", out, "--progress", kind, "--device", "cpu", "--jobs", 3]
    result = call("run", saved(tmp_path, scenario), *words)
    failure = "failed: gru, attention additive, copy n = 2, seed 1: RuntimeError: no luck"
    first, *_, last = lines = result.stderr.splitlines()
    assert first == (failure if kind == "none" else f"[1/1] {failure}")
    assert lines[1:3] == [
        f"0 runs computed in {out}, 1 already there; 0 diverged, 1 failed",
        f"1 of 2 runs missing from {out}",
    ]
    assert failure in lines[3:]
    assert last == "gradlab: 1 run failed; run again to retry"
    assert str(out / "figures" / "gradient_decay.png") in result.stdout.splitlines()
    assert result.exit_code == 1
    assert len(stored_runs(out)) == 1


@pytest.mark.usefixtures("one_figure")
def test_failed_runs_are_told_even_if_no_figure_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Lane, "compute", failing)
    out, scenario = tmp_path / "out", tiny({"seed": [0, 1]}, training={"steps": 0})
    fill(out, scenario, leave=1)
    (out / "figures").write_text("")
    words = ["run", saved(tmp_path, scenario), "--out", out, "--device", "cpu"]
    result = call(*words)
    place = out / "figures" / "gradient_decay.png"
    problem = f"{place}: cannot be written (File exists)"
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.splitlines()[-3:] == [
        problem,
        "failed: gru, attention additive, copy n = 2, seed 1: RuntimeError: no luck",
        "gradlab: 1 run failed; run again to retry",
    ]
    fill(out, scenario)
    result = call(*words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.splitlines()[-1] == f"gradlab: {problem}"


@pytest.mark.usefixtures("one_figure")
def test_a_damaged_run_is_computed_again(tmp_path: Path) -> None:
    out, scenario = tmp_path / "out", tiny({"seed": [0, 1]}, training={"steps": 0})
    ids = list(fill(out, scenario))
    (out / "runs" / ids[1] / "run.json").write_text("{}")
    words = ["run", saved(tmp_path, scenario), "--out", out, "--device", "cpu"]
    result = call(*words, "--dry-run")
    name = "gru, attention additive, copy n = 2, seed"
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == f"{ids[0]}  stored   {name} 0\n{ids[1]}  damaged  {name} 1\n"
    result = call(*words, "--progress", "none")
    assert result.exit_code == 0
    assert result.stderr.splitlines()[:2] == [
        "1 damaged run set aside and computed again",
        f"1 run computed in {out}, 1 already there; 0 diverged, 0 failed",
    ]
    assert (out / "runs" / f".damaged-{ids[1]}-1" / "run.json").read_text() == "{}"
    assert stored_runs(out) == set(ids)


def test_figures_that_were_not_recorded_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("hops", "gradient_map", "lyapunov", "gradient_decay")
    monkeypatch.setattr("gradlab.cli.FIGURE_NAMES", names)
    unasked = dict.fromkeys(("map", "hops", "jacobians"), False)
    out, scenario = tmp_path / "out", tiny(training={"steps": 0}, record=unasked)
    fill(out, scenario)
    result = call("run", saved(tmp_path, scenario), "--out", out, "--device", "cpu")
    assert result.exit_code == 0
    assert [line for line in result.stderr.splitlines() if "not drawn" in line] == [
        "not drawn, since not recorded: hops (record.hops), gradient_map (record.map), "
        "lyapunov (record.jacobians)"
    ]
    assert result.stdout == f"{out / 'figures' / 'gradient_decay.png'}\n"


@pytest.mark.usefixtures("one_figure")
def test_a_diverged_run_is_a_result_and_is_told(tmp_path: Path) -> None:
    training = {"lr": 1e38, "clip": 0.0, "steps": 3}
    out, scenario = tmp_path / "out", tiny(training=training)
    fill(out, scenario)
    result = call("run", saved(tmp_path, scenario), "--out", out, "--device", "cpu")
    assert result.exit_code == 0
    assert "1 of 1 run diverged: the loss is no longer finite" in result.stderr.splitlines()


def test_the_default_place_is_named_after_the_scenario(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Lane, "compute", failing)
    monkeypatch.chdir(tmp_path)
    saved(tmp_path, tiny())
    assert call("run", "mine.toml", "--device", "cpu").exit_code == 1
    assert sorted(path.name for path in (tmp_path / "runs" / "mine").iterdir()) == [
        "runs",
        "scenario.toml",
    ]


def test_another_scenario_in_out_is_exit_2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Lane, "compute", failing)
    out = tmp_path / "out"
    fill(out, tiny(training={"steps": 0}))
    words = ["run", saved(tmp_path, tiny()), "--out", out, "--device", "cpu"]
    result = call(*words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == (
        f"gradlab: {out}: holds another scenario (1 run, none of this sweep); "
        "choose another --out, or --force to keep both there\n"
    )
    assert call(*words, "--force").exit_code == 1
    assert len(stored_runs(out)) == 1


def test_a_device_that_is_not_there_is_exit_1(tmp_path: Path) -> None:
    result = call("run", "first_look", "--device", "cuda", "--out", tmp_path / "out")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == (
        "gradlab: device: expected a CUDA device, found none; use --device cpu\n"
    )


def test_an_interrupt_is_exit_130_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*arguments: object, **options: object) -> None:
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr("gradlab.lab.sweep.run_sweep", interrupt)
    result = call("run", "first_look", "--out", tmp_path / "out")
    assert (result.exit_code, result.stdout) == (130, "")
    assert result.stderr == ("gradlab: interrupted; finished runs are stored, run again to go on\n")


def test_one_run_that_is_done_and_one_that_lacks_memory(tmp_path: Path) -> None:
    """The whole way, in processes: model.hidden = 10**9 asks for more memory than there is."""
    sweep = {"model.hidden": [4, 10**9]}
    small = dict.fromkeys(("map", "hops", "jacobians"), False)
    model = {"attention": "none"}
    path = saved(tmp_path, tiny(sweep, training={"steps": 0}, model=model, record=small))
    done = process("run", path, "--out", tmp_path / "out", "--jobs", "1", "--device", "cpu")
    lines = done.stderr.decode().splitlines()
    assert done.returncode == 1
    assert "Traceback" not in done.stderr.decode()
    assert sum(line.startswith("failed: ") for line in lines) == 1
    assert lines[-1] == "gradlab: 1 run failed; run again to retry"
    assert len(stored_runs(tmp_path / "out")) == 1
    drawn = [Path(line) for line in done.stdout.decode().splitlines()]
    assert tmp_path / "out" / "figures" / "gradient_decay.png" in drawn
    assert all(path.stat().st_size > 1000 for path in drawn)


# plot


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("drawn")
    fill(out, tiny({"task.length": [2, 3]}, training={"steps": 0}))
    return out


def test_plot_draws_what_can_be_drawn_and_says_what_cannot(swept: Path) -> None:
    result = call("plot", swept)
    assert result.exit_code == 0
    paths = [Path(line) for line in result.stdout.splitlines()]
    assert {path.parent for path in paths} == {swept / "figures"}
    told = {line.partition(":")[0] for line in result.stderr.splitlines() if "not drawn" in line}
    assert told.isdisjoint(path.stem for path in paths)
    assert "training" in told


def test_plot_with_every_option(swept: Path, tmp_path: Path) -> None:
    to = tmp_path / "new" / "figures"
    words = ["--figure", "gradient_decay", "--figure", "path_shares", "--style", "paper"]
    formats = [word for name in ("svg", "png", "pdf") for word in ("--format", name)]
    result = call("plot", swept, *words, *formats, "--lang", "ko", "--to", to)
    assert result.exit_code == 0
    expected = [
        to / f"{name}.{ending}"
        for name in ("gradient_decay", "path_shares")
        for ending in ("svg", "png", "pdf")
    ]
    assert [Path(line) for line in result.stdout.splitlines()] == expected
    assert all(path.stat().st_size > 1000 for path in expected)


def test_a_figure_asked_for_that_cannot_be_drawn_is_exit_1(swept: Path) -> None:
    result = call("plot", swept, "--figure", "training")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("gradlab: ")


@pytest.mark.parametrize("stored", [True, False])
@pytest.mark.parametrize(
    ("figure", "table", "key"),
    [
        ("hops", "hops", "hops"),
        ("gradient_map", "maps", "map"),
        ("lyapunov", "lyapunov", "jacobians"),
    ],
)
def test_a_figure_that_was_not_recorded_says_what_to_set(
    tmp_path: Path, figure: str, table: str, key: str, stored: bool
) -> None:
    scenario = tiny(training={"steps": 0}, record={key: False})
    fill(tmp_path, scenario, leave=0 if stored else 1)
    result = call("plot", tmp_path, "--figure", figure)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.splitlines()[-1] == (
        f"gradlab: {figure} needs rows in the table {table}, found none: set record.{key} = true "
        "in the scenario and run it" + ("" if stored else "; no run of this sweep is finished")
    )


def test_plot_of_nothing_stored_is_exit_1(tmp_path: Path) -> None:
    prepare(tmp_path, tiny())
    result = call("plot", tmp_path)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.splitlines()[0] == f"1 of 1 run missing from {tmp_path}"
    assert result.stderr.splitlines()[-1] == f"gradlab: {tmp_path}: no figure could be drawn"


def test_plot_counts_runs_of_other_sweeps(tmp_path: Path) -> None:
    fill(tmp_path, tiny({"seed": [0, 1]}, training={"steps": 0}))
    prepare(tmp_path, tiny(training={"steps": 0}))
    result = call("plot", tmp_path, "--figure", "gradient_decay")
    assert f"1 run of other sweeps in {tmp_path}, not drawn" in result.stderr.splitlines()


def test_mistakes_in_a_call_of_plot_are_exit_2(swept: Path, tmp_path: Path) -> None:
    result = call("plot", tmp_path / "none")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == (
        f"gradlab: {tmp_path / 'none'}: expected the directory of a sweep, "
        "found no such directory\n"
    )
    result = call("plot", __file__)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == (
        f"gradlab: {__file__}: expected the directory of a sweep, found a file\n"
    )
    result = call("plot", swept, "--figure", "decay")
    assert result.exit_code == 2
    assert "'decay' is not one of 'gradient_decay'" in result.stderr
    (tmp_path / "file").write_text("")
    words = ["--figure", "gradient_decay", "--to", tmp_path / "file" / "below"]
    result = call("plot", swept, *words)
    assert (result.exit_code, result.stdout) == (2, "")
    place = tmp_path / "file" / "below" / "gradient_decay.png"
    assert result.stderr.splitlines()[-1] == (
        f"gradlab: {place}: cannot be written (Not a directory)"
    )


def test_a_damaged_run_is_one_message(tmp_path: Path) -> None:
    fill(tmp_path, tiny(training={"steps": 0}))
    (path,) = tmp_path.rglob("run.json")
    path.write_text("{")
    result = call("plot", tmp_path)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"gradlab: {path}: cannot be read (")
    assert result.stderr.endswith(f"; delete the folder {path.parent} and run the sweep again\n")


def test_a_column_of_another_type_is_one_message(tmp_path: Path) -> None:
    fill(tmp_path, tiny(training={"steps": 0}))
    (path,) = tmp_path.rglob("gradients.parquet")
    pd.read_parquet(path).assign(norm_mean="x").to_parquet(path)
    result = call("plot", tmp_path)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == (
        f"gradlab: {path}: cannot be read (column norm_mean: expected numbers, found text); "
        f"delete the folder {path.parent} and run the sweep again\n"
    )


# Terminals and pipes


@pytest.mark.parametrize("encoding", ["cp1252", "ascii", "utf-8"])
def test_any_terminal_shows_any_title(tmp_path: Path, encoding: str) -> None:
    title = "기울기 \N{CHART WITH DOWNWARDS TREND}"
    path = saved(tmp_path, tiny())
    done = process("show", path, "--set", f'title="{title}"', PYTHONIOENCODING=encoding)
    assert (done.returncode, done.stderr) == (0, b"")
    assert tomllib.loads(done.stdout.decode())["title"] == title


def test_any_terminal_shows_messages_with_any_path(tmp_path: Path) -> None:
    fill(tmp_path / "결과", tiny(training={"steps": 0}))
    words = ["--figure", "gradient_decay", "--to", tmp_path / "그림"]
    done = process("plot", tmp_path / "결과", *words, PYTHONIOENCODING="cp1252")
    assert done.returncode == 0
    assert (tmp_path / "그림" / "gradient_decay.png").exists()
    done = process("show", tmp_path / "없음", PYTHONIOENCODING="ascii")
    assert done.returncode == 2
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("reader", ["head -n 1", "true"])
@pytest.mark.parametrize("words", ["show first_look", "scenarios", "--help"])
def test_a_reader_that_leaves_is_no_error(words: str, reader: str) -> None:
    code = "from gradlab.cli import main; main()"
    pipeline = f"{sys.executable} -c '{code}' {words} | {reader}"
    done = subprocess.run(["sh", "-c", pipeline], capture_output=True, check=True)
    assert done.stderr == b""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_one_line() -> None:
    code = "from gradlab.cli import main; main()"
    command = f"{sys.executable} -c '{code}' scenarios > /dev/full"
    done = subprocess.run(["sh", "-c", command], capture_output=True, check=False)
    assert done.returncode == 1
    assert done.stderr.decode() == "gradlab: [Errno 28] No space left on device\n"
