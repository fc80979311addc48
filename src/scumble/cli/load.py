"""`scumble load`: seal the rows of a file or of another database into a table, and say what that cost.

The rows are SECRET, and only the owner learns how many there are: the provider sees the capacity and the indexes. What
can be refused is refused before anything is spent.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

import typer

from scumble.cli.database import Json, Key, Target, opened
from scumble.cli.suggest import as_json
from scumble.cli.terminal import bar, count, print_result
from scumble.errors import InvalidParameter
from scumble.index.kinds import decoded
from scumble.index.summary import summarize
from scumble.owner.indexes import IndexSpec
from scumble.owner.ledger import Ledger
from scumble.owner.loading import MEMORY_BYTES, LoadOptions, LoadReport
from scumble.owner.suggest import Suggestion, suggest
from scumble.privacy.budget import show
from scumble.wire.catalog import Run

__all__ = ["load"]

_BYTES = re.compile(r"(\d{1,15})\s*([kmgt]i?b?|b)?", re.ASCII | re.IGNORECASE)
_NO_INDEX = "every query will read the whole table; see --index"
_WHOLE = "every column, in the order of loading, for queries that need more than an index holds"


def load(
    target: Target,
    table: Annotated[str, typer.Argument(metavar="TABLE", help="A new table, or one to add to.", show_default=False)],
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="A csv, tsv, parquet, arrow, feather or duckdb file; duckdb://FILE; postgresql://USER@HOST/NAME.",
            show_default=False,
        ),
    ],
    *,
    index: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help='"COLUMN DOMAIN epsilon=E": an index. Repeat it for more.'),
    ] = None,
    capacity: Annotated[
        int | None,
        typer.Option(
            metavar="ROWS", min=1, help="A public bound on the rows; without one it is drawn, which costs epsilon."
        ),
    ] = None,
    capacity_epsilon: Annotated[
        str | None,
        typer.Option(
            metavar="EPSILON", help="What drawing the capacity costs; by default a tenth of the cheapest index."
        ),
    ] = None,
    types: Annotated[
        list[str] | None,
        typer.Option("--type", metavar="TEXT", help='"COLUMN TYPE": say a column\'s type. Repeat it for more.'),
    ] = None,
    schema: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A schema file, with a line for each column: see `scumble suggest`."),
    ] = None,
    types_from_data: Annotated[
        bool,
        typer.Option("--types-from-data", help="Derive the types from the rows, and PUBLISH what they tell."),
    ] = False,
    query: Annotated[
        str | None, typer.Option(metavar="SQL", help="What to read from a duckdb or postgresql source.")
    ] = None,
    new_rows: Annotated[
        bool,
        typer.Option("--new-rows", help="State that no row is in the table yet; then only the dearest counts."),
    ] = False,
    again: Annotated[
        bool, typer.Option("--again", help="Load rows that were loaded before once more. The cost adds up.")
    ] = False,
    replace_rows: Annotated[
        bool,
        typer.Option("--replace", help="Put these rows in place of all that the table has. The cost adds up."),
    ] = False,
    page_rows: Annotated[
        int | None, typer.Option(metavar="N", help="Rows in a page: a power of two; 1024, or without an index 4096.")
    ] = None,
    memory: Annotated[
        str, typer.Option(metavar="SIZE", help="The memory that sorting may use, such as 512MiB.")
    ] = f"{MEMORY_BYTES >> 30}GiB",
    key: Key = None,
    print_json: Json = False,
) -> None:
    """Load rows into a table, with private indexes. This spends epsilon.

    Each index costs its epsilon once; queries then cost nothing. The domain says
    which keys there can be. It is public, so take it from what the column means.
    A column without an index can be queried too, by reading all of it.

    \b
    scumble load clinic visits visits.csv --type "name text(25)" \\
        --index "amount decimal:0:100000:0.01 epsilon=0.5" \\
        --index "day date:2013-01-01:2013-12-31 epsilon=0.5"
    scumble load clinic visits postgresql://me@host/db \\
        --query "SELECT * FROM visits"

    \b
    Domains: as for `scumble index fit`, whose --help lists them.
    After the epsilon an index may also have
      beta=1e-6            the chance that any query at all loses a row
      slack=lossless       never lose a row, for a little delta
      blocks=1             rows as they are sorted: no dummies, wider lookups
      columns=day,ward     the columns that its copy of the rows holds
      hint=FILE            a public curve: see `scumble index tune`
      plan=PLAN            how epsilon is divided, as `scumble index tune` prints it
      rows_per_user=3      the most rows one person has
      max_bytes=4096       how large the index may be
    and for research, to compare with the published design
      mechanism=paper      its binary tree, over all keys
      slack=paper          its slack, with a bound computed from beta
      alpha_s=8            that slack as it is printed: rows may be lost
      mechanism=special    an index that it compares with, such as crypt-epsilon,
                           dp-bplus-tree, fmi: after `scumble --research` only
      delta=1e-6           what some of those cost besides epsilon
    Types: integer, bigint, decimal(12,2), double, boolean, date, time,
    timestamp, interval, uuid, text(25), blob(32), category(["a","b"]); each also
    with "not null".

    Types are public, so they are declared: with --type, with --schema, by an index
    or by the source itself (parquet, arrow, databases). A csv file has none, and
    `scumble suggest` proposes some.

    What is refused costs nothing. A second load adds to the table and needs the
    same columns, but no types. The costs of a table's loads add up. If you can
    state that no row is in the table yet, in whatever form, say --new-rows: then
    only the dearest counts, and the ledger keeps your statement. Rows that were
    loaded before are refused without --again.

    If a load breaks off after it has spent, the message says how much. Load the
    same rows again then: that is recognised, and costs nothing more.
    """
    specs = [IndexSpec.parse(text) for text in index or []]
    options = LoadOptions(
        capacity=capacity,
        capacity_epsilon=capacity_epsilon,
        page_rows=page_rows,
        memory_bytes=_bytes(memory),
        types=_declared(types or []),
        query=query,
        new_rows=new_rows,
        again=again,
        replace=replace_rows,
        schema=schema,
        types_from_data=types_from_data,
    )
    with opened(target, key) as database:
        published = None
        if types_from_data and table.lower() not in {there.name.lower() for there in database.tables}:
            published = suggest(source, query=query, types=options.types, domains={i.column: i.domain for i in specs})
            options = replace(options, types=None, schema=published.file, types_from_data=False)
        before = database.ledger.spent()
        with bar("rows") as progress, _interruption_explained():
            report = database.load(table, source, indexes=specs, options=options, progress=progress)
        lines = [*_as_lines(report), *_cost_lines(report, database.ledger, before), *_published_lines(published)]
        about = _as_json(report, database.ledger)
        print_result(about if published is None else about | as_json(published), lines, as_json=print_json)


@contextmanager
def _interruption_explained() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        typer.echo("interrupted; the ledger shows whether anything was spent, and whether it is settled", err=True)
        typer.echo("hint: load the same again: it is recognised, and neither loaded nor paid twice", err=True)
        raise


def _as_lines(report: LoadReport) -> list[str]:
    pages = count(report.runs[0].pages, "page")
    lines = [
        f"{report.table}: {count(report.rows, 'row')} loaded (only you know how many)",
        f"  capacity  {report.capacity:,} rows in {pages}, dummies included: this is public",
    ]
    for run in report.runs:
        if run.index is None:
            lines.append(f"  no index  {_NO_INDEX}" if len(report.runs) == 1 else f"  all       {_WHOLE}")
            continue
        about = summarize(decoded(run.index))
        lines.append(
            f"  index     {run.attribute} {about.domain}: {about.shape} in {about.bytes:,} bytes, "
            f"slack {about.slack_rows:,} rows{_held(run)}"
        )
    return lines


def _held(run: Run) -> str:
    return "" if run.columns is None else f", with {count(len(run.columns), 'column')}"


def _published_lines(published: Suggestion | None) -> list[str]:
    if published is None:
        return []
    return ["  PUBLISHED this schema, which was derived from the rows, and so what its comments say of them:"] + [
        f"    {line}" for line in published.column_lines
    ]


def _cost_lines(report: LoadReport, ledger: Ledger, before: Fraction) -> list[str]:
    delta = f", delta {show(report.delta)}" if report.delta else ""
    more = ledger.spent() - before
    apart = "" if more == report.epsilon else f"; the rows are new to the table, so this adds {show(more)}"
    if report.retried:
        apart = f", for a load of the same rows that was lost; finishing it adds {show(more)}"
    left = f"  ledger    epsilon {show(ledger.remaining())} of {show(ledger.limit)} remaining"
    return [f"  charged   epsilon {show(report.epsilon)}{delta}{apart}", left]


def _as_json(report: LoadReport, ledger: Ledger) -> dict[str, Any]:
    indexes = [
        {"column": run.attribute, **summarize(decoded(run.index)).as_dict()}
        for run in report.runs
        if run.index is not None
    ]
    return {
        "table": report.table,
        "batch": report.batch,
        "rows": report.rows,
        "capacity": report.capacity,
        "indexes": indexes,
        "epsilon": float(report.epsilon),
        "delta": float(report.delta),
        "retried": report.retried,
        "remaining": float(ledger.remaining()),
        "delta_remaining": float(ledger.remaining_delta()),
    }


def _declared(texts: Sequence[str]) -> dict[str, str]:
    types: dict[str, str] = {}
    for text in texts:
        column, _, type_ = text.strip().partition(" ")
        if not type_.strip():
            raise InvalidParameter(f"{text!r} does not read as a column and its type", hint='--type "name text(25)"')
        if column.lower() in map(str.lower, types):
            raise InvalidParameter(f"the type of {column!r} is given twice", hint="leave one of the two out")
        types[column] = type_.strip()
    return types


def _bytes(text: str) -> int:
    found = _BYTES.fullmatch(text.strip())
    if found is None:
        raise InvalidParameter(f"{text!r} does not read as a size", hint="--memory 512MiB, for example")
    unit = (found[2] or "b").lower()
    power = "bkmgt".index(unit[0])
    base: int = 1024 if "i" in unit or unit in "kmgt" else 1000
    return int(found[1]) * int(base**power)
