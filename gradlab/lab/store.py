"""A sweep on disk: run folders written whole, Parquet tables, safetensors weights.

    OUT/scenario.toml             the resolved scenario
    OUT/runs/<run_id>/            run.json, one .parquet a table, model and probe .safetensors

Nothing here needs torch, and nothing is pickled. A run folder is written beside its place, flushed
and renamed in, so a folder that has its name is complete.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from safetensors.numpy import save_file

from gradlab.errors import StoreError
from gradlab.grid import Point, points
from gradlab.lab.tables import SCHEMA_VERSION, TABLES
from gradlab.scenario import load_scenario, to_toml
from gradlab.schema import Scenario

if TYPE_CHECKING:
    from gradlab.lab.run import Run

SCENARIO_FILE = "scenario.toml"


def run_folder(out: Path, run_id: str) -> Path:
    """Return where the run with this id lies in the sweep at `out`."""
    return out / "runs" / run_id


def stored_runs(out: Path) -> set[str]:
    """Return the ids of the complete runs in `out`."""
    found = (out / "runs").glob("*/run.json")
    return {path.parent.name for path in found if not path.parent.name.startswith(".")}


def write_run(out: Path, run_id: str, run: Run) -> None:
    """Store a run whole: written beside its place, flushed, renamed in.

    If another writer stored the same run first, theirs stays and this one is dropped: both hold the
    same numbers. Raises OSError if the place cannot be written.
    """
    place = run_folder(out, run_id)
    place.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{run_id}-", dir=place.parent))
    try:
        for name, frame in run.tables.items():
            _write_table(draft / f"{name}.parquet", frame, TABLES[name], run.record)
        save_file(_contiguous(run.weights), draft / "model.safetensors")
        save_file(_contiguous(run.probes), draft / "probe.safetensors")
        text = json.dumps(run.record, indent=2, allow_nan=False)
        (draft / "run.json").write_text(text + "\n", encoding="utf-8")
        draft.chmod(0o755)
        for path in [*draft.iterdir(), draft]:
            _flush(path)
        try:
            draft.rename(place)
        except OSError:
            if not (place / "run.json").exists():
                raise
        _flush(place.parent)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _contiguous(arrays: Mapping[str, Any]) -> dict[str, Any]:
    return {name: np.ascontiguousarray(array) for name, array in arrays.items()}


def _write_table(
    path: Path, frame: pd.DataFrame, columns: dict[str, str], record: dict[str, Any]
) -> None:
    table = pa.Table.from_pandas(frame[list(columns)], preserve_index=False)
    fields = [
        table.schema.field(name).with_metadata({"unit": unit}) for name, unit in columns.items()
    ]
    notes = {
        "schema_version": str(SCHEMA_VERSION),
        "loss_reduction": record["config"]["record"]["loss"],
        "structural_zeros": ",".join(record["structural_zeros"]),
    }
    pq.write_table(table.cast(pa.schema(fields, metadata=notes)), path)


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def prepare(out: Path, scenario: Scenario, *, force: bool = False) -> set[str]:
    """Make `out` ready for the sweep; return the ids of runs that are already there.

    Raises StoreError, having changed nothing, if `out` cannot be written, is not a sweep, or holds
    another scenario (none of its runs belongs to this one). `force` lifts the last two.
    """
    stored = stored_runs(out)
    wanted = {point.run_id for point in points(scenario)}
    if not force:
        if stored and not stored & wanted:
            raise StoreError(
                f"{out}: holds another scenario ({len(stored)} runs, none of this sweep); choose "
                "another --out, or --force to keep both there"
            )
        if not stored and not (out / SCENARIO_FILE).exists() and _occupied(out):
            raise StoreError(
                f"{out}: expected a new, empty or earlier sweep's directory, found other files; "
                "choose another --out, or --force to write beside them"
            )
    try:
        (out / "runs").mkdir(parents=True, exist_ok=True)
        _replace(out / SCENARIO_FILE, to_toml(scenario))
    except OSError as error:
        raise StoreError(
            f"{out}: cannot be written ({error.strerror}); choose another --out"
        ) from error
    return stored & wanted


def _occupied(out: Path) -> bool:
    return out.is_file() or (out.is_dir() and any(out.iterdir()))


def _replace(path: Path, text: str) -> None:
    handle, draft = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    Path(draft).chmod(0o644)
    Path(draft).replace(path)


def open_results(out: str | Path) -> Results:
    """Open the sweep at `out`.

    Raises StoreError if `out` is not a sweep, ScenarioError if its scenario.toml is not valid.
    """
    out = Path(out)
    if not (out / SCENARIO_FILE).is_file():
        found = "no such directory" if not out.exists() else f"no {SCENARIO_FILE} in it"
        raise StoreError(f"{out}: expected the directory of a sweep, found {found}")
    return Results(out, load_scenario(out / SCENARIO_FILE))


class Results:
    """The tables of a sweep: the points of OUT/scenario.toml, whichever of them are stored.

    Every table is a pandas DataFrame with `run_id`, `case`, `seed` and the dotted config columns
    joined on; a key without effect at a point is null there. `lab.tables` has columns and units.
    """

    def __init__(self, out: Path, scenario: Scenario) -> None:
        self.out, self.scenario = out, scenario
        self.points: tuple[Point, ...] = points(scenario)

    @cached_property
    def runs(self) -> pd.DataFrame:
        """One row a point: run_id, case, status (done, diverged, missing), seconds, config."""
        stored = stored_runs(self.out)
        rows = []
        for point in self.points:
            record: dict[str, Any] = {"status": "missing", "seconds": None}
            if point.run_id in stored:
                record = _read_record(run_folder(self.out, point.run_id))
            rows.append(
                {
                    "run_id": point.run_id,
                    "case": point.label,
                    "status": record["status"],
                    "seconds": record["seconds"],
                    **_columns(point),
                }
            )
        return pd.DataFrame(rows)

    @property
    def others(self) -> int:
        """How many stored runs in this directory do not belong to the scenario."""
        return len(stored_runs(self.out) - {point.run_id for point in self.points})

    @cached_property
    def training(self) -> pd.DataFrame:
        """Loss and accuracy by training step."""
        return self._table("training")

    @cached_property
    def gradients(self) -> pd.DataFrame:
        """Gradient norms and shares by source timestep and path."""
        return self._table("gradients")

    @cached_property
    def positions(self) -> pd.DataFrame:
        """Accuracy by target timestep."""
        return self._table("positions")

    @cached_property
    def attention(self) -> pd.DataFrame:
        """Attention weights of a few probe examples."""
        return self._table("attention")

    def _table(self, name: str) -> pd.DataFrame:
        config = self.runs.drop(columns="seconds")
        frames = []
        for run_id in config.loc[config["status"] != "missing", "run_id"].unique():
            frame = _read_table(run_folder(self.out, run_id) / f"{name}.parquet")
            frames.append(frame.assign(run_id=run_id))
        if not frames:
            frames = [pd.DataFrame(columns=[*TABLES[name], "run_id"])]
        table = pd.concat([frame for frame in frames if len(frame)] or frames[:1])
        kept = config.drop(columns="status") if "status" in table else config
        return table.merge(kept, on="run_id", how="left", validate="many_to_many")


def _columns(point: Point) -> dict[str, Any]:
    config = point.config
    columns = {
        f"{table}.{key}": tuple(value) if isinstance(value, list) else value
        for table, values in config.items()
        if isinstance(values, dict)
        for key, value in values.items()
    }
    return {"seed": point.seed, **columns}


def _read_record(folder: Path) -> dict[str, Any]:
    try:
        record: dict[str, Any] = json.loads((folder / "run.json").read_text(encoding="utf-8"))
        version = record["schema_version"]
    except (OSError, ValueError, KeyError) as error:
        raise _damaged(folder / "run.json", error) from error
    if version != SCHEMA_VERSION:
        raise StoreError(
            f"{folder}: expected schema version {SCHEMA_VERSION}, found {version}; run the sweep "
            "again into a new directory"
        )
    return record


def _read_table(path: Path) -> pd.DataFrame:
    try:
        return pq.read_table(path).to_pandas()
    except (OSError, pa.ArrowException) as error:
        raise _damaged(path, error) from error


def _damaged(path: Path, error: Exception) -> StoreError:
    return StoreError(
        f"{path}: cannot be read ({error}); delete the folder {path.parent} and run the sweep again"
    )
