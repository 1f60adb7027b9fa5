"""Copy and reverse: batches of symbols, pure in (task, generator).

Symbol ids: data symbols 0 .. V-1, then BOS = V, BLANK = V + 1, PAD = V + 2. BOS starts the decoder
in training and in decoding alike; none of the three is ever drawn as data.

Shapes: B examples, n symbols, `delay` blanks, T = longest source (n + delay), k = longest target
(n, or `keep`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gradlab.errors import GradlabError
from gradlab.schema import Task
from gradlab.seeding import keyed_generator

SPECIAL_SYMBOLS = 3


def bos(symbols: int) -> int:
    """Id of the symbol that starts every decoder input."""
    return symbols


def blank(symbols: int) -> int:
    """Id of the symbol that fills the delay after the data."""
    return symbols + 1


def pad(symbols: int) -> int:
    """Id of the symbol that fills shorter examples of a batch."""
    return symbols + 2


@dataclass(frozen=True)
class Batch:
    """Sources and targets of B examples, padded on the right.

    source: (..., B, T) int64; source_lengths: (..., B), data symbols and blanks.
    target: (..., B, k) int64; target_lengths: (..., B).
    symbols: V.
    read: (..., B, k) int64, what the decoder reads at each step where that is not the truth.
    """

    source: Tensor
    source_lengths: Tensor
    target: Tensor
    target_lengths: Tensor
    symbols: int
    read: Tensor | None = None

    def __post_init__(self) -> None:
        for name in ("source", "target"):
            ids, lengths = getattr(self, name), getattr(self, f"{name}_lengths")
            if lengths.numel() == 0:
                raise GradlabError("a batch needs at least one example, found none")
            if int(lengths.min()) < 1 or int(lengths.max()) > ids.shape[-1]:
                raise GradlabError(
                    f"every {name} needs between 1 and {ids.shape[-1]} symbols, found lengths "
                    f"{int(lengths.min())} to {int(lengths.max())}"
                )

    @property
    def source_mask(self) -> Tensor:
        """(..., B, T) bool: True where the source is real, False on pads."""
        return _mask(self.source_lengths, self.source.shape[-1])

    @property
    def target_mask(self) -> Tensor:
        """(..., B, k) bool: True where the target is real, False on pads."""
        return _mask(self.target_lengths, self.target.shape[-1])

    @property
    def decoder_input(self) -> Tensor:
        """(..., B, k): BOS, y_1 .. y_{k-1}, the target shifted by one step; or `read` if given."""
        if self.read is not None:
            return self.read
        start = torch.full_like(self.target[..., :1], bos(self.symbols))
        return torch.cat([start, self.target[..., :-1]], dim=-1)

    def to(self, device: torch.device | str) -> Batch:
        """Return the same batch with its tensors on `device`."""
        return self._with(lambda tensor: tensor.to(device))

    def examples(self, rows: slice) -> Batch:
        """Return some of the examples (of a batch without further leading axes)."""
        return self._with(lambda tensor: tensor[rows])

    def _with(self, change: Callable[[Tensor], Tensor]) -> Batch:
        lengths = change(self.source_lengths), change(self.target_lengths)
        read = None if self.read is None else change(self.read)
        sides = change(self.source), lengths[0], change(self.target), lengths[1]
        return Batch(*sides, self.symbols, read)


def _mask(lengths: Tensor, width: int) -> Tensor:
    return torch.arange(width, device=lengths.device) < lengths.unsqueeze(-1)


def copy_target(data: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """y_j = x_j."""
    return data


def reverse_target(data: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """y_j = x_{n+1-j} within each example's own length n."""
    mirrored = lengths[:, None] - 1 - np.arange(data.shape[1])
    return np.take_along_axis(data, np.maximum(mirrored, 0), axis=1)


TASKS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "copy": copy_target,
    "reverse": reverse_target,
}


def draw_batch(
    task: Task, examples: int, generator: np.random.Generator, length: int | None = None
) -> Batch:
    """Draw `examples` sequences whose symbols are uniform over the V data symbols.

    Their number of symbols n is uniform in [task.min_length, task.length], or exactly `length`
    where one is given. Source = the n symbols then `delay` blanks; target = the n symbols in the
    order that the task asks for, or the first `task.keep` of them.

    With `task.reverse_source` the n symbols are read backwards, before the blanks, and the target
    stays (Sutskever et al. 2014, section 3.3): "copy" gives back x_1 .. x_n after reading
    x_n .. x_1, so that x_1 is close to its answer; "reverse" gives back what was read, in order.
    Neither key changes what is drawn: with and without it, examples are the same.
    """
    if examples < 1 or (length is not None and length < 1):
        raise GradlabError(
            f"a batch needs at least 1 example and length 1, found {examples} and {length}"
        )
    shortest = length or task.min_length or task.length
    longest = length or task.length
    lengths = generator.integers(shortest, longest + 1, size=examples)
    data = generator.integers(0, task.symbols, size=(examples, longest))[:, : lengths.max()]
    steps = np.arange(lengths.max() + task.delay)
    source = np.full((examples, len(steps)), blank(task.symbols))
    source[:, : data.shape[1]] = reverse_target(data, lengths) if task.reverse_source else data
    source = np.where(steps < lengths[:, None], source, blank(task.symbols))
    source = np.where(steps < lengths[:, None] + task.delay, source, pad(task.symbols))
    target = TASKS[task.name](data, lengths)
    target = np.where(np.arange(data.shape[1]) < lengths[:, None], target, pad(task.symbols))
    target = target[:, : task.keep]
    return Batch(
        source=torch.from_numpy(source),
        source_lengths=torch.from_numpy(lengths + task.delay),
        target=torch.from_numpy(target),
        target_lengths=torch.from_numpy(np.minimum(lengths, target.shape[1])),
        symbols=task.symbols,
    )


def training_batch(task: Task, examples: int, seed: int, step: int) -> Batch:
    """Return the batch of training step `step`: the same for every model at this seed."""
    identity = (task.name, task.length, task.min_length or task.length, task.symbols, task.delay)
    return draw_batch(task, examples, keyed_generator("training", seed, *identity, examples, step))


def probe_batch(task: Task, examples: int, seed: int, length: int) -> Batch:
    """Return the held-out examples of source length `length`, the same whatever was trained on.

    They serve twice: accuracy and loss are evaluated on them, and gradients are measured on them.
    """
    key = ("probe", seed, task.name, task.symbols, task.delay, length)
    return draw_batch(task, examples, keyed_generator(*key), length)
