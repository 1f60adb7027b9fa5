"""Decoding a symbol at a time, whatever the model: it reads what it said, or the truth."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor

from gradlab.tasks import Batch

State = TypeVar("State")


@torch.no_grad()
def decode_freely(
    batch: Batch,
    step: Callable[[Tensor, State], tuple[Tensor, State]],
    state: State,
    forced: Tensor | None = None,
) -> Tensor:
    """Return the greedy symbols of the k target steps, (..., B, k).

    step: takes the symbols read (..., B, 1) and the state, and gives the logits (..., B, 1, V) and
    the next state. The first symbol read is BOS.
    forced: (..., B, k) bool; where True, the step after reads the true symbol instead of the one
    said. None: nowhere.
    """
    symbol = batch.decoder_input[..., :1]
    symbols = []
    for j in range(batch.target.shape[-1]):
        logits, state = step(symbol, state)
        symbol = logits.argmax(-1)
        symbols.append(symbol)
        if forced is not None:
            now = slice(j, j + 1)
            symbol = torch.where(forced[..., now], batch.target[..., now], symbol)
    return torch.cat(symbols, dim=-1)


def symbols_read(batch: Batch, said: Tensor, forced: Tensor) -> Tensor:
    """Return what each target step reads, (..., B, k): BOS, then the truth where forced, else said.

    said: (..., B, k), greedy symbols; forced: as in `decode_freely`, which read these very symbols.
    """
    after = torch.where(forced, batch.target, said)
    start = batch.decoder_input[..., :1].expand(*after.shape[:-1], 1)
    return torch.cat([start, after[..., :-1]], dim=-1)
