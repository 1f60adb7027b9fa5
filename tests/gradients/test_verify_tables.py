"""The tables of `verify`: text, Markdown and LaTeX, complete, balanced and typeset."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from matplotlib.mathtext import MathTextParser

from gradlab.gradients.formulas.claim import Claim, Draw, Formula
from gradlab.gradients.verify import (
    FORMULAS,
    Result,
    as_latex,
    as_markdown,
    as_text,
    check,
    rows,
    verify,
)

NAMES = {holds: [f.name for f in rows() if f.holds is holds] for holds in (True, False)}


@pytest.fixture(scope="module")
def results() -> list[Result]:
    return verify(cases=5)


def test_text_fits_a_terminal_and_ends_with_a_verdict(results: list[Result]) -> None:
    lines = as_text(results).splitlines()
    assert max(map(len, lines)) <= 100
    shown = [line[2:22].strip() for line in lines if line[:2] == "  " and line[2:3].strip()]
    assert all(shown.count(name) == 1 for name in NAMES[True] + NAMES[False])
    assert lines[-1] == (
        f"Verified: {len(NAMES[True])} formulas hold and {len(NAMES[False])} circulating variants "
        "are wrong, over 5 random cases (seed 0)."
    )


def test_markdown_has_a_row_for_each_entry_and_even_pipes(results: list[Result]) -> None:
    blocks = [block.splitlines() for block in as_markdown(results).split("\n\n")]
    tables = [block for block in blocks if block[0].startswith("|")]
    entries = []
    for head, rule, *body in tables:
        cells = [re.split(r"(?<!\\)\|", line) for line in (head, rule, *body)]
        assert {len(row) for row in cells} == {len(cells[0])}
        entries += [row[1].strip() for row in cells[2:]]
        assert all(line.count("$") % 2 == 0 for line in body)
    assert entries == NAMES[True] + NAMES[False]


def test_latex_is_balanced(results: list[Result]) -> None:
    latex = as_latex(results)
    opened = re.findall(r"\\begin\{(\w+)\}", latex)
    assert opened == re.findall(r"\\end\{(\w+)\}", latex)
    assert set(opened) == {"longtable"}
    plain = re.sub(r"\\.", "", latex, flags=re.DOTALL)
    depth = 0
    for character in plain:
        depth += {"{": 1, "}": -1}.get(character, 0)
        assert depth >= 0
    assert depth == 0
    assert latex.isascii()
    outside = re.sub(r"\$[^$]*\$", "", re.sub(r"\\[_%&$#]", "", latex))
    assert "$" not in outside
    assert "_" not in outside
    rows_of_table = [line for line in latex.splitlines() if line.endswith(r" \\")]
    assert {line.count(" & ") for line in rows_of_table} == {4, 5}
    tables = len(opened)
    assert len(rows_of_table) == len(results) + tables


@pytest.mark.parametrize("formula", rows(), ids=lambda formula: formula.name)
def test_every_formula_is_math_that_can_be_typeset(formula: Formula) -> None:
    parser = MathTextParser("path")
    for latex in filter(None, (formula.latex, formula.truth_latex, formula.group.latex)):
        parser.parse(f"${latex}$")


def test_what_fails_is_marked_in_every_table() -> None:
    formula = FORMULAS["softmax"]

    def twice(draw: Draw) -> Claim:
        claim = formula.evaluate(draw)
        return replace(claim, says=tuple(2 * says for says in claim.says))

    failed = [check(replace(formula, evaluate=twice), cases=1, seed=0)]
    assert re.search(r"^  softmax .* 1e0 .*FAILS$", as_text(failed), re.MULTILINE)
    assert "| no (unexpected) |" in as_markdown(failed)
    assert r"FAILS \\" in as_latex(failed)
    verdict = "NOT verified: softmax does not hold, over 1 random case (seed 0)."
    assert as_text(failed).splitlines()[-1] == verdict
