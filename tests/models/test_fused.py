"""torch's fused layers against the model's own forward pass, which the twins are held against."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from reference import build, make_batch
from torch import Tensor

from gradlab.models.fused import fused_logits
from gradlab.models.loss import batch_loss
from gradlab.models.seq2seq import Seq2Seq
from gradlab.tasks import Batch

Pass = Callable[[Seq2Seq, Batch], Tensor]
LENGTHS = [12] * 5


def own(model: Seq2Seq, batch: Batch) -> Tensor:
    logits: Tensor = model(batch).logits
    return logits


def lstm(task: str = "copy") -> tuple[Seq2Seq, Batch]:
    return build(hidden=16, embedding=8, cell="lstm", attention="none"), make_batch(task, LENGTHS)


def gradients(made: Pass, model: Seq2Seq, batch: Batch) -> dict[str, Tensor]:
    names, weights = zip(*model.named_parameters(), strict=True)
    loss = batch_loss(made(model, batch), batch)
    return dict(zip(names, torch.autograd.grad(loss, weights), strict=True))


@pytest.mark.parametrize("task", ["copy", "reverse"])
def test_it_is_the_forward_pass_and_its_gradient(task: str) -> None:
    model, batch = lstm(task)
    torch.testing.assert_close(fused_logits(model, batch), own(model, batch), rtol=1e-9, atol=0)
    expected = gradients(own, model, batch)
    for name, found in gradients(fused_logits, model, batch).items():
        torch.testing.assert_close(found, expected[name], rtol=1e-9, atol=0, msg=name)


def test_float32_has_the_gradient_of_float64_to_its_own_precision() -> None:
    """To 1e-5 of the largest gradient of each parameter, as the model's own pass."""
    model, batch = lstm()
    exact = gradients(own, model, batch)
    for name, found in gradients(fused_logits, model.float(), batch).items():
        error = (found.double() - exact[name]).abs().max()
        assert float(error) <= 1e-5 * float(exact[name].abs().max()), name


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_saturated_gates_give_finite_gradients(dtype: torch.dtype) -> None:
    model, batch = lstm()
    with torch.no_grad():
        for weight in model.to(dtype).parameters():
            weight.mul_(300.0)
    for name, found in gradients(fused_logits, model, batch).items():
        assert bool(found.isfinite().all()), name
