"""Layers and directions: equal to their twins and to torch's own layers, and free of leaks."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from properties import (
    assert_a_target_reaches_later_logits_only,
    assert_each_example_as_alone,
    assert_greedy_is_teacher_forcing_fed_its_own_output,
    assert_pads_never_matter,
    assert_stacked_as_alone,
)
from reference import (
    DEEP,
    SOME_DEEP,
    TORCH_LAYERS,
    Twin,
    assert_close,
    build,
    label,
    make_batch,
)
from torch import Tensor

from gradlab.models.cells import CELLS
from gradlab.models.encoder import in_order

Spec = dict[str, Any]
LENGTHS = [4, 1, 6]


@pytest.mark.parametrize("spec", DEEP, ids=label)
def test_forward_is_the_twin_of_torch_cells(spec: Spec) -> None:
    model, batch = build(**spec), make_batch("copy", LENGTHS, delay=1)
    trace, twin = model(batch), Twin(model)
    for b, k in enumerate(LENGTHS):
        truth, n = twin.run(batch, b, "mean"), k + 1
        assert_close(trace.logits[b, :k].detach(), truth.logits[0].detach())
        top = twin.top(truth.states)
        assert_close(trace.encoder_states[0][b, :n].detach(), top[0].detach())
        for j, (alpha, context) in enumerate(zip(truth.weights, truth.contexts, strict=True)):
            assert_close(trace.decoded.weights[b, j, :n].detach(), alpha[0].detach())
            assert_close(trace.decoded.context[b, j].detach(), context[0].detach())


@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("two_way", [False, True])
@pytest.mark.parametrize("cell", CELLS)
def test_encoder_weights_load_into_torch_and_reproduce_the_states(
    cell: str, two_way: bool, layers: int
) -> None:
    model = build(cell=cell, layers=layers, bidirectional=two_way)
    batch = make_batch("copy", LENGTHS)
    layer = TORCH_LAYERS[cell](
        3, 4, num_layers=layers, bidirectional=two_way, batch_first=True
    ).double()
    layer.load_state_dict(model.encoder.state_dict())
    packed = torch.nn.utils.rnn.pack_padded_sequence(
        model.source_embedding(batch.source),
        batch.source_lengths,
        batch_first=True,
        enforce_sorted=False,
    )
    states, last = layer(packed)
    states, _ = torch.nn.utils.rnn.pad_packed_sequence(states, batch_first=True)
    encoded = model.encode(batch)
    for b, n in enumerate(LENGTHS):
        assert_close(encoded.states[0][b, :n].detach(), states[b, :n].detach(), rtol=1e-12)
    halves = last if cell == "lstm" else (last,)
    final = model.encoder.final(encoded)
    for index in range(layers):
        for s, half in enumerate(halves):
            of_layer = half.unflatten(0, (layers, -1))[index]
            expected = torch.cat(list(of_layer), dim=-1)
            found = final[index * len(halves) + s]
            assert_close(found.detach(), expected.detach(), rtol=1e-12)


@pytest.mark.parametrize("cell", CELLS)
def test_decoder_weights_load_into_torch_and_reproduce_the_states(cell: str) -> None:
    model, batch = build(cell=cell, layers=2, attention="none"), make_batch("copy", [5, 5])
    layer = TORCH_LAYERS[cell](3, 4, num_layers=2, batch_first=True).double()
    layer.load_state_dict(model.decoder.state_dict())
    trace, count = model(batch), len(CELLS[cell].states)
    first = tuple(torch.stack(trace.memory.first[s::count]) for s in range(count))
    inputs = model.target_embedding.weight[batch.decoder_input]
    states, _ = layer(inputs, first if count > 1 else first[0])
    assert_close(trace.decoded.states[-count].detach(), states.detach(), rtol=1e-12)


@pytest.mark.parametrize("spec", SOME_DEEP, ids=label)
def test_an_example_in_a_batch_equals_the_example_alone_whatever_stands_on_pads(
    spec: Spec,
) -> None:
    model, batch = build(**spec), make_batch("reverse", LENGTHS)
    assert_each_example_as_alone(model, batch)
    assert_pads_never_matter(model, batch)


@pytest.mark.parametrize("spec", SOME_DEEP, ids=label)
def test_a_target_reaches_later_logits_only(spec: Spec) -> None:
    assert_a_target_reaches_later_logits_only(build(**spec), make_batch("copy", [4, 4]))


@pytest.mark.parametrize("spec", SOME_DEEP, ids=label)
def test_greedy_decoding_is_teacher_forcing_fed_its_own_output(spec: Spec) -> None:
    model, batch = build(seed=3, **spec), make_batch("copy", [8, 2, 5])
    assert_greedy_is_teacher_forcing_fed_its_own_output(model, batch)


@pytest.mark.parametrize("spec", SOME_DEEP, ids=label)
def test_stacked_models_equal_each_alone(spec: Spec) -> None:
    models = [build(seed=seed, **spec) for seed in range(3)]
    assert_stacked_as_alone(models, make_batch("copy", LENGTHS))


@pytest.mark.parametrize("spec", SOME_DEEP, ids=label)
def test_a_deeper_model_starts_from_the_same_first_layers(spec: Spec) -> None:
    plain = build(seed=5, cell=spec["cell"], attention="none")
    model = dict(build(seed=5, **spec).named_parameters())
    for name, weight in plain.named_parameters():
        if name == "decoder.weight_ih_l0":
            assert torch.equal(model[name][:, :3], weight)
        else:
            assert torch.equal(model[name], weight), name
    draws = [drawn for drawn in model.values() if drawn.shape == (4, 4)]
    for index, drawn in enumerate(draws):
        assert not any(torch.equal(drawn, other) for other in draws[:index])


@pytest.mark.parametrize("spec", SOME_DEEP, ids=label)
def test_training_gradients_equal_autograd_of_the_twin_written_out(spec: Spec) -> None:
    """Every parameter's gradient, by central differences along a random direction."""
    model, batch = build(**spec), make_batch("copy", [3, 2])

    def loss() -> Tensor:
        total: Tensor = model(batch).logits.tanh().square().sum()
        return total

    parameters = list(model.parameters())
    found = torch.autograd.grad(loss(), parameters)
    generator = torch.Generator().manual_seed(0)
    for parameter, gradient in zip(parameters, found, strict=True):
        way = torch.randn(parameter.shape, dtype=torch.float64, generator=generator)
        with torch.no_grad():
            size = 1e-4
            parameter.add_(size * way)
            up = loss()
            parameter.sub_(2 * size * way)
            down = loss()
            parameter.add_(size * way)
        expected = (up - down) / (2 * size)
        assert float((gradient * way).sum() - expected) == pytest.approx(
            0, abs=1e-5 * (float(expected.abs()) + 1e-3)
        )


def test_reading_backwards_turns_each_example_in_its_own_length() -> None:
    x = torch.arange(8.0).view(2, 4, 1)
    lengths = torch.tensor([4, 2])
    turned = in_order(x, lengths, "l0_reverse")
    assert turned.flatten().tolist() == [3, 2, 1, 0, 5, 4, 6, 7]
    assert torch.equal(in_order(turned, lengths, "l0_reverse"), x)
    assert in_order(x, lengths, "l1") is x
    whole = in_order(x, torch.tensor([4, 4]), "l0_reverse")
    assert whole.flatten().tolist() == [3, 2, 1, 0, 7, 6, 5, 4]
