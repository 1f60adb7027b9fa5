"""The results of `verify` as text for a terminal of 100 columns, as Markdown and as LaTeX."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from itertools import groupby, zip_longest

from gradlab.gradients.formulas.claim import Group
from gradlab.gradients.formulas.result import (
    AUTOGRAD_TOLERANCE,
    DIFFERENCE_TOLERANCE,
    Result,
)

WIDTH, NAME, FORMULA = 100, 23, 49
HOLDING, CIRCULATING = (
    (("autograd", 9), ("differences", 12)),
    (("min", 7), ("median", 7), ("max", 7)),
)
"""What is measured of a formula that should hold and of a variant, and how wide it is in text."""


def verdict(results: Sequence[Result]) -> str:
    """Return one line: what holds, what is wrong as it should be, or what failed."""
    failed = [result for result in results if not result.passed]
    where = f"over {cases_of(results)}"
    if not failed:
        variants = sum(not result.formula.holds for result in results)
        return (
            f"Verified: {len(results) - variants} formulas hold and {variants} circulating variants"
            f" are wrong, {where}."
        )
    reasons = [
        f"{result.formula.name} {'does not hold' if result.formula.holds else 'is not shown wrong'}"
        for result in failed
    ]
    return f"NOT verified: {'; '.join(reasons)}, {where}."


def cases_of(results: Sequence[Result]) -> str:
    cases = results[0].cases
    return f"{cases} random case{'s' if cases > 1 else ''} (seed {results[0].seed})"


def measured_by(results: Sequence[Result]) -> str:
    """Return what the numbers are."""
    return (
        f"Largest relative error in float64 over {cases_of(results)}: at most "
        f"{short(AUTOGRAD_TOLERANCE)} from autograd and {short(DIFFERENCE_TOLERANCE)} from "
        "sixth-order central differences."
    )


def by_group(results: Sequence[Result]) -> Iterator[tuple[Group, str, list[Result]]]:
    """Yield each group with its sources and its rows."""
    for group, members in groupby(results, key=lambda result: result.formula.group):
        rows = list(members)
        sources = dict.fromkeys(row.formula.source for row in rows if row.formula.holds)
        yield group, "; ".join(sources), rows


def status(result: Result) -> str:
    if result.formula.holds:
        return "ok" if result.passed else "FAILS"
    return "wrong" if result.passed else "HOLDS"


def numbers(result: Result) -> list[str]:
    """Return the two errors of a formula, or smallest, median and largest distance of a variant."""
    if result.distance is None:
        return [short(error) for error in (result.autograd_error, result.difference_error)]
    distance = result.distance
    return [f"{x:.2g}" for x in (distance.smallest, distance.median, distance.largest)]


def short(error: float) -> str:
    """Return one digit and the power of ten: 8e-16; 0, inf and nan as they are."""
    digit, e, power = f"{error:.0e}".partition("e")
    return f"{digit}e{int(power)}" if e and error else digit


def columns(result: Result) -> tuple[tuple[str, int], ...]:
    return HOLDING if result.formula.holds else CIRCULATING


def as_text(results: Sequence[Result]) -> str:
    """Return a table for a terminal, with a verdict as its last line."""
    lines = wrapped(measured_by(results), WIDTH)
    for group, sources, rows in by_group(results):
        title = f"{group.title} ({sources})" if sources else group.title
        heads = "".join(f"{head:>{width}}" for head, width in columns(rows[0]))
        first, *rest = wrapped(title, NAME + FORMULA)
        lines += ["", f"{first:<{NAME + FORMULA}}{heads}", *rest]
        lines += [f"  {line}" for line in wrapped(group.text, WIDTH - 2)]
        for row in rows:
            lines += text_row(row)
    return "\n".join([*lines, "", verdict(results)]) + "\n"


def text_row(row: Result) -> Iterator[str]:
    """Yield the lines of one row: name, formula, numbers, status, and for a variant the truth."""
    measured = zip(numbers(row), columns(row), strict=True)
    right = "".join(f"{number:>{width}}" for number, (_, width) in measured)
    names = wrapped(row.formula.name, NAME - 3)
    formulas = wrapped(row.formula.text, FORMULA - 1)
    for index, (name, formula) in enumerate(zip_longest(names, formulas, fillvalue="")):
        end = f"{right}  {status(row)}" if index == 0 else ""
        yield f"  {name:<{NAME - 2}}{formula:<{FORMULA}}{end}".rstrip()
    for index, line in enumerate(wrapped(row.formula.truth, WIDTH - NAME - 9)):
        yield f"{'':{NAME}}{'in truth' if index == 0 else '':<9}{line}"


def wrapped(text: str, width: int) -> list[str]:
    """Break `text` at spaces only."""
    return textwrap.wrap(text, width, break_on_hyphens=False, break_long_words=False)


def as_markdown(results: Sequence[Result]) -> str:
    """Return one table a group, formulas as $math$, with a verdict as the last line."""
    lines = [measured_by(results)]
    for group, _, rows in by_group(results):
        told = ["formula"] if rows[0].formula.holds else ["in circulation", "in truth"]
        heads = ["name", *told, "source", *(head for head, _ in columns(rows[0])), "holds"]
        rule = ["---"] * (len(told) + 2) + ["---:"] * len(columns(rows[0])) + ["---"]
        lines += ["", f"**{group.title}**: ${group.latex}$", "", *map(markdown_row, (heads, rule))]
        for row in rows:
            formula = row.formula
            said = [f"${formula.latex}$", *([] if formula.holds else [f"${formula.truth_latex}$"])]
            holds = "yes" if row.passed == formula.holds else "no"
            mark = "" if row.passed else " (unexpected)"
            cells = [formula.name, *said, formula.source, *numbers(row), holds + mark]
            lines.append(markdown_row(cells))
    return "\n".join([*lines, "", verdict(results)]) + "\n"


def markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


def as_latex(results: Sequence[Result]) -> str:
    """Return one longtable a group, to be pasted into a document, with a verdict at the end."""
    lines = [r"% \usepackage{amsmath, longtable}", latex_text(measured_by(results))]
    for group, sources, rows in by_group(results):
        about = f" {latex_text(sources)}." if sources else ""
        heads = " & ".join(["", "", *(head for head, _ in columns(rows[0])), ""])
        align = r"@{}p{0.17\textwidth}p{0.45\textwidth}" + "r" * len(columns(rows[0])) + "l@{}"
        lines += ["", rf"\paragraph{{{latex_text(group.title)}}}{about}"]
        lines += [rf"{{\raggedright ${group.latex}$\par}}", rf"\begin{{longtable}}{{{align}}}"]
        lines += [r"\hline", rf"{heads} \\", r"\hline", r"\endhead"]
        lines += map(latex_row, rows)
        lines += [r"\hline", r"\end{longtable}"]
    return "\n".join([*lines, "", latex_text(verdict(results))]) + "\n"


def latex_row(row: Result) -> str:
    formula = f"${row.formula.latex}$"
    if not row.formula.holds:
        formula += rf" \newline in truth: ${row.formula.truth_latex}$"
    cells = [latex_text(row.formula.name), formula, *map(latex_number, numbers(row)), status(row)]
    return " & ".join(cells) + r" \\"


def latex_number(number: str) -> str:
    """Return 8e-16 as a power of ten in math mode; other numbers as they are."""
    digit, e, power = number.partition("e")
    return rf"${digit} \times 10^{{{int(power)}}}$" if e else number


LATEX_ESCAPES = str.maketrans(
    {character: rf"\{character}" for character in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
)


def latex_text(text: str) -> str:
    """Escape plain text for LaTeX."""
    return text.translate(LATEX_ESCAPES)
