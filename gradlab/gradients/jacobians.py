"""What the encoder's recurrence does to any gradient: step Jacobians, their products, exponents.

    J_i = dz_i / dz_{i-1}                      (D, D); z = h, or the pair (h, c); z_0 = 0
    P_i = dz_n / dz_i = J_n J_{n-1} .. J_{i+1}   P_n = I; the bridge's gradient at i is P_i^T d_n
    J_i Q_{i-1} = Q_i R_i,  Q_0 = I            exponent k = (1/n) sum_i log |R_i[k, k]|

D is H, or 2H for the LSTM. A gradient that enters at the last state alone has a norm between
sigma_min(P_i) and sigma_max(P_i) times that of d_n. The exponents say the same per timestep: the
largest is the rate, in nats, at which almost every gradient shrinks or grows (Engelken et al. 2023,
section II, with all n steps and no transient left out; Pascanu et al. 2013 for the bounds).

J_i^T is the cell's own `adjoint` on an identity, all D rows at once on a leading axis. Products are
rescaled at each step and their scale kept as a logarithm, so nothing underflows. The smallest
singular value is 1 / sigma_max(P_i^-1), from J_i^-1 P_i^-1 built up by solving: in P_i itself it
drowns in rounding once it is 1e-16 of the largest. Relative errors grow like n times float64's
1.1e-16, and for sigma_min times the condition number of one J_i, never of the product.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from gradlab.errors import GradlabError
from gradlab.gradients.measurement import DIRECTIONS
from gradlab.models.cells import CELLS, Cell, Coefficients
from gradlab.models.family import AnyModel
from gradlab.models.seq2seq import Seq2Seq
from gradlab.models.synchronous import Synchronous
from gradlab.models.transformer import Transformer
from gradlab.tasks import Batch

NO_RECURRENCE = "jacobians: expected a recurrent encoder, found a transformer's"
CHUNK = 2**22
"""Numbers held for the examples of one chunk, about: 32 MiB in each of a few tensors."""


@dataclass(frozen=True)
class Jacobians:
    """Natural logarithms of singular values at every position, and the exponents; by example.

    Of one layer read in one direction, the states of the layer below held fixed. Positions are the
    source's; z_0 stands before position 1, or after position n where it is read backwards, and the
    end is the last position read.
    log_sigma_max: (batch, n), of J_i. log_sigma_max_to_end, log_sigma_min_to_end: (batch, n), of
    P_i. All in nats, -inf where a singular value is exactly zero.
    lyapunov: (batch, D) nats per timestep, sorted from the largest.
    An example with a Jacobian that is not finite is NaN throughout.
    """

    log_sigma_max: Tensor
    log_sigma_max_to_end: Tensor
    log_sigma_min_to_end: Tensor
    lyapunov: Tensor


@torch.no_grad()
def jacobians(
    model: AnyModel, batch: Batch, layer: int = 1, direction: str = "forward"
) -> Jacobians:
    """Measure a layer's Jacobians along every example of `batch`; `model` is untouched.

    float64 whatever the model's dtype. Examples are taken in chunks, one (D, D) matrix of each at a
    time, so memory does not grow with the number of examples.
    Raises GradlabError where source lengths differ, the model holds several seeds or it has no
    recurrence.
    """
    if isinstance(model, Transformer):
        raise GradlabError(NO_RECURRENCE)
    lengths = sorted(set(batch.source_lengths.flatten().tolist()))
    if len(lengths) > 1 or lengths[0] != batch.source.shape[-1]:
        raise GradlabError(
            f"jacobians: expected a batch of one source length without padding, found lengths "
            f"{lengths} in a source of {batch.source.shape[-1]} steps"
        )
    if model.encoder.weight_hh_l0.dim() > 2 or batch.source.dim() > 2:
        raise GradlabError("jacobians: expected one model, found several stacked; pass them singly")
    twin = copy.deepcopy(model).to(torch.float64)
    size, steps = len(model.state_names) * model.spec.hidden, batch.source.shape[-1]
    examples = max(1, CHUNK // (size * (size + 16 * steps)))  # a forward pass holds about 16 D n
    rows = torch.arange(len(batch.source), device=batch.source.device)
    name = _suffix(twin, layer, direction)
    chunks = [_of_chunk(twin, batch, some, name) for some in torch.split(rows, examples)]
    found = Jacobians(*(torch.cat(part) for part in zip(*chunks, strict=True)))
    if direction == "forward":
        return found
    names = ("log_sigma_max", "log_sigma_max_to_end", "log_sigma_min_to_end")
    return replace(found, **{name: getattr(found, name).flip(-1) for name in names})


def tables(model: AnyModel, batch: Batch) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the rows of the `jacobians` and `lyapunov` tables for every layer and direction."""
    if isinstance(model, Transformer):
        raise GradlabError(NO_RECURRENCE)
    found = [
        as_tables(jacobians(model, batch, layer, direction), layer, direction)
        for layer in range(1, model.encoder.layers + 1)
        for direction in DIRECTIONS[: len(model.encoder.ways)]
    ]
    sigmas, exponents = (pd.concat(part, ignore_index=True) for part in zip(*found, strict=True))
    return sigmas, exponents


def as_tables(
    measured: Jacobians, layer: int = 1, direction: str = "forward"
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the rows of the `jacobians` and `lyapunov` tables for one layer and direction.

    sigma_max, sigma_max_to_end, sigma_min_to_end: geometric means over examples, without a unit. A
    singular value of a product is a product over steps, so it is its logarithm that adds up over
    steps and spreads evenly over examples; an arithmetic mean would be the largest few examples'.
    It is also what a fitted slope and an exponent average. 0 where a value of some example is
    exactly zero, or the mean is below 5e-324, the least float64; `Jacobians` has the logarithms.
    exponent: arithmetic mean over examples, nats per timestep; index 1 is the largest.
    """
    columns = ("log_sigma_max", "log_sigma_max_to_end", "log_sigma_min_to_end")
    sigmas = {
        name.removeprefix("log_"): getattr(measured, name).mean(0).exp().cpu().numpy()
        for name in columns
    }
    exponents = measured.lyapunov.mean(0).cpu().numpy()
    place = {"layer": layer, "direction": direction}
    positions = np.arange(1, measured.log_sigma_max.shape[-1] + 1)
    index = np.arange(1, len(exponents) + 1)
    return (
        pd.DataFrame({**place, "position": positions, **sigmas}),
        pd.DataFrame({**place, "index": index, "exponent": exponents}),
    )


def _suffix(model: Seq2Seq | Synchronous, layer: int, direction: str) -> str:
    """Return torch's suffix of a layer and direction of the encoder."""
    return model.encoder.names(layer - 1)[DIRECTIONS.index(direction)]


def pascanu_bound(model: Seq2Seq | Synchronous) -> float | None:
    """Return sigma_max(W_hh) of a tanh RNN's first encoder layer, forward.

    Below 1, the gradient's norm surely shrinks at every step that it takes back in that layer.

    J_i = diag(1 - h_i^2) W_hh, so ||J_i^T d|| <= sigma_max(W_hh) ||d|| at every step, whatever the
    input. Sufficient, not necessary, and above 1 it says nothing (Pascanu et al. 2013, section
    2.1). None for gated cells, whose J_i has other terms.
    """
    if model.spec.cell != "rnn":
        return None
    weight = model.encoder.weight_hh_l0.detach().to(torch.float64)
    return float(torch.linalg.matrix_norm(weight, 2))


@torch.no_grad()
def pascanu_step_bounds(model: Seq2Seq | Synchronous, batch: Batch) -> Tensor | None:
    """Return sigma_max(W_hh) max_k (1 - h_i[k]^2) >= ||J_i||, (batch, n); None for gated cells."""
    bound = pascanu_bound(model)
    if bound is None:
        return None
    encoded = copy.deepcopy(model).to(torch.float64).encode(batch)
    (h,) = encoded.passes["l0"].states
    largest: Tensor = (1 - h * h).amax(-1)
    return bound * largest


def _of_chunk(
    model: Seq2Seq | Synchronous, batch: Batch, rows: Tensor, name: str
) -> tuple[Tensor, ...]:
    """Return the four tensors of `Jacobians` for some examples, in the order of reading."""
    names = ("source", "source_lengths", "target", "target_lengths")
    encoded = model.encode(replace(batch, **{name: getattr(batch, name)[rows] for name in names}))
    cell, encoder = CELLS[model.spec.cell], model.encoder
    run, (weight, _) = encoded.passes[name], encoder.hidden_weights(name)
    local = encoder.linearise(run.projected.full(), run.initial, run.states, name)  # time first
    broken = torch.zeros_like(rows, dtype=torch.bool)

    def jacobian(step: int) -> Tensor:
        found = step_jacobian(cell, tuple(part[step] for part in local), weight)
        bad = ~found.isfinite().all(-1).all(-1)
        broken.logical_or_(bad)
        return torch.where(bad[:, None, None], torch.eye(found.shape[-1]).to(found), found)

    steps = encoded.steps
    found = (*singular_values(jacobian, steps), exponents(jacobian, steps))
    return tuple(part.masked_fill(broken[:, None], torch.nan) for part in found)


def step_jacobian(cell: Cell, local: Coefficients, weight_hh: Tensor) -> Tensor:
    """Return J = dz' / dz (..., D, D) of one step, from the coefficients of its adjoint.

    local: tensors (..., features). Row k of J is J^T e_k, pulled back on a leading axis.
    """
    hidden, states = weight_hh.shape[-1], len(cell.states)
    rows = torch.eye(states * hidden).to(weight_hh)
    rows = rows.view(len(rows), *(1 for _ in local[0].shape[:-1]), len(rows))
    pulled = cell.adjoint(local, torch.split(rows, hidden, -1), weight_hh)
    return torch.cat(pulled, -1).movedim(0, -2)


def singular_values(jacobian: Callable[[int], Tensor], steps: int) -> tuple[Tensor, ...]:
    """Return log sigma_max(J_i), log sigma_max(P_i), log sigma_min(P_i), each (batch, steps).

    jacobian: step (from 0) -> J (batch, D, D), finite. Backwards in time: P_{i-1} = P_i J_i.
    """
    last = jacobian(steps - 1)
    product = inverse = _Scaled(torch.eye(last.shape[-1]).to(last).expand_as(last))
    history = []
    for step in range(steps - 1, -1, -1):
        j = jacobian(step)
        history.append((_Scaled(j).log_norm(), product.log_norm(), -inverse.log_norm()))
        product = _Scaled(product.matrix @ j, product.log_scale)
        solved, info = torch.linalg.solve_ex(j, inverse.matrix)
        singular = (info != 0) | ~solved.isfinite().all(-1).all(-1)
        solved = torch.where(singular[:, None, None], inverse.matrix, solved)
        lost = torch.where(singular, torch.inf, inverse.log_scale)
        inverse = _Scaled(solved, lost)
    return tuple(torch.stack(part[::-1], -1) for part in zip(*history, strict=True))


def exponents(jacobian: Callable[[int], Tensor], steps: int) -> Tensor:
    """Return all Lyapunov exponents (batch, D) over `steps`, nats per timestep, largest first.

    Over few steps they depend on Q_0; their sum does not: it is the mean of log |det J_i|.
    """
    total, q = torch.zeros(()), None
    for step in range(steps):
        j = jacobian(step)
        q, r = torch.linalg.qr(j if q is None else j @ q)
        total = total + r.diagonal(dim1=-2, dim2=-1).abs().log()
    return (total / steps).sort(-1, descending=True).values


class _Scaled:
    """The matrices exp(log_scale) * matrix (batch, D, D); the largest entry of `matrix` is 1."""

    def __init__(self, matrix: Tensor, log_scale: Tensor | float = 0.0) -> None:
        largest = matrix.abs().amax((-2, -1))
        self.matrix = matrix / torch.where(largest == 0, 1.0, largest)[:, None, None]
        self.log_scale = log_scale + largest.log()

    def log_norm(self) -> Tensor:
        """Return the logarithm of the largest singular value, (batch,)."""
        largest: Tensor = torch.linalg.svdvals(self.matrix)[:, 0]
        return self.log_scale + largest.log()
