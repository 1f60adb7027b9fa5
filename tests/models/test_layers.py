"""Linear maps and embeddings: equal to torch's, differentiable, and free of leading axes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn import functional as F

from gradlab.models.layers import Embedding, Linear, Readout, embed, linear, linear_over_time

LEADING = [(), (2,), (2, 3)]


def drawn(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator).requires_grad_()


@pytest.mark.parametrize("leading", LEADING)
def test_linear_maps_pass_gradcheck(leading: tuple[int, ...]) -> None:
    weight, bias = drawn(*leading, 3, 2), drawn(*leading, 3)
    assert torch.autograd.gradcheck(linear, (drawn(*leading, 4, 2), weight, bias))
    assert torch.autograd.gradcheck(linear_over_time, (drawn(*leading, 4, 5, 2), weight, bias))
    assert torch.autograd.gradcheck(linear_over_time, (drawn(*leading, 4, 5, 2), weight))


@pytest.mark.parametrize("leading", LEADING)
def test_embedding_passes_gradcheck(leading: tuple[int, ...]) -> None:
    ids = torch.tensor([[0, 4, 4], [2, 1, 0]])
    assert torch.autograd.gradcheck(lambda w: embed(ids, w), (drawn(*leading, 5, 2),))


def test_linear_over_time_is_torch_linear_at_every_step() -> None:
    x, weight, bias = drawn(2, 5, 3), drawn(4, 3, seed=1), drawn(4, seed=2)
    found, expected = linear_over_time(x, weight, bias), F.linear(x, weight, bias)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize(
    ("leading", "stacked"),
    [
        ((), ()),
        ((2,), (2,)),
        ((2, 3), (2, 3)),
        ((3,), ()),
        ((3, 2), ()),
        ((3, 2), (2,)),
        ((2, 2), (2,)),
    ],
)
def test_a_readout_is_a_linear_map(leading: tuple[int, ...], stacked: tuple[int, ...]) -> None:
    """Leading axes of the input that no weights meet are signals."""
    layer = Readout(3, 4)

    def read(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        found: Tensor = functional_call(layer, {"weight": weight, "bias": bias}, (x,))
        return found

    x, weight = drawn(*leading, 2, 5, 3), drawn(*stacked, 4, 3, seed=1)
    bias = drawn(*stacked, 4, seed=2)
    expected = x @ weight.unsqueeze(-3).mT + bias.unsqueeze(-2).unsqueeze(-2)
    torch.testing.assert_close(read(x, weight, bias), expected, rtol=1e-12, atol=0)
    assert torch.autograd.gradcheck(read, (x, weight, bias))


def test_each_output_of_a_readout_lies_in_one_piece() -> None:
    logits = Readout(3, 4)(torch.zeros(2, 5, 3))
    assert logits.transpose(-3, -2).movedim(-1, -3).is_contiguous()


def test_stacked_weights_act_on_their_own_replica() -> None:
    x, weight, bias = drawn(2, 4, 5, 3), drawn(2, 6, 3, seed=1), drawn(2, 6, seed=2)
    table, ids = drawn(2, 7, 3, seed=3), torch.tensor([[6, 0, 1]])
    mapped, embedded = linear_over_time(x, weight, bias), embed(ids, table)
    for r in range(2):
        alone = linear_over_time(x[r], weight[r], bias[r])
        torch.testing.assert_close(mapped[r], alone, rtol=1e-12, atol=0)
        assert torch.equal(embedded[r], F.embedding(ids, table[r]))
    own_ids = torch.stack([ids, 6 - ids])
    for r, rows in enumerate(embed(own_ids, table)):
        assert torch.equal(rows, F.embedding(own_ids[r], table[r]))


def test_a_draw_depends_on_seed_and_name_alone() -> None:
    def draw(seed: int, name: str, rows: int = 300) -> Tensor:
        layer = Linear(4, rows, bias=True)
        layer.draw(seed, name)
        return layer.weight.detach()

    assert torch.equal(draw(0, "output"), draw(0, "output"))
    assert not torch.equal(draw(0, "output"), draw(1, "output"))
    assert not torch.equal(draw(0, "output"), draw(0, "combine"))
    assert float(draw(0, "output").abs().max()) <= 0.5  # 1 / sqrt(4)
    assert float(draw(0, "output").abs().max()) > 0.49


def test_embeddings_are_standard_normal() -> None:
    layer = Embedding(200, 50)
    layer.draw(0, "source_embedding")
    weight = layer.weight.detach()
    assert abs(float(weight.mean())) < 0.05  # 10,000 draws: five standard errors
    assert abs(float(weight.std()) - 1) < 0.05
