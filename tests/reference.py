"""Slow and obvious twins of the fast paths: `torch.nn` cells and plain tensor operations.

Every example is run alone, without padding, one step at a time. Zeros are added ("taps") wherever a
gradient is wanted, so that autograd, or a finite difference, of the loss with respect to a tap is
that gradient. Several copies of one example, each with its own taps, run side by side.

Shapes: copies c (1 unless said), source length n, target length k, hidden size H, symbols V.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from gradlab.models.attention import SCORES
from gradlab.models.cells import CELLS
from gradlab.models.seq2seq import Seq2Seq
from gradlab.schema import Model
from gradlab.tasks import Batch

M = TypeVar("M", bound=nn.Module)
State = tuple[Tensor, ...]
Vectors = dict[str, dict[str, Tensor]]
"""path -> state -> (n, H)."""

TORCH_CELLS: dict[str, type[nn.RNNCell] | type[nn.GRUCell] | type[nn.LSTMCell]] = {
    "rnn": nn.RNNCell,
    "gru": nn.GRUCell,
    "lstm": nn.LSTMCell,
}
TORCH_LAYERS: dict[str, type[nn.RNN] | type[nn.GRU] | type[nn.LSTM]] = {
    "rnn": nn.RNN,
    "gru": nn.GRU,
    "lstm": nn.LSTM,
}
EDGES = ("bridge", "values", "keys")
STATE_NAMES = {"rnn": ("h",), "gru": ("h",), "lstm": ("h", "c")}

REDUCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "mean": lambda nats: nats.mean(-1),
    "sum": lambda nats: nats.sum(-1),
    "first": lambda nats: nats[:, 0],
    "last": lambda nats: nats[:, -1],
}


ARCHITECTURES = [
    {"attention": attention, "timing": timing, "bridge": bridge}
    for attention in ("none", *SCORES)
    for timing in ("bahdanau", "luong")[: 1 if attention == "none" else 2]
    for bridge in ("initial", "every_step", "none")
    if (attention, bridge) != ("none", "none")
]
"""Every encoder-decoder there is, cell aside."""
MODELS = [{"cell": cell, **architecture} for cell in CELLS for architecture in ARCHITECTURES]

TARGETS: dict[str, Callable[[list[int]], list[int]]] = {
    "copy": lambda data: data,
    "reverse": lambda data: data[::-1],
}


def label(value: object) -> str | None:
    """Name a table of settings in a test's id."""
    return "-".join(map(str, value.values())) if isinstance(value, dict) else None


def make_batch(
    task: str, lengths: list[int], *, symbols: int = 4, delay: int = 0, seed: int = 0
) -> Batch:
    """Return a batch with exactly these numbers of data symbols, one example after the other."""
    generator = np.random.default_rng(seed)
    blank, pad = symbols + 1, symbols + 2
    sources, targets = [], []
    for n in lengths:
        data = generator.integers(symbols, size=n).tolist()
        sources.append(data + delay * [blank] + (max(lengths) - n) * [pad])
        targets.append(TARGETS[task](data) + (max(lengths) - n) * [pad])
    return Batch(
        source=torch.tensor(sources),
        source_lengths=torch.tensor(lengths) + delay,
        target=torch.tensor(targets),
        target_lengths=torch.tensor(lengths),
        symbols=symbols,
    )


def build(symbols: int = 4, seed: int = 0, **spec: Any) -> Seq2Seq:
    """Return a small float64 model; `spec` are keys of `[model]`."""
    small = {"hidden": 4, "embedding": 3}
    return Seq2Seq(Model.model_validate(small | spec), symbols, seed).double()


def stack(modules: Sequence[M]) -> M:
    """Return one module whose parameters are those of all modules, stacked on a leading axis."""
    together = copy.deepcopy(modules[0])
    for name, _ in modules[0].named_parameters():
        layer, _, weight = name.rpartition(".")
        stacked = torch.stack([module.get_parameter(name).detach() for module in modules])
        setattr(together.get_submodule(layer), weight, nn.Parameter(stacked))
    return together


def norm(x: Tensor) -> Tensor:
    """Return the L2 norm over the last axis, also where squares would underflow."""
    scale = x.abs().amax(-1, keepdim=True)
    scale = torch.where(scale == 0, 1.0, scale)
    return (x / scale).square().sum(-1).sqrt() * scale.squeeze(-1)


def assert_close(
    found: Tensor, expected: Tensor, rtol: float = 1e-9, scale: Tensor | None = None
) -> None:
    """Require ||found - expected|| <= rtol * scale for every vector on the last axis; atol is 0.

    scale: the norm of the expected vector, unless parts cancel and the sum of their norms is given.
    """
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype == torch.float64
    error, size = norm(found - expected), norm(expected) if scale is None else scale
    assert bool((error <= rtol * size).all()), f"largest relative error {(error / size).max():.1e}"


@dataclass(frozen=True)
class Taps:
    """Zeros added to what the gradient is wanted for.

    states: to h, or to h and c, after each encoder step; each (c, n, H).
    bridge: to the final state on its way into the decoder; each (c, H).
    values, keys: to the states that attention reads and scores; (c, n, H).
    """

    states: State
    bridge: State
    values: Tensor
    keys: Tensor

    @staticmethod
    def zeros(cell: str, copies: int, n: int, hidden: int) -> Taps:
        def zero(*shape: int) -> Tensor:
            return torch.zeros(*shape, dtype=torch.float64, requires_grad=True)

        return Taps(
            states=tuple(zero(copies, n, hidden) for _ in STATE_NAMES[cell]),
            bridge=tuple(zero(copies, hidden) for _ in STATE_NAMES[cell]),
            values=zero(copies, n, hidden),
            keys=zero(copies, n, hidden),
        )


@dataclass(frozen=True)
class Result:
    """One example, run alone: loss (c,), logits (c, k, V), states each (c, n, H).

    weights, contexts: one for each target step, (c, n) and (c, H); empty without attention.
    """

    loss: Tensor
    logits: Tensor
    states: State
    weights: list[Tensor]
    contexts: list[Tensor]


class Twin:
    """A `Seq2Seq` with the same weights, written out as `torch.nn` users write it by hand."""

    def __init__(self, model: Seq2Seq) -> None:
        self.spec, self.symbols = model.spec, model.symbols
        self.weights = {
            name: value.detach().double().clone() for name, value in model.state_dict().items()
        }
        self.encoder = self._cell("encoder")
        self.decoder = self._cell("decoder")

    def _cell(self, name: str) -> nn.Module:
        weight = self.weights[f"{name}.weight_ih_l0"]
        cell = TORCH_CELLS[self.spec.cell](weight.shape[1], self.spec.hidden).double()
        keys = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        cell.load_state_dict({key: self.weights[f"{name}.{key}_l0"] for key in keys})
        return cell.requires_grad_(False)

    def step(self, cell: nn.Module, x: Tensor, state: State) -> State:
        """Return the next state of a `torch.nn` cell as a tuple, for any cell."""
        if self.spec.cell == "lstm":
            h, c = cell(x, state)
            return h, c
        return (cell(x, state[0]),)

    def taps(self, batch: Batch, example: int, copies: int = 1) -> Taps:
        n = int(batch.source_lengths[example])
        return Taps.zeros(self.spec.cell, copies, n, self.spec.hidden)

    def run(
        self,
        batch: Batch,
        example: int,
        reduction: str,
        taps: Taps | None = None,
        through: tuple[str, ...] = EDGES,
    ) -> Result:
        """Run one example of the batch alone, without its padding.

        through: the exit edges by which taps on the encoder states may reach the loss; the other
        edges read the states of a run without taps.
        """
        nothing = self.taps(batch, example)
        taps = taps or nothing
        states, still = self.encode(batch, example, taps), self.encode(batch, example, nothing)
        values = (states if "values" in through else still)[0] + taps.values
        keys = (states if "keys" in through else still)[0] + taps.keys
        final = [part[:, -1] for part in (states if "bridge" in through else still)]
        bridge = tuple(part + tap for part, tap in zip(final, taps.bridge, strict=True))
        return self.decode(batch, example, reduction, states, bridge, values, keys)

    def encode(self, batch: Batch, example: int, taps: Taps) -> State:
        """Return h, or h and c, after every step, each (c, n, H)."""
        source = batch.source[example, : batch.source_lengths[example]]
        state = tuple(torch.zeros_like(tap) for tap in taps.bridge)
        history = []
        for i, symbol in enumerate(source):
            x = self.weights["source_embedding.weight"][symbol].expand(len(state[0]), -1)
            state = self.step(self.encoder, x, state)
            state = tuple(part + tap[:, i] for part, tap in zip(state, taps.states, strict=True))
            history.append(state)
        return tuple(torch.stack(part, dim=1) for part in zip(*history, strict=True))

    def decode(
        self,
        batch: Batch,
        example: int,
        reduction: str,
        states: State,
        bridge: State,
        values: Tensor,
        keys: Tensor,
    ) -> Result:
        """Read the target with teacher forcing."""
        target = batch.target[example, : batch.target_lengths[example]]
        read_before = self.spec.attention != "none" and self.spec.timing == "bahdanau"
        read_after = self.spec.attention != "none" and self.spec.timing == "luong"
        s = bridge if self.spec.bridge != "none" else tuple(torch.zeros_like(h) for h in bridge)
        previous = torch.tensor(self.symbols)  # BOS
        logits, nats, weights, contexts = [], [], [], []
        for symbol in target:
            inputs = [self.weights["target_embedding.weight"][previous].expand(len(s[0]), -1)]
            if read_before:
                alpha, context = self.attend(s[0], keys, values)
                inputs.append(context)
            if self.spec.bridge == "every_step":
                inputs.append(bridge[0])
            s = self.step(self.decoder, torch.cat(inputs, dim=-1), s)
            readout = s[0]
            if read_after:
                alpha, context = self.attend(s[0], keys, values)
                combined = torch.cat([context, s[0]], dim=-1) @ self.weights["combine.weight"].T
                readout = torch.tanh(combined + self.weights["combine.bias"])
            if read_before or read_after:
                weights.append(alpha)
                contexts.append(context)
            logits.append(readout @ self.weights["output.weight"].T + self.weights["output.bias"])
            nats.append(-torch.log_softmax(logits[-1], dim=-1)[:, symbol])
            previous = symbol
        loss = REDUCTIONS[reduction](torch.stack(nats, dim=-1))
        return Result(loss, torch.stack(logits, dim=1), states, weights, contexts)

    def attend(self, query: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Return weights (c, n) and context (c, H) of one query (c, H)."""
        if self.spec.attention == "additive":
            key = keys @ self.weights["attention.key.weight"].T
            asked = query @ self.weights["attention.query.weight"].T
            scores = torch.tanh(key + asked[:, None]) @ self.weights["attention.energy.weight"][0]
        elif self.spec.attention == "dot":
            scores = (keys * query[:, None]).sum(-1)
        else:
            raise NotImplementedError(f"write the twin of attention {self.spec.attention!r}")
        alpha = torch.softmax(scores, dim=-1)
        return alpha, (alpha[:, :, None] * values).sum(1)


def total_gradient(twin: Twin, batch: Batch, example: int, reduction: str) -> dict[str, Tensor]:
    """Return state -> (n, H): the gradient of the loss with respect to a tap on every state."""
    taps = twin.taps(batch, example)
    loss = twin.run(batch, example, reduction, taps).loss.sum()
    names = STATE_NAMES[twin.spec.cell]
    return {
        name: gradient[0]
        for name, gradient in zip(names, torch.autograd.grad(loss, taps.states), strict=True)
    }


def all_gradients(twin: Twin, batch: Batch, example: int, reduction: str) -> Vectors:
    """Return total, direct and the parts by exit edge, the parts through explicit Jacobians."""
    taps = twin.taps(batch, example)
    result = twin.run(batch, example, reduction, taps)
    count = len(taps.states)
    wanted = [*taps.states, *taps.bridge, taps.values, taps.keys]
    found = torch.autograd.grad(result.loss.sum(), wanted, materialize_grads=True)
    total, bridge = found[:count], found[count : 2 * count]
    values, keys = found[-2:]

    injections = {"bridge": [torch.zeros_like(part) for part in total]}
    for part, gradient in zip(injections["bridge"], bridge, strict=True):
        part[:, -1] = gradient
    for edge, gradient in (("values", values), ("keys", keys)):
        injections[edge] = [gradient, *(torch.zeros_like(part) for part in total[1:])]

    jacobians = step_jacobians(twin, batch, example, result.states)
    direct = [sum(parts) for parts in zip(*injections.values(), strict=True)]
    vectors = {"total": total, "direct": direct}
    for edge, injection in injections.items():
        pulled = pull_back(torch.cat(injection, dim=-1)[0], jacobians)
        vectors[edge] = pulled[None].chunk(count, dim=-1)
    names = STATE_NAMES[twin.spec.cell]
    return {
        path: {name: part[0] for name, part in zip(names, parts, strict=True)}
        for path, parts in vectors.items()
    }


def step_jacobians(twin: Twin, batch: Batch, example: int, states: State) -> list[Tensor]:
    """Return J_2 .. J_n, J_i = dz_i / dz_{i-1} of z = h or [h; c], each (size, size)."""
    source = batch.source[example, : batch.source_lengths[example]]
    jacobians = []
    for i, symbol in enumerate(source[1:]):
        x = twin.weights["source_embedding.weight"][symbol][None]

        def step(z: Tensor, x: Tensor = x) -> Tensor:
            state = z[None].chunk(len(states), dim=-1)
            return torch.cat(twin.step(twin.encoder, x, state), dim=-1)[0]

        before = torch.cat([part[0, i] for part in states]).detach()
        jacobian = torch.autograd.functional.jacobian
        jacobians.append(jacobian(step, before, vectorize=True))  # type: ignore[no-untyped-call]
    return jacobians


def pull_back(injection: Tensor, jacobians: list[Tensor]) -> Tensor:
    """Return d_i = g_i + J_{i+1}^T d_{i+1} for an injection g (n, size)."""
    rows = [injection[-1]]
    for g, jacobian in zip(injection[:-1].flip(0), reversed(jacobians), strict=True):
        rows.append(g + jacobian.T @ rows[-1])
    return torch.stack(rows[::-1])


def finite_differences(
    twin: Twin, batch: Batch, example: int, reduction: str, path: str = "total", h: float = 1e-2
) -> dict[str, Tensor]:
    """Return state -> (n, H): sixth-order central differences of the loss with respect to the taps.

    path: "total", or the exit edge by which the taps may reach the loss.

        f'(0) = (45 (f_1 - f_-1) - 9 (f_2 - f_-2) + (f_3 - f_-3)) / 60h + O(h^6 f^(7) / 140)

    At h = 0.01 that remainder is 7e-15 f^(7), and rounding adds about 2 eps |f| / h = 5e-14 nats:
    six digits of any gradient above 1e-7. Half of h, or twice as much, would do as well.
    """
    n, hidden = int(batch.source_lengths[example]), twin.spec.hidden
    through = EDGES if path == "total" else (path,)
    weights = torch.tensor([45.0, -9.0, 1.0], dtype=torch.float64)[:, None] / (60 * h)
    unit = torch.eye(n * hidden, dtype=torch.float64)
    moves = torch.cat([m * h * unit for m in (1, 2, 3, -1, -2, -3)]).view(-1, n, hidden)
    gradients = {}
    for index, name in enumerate(STATE_NAMES[twin.spec.cell]):
        taps = twin.taps(batch, example, copies=len(moves))
        states = (*taps.states[:index], moves, *taps.states[index + 1 :])
        with torch.no_grad():
            loss = twin.run(batch, example, reduction, replace(taps, states=states), through).loss
        up, down = loss.view(2, 3, n * hidden)
        gradients[name] = (weights * (up - down)).sum(0).view(n, hidden)
    return gradients
