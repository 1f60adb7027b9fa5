"""What a measurement costs: python tests/bench/measure.py

Times are seconds: the median of five rounds in which the candidates take turns, and in brackets the
fastest and the slowest. One thread unless GRADLAB_THREADS says otherwise.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from timing import Work, ratios, spread, take_turns
from torch import Tensor

from gradlab.gradients.hops import hop_rows
from gradlab.gradients.maps import gradient_map, safe_norm, target_gradients
from gradlab.gradients.probe import measure
from gradlab.models.inputs import Projected
from gradlab.models.loss import batch_loss, token_loss
from gradlab.models.seq2seq import Seq2Seq
from gradlab.schema import Model, Task
from gradlab.tasks import Batch, probe_batch

CASES = [
    {"attention": "none"},
    {"attention": "additive", "timing": "luong"},
    {"attention": "additive", "timing": "bahdanau"},
]


def case(n: int, examples: int, **spec: Any) -> tuple[Seq2Seq, Batch]:
    """Return a float64 model and a probe batch."""
    model = Seq2Seq(Model.model_validate(spec), 10).double()
    return model, probe_batch(Task(name="copy", length=n, symbols=10), examples, 0, n)


def forward_backward(model: Seq2Seq, batch: Batch) -> None:
    model.zero_grad()
    batch_loss(model(batch).logits, batch).backward()


# A measurement against a forward-backward pass.


def compare_measurement() -> None:
    print("A measurement of 64 examples (GRU, hidden 64) and a forward-backward pass, float64\n")
    print(f"{'':26}{'forward-backward':>24}{'measure':>24}{'paths=False':>24}{'ratio':>20}{'':>20}")
    for spec in CASES:
        for n in (20, 40):
            model, batch = case(n, 64, **spec)
            candidates: dict[str, Work] = {
                "pass": lambda m=model, b=batch: forward_backward(m, b),  # type: ignore[misc]
                "full": lambda m=model, b=batch: measure(m, b),  # type: ignore[misc]
                "bare": lambda m=model, b=batch: measure(m, b, paths=False),  # type: ignore[misc]
            }
            took = take_turns(candidates)
            cells = [f"{spread(took[name]):>24}" for name in ("pass", "full", "bare")]
            cells += [f"{ratios(took[name], took['pass']):>20}" for name in ("full", "bare")]
            print(f"{' '.join(spec.values()) + f' n={n}':26}{''.join(cells)}")


# The map against a backward pass for every target step.


@contextmanager
def tapped(model: Seq2Seq) -> Iterator[list[Tensor]]:
    """Add zeros to the encoder's states, step by step, so that autograd finds their total."""
    taps: list[Tensor] = []
    encoder: Any = model.encoder
    forward = encoder.forward

    def step_by_step(
        projected: Projected, initial: tuple[Tensor, ...], *rest: Any
    ) -> tuple[Tensor, ...]:
        state, steps = initial, []
        for p in projected.full().split(1, dim=-2):
            taps.append(torch.zeros_like(state[0], requires_grad=True))
            states = forward(Projected(p), state, *rest)
            state = (states[0].squeeze(-2) + taps[-1], *(part.squeeze(-2) for part in states[1:]))
            steps.append(state)
        return tuple(torch.stack(part, dim=-2) for part in zip(*steps, strict=True))

    encoder.forward = step_by_step
    try:
        yield taps
    finally:
        del encoder.forward


def by_autograd(model: Seq2Seq, batch: Batch) -> Iterator[Tensor]:
    """Yield dl_j/dh_i (batch, n, hidden) of every target step, one backward pass each."""
    with tapped(model) as taps:
        nats = token_loss(model(batch).logits, batch).sum(0)
        for loss in nats:
            yield torch.stack(torch.autograd.grad(loss, taps, retain_graph=True), dim=-2)


def by_autograd_of_the_decoder(model: Seq2Seq, batch: Batch) -> None:
    """Differentiate each step's loss by the decoder's exit edges alone: less than the map asks."""
    trace = model(batch)
    edges = [*trace.edges.bridge, trace.edges.values, trace.edges.keys]
    for loss in token_loss(trace.logits, batch).sum(0):
        torch.autograd.grad(loss, edges, retain_graph=True)


def autograd_map(model: Seq2Seq, batch: Batch) -> Tensor:
    return torch.stack([safe_norm(rows).mean(0) for rows in by_autograd(model, batch)])


def compare_map(n: int = 100, rounds: int = 2) -> None:
    spec = {"attention": "additive", "timing": "bahdanau"}
    small, few = case(8, 3, hidden=8, embedding=4, **spec)
    with torch.no_grad():
        found = target_gradients(small, few)[0][0]
    torch.testing.assert_close(found, torch.stack([*by_autograd(small, few)]), rtol=1e-9, atol=0)
    model, batch = case(n, 16, **spec)
    took = take_turns(
        {
            "map": lambda: gradient_map(model, batch),
            "autograd": lambda: autograd_map(model, batch),
            "decoder": lambda: by_autograd_of_the_decoder(model, batch),
        },
        rounds,
    )
    expected = autograd_map(model, batch)
    torch.testing.assert_close(gradient_map(model, batch).norms["h"], expected, rtol=1e-9, atol=0)
    print(f"\nThe map at n = k = {n} (GRU, additive bahdanau, hidden 64, 16 examples)\n")
    print(f"  gradient_map                                             {spread(took['map'])}")
    for name, what in (
        ("autograd", "a backward pass per target step, to taps on the states"),
        ("decoder", "the same to the decoder's exit edges alone"),
    ):
        print(f"  {what:56} {spread(took[name])}  x {ratios(took[name], took['map'])}")
    hops = take_turns({"hops": lambda: hop_rows(model, batch, measure(model, batch))}, rounds)
    print(f"  {'measure and hop_rows of the same batch':56} {spread(hops['hops'])}")


# Memory.

MEMORY = """
import resource, sys
sys.path.insert(0, {here!r})
from measure import case, measure, torch
torch.set_num_threads(1)
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
measure(*case(2, 2, attention="additive", timing={timing!r}))
model, batch = case({n}, 64, attention="additive", timing={timing!r})
before = peak()
measure(model, batch)
print(peak() - before)
"""


def compare_memory() -> None:
    print("\nGrowth of the peak resident memory by a default measurement of 64 examples, MiB\n")
    lengths = (50, 100, 200, 400)
    print(f"{'':26}" + "".join(f"{f'n={n}':>10}" for n in lengths))
    here = str(Path(__file__).resolve().parent)
    for timing in ("luong", "bahdanau"):
        grown = [
            subprocess.run(
                [sys.executable, "-c", MEMORY.format(here=here, timing=timing, n=n)],
                capture_output=True,
                text=True,
                check=True,
            ).stdout
            for n in lengths
        ]
        print(f"{'additive ' + timing:26}" + "".join(f"{float(mib):10.0f}" for mib in grown))


def main() -> None:
    torch.set_num_threads(int(os.environ.get("GRADLAB_THREADS", "1")))
    compare_memory()  # first: a child's peak starts at what its parent held when it was forked
    compare_measurement()
    compare_map()


if __name__ == "__main__":
    main()
