"""The decoder x encoder map: against one backward pass of the twin for every target step."""

from __future__ import annotations

import copy
import weakref
from typing import Any

import pytest
import torch
from reference import MODELS, Twin, assert_close, build, label, make_batch, norm, step_gradients
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from gradlab.errors import GradlabError
from gradlab.gradients import maps
from gradlab.gradients.hops import hop_rows
from gradlab.gradients.maps import gradient_map, safe_norm, target_gradients
from gradlab.gradients.paths import encoder_sizes
from gradlab.gradients.probe import measure
from gradlab.limits import hops_bytes, map_bytes
from gradlab.models.scores import SCORES
from gradlab.models.seq2seq import Seq2Seq
from gradlab.tasks import TASKS, Batch

Spec = dict[str, Any]
LENGTHS = [4, 1, 6]


@torch.no_grad()
def gradients_of(model: Seq2Seq, batch: Batch) -> dict[str, Tensor]:
    """Return state -> dl_j/dz_i, (k, batch, n, hidden)."""
    vectors, _ = target_gradients(model, batch)
    return dict(zip(model.state_names, vectors, strict=True))


@pytest.mark.parametrize("delay", [0, 2])
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("spec", MODELS, ids=label)
def test_every_row_is_a_backward_pass_of_its_own_and_pads_get_exactly_nothing(
    spec: Spec, task: str, delay: int
) -> None:
    model, batch = build(**spec), make_batch(task, LENGTHS, delay=delay)
    found, twin = gradients_of(model, batch), Twin(model)
    for b, k in enumerate(LENGTHS):
        n = k + delay
        for j, (states, _, _) in enumerate(step_gradients(twin, batch, b)):
            for part, expected in zip(found.values(), states, strict=True):
                assert_close(part[j, b, :n], expected[0])
        for part in found.values():
            assert bool((part[k:, b] == 0).all())
            assert bool((part[:, b, n:] == 0).all())


@pytest.mark.parametrize("spec", MODELS, ids=label)
def test_rows_sum_to_the_measured_total_and_its_first_and_last_are_rows(spec: Spec) -> None:
    model, batch = build(**spec), make_batch("copy", LENGTHS)
    found = gradients_of(model, batch)
    measured = {
        reduction: measure(model, batch, reduction, paths=False).vectors["total"]
        for reduction in ("sum", "first", "last")
    }
    for state, rows in found.items():
        scale = norm(rows).sum(0)
        assert_close(rows.sum(0), measured["sum"][state], rtol=1e-12, scale=scale)
        assert_close(rows[0], measured["first"][state], rtol=1e-11)
        for b, k in enumerate(LENGTHS):
            assert_close(rows[k - 1, b], measured["last"][state][b], rtol=1e-11)


@pytest.mark.parametrize("spec", MODELS, ids=label)
def test_the_map_is_the_mean_norm_and_the_mean_weight(spec: Spec) -> None:
    model, batch = build(**spec), make_batch("reverse", [5, 5, 5], delay=1)
    found, vectors = gradient_map(model, batch), gradients_of(model, batch)
    assert set(found.norms) == set(model.state_names)
    for state, rows in vectors.items():
        torch.testing.assert_close(found.norms[state], norm(rows).mean(1), rtol=1e-12, atol=0)
    weights = measure(model, batch).attention_weights
    if weights is None:
        assert found.attention_weights is None
    else:
        torch.testing.assert_close(found.attention_weights, weights.mean(0), rtol=1e-12, atol=0)


@pytest.mark.parametrize("spec", MODELS, ids=label)
def test_a_map_in_chunks_equals_the_whole(spec: Spec, monkeypatch: pytest.MonkeyPatch) -> None:
    model, batch = build(**spec), make_batch("copy", [5] * 5)
    whole = gradient_map(model, batch)
    for chunk in (1, 2 * map_bytes(5, 5, 4, len(model.state_names))):
        monkeypatch.setattr(maps, "CHUNK_BYTES", chunk)
        parts = gradient_map(model, batch)
        for state, expected in whole.norms.items():
            torch.testing.assert_close(parts.norms[state], expected, rtol=1e-12, atol=0)
        torch.testing.assert_close(
            parts.attention_weights, whole.attention_weights, rtol=1e-12, atol=0
        )


@pytest.mark.parametrize("spec", MODELS, ids=label)
def test_the_map_of_one_example_and_one_symbol(spec: Spec) -> None:
    model, batch = build(2, **spec), make_batch("copy", [1], symbols=2)
    found, total = gradient_map(model, batch), measure(model, batch).vectors["total"]
    for state, norms in found.norms.items():
        torch.testing.assert_close(norms, norm(total[state])[0][None], rtol=1e-12, atol=0)


def test_uniform_attention_spreads_the_map_evenly_where_nothing_recurs() -> None:
    """Without scores, bridge and encoder recurrence, l_j reaches every state by its value alone."""
    n = 6
    model = build(cell="rnn", attention="additive", timing="luong", bridge="none")
    with torch.no_grad():
        model.attention.energy.weight.zero_()  # type: ignore[union-attr,operator]
        model.encoder.weight_hh_l0.zero_()
    found = gradient_map(model, make_batch("copy", [n, n]))
    first = found.norms["h"][:, :1].expand(n, n)
    torch.testing.assert_close(found.norms["h"], first, rtol=1e-12, atol=0)
    assert bool((first > 0).all())


def test_tiny_norms_are_numbers_and_not_zero() -> None:
    tiny = torch.tensor([[3e-200, 4e-200], [0.0, 0.0], [3e200, 4e200]], dtype=torch.float64)
    expected = torch.tensor([5e-200, 0.0, 5e200], dtype=torch.float64)
    torch.testing.assert_close(safe_norm(tiny), expected, rtol=1e-15, atol=0)
    lost = torch.tensor([[torch.nan, 1.0], [torch.inf, 1.0]], dtype=torch.float64)
    assert not bool(safe_norm(lost).isfinite().any())


def test_mapping_leaves_the_model_untouched_and_rides_with_any_dtype() -> None:
    single, batch = build(cell="lstm").float(), make_batch("copy", [4, 4])
    weights, state = copy.deepcopy(single.state_dict()), torch.get_rng_state()
    found = gradient_map(single, batch)
    assert torch.equal(torch.get_rng_state(), state)
    for name, parameter in single.named_parameters():
        assert parameter.dtype == torch.float32
        assert parameter.requires_grad
        assert parameter.grad is None
        assert torch.equal(parameter, weights[name])
    expected = gradient_map(single.double(), batch)
    for name, norms in found.norms.items():
        assert norms.dtype == torch.float64
        assert torch.equal(norms, expected.norms[name])
        assert not norms.requires_grad


class LiveBytes(TorchDispatchMode):
    """Follows the bytes of tensors that are alive, and the most there ever were."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = self.most = 0
        self.known: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor):
                self.follow(leaf.untyped_storage())
        return result

    def follow(self, storage: torch.UntypedStorage) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key in self.known:
            return
        self.known.add(key)
        self.now += size
        self.most = max(self.most, self.now)
        weakref.finalize(storage, self.forget, key, size)

    def forget(self, key: int, size: int) -> None:
        self.known.discard(key)
        self.now -= size


@pytest.mark.parametrize(("n", "hidden"), [(24, 16), (40, 8)])
@pytest.mark.parametrize("cell", ["gru", "lstm"])
@pytest.mark.parametrize("attention", ["none", *SCORES])
def test_memory_is_estimated_from_above_and_in_its_order(
    attention: str, cell: str, n: int, hidden: int
) -> None:
    model = build(cell=cell, attention=attention, hidden=hidden)
    batch, examples, states = make_batch("copy", [n] * 3), 3, len(model.state_names)
    measured = measure(model, batch, paths=False)
    with LiveBytes() as mapping:
        gradient_map(model, batch)
    with LiveBytes() as hopping:
        hop_rows(model, batch, measured)
    mapped = examples * map_bytes(n, n, hidden, states)
    hopped = examples * hops_bytes(n, hidden, states)
    assert mapped / 8 < mapping.most < 1.05 * mapped
    assert hopped / 4 < hopping.most < 1.05 * hopped


@pytest.mark.parametrize(
    "spec",
    [
        {"layers": 2},
        {"layers": 2, "bidirectional": True},
        {"layers": 2, "bidirectional": True, "cell": "lstm", "timing": "luong"},
        {"bidirectional": True},
    ],
    ids=label,
)
def test_memory_of_layers_and_directions_is_estimated_from_above(spec: Spec) -> None:
    n, hidden = 24, 16
    model, batch = build(hidden=hidden, **spec), make_batch("copy", [n] * 3)
    measured, sizes = measure(model, batch, paths=False), encoder_sizes(model)
    with LiveBytes() as mapping:
        gradient_map(model, batch)
    with LiveBytes() as hopping:
        hop_rows(model, batch, measured)
    mapped = 3 * map_bytes(n, n, hidden, *sizes)
    hopped = 3 * hops_bytes(n, hidden, *sizes)
    assert mapped / 8 < mapping.most < 1.05 * mapped
    assert hopped / 4 < hopping.most < 1.05 * hopped


def test_a_map_of_examples_of_several_lengths_is_refused() -> None:
    with pytest.raises(GradlabError) as refused:
        gradient_map(build(), make_batch("copy", [2, 4]))
    assert str(refused.value) == "a map needs examples of one source length, found 2 to 4"
