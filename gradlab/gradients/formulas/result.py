"""How a formula did over the random cases, and how near is near."""

from __future__ import annotations

from dataclasses import dataclass

from gradlab.gradients.formulas.claim import Formula

AUTOGRAD_TOLERANCE = 1e-9
DIFFERENCE_TOLERANCE = 1e-6
SHOWN_WRONG = 1e-4
"""A variant nearer to the truth than this in any case is not shown to be wrong."""


@dataclass(frozen=True)
class Distance:
    """How far a variant is from the truth over the cases, relative to the truth."""

    smallest: float
    median: float
    largest: float


@dataclass(frozen=True)
class Result:
    """One row: the largest relative error of a formula over `cases` random cases of `seed`.

    distance: from autograd, for a circulating variant; None for a formula that should hold.
    passed: the formula holds, or the variant is shown wrong.
    """

    formula: Formula
    cases: int
    seed: int
    autograd_error: float
    difference_error: float
    distance: Distance | None
    passed: bool
