"""Run folders: whole or not at all, with the promised files, columns, units and names."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.numpy import load_file
from tiny import fill, point, tiny

from gradlab.errors import StoreError
from gradlab.grid import points
from gradlab.lab import store
from gradlab.lab.run import Run, run_point
from gradlab.lab.store import prepare, run_folder, stored_runs, write_run
from gradlab.lab.tables import SCHEMA_VERSION, TABLES

POINT = point()


@pytest.fixture(scope="module")
def run() -> Run:
    return run_point(POINT)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, run: Run) -> Path:
    out = tmp_path_factory.mktemp("whole")
    write_run(out, POINT.run_id, run)
    return run_folder(out, POINT.run_id)


def visible(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def refuse_constant(word: str) -> None:
    raise AssertionError(f"{word} is not JSON")


def test_the_files_of_a_run_and_nothing_pickled(folder: Path) -> None:
    tables = [f"{name}.parquet" for name in TABLES]
    assert visible(folder) == sorted(
        [*tables, "model.safetensors", "probe.safetensors", "run.json"]
    )
    assert folder.stat().st_mode & 0o777 == 0o755


def test_run_json_is_strict_json_and_complete(folder: Path) -> None:
    text = (folder / "run.json").read_text(encoding="utf-8")
    record = json.loads(text, parse_constant=refuse_constant)
    assert record["config"] == json.loads(json.dumps(POINT.config))
    assert record["schema_version"] == SCHEMA_VERSION
    assert (record["status"], record["seed"]) == ("done", 0)
    assert (record["device"], record["threads"]) == ("cpu", 1)
    assert record["seconds"] > 0
    assert set(record["versions"]) >= {"gradlab", "python", "torch", "numpy"}


@pytest.mark.parametrize("name", TABLES)
def test_every_table_has_exactly_its_columns_each_with_a_unit(folder: Path, name: str) -> None:
    schema = pq.read_schema(folder / f"{name}.parquet")
    units = {field.name: field.metadata[b"unit"].decode() for field in schema}
    assert list(units.items()) == list(TABLES[name].items())
    assert all(units.values())
    assert schema.metadata[b"schema_version"] == str(SCHEMA_VERSION).encode()
    assert schema.metadata[b"loss_reduction"] == b"mean"


@pytest.mark.parametrize(
    ("model", "absent"),
    [
        ({"attention": "none"}, b"keys,values"),
        ({"bridge": "none"}, b"bridge,bridge.query"),
        ({"timing": "luong"}, b"keys.query,values.query"),
        ({}, b""),
    ],
)
def test_structural_zeros_are_noted_in_the_schema(
    tmp_path: Path, model: dict[str, Any], absent: bytes
) -> None:
    each = point(model=model, training={"steps": 0})
    write_run(tmp_path, each.run_id, run_point(each))
    schema = pq.read_schema(run_folder(tmp_path, each.run_id) / "gradients.parquet")
    assert schema.metadata[b"structural_zeros"] == absent
    without = model.get("attention") == "none"
    assert schema.metadata[b"query_paths"].startswith(b"no attention" if without else b"split")


RECURRENT = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
ALWAYS = {
    *(f"{side}.{name}" for side in ("encoder", "decoder") for name in RECURRENT),
    *("source_embedding.weight", "target_embedding.weight", "output.weight", "output.bias"),
}
SCORED = {f"attention.{part}.weight" for part in ("query", "key", "energy")}
COMBINED = {"combine.weight", "combine.bias"}


@pytest.mark.parametrize(
    ("model", "names"),
    [
        ({"attention": "none"}, ALWAYS),
        ({"attention": "dot"}, ALWAYS),
        ({"attention": "additive"}, ALWAYS | SCORED),
        ({"attention": "additive", "timing": "luong"}, ALWAYS | SCORED | COMBINED),
    ],
)
def test_weights_have_the_promised_names(
    tmp_path: Path, model: dict[str, Any], names: set[str]
) -> None:
    each = point(model=model, training={"steps": 0})
    write_run(tmp_path, each.run_id, run_point(each))
    assert set(load_file(run_folder(tmp_path, each.run_id) / "model.safetensors")) == names


@pytest.mark.parametrize(
    ("cell", "twin"), [("gru", torch.nn.GRU), ("lstm", torch.nn.LSTM), ("rnn", torch.nn.RNN)]
)
def test_weights_load_into_torchs_own_layers(tmp_path: Path, cell: str, twin: Any) -> None:
    each = point(model={"cell": cell}, training={"steps": 1})
    write_run(tmp_path, each.run_id, run_point(each))
    weights = load_file(run_folder(tmp_path, each.run_id) / "model.safetensors")
    encoder = {
        name.removeprefix("encoder."): torch.from_numpy(weight)
        for name, weight in weights.items()
        if name.startswith("encoder.")
    }
    twin(3, 4).load_state_dict(encoder, strict=True)
    assert {weight.dtype for weight in weights.values()} == {np.dtype("float32")}


def test_probes_are_int64_by_length(tmp_path: Path) -> None:
    each = point(task={"delay": 1}, record={"lengths": [2, 3]}, training={"steps": 0})
    write_run(tmp_path, each.run_id, run_point(each))
    probes = load_file(run_folder(tmp_path, each.run_id) / "probe.safetensors")
    shapes = {name: array.shape for name, array in probes.items()}
    assert shapes == {
        "2.source": (4, 3),
        "2.target": (4, 2),
        "3.source": (4, 4),
        "3.target": (4, 3),
    }
    assert {array.dtype for array in probes.values()} == {np.dtype("int64")}


def test_a_diverged_run_is_stored_as_such(tmp_path: Path) -> None:
    each = point(training={"lr": 1e38, "clip": 0.0, "steps": 3})
    write_run(tmp_path, each.run_id, run_point(each))
    text = (run_folder(tmp_path, each.run_id) / "run.json").read_text()
    assert json.loads(text, parse_constant=refuse_constant)["status"] == "diverged"


@pytest.mark.parametrize("step", ["_write_table", "save_file", "_flush"])
def test_a_writer_that_fails_midway_leaves_nothing(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    real, calls = getattr(store, step), iter((False, True))

    def second_fails(*arguments: Any) -> None:
        if next(calls):
            raise OSError(28, "No space left on device")
        real(*arguments)

    monkeypatch.setattr(store, step, second_fails)
    with pytest.raises(OSError, match="No space left"):
        write_run(tmp_path, POINT.run_id, run)
    assert visible(tmp_path / "runs") == []
    assert stored_runs(tmp_path) == set()


def test_what_a_killed_writer_left_is_no_run_and_goes_after_an_hour(tmp_path: Path) -> None:
    fill(tmp_path, tiny(training={"steps": 0}))
    before = stored_runs(tmp_path)
    young, old = (tmp_path / "runs" / f".0123456789abcdef-{age}" for age in ("young", "old"))
    for draft in (young, old):
        draft.mkdir()
        (draft / "run.json").write_text("{}")
    os.utime(old, (time.time() - 7200,) * 2)
    assert stored_runs(tmp_path) == before
    prepare(tmp_path, tiny(training={"steps": 0}))
    assert (young.exists(), old.exists()) == (True, False)
    assert stored_runs(tmp_path) == before


def test_what_was_set_aside_is_never_removed(tmp_path: Path) -> None:
    aside = tmp_path / "runs" / ".damaged-0123456789abcdef-1"
    aside.mkdir(parents=True)
    (aside / "run.json").write_text("{}")
    os.utime(aside, (time.time() - 7200,) * 2)
    prepare(tmp_path, tiny(), force=True)
    assert visible(aside) == ["run.json"]
    assert stored_runs(tmp_path) == set()


def test_many_writers_of_one_run_leave_one_whole_folder(tmp_path: Path, run: Run) -> None:
    start, errors = threading.Barrier(6), []

    def write() -> None:
        start.wait()
        try:
            write_run(tmp_path, POINT.run_id, run)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=write) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert visible(tmp_path / "runs") == [POINT.run_id]
    assert len(visible(run_folder(tmp_path, POINT.run_id))) == len(TABLES) + 3


def test_a_second_writer_changes_nothing(tmp_path: Path, run: Run) -> None:
    write_run(tmp_path, POINT.run_id, run)
    place = run_folder(tmp_path, POINT.run_id)
    before = {path: path.stat().st_ino for path in place.iterdir()}
    write_run(tmp_path, POINT.run_id, run)
    assert {path: path.stat().st_ino for path in place.iterdir()} == before
    assert visible(tmp_path / "runs") == [POINT.run_id]


def test_a_folder_without_run_json_makes_way(tmp_path: Path, run: Run) -> None:
    place = run_folder(tmp_path, POINT.run_id)
    place.mkdir(parents=True)
    (place / "training.parquet").write_text("half")
    assert stored_runs(tmp_path) == set()
    write_run(tmp_path, POINT.run_id, run)
    assert stored_runs(tmp_path) == {POINT.run_id}
    assert pq.read_schema(place / "training.parquet").names == list(TABLES["training"])


def test_a_name_with_a_colon_is_a_place_like_any_other(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_run(Path("sweep:1"), POINT.run_id, run)
    assert len(store.read_table(run_folder(Path("sweep:1"), POINT.run_id), "training")) == 3


def everything(out: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in out.rglob("*") if path.is_file()}


def test_another_scenario_is_refused_unless_forced(tmp_path: Path) -> None:
    first, second = tiny(training={"steps": 0}), tiny(training={"steps": 1})
    fill(tmp_path, first)
    before = everything(tmp_path)
    with pytest.raises(StoreError) as error:
        prepare(tmp_path, second)
    assert str(error.value) == (
        f"{tmp_path}: holds another scenario (1 run, none of this sweep); choose another --out, "
        "or --force to keep both there"
    )
    assert everything(tmp_path) == before
    assert prepare(tmp_path, second, force=True) == set()
    assert before.items() - everything(tmp_path).items() == {
        (str(tmp_path / "scenario.toml"), before[str(tmp_path / "scenario.toml")])
    }


def test_an_extended_sweep_keeps_what_is_there(tmp_path: Path) -> None:
    fill(tmp_path, tiny({"seed": [0, 1]}, training={"steps": 0}))
    more = tiny({"seed": [1, 2]}, training={"steps": 0})
    assert prepare(tmp_path, more) == {points(more)[0].run_id}


def test_other_files_are_refused_unless_forced(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("text")
    with pytest.raises(StoreError) as error:
        prepare(tmp_path, tiny())
    assert str(error.value) == (
        f"{tmp_path}: expected a new, empty or earlier sweep's directory, found other files; "
        "choose another --out, or --force to write beside them"
    )
    assert visible(tmp_path) == ["thesis.tex"]
    assert prepare(tmp_path, tiny(), force=True) == set()
    assert visible(tmp_path) == ["runs", "scenario.toml", "thesis.tex"]


def test_a_sweep_that_stored_nothing_may_be_replaced(tmp_path: Path) -> None:
    prepare(tmp_path, tiny())
    assert prepare(tmp_path, tiny(training={"steps": 0})) == set()


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("file", "expected a directory, found a file; choose another --out"),
        ("file/below", "cannot be written (Not a directory); choose another --out"),
        ("n" * 300, "cannot be written (File name too long); choose another --out"),
    ],
)
def test_places_that_cannot_be_written(
    tmp_path: Path, name: str, message: str, force: bool
) -> None:
    (tmp_path / "file").write_text("mine")
    assert stored_runs(tmp_path / name) == set()
    with pytest.raises(StoreError) as error:
        prepare(tmp_path / name, tiny(), force=force)
    assert str(error.value) == f"{tmp_path / name}: {message}"
    assert everything(tmp_path) == {str(tmp_path / "file"): b"mine"}


def test_a_failed_replacement_keeps_the_old_scenario(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(tmp_path, tiny())
    before = everything(tmp_path)

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError) as error:
        prepare(tmp_path, tiny(training={"steps": 0}))
    assert str(error.value).endswith(
        "cannot be written (No space left on device); choose another --out"
    )
    assert everything(tmp_path) == before
