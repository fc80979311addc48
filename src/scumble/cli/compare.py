"""`scumble index compare`: a column comes in, a table of what every index of the paper would bring on it goes out.

For the owner's eyes: the numbers come from the true rows. Nothing is released, and no ledger is touched.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from scumble.cli.columns import count_keys
from scumble.cli.progress import working
from scumble.errors import InvalidParameter
from scumble.index.contract import check_beta
from scumble.index.plot import SUFFIXES
from scumble.owner.indexes import index_cost
from scumble.types import parse_domain

if TYPE_CHECKING:
    from scumble.lab.compare import Comparison

__all__ = ["compare"]


def compare(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="The data: csv, tsv, parquet, arrow, feather or npy.", show_default=False),
    ],
    *,
    column: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The column that holds the keys; an npy file has only one."),
    ] = None,
    domain: Annotated[str, typer.Option(metavar="DOMAIN", help="Which keys there can be; as for `fit`.")],
    epsilon: Annotated[str, typer.Option(metavar="NUMBER", help="The privacy loss that each index may cost.")],
    beta: Annotated[
        str, typer.Option(metavar="NUMBER", help="The chance that any lookup at all may lose a row.")
    ] = "1e-6",
    queries: Annotated[int, typer.Option(metavar="N", min=1, help="How many lookups of each kind to try.")] = 10_000,
    untrained: Annotated[
        bool, typer.Option("--untrained", help="Leave out the two indexes that have to be trained: they are slow.")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="PICTURE", help="Draw the rows read too many: .png or .svg."),
    ] = None,
    print_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Try every index of the paper on a column. Releases nothing, spends nothing.

    A what-if on data that you own: each index is built in memory, asked, and
    forgotten. What is printed comes from the true rows without noise, so keep it
    to yourself.

    \b
    scumble index compare people.csv --column salary --domain int:0:200000 \\
        --epsilon 1 -o overhead.png
    """
    amount, _ = index_cost(epsilon, beta, 1, "measured")
    public = parse_domain(domain)
    if output is not None and output.suffix.lower() not in SUFFIXES:
        raise InvalidParameter("a picture is a .png or .svg file", hint="overhead.png, for example")
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
    for line in _lines(found):
        typer.echo(line)
    typer.echo(f"This is {WHAT_IF}.")
    if output is not None:
        typer.echo(f"{output}: drawn")


HEADINGS = (
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


def _lines(found: "Sequence[Comparison]") -> list[str]:
    """The table: one line an index, point and range side by side; what was refused, below."""
    rows, notes = [HEADINGS], []
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
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  "
        + "  ".join([row[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True))])
        for row in rows
    ]
    return [*lines, *notes]


def _percent(share: float | None) -> str:
    return "" if share is None else "0 %" if share == 0 else f"{100 * share:.3g} %"


def _rows(number: float | None) -> str:
    return "" if number is None else f"{number:,.0f}"
