"""The tables of a sweep, read back: what every figure and every reader starts from."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from gradlab.errors import StoreError
from gradlab.grid import Point, points
from gradlab.lab.store import SCENARIO_FILE, read_record, read_table, run_folder, stored_runs
from gradlab.lab.tables import ON_REQUEST, TABLES
from gradlab.scenario import load_scenario
from gradlab.schema import Scenario


def open_results(out: str | Path) -> Results:
    """Open the sweep at `out`.

    Raises StoreError if `out` is not a sweep, ScenarioError if its scenario.toml is not valid.
    """
    out = Path(out)
    try:
        if not (out / SCENARIO_FILE).is_file():
            found = "a file" if out.exists() else "no such directory"
            found = f"no {SCENARIO_FILE} in it" if out.is_dir() else found
            raise StoreError(f"{out}: expected the directory of a sweep, found {found}")
    except OSError as error:
        raise StoreError(f"{out}: cannot be read ({error.strerror})") from error
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
                record = read_record(run_folder(self.out, point.run_id))
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

    def count(self, status: str) -> int:
        """How many different runs of the sweep are "done", "diverged" or "missing"."""
        return int((self.runs.drop_duplicates("run_id")["status"] == status).sum())

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

    @cached_property
    def maps(self) -> pd.DataFrame:
        """Gradient norm and attention weight by target and source timestep, of runs with a map."""
        return self._table("maps")

    @cached_property
    def hops(self) -> pd.DataFrame:
        """Share and norm by number of recurrent steps, of runs that recorded hops."""
        return self._table("hops")

    @cached_property
    def jacobians(self) -> pd.DataFrame:
        """Singular values of the encoder's Jacobians, of runs that recorded them."""
        return self._table("jacobians")

    @cached_property
    def lyapunov(self) -> pd.DataFrame:
        """Lyapunov exponents of the encoder, of runs that recorded Jacobians."""
        return self._table("lyapunov")

    @cached_property
    def decay(self) -> pd.DataFrame:
        """Slopes and half-lives of the decay over distance; see `gradlab.decay`."""
        from gradlab.gradients.decay import decay

        return decay(self)

    def _table(self, name: str) -> pd.DataFrame:
        config = self.runs.drop(columns="seconds")
        present = config["status"] != "missing"
        if name in ON_REQUEST:
            present &= config[ON_REQUEST[name]].astype(bool)
        frames = []
        for run_id in config.loc[present, "run_id"].unique():
            frame = read_table(run_folder(self.out, run_id), name)
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
