"""Tables read back: config columns joined, labels of cases, what is missing, what is damaged."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest
from tiny import CASES, fill, tiny

from gradlab.errors import ScenarioError, StoreError
from gradlab.lab.results import Results, open_results
from gradlab.lab.run import Run
from gradlab.lab.store import prepare, run_folder, stored_runs
from gradlab.lab.tables import ON_REQUEST, TABLES
from gradlab.schema import KEYS, Scenario

SWEEP = {"cases": CASES, "seed": [0, 1]}
CONFIG = ["seed", *KEYS]


@pytest.fixture(scope="module")
def scenario() -> Scenario:
    return tiny(SWEEP, training={"steps": 1})


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sweep")


@pytest.fixture(scope="module")
def computed(out: Path, scenario: Scenario) -> dict[str, Run]:
    return fill(out, scenario, leave=1)


@pytest.fixture
def results(out: Path, computed: dict[str, Run]) -> Results:
    return open_results(out)


def test_runs_has_a_row_a_point(results: Results) -> None:
    runs = results.runs
    assert list(runs) == ["run_id", "case", "status", "seconds", *CONFIG]
    assert list(zip(runs["case"], runs["seed"], runs["status"], strict=True)) == [
        ("vanilla", 0, "done"),
        ("vanilla", 1, "done"),
        ("attention", 0, "done"),
        ("attention", 1, "missing"),
        ("vanilla again", 0, "done"),
        ("vanilla again", 1, "done"),
    ]
    assert runs["seconds"].isna().tolist() == (runs["status"] == "missing").tolist()
    assert runs["record.lengths"].tolist() == [(2,)] * 6


def test_runs_that_cases_share_are_counted_once(results: Results) -> None:
    assert [results.count(status) for status in ("done", "missing", "diverged")] == [3, 1, 0]
    assert results.others == 0


def test_a_key_without_effect_is_null(results: Results) -> None:
    training = results.training
    vanilla = training["case"].isin(["vanilla", "vanilla again"])
    assert training.loc[vanilla, "model.timing"].isna().all()
    assert (training.loc[~vanilla, "model.timing"] == "bahdanau").all()
    assert training["model.window"].isna().all()
    assert training["model.gain"].isna().all()


@pytest.mark.parametrize("name", TABLES)
def test_a_table_is_what_the_runs_said_with_the_config_joined_on(
    results: Results, computed: dict[str, Run], name: str
) -> None:
    table = getattr(results, name)
    joined = ["case", *CONFIG] if name == "training" else ["case", "status", *CONFIG]
    assert list(table) == [*TABLES[name], "run_id", *joined]
    assert list(table.index) == list(range(len(table)))
    for (run_id, _), rows in table.groupby(["run_id", "case"]):
        expected = computed[run_id].tables[name][list(TABLES[name])]
        found = rows[list(TABLES[name])].reset_index(drop=True)
        pd.testing.assert_frame_equal(found, expected, check_exact=True, check_dtype=False)
    with_rows = {run_id for run_id, run in computed.items() if len(run.tables[name])}
    assert set(table["run_id"]) == with_rows


def test_a_table_that_no_run_was_asked_for_is_empty(tmp_path: Path) -> None:
    unasked = dict.fromkeys(("map", "hops", "jacobians"), False)
    fill(tmp_path, tiny(training={"steps": 0}, record=unasked))
    results = open_results(tmp_path)
    for name in ON_REQUEST:
        assert list(getattr(results, name))[: len(TABLES[name])] == list(TABLES[name])
        assert len(getattr(results, name)) == 0


def test_both_cases_of_a_shared_run_have_its_rows(results: Results) -> None:
    case = results.gradients["case"]
    first, again = (results.gradients[case == label] for label in ("vanilla", "vanilla again"))
    assert set(first["run_id"]) == set(again["run_id"])
    assert len(first) == len(again) > 0


def test_runs_of_another_scenario_are_counted_and_left_out(tmp_path: Path) -> None:
    fill(tmp_path, tiny({"seed": [0, 1, 2]}, training={"steps": 0}))
    prepare(tmp_path, tiny({"seed": [2]}, training={"steps": 0}))
    results = open_results(tmp_path)
    assert results.others == 2
    assert set(results.gradients["seed"]) == {2}


def test_nothing_stored_gives_empty_tables_with_their_columns(tmp_path: Path) -> None:
    prepare(tmp_path, tiny(SWEEP))
    results = open_results(tmp_path)
    assert set(results.runs["status"]) == {"missing"}
    assert results.count("missing") == 4
    for name, columns in TABLES.items():
        table = getattr(results, name)
        assert len(table) == 0
        assert list(table)[: len(columns)] == list(columns)
        assert {"run_id", "case", *CONFIG} <= set(table)


def test_no_attention_anywhere_gives_an_empty_table_with_its_columns(tmp_path: Path) -> None:
    fill(tmp_path, tiny(model={"attention": "none"}, training={"steps": 0}))
    attention = open_results(tmp_path).attention
    assert len(attention) == 0
    assert list(attention)[: len(TABLES["attention"])] == list(TABLES["attention"])


def test_a_directory_that_is_no_sweep(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place, found in [
        (tmp_path / "none", "found no such directory"),
        (tmp_path / "file", "found a file"),
        (tmp_path, "found no scenario.toml in it"),
    ]:
        with pytest.raises(StoreError) as error:
            open_results(place)
        assert str(error.value) == f"{place}: expected the directory of a sweep, {found}"
    with pytest.raises(StoreError, match=r"cannot be read \(File name too long\)$"):
        open_results(tmp_path / ("n" * 300))


def test_a_damaged_scenario_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "scenario.toml").write_text('title = "t"\n[task]\nname = "cop"\n')
    with pytest.raises(ScenarioError) as error:
        open_results(tmp_path)
    assert str(error.value).startswith(f"{tmp_path / 'scenario.toml'}: 1 mistake\n  task.name: ")


@pytest.fixture
def one(tmp_path: Path) -> Path:
    """The folder of the only run of a sweep."""
    fill(tmp_path, tiny(training={"steps": 0}))
    (run_id,) = stored_runs(tmp_path)
    return run_folder(tmp_path, run_id)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", r"Expecting value: .*"),
        ('{"schema_version": 1', r"Expecting .*"),
        ("null", r".*not subscriptable"),
        ("[1]", r"list indices must be .*"),
        ('{"schema_version": 1}', "no 'status'"),
        ("\x80".encode("latin-1"), r".*can't decode byte 0x80.*"),
    ],
)
def test_a_damaged_run_json(one: Path, text: str | bytes, reason: str) -> None:
    path = one / "run.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(StoreError) as error:
        _ = open_results(one.parents[1]).training
    rest = f"; delete the folder {one} and run the sweep again"
    pattern = rf"{re.escape(str(path))}: cannot be read \({reason}\){re.escape(rest)}"
    assert re.fullmatch(pattern, str(error.value))


def test_another_schema_version(one: Path) -> None:
    (one / "run.json").write_text('{"schema_version": 0, "status": "done", "seconds": 1}')
    with pytest.raises(StoreError) as error:
        _ = open_results(one.parents[1]).runs
    assert str(error.value) == (
        f"{one}: expected schema version 1, found 0; run the sweep again into a new directory"
    )


@pytest.mark.parametrize("kept", [0, 3, 200])
def test_a_truncated_table(one: Path, kept: int) -> None:
    path = one / "gradients.parquet"
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(StoreError) as error:
        _ = open_results(one.parents[1]).gradients
    message = str(error.value)
    assert message.startswith(f"{path}: cannot be read (")
    assert message.endswith(f"); delete the folder {one} and run the sweep again")
    assert "\n" not in message


def test_a_table_that_is_gone_or_lacks_a_column(one: Path) -> None:
    path, rest = one / "training.parquet", f"; delete the folder {one} and run the sweep again"
    table = pq.read_table(path)
    pq.write_table(table.drop_columns(["loss"]), path)
    with pytest.raises(StoreError) as error:
        _ = open_results(one.parents[1]).training
    assert str(error.value) == f"{path}: cannot be read (no column loss){rest}"
    path.unlink()
    with pytest.raises(StoreError) as error:
        _ = open_results(one.parents[1]).training
    assert str(error.value) == f"{path}: cannot be read (No such file or directory){rest}"


@pytest.mark.parametrize(
    ("name", "column", "values", "reason"),
    [
        ("gradients", "norm_mean", "x", "expected numbers, found text"),
        ("gradients", "path", 1.5, "expected text, found numbers"),
        ("training", "loss", True, "expected numbers, found bool"),
    ],
)
def test_a_column_of_another_type(
    one: Path, name: str, column: str, values: object, reason: str
) -> None:
    path = one / f"{name}.parquet"
    table = pq.read_table(path).to_pandas()
    table.assign(**{column: values}).to_parquet(path)
    with pytest.raises(StoreError) as error:
        getattr(open_results(one.parents[1]), name)
    assert str(error.value) == (
        f"{path}: cannot be read (column {column}: {reason}); delete the folder {one} and run "
        "the sweep again"
    )


def test_a_column_without_any_value_is_read(one: Path) -> None:
    path = one / "gradients.parquet"
    pq.read_table(path).to_pandas().assign(share=None).to_parquet(path)
    assert open_results(one.parents[1]).gradients["share"].isna().all()


def test_a_table_whose_bytes_were_changed(one: Path) -> None:
    path = one / "gradients.parquet"
    content = bytearray(path.read_bytes())
    content[-40:-8] = b"\xff" * 32
    path.write_bytes(content)
    with pytest.raises(StoreError, match="cannot be read"):
        _ = open_results(one.parents[1]).gradients
