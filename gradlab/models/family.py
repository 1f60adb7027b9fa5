"""Every kind of model there is, by the name that `model.kind` gives it."""

from __future__ import annotations

from gradlab.models.seq2seq import Seq2Seq
from gradlab.models.synchronous import Synchronous
from gradlab.models.transformer import Transformer

AnyModel = Seq2Seq | Synchronous | Transformer

KINDS: dict[str, type[AnyModel]] = {
    "seq2seq": Seq2Seq,
    "synchronous": Synchronous,
    "transformer": Transformer,
}
