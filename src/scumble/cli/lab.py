"""`scumble audit`, `scumble attack` and `scumble index compare`: test the privacy claims, and compare the indexes.

Audits and attacks make up their data, so all they print is public. A comparison reads the owner's true rows, and is for
the owner's eyes only. None of them releases anything or touches a ledger.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from scumble.cli.columns import Beta, DataFile, KeyColumn, count_keys
from scumble.cli.database import Json
from scumble.cli.terminal import BROKEN, bar, working
from scumble.errors import InvalidParameter
from scumble.index.contract import check_beta, check_row_epsilon
from scumble.index.plot import SUFFIXES
from scumble.owner.indexes import index_cost
from scumble.privacy.budget import exact
from scumble.types import parse_domain

if TYPE_CHECKING:
    from scumble.lab.attack.report import Report
    from scumble.lab.audit import Finding
    from scumble.lab.compare import Comparison

__all__ = ["attack", "audit", "compare"]

# --- audits ----------------------------------------------------------------------------------------

FINDINGS = ("mechanism", "what shows most", "claimed", "lost at least", "largest loss", "runs", "verdict")
MEANING = """A lower bound is not an estimate: each mechanism loses at least that much, but for one chance in a million.
Below the claim it proves nothing more: few runs, or a weak statistic, show little.
The largest loss is exact: how much likelier a run's noisy values were with one of the two tables.
Either of them above the claim refutes the claim. docs/privacy.md has the proofs."""


def audit(
    *,
    mechanism: Annotated[
        str, typer.Option(metavar="NAME", help="One mechanism, as the first column names it, or `all`.")
    ] = "all",
    epsilon: Annotated[
        str,
        typer.Option(
            metavar="NUMBER", help="The privacy loss that each may claim. A larger one needs more runs to show."
        ),
    ] = "1",
    runs: Annotated[
        int | None,
        typer.Option(metavar="N", min=10, help="How often to run each on either table, however long it takes."),
    ] = None,
    seconds: Annotated[
        float, typer.Option(metavar="S", min=0.1, help="How long to run each, unless --runs says how often.")
    ] = 10.0,
    print_json: Json = False,
) -> None:
    """Try to catch the mechanisms losing more than they claim. Needs no data.

    Runs each one many times on two tables that differ in one row, and looks for
    outputs that tell the tables apart better than epsilon allows. Replays every
    run on the other table as well, and reports the largest exact loss. The exit
    code is 1 if a claim is refuted.

    \b
    scumble audit --mechanism dp-plr --seconds 30
    scumble audit --epsilon 0.5 --json
    """
    claimed = exact(epsilon, "epsilon")
    check_row_epsilon(claimed)
    from scumble.lab.audit import audit as try_to_refute
    from scumble.lab.audit import chosen

    subjects = chosen(mechanism, claimed)
    with bar("runs") as show:
        found = [try_to_refute(subject, runs=runs, seconds=seconds, progress=show) for subject in subjects]
    if print_json:
        refuted = [finding.subject.name for finding in found if finding.refuted]
        typer.echo(json.dumps({"refuted": refuted, "mechanisms": [finding.to_json() for finding in found]}))
    else:
        for line in _aligned([FINDINGS, *map(_finding, found)], left=(0, 1, 6)):
            typer.echo(line)
        typer.echo(MEANING)
    if any(finding.refuted for finding in found):
        raise typer.Exit(BROKEN)


def _finding(finding: "Finding") -> tuple[str, ...]:
    subject = finding.subject
    return (
        subject.name,
        finding.statistic,
        f"{float(subject.epsilon):.4g}" + (f", {float(subject.delta):.1e}" if subject.delta else ""),
        f"{finding.bound.epsilon:.3f}",
        "-" if finding.loss is None else f"{float(finding.loss):.6f}",
        f"{finding.runs:,}",
        "REFUTED" if finding.refuted else "not refuted",
    )


def _aligned(rows: Sequence[tuple[str, ...]], left: tuple[int, ...]) -> list[str]:
    """Return the rows as lines of a table; the columns in `left` are aligned to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (
        [
            cell.ljust(width) if place in left else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        for row in rows
    )
    return ["  " + "  ".join(cells).rstrip() for cells in lines]


# --- attacks ---------------------------------------------------------------------------------------

LEAST, MOST = exact("0.01", "epsilon"), exact(2, "epsilon")


class Name(StrEnum):
    """The attacks."""

    RECONSTRUCTION = "reconstruction"
    SINGLE_RECORD = "single-record"
    VOLUME = "volume"
    AVERAGING = "averaging"
    STORAGE = "storage"
    ALL = "all"


def attack(
    which: Annotated[Name, typer.Argument(metavar="ATTACK", help="reconstruction, single-record, volume, ...")] = (
        Name.ALL
    ),
    *,
    epsilon: Annotated[
        str, typer.Option(metavar="NUMBER", help="The epsilon of the indexes under attack: 0.01 to 2.")
    ] = "1",
    rows: Annotated[
        int | None, typer.Option(metavar="N", min=2000, max=10_000_000, help="How many rows to make up.")
    ] = None,
    queries: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=500, max=10_000_000, help="How many queries the attacker sees, or games it plays."
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="PICTURE", help="Draw the results: .png or .svg.")
    ] = None,
    print_json: Json = False,
) -> None:
    """Attack made-up databases as their provider could, and see what it learns.

    reconstruction, single-record, volume, averaging, storage, or all of them.
    Each is also tried on something that leaks, where it must win: the exact
    index, or a planted weakness. No data of yours is touched.

    \b
    scumble attack reconstruction --epsilon 1 -o attack.png
    scumble attack storage
    """
    cost = exact(epsilon, "epsilon")
    if not LEAST <= cost <= MOST:
        raise InvalidParameter(
            "epsilon must lie between 0.01 and 2", hint="indexes of ten times as much are attacked as well"
        )
    _check_picture(output, "attack.png")
    if output is not None and which is Name.STORAGE:
        raise InvalidParameter("this attack has no picture", hint="leave --output out")
    reports = []
    chosen = [name for name in Name if which in (name, Name.ALL) and name is not Name.ALL]
    sizes = {name: value for name, value in (("rows", rows), ("queries", queries)) if value is not None}
    for name in chosen:
        with working(f"attack: {name.value}"):
            reports.append(_attack(name)(epsilon, **sizes))
        if not print_json:
            typer.echo("\n".join([*reports[-1].lines(), ""]))
    if output is not None:
        from scumble.lab.attack.picture import draw

        with working("drawing"):
            draw(reports, output)
        if not print_json:
            typer.echo(f"{output}: drawn")
    if print_json:
        picture = None if output is None else str(output)
        typer.echo(json.dumps({"picture": picture, "attacks": [report.to_json() for report in reports]}))
    if not all(report.as_expected for report in reports):
        typer.echo("error: an attack did not end as it should", err=True)
        raise typer.Exit(BROKEN)


def _attack(name: Name) -> Callable[..., "Report"]:
    """Return the attack of that name: a function of epsilon and of the numbers of rows and queries, if given."""
    from scumble.lab.attack import averaging, reconstruction, single_record, storage, volume

    attacks: dict[Name, Callable[..., Report]] = {
        Name.RECONSTRUCTION: reconstruction.attack,
        Name.SINGLE_RECORD: single_record.attack,
        Name.VOLUME: volume.attack,
        Name.AVERAGING: averaging.attack,
        Name.STORAGE: lambda epsilon, **sizes: storage.attack(),
    }
    return attacks[name]


def _check_picture(output: Path | None, example: str) -> None:
    if output is not None and output.suffix.lower() not in SUFFIXES:
        raise InvalidParameter("a picture is a .png or .svg file", hint=f"{example}, for example")


# --- comparison ------------------------------------------------------------------------------------

COMPARED = (
    "index",
    "missing: point",
    "range",
    "extra rows: point",
    "range",
    "bytes",
    "dummy rows",
    "delta",
    "build s",
    "lookup µs",
)


def compare(
    file: DataFile,
    *,
    column: KeyColumn = None,
    domain: Annotated[str, typer.Option(metavar="DOMAIN", help="Which keys there can be; as for `fit`.")],
    epsilon: Annotated[str, typer.Option(metavar="NUMBER", help="The privacy loss that each index may cost.")],
    beta: Beta = "1e-6",
    queries: Annotated[int, typer.Option(metavar="N", min=1, help="How many lookups of each kind to try.")] = 10_000,
    untrained: Annotated[
        bool, typer.Option("--untrained", help="Leave out the two indexes that need training: they are slow.")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="PICTURE", help="Draw the extra rows read: .png or .svg."),
    ] = None,
    print_json: Json = False,
) -> None:
    """Try every index of the paper on a column. Releases nothing, spends nothing.

    This is a what-if on data that you own: each index is built in memory, tried,
    and discarded. What is printed comes from the true rows without noise, so keep
    it to yourself.

    \b
    scumble index compare people.csv --column salary --domain int:0:200000 \\
        --epsilon 1 -o overhead.png
    """
    amount, _ = index_cost(epsilon, beta, 1, "measured")
    public = parse_domain(domain)
    _check_picture(output, "overhead.png")
    with working(f"reading {file.name}"):
        counts = count_keys(file, column, public)
    from scumble.lab.compare import WHAT_IF, compare_counts, draw, every_index

    found: list[Comparison] = []
    chosen = [contender for contender in every_index() if not (untrained and contender.trained)]
    compared = compare_counts(counts, public, amount, beta=check_beta(beta), indexes=chosen, queries=queries)
    for contender in chosen:
        with working(f"trying {contender.name}"):
            found += [next(compared), next(compared)]
    if output is not None:
        with working("drawing"):
            draw(found, output, f"Rows read beyond the answer, epsilon {epsilon}")
    if print_json:
        about = {"what_if": WHAT_IF, "rows": int(counts.sum()), "ranks": public.size}
        picture = None if output is None else str(output)
        typer.echo(json.dumps({**about, "picture": picture, "indexes": [asdict(row) for row in found]}))
        return
    typer.echo(f"{file}: {counts.sum():,} rows over {public.size:,} ranks, epsilon {epsilon}, beta {beta}")
    for line in _comparison_lines(found):
        typer.echo(line)
    typer.echo(f"This is {WHAT_IF}.")
    if output is not None:
        typer.echo(f"{output}: drawn")


def _comparison_lines(found: "Sequence[Comparison]") -> list[str]:
    """Return a table with a line for each index, point and range side by side; indexes that refused come below it."""
    rows, notes = [COMPARED], []
    for point, span in zip(found[::2], found[1::2], strict=True):
        if point.missing_mean is None:
            notes.append(f"  {point.index}: {point.note}")
            continue
        rows.append(
            (
                point.index,
                _percent(point.missing_mean),
                _percent(span.missing_mean),
                _rows(point.extra_rows_mean),
                _rows(span.extra_rows_mean),
                _rows(point.index_bytes),
                _rows(point.dummy_rows),
                f"{point.delta:.1e}" if point.delta else "0" if point.delta is not None else "-",
                f"{point.build_seconds:.3g}",
                f"{point.lookup_microseconds:.3g}",
            )
        )
    return [*_aligned(rows, left=(0,)), *notes]


def _percent(share: float | None) -> str:
    return "" if share is None else "0 %" if share == 0 else f"{100 * share:.3g} %"


def _rows(number: float | None) -> str:
    return "" if number is None else f"{number:,.0f}"
