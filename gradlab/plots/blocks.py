"""Which panels and lines the figure of path lengths has: two blocks under one another."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gradlab.errors import NothingToPlotError
from gradlab.plots.aggregate import at_stages, longest, one_per_seed, stage_key, stages_of, usable
from gradlab.plots.canvas import blank
from gradlab.plots.facets import MOST_COLUMNS, Facets, distinct, facets, varying_keys
from gradlab.plots.gradients import total_norms
from gradlab.plots.lines import whole_steps
from gradlab.plots.models import Models, compare_models
from gradlab.plots.reference import with_reference
from gradlab.plots.results import Results
from gradlab.plots.shares import cancelled
from gradlab.plots.states import States, choose_states
from gradlab.plots.style import Look, Mark, sequential_marks
from gradlab.plots.words import say

CELL = ["panel", "line", "source_length", "position"]
LENGTH = "path_length"
MOST_GROUPS = 4
"""With more models than this, lines are models at the longest length instead of lengths."""
FEWEST_LENGTHS = 3
"""Below this, a line of models against n says no more than the profiles do."""


@dataclass(frozen=True)
class Plan:
    """Two blocks of panels: lengths at each state, and at h_1 against n.

    `frame` has the panel of each row in `profiles`, its model in `line`; with `by_length` the lines
    of the profiles are lengths, else models at the longest length.
    """

    profiles: Facets
    ends: Facets
    models: Models
    frame: pd.DataFrame
    points: pd.DataFrame
    states: States
    cancelling: pd.DataFrame
    by_length: bool

    @property
    def lengths(self) -> list[int]:
        return sorted(int(n) for n in self.frame["source_length"].unique())

    @property
    def columns(self) -> int:
        """Panels side by side; a lone one of each block share a row."""
        lone = len(self.profiles.panels) == len(self.ends.panels) == 1
        return 2 if lone else self.profiles.columns

    @property
    def profile_lines(self) -> list[tuple[Mark, str, pd.DataFrame]]:
        """Mark, English label and rows of each line of the upper block."""
        if self.by_length:
            marks = sequential_marks(len(self.lengths))
            rows = [self.frame[self.frame["source_length"] == n] for n in self.lengths]
            return list(zip(marks, map(str, self.lengths), rows, strict=True))
        top = longest(self.frame, "panel")
        names = [label or "all" for label in self.models.labels("en")]
        rows = [top[top["line"] == line] for line in range(len(names))]
        return list(zip(self.models.marks, names, rows, strict=True))


def plan_blocks(results: Results) -> Plan:
    """Lines are lengths where few models are compared, else models; then h_1 if there is room."""
    frame = at_stages(total_norms(results))
    if LENGTH not in frame or frame[LENGTH].isna().all():
        raise NothingToPlotError(
            "path_length needs the column path_length in the table gradients, found no value in it:"
            " record.paths is false in this sweep, or its runs are from before it was measured"
        )
    runs, points = results.runs, stages_of(results.runs)
    keys = varying_keys(runs, frame)
    states = choose_states(frame, runs, keys, MOST_GROUPS)
    frame, keys = states.locate(frame), states.with_keys(keys)
    runs, points = states.expand(runs), states.expand(points)
    models = compare_models(runs, frame, keys)
    inner = [*models.panel_keys, *stage_key(points)]
    own = [key for key in keys if key != "record.loss"]
    by_length = len(distinct(runs, own)) <= MOST_GROUPS
    across = distinct(points, inner)
    if by_length:
        profiles = in_rows(points, [*keys, *stage_key(points)], len(models.lines.panels), across)
        ends = Facets(tuple(inner), tuple(across), profiles.columns)
    else:
        profiles = facets(points, inner)
        few = frame["source_length"].nunique() < FEWEST_LENGTHS or len(across) > MOST_GROUPS
        columns = profiles.columns if few else len(across)
        profiles = Facets(profiles.keys, profiles.panels if few else tuple(across), columns)
        ends = Facets(tuple(inner), () if few else tuple(across), columns)
    frame = one_per_seed(profiles.locate(models.locate(with_reference(frame))), CELL)
    frame = frame if ends.panels else longest(frame, "panel")
    opposed = cancelled(frame, CELL)
    return Plan(profiles, ends, models, frame, points, states, opposed, by_length)


def in_rows(
    points: pd.DataFrame, keys: list[str], rows: int, across: list[tuple[object, ...]]
) -> Facets:
    """A panel for each model and stage; where it fits, models are rows."""
    profiles = facets(points, keys)
    if len(profiles.panels) == rows * len(across) and rows <= 3 and len(across) <= MOST_COLUMNS:
        ordered = distinct(points, list(profiles.keys))
        return Facets(profiles.keys, tuple(ordered), len(across))
    return profiles


def highest(plan: Plan) -> float:
    """The top of the axis: over all references, and all lengths where no parts oppose."""
    table = plan.frame.merge(plan.cancelling[CELL].assign(opposed=True), on=CELL, how="left")
    values = table.loc[table["opposed"].isna() & usable(table[LENGTH], log=False), LENGTH]
    found = [*values, *table["reference"].dropna()]
    return 1.08 * max([1.0, *map(float, found)])


def draw_blocks(look: Look, plan: Plan) -> tuple[Figure, list[Axes], list[Axes]]:
    """Empty panels: the block of the states above, the block of h_1 below."""
    columns, count = plan.columns, len(plan.profiles.panels)
    above = -(-count // columns) * columns if count > 1 else count
    total = above + len(plan.ends.panels)
    figure, axes = blank(look, -(-total // columns), columns, total, share_x="none", taller=1.6)
    for hole in axes[count:above]:
        hole.remove()
    upper, lower = axes[:count], axes[above:]
    span = plan.frame["position"].min(), plan.frame["position"].max()
    margin = 0.03 * (span[1] - span[0]) + 0.1
    for i, axis in enumerate(upper):
        axis.set_xlim(span[0] - margin, span[1] + margin)
        bottom = i + columns >= count
        axis.tick_params(labelbottom=bottom)
        whole_steps(axis)
        axis.set_xlabel(say(look.lang, "timestep") if bottom else "")
    for axis in lower:
        axis.set_xlabel(say(look.lang, "length"))
    return figure, upper, lower
