"""Recurrent layers on top of each other, and input feeding, as one would write them in torch."""

from __future__ import annotations

import re

import torch
from torch import Tensor, nn
from usual import HoistedAttention

from gradlab import Point, build_model
from gradlab.tasks import Batch


class UsualDeep(nn.Module):
    """GRU encoder and decoder of several layers, additive attention, step by step."""

    def __init__(self, at: Point) -> None:
        super().__init__()
        spec, symbols = at.model, at.task.symbols
        hidden, self.luong, self.feeds = spec.hidden, spec.timing == "luong", spec.input_feeding
        above = [nn.GRUCell(hidden, hidden) for _ in range(1, spec.layers)]
        below = [nn.GRUCell(hidden, hidden) for _ in range(1, spec.layers)]
        wide = 0 if self.luong and not self.feeds else hidden
        self.source_embedding = nn.Embedding(symbols + 3, spec.embedding)
        self.target_embedding = nn.Embedding(symbols + 3, spec.embedding)
        self.encoder = nn.ModuleList([nn.GRUCell(spec.embedding, hidden), *below])
        self.decoder = nn.ModuleList([nn.GRUCell(spec.embedding + wide, hidden), *above])
        self.attention = HoistedAttention(hidden)
        self.combine = nn.Linear(2 * hidden, hidden) if self.luong else None
        self.output = nn.Linear(hidden, symbols)
        self.to(getattr(torch, at.training.dtype))
        named = build_model(at).state_dict().items()
        self.load_state_dict({re.sub(r"\.(\w+_[ih]h)_l(\d)", r".\2.\1", k): w for k, w in named})

    def climb(self, cells: nn.ModuleList, x: Tensor, state: list[Tensor]) -> list[Tensor]:
        found = []
        for cell, h in zip(cells, state, strict=True):
            x = cell(x, h)
            found.append(x)
        return found

    def read(self, query: Tensor, values: Tensor, keys: Tensor) -> Tensor:
        weights = torch.softmax(self.attention(query, keys), -1)
        return torch.bmm(weights.unsqueeze(1), values).squeeze(1)

    def forward(self, batch: Batch, watch: bool = False) -> tuple[Tensor, None]:
        """Return the teacher-forced logits (batch, k, V); every state's gradient is retained."""
        embedded = self.source_embedding(batch.source)
        zeros = embedded.new_zeros(len(embedded), self.output.in_features)
        state, top = [zeros for _ in self.encoder], []
        for x in embedded.unbind(1):
            state = self.climb(self.encoder, x, state)
            for h in state if watch else ():
                h.retain_grad()
            top.append(state[-1])
        values = torch.stack(top, 1)
        keys, fed, logits = self.attention.prepare(values), zeros, []
        for y in self.target_embedding(batch.decoder_input).unbind(1):
            if self.feeds:
                y = torch.cat([y, fed], -1)
            elif not self.luong:
                y = torch.cat([y, self.read(state[-1], values, keys)], -1)
            state = self.climb(self.decoder, y, state)
            fed = state[-1]
            if self.combine is not None:
                context = self.read(fed, values, keys)
                fed = torch.tanh(self.combine(torch.cat([context, fed], -1)))
            logits.append(self.output(fed))
        return torch.stack(logits, 1), None
