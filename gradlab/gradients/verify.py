"""`gradlab verify`: every formula against autograd and central differences, in float64.

Formulas that should hold are written out by hand under `formulas`; gradlab's own adjoints and
measured gradients stand beside them; and the variants that circulate are shown with their distance
from the truth. A formula fails when it is off, and a variant fails when it turns out right, since
then the check is broken.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch

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
from gradlab.gradients.formulas.claim import (
    DIFFERENCE_ROUNDING,
    Draw,
    Formula,
    autograd,
    central_differences,
)
from gradlab.gradients.formulas.result import (
    AUTOGRAD_TOLERANCE,
    DIFFERENCE_TOLERANCE,
    SHOWN_WRONG,
    Distance,
    Result,
)
from gradlab.gradients.formulas.tables import as_latex, as_markdown, as_text
from gradlab.seeding import keyed_generator

__all__ = [
    "FORMULAS",
    "Distance",
    "Result",
    "all_passed",
    "as_latex",
    "as_markdown",
    "as_text",
    "verify",
]

FORMULAS: dict[str, Formula] = {
    formula.name: formula
    for formula in (
        *softmax.FORMULAS,
        *scores.FORMULAS,
        *cell_table.FORMULAS,
        *chain.FORMULAS,
        *circulating.FORMULAS,
    )
}
"""What lecture notes hold, true or not, by name. gradlab's own code joins in `rows`."""


def rows() -> list[Formula]:
    """Return every formula in the order of the table, the circulating variants last."""
    listed = [*FORMULAS.values(), *computed.formulas(), *measured.formulas()]
    return sorted(listed, key=lambda formula: not formula.holds)


def verify(cases: int = 20, seed: int = 0) -> list[Result]:
    """Check every formula on the same random cases; a pure function of its arguments.

    Raises GradlabError when there is no case to check.
    """
    if cases < 1:
        raise GradlabError(f"verify needs at least one random case, found {cases}")
    with torch.inference_mode(False), torch.enable_grad():
        return [check(formula, cases, seed) for formula in rows()]


def check(formula: Formula, cases: int, seed: int) -> Result:
    """Return how one formula does over the cases."""
    errors = np.array([errors_of(formula, seed, case) for case in range(cases)])
    largest = errors.max(0)  # NaN stays NaN, and passes nothing
    by_autograd, by_differences = float(largest[0]), float(largest[1])
    if formula.holds:
        passed = by_autograd <= AUTOGRAD_TOLERANCE and by_differences <= DIFFERENCE_TOLERANCE
        return Result(formula, cases, seed, by_autograd, by_differences, None, passed)
    distance = Distance(*(float(at(errors[:, 0])) for at in (np.min, np.median, np.max)))
    passed = bool(errors.min() > SHOWN_WRONG and np.isfinite(errors).all())
    return Result(formula, cases, seed, by_autograd, by_differences, distance, passed)


def errors_of(formula: Formula, seed: int, case: int) -> tuple[float, float]:
    """Return the relative error of one case against autograd and against central differences."""
    claim = formula.evaluate(Draw(case, keyed_generator("verify", seed, case)))
    return claim.distance(autograd(claim)), claim.distance(
        central_differences(claim), DIFFERENCE_ROUNDING
    )


def all_passed(results: Iterable[Result]) -> bool:
    """Return whether every formula holds and every variant is shown wrong."""
    return all(result.passed for result in results)
