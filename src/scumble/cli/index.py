"""`scumble index`: fit a column's index, show it, look keys up, draw it.

`fit` reads secret keys and writes a public file; the other commands see that file only. Whatever can be refused is
refused before the budget is spent.
"""

import json
from pathlib import Path
from typing import Annotated

import typer

from scumble.cli.columns import count_keys, key_of
from scumble.cli.compare import compare
from scumble.cli.describe import as_json, as_lines, lookup_lines
from scumble.cli.output import Draft, drafted, spent_but_not_written
from scumble.cli.progress import working
from scumble.cli.refusals import BROKEN, say
from scumble.cli.spending import Account, pay, remaining
from scumble.errors import InvalidParameter
from scumble.index.dp_plr import DPPLRIndex
from scumble.index.file import encode
from scumble.index.model import MechanismName, SlackName
from scumble.index.price import price_of
from scumble.privacy.amounts import show as written
from scumble.types import parse_domain

__all__ = ["app"]

app = typer.Typer(rich_markup_mode="rich")

IndexFile = Annotated[Path, typer.Argument(metavar="INDEX", help="An index file that `fit` wrote.", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


@app.callback(invoke_without_command=True)
def _group(context: typer.Context) -> None:
    """Private learned indexes: fit, show, lookup, plot, compare."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command()
def fit(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="The data: csv, tsv, parquet, arrow, feather or npy.", show_default=False),
    ],
    *,
    column: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The column that holds the keys; an npy file has only one."),
    ] = None,
    domain: Annotated[
        str,
        typer.Option(metavar="DOMAIN", help="Which keys there can be: public, so don't take it from the data."),
    ],
    epsilon: Annotated[
        str,
        typer.Option(metavar="NUMBER", help="The privacy loss to pay: 0.1 is strict, 1 usual, 10 lax; 1/3 works too."),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="INDEX", help="The index file to write.")],
    beta: Annotated[
        str, typer.Option(metavar="NUMBER", help="The chance that any lookup at all may lose a row.")
    ] = "1e-6",
    rows_per_user: Annotated[
        int, typer.Option(metavar="K", min=1, help="The most rows one person has: epsilon covers all of them.")
    ] = 1,
    capacity: Annotated[
        int | None,
        typer.Option(metavar="ROWS", min=1, help="Public bound on the rows; by default the index finds one itself."),
    ] = None,
    max_bytes: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="At most so many bytes.", rich_help_panel="Size: one of")
    ] = None,
    max_segments: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="At most so many segments.", rich_help_panel="Size: one of")
    ] = None,
    max_error: Annotated[
        int | None,
        typer.Option(
            metavar="ROWS",
            min=1,
            help="As few segments as stay so close to the noisy curve.",
            rich_help_panel="Size: one of",
        ),
    ] = None,
    mechanism: Annotated[
        MechanismName, typer.Option(help="Ours, or the paper's.", rich_help_panel="Method")
    ] = "scumble",
    slack: Annotated[
        SlackName,
        typer.Option(
            help="How lookups are widened: measured privately, computed as in the paper, or so that no row is ever "
            "lost, which costs a delta of about (1 + e^epsilon) beta.",
            rich_help_panel="Method",
        ),
    ] = "measured",
    alpha_s: Annotated[
        str | None,
        typer.Option(metavar="NUMBER", help="With --slack paper: its factor alpha_s.", rich_help_panel="Method"),
    ] = None,
    ledger: Annotated[
        Path | None,
        typer.Option(
            metavar="LEDGER",
            help="The ledger that pays. Without one, nothing remembers the spend from one run to the next.",
            rich_help_panel="Budget",
        ),
    ] = None,
    limit: Annotated[
        str | None,
        typer.Option(metavar="EPSILON", help="Create the ledger with this limit.", rich_help_panel="Budget"),
    ] = None,
    delta_limit: Annotated[
        str | None,
        typer.Option(metavar="DELTA", help="And with this one on delta.", rich_help_panel="Budget"),
    ] = None,
    label: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT", help="What the ledger calls it: by default, the column.", rich_help_panel="Budget"
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing output.")] = False,
    print_json: Json = False,
) -> None:
    """Build the private index of a column. This spends epsilon.

    Adding or removing one row changes the probability of any index by a factor
    of at most e^epsilon: smaller is more private, and widens lookups. Beta bounds
    the chance that any lookup at all loses a row. The index may be published;
    lookups cost nothing more, and what is refused costs nothing.

    \b
    scumble index fit people.csv --column salary --domain int:0:200000 \\
        --epsilon 1 --ledger budget.ledger --limit 2 -o salary.scumble

    \b
    Domains:
      int:0:1048575               whole numbers; int:0:1000:10 in steps of 10
      decimal:0:1000000:0.01      prices and the like, exact
      date:2000-01-01:2030-12-31  days
      timestamp:2020-01-01T00:00:00:2020-12-31T23:59:59:15min
                                  instants in bins: ns, us, ms, s, min, h, d
      float:0:1:0.001             floating-point numbers in bins
      category:["a","b","c"]      a public sorted list of strings
      keys:[1,5,9]                explicit keys: integers or strings, sorted
      string:["d","m","t"]        any strings, cut at public split points
    """
    price = price_of(epsilon, beta, rows_per_user, slack)
    public = parse_domain(domain)
    account, called = Account(ledger, limit, delta_limit), label or column or file.stem
    account.check(price, called)
    index = DPPLRIndex(
        max_bytes=max_bytes,
        max_segments=max_segments,
        max_error=max_error,
        mechanism=mechanism,
        slack=slack,
        alpha_s=alpha_s,
    )
    with drafted(output, force=force, beside=[file] if ledger is None else [file, ledger]) as draft:
        with working(f"reading {file.name}"):
            counts = count_keys(file, column, public)
        with account.open(price) as payer:
            budget = pay(payer, price, called)
            with working("building the index"):
                index.fit_counts(counts, domain=public, budget=budget, beta=price.beta, capacity=capacity)
            _publish(draft, encode(index.model))
            # Only now, with the file in its place: another process may hold the ledger.
            left = {} if ledger is None else remaining(payer)
    if print_json:
        about = None if ledger is None else {"path": str(ledger), **{name: float(left[name]) for name in left}}
        _print_json({**as_json(index, output), "ledger": about})
        return
    for line in as_lines(index, output):
        typer.echo(line)
    if left:
        typer.echo(f"  ledger    {ledger}: epsilon {written(left['remaining'])} of {written(left['limit'])} remaining")


def _publish(draft: Draft, data: bytes) -> None:
    try:
        draft.publish(data)
    except OSError as error:
        raise typer.Exit(say(spent_but_not_written(draft.target, data, error), BROKEN)) from error


@app.command()
def show(index_file: IndexFile, print_json: Json = False) -> None:
    """Say what an index is, and what a lookup reads. Costs no epsilon.

    \b
    scumble index show salary.scumble
    """
    index = DPPLRIndex.load(index_file)
    if print_json:
        _print_json(as_json(index, index_file))
        return
    for line in as_lines(index, index_file):
        typer.echo(line)


@app.command()
def lookup(
    index_file: IndexFile,
    at: Annotated[str | None, typer.Option(metavar="KEY", help="All rows with this key.")] = None,
    between: Annotated[
        tuple[str, str] | None,
        typer.Option(metavar="LOW HIGH", help="All rows with keys from LOW to HIGH, both included."),
    ] = None,
    print_json: Json = False,
) -> None:
    """Say which of the sorted rows hold a key or a key range. Costs no epsilon.

    Keys are written as in a csv file: 17, 12.50, 2020-12-31 or text. A range is
    clipped to the domain. Positions count from 0; stop is the first not to read.

    \b
    scumble index lookup salary.scumble --at 35000
    scumble index lookup salary.scumble --between 30000 40000 --json
    """
    if (at is None) == (between is None):
        raise InvalidParameter("a lookup is either --at or --between", hint="--between 30000 40000, for example")
    index = DPPLRIndex.load(index_file)
    low, high = between or (at or "", at or "")
    public = index.model.domain
    found = index.lookup(key_of(public, low, "the lower bound"), key_of(public, high, "the upper bound"))
    if print_json:
        start, stop = found
        _print_json({"start": start, "stop": stop, "rows": found.rows, "capacity": index.model.capacity})
        return
    for line in lookup_lines(found, index.model.capacity):
        typer.echo(line)


@app.command()
def plot(
    index_file: IndexFile,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="PICTURE", help="The picture: .png or .svg.")],
    print_json: Json = False,
) -> None:
    """Draw the segments, and the band that lookups read. Costs no epsilon.

    \b
    scumble index plot salary.scumble -o salary.svg
    """
    index = DPPLRIndex.load(index_file)
    with working("drawing"):
        index.plot(output)
    if print_json:
        _print_json({"path": str(output)})
    else:
        typer.echo(f"{output}: drawn")


app.command()(compare)


def _print_json(value: object) -> None:
    typer.echo(json.dumps(value))
