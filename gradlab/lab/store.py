"""A sweep on disk: run folders written whole, Parquet tables, safetensors weights.

    OUT/scenario.toml             the resolved scenario
    OUT/runs/<run_id>/            run.json, one .parquet a table, model and probe .safetensors

Nothing here needs torch, and nothing is pickled. A run folder is written beside its place, flushed
and renamed in, so a folder that has its name is complete.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from safetensors.numpy import save_file

from gradlab.errors import StoreError
from gradlab.grid import points
from gradlab.lab.tables import SCHEMA_VERSION, TABLES
from gradlab.scenario import to_toml
from gradlab.schema import Scenario

if TYPE_CHECKING:
    from gradlab.lab.run import Run

SCENARIO_FILE = "scenario.toml"
DRAFT_LIFETIME = 3600.0  # seconds after which an unfinished run folder is debris
ASIDE = ".damaged-"  # what the folder of a damaged run is called once it is set aside
TEXT_COLUMNS = frozenset({"state", "direction", "path", "status"})  # all others are numbers


class DamagedRunError(StoreError):
    """A file of a stored run that cannot be read."""


def run_folder(out: Path, run_id: str) -> Path:
    """Return where the run with this id lies in the sweep at `out`."""
    return out / "runs" / run_id


def stored_runs(out: Path) -> set[str]:
    """Return the ids of the complete runs in `out`."""
    try:
        found = [path.parent.name for path in (out / "runs").glob("*/run.json")]
    except OSError:  # no such place, and no place for one
        return set()
    return {name for name in found if not name.startswith(".")}


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
        _move_in(draft, place)
        _flush(place.parent)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _move_in(draft: Path, place: Path) -> None:
    """Give a run folder its name, unless a whole one has it; what is left of one makes way."""
    for retry in (True, False):
        try:
            draft.rename(place)
        except OSError:
            if (place / "run.json").exists():
                return
            if not retry:
                raise
            shutil.rmtree(place, ignore_errors=True)
        else:
            return


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
        "query_paths": record["query_paths"],
    }
    with path.open("wb") as file:  # given a path, Arrow reads "a:b" as an address
        pq.write_table(table.cast(pa.schema(fields, metadata=notes)), file)


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
    wanted = {point.run_id for point in points(scenario)}
    try:
        if out.exists() and not out.is_dir():
            raise StoreError(f"{out}: expected a directory, found a file; choose another --out")
        stored = stored_runs(out)
        if not force:
            _refuse_what_is_not_ours(out, stored, wanted)
        (out / "runs").mkdir(parents=True, exist_ok=True)
        _clear_old_drafts(out)
        _replace(out / SCENARIO_FILE, to_toml(scenario))
    except OSError as error:
        raise StoreError(
            f"{out}: cannot be written ({error.strerror}); choose another --out"
        ) from error
    return stored & wanted


def _refuse_what_is_not_ours(out: Path, stored: set[str], wanted: set[str]) -> None:
    if stored and not stored & wanted:
        runs = "1 run" if len(stored) == 1 else f"{len(stored)} runs"
        raise StoreError(
            f"{out}: holds another scenario ({runs}, none of this sweep); choose another --out, "
            "or --force to keep both there"
        )
    if not stored and out.is_dir() and any(out.iterdir()) and not (out / SCENARIO_FILE).exists():
        raise StoreError(
            f"{out}: expected a new, empty or earlier sweep's directory, found other files; "
            "choose another --out, or --force to write beside them"
        )


def _clear_old_drafts(out: Path) -> None:
    """Remove what writers that were killed left behind; a living one is done in seconds."""
    for draft in (path for path in (out / "runs").glob(".*") if not path.name.startswith(ASIDE)):
        with contextlib.suppress(OSError):
            if time.time() - draft.stat().st_mtime > DRAFT_LIFETIME:
                shutil.rmtree(draft)


def _replace(path: Path, text: str) -> None:
    handle, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    draft = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(handle)
        draft.chmod(0o644)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def read_record(folder: Path) -> dict[str, Any]:
    """Return what run.json says. Raises StoreError if it is damaged or of another version."""
    try:
        record: dict[str, Any] = json.loads((folder / "run.json").read_text(encoding="utf-8"))
        version, _, _ = (record[key] for key in ("schema_version", "status", "seconds"))
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = f"no {error}" if isinstance(error, KeyError) else error
        raise _damaged(folder / "run.json", reason) from error
    if version != SCHEMA_VERSION:
        raise StoreError(
            f"{folder}: expected schema version {SCHEMA_VERSION}, found {version}; run the sweep "
            "again into a new directory"
        )
    return record


def read_table(folder: Path, name: str) -> pd.DataFrame:
    """Return one table of a run. Raises StoreError if its file is damaged."""
    table: pd.DataFrame = _read(folder, name, pq.read_table).to_pandas()
    return table[list(TABLES[name])]


def check_table(folder: Path, name: str) -> None:
    """Raise DamagedRunError if a table has not its columns; only the end of its file is read."""
    _read(folder, name, pq.read_schema)


def _read(folder: Path, name: str, reader: Callable[[Any], Any]) -> Any:
    """Return a table or its schema, once its columns are known to be what they should."""
    path = folder / f"{name}.parquet"
    try:
        with path.open("rb") as file:
            found = reader(file)
    except (OSError, pa.ArrowException) as error:
        raise _damaged(path, error) from error
    schema = getattr(found, "schema", found)
    if absent := [column for column in TABLES[name] if schema.get_field_index(column) < 0]:
        raise _damaged(path, f"no column {', '.join(absent)}")
    for column in TABLES[name]:
        kind = _kind(schema.field(column).type)
        expected = "text" if column in TEXT_COLUMNS else "numbers"
        if kind not in (expected, "null"):  # a column without any value has the type null
            raise _damaged(path, f"column {column}: expected {expected}, found {kind}")
    return found


def _kind(kind: pa.DataType) -> str:
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return "numbers"
    return "text" if pa.types.is_string(kind) or pa.types.is_large_string(kind) else str(kind)


def _damaged(path: Path, reason: object) -> DamagedRunError:
    words = getattr(reason, "strerror", None) or str(reason).partition("\n")[0]
    return DamagedRunError(
        f"{path}: cannot be read ({words}); delete the folder {path.parent} and run the sweep again"
    )
