"""The rows of the RNN, the GRU and the LSTM; `cells` holds what they say.

Time is t here, since i is a gate of the LSTM. Gate order is that of `torch.nn`.
"""

from __future__ import annotations

from gradlab.gradients.formulas import cells
from gradlab.gradients.formulas.cells import GRU, LSTM, RNN
from gradlab.gradients.formulas.claim import Formula, Group

RNN_GROUP = Group(
    "RNN",
    "h_t = tanh(W_ih x_t + b_ih + W_hh h_{t−1} + b_hh), δ_t = dL/dh_t ⊙ (1 − h_t²)",
    r"h_t = \tanh(W_{ih} x_t + b_{ih} + W_{hh} h_{t-1} + b_{hh}),\  \delta_t = "
    r"\frac{\partial L}{\partial h_t} \odot (1 - h_t^2)",
)
GRU_GROUP = Group(
    "GRU",
    "a = W_ih x_t + b_ih, a' = W_hh h_{t−1} + b_hh, r and z = σ(a + a'), n = tanh(a_n + r ⊙ a'_n), "
    "h_t = (1 − z) ⊙ n + z ⊙ h_{t−1}; δ_n = dL/dh_t ⊙ (1 − z) ⊙ (1 − n²), "
    "δ_r = δ_n ⊙ a'_n ⊙ r ⊙ (1 − r), δ_z = dL/dh_t ⊙ (h_{t−1} − n) ⊙ z ⊙ (1 − z)",
    r"a = W_{ih} x_t + b_{ih},\  a' = W_{hh} h_{t-1} + b_{hh},\  r, z = \sigma(a + a'),\  "
    r"n = \tanh(a_n + r \odot a'_n),\  h_t = (1 - z) \odot n + z \odot h_{t-1};\  "
    r"\delta_n = \frac{\partial L}{\partial h_t} \odot (1 - z) \odot (1 - n^2),\  "
    r"\delta_r = \delta_n \odot a'_n \odot r \odot (1 - r),\  "
    r"\delta_z = \frac{\partial L}{\partial h_t} \odot (h_{t-1} - n) \odot z \odot (1 - z)",
)
LSTM_GROUP = Group(
    "LSTM",
    "a = W_ih x_t + b_ih + W_hh h_{t−1} + b_hh, i and f and o = σ(a), g = tanh(a_g), "
    "c_t = f ⊙ c_{t−1} + i ⊙ g, h_t = o ⊙ tanh c_t; dL/dc_t holds h_t fixed and dL/dh_t holds "
    "c_t fixed; δ_c = dL/dc_t + dL/dh_t ⊙ o ⊙ (1 − tanh² c_t), δ_i = δ_c ⊙ g ⊙ i ⊙ (1 − i), "
    "δ_f = δ_c ⊙ c_{t−1} ⊙ f ⊙ (1 − f), δ_g = δ_c ⊙ i ⊙ (1 − g²), "
    "δ_o = dL/dh_t ⊙ tanh c_t ⊙ o ⊙ (1 − o), δ_t = [δ_i; δ_f; δ_g; δ_o]",
    r"a = W_{ih} x_t + b_{ih} + W_{hh} h_{t-1} + b_{hh},\ i, f, o = \sigma(a),\ g = \tanh(a_g),\ "
    r"c_t = f \odot c_{t-1} + i \odot g,\  h_t = o \odot \tanh c_t;\  "
    r"\frac{\partial L}{\partial c_t}\ \text{holds}\  h_t\ \text{fixed and}\  "
    r"\frac{\partial L}{\partial h_t}\ \text{holds}\  c_t\ \text{fixed};\  "
    r"\delta_c = \frac{\partial L}{\partial c_t} + \frac{\partial L}{\partial h_t} \odot o \odot "
    r"(1 - \tanh^2 c_t),\  \delta_i = \delta_c \odot g \odot i \odot (1 - i),\  "
    r"\delta_f = \delta_c \odot c_{t-1} \odot f \odot (1 - f),\  "
    r"\delta_g = \delta_c \odot i \odot (1 - g^2),\  "
    r"\delta_o = \frac{\partial L}{\partial h_t} \odot \tanh c_t \odot o \odot (1 - o),\  "
    r"\delta_t = [\delta_i; \delta_f; \delta_g; \delta_o]",
)
PASCANU = "Pascanu et al. 2013, section 1.1"
CHO = "Cho et al. 2014, section 2.3, with r as in torch.nn.GRU"
GREFF = "Greff et al. 2017, section II, without peepholes"

FORMULAS = [
    Formula(
        "RNN h",
        RNN_GROUP,
        "dL/dh_{t−1} = W_hhᵀ δ_t",
        r"\frac{\partial L}{\partial h_{t-1}} = W_{hh}^{\top} \delta_t",
        PASCANU,
        cells.before_h(RNN),
    ),
    Formula(
        "RNN W_hh",
        RNN_GROUP,
        "dL/dW_hh = δ_t h_{t−1}ᵀ",
        r"\frac{\partial L}{\partial W_{hh}} = \delta_t h_{t-1}^{\top}",
        PASCANU,
        cells.weight_hh(RNN),
    ),
    Formula(
        "RNN W_ih",
        RNN_GROUP,
        "dL/dW_ih = δ_t x_tᵀ",
        r"\frac{\partial L}{\partial W_{ih}} = \delta_t x_t^{\top}",
        PASCANU,
        cells.weight_ih(RNN),
    ),
    Formula(
        "RNN biases",
        RNN_GROUP,
        "dL/db_ih = dL/db_hh = δ_t",
        r"\frac{\partial L}{\partial b_{ih}} = \frac{\partial L}{\partial b_{hh}} = \delta_t",
        PASCANU,
        cells.biases(RNN),
    ),
    Formula(
        "RNN W_hh over time",
        RNN_GROUP,
        "dL/dW_hh = Σ_t δ_t h_{t−1}ᵀ",
        r"\frac{\partial L}{\partial W_{hh}} = \sum_t \delta_t h_{t-1}^{\top}",
        PASCANU,
        cells.weight_hh_over_time(RNN),
    ),
    Formula(
        "GRU h",
        GRU_GROUP,
        "dL/dh_{t−1} = dL/dh_t ⊙ z + W_hrᵀ δ_r + W_hzᵀ δ_z + W_hnᵀ (r ⊙ δ_n)",
        r"\frac{\partial L}{\partial h_{t-1}} = \frac{\partial L}{\partial h_t} \odot z"
        r" + W_{hr}^{\top} \delta_r + W_{hz}^{\top} \delta_z + W_{hn}^{\top} (r \odot \delta_n)",
        CHO,
        cells.before_h(GRU),
    ),
    Formula(
        "GRU W_hh",
        GRU_GROUP,
        "dL/dW_hh = [δ_r; δ_z; r ⊙ δ_n] h_{t−1}ᵀ",
        r"\frac{\partial L}{\partial W_{hh}} = [\delta_r; \delta_z; r \odot \delta_n]"
        r" h_{t-1}^{\top}",
        CHO,
        cells.weight_hh(GRU),
    ),
    Formula(
        "GRU W_ih",
        GRU_GROUP,
        "dL/dW_ih = [δ_r; δ_z; δ_n] x_tᵀ",
        r"\frac{\partial L}{\partial W_{ih}} = [\delta_r; \delta_z; \delta_n] x_t^{\top}",
        CHO,
        cells.weight_ih(GRU),
    ),
    Formula(
        "GRU biases",
        GRU_GROUP,
        "dL/db_ih = [δ_r; δ_z; δ_n], dL/db_hh = [δ_r; δ_z; r ⊙ δ_n]",
        r"\frac{\partial L}{\partial b_{ih}} = [\delta_r; \delta_z; \delta_n],\  "
        r"\frac{\partial L}{\partial b_{hh}} = [\delta_r; \delta_z; r \odot \delta_n]",
        CHO,
        cells.biases(GRU),
    ),
    Formula(
        "GRU W_hh over time",
        GRU_GROUP,
        "dL/dW_hh = Σ_t [δ_r; δ_z; r ⊙ δ_n]_t h_{t−1}ᵀ",
        r"\frac{\partial L}{\partial W_{hh}} = \sum_t [\delta_r; \delta_z; r \odot \delta_n]_t"
        r" h_{t-1}^{\top}",
        CHO,
        cells.weight_hh_over_time(GRU),
    ),
    Formula(
        "LSTM h",
        LSTM_GROUP,
        "dL/dh_{t−1} = W_hhᵀ δ_t",
        r"\frac{\partial L}{\partial h_{t-1}} = W_{hh}^{\top} \delta_t",
        GREFF,
        cells.before_h(LSTM),
    ),
    Formula(
        "LSTM c",
        LSTM_GROUP,
        "dL/dc_{t−1} = f ⊙ δ_c",
        r"\frac{\partial L}{\partial c_{t-1}} = f \odot \delta_c",
        GREFF,
        cells.before_c(LSTM),
    ),
    Formula(
        "LSTM W_hh",
        LSTM_GROUP,
        "dL/dW_hh = δ_t h_{t−1}ᵀ",
        r"\frac{\partial L}{\partial W_{hh}} = \delta_t h_{t-1}^{\top}",
        GREFF,
        cells.weight_hh(LSTM),
    ),
    Formula(
        "LSTM W_ih",
        LSTM_GROUP,
        "dL/dW_ih = δ_t x_tᵀ",
        r"\frac{\partial L}{\partial W_{ih}} = \delta_t x_t^{\top}",
        GREFF,
        cells.weight_ih(LSTM),
    ),
    Formula(
        "LSTM biases",
        LSTM_GROUP,
        "dL/db_ih = dL/db_hh = δ_t",
        r"\frac{\partial L}{\partial b_{ih}} = \frac{\partial L}{\partial b_{hh}} = \delta_t",
        GREFF,
        cells.biases(LSTM),
    ),
    Formula(
        "LSTM W_hh over time",
        LSTM_GROUP,
        "dL/dW_hh = Σ_t δ_t h_{t−1}ᵀ",
        r"\frac{\partial L}{\partial W_{hh}} = \sum_t \delta_t h_{t-1}^{\top}",
        GREFF,
        cells.weight_hh_over_time(LSTM),
    ),
    Formula(
        "LSTM c over time",
        LSTM_GROUP,
        "dL/dc_t = f_{t+1} ⊙ δ_{c,t+1}, 0 at the last step if only h leaves it",
        r"\frac{\partial L}{\partial c_t} = f_{t+1} \odot \delta_{c,t+1}\ "
        r"\text{(0 at the last step if only}\  h\ \text{leaves it)}",
        GREFF,
        cells.state_c_over_time,
    ),
]
