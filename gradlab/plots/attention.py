"""Attention weights: one example with its symbols, beside the mean over examples."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from gradlab.errors import NothingToPlotError
from gradlab.plots import caption
from gradlab.plots.aggregate import (
    at_stages,
    longest,
    one_per_seed,
    over_seeds,
    stage_key,
    stages_of,
    usable,
)
from gradlab.plots.canvas import Page, finish
from gradlab.plots.facets import Facets, distinct
from gradlab.plots.gradients import name_only_stage
from gradlab.plots.heatmap import heat, key_empty, state_longest
from gradlab.plots.maps import WEIGHT, WEIGHT_COLOURS, first_at_the_top
from gradlab.plots.models import keys_of_accuracy
from gradlab.plots.pairs import blank_pairs, pair_layout
from gradlab.plots.results import Results
from gradlab.plots.style import Look, StyleName, drawing
from gradlab.plots.symbols import (
    about_symbols,
    draw_ideal,
    label_steps,
    label_symbols,
    name_ideal,
    thinning,
)
from gradlab.plots.words import Language, say

CELL = ["panel", "target_position", "position"]
MOST_MODELS = 3
"""With more models and tasks than this, the untrained stage is left out."""
FULL = 0.999
"""A row of weights that sums to less is one of local attention."""


@dataclass(frozen=True)
class Plan:
    """A pair of panels for each of `pairs`; `single` and `mean` hold `panel` and `weight`.

    `single` is one example a panel; `examples` the number of examples in each panel's mean, and
    `few` the panels whose mean is over the recorded examples alone.
    """

    pairs: Facets
    points: pd.DataFrame
    single: pd.DataFrame
    mean: pd.DataFrame
    least: float
    examples: dict[int, str]
    few: frozenset[int]


def attention_weights(
    results: Results, *, style: StyleName = "lecture", lang: Language = "en"
) -> Figure:
    """Attention weights of one example, and their mean, over target and source steps.

    Linear colour from 0 to 1; a pair of panels for each model with attention, task and stage at its
    longest source length. With many models the untrained stage is left out.
    """
    plan = plan_pairs(results)
    with drawing(style, lang) as look:
        figure, pairs = blank_pairs(look, plan.pairs, share_x="none", share_y="none")
        every = thinning(look, pairs[0][0], plan.single)
        draw_pairs(pairs, look, plan, every)
        axes = [axis for pair in pairs for axis in pair]
        unit = ScalarMappable(Normalize(0, 1), WEIGHT_COLOURS)
        bar = figure.colorbar(unit, ax=axes, aspect=25, pad=0.02, ticks=[0, 0.25, 0.5, 0.75, 1])
        bar.set_label(say(look.lang, "map_weight"), fontsize=look.text)
        names, sentence = state_longest(look, plan.pairs, plan.single)
        names = name_only_stage(look, names, plan.points)
        holes = pd.concat([plan.single["weight"], plan.mean["weight"]]).isna().any()
        page = Page(
            say(look.lang, "attention_weights"),
            caption.subtitle(look.lang, results.scenario.title, results.runs, plan.single),
            titles_of(look, names, plan),
            y_label=say(look.lang, "target_weights"),
            handles=[key_empty(look)] if holes else [],
            caption=[*about(look, results, plan, every), sentence, *left_out(look, results, plan)],
        )
        return finish(figure, axes, look, page)


def plan_pairs(results: Results) -> Plan:
    """One pair a model and task after training, and before it too where there are few."""
    frame, runs = attention_rows(results), attentive(results.runs)
    keys = keys_of_accuracy(runs, frame)
    points = stages_of(runs)
    if len(distinct(runs, keys)) > MOST_MODELS:
        points = points[points["stage"] == points["training.steps"]]
    pairs = pair_layout(points, [*keys, *stage_key(points)])
    if len(pairs.panels) == 2:
        pairs = replace(pairs, columns=2)  # four squares are largest in a row
    frame = one_per_seed(place(frame, pairs, points), [*CELL, "example"])
    maps = results.maps
    if not maps.empty:
        maps = place(at_stages(maps[maps["run_id"].isin(frame["run_id"])]), pairs, points)
        maps = one_per_seed(maps[maps["state"] == "h"], CELL).rename(columns={WEIGHT: "weight"})
    full = set(maps.loc[maps["weight"].notna(), "panel"]) if len(maps) else set()
    of_few = frame[~frame["panel"].isin(full)]
    of_all = [maps[maps["panel"].isin(full)]] if full else []
    few = {panel: str(rows["example"].nunique()) for panel, rows in by_panel(of_few)}
    counts = {p: caption.examples("en", own) for rows in of_all for p, own in by_panel(rows)}
    mean = pd.concat([*of_all, of_few] if few else of_all)
    return Plan(
        pairs, points, one_example(frame), mean, least_sum(frame), counts | few, frozenset(few)
    )


def by_panel(frame: pd.DataFrame) -> list[tuple[int, pd.DataFrame]]:
    """The rows of each panel that has any."""
    return [(int(str(panel)), rows) for panel, rows in frame.groupby("panel")]


def attentive(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs whose model has attention; the key is null where it has no effect."""
    named = runs["model.attention"].notna() & (runs["model.attention"] != "none")
    recurrent = runs["model.kind"] != "synchronous"
    return runs[(named & recurrent) | (runs["model.kind"] == "transformer")]


def attention_rows(results: Results) -> pd.DataFrame:
    """The recorded weights before training and after the last step."""
    if attentive(results.runs).empty:
        raise NothingToPlotError(
            "attention_weights needs a model with attention; no model of this sweep has any"
        )
    table = results.attention
    table = table if table.empty else at_stages(table)
    if table.empty:
        raise NothingToPlotError(
            "attention_weights needs rows in the table attention, found none: no run of this sweep"
            " with attention is finished"
        )
    return table


def place(frame: pd.DataFrame, pairs: Facets, points: pd.DataFrame) -> pd.DataFrame:
    """The rows of the stages that are drawn, at the longest length of their panel."""
    drawn = set(zip(points["run_id"], points["stage"], strict=True))
    rows = [row in drawn for row in zip(frame["run_id"], frame["stage"], strict=True)]
    return longest(pairs.locate(frame[rows]), "panel")


def one_example(frame: pd.DataFrame) -> pd.DataFrame:
    """The first example of the first seed of each panel."""
    for key in ("seed", "example"):
        frame = frame[frame[key] == frame.groupby("panel")[key].transform("min")]
    return frame


def least_sum(frame: pd.DataFrame) -> float:
    """The least sum of a row of weights that are all finite; 1 if there is none."""
    rows = frame.assign(finite=usable(frame["weight"], log=False)).groupby(
        ["panel", "seed", "example", "target_position"]
    )
    sums = rows["weight"].sum()[rows["finite"].all()]
    return float(sums.min()) if len(sums) else 1.0


def draw_pairs(pairs: list[tuple[Axes, Axes]], look: Look, plan: Plan, every: int) -> None:
    """Draw the example and the mean of each pair, each with the path it should follow."""
    unit = Normalize(0, 1)
    single = plan.single.assign(centre=plan.single["weight"])
    mean = over_seeds(plan.mean, CELL, "weight", log=False)
    for panel, (left, right) in enumerate(pairs):
        example = single[single["panel"] == panel]
        for axis, rows in ((left, example), (right, mean[mean["panel"] == panel])):
            rows = rows.assign(level=rows["target_position"], zero=False)
            heat(axis, look, rows, unit, "centre", WEIGHT_COLOURS)
            first_at_the_top(axis, rows)
            if len(rows):
                axis.set_aspect("equal")
                draw_ideal(axis, look, example)
        label_symbols(left, example, every)
        label_steps(right)
    for left, right in pairs[-plan.pairs.columns :]:
        left.set_xlabel(say(look.lang, "source_symbol"))
        right.set_xlabel(say(look.lang, "timestep"))


def titles_of(look: Look, names: list[str], plan: Plan) -> list[str]:
    """The titles of all panels: model, task and stage, then what each half shows."""
    titles = []
    for panel, name in enumerate(names):
        number = plan.examples.get(panel, "?")
        halves = (say(look.lang, "one_example"), say(look.lang, "mean_examples", examples=number))
        titles += [" · ".join(part for part in (name, half) if part) for half in halves]
    return titles


def about(look: Look, results: Results, plan: Plan, every: int) -> list[str]:
    """What the colours are, of which example and of how many, and which path is ideal."""
    lang, runs, shown = look.lang, results.runs, plan.single
    seeds = int(plan.mean["seed"].nunique())
    examples = caption.between(lang, plan.examples.values())
    few = caption.between(lang, [plan.examples[panel] for panel in plan.few])
    transformer = (shown["model.kind"] == "transformer").any()
    return [
        say(
            lang, "about_attention", example=caption.between(lang, shown["example"] + 1),
            seed=caption.between(lang, shown["seed"]), examples=examples,
            seeds=say(lang, "and_seeds" if seeds > 1 else "and_one_seed", seeds=seeds),
        ),
        *([say(lang, "few_examples", examples=few)] if plan.few else []),
        *about_symbols(lang, shown, every),
        *name_ideal(lang, shown),
        *([say(lang, "less_than_one", least=f"{plan.least:.2g}")] if plan.least < FULL else []),
        *([say(lang, "about_transformer")] if transformer else []),
        *([say(lang, "without_attention")] if len(attentive(runs)) < len(runs) else []),
    ]  # fmt: skip


def left_out(look: Look, results: Results, plan: Plan) -> list[str]:
    """How many weights are not finite, and how many runs diverged or are missing."""
    rows = pd.concat([plan.single, plan.mean])
    shown = rows.drop_duplicates([*CELL, "run_id", "example"])
    return [
        *caption.nonfinite(look.lang, shown, "weight", results.runs),
        *caption.statuses(look.lang, results.runs, "runs_diverged_later"),
    ]
