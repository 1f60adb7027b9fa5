"""The layers of the transformer (Vaswani et al. 2017), pre-norm: normalise, transform, add.

    encoder layer   x + self(norm1(x));  x + feed_forward(norm2(x))
    decoder layer   x + self(norm1(x));  x + cross(norm2(x), keys, values);
                    x + feed_forward(norm3(x))
    attention       a head of size d: alpha = softmax(q k^T / sqrt(d)), context alpha v;
                    out_proj of the heads' contexts side by side
    feed_forward    linear2(relu(linear1(x)))

Parameters have the names and layout of `torch.nn.TransformerEncoderLayer` and `DecoderLayer`
(norm_first, activation relu, no dropout) and are drawn within their bounds.

Shapes: sequences (..., batch, time, hidden), contiguous; queries at k steps, keys at n. Leading
axes of a parameter are replicas.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gradlab.models.attention import masked_softmax
from gradlab.models.layers import Layer, Linear, linear, uniform

EPSILON = 1e-5  # of the layer norms, as in `torch.nn.LayerNorm`


def positions(length: int, hidden: int, like: Tensor) -> Tensor:
    """Return the sinusoidal positions 0 .. length - 1, (length, hidden), in the dtype of `like`.

    sin(t / 10000^(2i / hidden)) in column 2i, cos of the same in column 2i + 1; an odd hidden size
    ends with a sine. Vaswani et al. 2017, section 3.5.
    """
    column = torch.arange(hidden, device=like.device)
    step = torch.arange(length, device=like.device, dtype=torch.float64)
    angle = step[:, None] * 10000.0 ** (-(column - column % 2).double() / hidden)
    return torch.where(column % 2 == 0, angle.sin(), angle.cos()).to(like.dtype)


def map_rows(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return x W^T + b for x (..., batch, time, in) as one matrix product a replica."""
    steps = x.shape[-3:-1]
    mapped: Tensor = linear(x.flatten(-3, -2), weight, bias).unflatten(-2, steps)
    return mapped


class Dense(Linear):
    """A `Linear` for sequences that lie batch-first in memory."""

    def forward(self, x: Tensor) -> Tensor:
        """Return (..., batch, time, out) of x (..., batch, time, in)."""
        return map_rows(x, self.weight, self.bias)


class OutputProjection(Dense):
    """A `Dense` whose bias starts at zero, as `out_proj` of `torch.nn.MultiheadAttention`."""

    def draw(self, seed: int, name: str) -> None:
        super().draw(seed, name)
        assert self.bias is not None
        nn.init.zeros_(self.bias)


class LayerNorm(Layer):
    """Each vector less its mean, over its standard deviation; Ba et al. 2016. Starts at 1 and 0."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(hidden))
        self.bias = nn.Parameter(torch.empty(hidden))

    def draw(self, seed: int, name: str) -> None:
        nn.init.ones_(self.weight)
        nn.init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Return the same shape as x (..., batch, time, hidden)."""
        size = self.weight.shape[-1:]
        if self.weight.dim() == 1:
            return F.layer_norm(x, size, self.weight, self.bias, EPSILON)
        scale, shift = (part[..., None, None, :] for part in (self.weight, self.bias))
        return F.layer_norm(x, size, eps=EPSILON) * scale + shift


class Asked(NamedTuple):
    """Queries and keys by head, (..., batch, heads, k or n, hidden / heads), and their mask.

    torch's fused attention keeps no weights; they are computed when somebody looks at them.
    """

    queries: Tensor
    keys: Tensor
    mask: Tensor

    @property
    def weights(self) -> Tensor:
        """The attention weights, (..., batch, heads, k, n)."""
        scores = self.queries @ (self.keys * self.keys.shape[-1] ** -0.5).mT
        return masked_softmax(scores, self.mask)


class MultiHeadAttention(Layer):
    """Attention by several heads, each in its own part of the hidden axis; section 3.2.2."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.in_proj_weight = nn.Parameter(torch.empty(3 * hidden, hidden))
        self.in_proj_bias = nn.Parameter(torch.empty(3 * hidden))
        self.out_proj = OutputProjection(hidden, hidden, bias=True)

    @torch.no_grad()
    def draw(self, seed: int, name: str) -> None:
        shape = tuple(self.in_proj_weight.shape)
        bound = (6 / sum(shape)) ** 0.5
        self.in_proj_weight.copy_(uniform(shape, bound, seed, f"{name}.in_proj_weight"))
        nn.init.zeros_(self.in_proj_bias)

    def to_itself(self, x: Tensor, mask: Tensor) -> Tensor:
        """Return what each step of x (..., batch, time, hidden) reads of the steps of x."""
        q, k, v = map_rows(x, self.in_proj_weight, self.in_proj_bias).chunk(3, -1)
        return self._attend(q, k, v, mask)[0]

    def forward(
        self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor
    ) -> tuple[Tensor, Asked]:
        """Return what is read, (..., batch, k, hidden), and what the weights follow from.

        mask: broadcast to (..., batch, heads, k, n), True where a key may be seen.
        """
        weights, biases = self.in_proj_weight.chunk(3, -2), self.in_proj_bias.chunk(3, -1)
        parts = zip((queries, keys, values), weights, biases, strict=True)
        q, k, v = (map_rows(x, weight, bias) for x, weight, bias in parts)
        return self._attend(q, k, v, mask)

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> tuple[Tensor, Asked]:
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(-3, -2) for part in (q, k, v))
        by_head = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.out_proj(by_head.transpose(-3, -2).flatten(-2)), Asked(q, k, mask)


class EncoderLayer(nn.Module):
    """Self-attention and feed-forward."""

    def __init__(self, hidden: int, heads: int, feedforward: int) -> None:
        super().__init__()
        self.self_attn = MultiHeadAttention(hidden, heads)
        self.linear1 = Dense(hidden, feedforward, bias=True)
        self.linear2 = Dense(feedforward, hidden, bias=True)
        self.norm1, self.norm2 = LayerNorm(hidden), LayerNorm(hidden)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Return the states of the next layer, (..., batch, n, hidden) as x; mask: `key_mask`."""
        x = x + self.self_attn.to_itself(self.norm1(x), mask)
        residual: Tensor = x + self.linear2(torch.relu(self.linear1(self.norm2(x))))
        return residual


class DecoderLayer(nn.Module):
    """Causal self-attention, cross-attention to the source and feed-forward."""

    def __init__(self, hidden: int, heads: int, feedforward: int) -> None:
        super().__init__()
        self.self_attn = MultiHeadAttention(hidden, heads)
        self.multihead_attn = MultiHeadAttention(hidden, heads)
        self.linear1 = Dense(hidden, feedforward, bias=True)
        self.linear2 = Dense(feedforward, hidden, bias=True)
        self.norm1, self.norm2, self.norm3 = (LayerNorm(hidden) for _ in range(3))

    def before(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return x (..., batch, k, hidden) after self-attention, and the queries that it asks."""
        k = x.shape[-2]
        earlier = torch.ones(k, k, dtype=torch.bool, device=x.device).tril()
        x = x + self.self_attn.to_itself(self.norm1(x), earlier)
        return x, self.norm2(x)

    def after(self, x: Tensor, read: Tensor) -> Tensor:
        """Return the states of the next layer, given what cross-attention read."""
        x = x + read
        residual: Tensor = x + self.linear2(torch.relu(self.linear1(self.norm3(x))))
        return residual


def key_mask(mask: Tensor) -> Tensor:
    """Return the mask (..., batch, n) of real steps as every head and query sees it."""
    return mask[..., None, None, :]
