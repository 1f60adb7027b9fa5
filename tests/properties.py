"""What every model must do, whatever it is made of: each property once, for each kind's tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from reference import assert_close, stack

from gradlab.models.family import AnyModel
from gradlab.tasks import Batch


def only(batch: Batch, example: int) -> Batch:
    """Return one example of a batch without its padding."""
    n, k = batch.source_lengths[example], batch.target_lengths[example]
    one = batch.examples(slice(example, example + 1))
    return replace(one, source=one.source[:, :n], target=one.target[:, :k])


def assert_each_example_as_alone(model: AnyModel, batch: Batch) -> None:
    """The logits of an example in a padded batch are those of the example alone."""
    logits = model(batch).logits
    for b, k in enumerate(batch.target_lengths.tolist()):
        alone = model(only(batch, b)).logits[0]
        assert_close(logits[b, :k].detach(), alone.detach(), rtol=1e-12)


def assert_pads_never_matter(model: AnyModel, batch: Batch) -> None:
    """Scribbling on the pads of source and target changes no logit, not in one bit."""
    scribbled = replace(
        batch,
        source=batch.source.where(batch.source_mask, 0),
        target=batch.target.where(batch.target_mask, 1),
    )
    mask = batch.target_mask
    assert not bool(mask.all())
    assert torch.equal(model(batch).logits[mask], model(scribbled).logits[mask])


def assert_a_target_reaches_later_logits_only(model: AnyModel, batch: Batch) -> None:
    """Changing target j changes all logits after j and none up to j; batch: no pads."""
    before, steps = model(batch).logits, batch.target.shape[-1]
    for j in range(steps):
        target = batch.target.clone()
        target[:, j] = (target[:, j] + 1) % batch.symbols
        after = model(replace(batch, target=target)).logits
        assert torch.equal(after[:, : j + 1], before[:, : j + 1])
        if j < steps - 1:
            assert bool((after[:, j + 1 :] != before[:, j + 1 :]).any(-1).all())


def assert_greedy_is_teacher_forcing_fed_its_own_output(model: AnyModel, batch: Batch) -> None:
    decoded = model.greedy(batch)
    assert decoded.shape == batch.target.shape
    assert 0 <= int(decoded.min()) <= int(decoded.max()) < batch.symbols
    fed = replace(batch, target=decoded)
    assert torch.equal(model(fed).logits.argmax(-1), decoded)


def assert_stacked_as_alone(models: Sequence[AnyModel], batch: Batch) -> None:
    """Models on a leading axis give what each gives alone, forced and free."""
    together = stack(models)
    trace, decoded = together(batch), together.greedy(batch)
    for r, model in enumerate(models):
        assert_close(trace.logits[r].detach(), model(batch).logits.detach(), rtol=1e-12)
        assert torch.equal(decoded[r], model.greedy(batch))
