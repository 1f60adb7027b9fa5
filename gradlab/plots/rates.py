"""The measured decay as a rate, to stand beside the largest Lyapunov exponent."""

from __future__ import annotations

import math

import pandas as pd

from gradlab.plots.aggregate import at_stages, usable
from gradlab.plots.facets import Facets
from gradlab.plots.results import Results
from gradlab.plots.states import States

SLOPES = ["slope", "slope_low", "slope_high"]
RATES = ["rate", "rate_low", "rate_high"]


def recurrent(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs that have a recurrence, whose exponents can be asked for."""
    return runs[runs["model.kind"] != "transformer"]


def fitted(results: Results, states: States) -> pd.DataFrame:
    """The fits to the total gradient at the states that are shown, of recurrent models."""
    table = results.decay
    if table.empty:
        return table
    return states.locate(at_stages(recurrent(table[table["state"] == "h"])))


def measured_rates(
    table: pd.DataFrame, frame: pd.DataFrame, pairs: Facets, lines: Facets | None
) -> pd.DataFrame:
    """The largest exponent of each line and length, and the fitted `rate` with its interval.

    nats per timestep; means over seeds. `rate` is NaN where no slope could be fitted.
    """
    by = ["panel", "line", "source_length"]
    first = frame[(frame["index"] == 1) & usable(frame["exponent"], log=False)]
    largest = first.groupby(by)["exponent"].mean().rename("largest").reset_index()
    if table.empty:
        nothing = dict.fromkeys(RATES, math.nan)
        return largest.assign(law="neither", profile="no fit", **nothing)
    table = pairs.locate(table)
    if lines is None:
        by.remove("line")
    else:
        table = table.assign(line=lines.locate(table)["panel"])
    rates = table[SLOPES].astype(float).mul(math.log(10)).set_axis(RATES, axis="columns")
    fits = pd.concat([table[[*by, "law", "profile"]], rates], axis="columns").drop_duplicates(by)
    return largest.merge(fits, on=by, how="left")
