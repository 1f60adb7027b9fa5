"""The sentences under a figure: what lines and bands mean, over how much, and what is missing."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from gradlab.plots.aggregate import SEEDS_FOR_A_BAND, usable
from gradlab.plots.facets import plain, varying_keys
from gradlab.plots.words import DETAILS, Language, describe, describe_all, say

FACTS = ("model.kind", "model.cell", "model.layers", "model.bidirectional", "model.init",
         "model.gain", "model.attention", "model.scope", "model.timing", "model.hidden",
         "task.name", "task.keep", "task.reverse_source", "task.symbols")  # fmt: skip
USUAL: dict[str, object] = {"model.kind": "seq2seq", "model.layers": 1,
                            "model.bidirectional": False, "model.init": "torch",
                            "model.gain": 1, "model.scope": "global",
                            "task.reverse_source": False}  # fmt: skip
"""Values that go without saying where no point has another."""


def subtitle(lang: Language, title: str, runs: pd.DataFrame, frame: pd.DataFrame) -> str:
    """The scenario's title and the main settings that all its points share."""
    varying = varying_keys(runs, frame)
    shared = {
        key: plain(runs[key].iloc[0])
        for key in FACTS
        if key in runs and key not in varying and runs[key].nunique(dropna=False) == 1
    }
    shared = {key: value for key, value in shared.items() if USUAL.get(key, ...) != value}
    if "model.attention" not in shared:
        shared = {key: value for key, value in shared.items() if key not in DETAILS}
    return " · ".join(part for part in (title, describe_all(lang, shared)) if part)


def between(lang: Language, numbers: Iterable[object]) -> str:
    """Such as "64", or "16 to 64" where the numbers differ."""
    found = sorted({int(str(plain(number))) for number in numbers if plain(number) is not None})
    if len(found) > 1:
        return say(lang, "range", low=found[0], high=found[-1])
    return str(found[0]) if found else "?"


def examples(lang: Language, runs: pd.DataFrame) -> str:
    """How many examples were measured at each length."""
    return between(lang, runs["record.examples"])


def reduction(lang: Language, runs: pd.DataFrame) -> str:
    """How the loss is reduced over target tokens, without which no norm can be read."""
    found = [value for value in map(plain, runs["record.loss"].unique()) if value is not None]
    if len(found) != 1:
        return say(lang, "about_loss_varies")
    return say(lang, "about_loss", reduction=describe(lang, "record.loss", found[0]))


def lstm(lang: Language, runs: pd.DataFrame) -> list[str]:
    """For an LSTM, whose state is a pair: which half the gradient belongs to."""
    return [say(lang, "about_lstm")] if (runs["model.cell"] == "lstm").any() else []


def trained(lang: Language, runs: pd.DataFrame) -> str:
    """Such as "after 600 training steps", or a vaguer phrase where that varies."""
    steps = {plain(value) for value in runs["training.steps"]}
    return say(lang, "steps", steps=steps.pop()) if len(steps) == 1 else say(lang, "last_step")


def seeds(lang: Language, counts: Iterable[int], *, log: bool) -> list[str]:
    """What line and band mean, for lines with these numbers of seeds."""
    found = sorted(set(counts) - {0})
    centre = say(lang, "geometric_mean" if log else "mean")
    many = [count for count in found if count >= SEEDS_FOR_A_BAND]
    few = [count for count in found if 1 < count < SEEDS_FOR_A_BAND]
    sentences = [say(lang, "seeds_one")] if 1 in found else []
    if few:
        sentences.append(say(lang, "seeds_few", seeds=between(lang, few), centre=centre))
    if many:
        space = say(lang, "in_log") if log else ""
        number = between(lang, many)
        sentences.append(say(lang, "seeds_many", seeds=number, centre=centre, space=space))
    return sentences


def statuses(lang: Language, runs: pd.DataFrame, phrase: str = "runs_diverged") -> list[str]:
    """How many runs diverged (and, by `phrase`, where they are) or are missing, if any."""
    sentences = []
    for status, words in (("diverged", phrase), ("missing", "runs_missing")):
        count = int((runs["status"] == status).sum())
        if count:
            sentences.append(say(lang, words, count=count, total=len(runs)))
    return sentences


def nonfinite(lang: Language, frame: pd.DataFrame, value: str, runs: pd.DataFrame) -> list[str]:
    """How many values are NaN or infinite, if any, leaving out runs known to have diverged."""
    diverged = runs.loc[runs["status"] == "diverged", "run_id"]
    values = frame.loc[~frame["run_id"].isin(diverged), value]
    count = int((~usable(values, log=False)).sum())
    return [say(lang, "nonfinite", count=count, total=len(values))] if count else []


def zeros(lang: Language, frame: pd.DataFrame, phrase: str) -> list[str]:
    """How many norms are exactly zero, wholly or for some of their examples, if any."""
    zero = frame["norm_mean"] == 0
    partly = int(((frame["zeros"] > 0) & ~zero).sum())
    sentences = []
    if zero.any():
        sentences.append(say(lang, phrase, zeros=int(zero.sum()), total=len(frame)))
    if partly:
        sentences.append(say(lang, "zero_examples", count=partly, total=len(frame)))
    return sentences
