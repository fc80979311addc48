"""`scumble audit`: no data comes in; what every mechanism was caught losing, beside what it claims, goes out.

The tables are made up and public, so everything printed is, and no ledger is touched.
"""

import json
from typing import TYPE_CHECKING, Annotated

import typer

from scumble.cli.progress import bar
from scumble.index.contract import check_row_epsilon
from scumble.privacy.amounts import exact

if TYPE_CHECKING:
    from scumble.lab.audit import Finding

__all__ = ["audit"]

HEADINGS = ("mechanism", "what shows most", "claimed", "lost at least", "runs", "verdict")
MEANING = """A lower bound is not an estimate: each mechanism loses at least that much, but for one chance in a million.
Below the claim it proves nothing more: few runs, or a weak statistic, show little.
Above the claim it refutes the claim. docs/privacy.md has the proofs."""


def audit(
    *,
    mechanism: Annotated[
        str, typer.Option(metavar="NAME", help="One mechanism, as the first column names it, or `all`.")
    ] = "all",
    epsilon: Annotated[
        str,
        typer.Option(
            metavar="NUMBER", help="The privacy loss that each may claim. The larger, the fewer runs show much of it."
        ),
    ] = "1",
    runs: Annotated[
        int | None,
        typer.Option(metavar="N", min=10, help="How often to run each on either table, whatever time it takes."),
    ] = None,
    seconds: Annotated[
        float, typer.Option(metavar="S", min=0.1, help="How long to run each, if --runs does not say how often.")
    ] = 10.0,
    print_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Try to catch the mechanisms losing more than they claim. Needs no data.

    Runs each one many times on two tables that differ in one row, and looks for
    outputs that tell the tables apart better than epsilon allows. Exits with 1 if
    a claim is refuted.

    \b
    scumble audit --mechanism dp-plr --seconds 30
    scumble audit --epsilon 0.5 --json
    """
    claimed = exact(epsilon, "epsilon")
    check_row_epsilon(claimed)
    from scumble.lab.audit import audit as attack
    from scumble.lab.audit import chosen

    subjects = chosen(mechanism, claimed)
    with bar("runs") as show:
        found = [attack(subject, runs=runs, seconds=seconds, progress=show) for subject in subjects]
    if print_json:
        refuted = [finding.subject.name for finding in found if finding.refuted]
        typer.echo(json.dumps({"refuted": refuted, "mechanisms": [finding.to_json() for finding in found]}))
    else:
        for line in _lines(found):
            typer.echo(line)
        typer.echo(MEANING)
    if any(finding.refuted for finding in found):
        raise typer.Exit(1)


def _lines(found: "list[Finding]") -> list[str]:
    rows = [HEADINGS, *(_row(finding) for finding in found)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    left = [True, True, False, False, False, True]
    return [
        "  "
        + "  ".join(
            cell.ljust(width) if to_left else cell.rjust(width)
            for cell, width, to_left in zip(row, widths, left, strict=True)
        ).rstrip()
        for row in rows
    ]


def _row(finding: "Finding") -> tuple[str, ...]:
    subject = finding.subject
    return (
        subject.name,
        finding.statistic,
        f"{float(subject.epsilon):.4g}" + (f", {float(subject.delta):.1e}" if subject.delta else ""),
        f"{finding.bound.epsilon:.3f}",
        f"{finding.runs:,}",
        "REFUTED" if finding.refuted else "not refuted",
    )
