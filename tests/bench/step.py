"""One training step by cell, attention and length: python tests/bench/step.py [--seeds]

Forward, backward, clipping and Adam of batch 64, hidden 64, float32, one thread. gradlab's model
against the usual loop over torch's cells, and without attention against torch's fused layers for
encoder and decoder, which teacher forcing allows, and by which gradlab trains an LSTM too.
Milliseconds: median [least, greatest] of rounds in which they take turns; ratios are round by
round. With --seeds instead: how much faster a seed trains in lockstep with others than alone by a
scan, which is what gradlab/lab/lockstep.py goes by.
"""

from __future__ import annotations

import argparse
import itertools
from dataclasses import replace
from functools import partial

import torch
from timing import ROUNDS, Work, ratios, spread, take_turns
from trainers import Trainer, gradlab_fused_loss, gradlab_loss
from usual import FusedSeq2Seq, UsualSeq2Seq

from gradlab import Point, build_model, load_scenario, points
from gradlab.lab.lockstep import by_fused_layers
from gradlab.lab.training import backward
from gradlab.tasks import training_batch

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
    loss = gradlab_fused_loss if by_fused_layers(at, "cpu") else gradlab_loss
    found = {
        "gradlab": Trainer(at, build_model(at), loss),
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
    if (at.model.cell, at.model.attention) == ("lstm", "none"):
        others.append(Trainer(at, build_model(at), gradlab_fused_loss))
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


def seeds_in_lockstep(at: Point, count: int) -> Work:
    """Return one training step of `count` seeds, their forward and backward passes in one."""
    models = [build_model(replace(at, seed=seed)) for seed in range(count)]
    optimizers = [torch.optim.Adam(model.parameters(), fused=True) for model in models]
    batches = [training_batch(at.task, at.training.batch, seed, 0) for seed in range(count)]

    def step() -> None:
        backward(models, batches, lockstep=True)
        for model, optimizer in zip(models, optimizers, strict=True):
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()

    return step


def compare_seeds(rounds: int) -> None:
    """Print the speed of a seed in a group over that alone, by cell, attention, size and length."""
    counts = (1, 2, 4, 8)
    print("A seed's training steps a second in lockstep with others, over alone\n")
    print(f"{'':44}" + "".join(f"{f'{count} seeds':>20}" for count in counts[1:]))
    sizes = itertools.product(("gru", "lstm"), MODELS[:3], (16, 64, 128), (20, 50, 100))
    for cell, (attention, timing), hidden, n in sizes:
        at = point(cell, attention, timing, n)
        at = replace(at, model=at.model.model_copy(update={"hidden": hidden}))
        took = take_turns({str(count): seeds_in_lockstep(at, count) for count in counts}, rounds)
        each = {c: [seconds / c for seconds in took[str(c)]] for c in counts}
        named = attention if attention == "none" else f"{attention} {timing}"
        label = f"{cell}, {named}, hidden {hidden}, n = {n}"
        cells = "".join(f"{ratios(each[1], each[count], 2):>20}" for count in counts[1:])
        print(f"{label:44}{cells}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="What a training step costs.")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--quick", action="store_true", help="short, to see that it runs")
    parser.add_argument("--seeds", action="store_true", help="compare groups of seeds instead")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    if asked.seeds:
        compare_seeds(asked.rounds)
        return
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
