"""Decoding with the truth mixed in: what is read, what is said, and one forward pass agrees."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from reference import build, make_batch

from gradlab.models.decoding import decode_freely, symbols_read
from gradlab.tasks import bos

SPECS: list[dict[str, Any]] = [
    {"attention": "none"},
    {"attention": "none", "bridge": "every_step", "cell": "lstm"},
    {"attention": "additive", "timing": "bahdanau"},
    {"attention": "additive", "timing": "luong", "cell": "rnn"},
]


def test_each_step_reads_the_truth_where_forced_and_else_what_was_said() -> None:
    batch = make_batch("copy", [4])
    forced = torch.tensor([[True, False, False, True]])
    read = []

    def step(symbol: torch.Tensor, state: int) -> tuple[torch.Tensor, int]:
        """Say 0, 1, 2, 3, whatever is read."""
        read.append(int(symbol))
        return torch.eye(4)[state][None, None], state + 1

    said = decode_freely(batch, step, 0, forced)
    first = int(batch.target[0, 0])
    assert said.tolist() == [[0, 1, 2, 3]]
    assert read == [bos(4), first, 1, 2]
    assert symbols_read(batch, said, forced).tolist() == [read]


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_the_forward_pass_over_the_symbols_read_says_the_same(spec: dict[str, Any]) -> None:
    model, batch = build(**spec), make_batch("copy", [6, 4, 5], seed=2)
    forced = torch.rand(3, 6, generator=torch.Generator().manual_seed(1)) < 0.5
    said = model.greedy(batch, forced)
    read = symbols_read(batch, said, forced)
    logits = model(replace(batch, read=read)).logits
    assert torch.equal(logits.argmax(-1)[batch.target_mask], said[batch.target_mask])
    wrong = said != batch.target
    mixed = (forced & wrong & batch.target_mask)[:, :-1]
    assert bool(mixed.any()) and bool((~forced & wrong)[:, :-1].any())


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_the_ends_are_teacher_forcing_and_free_running(spec: dict[str, Any]) -> None:
    model, batch = build(**spec), make_batch("reverse", [5, 3])
    always, never = torch.ones(2, 5, dtype=torch.bool), torch.zeros(2, 5, dtype=torch.bool)
    free = model.greedy(batch)
    assert torch.equal(model.greedy(batch, never), free)
    assert torch.equal(symbols_read(batch, free, never)[:, 1:], free[:, :-1])
    forced = model.greedy(batch, always)
    assert torch.equal(symbols_read(batch, forced, always), batch.decoder_input)
    teacher_forced = model(batch).logits.argmax(-1)
    assert torch.equal(forced[batch.target_mask], teacher_forced[batch.target_mask])
