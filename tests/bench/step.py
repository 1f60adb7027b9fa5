"""One training step by cell, attention and length: python tests/bench/step.py

Forward, backward, clipping and Adam of batch 64, hidden 64, float32, one thread. gradlab's model
against the usual loop over torch's cells, and without attention against torch's fused layers for
encoder and decoder, which teacher forcing allows. Milliseconds: median [least, greatest] of rounds
in which they take turns; ratios are round by round.
"""

from __future__ import annotations

import argparse
import itertools
from functools import partial

import torch
from timing import ROUNDS, Work, ratios, spread, take_turns
from trainers import Trainer, gradlab_loss
from usual import FusedSeq2Seq, UsualSeq2Seq

from gradlab import Point, build_model, load_scenario, points

CELLS = ("rnn", "gru", "lstm")
MODELS = (
    ("none", "bahdanau"),
    ("additive", "bahdanau"),
    ("additive", "luong"),
    ("dot", "bahdanau"),
    ("dot", "luong"),
)
NUMBERS = 3  # steps compared in float64


def point(cell: str, attention: str, timing: str, n: int, small: bool = False) -> Point:
    """Return the point to train; `small` is in float64, to compare."""
    model = {"cell": cell, "attention": attention, "bridge": "initial"}
    model |= {} if attention == "none" else {"timing": timing}
    sizes = {"hidden": 8, "embedding": 4} if small else {"hidden": 64, "embedding": 32}
    training = {
        "steps": 100,
        "batch": 5 if small else 64,
        "lr": 3e-3,
        "clip": 0.1 if small else 1.0,
    }
    found = load_scenario(
        {
            "title": "one training step",
            "task": {"name": "copy", "length": n, "symbols": 10},
            "model": {**model, **sizes},
            "training": {**training, "dtype": "float64" if small else "float32"},
        }
    )
    return points(found)[0]


def trainers(at: Point) -> dict[str, Trainer]:
    """Return whoever can train the point."""
    found = {
        "gradlab": Trainer(at, build_model(at), gradlab_loss),
        "usual loop": Trainer(at, UsualSeq2Seq(at)),
    }
    if at.model.attention == "none":
        found["fused layers"] = Trainer(at, FusedSeq2Seq(at))
    return found


def check(at: Point) -> None:
    """Assert equal gradients of the first step, and equal losses after updates with clipping.

    Adam's first updates divide each gradient by about its own size, which makes rounding errors of
    gradients that nearly cancel large; so the losses are held to less.
    """
    ours, *others = trainers(at).values()
    expected = {name.removesuffix("_l0"): g for name, g in ours.gradients()[0].items()}
    losses = [ours.step(number)[0] for number in range(NUMBERS)]
    for each in others:
        found = {name.removesuffix("_l0"): g for name, g in each.gradients()[0].items()}
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-16)
        trained = [each.step(number)[0] for number in range(NUMBERS)]
        torch.testing.assert_close(trained, losses, rtol=1e-7, atol=0)


def compare(at: Point, label: str, rounds: int) -> None:
    candidates: dict[str, Work] = {name: partial(run.step, 0) for name, run in trainers(at).items()}
    took = take_turns(candidates, rounds)
    cells = [f"{label:30}"]
    for name in ("gradlab", "usual loop", "fused layers"):
        milliseconds = [1000 * each for each in took.get(name, [])]
        cells.append(f"{spread(milliseconds, 1) if milliseconds else '-':>26}")
    for name in ("usual loop", "fused layers"):
        cells.append(f"{ratios(took[name], took['gradlab']) if name in took else '-':>20}")
    print("".join(cells))


def main() -> None:
    parser = argparse.ArgumentParser(description="What a training step costs.")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--quick", action="store_true", help="short, to see that it runs")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    models = [(cell, *model) for cell, model in itertools.product(CELLS, MODELS)]
    for model in models:
        check(point(*model, n=6, small=True))
    print("Equal in float64: the gradients of a first step, and the losses of steps after it.\n")
    headings = [f"{name + ', ms':>26}" for name in ("gradlab", "usual loop", "fused layers")]
    headings += [f"{name:>20}" for name in ("usual / gradlab", "fused / gradlab")]
    print(f"{'':30}{''.join(headings)}")
    for (cell, attention, timing), n in itertools.product(
        models, (4, 8) if asked.quick else (20, 50, 100)
    ):
        named = attention if attention == "none" else f"{attention} {timing}"
        compare(point(cell, attention, timing, n), f"{cell}, {named}, n = {n}", asked.rounds)


if __name__ == "__main__":
    main()
