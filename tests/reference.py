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


def unchanged(x: Tensor) -> Tensor:
    return x


def times(factor: Tensor | float) -> Callable[[Tensor], Tensor]:
    """Return a function that keeps values and multiplies the gradient that comes back."""
    return lambda x: x.detach() + factor * (x - x.detach())


@dataclass(frozen=True)
class Crossing:
    """What happens to the gradient at every edge that counts, and besides at every query edge."""

    counted: Callable[[Tensor], Tensor] = unchanged
    query: Callable[[Tensor], Tensor] = unchanged


PLAIN = Crossing()
QUERIES_CUT = Crossing(query=times(0.0))


@dataclass(frozen=True)
class Result:
    """One example, run alone: loss (c,), nats (c, k), logits (c, k, V), states each (c, n, H).

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
        values = leave((states if "values" in through else still)[0]) + taps.values
        keys = leave((states if "keys" in through else still)[0]) + taps.keys
        final = [part[:, -1] for part in (states if "bridge" in through else still)]
        bridge = tuple(leave(part) + tap for part, tap in zip(final, taps.bridge, strict=True))
        return self.decode(batch, example, reduction, states, bridge, values, keys, crossing)

    def encode(self, batch: Batch, example: int, taps: Taps, crossing: Crossing = PLAIN) -> State:
        """Return h, or h and c, after every step, each (c, n, H)."""
        source = batch.source[example, : batch.source_lengths[example]]
        state = tuple(torch.zeros_like(tap) for tap in taps.bridge)
        history = []
        for i, symbol in enumerate(source):
            x = self.weights["source_embedding.weight"][symbol].expand(len(state[0]), -1)
            state = self.step(self.encoder, x, tuple(map(crossing.counted, state)))
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
        crossing: Crossing = PLAIN,
    ) -> Result:
        """Read the target with teacher forcing."""
        target = batch.target[example, : batch.target_lengths[example]]
        s = bridge if self.spec.bridge != "none" else tuple(torch.zeros_like(h) for h in bridge)
        previous = torch.tensor(self.symbols)  # BOS
        logits, weights, contexts = [], [], []

        def read(state: State) -> Tensor:
            query = crossing.query(crossing.counted(state[0]))
            alpha = torch.softmax(self.scores(query, keys), dim=-1)
            weights.append(alpha)
            contexts.append((alpha[:, :, None] * values).sum(1))
            return contexts[-1]

        for symbol in target:
            inputs = [self.weights["target_embedding.weight"][previous].expand(len(s[0]), -1)]
            if self.reads_before:
                inputs.append(read(s))
            if self.spec.bridge == "every_step":
                inputs.append(bridge[0])
            s = self.step(self.decoder, torch.cat(inputs, dim=-1), tuple(map(crossing.counted, s)))
            logits.append(self.logits(s[0], read(s) if self.reads_after else None))
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

    def logits(self, h: Tensor, context: Tensor | None) -> Tensor:
        """Return the logits (c, V) of a decoder state (c, H) and a context read after the step."""
        if context is not None:
            combined = torch.cat([context, h], dim=-1) @ self.weights["combine.weight"].T
            h = torch.tanh(combined + self.weights["combine.bias"])
        logits: Tensor = h @ self.weights["output.weight"].T + self.weights["output.bias"]
        return logits

    def nats(self, logits: Tensor, symbol: Tensor) -> Tensor:
        """Return the loss (c,) of one target step."""
        return -torch.log_softmax(logits, dim=-1)[:, symbol]

    def scores(self, query: Tensor, keys: Tensor) -> Tensor:
        """Return the scores (c, n) of one query (c, H)."""
        if self.spec.attention == "additive":
            key = keys @ self.weights["attention.key.weight"].T
            asked = query @ self.weights["attention.query.weight"].T
            energy = self.weights["attention.energy.weight"][0]
            scores: Tensor = torch.tanh(key + asked[:, None]) @ energy
            return scores
        if self.spec.attention == "dot":
            return (keys * query[:, None]).sum(-1)
        raise NotImplementedError(f"write the twin of attention {self.spec.attention!r}")


def named(twin: Twin, state: Sequence[Tensor]) -> dict[str, Tensor]:
    """Name the tensors of a state whose first axis is the one copy that was run."""
    return {name: part[0] for name, part in zip(STATE_NAMES[twin.spec.cell], state, strict=True)}


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

    On the states (each (1, n, H)), on the bridge (each (1, H)), and on values and keys together.
    """
    taps = twin.taps(batch, example)
    nats, count = twin.run(batch, example, "sum", taps).nats, len(taps.states)
    wanted = [*taps.states, *taps.bridge, taps.values, taps.keys]
    rows = []
    for loss in nats[0]:
        found = torch.autograd.grad(loss, wanted, retain_graph=True, materialize_grads=True)
        rows.append((found[:count], found[count : 2 * count], found[-2] + found[-1]))
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
    for index, name in enumerate(STATE_NAMES[twin.spec.cell]):
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
        graph.add(
            ("scores", j),
            lambda query, *keys: twin.scores(query[None], torch.stack(keys)[None])[0],
            {("query", j): "", **{("key", i): "" for i in range(1, n + 1)}},
        )
        graph.add(("weights", j), lambda scores: scores.softmax(-1), {("scores", j): ""})
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
            logits = twin.logits(h(s)[None], context[0][None] if context else None)
            return twin.nats(logits, batch.target[example, j - 1])

        read_out: dict[Node, str] = {("context", j): ""} if twin.reads_after else {}
        graph.add(("nats", j), nats, {("s", j): "", **read_out})
    graph.add(
        ("loss", 0),
        lambda *steps: REDUCTIONS[reduction](torch.stack(steps, dim=-1)),
        {("nats", j): "" for j in range(1, k + 1)},
    )
    return graph
