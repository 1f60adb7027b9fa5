"""Variants that circulate on slides and in answers, and are wrong; measured against the truth.

Each is read as kindly as its shape allows: what it takes for given (dL/dc, dL/de) is right, and a
sum or an outer product that it needs to fit the shape is put in.
"""

from __future__ import annotations

import torch

from gradlab.gradients.formulas import cells, chain, scores, softmax
from gradlab.gradients.formulas.claim import Claim, Draw, Formula, Group, claim


def values_only(draw: Draw) -> Claim:
    x = chain.chain(draw)
    return claim(x, taps=x.parts().values)


def output_gradient(draw: Draw) -> Claim:
    """What `output.retain_grad()` on the output of a recurrent layer of torch finds."""
    x = cells.sequence(cells.RNN, draw)
    first = x.first
    weights = [w.clone().requires_grad_() for w in (first.W_ih, x.W_hh, first.b_ih, first.b_hh)]
    source, h_0 = x.x.unsqueeze(1), torch.zeros(1, 1, cells.H, dtype=torch.float64)
    output, _ = torch.rnn_tanh(source, h_0, weights, True, 1, 0.0, False, False, False)
    (found,) = torch.autograd.grad((x.g * output.squeeze(1)).sum(), output)
    return claim(x, taps_h=found.squeeze(1))


def returned_cell_state(draw: Draw) -> Claim:
    """What `c.retain_grad()` on the c that torch's LSTM cell returns finds."""
    x = cells.sequence(cells.LSTM, draw)
    first = x.first
    weights = [w.clone().requires_grad_() for w in (first.W_ih, x.W_hh, first.b_ih, first.b_hh)]
    h = c = torch.zeros(1, cells.H, dtype=torch.float64)
    hs, cs = [], []
    for step in x.x:
        h, c = torch.lstm_cell(step.unsqueeze(0), (h, c), *weights)
        hs.append(h)
        cs.append(c)
    found = torch.autograd.grad((x.g * torch.cat(hs)).sum(), cs)
    return claim(x, taps_c=torch.cat(found))


def backwards_softmax(draw: Draw) -> Claim:
    x = softmax.context(draw)
    d_alpha = x.d_c @ x.h.T
    d_e = x.alpha * (d_alpha - (x.alpha * d_alpha).sum(-1, keepdim=True))
    return claim(x, alpha=x.alpha * (1 - x.alpha) * d_e)


def diagonal_softmax(draw: Draw) -> Claim:
    x = softmax.Softmax(e=draw(softmax.n), d_alpha=draw(softmax.n))
    alpha = torch.softmax(x.e, 0)
    return claim(x, e=alpha * (1 - alpha) * x.d_alpha)


def additive_w1(draw: Draw) -> Claim:
    x = scores.drawn(scores.Additive, draw)
    slope = x.weights()[..., None] * (1 - x.tanh() ** 2)
    return claim(x, W1=torch.einsum("jia,ih->ah", slope, x.keys))


WRONG = Group(
    "circulating variants",
    "wrong; distance = ||variant − truth|| / ||truth|| over the same random cases",
    r"\text{wrong; distance}\  = \Vert \mathrm{variant} - \mathrm{truth} \Vert"
    r" / \Vert \mathrm{truth} \Vert",
)

FORMULAS = [
    Formula(
        "values path only",
        WRONG,
        "dL/dh_i = α_i dL/dc",
        r"\frac{\partial L}{\partial h_i} = \alpha_i \frac{\partial L}{\partial c}",
        "lecture slides; see total at h_i",
        values_only,
        holds=False,
        truth="dL/dh_i = bridge_i + Σ_j α_ji dL/dc_j + Σ_j dL/de_ji de_ji/dh_i "
        "+ J_{i+1}ᵀ dL/dh_{i+1}: keys, bridge and recurrence are missing",
        truth_latex=r"\frac{\partial L}{\partial h_i} = \mathrm{bridge}_i + \sum_j \alpha_{ji}"
        r" \frac{\partial L}{\partial c_j} + \sum_j \frac{\partial L}{\partial e_{ji}}"
        r" \frac{\partial e_{ji}}{\partial h_i} + J_{i+1}^{\top}"
        r" \frac{\partial L}{\partial h_{i+1}}",
    ),
    Formula(
        "recurrent output",
        WRONG,
        "dL/dh_i = output.grad[i], of a recurrent layer's output",
        r"\frac{\partial L}{\partial h_i} = \mathtt{output.grad[i]}",
        "forum answers; Pascanu et al. 2013",
        output_gradient,
        holds=False,
        truth="dL/dh_i = output.grad[i] + J_{i+1}ᵀ dL/dh_{i+1}: only the direct part is there",
        truth_latex=r"\frac{\partial L}{\partial h_i} = \mathtt{output.grad[i]} + J_{i+1}^{\top}"
        r" \frac{\partial L}{\partial h_{i+1}}",
    ),
    Formula(
        "LSTM returned c",
        WRONG,
        "dL/dc_t = c.grad, by c.retain_grad() on the returned c",
        r"\frac{\partial L}{\partial c_t} = \mathtt{c.grad}\ \text{of the returned}\ c",
        "forum answers; Greff et al. 2017",
        returned_cell_state,
        holds=False,
        truth="dL/dc_t = c.grad − dL/dh_t ⊙ o ⊙ (1 − tanh² c_t) with h_t held fixed: "
        "c.grad is δ_c, which also takes the route through h_t",
        truth_latex=r"\frac{\partial L}{\partial c_t} = \mathtt{c.grad} -"
        r" \frac{\partial L}{\partial h_t} \odot o \odot (1 - \tanh^2 c_t)"
        r"\ \text{with}\  h_t\ \text{held fixed}",
    ),
    Formula(
        "softmax backwards",
        WRONG,
        "dL/dα = α (1 − α) dL/de",
        r"\frac{\partial L}{\partial \alpha} = \alpha (1 - \alpha) \frac{\partial L}{\partial e}",
        "lecture slides; see weights",
        backwards_softmax,
        holds=False,
        truth="dL/dα_ji = dL/dc_j · h_i: the arrow is backwards, α comes after e",
        truth_latex=r"\frac{\partial L}{\partial \alpha_{ji}} ="
        r" \frac{\partial L}{\partial c_j} \cdot h_i",
    ),
    Formula(
        "softmax diagonal",
        WRONG,
        "dL/de = α (1 − α) dL/dα",
        r"\frac{\partial L}{\partial e} = \alpha (1 - \alpha) \frac{\partial L}{\partial \alpha}",
        "the same, turned round; see softmax",
        diagonal_softmax,
        holds=False,
        truth="dL/de_i = α_i (dL/dα_i − Σ_m α_m dL/dα_m): every score moves every weight",
        truth_latex=r"\frac{\partial L}{\partial e_i} = \alpha_i"
        r" \left(\frac{\partial L}{\partial \alpha_i}"
        r" - \sum_m \alpha_m \frac{\partial L}{\partial \alpha_m}\right)",
    ),
    Formula(
        "W1 without dL/de",
        WRONG,
        "dL/dW₁ = Σ α (1 − tanh²) h",
        r"\frac{\partial L}{\partial W_1} = \sum \alpha (1 - \tanh^2) h",
        "lecture slides; see additive W1",
        additive_w1,
        holds=False,
        truth="dL/dW₁ = Σ_j Σ_i dL/de_ji (v ⊙ (1 − tanh²(W₁ h_i + W₂ q_j))) h_iᵀ",
        truth_latex=r"\frac{\partial L}{\partial W_1} = \sum_j \sum_i"
        r" \frac{\partial L}{\partial e_{ji}}"
        r" \left(v \odot (1 - \tanh^2(W_1 h_i + W_2 q_j))\right) h_i^{\top}",
    ),
    Formula(
        "worked slip",
        WRONG,
        "c = 0.2 [1, 2, 9] + 0.8 [9, 1, 1] = [7.4, 1.2, 1.7]",
        r"c = 0.2\ [1, 2, 9] + 0.8\ [9, 1, 1] = [7.4, 1.2, 1.7]",
        "a worked example, copied on",
        lambda draw: softmax.worked_example([7.4, 1.2, 1.7]),
        holds=False,
        truth="c = [7.4, 1.2, 2.6], since 0.2 · 9 + 0.8 · 1 = 2.6",
        truth_latex=r"c = [7.4, 1.2, 2.6],\ \text{since}\  0.2 \cdot 9 + 0.8 \cdot 1 = 2.6",
    ),
]
