"""The decoder's adjoint for the losses of all target steps at once.

The adjoint is linear and its coefficients do not depend on which target step's loss is
differentiated. So they are computed once, and the losses l_1 .. l_k are pulled back together as
rows. At step j only the rows of l_j .. l_k are at work, and with d = dl/ds_j of each row:

    dc_j = W_c^T dp_j                                       bahdanau: c_j is part of the input
    de_ji = alpha_ji (dc_j . h_i - sum_m alpha_jm dc_j . h_m)
    dl/ds_{j-1} = J_j^T d + sum_i de_ji de_ji/dq_j          (luong: the query is s_j itself)
    values_i = sum_j alpha_ji dc_j                          one matrix product over all j
    keys_i = sum_j de_ji de_ji/dh_i                         one matrix product over all j for each i

Rows stand behind the batch here: (batch, rows, features). So it is for a decoder of one layer
without input feeding; others go back once for each target step, by autograd.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gradlab.models.cells import CELLS, State
from gradlab.models.loss import token_loss
from gradlab.models.seq2seq import Seq2Seq
from gradlab.models.trace import Decoded, ExitEdges, Memory
from gradlab.tasks import Batch


@dataclass(frozen=True)
class TargetRows:
    """What leaves the decoder, for each target step's loss as one row.

    bridge: at each tensor of the exit edge, (batch, rows, width); empty where there is no bridge.
    read: the gradient at each encoder state by values and keys together, (batch, rows, n, width);
        None without attention.
    """

    bridge: State
    read: Tensor | None


@torch.no_grad()
def pull_back_targets(model: Seq2Seq, batch: Batch, memory: Memory, decoded: Decoded) -> TargetRows:
    """Return dl_j/d(exit edge) for every target step j; l_j is the loss of that step, in nats."""
    if model.spec.layers > 1 or model.feeds:
        return _one_by_one(model, batch, memory.edges)
    own, attention = _own_step(model, batch, memory, decoded)
    cell, weight_hh = CELLS[model.spec.cell], model.decoder.weight_hh_l0
    projected = decoded.projected.full()
    if model.bahdanau:
        assert decoded.context is not None
        projected = projected + model.decoder.project("context", decoded.context)
    local = model.decoder.linearise(projected, model.first_state(memory), decoded.states)
    nothing = torch.zeros_like(own[:, :1])
    d: State = tuple(nothing[:, :0] for _ in cell.states)
    fed = torch.zeros_like(own)
    for j in reversed(range(own.shape[1])):
        started = (own[:, j : j + 1], *(nothing for _ in cell.states[1:]))
        d = tuple(torch.cat(rows, dim=1) for rows in zip(started, d, strict=True))
        at_j = tuple(part[j].unsqueeze(1) for part in local)
        dp = cell.pull_to_input(at_j, d, cell.pull_to_hidden(at_j, d)).flatten(-2)
        d = cell.adjoint(at_j, d, weight_hh)
        if model.bahdanau and attention is not None:
            d = (d[0] + attention.step(j, dp @ model.decoder.block("context")), *d[1:])
        if model.spec.bridge == "every_step":
            fed[:, j:] += dp @ model.decoder.block("bridge")
    bridge = (d[0] + fed, *d[1:]) if model.spec.bridge != "none" else ()
    if model.bridge is not None:
        bridge = tuple(part @ model.bridge.weight for part in bridge)
    return TargetRows(bridge, None if attention is None else attention.read())


def _one_by_one(model: Seq2Seq, batch: Batch, edges: ExitEdges) -> TargetRows:
    """Return the same by one backward pass of the whole decoder for each target step."""
    bridge = tuple(part.detach().requires_grad_() for part in edges.bridge)
    values, keys = (
        None if part is None else part.detach().requires_grad_()
        for part in (edges.values, edges.keys)
    )
    read = [part for part in (values, keys) if part is not None]
    with torch.enable_grad():
        memory = model.remember(ExitEdges(bridge, values, keys), batch)
        decoded = model.decode(batch.decoder_input, memory, model.first_state(memory))
        each_step = token_loss(decoded.logits, batch).sum(0).unbind()
    wanted = [*bridge, *read]
    rows = [
        torch.autograd.grad(nats, wanted, retain_graph=True, materialize_grads=True)
        for nats in each_step
    ]
    found = [torch.stack(parts, dim=1) for parts in zip(*rows, strict=True)]
    back = found[len(bridge) :]
    return TargetRows(tuple(found[: len(bridge)]), sum(back[1:], back[0]) if back else None)


def _own_step(
    model: Seq2Seq, batch: Batch, memory: Memory, decoded: Decoded
) -> tuple[Tensor, AttentionRows | None]:
    """Return dl_j/ds_j at step j itself, (batch, k, hidden), and the attention's rows so far."""
    mask = batch.target_mask.unsqueeze(-1)
    target = batch.target.masked_fill(~batch.target_mask, 0)
    wrong = torch.softmax(decoded.logits, -1)
    wrong = wrong.scatter_add(-1, target.unsqueeze(-1), -torch.ones_like(wrong[..., :1])) * mask
    d_readout = wrong @ model.output.weight
    if model.attention is None:
        return d_readout, None
    attention = AttentionRows(model, memory, decoded)
    if model.combine is None:
        return d_readout, attention
    assert decoded.context is not None
    both = torch.cat([decoded.context, decoded.states[0]], dim=-1)
    d_both = (d_readout * (1 - torch.tanh(model.combine(both)) ** 2)) @ model.combine.weight
    hidden = decoded.states[0].shape[-1]
    d_context, d_state = d_both.split([d_both.shape[-1] - hidden, hidden], dim=-1)
    for j in range(d_state.shape[1]):
        d_state[:, j : j + 1] += attention.step(j, d_context[:, j : j + 1], last=j + 1)
    return d_state, attention


class AttentionRows:
    """Collects what each row sends through the attention of each step."""

    def __init__(self, model: Seq2Seq, memory: Memory, decoded: Decoded) -> None:
        assert model.attention is not None and decoded.query is not None
        assert memory.edges.values is not None and decoded.weights is not None
        self.values, self.weights = memory.edges.values, decoded.weights
        self.model, self.memory, self.decoded = model, memory, decoded
        self.of_query, self.of_keys = model.attention.jacobians(decoded.query, self.values)
        batch, steps, source = self.weights.shape
        self.d_context = self.values.new_zeros(batch, steps, steps, self.values.shape[-1])
        self.d_scores = self.values.new_zeros(batch, steps, steps, source)

    def step(self, j: int, d_context: Tensor, last: int | None = None) -> Tensor:
        """Take dl/dc_j of the rows j .. last - 1; return what they send to the query."""
        alpha = self.weights[:, j : j + 1]
        d_alpha = d_context @ self.values.mT
        d_query: Tensor | float = 0.0
        if self.model.scope.layer_names:
            d_scores, d_query = self._through_scope(j, d_alpha)
        else:
            d_scores = alpha * (d_alpha - (alpha * d_alpha).sum(-1, keepdim=True))
        self.d_context[:, j:last, j] = d_context
        self.d_scores[:, j:last, j] = d_scores
        return d_scores @ self.of_query[:, j] + d_query

    def _through_scope(self, j: int, d_alpha: Tensor) -> tuple[Tensor, Tensor]:
        """Return what rows dl/dalpha_j send to the scores and, by the scope, to the query."""
        scope, weights = self.model.scope, self.model.scope_weights()
        assert self.decoded.scores is not None and self.decoded.query is not None
        scores, query = (
            part[:, j : j + 1].detach().requires_grad_()
            for part in (self.decoded.scores, self.decoded.query)
        )
        with torch.enable_grad():
            alpha = scope.weigh(scores, query, self.memory.at(j).mask, *weights)
        rows = d_alpha.transpose(0, 1).unsqueeze(-2)
        found = torch.autograd.grad(alpha, (scores, query), rows, is_grads_batched=True)
        d_scores, d_query = (part.squeeze(-2).transpose(0, 1) for part in found)
        return d_scores, d_query

    def read(self) -> Tensor:
        """Return values_i + keys_i of every row, (batch, rows, n, hidden)."""
        values = self.weights.mT.unsqueeze(1) @ self.d_context
        keys = self.d_scores.permute(0, 3, 1, 2) @ self.of_keys.transpose(1, 2)
        return values + keys.transpose(1, 2)
