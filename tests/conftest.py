"""Puts `tests/` on the import path, so that every test can import the twins of `reference`."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    """Tensors are tiny here: more threads only wait for each other."""
    import torch

    torch.set_num_threads(1)
