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
from gradlab.models.synchronous import Synchronous, SynchronousTrace
from gradlab.models.trace import Trace
from gradlab.models.transformer import Transformer, TransformerTrace
from gradlab.tasks import Batch, training_batch

SYMBOLS = {
    "B": "examples in the batch",
    "n": "source steps (with the delay's blanks)",
    "k": "target steps",
    "H": "hidden size",
    "E": "embedding size",
    "V": "data symbols",
    "heads": "attention heads",
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
    if isinstance(model, Transformer):
        parts = list(_transformer(batch, trace))
    elif isinstance(model, Synchronous):
        parts = [*_encoder(model, batch, trace), *_outputs(batch, trace)]
    else:
        parts = [*_encoder(model, batch, trace), *_bridge(model, trace), *_attention(model, trace)]
        parts += _decoder(model, batch, trace)
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


def _encoder(
    model: Seq2Seq | Synchronous, batch: Batch, trace: Trace | SynchronousTrace
) -> Iterator[Part]:
    yield "source", batch.source, "B n", "symbol ids x_1 .. x_n"
    yield (
        "source_embedded",
        model.source_embedding(batch.source),
        "B n E",
        "one row of source_embedding a symbol",
    )
    layers = trace.encoded.layers
    for index, states in enumerate(layers, start=1):
        own, where = _layer(index, len(layers))
        reads = "x_i" if index == 1 else f"h_i of layer {index - 1}"
        both = "; backward h_{i+1} beside it" if model.spec.bidirectional else ""
        what = f"h_i = cell({reads}, h_{{i-1}}), h_0 = 0{both}{where}"
        yield f"encoder_states{own}", states[0], f"B n {_features(model, states[0])}", what
        for cells in states[1:]:
            what = f"c_i, the LSTM's cell state{where}"
            yield f"encoder_cells{own}", cells, f"B n {_features(model, cells)}", what


def _layer(index: int, layers: int) -> tuple[str, str]:
    """Return what the names of a layer end in, nothing for the last, and which layer that is."""
    if layers == 1:
        return "", ""
    return f".{index}" if index < layers else "", f", layer {index}"


def _features(model: Seq2Seq | Synchronous, tensor: Tensor) -> str:
    """Return the symbol of the last axis: both directions of an encoder stand side by side."""
    return "2H" if tensor.shape[-1] == 2 * model.spec.hidden else "H"


def _outputs(batch: Batch, trace: SynchronousTrace) -> Iterator[Part]:
    yield "output", trace.output, "B k H", "h_{delay+j}, the state at the step of target j"
    yield "logits", trace.logits, "B k V", "output(h_{delay+j})"
    yield "target", batch.target, "B k", "symbol ids y_1 .. y_k"


def _bridge(model: Seq2Seq, trace: Trace) -> Iterator[Part]:
    count, layers = len(model.state_names), model.spec.layers
    left = "the mean of the {}_i" if model.spec.bridge == "mean" else "the last {}_n"
    for at, part in enumerate(trace.edges.bridge):
        own, where = _layer(at // count + 1, layers)
        name = model.state_names[at % count]
        fed = model.spec.bridge == "every_step" and name == "h" and not own
        what = f"{left.format(name)} sets the decoder's first state{where}"
        what += ", also fed at each decoder step" if fed else ""
        what += ", through bridge.weight" if model.bridge is not None else ""
        yield f"bridge.{name}{own}", part, f"B {_features(model, part)}", what


def _attention(model: Seq2Seq, trace: Trace) -> Iterator[Part]:
    decoded = trace.decoded
    tensors = (trace.memory.projected_keys, decoded.query, decoded.scores, decoded.weights)
    keys, query, scores, weights = tensors
    if keys is None or query is None or scores is None or weights is None:
        return
    assert trace.edges.values is not None
    assert decoded.context is not None
    read = _features(model, trace.edges.values)
    yield "values", trace.edges.values, f"B n {read}", "the encoder states, to be summed"
    if trace.edges.keys is not None:
        scored = _features(model, keys)
        yield "projected_keys", keys, f"B n {scored}", "the encoder states, as they are scored"
    yield "query", query, "B k H", "the decoder state that asks at target step j"
    yield "scores", scores, "B k n", "e_ji = score(query_j, key_i)"
    where = "i" if model.spec.scope == "global" else f"the i of a {model.spec.scope} window"
    near = ", times nearness" if model.scope.layer_names else ""
    yield "attention_weights", weights, "B k n", f"alpha_ji = softmax over {where} of e_ji{near}"
    yield "context", decoded.context, f"B k {read}", "c_j = sum over i of alpha_ji h_i"


def _decoder(model: Seq2Seq, batch: Batch, trace: Trace) -> Iterator[Part]:
    inputs = "[y_{j-1}; a_{j-1}]" if model.feeds else "y_{j-1}"
    inputs = "[y_{j-1}; c_j]" if model.bahdanau else inputs
    readout = "output(a_j), a_j = tanh(combine([c_j; s_j]))" if model.feeds else "output(s_j)"
    if model.luong and not model.feeds:
        readout = "output(tanh(combine([c_j; s_j])))"
    yield "decoder_input", batch.decoder_input, "B k", "BOS, y_1 .. y_{k-1} (teacher forcing)"
    for index, states in enumerate(trace.decoded.states[:: len(model.state_names)], start=1):
        own, where = _layer(index, model.spec.layers)
        reads = inputs if index == 1 else f"s_j of layer {index - 1}"
        yield f"decoder_states{own}", states, "B k H", f"s_j = cell({reads}, s_{{j-1}}){where}"
    yield "logits", trace.logits, "B k V", readout
    yield "target", batch.target, "B k", "symbol ids y_1 .. y_k"


def _transformer(batch: Batch, trace: TransformerTrace) -> Iterator[Part]:
    encoded, edges, decoded = trace.encoded, trace.edges, trace.decoded
    yield "source", batch.source, "B n", "symbol ids x_1 .. x_n"
    yield "source_embedded", encoded.embedded, "B n H", "h^0_i = embedding(x_i) + position(i)"
    for layer, states in enumerate(encoded.states, 1):
        what = f"h^{layer}_i: self-attention, then feed-forward, each added to h^{layer - 1}"
        yield f"encoder_states.{layer}", states, "B n H", what
    last = len(encoded.states)
    yield "memory", encoded.memory, "B n H", f"norm(h^{last}_i), what the decoder reads"
    yield "decoder_input", batch.decoder_input, "B k", "BOS, y_1 .. y_{k-1} (teacher forcing)"
    yield "target_embedded", decoded.embedded, "B k H", "s^0_j = embedding(y_{j-1}) + position(j)"
    for layer, states in enumerate(decoded.states, 1):
        i = layer - 1
        yield f"queries.{layer}", decoded.queries[i], "B k H", "what asks, after self-attention"
        yield f"keys.{layer}", edges.keys[i], "B n H", "the memory, to be scored"
        yield f"values.{layer}", edges.values[i], "B n H", "the memory, to be summed"
        what = "alpha_ji of every head, softmax over i"
        yield f"attention_weights.{layer}", decoded.head_weights[i], "B heads k n", what
        what = f"s^{layer}_j: s^{i} after self-attention, cross-attention and feed-forward"
        yield f"decoder_states.{layer}", states, "B k H", what
    yield "logits", trace.logits, "B k V", f"output(norm(s^{last}_j))"
    yield "target", batch.target, "B k", "symbol ids y_1 .. y_k"
