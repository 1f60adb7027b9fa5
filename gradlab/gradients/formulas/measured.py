"""As gradlab measures it: dL/dh_i (and dL/dc_i) at every encoder state of a whole model.

What `probe.measure` returns is compared with a twin in which zeros are added to every encoder
state, every recurrence is a loop over `Cell.step` and every score its plain twin.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from gradlab.gradients.formulas.claim import Claim, Draw, Formula
from gradlab.gradients.formulas.computed import COMPUTED, plain_scan
from gradlab.gradients.formulas.plain_scores import PLAIN_SCORES
from gradlab.gradients.probe import measure
from gradlab.models.attention import masked_softmax
from gradlab.models.cells import CELLS, State
from gradlab.models.layers import linear
from gradlab.models.loss import REDUCTIONS, example_loss
from gradlab.models.recurrent import Recurrent
from gradlab.models.scores import SCORES
from gradlab.models.seq2seq import Seq2Seq
from gradlab.schema import Model, Task
from gradlab.tasks import Batch, draw_batch

B, n, H, E, V = 2, 4, 3, 2, 4

Option = TypeVar("Option")


def model_and_batch(cell: str, attention: str, draw: Draw) -> tuple[Seq2Seq, Batch, str]:
    """Return a model, padded examples and a loss reduction; whatever is left open is drawn."""

    def pick(*options: Option) -> Option:
        return options[int(draw.generator.integers(len(options)))]

    without = () if attention == "none" else ("none",)
    settings: dict[str, Any] = {"cell": cell, "attention": attention, "hidden": H, "embedding": E}
    settings["timing"] = pick("bahdanau", "luong")
    settings["bridge"] = pick("initial", "every_step", *without)
    task = Task(name=pick("copy", "reverse"), length=n, min_length=2, symbols=V)
    # not validated: a cell or score may be checked here before a scenario can name it
    model = Seq2Seq(Model().model_copy(update=settings), V, draw.seed(), n).double()
    return model, draw_batch(task, B, draw.generator), pick(*REDUCTIONS)


def recur_plainly(layer: Recurrent, taps: State | None = None) -> RemovableHandle:
    """Have `layer` return the states of `plain_scan`, until the handle is removed."""

    def states(_: nn.Module, inputs: tuple[Any, ...], __: State) -> State:
        projected, initial = inputs[:2]
        weights = (layer.weight_hh_l0, layer.bias_hh_l0)
        return plain_scan(CELLS[layer.cell_name], projected.full(), *weights, initial, taps)

    return layer.register_forward_hook(states)


def score_plainly(model: Seq2Seq) -> RemovableHandle | None:
    """Have the model's score return its plain twin's, where it has one."""
    plain = PLAIN_SCORES.get(model.spec.attention)
    if model.attention is None or plain is None:
        return None
    return model.attention.register_forward_hook(lambda score, inputs, _: plain(score, *inputs))


def bahdanau_plainly(model: Seq2Seq, batch: Batch) -> Tensor:
    """Return the logits of a decoder that is a loop over `Cell.step`, plain score and softmax."""
    assert model.attention is not None
    memory = model.remember(model.exit_edges(model.encode(batch)), batch)
    assert memory.edges.values is not None
    cell, decoder = CELLS[model.spec.cell], model.decoder
    state, history = model.first_state(memory), []
    for p in model.decoder_input(batch.decoder_input, memory).full().unbind(-2):
        scores = model.attention(state[0].unsqueeze(-2), memory.projected_keys)
        context = masked_softmax(scores, memory.mask) @ memory.edges.values
        p = p + linear(context.squeeze(-2), decoder.block("context"))
        state = cell.step(p, linear(state[0], decoder.weight_hh_l0, decoder.bias_hh_l0), state)
        history.append(state[0])
    logits: Tensor = model.output(torch.stack(history, -2))
    return logits


def plain_loss(model: Seq2Seq, batch: Batch, reduction: str, taps: State) -> Tensor:
    """Return the loss summed over examples, (copies,), with taps (copies, B, n, H) on the states.

    Examples do not meet, so the sum's derivative at an example's state is that of its own loss.
    """
    with ExitStack() as stack:
        handles = recur_plainly(model.encoder, taps), recur_plainly(model.decoder)
        for handle in (*handles, score_plainly(model)):
            if handle is not None:
                stack.callback(handle.remove)
        logits = bahdanau_plainly(model, batch) if model.bahdanau else model(batch).logits
        return example_loss(logits, batch, reduction).sum(-1)


def chain(cell: str, attention: str) -> Callable[[Draw], Claim]:
    """Return what compares `measure` with the twin, each state's vector on its own."""

    def evaluate(draw: Draw) -> Claim:
        model, batch, reduction = model_and_batch(cell, attention, draw)
        total = tuple(measure(model, batch, reduction).vectors["total"].values())

        def loss(*taps: Tensor) -> Tensor:
            return plain_loss(model, batch, reduction, taps)

        return Claim(total, loss, tuple(map(torch.zeros_like, total)), each_vector=True)

    return evaluate


def formulas() -> Iterator[Formula]:
    """Yield a row for each cell with each attention, and without."""
    for cell, spec in CELLS.items():
        for attention in ("none", *SCORES):
            states = ", ".join(f"dL/d{state}_i" for state in spec.states)
            yield Formula(
                f"{cell}, {'no attention' if attention == 'none' else attention}",
                COMPUTED,
                f"{states} at every encoder state",
                r",\  ".join(rf"\frac{{\partial L}}{{\partial {s}_i}}" for s in spec.states)
                + r"\ \text{at every encoder state}",
                "gradlab.gradients.probe",
                chain(cell, attention),
            )
