"""The encoder-decoder: equal to its twin, padded or not, and free of the usual mistakes."""

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
    MODELS,
    TORCH_LAYERS,
    Twin,
    assert_close,
    build,
    label,
    make_batch,
)

from gradlab.models.cells import CELLS
from gradlab.models.seq2seq import Seq2Seq
from gradlab.schema import Model
from gradlab.tasks import TASKS

LENGTHS = [4, 1, 6]
Spec = dict[str, Any]


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("delay", [0, 2])
@pytest.mark.parametrize("spec", MODELS, ids=label)
def test_forward_is_the_twin_of_torch_cells(spec: Spec, task: str, delay: int) -> None:
    model, batch = build(**spec), make_batch(task, LENGTHS, delay=delay)
    trace, twin = model(batch), Twin(model)
    for b, k in enumerate(LENGTHS):
        truth, n = twin.run(batch, b, "mean"), k + delay
        assert_close(trace.logits[b, :k].detach(), truth.logits[0])
        for found, expected in zip(trace.encoder_states, truth.states, strict=True):
            assert_close(found[b, :n].detach(), expected[0].detach())
        for j, (alpha, context) in enumerate(zip(truth.weights, truth.contexts, strict=True)):
            assert_close(trace.decoded.weights[b, j, :n].detach(), alpha[0].detach())
            assert_close(trace.decoded.context[b, j].detach(), context[0].detach())
            assert bool((trace.decoded.weights[b, :, n:] == 0).all())


@pytest.mark.parametrize("spec", MODELS, ids=label)
def test_encoder_weights_load_into_torch_and_reproduce_the_states(spec: Spec) -> None:
    model, batch = build(**spec), make_batch("copy", [5, 5])
    layer = TORCH_LAYERS[spec["cell"]](3, 4, batch_first=True).double()
    layer.load_state_dict(model.encoder.state_dict())
    trace = model(batch)
    states, _ = layer(model.source_embedding(batch.source))
    assert_close(trace.encoder_states[0].detach(), states.detach(), rtol=1e-12)


@pytest.mark.parametrize("cell", CELLS)
def test_decoder_weights_load_into_torch_and_reproduce_the_states(cell: str) -> None:
    model, batch = build(cell=cell, attention="none"), make_batch("copy", [5, 5])
    layer = TORCH_LAYERS[cell](3, 4, batch_first=True).double()
    layer.load_state_dict(model.decoder.state_dict())
    trace = model(batch)
    first = tuple(part[None] for part in trace.edges.bridge)
    inputs = model.target_embedding.weight[batch.decoder_input]
    states, _ = layer(inputs, first if len(first) > 1 else first[0])
    assert_close(trace.decoded.states[0].detach(), states.detach(), rtol=1e-12)


@pytest.mark.parametrize("spec", MODELS, ids=label)
def test_an_example_in_a_batch_equals_the_example_alone(spec: Spec) -> None:
    batch = make_batch("reverse", LENGTHS, delay=1)
    assert_each_example_as_alone(build(**spec), batch)


@pytest.mark.parametrize("spec", MODELS, ids=label)
def test_what_stands_on_pads_never_matters(spec: Spec) -> None:
    assert_pads_never_matter(build(**spec), make_batch("copy", LENGTHS))


@pytest.mark.parametrize("spec", MODELS, ids=label)
def test_a_target_reaches_later_logits_only(spec: Spec) -> None:
    assert_a_target_reaches_later_logits_only(build(**spec), make_batch("copy", [6, 6]))


@pytest.mark.parametrize("symbols", [2, 4])
@pytest.mark.parametrize("spec", MODELS, ids=label)
def test_greedy_decoding_is_teacher_forcing_fed_its_own_output(spec: Spec, symbols: int) -> None:
    model, batch = build(symbols, seed=3, **spec), make_batch("copy", [8, 2, 5], symbols=symbols)
    assert_greedy_is_teacher_forcing_fed_its_own_output(model, batch)


@pytest.mark.parametrize("spec", MODELS, ids=label)
def test_stacked_models_equal_each_alone(spec: Spec) -> None:
    models = [build(seed=seed, **spec) for seed in range(3)]
    assert_stacked_as_alone(models, make_batch("copy", LENGTHS))


@pytest.mark.parametrize("spec", MODELS, ids=label)
def test_models_of_one_seed_share_every_common_block(spec: Spec) -> None:
    plain = build(seed=5, cell=spec["cell"], attention="none", bridge="initial")
    model = build(seed=5, **spec)
    twins = dict(plain.named_parameters())
    for name, weight in model.named_parameters():
        if name in twins and name != "decoder.weight_ih_l0":
            assert torch.equal(weight, twins[name]), name
    shared = plain.decoder.weight_ih_l0
    assert torch.equal(model.decoder.weight_ih_l0[:, : shared.shape[1]], shared)


@pytest.mark.parametrize("spec", MODELS, ids=label)
def test_a_block_starts_the_same_whatever_other_blocks_there_are(spec: Spec) -> None:
    model = build(seed=5, **spec)
    widest = build(
        seed=5, cell=spec["cell"], attention="additive", timing="bahdanau", bridge="every_step"
    )
    blocks = dict(zip(widest.decoder.blocks, split(widest), strict=True))
    for name, block in zip(model.decoder.blocks, split(model), strict=True):
        assert torch.equal(block, blocks[name]), name


def split(model: Seq2Seq) -> tuple[torch.Tensor, ...]:
    """Return the blocks of the decoder's input weights."""
    widths = list(model.decoder.blocks.values())
    return torch.split(model.decoder.weight_ih_l0, widths, dim=-1)


def test_models_differ_between_seeds_and_start_alike_in_both_precisions() -> None:
    spec = Model(hidden=4, embedding=3)
    single, double = Seq2Seq(spec, 4, seed=1), Seq2Seq(spec, 4, seed=1).double()
    other = Seq2Seq(spec, 4, seed=2)
    for name, weight in single.named_parameters():
        assert weight.dtype == torch.float32
        assert torch.equal(weight, double.get_parameter(name).float()), name
        assert torch.equal(weight.double(), double.get_parameter(name)), name
        assert not torch.equal(weight, other.get_parameter(name)), name


def test_building_a_model_leaves_the_global_generators_alone() -> None:
    before = torch.get_rng_state()
    Seq2Seq(Model(hidden=4, embedding=3), 4, seed=1)
    assert torch.equal(torch.get_rng_state(), before)


def test_bounds_of_the_draw_are_those_of_torch() -> None:
    model = build(hidden=100, embedding=30, bridge="every_step")
    for name, weight in model.named_parameters():
        if name.startswith(("encoder.", "decoder.")):
            assert 0.097 < float(weight.detach().abs().max()) <= 0.1, name  # 1 / sqrt(100)
