"""Slow and obvious twins of the fast paths: `torch.nn` cells and plain tensor operations.

Every example is run alone, without padding, one step at a time. Zeros are added ("taps") wherever a
gradient is wanted, so that autograd, or a finite difference, of the loss with respect to a tap is
that gradient. Several copies of one example, each with its own taps, run side by side.

Shapes: copies c (1 unless said), source length n, target length k, hidden size H, symbols V.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from gradlab.models.cells import CELLS
from gradlab.models.scopes import SCOPES
from gradlab.models.scores import SCORES
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
SUFFIXES = {"forward": "", "backward": "_reverse"}
"""What torch appends to the names of a direction's weights."""

REDUCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "mean": lambda nats: nats.mean(-1),
    "sum": lambda nats: nats.sum(-1),
    "first": lambda nats: nats[:, 0],
    "last": lambda nats: nats[:, -1],
}


BRIDGES = ("initial", "every_step", "none")
THOROUGH = ("none", "additive", "dot")
"""With every bridge and cell. Other scores meet one of each for each timing, in turn: their own
part is compared with its derivatives apart, and `verify` has every cell with every score. Bahdanau
cosines go without a bridge: where s_0 is h_n, its cosine with itself has no gradient at all."""
ARCHITECTURES: list[dict[str, Any]] = [
    {"attention": attention, "timing": timing, "bridge": bridge}
    for index, attention in enumerate(("none", *SCORES))
    for turn, timing in enumerate(("bahdanau", "luong")[: 1 if attention == "none" else 2])
    for bridge in (BRIDGES if attention in THOROUGH else (BRIDGES[index % 3 - turn - 1],))
    if (attention, bridge) != ("none", "none")
]
"""Every encoder-decoder there is, cell and scope aside."""
SCOPED: list[dict[str, Any]] = [
    {
        "cell": list(CELLS)[(index + turn) % 3],
        "attention": attention,
        "timing": timing,
        "bridge": BRIDGES[(index // 2 + turn) % (2 if scope == "local_predictive" else 3)],
        "scope": scope,
        "window": 1 + index // 2 % 2,
    }
    for place, scope in enumerate(scope for scope in SCOPES if scope != "global")
    for turn, timing in enumerate(("bahdanau", "luong"))
    for index, attention in enumerate(SCORES)
    if (place + turn + index) % 2 == 1
]
"""Local scopes, with each score in one timing; cells, bridges and windows take turns."""
MODELS: list[dict[str, Any]] = [
    *(
        {"cell": cell, **architecture}
        for turn, cell in enumerate(CELLS)
        for index, architecture in enumerate(ARCHITECTURES)
        if architecture["attention"] in THOROUGH or index % 3 == turn
    ),
    *SCOPED,
]
LONGEST = 64
"""The most source steps of a test with attention "location"."""

DEEP: list[dict[str, Any]] = [
    {"cell": cell, "layers": layers, "bidirectional": two_way, "bridge": bridge, **attention}
    for cell in CELLS
    for layers in (1, 2)
    for two_way in (False, True)
    for bridge in ("initial", "every_step", "mean")
    for attention in (
        {"attention": "none"},
        {"attention": "additive", "timing": "bahdanau"},
        {"attention": "additive", "timing": "luong"},
        {"attention": "dot", "timing": "bahdanau"},
        {"attention": "additive", "timing": "luong", "input_feeding": True},
    )
    if layers > 1 or two_way or bridge == "mean" or "input_feeding" in attention
    if not (two_way and attention["attention"] == "dot")
]
"""Layers, directions, the mean bridge and input feeding; those that `MODELS` lacks."""
SOME_DEEP: list[dict[str, Any]] = [
    *DEEP[:: len(DEEP) // 19],
    {"cell": "gru", "layers": 2, "bidirectional": True, "attention": "general", "bridge": "none"},
    {"cell": "rnn", "layers": 2, "scope": "local_predictive", "bridge": "initial"},
    {"cell": "lstm", "layers": 2, "timing": "luong", "input_feeding": True, "attention": "cosine"},
]
SOME_DEEP[-1] |= {"bridge": "initial", "scope": "local_monotonic"}
SOME_DEEP[-2] |= {"attention": "scaled_dot", "timing": "bahdanau"}

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
    return Seq2Seq(Model.model_validate(small | spec), symbols, seed, LONGEST).double()


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

    states: to h, or to h and c, after each encoder step, for each layer and direction; each
        (c, n, H).
    bridge: to what each layer leaves on its way into the decoder; each (c, H), or (c, 2H) where the
        encoder reads both ways.
    values, keys: to the states that attention reads and scores; (c, n, H) or (c, n, 2H).
    """

    states: State
    bridge: State
    values: Tensor
    keys: Tensor

    @staticmethod
    def zeros(spec: Model, copies: int, n: int) -> Taps:
        ways = 2 if spec.bidirectional else 1
        hidden, width, count = spec.hidden, ways * spec.hidden, len(STATE_NAMES[spec.cell])

        def zero(*shape: int) -> Tensor:
            return torch.zeros(*shape, dtype=torch.float64, requires_grad=True)

        return Taps(
            states=tuple(zero(copies, n, hidden) for _ in range(spec.layers * ways * count)),
            bridge=tuple(zero(copies, width) for _ in range(spec.layers * count)),
            values=zero(copies, n, width),
            keys=zero(copies, n, width),
        )


def unchanged(x: Tensor) -> Tensor:
    return x


def times(factor: Tensor | float) -> Callable[[Tensor], Tensor]:
    """Return a function that keeps values and multiplies the gradient that comes back."""
    return lambda x: x.detach() + factor * (x - x.detach())


@dataclass(frozen=True)
class Crossing:
    """What happens to the gradient at every edge that counts, and besides at some of them.

    query: at every query edge. hop: at every time step of the encoder.
    """

    counted: Callable[[Tensor], Tensor] = unchanged
    query: Callable[[Tensor], Tensor] = unchanged
    hop: Callable[[Tensor], Tensor] = unchanged


PLAIN = Crossing()
QUERIES_CUT = Crossing(query=times(0.0))


@dataclass(frozen=True)
class Result:
    """One example, run alone: loss (c,), nats (c, k), logits (c, k, V), states as taps go to them.

    weights, contexts: one for each target step, (c, n) and (c, H); empty without attention.
    """

    loss: Tensor
    nats: Tensor
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
        self.attention = copy.deepcopy(model.attention)
        self.directions = tuple(SUFFIXES)[: 2 if self.spec.bidirectional else 1]
        self.encoders = [
            {way: self._cell("encoder", f"l{layer}{SUFFIXES[way]}") for way in self.directions}
            for layer in range(self.spec.layers)
        ]
        self.decoders = [self._cell("decoder", f"l{layer}") for layer in range(self.spec.layers)]
        self.encoder, self.decoder = self.encoders[0]["forward"], self.decoders[0]

    def _cell(self, name: str, layer: str) -> nn.Module:
        weight = self.weights[f"{name}.weight_ih_{layer}"]
        cell = TORCH_CELLS[self.spec.cell](weight.shape[1], self.spec.hidden).double()
        keys = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        cell.load_state_dict({key: self.weights[f"{name}.{key}_{layer}"] for key in keys})
        return cell.requires_grad_(False)

    @property
    def names(self) -> list[str]:
        """The names of all encoder states: "h", "c", "h.1.backward", "h.2" ..."""
        found = []
        for layer in range(1, self.spec.layers + 1):
            for way in self.directions:
                for state in STATE_NAMES[self.spec.cell]:
                    plain = state if layer == 1 else f"{state}.{layer}"
                    found.append(plain if way == "forward" else f"{state}.{layer}.{way}")
        return found

    def step(self, cell: nn.Module, x: Tensor, state: State) -> State:
        """Return the next state of a `torch.nn` cell as a tuple, for any cell."""
        if self.spec.cell == "lstm":
            h, c = cell(x, state)
            return h, c
        return (cell(x, state[0]),)

    def taps(self, batch: Batch, example: int, copies: int = 1) -> Taps:
        n = int(batch.source_lengths[example])
        return Taps.zeros(self.spec, copies, n)

    def run(
        self,
        batch: Batch,
        example: int,
        reduction: str,
        taps: Taps | None = None,
        through: tuple[str, ...] = EDGES,
        crossing: Crossing = PLAIN,
    ) -> Result:
        """Run one example of the batch alone, without its padding.

        through: the exit edges by which taps on the encoder states may reach the loss; the other
        edges read the states of a run without taps.
        crossing: what the gradient goes through at the edges that count.
        """
        nothing = self.taps(batch, example)
        taps = taps or nothing
        states = self.encode(batch, example, taps, crossing)
        still = self.encode(batch, example, nothing, crossing)
        leave = crossing.counted
        values = leave(self.top(states if "values" in through else still)) + taps.values
        keys = leave(self.top(states if "keys" in through else still)) + taps.keys
        left = self.leave_by_bridge(states if "bridge" in through else still, leave)
        bridge = tuple(part + tap for part, tap in zip(left, taps.bridge, strict=True))
        if "bridge.weight" in self.weights:
            bridge = tuple(part @ self.weights["bridge.weight"].T for part in bridge)
        return self.decode(batch, example, reduction, states, bridge, values, keys, crossing)

    def top(self, states: State) -> Tensor:
        """Return h of the last layer, both directions side by side."""
        count, ways = len(STATE_NAMES[self.spec.cell]), len(self.directions)
        return torch.cat(states[-count * ways :: count], dim=-1)

    def leave_by_bridge(self, states: State, leave: Callable[[Tensor], Tensor]) -> list[Tensor]:
        """Return what each layer leaves to the decoder, h before c, (c, H) or (c, 2H)."""
        count, found = len(STATE_NAMES[self.spec.cell]), []
        for layer in range(self.spec.layers):
            for state in range(count):
                sides = []
                for side in range(len(self.directions)):
                    part = states[(layer * len(self.directions) + side) * count + state]
                    if self.spec.bridge == "mean":
                        sides.append(leave(part).mean(1))
                    else:
                        sides.append(leave(part[:, 0 if side else -1]))
                found.append(torch.cat(sides, dim=-1))
        return found

    def encode(self, batch: Batch, example: int, taps: Taps, crossing: Crossing = PLAIN) -> State:
        """Return h, or h and c, after every step, for every layer and direction, each (c, n, H)."""
        source = batch.source[example, : batch.source_lengths[example]]
        copies, n, _ = taps.values.shape
        embedded = self.weights["source_embedding.weight"]
        inputs = [embedded[symbol].expand(copies, -1) for symbol in source]
        left, found = list(taps.states), []
        count = len(STATE_NAMES[self.spec.cell])
        for cells in self.encoders:
            above: list[list[Tensor]] = [[] for _ in range(n)]
            for way in self.directions:
                own, left = left[:count], left[count:]
                state = tuple(torch.zeros_like(tap[:, 0]) for tap in own)
                history = {}
                for i in range(n) if way == "forward" else range(n - 1, -1, -1):
                    moved = tuple(crossing.hop(crossing.counted(part)) for part in state)
                    state = self.step(cells[way], inputs[i], moved)
                    state = tuple(part + tap[:, i] for part, tap in zip(state, own, strict=True))
                    history[i] = state
                    above[i].append(crossing.counted(state[0]))
                rows = [history[i] for i in range(n)]
                found += [torch.stack(part, dim=1) for part in zip(*rows, strict=True)]
            inputs = [torch.cat(parts, dim=-1) for parts in above]
        return tuple(found)

    def decode(
        self,
        batch: Batch,
        example: int,
        reduction: str,
        states: State,
        bridge: State,
        values: Tensor,
        keys: Tensor,
        crossing: Crossing = PLAIN,
    ) -> Result:
        """Read the target with teacher forcing."""
        target = batch.target[example, : batch.target_lengths[example]]
        copies, hidden = len(values), self.spec.hidden
        s = bridge if self.spec.bridge != "none" else self.zeros(copies) * self.spec.layers
        count, fed = len(STATE_NAMES[self.spec.cell]), values.new_zeros(copies, hidden)
        previous = torch.tensor(self.symbols)  # BOS
        logits: list[Tensor] = []
        weights: list[Tensor] = []
        contexts: list[Tensor] = []

        def read(state: State) -> Tensor:
            query = crossing.query(crossing.counted(state[0]))
            scores, j = self.scores(query, keys), len(weights) + 1
            alpha = self.attention_weights(scores, query, j, len(target))
            weights.append(alpha)
            contexts.append((alpha[:, :, None] * values).sum(1))
            return contexts[-1]

        for symbol in target:
            inputs = [self.weights["target_embedding.weight"][previous].expand(copies, -1)]
            if self.reads_before:
                inputs.append(read(s[-count:]))
            if self.feeds:
                inputs.append(crossing.counted(fed))
            if self.spec.bridge == "every_step":
                inputs.append(bridge[-count])
            x, after = torch.cat(inputs, dim=-1), list[Tensor]()
            for layer, cell in enumerate(self.decoders):
                before = tuple(map(crossing.counted, s[layer * count : (layer + 1) * count]))
                after += self.step(cell, x, before)
                x = crossing.counted(after[-count])
            s = tuple(after)
            top = s[-count:]
            if self.reads_after:
                fed = self.attentional_vector(top[0], read(top))
            logits.append(self.output(fed if self.reads_after else top[0]))
            previous = symbol
        nats = torch.stack([self.nats(x, y) for x, y in zip(logits, target, strict=True)], dim=-1)
        loss, stacked = REDUCTIONS[reduction](nats), torch.stack(logits, dim=1)
        return Result(loss, nats, stacked, states, weights, contexts)

    @property
    def reads_before(self) -> bool:
        return self.spec.attention != "none" and self.spec.timing == "bahdanau"

    @property
    def reads_after(self) -> bool:
        return self.spec.attention != "none" and self.spec.timing == "luong"

    @property
    def feeds(self) -> bool:
        return self.reads_after and self.spec.input_feeding

    def zeros(self, copies: int) -> State:
        """Return a state of one layer that is zero."""
        zero = torch.zeros(copies, self.spec.hidden, dtype=torch.float64)
        return tuple(zero for _ in STATE_NAMES[self.spec.cell])

    def attentional_vector(self, h: Tensor, context: Tensor) -> Tensor:
        """Return a (c, H) of a decoder state (c, H) and a context read after the step."""
        combined = torch.cat([context, h], dim=-1) @ self.weights["combine.weight"].T
        return torch.tanh(combined + self.weights["combine.bias"])

    def output(self, readout: Tensor) -> Tensor:
        """Return the logits (c, V) of what is read out (c, H)."""
        logits: Tensor = readout @ self.weights["output.weight"].T + self.weights["output.bias"]
        return logits

    def nats(self, logits: Tensor, symbol: Tensor) -> Tensor:
        """Return the loss (c,) of one target step."""
        return -torch.log_softmax(logits, dim=-1)[:, symbol]

    def scores(self, query: Tensor, keys: Tensor) -> Tensor:
        """Return the scores (c, n) of one query (c, H).

        A score that is not written out below is read by its own `forward`, one query at a time; it
        is then for finite differences to judge.
        """
        asked = query[:, None]
        if self.spec.attention in WRITTEN_SCORES:
            weights = {key.removeprefix("attention."): w for key, w in self.weights.items()}
            return WRITTEN_SCORES[self.spec.attention](asked, keys, weights)
        assert self.attention is not None
        scores: Tensor = self.attention(asked, self.attention.project_keys(keys))
        return scores[:, 0]

    def attention_weights(self, scores: Tensor, query: Tensor, j: int, k: int) -> Tensor:
        """Return the weights (c, n) of the scores at target step j of k."""
        if self.spec.scope == "global":
            return torch.softmax(scores, dim=-1)
        n, reach = scores.shape[-1], self.spec.window
        if self.spec.scope == "local_monotonic":
            inside = [i for i in range(n) if abs(Fraction(j * n, k) - (i + 1)) <= reach]
            around = inside[0], n - 1 - inside[-1]
            return functional.pad(torch.softmax(scores[:, inside], dim=-1), around)
        square = self.weights["attention.position.weight"]
        energy = self.weights["attention.position_energy.weight"][0]
        centre = n * torch.sigmoid((torch.tanh(query @ square.T) * energy).sum(-1, keepdim=True))
        away = torch.arange(1.0, n + 1, dtype=torch.float64) - centre
        weights = torch.softmax(scores.masked_fill(away.abs() > reach, -torch.inf), dim=-1)
        return weights * torch.exp(-(away**2) / (2 * (reach / 2) ** 2))


def additive(q: Tensor, h: Tensor, w: dict[str, Tensor]) -> Tensor:
    activation = torch.tanh(h @ w["key.weight"].T + q @ w["query.weight"].T)
    return (activation * w["energy.weight"][0]).sum(-1)


def concat(q: Tensor, h: Tensor, w: dict[str, Tensor]) -> Tensor:
    pairs = torch.cat([h, q.expand(-1, h.shape[1], -1)], dim=-1)
    return (torch.tanh(pairs @ w["concat.weight"].T) * w["energy.weight"][0]).sum(-1)


def cosine(q: Tensor, h: Tensor, w: dict[str, Tensor]) -> Tensor:
    squares = h.square().sum(-1) * q.square().sum(-1)
    found = (h * q).sum(-1) / torch.where(squares == 0, 1.0, squares).sqrt()
    return w["scale.weight"][0, 0] * torch.where(squares == 0, 0.0, found)


WRITTEN_SCORES: dict[str, Callable[[Tensor, Tensor, dict[str, Tensor]], Tensor]] = {
    "additive": additive,
    "concat": concat,
    "dot": lambda q, h, w: (h * q).sum(-1),
    "scaled_dot": lambda q, h, w: (h * q).sum(-1) / q.shape[-1] ** 0.5,
    "general": lambda q, h, w: (h @ w["general.weight"].T * q).sum(-1),
    "cosine": cosine,
    "location": lambda q, h, w: (q[:, 0] @ w["location.weight"].T)[:, : h.shape[1]],
}
"""Scores (c, n) of one query q (c, 1, H) and all states h (c, n, H), by formula."""


def named(twin: Twin, state: Sequence[Tensor]) -> dict[str, Tensor]:
    """Name the tensors of a state whose first axis is the one copy that was run."""
    return {name: part[0] for name, part in zip(twin.names, state, strict=True)}


def total_gradient(twin: Twin, batch: Batch, example: int, reduction: str) -> dict[str, Tensor]:
    """Return state -> (n, H): the gradient of the loss with respect to a tap on every state."""
    taps = twin.taps(batch, example)
    loss = twin.run(batch, example, reduction, taps).loss.sum()
    return named(twin, torch.autograd.grad(loss, taps.states))


def length_gradient(twin: Twin, batch: Batch, example: int, reduction: str) -> dict[str, Tensor]:
    """Return state -> (n, H): d/dlambda at 1 of the gradient times lambda at every counted edge.

    <d(lambda), v> is differentiated by lambda and, being linear in v, once more by v.
    """
    factor = torch.ones((), dtype=torch.float64, requires_grad=True)
    taps = twin.taps(batch, example)
    loss = twin.run(batch, example, reduction, taps, crossing=Crossing(times(factor))).loss.sum()
    total = torch.autograd.grad(loss, taps.states, create_graph=True, materialize_grads=True)
    v = [torch.zeros_like(part, requires_grad=True) for part in total]
    along_v = sum((part * direction).sum() for part, direction in zip(total, v, strict=True))
    assert isinstance(along_v, Tensor)
    (by_factor,) = torch.autograd.grad(along_v, factor, create_graph=True)
    return named(twin, torch.autograd.grad(by_factor, v, materialize_grads=True))


def step_gradients(twin: Twin, batch: Batch, example: int) -> list[tuple[State, State, Tensor]]:
    """Return, for the loss of each target step alone, the gradients of taps.

    On the states (each (1, n, H)), on the bridge (each (1, width)), and on values and keys both.
    """
    taps = twin.taps(batch, example)
    nats, count = twin.run(batch, example, "sum", taps).nats, len(taps.states)
    wanted = [*taps.states, *taps.bridge, taps.values, taps.keys]
    rows = []
    for loss in nats[0]:
        found = torch.autograd.grad(loss, wanted, retain_graph=True, materialize_grads=True)
        rows.append((found[:count], found[count:-2], found[-2] + found[-1]))
    return rows


def tap_gradients(
    twin: Twin, batch: Batch, example: int, reduction: str, crossing: Crossing
) -> tuple[State, dict[str, list[Tensor]], State]:
    """Return the total, what each exit edge injects at every state, and the states; (1, n, H)."""
    taps = twin.taps(batch, example)
    result = twin.run(batch, example, reduction, taps, crossing=crossing)
    count = len(taps.states)
    wanted = [*taps.states, *taps.bridge, taps.values, taps.keys]
    found = torch.autograd.grad(result.loss.sum(), wanted, materialize_grads=True)
    total, bridge = found[:count], found[count : 2 * count]

    injections = {"bridge": [torch.zeros_like(part) for part in total]}
    for part, gradient in zip(injections["bridge"], bridge, strict=True):
        part[:, -1] = gradient
    for edge, gradient in zip(("values", "keys"), found[-2:], strict=True):
        injections[edge] = [gradient, *(torch.zeros_like(part) for part in total[1:])]
    return total, injections, result.states


def all_gradients(twin: Twin, batch: Batch, example: int, reduction: str) -> Vectors:
    """Return total, direct and the parts by exit edge and query, through explicit Jacobians.

    The part through queries is what is missing once every query is cut.
    """
    total, injections, states = tap_gradients(twin, batch, example, reduction, PLAIN)
    direct = [sum(parts) for parts in zip(*injections.values(), strict=True)]
    vectors: dict[str, Sequence[Tensor]] = {"total": total, "direct": direct}
    if twin.spec.attention != "none":
        left, entering, _ = tap_gradients(twin, batch, example, reduction, QUERIES_CUT)
        vectors["total.query"] = [a - b for a, b in zip(total, left, strict=True)]
        injections |= {
            f"{edge}.query": [a - b for a, b in zip(injections[edge], entering[edge], strict=True)]
            for edge in EDGES
        }
    jacobians = step_jacobians(twin, batch, example, states)
    for path, injection in injections.items():
        pulled = pull_back(torch.cat(injection, dim=-1)[0], jacobians)
        vectors[path] = pulled[None].chunk(len(total), dim=-1)
    return {path: named(twin, parts) for path, parts in vectors.items()}


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
    for index, name in enumerate(twin.names):
        taps = twin.taps(batch, example, copies=len(moves))
        states = (*taps.states[:index], moves, *taps.states[index + 1 :])
        with torch.no_grad():
            loss = twin.run(batch, example, reduction, replace(taps, states=states), through).loss
        up, down = loss.view(2, 3, n * hidden)
        gradients[name] = (weights * (up - down)).sum(0).view(n, hidden)
    return gradients


# Every path by itself.

Node = tuple[str, int]
"""A kind of tensor and its time step, as ("s", 2) for the decoder's state after step 2."""


@dataclass(frozen=True)
class Route:
    """What paths from the loss back to one encoder state have in common.

    edge: the exit edge they left the encoder by. query: whether they pass a query edge. hops: their
    recurrent steps in the encoder. length: their edges that count.
    """

    position: int = 0
    edge: str = ""
    query: bool = False
    hops: int = 0
    length: int = 0

    def across(self, kind: str) -> Route:
        """Return the route one edge further back; `kind` is empty for an edge that is free."""
        return Route(
            edge=kind if kind in EDGES else self.edge,
            query=self.query or kind == "query",
            hops=self.hops + (kind == "encoder"),
            length=self.length + (kind != ""),
        )


@dataclass(frozen=True)
class Graph:
    """One example as small vectors, and the Jacobian of each by every vector it is made from.

    into: node -> (the node an edge comes from, what kind of edge it is, its Jacobian).
    """

    values: dict[Node, Tensor] = field(default_factory=dict)
    into: dict[Node, list[tuple[Node, str, Tensor]]] = field(default_factory=dict)

    def start(self, node: Node, value: Tensor) -> None:
        self.values[node], self.into[node] = value, []

    def add(self, node: Node, function: Callable[..., Tensor], parents: dict[Node, str]) -> None:
        """Add function(*parents), and the edges that lead to it with their kinds."""
        inputs = tuple(self.values[parent] for parent in parents)
        self.values[node] = function(*inputs)
        jacobians = torch.autograd.functional.jacobian(function, inputs)
        self.into[node] = [
            (parent, kind, jacobian)
            for (parent, kind), jacobian in zip(parents.items(), jacobians, strict=True)
        ]

    def walk(self) -> dict[Route, Tensor]:
        """Walk every path from the loss back, and add up the gradients of each route."""
        found: dict[Route, Tensor] = defaultdict(lambda: torch.zeros((), dtype=torch.float64))
        ahead = [(("loss", 0), torch.ones(1, dtype=torch.float64), Route())]
        while ahead:
            node, gradient, route = ahead.pop()
            if node[0] == "z" and node[1] > 0:
                key = replace(route, position=node[1])
                found[key] = found[key] + gradient
            ahead += [
                (parent, gradient @ jacobian, route.across(kind))
                for parent, kind, jacobian in self.into[node]
            ]
        return dict(found)


def path_graph(twin: Twin, batch: Batch, example: int, reduction: str) -> Graph:
    """Return the graph of one example, from the encoder's z_0 to the loss."""
    spec, graph = twin.spec, Graph()
    n, k = int(batch.source_lengths[example]), int(batch.target_lengths[example])
    count, hidden = len(STATE_NAMES[spec.cell]), spec.hidden
    zero = torch.zeros(count * hidden, dtype=torch.float64)

    def step(cell: nn.Module, x: Tensor, z: Tensor) -> Tensor:
        state = z[None].chunk(count, dim=-1)
        return torch.cat(twin.step(cell, x[None], state), dim=-1)[0]

    def h(z: Tensor) -> Tensor:
        return z[:hidden]

    def decoder_input(j: int, *read: Tensor) -> Tensor:
        previous = batch.target[example, j - 2] if j > 1 else twin.symbols
        return torch.cat([twin.weights["target_embedding.weight"][previous], *read])

    def read(j: int, query_from: int) -> None:
        graph.add(("query", j), h, {("s", query_from): "query"})
        read_keys: dict[Node, str] = {("key", i): "" for i in range(1, n + 1)}
        if spec.attention == "location":
            read_keys = {}

        def score(query: Tensor, *keys: Tensor) -> Tensor:
            return twin.scores(query[None], torch.stack(keys or n * (query,))[None])[0]

        def weigh(scores: Tensor, *query: Tensor) -> Tensor:
            return twin.attention_weights(scores[None], torch.stack(query or (scores,)), j, k)[0]

        graph.add(("scores", j), score, {("query", j): "", **read_keys})
        by_query: dict[Node, str] = {("query", j): ""} if spec.scope == "local_predictive" else {}
        graph.add(("weights", j), weigh, {("scores", j): "", **by_query})
        graph.add(
            ("context", j),
            lambda weights, *values: weights @ torch.stack(values),
            {("weights", j): "", **{("value", i): "" for i in range(1, n + 1)}},
        )

    graph.start(("z", 0), zero)
    for i in range(1, n + 1):
        x = twin.weights["source_embedding.weight"][batch.source[example, i - 1]]
        graph.add(("z", i), lambda z, x=x: step(twin.encoder, x, z), {("z", i - 1): "encoder"})
        graph.add(("value", i), h, {("z", i): "values"})
        graph.add(("key", i), h, {("z", i): "keys"})
    graph.start(("s", 0), zero)
    if spec.bridge != "none":
        graph.add(("bridge", 0), unchanged, {("z", n): "bridge"})
        graph.add(("s", 0), unchanged, {("bridge", 0): ""})
    for j in range(1, k + 1):
        made_from: dict[Node, str] = {("s", j - 1): "decoder"}
        if twin.reads_before:
            read(j, j - 1)
            made_from[("context", j)] = ""
        if spec.bridge == "every_step":
            made_from[("bridge", 0)] = ""

        def decode(s: Tensor, *fed: Tensor, j: int = j) -> Tensor:
            bridge = [h(fed[-1])] if spec.bridge == "every_step" else []
            context = fed[: len(fed) - len(bridge)]
            return step(twin.decoder, decoder_input(j, *context, *bridge), s)

        graph.add(("s", j), decode, made_from)
        if twin.reads_after:
            read(j, j)

        def nats(s: Tensor, *context: Tensor, j: int = j) -> Tensor:
            readout = h(s)[None]
            if context:
                readout = twin.attentional_vector(readout, context[0][None])
            return twin.nats(twin.output(readout), batch.target[example, j - 1])

        read_out: dict[Node, str] = {("context", j): ""} if twin.reads_after else {}
        graph.add(("nats", j), nats, {("s", j): "", **read_out})
    graph.add(
        ("loss", 0),
        lambda *steps: REDUCTIONS[reduction](torch.stack(steps, dim=-1)),
        {("nats", j): "" for j in range(1, k + 1)},
    )
    return graph
