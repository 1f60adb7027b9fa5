"""The loops that one would write in torch: cells step by step, autograd, retain_grad.

The names of the weights are those of `gradlab`, but for the `_l0` that torch's cells do not have.
"""

from __future__ import annotations

import torch
from other_scores import OTHERS, Score
from torch import Tensor, nn

from gradlab.grid import Point
from gradlab.lab.run import build_model
from gradlab.tasks import Batch

CELLS = {"rnn": nn.RNNCell, "gru": nn.GRUCell, "lstm": nn.LSTMCell}
LAYERS = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}
State = tuple[Tensor, ...]
"""(h,), or (h, c) for the LSTM."""
Memory = tuple[Tensor, Tensor]
"""The encoder's states (batch, n, hidden), as values and as the attention wants them as keys."""


class AdditiveAttention(Score):
    """v . tanh(W1 h_i + W2 q), with the keys W1 h_i projected anew at every target step."""

    def __init__(self, hidden: int) -> None:
        super().__init__(hidden)
        self.key = nn.Linear(hidden, hidden, bias=False)
        self.query = nn.Linear(hidden, hidden, bias=False)
        self.energy = nn.Linear(hidden, 1, bias=False)

    def project(self, prepared: Tensor) -> Tensor:
        keys: Tensor = self.key(prepared)
        return keys

    def forward(self, query: Tensor, prepared: Tensor) -> Tensor:
        both = self.project(prepared) + self.query(query).unsqueeze(1)
        scores: Tensor = self.energy(torch.tanh(both)).squeeze(-1)
        return scores


class HoistedAttention(AdditiveAttention):
    """The same with the keys projected once a pass."""

    def prepare(self, states: Tensor) -> Tensor:
        return super().project(states)

    def project(self, prepared: Tensor) -> Tensor:
        return prepared


class DotAttention(Score):
    """q . h_i."""

    def forward(self, query: Tensor, prepared: Tensor) -> Tensor:
        return torch.bmm(prepared, query.unsqueeze(-1)).squeeze(-1)


def attention(name: str, hidden: int, hoisted: bool) -> Score | None:
    """Return the attention of this name; `hoisted` projects additive keys once a pass."""
    if name == "none":
        return None
    if name == "additive" and hoisted:
        return HoistedAttention(hidden)
    return {"additive": AdditiveAttention, "dot": DotAttention, **OTHERS}[name](hidden)


class UsualSeq2Seq(nn.Module):
    """Encoder, bridge "initial" and decoder of a point, step by step."""

    def __init__(self, point: Point, hoisted: bool = False) -> None:
        super().__init__()
        spec, symbols = point.model, point.task.symbols
        attends = spec.attention != "none"
        self.bahdanau = attends and spec.timing == "bahdanau"
        cell, context = CELLS[spec.cell], spec.hidden if self.bahdanau else 0
        self.source_embedding = nn.Embedding(symbols + 3, spec.embedding)
        self.target_embedding = nn.Embedding(symbols + 3, spec.embedding)
        self.encoder = cell(spec.embedding, spec.hidden)
        self.decoder = cell(spec.embedding + context, spec.hidden)
        self.attention = attention(spec.attention, spec.hidden, hoisted)
        self.scope, self.window, self.asked = spec.scope, spec.window, 0
        if self.attention is not None and spec.scope == "local_predictive":
            self.attention.position = nn.Linear(spec.hidden, spec.hidden, bias=False)
            self.attention.position_energy = nn.Linear(spec.hidden, 1, bias=False)
        luong = attends and not self.bahdanau
        self.combine = nn.Linear(2 * spec.hidden, spec.hidden) if luong else None
        self.output = nn.Linear(spec.hidden, symbols)
        self.to(getattr(torch, point.training.dtype))
        self.load_state_dict(starting_weights(point))

    def step(self, cell: nn.Module, x: Tensor, state: State) -> State:
        if isinstance(cell, nn.LSTMCell):
            pair: State = cell(x, state)
            return pair
        return (cell(x, state[0]),)

    def encode(self, source: Tensor, watch: bool = False) -> tuple[list[Tensor], State]:
        """Return every h_i (batch, hidden) and the last state; `watch` retains the gradients."""
        embedded = self.source_embedding(source)
        zeros = embedded.new_zeros(len(source), self.output.in_features)
        state: State = (zeros, zeros) if isinstance(self.encoder, nn.LSTMCell) else (zeros,)
        states = []
        for x in embedded.unbind(1):
            state = self.step(self.encoder, x, state)
            if watch:
                state[0].retain_grad()
            states.append(state[0])
        return states, state

    def read(self, query: Tensor, memory: Memory) -> Tensor:
        """Return the context (batch, hidden) that a query finds."""
        assert self.attention is not None
        values, prepared = memory
        weights = self.weigh(self.attention(query, prepared), query)
        return torch.bmm(weights.unsqueeze(1), values).squeeze(1)

    def weigh(self, scores: Tensor, query: Tensor) -> Tensor:
        """Return the weights of the next target step, j of k = n; local ones by their formulas."""
        if self.scope == "global":
            return torch.softmax(scores, -1)
        assert self.attention is not None
        self.asked += 1
        i = torch.arange(1, scores.shape[-1] + 1, dtype=scores.dtype)
        if self.scope == "local_monotonic":
            outside = (i - self.asked).abs() > self.window
            return torch.softmax(scores.masked_fill(outside, -torch.inf), -1)
        hidden, energy = map(self.attention.get_submodule, ("position", "position_energy"))
        position = energy(torch.tanh(hidden(query)))
        away = i - len(i) * torch.sigmoid(position)
        inside = scores.masked_fill(away.detach().abs() > self.window, -torch.inf)
        return torch.softmax(inside, -1) * torch.exp(-2 * (away / self.window) ** 2)

    def decode(self, y: Tensor, state: State, memory: Memory) -> tuple[Tensor, State]:
        """Return the logits (batch, V) of one target step that reads `y`, and the next state."""
        if self.bahdanau:
            y = torch.cat([y, self.read(state[0], memory)], -1)
        state = self.step(self.decoder, y, state)
        readout = state[0]
        if self.combine is not None:
            context = self.read(readout, memory)
            readout = torch.tanh(self.combine(torch.cat([context, readout], -1)))
        return self.output(readout), state

    def remember(self, states: list[Tensor]) -> Memory:
        self.asked = 0
        values = torch.stack(states, 1)
        return values, values if self.attention is None else self.attention.prepare(values)

    def forward(self, batch: Batch, watch: bool = False) -> tuple[Tensor, list[Tensor]]:
        """Return the teacher-forced logits (batch, k, V) and the encoder's states."""
        states, state = self.encode(batch.source, watch)
        memory = self.remember(states)
        logits = []
        for y in self.target_embedding(batch.decoder_input).unbind(1):
            at_step, state = self.decode(y, state, memory)
            logits.append(at_step)
        return torch.stack(logits, 1), states

    @torch.no_grad()
    def greedy(self, batch: Batch) -> Tensor:
        """Return the symbols (batch, k) of free-running decoding."""
        states, state = self.encode(batch.source)
        memory = self.remember(states)
        symbol, symbols = batch.decoder_input[:, 0], []
        for _ in range(batch.target.shape[1]):
            logits, state = self.decode(self.target_embedding(symbol), state, memory)
            symbol = logits.argmax(-1)
            symbols.append(symbol)
        return torch.stack(symbols, 1)


class FusedSeq2Seq(nn.Module):
    """Without attention: torch's fused layers, which teacher forcing allows in the decoder too."""

    def __init__(self, point: Point) -> None:
        super().__init__()
        spec, symbols = point.model, point.task.symbols
        layer = LAYERS[spec.cell]
        self.source_embedding = nn.Embedding(symbols + 3, spec.embedding)
        self.target_embedding = nn.Embedding(symbols + 3, spec.embedding)
        self.encoder = layer(spec.embedding, spec.hidden, batch_first=True)
        self.decoder = layer(spec.embedding, spec.hidden, batch_first=True)
        self.output = nn.Linear(spec.hidden, symbols)
        self.to(getattr(torch, point.training.dtype))
        self.load_state_dict(build_model(point).state_dict())

    def forward(self, batch: Batch, watch: bool = False) -> tuple[Tensor, None]:
        """Return the logits; there are no states by step to watch."""
        _, last = self.encoder(self.source_embedding(batch.source))
        states, _ = self.decoder(self.target_embedding(batch.decoder_input), last)
        return self.output(states), None


def starting_weights(point: Point) -> dict[str, Tensor]:
    """Return the weights that gradlab starts the point from, under the names of torch's cells."""
    drawn = build_model(point).state_dict()
    return {name.removesuffix("_l0"): weight for name, weight in drawn.items()}
