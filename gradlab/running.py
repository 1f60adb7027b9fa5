"""The Python face of `gradlab run`: compute what is missing of a sweep, return its tables."""

from __future__ import annotations

from pathlib import Path

from gradlab.errors import GradlabError
from gradlab.grid import describe
from gradlab.lab.results import Results, open_results
from gradlab.lab.sweep import run_sweep
from gradlab.progress import progress as shown
from gradlab.schema import Scenario


def run(
    scenario: Scenario,
    out: str | Path,
    *,
    jobs: int | None = None,
    device: str = "auto",
    force: bool = False,
    progress: str = "auto",
) -> Results:
    """Compute the missing runs of `scenario` into `out` and return the tables of all of them.

    jobs: runs at a time (default: the cores). device: "auto", "cpu" or "cuda". force: use `out`
    even if it holds another scenario. progress: "auto" (a bar on a terminal, lines elsewhere),
    "plain" or "none"; it goes to stderr.

    Raises GradlabError if runs failed (the others are stored), and what `run_sweep` raises.
    """
    if not isinstance(scenario, Scenario):
        raise GradlabError(
            f"run: expected a scenario, found {scenario!r}; load one with gradlab.load_scenario"
        )
    with shown(progress) as report:
        outcome = run_sweep(scenario, out, jobs=jobs, device=device, force=force, report=report)
    if outcome.failures:
        first = outcome.failures[0]
        raise GradlabError(
            f"{len(outcome.failures)} of {outcome.total} runs failed; the others are stored in "
            f"{out}. The first: {describe(first.point)}: {first.message}"
        )
    return open_results(out)
