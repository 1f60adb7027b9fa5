"""Hand-written passes, which autograd need not watch: it sees what goes in and what comes out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch


@contextmanager
def unrecorded(by_hand: bool = True) -> Iterator[None]:
    """Pass every operation by autograd, which costs up to a microsecond even to record nothing.

    Nothing in it can be differentiated, also where gradients are enabled again; so where a part of
    it asks autograd, and is not `by_hand`, this does nothing. Unlike in `torch.inference_mode`,
    what is made are ordinary tensors, which a backward pass may keep.
    """
    with torch._C._AutoDispatchBelowAutograd() if by_hand else nullcontext():
        yield
