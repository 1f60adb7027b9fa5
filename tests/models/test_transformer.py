"""The transformer: equal to the layers of torch, padded or not, and free of the usual mistakes."""

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
from reference import assert_close, label, make_batch, stack
from transformer_twin import TransformerTwin, build, torch_decoder, torch_encoder
from transformer_twin import positions as slow_positions

from gradlab.errors import GradlabError
from gradlab.models.layers import draw_parameters
from gradlab.models.transformer import Transformer
from gradlab.models.transformer_layers import LayerNorm, MultiHeadAttention, key_mask, positions
from gradlab.schema import Model
from gradlab.tasks import TASKS

LENGTHS = [4, 1, 6]
Spec = dict[str, Any]
MODELS: list[Spec] = [
    {"layers": 1},
    {"layers": 2, "heads": 3},
    {"layers": 3, "hidden": 7, "heads": 1},
    {"layers": 1, "hidden": 9, "heads": 3, "feedforward": 1},
    {"layers": 2, "hidden": 1, "heads": 1},
]


@pytest.mark.parametrize("spec", MODELS, ids=label)
def test_weights_load_into_the_layers_of_torch_and_reproduce_them(spec: Spec) -> None:
    model, batch = build(**spec), make_batch("copy", LENGTHS, delay=1)
    trace, pads = model(batch), ~batch.source_mask
    memory = torch_encoder(model)(trace.encoded.embedded, src_key_padding_mask=pads)
    found = trace.encoded.memory[batch.source_mask]
    assert_close(found.detach(), memory[batch.source_mask].detach(), rtol=1e-12)
    k = batch.target.shape[-1]
    decoded = torch_decoder(model)(
        trace.decoded.embedded,
        memory,
        tgt_mask=torch.ones(k, k).triu(1).bool(),
        memory_key_padding_mask=pads,
    )
    logits = model.output(decoded)[batch.target_mask]
    assert_close(trace.logits[batch.target_mask].detach(), logits.detach(), rtol=1e-12)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("delay", [0, 2])
@pytest.mark.parametrize("spec", MODELS, ids=label)
def test_forward_is_the_twin_of_torch_layers(spec: Spec, task: str, delay: int) -> None:
    model, batch = build(**spec), make_batch(task, LENGTHS, delay=delay)
    trace, twin = model(batch), TransformerTwin(model)
    for b, k in enumerate(LENGTHS):
        truth, n = twin.run(batch, b, "mean"), k + delay
        assert_close(trace.logits[b, :k].detach(), truth.logits.detach(), rtol=1e-12)
        for found, expected in zip(trace.decoded.head_weights, truth.weights, strict=True):
            assert_close(found[b, :, :k, :n].detach(), expected.detach(), rtol=1e-12)
            assert bool((found[b, :, :, n:] == 0).all())
        for mean, expected in zip(trace.decoded.weights, truth.weights, strict=True):
            assert_close(mean[b, :k, :n].detach(), expected.mean(0).detach(), rtol=1e-12)


@pytest.mark.parametrize("spec", MODELS, ids=label)
def test_an_example_in_a_batch_equals_the_example_alone(spec: Spec) -> None:
    batch = make_batch("reverse", LENGTHS, delay=1)
    assert_each_example_as_alone(build(**spec), batch)


@pytest.mark.parametrize("spec", MODELS, ids=label)
def test_what_stands_on_pads_never_matters(spec: Spec) -> None:
    assert_pads_never_matter(build(**spec), make_batch("copy", LENGTHS))


@pytest.mark.parametrize("spec", MODELS[:4], ids=label)
def test_a_target_reaches_later_logits_only(spec: Spec) -> None:
    assert_a_target_reaches_later_logits_only(build(**spec), make_batch("copy", [6, 6]))


@pytest.mark.parametrize("symbols", [2, 4])
@pytest.mark.parametrize("spec", MODELS, ids=label)
def test_greedy_decoding_is_teacher_forcing_fed_its_own_output(spec: Spec, symbols: int) -> None:
    model, batch = build(symbols, seed=3, **spec), make_batch("copy", [8, 1, 5], symbols=symbols)
    assert_greedy_is_teacher_forcing_fed_its_own_output(model, batch)


def test_greedy_decoding_reads_the_truth_where_it_is_forced_to() -> None:
    model, batch = build(seed=3), make_batch("copy", [5, 5])
    everywhere = torch.ones_like(batch.target, dtype=torch.bool)
    assert torch.equal(model.greedy(batch, everywhere), model(batch).logits.argmax(-1))


@pytest.mark.parametrize("spec", MODELS, ids=label)
def test_stacked_models_equal_each_alone(spec: Spec) -> None:
    models = [build(seed=seed, **spec) for seed in range(3)]
    assert_stacked_as_alone(models, make_batch("copy", LENGTHS))


def test_without_positions_the_source_has_no_order() -> None:
    model, batch = build(layers=3), make_batch("copy", [6, 6])
    order, mask = torch.tensor([3, 0, 5, 1, 4, 2]), key_mask(batch.source_mask)
    encoded = model.encode(batch)
    states = encoded.embedded[:, order]
    for layer, expected in zip(model.encoder.layers, encoded.states, strict=True):
        states = layer(states, mask)
        assert_close(states.detach(), expected[:, order].detach(), rtol=1e-12)
    edges = model.exit_edges(encoded.memory), model.exit_edges(encoded.memory[:, order])
    plain, shuffled = (model.decode(batch.decoder_input, edge, batch.source_mask) for edge in edges)
    assert_close(shuffled.logits.detach(), plain.logits.detach(), rtol=1e-12)
    for found, weights in zip(shuffled.head_weights, plain.head_weights, strict=True):
        assert_close(found.detach(), weights[..., order].detach(), rtol=1e-12)


@pytest.mark.parametrize("hidden", [1, 2, 7, 8])
def test_positions_are_those_of_the_paper_at_any_length(hidden: int) -> None:
    like = torch.zeros((), dtype=torch.float64)
    found, expected = positions(300, hidden, like), slow_positions(300, hidden)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-13)
    assert torch.equal(positions(10**5, hidden, like)[:300], found)
    assert positions(3, hidden, torch.zeros(())).dtype == torch.float32


def test_a_query_that_may_see_nothing_reads_zeros_and_sends_no_gradient() -> None:
    attention = MultiHeadAttention(4, 2).double()
    draw_parameters(attention, 0)
    queries = torch.ones(1, 2, 4, dtype=torch.float64)
    keys = torch.randn(1, 3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    keys.requires_grad_()
    mask = torch.tensor([[True, False, True], [False, False, False]])
    read, asked = attention(queries, keys, keys, mask)
    assert bool((asked.weights[..., 1, :] == 0).all())
    assert attention.out_proj.bias is not None
    assert torch.equal(read[0, 1], attention.out_proj.bias)
    read[0, 1].sum().backward()
    assert keys.grad is not None
    assert bool((keys.grad == 0).all())


def test_models_share_their_layers_and_differ_between_seeds() -> None:
    shallow, deep, other = build(layers=1), build(layers=3), build(layers=1, seed=1)
    for name, weight in shallow.named_parameters():
        assert torch.equal(weight, deep.get_parameter(name)), name
        constant = ".norm" in name or name.endswith(("in_proj_bias", "out_proj.bias"))
        assert torch.equal(weight, other.get_parameter(name)) == constant, name
    rows = [layer.linear1.weight for layer in deep.encoder.layers]  # type: ignore[union-attr]
    assert not torch.equal(rows[0], rows[1])  # type: ignore[arg-type]


def test_bounds_of_the_draw_are_those_of_torch() -> None:
    model = build(hidden=64, heads=4, feedforward=100)
    bounds = {"in_proj_weight": (6 / (4 * 64)) ** 0.5, "linear2.weight": 0.1, "linear2.bias": 0.1}
    bounds |= dict.fromkeys(("out_proj.weight", "linear1.weight", "linear1.bias"), 1 / 8)
    bounds |= {"in_proj_bias": 0.0, "out_proj.bias": 0.0}
    for name, weight in model.named_parameters():
        suffix = ".".join(name.split(".")[-2:])
        bound = bounds.get(suffix, bounds.get(name.split(".")[-1]))
        if bound is not None:
            assert 0.93 * bound <= float(weight.detach().abs().max()) <= bound, name
        elif ".norm" in name:
            assert bool((weight == float(name.endswith("weight"))).all()), name


def test_a_stacked_norm_is_each_norm() -> None:
    norms = [LayerNorm(5).double() for _ in range(2)]
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in (parameter for norm in norms for parameter in norm.parameters()):
            weight.normal_(generator=generator)
    x = torch.randn(2, 3, 4, 5, generator=generator, dtype=torch.float64)
    found = stack(norms)(x)
    for r, norm in enumerate(norms):
        assert_close(found[r].detach(), norm(x[r]).detach(), rtol=1e-12)


def test_building_a_model_leaves_the_global_generators_alone() -> None:
    before = torch.get_rng_state()
    build()
    assert torch.equal(torch.get_rng_state(), before)


def test_heads_that_do_not_divide_hidden_are_refused() -> None:
    with pytest.raises(GradlabError) as error:
        Transformer(Model(kind="transformer", hidden=10, heads=4), 4)
    assert str(error.value) == "model.heads: expected a divisor of model.hidden, 10, found 4"
