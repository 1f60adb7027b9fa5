"""The tensors of one forward pass, named and shaped, the way lecture notes walk through a model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from gradlab.grid import Point
from gradlab.lab.run import build_model
from gradlab.models.loss import example_loss, token_loss
from gradlab.models.seq2seq import Seq2Seq
from gradlab.models.trace import Trace
from gradlab.tasks import Batch, training_batch

SYMBOLS = {
    "B": "examples in the batch",
    "n": "source steps (with the delay's blanks)",
    "k": "target steps",
    "H": "hidden size",
    "E": "embedding size",
    "V": "data symbols",
}


@dataclass(frozen=True)
class Row:
    """One tensor: its name, its shape in numbers and in symbols, and what it is."""

    name: str
    shape: tuple[int, ...]
    symbols: str
    meaning: str


@torch.no_grad()
def walk_through(point: Point) -> list[Row]:
    """Return the tensors of one forward pass of the point's model on a training batch, in order."""
    model = build_model(point)
    batch = training_batch(point.task, point.training.batch, point.seed, 0)
    trace = model(batch)
    parts = [*_encoder(model, batch, trace), *_attention(trace), *_decoder(model, batch, trace)]
    reduction = point.record.loss
    loss = example_loss(trace.logits, batch, reduction)
    parts += [
        ("token_loss", token_loss(trace.logits, batch), "B k", "-log p(y_j), nats"),
        ("loss", loss, "B", f"per example, {reduction} over its target tokens, nats"),
    ]
    return [
        Row(name, tuple(tensor.shape), f"({', '.join(symbols.split())})", meaning)
        for name, tensor, symbols, meaning in parts
    ]


Part = tuple[str, Tensor, str, str]


def _encoder(model: Seq2Seq, batch: Batch, trace: Trace) -> Iterator[Part]:
    yield "source", batch.source, "B n", "symbol ids x_1 .. x_n"
    yield (
        "source_embedded",
        model.source_embedding(batch.source),
        "B n E",
        "one row of source_embedding a symbol",
    )
    yield "encoder_states", trace.encoder_states[0], "B n H", "h_i = cell(x_i, h_{i-1}), h_0 = 0"
    if len(trace.encoder_states) > 1:
        yield "encoder_cells", trace.encoder_states[1], "B n H", "c_i, the LSTM's cell state"
    for name, part in zip(model.state_names, trace.edges.bridge, strict=False):
        fed = ", also fed at each decoder step" if model.spec.bridge == "every_step" else ""
        what = f"the last {name}_n sets the decoder's first state{fed if name == 'h' else ''}"
        yield f"bridge.{name}", part, "B H", what


def _attention(trace: Trace) -> Iterator[Part]:
    decoded = trace.decoded
    tensors = (trace.memory.projected_keys, decoded.query, decoded.scores, decoded.weights)
    keys, query, scores, weights = tensors
    if keys is None or query is None or scores is None or weights is None:
        return
    assert trace.edges.values is not None
    assert decoded.context is not None
    yield "values", trace.edges.values, "B n H", "the encoder states, to be summed"
    yield "projected_keys", keys, "B n H", "the encoder states, as they are scored"
    yield "query", query, "B k H", "the decoder state that asks at target step j"
    yield "scores", scores, "B k n", "e_ji = score(query_j, key_i)"
    yield "attention_weights", weights, "B k n", "alpha_ji = softmax over i of e_ji"
    yield "context", decoded.context, "B k H", "c_j = sum over i of alpha_ji h_i"


def _decoder(model: Seq2Seq, batch: Batch, trace: Trace) -> Iterator[Part]:
    step = "cell([y_{j-1}; c_j], s_{j-1})" if model.bahdanau else "cell(y_{j-1}, s_{j-1})"
    readout = "output(tanh(combine([c_j; s_j])))" if model.luong else "output(s_j)"
    yield "decoder_input", batch.decoder_input, "B k", "BOS, y_1 .. y_{k-1} (teacher forcing)"
    yield "decoder_states", trace.decoded.states[0], "B k H", f"s_j = {step}"
    yield "logits", trace.logits, "B k V", readout
    yield "target", batch.target, "B k", "symbol ids y_1 .. y_k"
