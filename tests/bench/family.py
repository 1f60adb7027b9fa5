"""A training step of the rest of the family: python tests/bench/family.py

Scores, local scopes and deeper models against the usual loop, a synchronous model against a loop
over torch's cell, and a transformer against `torch.nn.Transformer`: batch 64, hidden 64, float32,
one thread. Gradients of the first step are asserted equal in float64 first, of deeper models the
first losses; not the transformer's, whose weights have other names (the tests compare its layers).
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from functools import partial

import torch
from deep import UsualDeep
from step import check, point
from timing import ROUNDS, Work, ratios, spread, take_turns
from torch import Tensor, nn
from trainers import Trainer, gradlab_loss
from usual import UsualSeq2Seq, starting_weights

from gradlab import Point, build_model
from gradlab.tasks import Batch

DEEP = (("bahdanau", 2, False), ("luong", 2, False), ("luong", 1, True), ("luong", 2, True))
"""Timing, layers, input feeding."""
SCORES = ("additive", "concat", "dot", "scaled_dot", "general", "cosine")


class UsualSynchronous(nn.Module):
    """One output beside every input step."""

    def __init__(self, at: Point) -> None:
        super().__init__()
        spec, symbols = at.model, at.task.symbols
        self.source_embedding = nn.Embedding(symbols + 3, spec.embedding)
        self.encoder = nn.GRUCell(spec.embedding, spec.hidden)
        self.output = nn.Linear(spec.hidden, symbols)
        self.to(getattr(torch, at.training.dtype))
        self.load_state_dict(starting_weights(at))

    def forward(self, batch: Batch, watch: bool = False) -> tuple[Tensor, list[Tensor]]:
        embedded = self.source_embedding(batch.source)
        h, states = embedded.new_zeros(len(embedded), self.encoder.hidden_size), []
        for x in embedded.unbind(1):
            h = self.encoder(x, h)
            if watch:
                h.retain_grad()
            states.append(h)
        return self.output(torch.stack(states, 1)), states


class TorchTransformer(nn.Module):
    """`torch.nn.Transformer` of the same sizes, with learnt embeddings and sinusoidal positions."""

    def __init__(self, at: Point) -> None:
        super().__init__()
        spec, symbols = at.model, at.task.symbols
        self.source_embedding = nn.Embedding(symbols + 3, spec.hidden)
        self.target_embedding = nn.Embedding(symbols + 3, spec.hidden)
        sizes = spec.hidden, spec.heads, spec.layers, spec.layers, spec.feedforward
        self.body = nn.Transformer(*sizes, dropout=0.0, batch_first=True, norm_first=True)
        self.output = nn.Linear(spec.hidden, symbols)
        angles = torch.outer(torch.arange(1000.0), 1e4 ** -torch.linspace(0, 1, spec.hidden // 2))
        self.register_buffer("positions", torch.cat([angles.sin(), angles.cos()], -1))

    def forward(self, batch: Batch, watch: bool = False) -> tuple[Tensor, None]:
        n, k = batch.source.shape[1], batch.target.shape[1]
        positions = self.get_buffer("positions")
        source = self.source_embedding(batch.source) + positions[:n]
        target = self.target_embedding(batch.decoder_input) + positions[:k]
        causal = nn.Transformer.generate_square_subsequent_mask(k)
        return self.output(self.body(source, target, tgt_mask=causal, tgt_is_causal=True)), None


def changed_model(at: Point, changed: dict[str, object]) -> Point:
    return replace(at, model=at.model.model_copy(update=changed))


def of_kind(kind: str, n: int, layers: int = 1) -> Point:
    return changed_model(point("gru", "none", "bahdanau", n), {"kind": kind, "layers": layers})


def agree(at: Point) -> None:
    """Assert that a deep model and its plain loop have the same losses over a few steps."""
    ours, theirs = Trainer(at, build_model(at), gradlab_loss), Trainer(at, UsualDeep(at))
    for number in range(3):
        torch.testing.assert_close(ours.step(number), theirs.step(number), rtol=1e-7, atol=0)


def compare(label: str, at: Point, other: nn.Module, rounds: int) -> None:
    candidates: dict[str, Work] = {
        "gradlab": partial(Trainer(at, build_model(at), gradlab_loss).step, 0),
        "other": partial(Trainer(at, other).step, 0),
    }
    took = take_turns(candidates, rounds)
    cells = [spread([1000 * each for each in seconds], 1) for seconds in took.values()]
    cells.append(ratios(took["other"], took["gradlab"], 2))
    print(f"{label:44}" + "".join(f"{cell:>24}" for cell in cells), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="What a training step of the family costs.")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'':44}{'gradlab, ms':>24}{'plain torch, ms':>24}{'plain / gradlab':>24}")
    for n in (20, 50):
        for score in SCORES:
            for timing in ("luong", "bahdanau"):
                check(point("gru", score, timing, 6, small=True))
                at = point("gru", score, timing, n)
                compare(f"{score}, {timing}, n = {n}", at, UsualSeq2Seq(at), asked.rounds)
        for scope in ("local_monotonic", "local_predictive"):
            for timing in ("luong", "bahdanau"):
                local: dict[str, object] = {"scope": scope}
                check(changed_model(point("gru", "general", timing, 6, small=True), local))
                at = changed_model(point("gru", "general", timing, n), local)
                compare(f"general, {scope}, {timing}, n = {n}", at, UsualSeq2Seq(at), asked.rounds)
        for timing, layers, feeds in DEEP:
            changed: dict[str, object] = {"layers": layers, "input_feeding": feeds}
            agree(changed_model(point("gru", "additive", timing, 6, small=True), changed))
            at = changed_model(point("gru", "additive", timing, n), changed)
            named = f"{timing}, feeding" if feeds else timing
            compare(f"{layers} layers, {named}, n = {n}", at, UsualDeep(at), asked.rounds)
        at = of_kind("synchronous", n)
        compare(f"synchronous, n = {n}", at, UsualSynchronous(at), asked.rounds)
        for layers in (1, 2):
            at = of_kind("transformer", n, layers)
            label = f"transformer, {layers} layers, n = {n}"
            compare(label, at, TorchTransformer(at), asked.rounds)


if __name__ == "__main__":
    main()
