"""The training pass of an encoder-decoder LSTM without attention, by torch's fused layers.

They are the equations of `cells.LSTM` in one kernel over all timesteps, which on x86 makes a
training step faster than a scan. They give h at every step, but c only at the last. Training
without attention needs no more; whatever is measured goes through the model's own forward pass.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gradlab.models.cells import State
from gradlab.models.layers import Embedding
from gradlab.models.recurrent import FIRST, Recurrent
from gradlab.models.seq2seq import Seq2Seq
from gradlab.tasks import Batch


def fused_logits(model: Seq2Seq, batch: Batch) -> Tensor:
    """Return `model(batch).logits`, (batch, k, V), up to rounding.

    Of one layer that reads in one direction, with the bridge "initial", no attention, and sources
    that all have the same length.
    """
    zeros = model.encoder.zero_state(batch.source.shape[:-1])
    _, last = _layer(model.encoder, model.source_embedding, batch.source, zeros)
    h, _ = _layer(model.decoder, model.target_embedding, batch.decoder_input, last)
    logits: Tensor = model.output(h)
    return logits


def _layer(
    recurrent: Recurrent, embedding: Embedding, ids: Tensor, initial: State
) -> tuple[Tensor, State]:
    """Return h at every step (batch, time, hidden) and the last (h, c), each (batch, hidden)."""
    names = "weight_ih", "weight_hh", "bias_ih", "bias_hh"
    weights = [recurrent.weight(name, FIRST) for name in names]
    x, first = embedding(ids).transpose(0, 1), [part.unsqueeze(0) for part in initial]
    h, *last = torch.lstm(
        *(x, first, weights),
        has_biases=True,
        num_layers=1,
        dropout=0.0,
        train=True,
        bidirectional=False,
        batch_first=False,
    )
    return h.transpose(0, 1), tuple(part.squeeze(0) for part in last)
