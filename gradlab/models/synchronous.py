"""The synchronous model: one output per input step, no context vector and no decoder.

    encoder     h_i = cell(x_i, h_{i-1}), h_0 = 0
    output      logits_j = output(h_{delay+j}), j = 1 .. n        h of the last layer

Target j stands at step delay + j; the other steps are not scored. y_j is read from a state that
has seen x_1 .. x_{delay+j} and nothing later, so a copy is trivial, while the first
floor((n - delay) / 2) targets of a reverse ask for symbols that come only later: chance, 1/V. The
delay buys future context by hand (Graves 2012, section 3.2.4); an encoder-decoder reads the whole
source before it answers, and pays with the context vector (Cho et al. 2014; Sutskever et al. 2014).
Nothing is fed back: teacher-forced and free-running are the same.

Padded positions need no mask in the recurrence: no scored step comes after one.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from gradlab import schema
from gradlab.errors import GradlabError
from gradlab.models.cells import CELLS, State
from gradlab.models.encoder import Encoder
from gradlab.models.layers import Embedding, Readout, draw_parameters
from gradlab.models.trace import Encoded
from gradlab.tasks import SPECIAL_SYMBOLS, Batch


@dataclass(frozen=True)
class SynchronousTrace:
    """One forward pass: what the adjoint needs and what a lecture wants to see.

    output: the exit edge, h of the last layer at the steps where targets stand, a tensor of its own
    that gradients can be asked for, (..., batch, k, hidden). logits: (..., batch, k, V).
    """

    encoded: Encoded
    output: Tensor
    logits: Tensor

    @property
    def encoder_states(self) -> State:
        """The states of the last layer."""
        return self.encoded.states


class Synchronous(nn.Module):
    """The synchronous model of a `[model]` table, over V data symbols, drawn for a seed.

    It starts from the same embedding and encoder as an encoder-decoder of that seed. Parameters may
    be stacked on leading axes; then everything it returns has those axes too.
    """

    def __init__(self, spec: schema.Model, symbols: int, seed: int = 0) -> None:
        super().__init__()
        self.spec, self.symbols = spec, symbols
        self.source_embedding = Embedding(symbols + SPECIAL_SYMBOLS, spec.embedding)
        sizes = {"embedding": spec.embedding}, spec.hidden
        self.encoder = Encoder(spec.cell, *sizes, spec.init, spec.gain, spec.layers)
        self.output = Readout(spec.hidden, symbols)
        draw_parameters(self, seed)

    @property
    def state_names(self) -> tuple[str, ...]:
        """("h",), or ("h", "c") for the LSTM."""
        return CELLS[self.spec.cell].states

    def forward(self, batch: Batch) -> SynchronousTrace:
        """Read the source and answer at each scored step."""
        encoded = self.encode(batch)
        output = self.exit_edge(encoded, batch)
        return SynchronousTrace(encoded, output, self.output(output))

    def encode(self, batch: Batch) -> Encoded:
        """Run the recurrent layers over the source."""
        return self.encoder.read(self.source_embedding, batch)

    def exit_edge(self, encoded: Encoded, batch: Batch) -> Tensor:
        """Return h of the last layer at the step of each target, (..., batch, k, hidden)."""
        h = encoded.states[0]
        steps = scored_steps(batch).expand(*h.shape[:-2], -1)
        return torch.take_along_dim(h, steps.unsqueeze(-1), -2)

    @torch.no_grad()
    def greedy(self, batch: Batch) -> Tensor:
        """Return the most probable symbol of every target, (..., batch, k); none is fed back."""
        logits: Tensor = self(batch).logits
        return logits.argmax(-1)


def scored_steps(batch: Batch) -> Tensor:
    """Return the source step, from 0, at which each target stands: delay + j - 1, (..., batch, k).

    The delay of an example is its source length less its target length. Padded targets point at
    steps that exist, and are not scored. Raises GradlabError if a target is longer than its source.
    """
    delay = batch.source_lengths - batch.target_lengths
    if int(delay.min()) < 0:
        raise GradlabError(
            "synchronous: expected targets no longer than their source, one at a step; found a "
            f"target that is {-int(delay.min())} longer"
        )
    targets = torch.arange(batch.target.shape[-1], device=delay.device)
    return (delay.unsqueeze(-1) + targets).clamp(max=batch.source.shape[-1] - 1)
