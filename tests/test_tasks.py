"""Copy and reverse: what the batches hold, what their draw depends on, and what is refused."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
import torch
from reference import TARGETS, make_batch

from gradlab.errors import GradlabError
from gradlab.schema import Task
from gradlab.seeding import keyed_generator
from gradlab.tasks import (
    SPECIAL_SYMBOLS,
    TASKS,
    Batch,
    blank,
    bos,
    draw_batch,
    pad,
    probe_batch,
    training_batch,
)


def task(name: str = "copy", length: int = 6, **keys: int) -> Task:
    return Task.model_validate({"name": name, "length": length, "symbols": 4, **keys})


def equal(one: Batch, other: Batch) -> bool:
    pairs = [(getattr(one, f.name), getattr(other, f.name)) for f in fields(Batch)]
    return all(
        a.shape == b.shape and torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b
        for a, b in pairs
    )


@pytest.mark.parametrize("symbols", [2, 4])
@pytest.mark.parametrize("delay", [0, 3])
@pytest.mark.parametrize("shortest", [1, 6])
@pytest.mark.parametrize("name", TASKS)
def test_every_example_is_data_then_blanks_then_pads(
    name: str, shortest: int, delay: int, symbols: int
) -> None:
    spec = task(name, min_length=shortest, delay=delay, symbols=symbols)
    batch = draw_batch(spec, 50, np.random.default_rng(0))
    for b, n in enumerate(batch.target_lengths.tolist()):
        assert shortest <= n <= 6
        source, target = batch.source[b].tolist(), batch.target[b].tolist()
        data = source[:n]
        assert all(0 <= symbol < symbols for symbol in data)
        assert source[n : n + delay] == delay * [blank(symbols)]
        assert set(source[n + delay :]) <= {pad(symbols)}
        assert target[:n] == TARGETS[name](data)
        assert set(target[n:]) <= {pad(symbols)}
        assert int(batch.source_lengths[b]) == n + delay
    assert batch.source.shape[1] == int(batch.source_lengths.max())
    assert batch.target.shape[1] == int(batch.target_lengths.max())
    assert batch.source.dtype == batch.target.dtype == torch.int64


def test_special_symbols_are_three_and_never_data() -> None:
    for symbols in (2, 10):
        special = [bos(symbols), blank(symbols), pad(symbols)]
        assert special == list(range(symbols, symbols + SPECIAL_SYMBOLS))


def test_masks_and_decoder_input_are_hand_written() -> None:
    batch = make_batch("reverse", [3, 1], delay=1)
    a, b, c = batch.source[0, :3].tolist()
    assert batch.target[0].tolist() == [c, b, a]
    assert batch.decoder_input[0].tolist() == [bos(4), c, b]
    assert batch.source_mask.tolist() == [[True] * 4, [True, True, False, False]]
    assert batch.target_mask.tolist() == [[True] * 3, [True, False, False]]


def test_the_decoder_reads_what_it_is_given_instead_of_the_truth() -> None:
    batch = make_batch("copy", [3, 1])
    read = torch.tensor([[bos(4), 3, 2], [bos(4), 1, 0]])
    given = replace(batch, read=read)
    assert given.decoder_input is read
    assert torch.equal(given.target, batch.target)
    assert torch.equal(given.examples(slice(1, 2)).decoder_input, read[1:2])
    assert torch.equal(given.to("cpu").decoder_input, read)


@pytest.mark.parametrize("name", TASKS)
def test_a_task_done_twice_is_copy(name: str) -> None:
    generator = np.random.default_rng(0)
    lengths = generator.integers(1, 8, size=20)
    data = generator.integers(0, 9, size=(20, 7))
    twice = TASKS[name](TASKS[name](data, lengths), lengths)
    for b, n in enumerate(lengths):
        assert twice[b, :n].tolist() == data[b, :n].tolist()


def test_copy_and_reverse_of_one_generator_ask_about_the_same_sources() -> None:
    copy, reverse = (
        draw_batch(task(name, min_length=2), 10, np.random.default_rng(3))
        for name in ("copy", "reverse")
    )
    assert torch.equal(copy.source, reverse.source)
    for b, n in enumerate(copy.target_lengths.tolist()):
        assert torch.equal(copy.target[b, :n].flip(0), reverse.target[b, :n])


@pytest.mark.parametrize("delay", [0, 3])
@pytest.mark.parametrize("name", TASKS)
def test_a_reversed_source_is_read_backwards_before_the_blanks(name: str, delay: int) -> None:
    keys = {"min_length": 1, "delay": delay}
    plain, mirrored = (
        draw_batch(task(name, reverse_source=flag, **keys), 20, np.random.default_rng(3))
        for flag in (False, True)
    )
    assert torch.equal(plain.target, mirrored.target)
    assert torch.equal(plain.source_lengths, mirrored.source_lengths)
    for b, n in enumerate(plain.target_lengths.tolist()):
        assert torch.equal(mirrored.source[b, :n], plain.source[b, :n].flip(0))
        assert torch.equal(mirrored.source[b, n:], plain.source[b, n:])


def test_reversing_a_reversed_source_gives_back_what_was_read() -> None:
    batch = draw_batch(task("reverse", reverse_source=True), 5, np.random.default_rng(0))
    assert torch.equal(batch.source, batch.target)


def test_keep_asks_for_the_first_symbols_whatever_is_read() -> None:
    spec = task(min_length=3, delay=1, keep=2, reverse_source=True)
    batch = draw_batch(spec, 20, np.random.default_rng(0))
    whole = draw_batch(task(min_length=3, delay=1), 20, np.random.default_rng(0))
    assert batch.target.shape == (20, 2)
    assert set(batch.target_lengths.tolist()) == {2}
    assert torch.equal(batch.target, whole.source[:, :2])
    assert torch.equal(batch.source_lengths, whole.source_lengths)
    assert bool(batch.target_mask.all())


@pytest.mark.parametrize("keys", [{"reverse_source": True}, {"keep": 2}])
def test_other_questions_are_about_the_same_symbols(keys: dict[str, Any]) -> None:
    asked, plain = task(min_length=3, **keys), task(min_length=3)
    for one, other in (
        (training_batch(asked, 4, 0, 7), training_batch(plain, 4, 0, 7)),
        (probe_batch(asked, 4, 0, 5), probe_batch(plain, 4, 0, 5)),
    ):
        assert torch.equal(one.source.sort(-1).values, other.source.sort(-1).values)
        assert torch.equal(one.target, other.target[:, : one.target.shape[1]])


def test_symbols_and_lengths_are_uniform() -> None:
    batch = draw_batch(task(min_length=1), 6000, np.random.default_rng(0))
    lengths = np.bincount(batch.target_lengths.numpy(), minlength=7)[1:]
    assert np.all(np.abs(lengths - 1000) < 150)  # five standard deviations
    first = np.bincount(batch.source[:, 0].numpy(), minlength=4)
    assert np.all(np.abs(first - 1500) < 170)


@pytest.mark.parametrize("name", TASKS)
def test_the_probe_does_not_depend_on_what_was_trained_on(name: str) -> None:
    probe = probe_batch(task(name, length=6), 5, 1, 9)
    assert equal(probe, probe_batch(task(name, length=40, min_length=3), 5, 1, 9))
    assert probe.source.shape == (5, 9)
    assert set(probe.target_lengths.tolist()) == {9}
    for other in (
        probe_batch(task(name), 5, 2, 9),
        probe_batch(task(name, symbols=5), 5, 1, 9),
        probe_batch(task(name), 5, 1, 8),
    ):
        assert not torch.equal(other.source[:, :8], probe.source[:, :8])


def test_a_longer_list_of_probe_examples_starts_with_the_shorter_at_one_length() -> None:
    few, many = probe_batch(task(), 3, 0, 5), probe_batch(task(), 8, 0, 5)
    assert torch.equal(many.source[:3], few.source)


def test_training_batches_depend_on_seed_task_size_and_step_alone() -> None:
    first = training_batch(task(min_length=2), 4, 0, 7)
    assert equal(first, training_batch(task(min_length=2), 4, 0, 7))
    assert equal(training_batch(task(), 4, 0, 7), training_batch(task(min_length=6), 4, 0, 7))
    for other in (
        training_batch(task(min_length=2), 4, 1, 7),
        training_batch(task(min_length=2), 4, 0, 8),
        training_batch(task(min_length=2, delay=1), 4, 0, 7),
        training_batch(task("reverse", min_length=2), 4, 0, 7),
    ):
        assert not equal(first, other)


def test_training_never_shows_the_probe() -> None:
    spec = task(length=20)
    probe = {tuple(row) for row in probe_batch(spec, 50, 0, 20).source.tolist()}
    for step in range(50):
        seen = {tuple(row) for row in training_batch(spec, 50, 0, step).source.tolist()}
        assert not probe & seen


def test_drawing_leaves_the_global_generators_alone() -> None:
    before = torch.get_rng_state(), repr(np.random.get_state())
    probe_batch(task(), 4, 0, 5)
    training_batch(task(), 4, 0, 5)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert repr(np.random.get_state()) == before[1]


def test_a_keyed_generator_is_the_same_in_another_process() -> None:
    code = (
        "from gradlab.seeding import keyed_generator;"
        "print(keyed_generator('training', 3, 'copy').integers(2**62))"
    )
    command = [sys.executable, "-c", code]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert int(printed) == int(keyed_generator("training", 3, "copy").integers(2**62))


@pytest.mark.parametrize("other", [("a", 1), ("a", "1", 2), ("a", 2, 1), ("a", 12), ("a1", 2)])
def test_other_keys_give_other_numbers(other: tuple[object, ...]) -> None:
    mine, theirs = keyed_generator("a", 1, 2), keyed_generator(*other)
    assert mine.integers(2**62) != theirs.integers(2**62)


@pytest.mark.parametrize("side", ["source", "target"])
@pytest.mark.parametrize(("lengths", "found"), [([2, 0], "0 to 2"), ([1, 4], "1 to 4")])
def test_lengths_that_do_not_fit_are_refused(side: str, lengths: list[int], found: str) -> None:
    batch = make_batch("copy", [3, 3])
    changes: dict[str, Any] = {f"{side}_lengths": torch.tensor(lengths)}
    with pytest.raises(GradlabError) as caught:
        replace(batch, **changes)
    assert str(caught.value) == (
        f"every {side} needs between 1 and 3 symbols, found lengths {found}"
    )


def test_a_batch_of_nothing_is_refused() -> None:
    nothing, ids = torch.zeros(0, dtype=torch.int64), torch.zeros(0, 3, dtype=torch.int64)
    with pytest.raises(GradlabError) as caught:
        Batch(ids, nothing, ids, nothing, 4)
    assert str(caught.value) == "a batch needs at least one example, found none"
