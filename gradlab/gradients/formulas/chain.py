"""The full chain: from the loss of every target step to every encoder state, by hand.

    encoder    h_i = tanh(Wx x_i + Wh h_{i-1}), h_0 = 0            s_0 = h_n, the bridge
    decoder    e_ji = v . tanh(W1 h_i + W2 s_{j-1}), alpha_j = softmax(e_j)
               c_j = sum_i alpha_ji h_i
               s_j = tanh(Uy y_j + Us s_{j-1} + Uc c_j), p_j = softmax(Wo s_j)
    loss       L = -sum_j log p_j[target_j]

Bahdanau et al. 2015 with tanh cells, so that the whole derivation fits on one page.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gradlab.gradients.formulas.claim import Case, Claim, Draw, Formula, Group, claim

n, k, H, A, E, V = 4, 3, 3, 4, 2, 5


@dataclass(frozen=True)
class TargetStep:
    """What target step j computed: weights (n,), tanh (n, A), s_j (H,), p_j (V,)."""

    alpha: Tensor
    tanh: Tensor
    s: Tensor
    p: Tensor


@dataclass(frozen=True)
class Parts:
    """What enters every encoder state from outside the recurrence, and the total; all (n, H)."""

    bridge: Tensor
    values: Tensor
    keys: Tensor
    total: Tensor


@dataclass(frozen=True)
class Chain(Case):
    """One source, one target and all weights; taps (n, H) are zeros added to every h_i."""

    x: Tensor
    y: Tensor
    target: Tensor
    taps: Tensor
    Wx: Tensor
    Wh: Tensor
    W1: Tensor
    W2: Tensor
    v: Tensor
    Uy: Tensor
    Us: Tensor
    Uc: Tensor
    Wo: Tensor

    def encode(self) -> Tensor:
        """Return h_1 .. h_n."""
        h, states = torch.zeros_like(self.taps[0]), []
        for x, tap in zip(self.x, self.taps, strict=True):
            h = torch.tanh(self.Wx @ x + self.Wh @ h) + tap
            states.append(h)
        return torch.stack(states)

    def decode(self, h: Tensor) -> list[TargetStep]:
        """Return the k target steps."""
        s, steps = h[-1], []
        for y in self.y:
            tanh = torch.tanh(h @ self.W1.T + self.W2 @ s)
            alpha = torch.softmax(tanh @ self.v, 0)
            s = torch.tanh(self.Uy @ y + self.Us @ s + self.Uc @ (alpha @ h))
            steps.append(TargetStep(alpha, tanh, s, torch.softmax(self.Wo @ s, 0)))
        return steps

    def loss(self) -> Tensor:
        p = torch.stack([step.p for step in self.decode(self.encode())])
        return -(self.target * torch.log(p)).sum()

    def parts(self) -> Parts:
        """Return bridge, values, keys and their total at every encoder state, by hand."""
        h = self.encode()
        values, keys, bridge = torch.zeros_like(h), torch.zeros_like(h), torch.zeros_like(h)
        back = torch.zeros_like(h[0])  # what step j+1 sends back to s_j
        for step, target in zip(reversed(self.decode(h)), self.target.flip(0), strict=True):
            d_s = self.Wo.T @ (step.p - target) + back
            delta = d_s * (1 - step.s**2)
            d_c = self.Uc.T @ delta
            d_alpha = h @ d_c
            d_e = step.alpha * (d_alpha - step.alpha @ d_alpha)
            delta_e = d_e[:, None] * self.v * (1 - step.tanh**2)
            values = values + torch.outer(step.alpha, d_c)
            keys = keys + delta_e @ self.W1
            back = self.Us.T @ delta + self.W2.T @ delta_e.sum(0)
        bridge[-1] = back
        return Parts(bridge, values, keys, self.through_time(h, bridge + values + keys))

    def through_time(self, h: Tensor, injections: Tensor) -> Tensor:
        """Return d_i = g_i + J_{i+1}^T d_{i+1}, J_i^T d = Wh^T (d * (1 - h_i^2)), by hand."""
        d = injections[-1]
        totals = [d]
        for g, after in zip(injections[:-1].flip(0), h[1:].flip(0), strict=True):
            d = g + self.Wh.T @ (d * (1 - after**2))
            totals.append(d)
        return torch.stack(totals[::-1])


def chain(draw: Draw) -> Chain:
    symbols = torch.from_numpy(draw.generator.integers(0, V, size=k))
    return Chain(
        x=draw(n, E), y=draw(k, E), target=torch.eye(V, dtype=torch.float64)[symbols],
        taps=torch.zeros(n, H, dtype=torch.float64), Wx=draw.weight(H, E), Wh=draw.weight(H, H),
        W1=draw.weight(A, H), W2=draw.weight(A, H), v=draw(A), Uy=draw.weight(H, E),
        Us=draw.weight(H, H), Uc=draw.weight(H, H), Wo=draw.weight(V, H),
    )  # fmt: skip


def full_chain(draw: Draw) -> Claim:
    x = chain(draw)
    return claim(x, taps=x.parts().total)


CHAIN = Group(
    "full chain",
    "RNN encoder and decoder, additive attention, query s_{j−1}; every term by hand from p − y on",
    r"\text{RNN encoder and decoder, additive attention, query}\  s_{j-1}",
)

FORMULAS = [
    Formula(
        "total at h_i",
        CHAIN,
        "dL/dh_i = bridge_i + values_i + keys_i + J_{i+1}ᵀ dL/dh_{i+1}, J_{i+1} = dh_{i+1}/dh_i; "
        "bridge_i = dL/ds_0 at i = n, else 0; values_i = Σ_j α_ji dL/dc_j; "
        "keys_i = Σ_j dL/de_ji de_ji/dh_i",
        r"\frac{\partial L}{\partial h_i} = \mathrm{bridge}_i + \sum_j \alpha_{ji}"
        r" \frac{\partial L}{\partial c_j} + \sum_j \frac{\partial L}{\partial e_{ji}}"
        r" \frac{\partial e_{ji}}{\partial h_i} + J_{i+1}^{\top}"
        r" \frac{\partial L}{\partial h_{i+1}},\  J_{i+1} ="
        r" \frac{\partial h_{i+1}}{\partial h_i},\  \mathrm{bridge}_n ="
        r" \frac{\partial L}{\partial s_0},\  \mathrm{bridge}_{i \neq n} = 0",
        "Bahdanau et al. 2015, section 3",
        full_chain,
    ),
]
