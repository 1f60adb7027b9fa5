"""Controlled starts: orthogonal and identity blocks, their gain, and what they leave alone."""

from __future__ import annotations

import pytest
import torch
from reference import build, make_batch, norm

from gradlab.gradients.probe import measure
from gradlab.models.cells import CELLS
from gradlab.models.seq2seq import Seq2Seq
from gradlab.models.starts import STARTS, controlled, orthogonal

LAYERS = ("encoder", "decoder")


@pytest.mark.parametrize("gain", [0.5, 1.0, 1.3])
@pytest.mark.parametrize("init", STARTS)
def test_blocks_are_drawn_orthogonal_to_rounding(init: str, gain: float) -> None:
    drawn = controlled(init, gain, 4, 30, 0, "encoder", "l0")
    eye = torch.eye(30, dtype=torch.float64)
    assert drawn["weight_hh_l0"].shape == (120, 30)
    for block in drawn["weight_hh_l0"].split(30):
        torch.testing.assert_close(block @ block.mT, gain**2 * eye, rtol=0, atol=1e-12)
        if init == "identity":
            assert torch.equal(block, gain * eye)


def blocks(model: Seq2Seq, layer: str) -> list[torch.Tensor]:
    weight = model.get_parameter(f"{layer}.weight_hh_l0").detach()
    return list(weight.split(model.spec.hidden))


@pytest.mark.parametrize("gain", [0.5, 1.0, 1.3])
@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("init", STARTS)
def test_every_gates_block_starts_so_in_encoder_and_decoder(
    init: str, cell: str, gain: float
) -> None:
    """To the rounding of parameters, which are drawn in float32."""
    model = build(cell=cell, init=init, gain=gain, hidden=7)
    eye = torch.eye(7, dtype=torch.float64)
    for layer in LAYERS:
        assert len(blocks(model, layer)) == CELLS[cell].gates
        for block in blocks(model, layer):
            torch.testing.assert_close(block @ block.mT, gain**2 * eye, rtol=0, atol=1e-6)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("init", STARTS)
def test_all_but_the_recurrence_starts_as_in_torch(init: str, cell: str) -> None:
    plain, controlled = build(cell=cell), build(cell=cell, init=init, gain=0.9)
    changed = {
        f"{layer}.{weight}"
        for layer in LAYERS
        for weight in ("weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
    }
    for name, weight in controlled.state_dict().items():
        if name.endswith(("bias_ih_l0", "bias_hh_l0")):
            assert not bool(weight.any())
        same = torch.equal(weight, plain.state_dict()[name])
        assert same != (name in changed), name


def test_blocks_layers_and_seeds_differ_and_the_gain_only_scales() -> None:
    one, doubled = (build(init="orthogonal", gain=gain, seed=0) for gain in (0.5, 1.0))
    other_seed = build(init="orthogonal", gain=0.5, seed=1)
    drawn = [block for layer in LAYERS for block in blocks(one, layer)]
    drawn += blocks(other_seed, "encoder")
    for i, block in enumerate(drawn):
        assert not any(torch.allclose(block, later) for later in drawn[i + 1 :])
    for layer in LAYERS:
        for half, full in zip(blocks(one, layer), blocks(doubled, layer), strict=True):
            assert torch.equal(2 * half, full)


def test_orthogonal_draws_have_no_preferred_sign() -> None:
    """QR alone leaves the diagonal's sign to the algorithm; LAPACK's would be mostly negative."""
    corner = [float(orthogonal(3, "sign", i)[0, 0]) for i in range(400)]
    assert abs(sum(c > 0 for c in corner) - 200) < 50  # five standard deviations


@pytest.mark.parametrize("gain", [0.8, 1.0, 1.25])
@pytest.mark.parametrize("init", STARTS)
def test_a_step_scales_the_gradient_by_the_gain_where_tanh_is_linear(
    init: str, gain: float
) -> None:
    """The loss reaches the encoder at h_n alone, so the ratio of norms at i - 1 and i is a step's.

    With embeddings scaled by 1e-4 the states stay below 1e-2 (10 steps, gain 1.25), and a step's
    Jacobian is diag(1 - h^2) W: the ratio is the gain to 1e-4 and is allowed to be off by that.
    """
    model = build(cell="rnn", attention="none", init=init, gain=gain, hidden=8)
    with torch.no_grad():
        model.source_embedding.weight.mul_(1e-4)
    batch = make_batch("copy", [10, 10])
    states = model(batch).encoder_states[0]
    assert 0 < float(states.detach().abs().max()) < 1e-2
    total = norm(measure(model, batch).vectors["total"]["h"])
    ratios = total[:, :-1] / total[:, 1:]
    torch.testing.assert_close(ratios, torch.full_like(ratios, gain), rtol=1e-4, atol=0)
