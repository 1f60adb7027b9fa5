"""The commands: parse, call one function, print. Messages go to stderr, results to stdout."""

from __future__ import annotations

import errno
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gradlab import __version__
from gradlab.drawing import FIGURE_NAMES, draw, recorded
from gradlab.errors import GradlabError, NothingToPlotError, ScenarioError, StoreError
from gradlab.grid import describe, points
from gradlab.progress import counted, progress, say
from gradlab.scenario import (
    load_scenario,
    parse_overrides,
    scenario_name,
    shipped_scenarios,
    to_toml,
)
from gradlab.schema import Scenario

if TYPE_CHECKING:
    from gradlab.plots.style import StyleName
    from gradlab.plots.words import Language


class Commands(click.Group):
    """Turns every expected error into one message and the right exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        for stream in (sys.stdout, sys.stderr):
            if reconfigure := getattr(stream, "reconfigure", None):
                reconfigure(errors="backslashreplace")
        try:
            return super().invoke(ctx)
        except (ScenarioError, StoreError) as error:
            say(f"gradlab: {error}")
            ctx.exit(2)
        except GradlabError as error:
            say(f"gradlab: {error}")
            ctx.exit(1)
        except KeyboardInterrupt:
            say("gradlab: interrupted; finished runs are stored, run again to go on")
            ctx.exit(130)
        except OSError as error:
            if error.errno == errno.EPIPE:  # the reader has seen enough; click ends quietly
                raise
            say(f"gradlab: {error}")
            ctx.exit(1)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
def main() -> None:
    """Measure along which paths the gradient of a Seq2Seq model reaches each encoder timestep."""


def scenario_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the SCENARIO argument and --set."""
    command = click.option(
        "--set",
        "settings",
        multiple=True,
        metavar="KEY=VALUE",
        help="Override a key, e.g. task.length=20; a list makes a sweep axis.",
    )(command)
    return click.argument("source", metavar="SCENARIO")(command)


def read(source: str, settings: tuple[str, ...]) -> Scenario:
    """Load a scenario with its overrides."""
    return load_scenario(source, parse_overrides(settings), "--set")


@main.command()
@scenario_options
@click.option("--out", type=click.Path(path_type=Path), help="Directory [runs/<scenario>].")
@click.option("--jobs", type=click.IntRange(min=1), help="Runs at a time [number of cores].")
@click.option("--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto")
@click.option("--force", is_flag=True, help="Use OUT even if it holds another scenario.")
@click.option("--dry-run", is_flag=True, help="List the runs and compute nothing.")
@click.option("--progress", "kind", type=click.Choice(["auto", "plain", "none"]), default="auto")
def run(
    source: str,
    settings: tuple[str, ...],
    out: Path | None,
    jobs: int | None,
    device: str,
    force: bool,
    dry_run: bool,
    kind: str,
) -> None:
    """Train and measure the runs of SCENARIO that are missing in OUT, then draw the figures."""
    scenario = read(source, settings)
    out = out or Path("runs") / scenario_name(source)
    if dry_run:
        list_runs(scenario, out)
        return
    from gradlab.lab.sweep import run_sweep

    with progress(kind) as report:
        outcome = run_sweep(scenario, out, jobs=jobs, device=device, force=force, report=report)
    if outcome.damaged:
        say(f"{counted(outcome.damaged, 'damaged run')} set aside and computed again")
    computed = counted(outcome.done + outcome.diverged, "run")
    say(
        f"{computed} computed in {out}, {outcome.skipped} already there; "
        f"{outcome.diverged} diverged, {len(outcome.failures)} failed"
    )
    try:
        conclude(out)
    except GradlabError as error:
        if not outcome.failures:
            raise
        say(str(error))
    if outcome.failures:
        for event in outcome.failures:
            say(f"failed: {describe(event.point)}: {event.message}")
        raise GradlabError(f"{counted(len(outcome.failures), 'run')} failed; run again to retry")


def conclude(out: Path) -> None:
    """Draw the figures of a sweep that has run and sum up its decay."""
    from gradlab.gradients.decay import summary_lines
    from gradlab.lab.results import open_results

    results = open_results(out)
    names = recorded(results, FIGURE_NAMES)
    draw(results, names, ("png",), "lecture", "en", out / "figures", strict=False)
    for line in summary_lines(results.decay):
        say(line)


def list_runs(scenario: Scenario, out: Path) -> None:
    """Print the runs of a sweep and which of them are stored."""
    from gradlab.lab.store import stored_runs
    from gradlab.lab.sweep import damaged_runs

    found = points(scenario)
    stored = stored_runs(out)
    damaged = damaged_runs(out, found)
    for point in found:
        state = "stored " if point.run_id in stored else "missing"
        state = "damaged" if point.run_id in damaged else state
        click.echo(f"{point.run_id}  {state}  {describe(point)}")


@main.command()
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--figure", "names", multiple=True, type=click.Choice(FIGURE_NAMES))
@click.option("--format", "formats", multiple=True, type=click.Choice(["svg", "png", "pdf"]))
@click.option("--style", type=click.Choice(["lecture", "paper"]), default="lecture")
@click.option("--lang", type=click.Choice(["en", "ko"]), default="en")
@click.option("--to", type=click.Path(path_type=Path), help="Directory [OUT/figures].")
def plot(
    out: Path,
    names: tuple[str, ...],
    formats: tuple[str, ...],
    style: StyleName,
    lang: Language,
    to: Path | None,
) -> None:
    """Draw figures from the tables of the sweep in OUT."""
    from gradlab.lab.results import open_results

    results = open_results(out)
    drawn = draw(
        results,
        names or FIGURE_NAMES,
        formats or ("png",),
        style,
        lang,
        to or out / "figures",
        strict=bool(names),
    )
    if not drawn:
        raise NothingToPlotError(f"{out}: no figure could be drawn")


@main.command()
def scenarios() -> None:
    """List the shipped scenarios: what each shows and about how long it takes."""
    for name, path in shipped_scenarios().items():
        scenario = load_scenario(path)
        click.echo(f"{name}  ({counted(len(points(scenario)), 'run')})  {scenario.title}")
        click.echo(textwrap.indent(textwrap.fill(scenario.notes or "", 76), "    ") + "\n")


@main.command()
@click.argument("source", metavar="[SCENARIO]", required=False)
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Override a key.")
@click.option("--schema", is_flag=True, help="Print the JSON schema of scenarios instead.")
def show(source: str | None, settings: tuple[str, ...], schema: bool) -> None:
    """Print the resolved TOML of SCENARIO and the number of its runs."""
    if schema:
        import json

        click.echo(json.dumps(Scenario.model_json_schema(), indent=2))
        return
    if source is None:
        raise click.UsageError("Missing argument 'SCENARIO' (or give --schema).")
    scenario = read(source, settings)
    click.echo(f"# {counted(len(points(scenario)), 'run')}\n{to_toml(scenario)}", nl=False)


@main.command()
@scenario_options
def trace(source: str, settings: tuple[str, ...]) -> None:
    """Print the tensors of one forward pass of SCENARIO's first point."""
    point = points(read(source, settings))[0]
    from gradlab.lab.walkthrough import SYMBOLS, walk_through

    rows = walk_through(point)
    say(describe(point) + "; " + ", ".join(f"{key} = {what}" for key, what in SYMBOLS.items()))
    cells = [("tensor", "shape", "", "what it is")]
    cells += [(row.name, str(row.shape), row.symbols, row.meaning) for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for cell in cells:
        line = "  ".join(text.ljust(width) for text, width in zip(cell, widths, strict=True))
        click.echo(line.rstrip())


@main.command()
@click.option("--markdown", "form", flag_value="markdown", help="Print a Markdown table.")
@click.option("--latex", "form", flag_value="latex", help="Print a LaTeX table.")
@click.option("--cases", type=click.IntRange(min=1), default=20, help="Random cases a formula.")
@click.option("--seed", type=click.IntRange(min=0), default=0)
def verify(form: str | None, cases: int, seed: int) -> None:
    """Check the formulas of lecture notes against autograd and central differences."""
    from gradlab.gradients import verify as check

    forms = {"markdown": check.as_markdown, "latex": check.as_latex}
    results = check.verify(cases, seed)
    click.echo(forms.get(form or "", check.as_text)(results))
    if not check.all_passed(results):
        raise GradlabError("a formula that should hold does not, or a wrong variant came out right")
