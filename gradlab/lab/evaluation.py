"""Loss and accuracy on the held-out examples, teacher-forced and free-running."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import torch

from gradlab.models.family import AnyModel
from gradlab.models.loss import batch_loss
from gradlab.tasks import Batch


@torch.no_grad()
def evaluate(model: AnyModel, batch: Batch) -> tuple[dict[str, float], pd.DataFrame]:
    """Return one row of the `training` table and the rows of the `positions` table.

    Accuracies are fractions of unpadded target tokens (or of whole sequences). Free-running
    decoding is greedy over the V data symbols; the teacher-forced accuracy stands apart. Where the
    loss is not finite there is no prediction to score and every accuracy is NaN.
    """
    logits = model(batch).logits
    loss = float(batch_loss(logits, batch))
    mask = batch.target_mask
    forced = (logits.argmax(-1) == batch.target) & mask
    free = (model.greedy(batch) == batch.target) & mask
    positions = pd.DataFrame(
        {
            "position": np.arange(1, mask.shape[-1] + 1),
            "token_accuracy": (free.sum(0) / mask.sum(0)).cpu().numpy().astype(np.float64),
            "token_accuracy_forced": (forced.sum(0) / mask.sum(0)).cpu().numpy().astype(np.float64),
        }
    )
    row = {
        "loss": loss,
        "token_accuracy_forced": float(forced.sum() / mask.sum()),
        "token_accuracy": float(free.sum() / mask.sum()),
        "sequence_accuracy": float((free | ~mask).all(-1).double().mean()),
    }
    if not math.isfinite(loss):
        row |= {key: math.nan for key in row if key != "loss"}
        positions[["token_accuracy", "token_accuracy_forced"]] = math.nan
    return row, positions
