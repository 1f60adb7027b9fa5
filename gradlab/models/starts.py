"""Recurrent weights that start in a controlled way: g times an orthogonal matrix or the identity.

A linear recurrence h_i = g Q h_{i-1} with Q orthogonal scales every gradient by exactly g a step
(Saxe et al. 2014), so g < 1 is vanishing, g > 1 exploding, and g = 1 neither. Le et al. 2015 start
at the identity; both draws are compared by Arjovsky et al. 2016. A cell with gates has a block for
each gate, and each block starts so; what its gates then do to the gradient is the cell's own.

The recurrent biases, input side and hidden side, start at zero as in Le et al. 2015: a bias would
drive the state away from 0, where tanh has slope 1 and the sigmoid is 1/2, and the slope of the
non-linearity would then hide the gain.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from gradlab.seeding import keyed_generator


def orthogonal(size: int, *key: object) -> Tensor:
    """Draw a matrix uniformly from the orthogonal ones (Haar), (size, size) in float64.

    QR of normal draws, each column's sign fixed by the diagonal of R (Mezzadri 2007).
    """
    q, r = np.linalg.qr(keyed_generator(*key).standard_normal((size, size)))
    return torch.from_numpy(q * np.sign(np.diagonal(r)))


def identity(size: int, *key: object) -> Tensor:
    """Return the identity, (size, size) in float64; nothing is drawn."""
    return torch.eye(size, dtype=torch.float64)


STARTS: dict[str, Callable[..., Tensor]] = {"orthogonal": orthogonal, "identity": identity}


def controlled(
    init: str, gain: float, gates: int, hidden: int, seed: int, name: str, layer: str
) -> dict[str, Tensor]:
    """Return the recurrent weights (gates * hidden, hidden) and both biases of a layer of `name`.

    init: "orthogonal" or "identity"; every gate's block is gain times one. In float64.
    """
    key = seed, f"{name}.weight_hh_{layer}"
    blocks = [gain * STARTS[init](hidden, *key, gate) for gate in range(gates)]
    zeros = torch.zeros(gates * hidden, dtype=torch.float64)
    return {
        f"weight_hh_{layer}": torch.cat(blocks),
        f"bias_ih_{layer}": zeros,
        f"bias_hh_{layer}": zeros,
    }
