"""`verify`: true formulas hold, false ones are shown wrong, and a broken check is noticed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from gradlab.errors import GradlabError
from gradlab.gradients.formulas import (
    cell_table,
    chain,
    circulating,
    computed,
    measured,
    scores,
    softmax,
)
from gradlab.gradients.formulas.claim import Claim, Draw, Formula
from gradlab.gradients.measurement import Measurement
from gradlab.gradients.probe import measure
from gradlab.gradients.verify import (
    FORMULAS,
    Result,
    all_passed,
    as_latex,
    as_markdown,
    as_text,
    rows,
    verify,
)
from gradlab.models.additive import Additive
from gradlab.models.attention import Score
from gradlab.models.cells import CELLS, RNN, Coefficients, Gates, State, Views
from gradlab.models.scores import SCORES

NAMES = {holds: [f.name for f in rows() if f.holds is holds] for holds in (True, False)}


@pytest.fixture(scope="module")
def results() -> list[Result]:
    return verify(cases=5)


def named(results: list[Result], name: str) -> Result:
    (found,) = [result for result in results if result.formula.name == name]
    return found


def failures(results: list[Result]) -> set[str]:
    return {result.formula.name for result in results if not result.passed}


@pytest.mark.parametrize("name", NAMES[True])
def test_every_formula_that_should_hold_does(results: list[Result], name: str) -> None:
    result = named(results, name)
    assert result.passed
    assert result.autograd_error < 1e-12
    assert result.difference_error < 1e-7
    assert result.distance is None


@pytest.mark.parametrize("name", NAMES[False])
def test_every_circulating_variant_is_shown_wrong(results: list[Result], name: str) -> None:
    result = named(results, name)
    assert result.passed
    assert result.distance is not None
    assert 0.01 < result.distance.smallest <= result.distance.median <= result.distance.largest
    assert result.distance.largest == result.autograd_error
    assert result.autograd_error == pytest.approx(result.difference_error, rel=1e-6)
    assert result.formula.truth
    assert result.formula.truth_latex


def test_other_seeds_pass_too() -> None:
    for seed in (1, 2, 3):
        assert failures(verify(cases=2, seed=seed)) == set()


def test_the_table_has_every_formula_once() -> None:
    names = [formula.name for formula in rows()]
    assert len(set(names)) == len(names)
    listed = (softmax, scores, cell_table, chain, circulating)
    assert len(FORMULAS) == sum(len(module.FORMULAS) for module in listed)


def test_the_slip_of_the_worked_example_has_its_known_size(results: list[Result]) -> None:
    distance = named(results, "worked slip").distance
    assert distance is not None
    assert distance.median == pytest.approx(0.9 / np.linalg.norm([7.4, 1.2, 2.6]), rel=1e-12)


def off_by(formula: Formula, factor: float) -> Formula:
    """Return the formula with what it says multiplied by a factor."""

    def evaluate(draw: Draw) -> Claim:
        claim = formula.evaluate(draw)
        return replace(claim, says=tuple(factor * says for says in claim.says))

    return replace(formula, evaluate=evaluate)


@pytest.mark.parametrize("factor", [1 + 1e-8, 0.5, -1.0, float("nan")])
@pytest.mark.parametrize("name", ["softmax", "GRU W_hh over time", "total at h_i"])
def test_a_broken_formula_is_noticed(
    monkeypatch: pytest.MonkeyPatch, name: str, factor: float
) -> None:
    monkeypatch.setitem(FORMULAS, name, off_by(FORMULAS[name], factor))
    results = verify(cases=1)
    assert failures(results) == {name}
    assert not all_passed(results)
    assert as_text(results).splitlines()[-1].startswith(f"NOT verified: {name} does not hold, over")


@pytest.mark.parametrize("name", CELLS)
@pytest.mark.parametrize("method", ["carry", "pull_to_hidden", "pull_to_input"])
def test_a_broken_cell_is_noticed(monkeypatch: pytest.MonkeyPatch, name: str, method: str) -> None:
    right = getattr(CELLS[name], method)

    def wrong(*args: Any, **out: Tensor) -> Tensor | tuple[Tensor, ...]:
        found = right(*args, **out)
        if isinstance(found, Tensor):
            return found.mul_(1 + 1e-5)
        return (found[0] * (1 + 1e-5), *found[1:])

    monkeypatch.setattr(CELLS[name], method, wrong)
    results = verify(cases=1)
    assert not all_passed(results)
    chains = {f"{name}, {attention}" for attention in ("no attention", *SCORES)}
    expected = {f"{name} adjoint", f"{name} over time"}
    # dL/dh_i of the encoder needs the adjoint, and the decoder's dL/dc_j its dL/dp
    assert expected <= failures(results) <= expected | chains
    assert method == "pull_to_input" or chains <= failures(results)


def test_a_broken_score_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Additive.gradients

    def wrong(self: Additive) -> tuple[Tensor, ...]:
        keys, energy = right(self)
        return keys * 1.001, energy

    monkeypatch.setattr(Additive, "gradients", wrong)
    failed = failures(verify(cases=1))
    assert failed == {
        f"{start}{name}{end}"
        for name in ("additive", "concat")
        for start, end in (("", " score"), *((f"{cell}, ", "") for cell in CELLS))
    }


def test_a_broken_mask_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(e: Tensor, mask: Tensor) -> Tensor:
        return torch.softmax(e, -1).masked_fill(~mask, 0.0)

    monkeypatch.setattr(computed, "masked_softmax", wrong)
    assert failures(verify(cases=1)) == {"masked softmax"}


def test_measuring_the_direct_part_alone_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    right = measure

    def wrong(*args: Any) -> Measurement:
        measurement = right(*args)
        return replace(measurement, vectors={"total": measurement.vectors["direct"]})

    monkeypatch.setattr(measured, "measure", wrong)
    assert failures(verify(cases=1)) == {
        f"{cell}, {attention}" for cell in CELLS for attention in ("no attention", *SCORES)
    }


@pytest.mark.parametrize(
    ("name", "truth"), [("softmax diagonal", "softmax"), ("W1 without dL/de", "additive W1")]
)
def test_a_variant_that_turns_out_right_is_noticed(
    monkeypatch: pytest.MonkeyPatch, name: str, truth: str
) -> None:
    right = replace(FORMULAS[name], evaluate=FORMULAS[truth].evaluate)
    monkeypatch.setitem(FORMULAS, name, right)
    results = verify(cases=1)
    assert failures(results) == {name}
    assert not all_passed(results)
    assert f"NOT verified: {name} is not shown wrong" in as_text(results)
    assert "yes (unexpected)" in as_markdown(results)


@pytest.mark.parametrize(
    "break_it", [lambda says: says * float("nan"), lambda says: says.new_zeros(7)]
)
def test_a_variant_of_no_value_or_of_another_shape_is_not_shown_wrong(
    monkeypatch: pytest.MonkeyPatch, break_it: Callable[[Tensor], Tensor]
) -> None:
    formula = FORMULAS["softmax diagonal"]

    def evaluate(draw: Draw) -> Claim:
        claim = formula.evaluate(draw)
        return replace(claim, says=tuple(map(break_it, claim.says)))

    monkeypatch.setitem(FORMULAS, formula.name, replace(formula, evaluate=evaluate))
    assert failures(verify(cases=1)) == {formula.name}


def test_a_new_cell_and_a_new_score_are_checked_the_day_they_arrive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Leaky(RNN):
        """h' = 2 tanh(p + a), whose adjoint forgets the 2."""

        def activate(self, seen: Views) -> None:
            seen[0].tanh_().mul_(2)

        def step(self, p: Tensor, a: Tensor, state: State) -> State:
            return (2 * torch.tanh(p + a),)

        def linearise(self, gates: Gates, before: State, after: State) -> Coefficients:
            return (1 - (gates[0] / 2) ** 2,)

    class HalfDot(Score):
        """e = q . h / 2, and nothing by hand."""

        def forward(self, query: Tensor, projected_keys: Tensor) -> Tensor:
            return query @ projected_keys.mT / 2

    monkeypatch.setitem(CELLS, "leaky", Leaky())
    monkeypatch.setitem(SCORES, "half_dot", HalfDot)
    results = verify(cases=1)
    attentions = ("no attention", *SCORES)
    chains = {f"leaky, {attention}" for attention in attentions}
    assert failures(results) == {"leaky adjoint", "leaky over time", *chains}
    assert named(results, "half_dot score").passed
    assert named(results, "half_dot Jacobians").passed
    assert all(named(results, f"{cell}, half_dot").passed for cell in ("rnn", "gru", "lstm"))


def test_results_and_tables_are_the_same_every_time_and_no_random_state_moves() -> None:
    before = torch.get_rng_state().clone(), repr(np.random.get_state())
    first, second = verify(cases=1), verify(cases=1)
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1] == repr(np.random.get_state())
    for table in (as_text, as_markdown, as_latex):
        assert table(first) == table(second)
    assert as_text(verify(cases=1, seed=1)) != as_text(first)


def test_no_case_is_an_error() -> None:
    with pytest.raises(GradlabError) as error:
        verify(cases=0)
    assert str(error.value) == "verify needs at least one random case, found 0"
