"""Random numbers keyed by what they are for, so that no draw depends on the order of draws."""

from __future__ import annotations

import hashlib

import numpy as np


def keyed_generator(*key: object) -> np.random.Generator:
    """Return a generator that depends on `key` alone: same key, same numbers, in any process.

    The key's parts are hashed by their `repr`, so they must be plain numbers and strings. NumPy's
    generator is used because it takes all 256 bits; torch's CPU generator keeps only 32 of a seed,
    and the batches of a long sweep would start to repeat each other.
    """
    digest = hashlib.sha256("\x1f".join(map(repr, key)).encode()).digest()
    return np.random.default_rng(int.from_bytes(digest, "big"))
