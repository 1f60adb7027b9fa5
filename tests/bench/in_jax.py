"""The same GRU models in JAX: scans over time, one compiled function a training step.

The arrays bear the names of gradlab's weights. The inputs and the keys are projected for all steps
at once; a training step is compiled as a whole, with clipping (torch's formula) and Adam.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from trainers import Measured

from gradlab.grid import Point
from gradlab.lab.run import build_model
from gradlab.tasks import Batch, probe_batch, training_batch

try:
    import jax
    import jax.numpy as jnp
    import optax
except ImportError:
    MISSING = "not installed; pip install -e '.[bench]'"
else:
    MISSING = ""

Array = Any
Weights = dict[str, Array]


def gru(w: Weights, layer: str, p: Array, h: Array) -> Array:
    """Return the next state of projected inputs p (batch, 3 hidden) and a state h."""
    a = h @ w[f"{layer}.weight_hh_l0"].T + w[f"{layer}.bias_hh_l0"]
    (p_r, p_z, p_n), (a_r, a_z, a_n) = jnp.split(p, 3, -1), jnp.split(a, 3, -1)
    r, z = jax.nn.sigmoid(p_r + a_r), jax.nn.sigmoid(p_z + a_z)
    n = jnp.tanh(p_n + r * a_n)
    return (1 - z) * n + z * h


def project(w: Weights, layer: str, table: str, ids: Array) -> Array:
    """Return the projected embeddings (time, batch, 3 hidden) of ids (batch, time)."""
    embedded = w[f"{table}.weight"][ids.T]
    columns = w[f"{layer}.weight_ih_l0"][:, : embedded.shape[-1]]
    return embedded @ columns.T + w[f"{layer}.bias_ih_l0"]


def encode(w: Weights, source: Array, taps: Array | None) -> Array:
    """Return h_1 .. h_n (n, batch, hidden); `taps` are added to them, to be differentiated by."""
    projected = project(w, "encoder", "source_embedding", source)

    def step(h: Array, at_step: tuple[Array, Array | None]) -> tuple[Array, Array]:
        p, tap = at_step
        h = gru(w, "encoder", p, h)
        h = h if tap is None else h + tap
        return h, h

    zeros = jnp.zeros_like(projected[0, :, : projected.shape[-1] // 3])
    return jax.lax.scan(step, zeros, (projected, taps))[1]


def remember(w: Weights, states: Array) -> tuple[Array, Array] | None:
    """Return the values and the projected keys (batch, n, hidden), or None without attention."""
    if "attention.key.weight" not in w:
        return None
    values = jnp.swapaxes(states, 0, 1)
    return values, values @ w["attention.key.weight"].T


def decoder_step(w: Weights, memory: tuple[Array, Array] | None, p: Array, s: Array) -> Array:
    """Return s_j of s_{j-1}, which is the query, and the projected symbol p."""
    if memory is not None:
        values, keys = memory
        query = s @ w["attention.query.weight"].T
        scores = jnp.tanh(keys + query[:, None]) @ w["attention.energy.weight"][0]
        context = jnp.einsum("bn,bnh->bh", jax.nn.softmax(scores, -1), values)
        p = p + context @ w["decoder.weight_ih_l0"][:, -context.shape[-1] :].T
    return gru(w, "decoder", p, s)


def example_losses(
    recompute: bool, w: Weights, ids: tuple[Array, Array, Array], taps: Array | None
) -> Array:
    """Return the mean cross-entropy of each example, teacher-forced, (batch,).

    recompute: keep no activations of the decoder's steps for the backward pass.
    """
    source, inputs, target = ids
    states = encode(w, source, taps)
    memory = remember(w, states)

    def step(s: Array, p: Array) -> tuple[Array, Array]:
        s = decoder_step(w, memory, p, s)
        return s, s

    projected = project(w, "decoder", "target_embedding", inputs)
    decoder = jax.checkpoint(step) if recompute else step
    decoded = jax.lax.scan(decoder, states[-1], projected)[1]
    logits = decoded @ w["output.weight"].T + w["output.bias"]
    nats = optax.softmax_cross_entropy_with_integer_labels(logits, target.T)
    return nats.mean(0)


def greedy(w: Weights, source: Array, first: Array, steps: int) -> Array:
    """Return the symbols (batch, k) of free-running decoding."""
    states = encode(w, source, None)
    memory = remember(w, states)

    def step(carried: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], Array]:
        s, symbol = carried
        p = project(w, "decoder", "target_embedding", symbol[:, None])[0]
        s = decoder_step(w, memory, p, s)
        symbol = (s @ w["output.weight"].T + w["output.bias"]).argmax(-1).astype(first.dtype)
        return (s, symbol), symbol

    return jax.lax.scan(step, (states[-1], first), None, steps)[1].T


def gradients(
    recompute: bool, w: Weights, ids: tuple[Array, Array, Array]
) -> tuple[Array, Weights]:
    """Return the training loss and its gradients by the weights."""
    found: tuple[Array, Weights] = jax.value_and_grad(
        lambda weights: example_losses(recompute, weights, ids, None).mean()
    )(w)
    return found


def update(
    recompute: bool, optimizer: Any, clip: float, w: Weights, state: Any, ids: Any
) -> tuple[Any, Any, Any]:
    """Make one training step; return the weights, Adam's state and the loss."""
    loss, g = gradients(recompute, w, ids)
    factor = jnp.minimum(1, clip / (optax.global_norm(g) + 1e-6))
    changes, state = optimizer.update(jax.tree.map(lambda x: x * factor, g), state, w)
    return optax.apply_updates(w, changes), state, loss


def observe(
    recompute: bool, w: Weights, ids: tuple[Array, Array, Array]
) -> tuple[Array, Array, Array, Array]:
    """Return loss, accuracy, dL/dh_i (batch, n, hidden) and its norms, each example's own."""
    source, inputs, target = ids
    hidden = w["encoder.weight_hh_l0"].shape[-1]
    taps = jnp.zeros((source.shape[1], source.shape[0], hidden), w["output.bias"].dtype)
    nats, pull = jax.vjp(lambda t: example_losses(recompute, w, ids, t), taps)
    totals = jnp.swapaxes(pull(jnp.ones_like(nats))[0], 0, 1)
    right = greedy(w, source, inputs[:, 0], target.shape[1]) == target
    return nats.mean(), right.mean(), totals, jnp.linalg.norm(totals, axis=-1)


def starting_weights(point: Point) -> Weights:
    return {name: w.numpy() for name, w in build_model(point).state_dict().items()}


def as_ids(batch: Batch) -> tuple[np.ndarray[Any, Any], ...]:
    arrays = (batch.source, batch.decoder_input, batch.target)
    return tuple(part.numpy().astype(np.int32) for part in arrays)


class JaxRuns:
    """One seed, or several that advance under one vmap."""

    def __init__(
        self, points: list[Point], together: bool = False, recompute: bool = False
    ) -> None:
        self.points = points if together else points[:1]
        self.seeds, self.together = len(self.points), together
        training = self.points[0].training
        jax.config.update("jax_enable_x64", training.dtype == "float64")
        optimizer = optax.adam(training.lr)
        over_seeds = jax.vmap if together else (lambda function: function)
        self.weights = self.joined([starting_weights(point) for point in self.points])
        self.state = over_seeds(optimizer.init)(self.weights)
        self.update = jax.jit(over_seeds(partial(update, recompute, optimizer, training.clip)))
        self.pull = jax.jit(over_seeds(partial(gradients, recompute)))
        self.observe = jax.jit(over_seeds(partial(observe, recompute)))

    def joined(self, trees: list[Any]) -> Any:
        return jax.tree.map(lambda *each: np.stack(each), *trees) if self.together else trees[0]

    def parted(self, tree: Any) -> list[Any]:
        """Return a tree of numpy arrays for each seed."""
        arrays = jax.tree.map(np.asarray, tree)
        if not self.together:
            return [arrays]
        return [jax.tree.map(lambda part, i=i: part[i], arrays) for i in range(self.seeds)]

    def drawn(self, number: int) -> Any:
        """Return the ids of a training step's batches."""
        size = self.points[0].training.batch
        batches = [training_batch(point.task, size, point.seed, number) for point in self.points]
        return self.joined([as_ids(batch) for batch in batches])

    def step(self, number: int) -> Array:
        """Make a training step; it may still be at work when this returns."""
        self.weights, self.state, loss = self.update(self.weights, self.state, self.drawn(number))
        return loss.reshape(-1)

    def wait(self) -> None:
        jax.block_until_ready(self.weights)

    def gradients(self) -> list[Weights]:
        return [weights for _, weights in self.parted(self.pull(self.weights, self.drawn(0)))]

    def measure(self) -> list[Measured]:
        batches = [
            probe_batch(point.task, point.record.examples, point.seed, point.task.length)
            for point in self.points
        ]
        found = self.observe(self.weights, self.joined([as_ids(batch) for batch in batches]))
        return [Measured(float(a), float(b), *rest) for a, b, *rest in self.parted(found)]
