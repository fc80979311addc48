"""`scumble index`: fit the index of a column, show it, look up keys, draw it.

`fit` reads SECRET keys and writes a public file; `show`, `lookup` and `plot` read that file only. `fit` refuses what it
can before it spends the budget, and its output appears whole or not at all.
"""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from scumble.cli.columns import Beta, DataFile, KeyColumn, count_keys, key_of
from scumble.cli.database import Json
from scumble.cli.index_fit import Account, drafted, pay, publish, remaining
from scumble.cli.lab import compare
from scumble.cli.terminal import count, print_result, working
from scumble.errors import InvalidParameter
from scumble.index.contract import PositionRange, check_beta
from scumble.index.dp_plr import DPPLRIndex
from scumble.index.file import MECHANISMS, encode
from scumble.index.hint import Hint
from scumble.index.slack import SlackName
from scumble.owner.indexes import index_cost
from scumble.owner.ledger import Spend
from scumble.privacy.budget import show as written
from scumble.types import parse_domain

__all__ = ["app"]

app = typer.Typer(rich_markup_mode="rich")

if TYPE_CHECKING:
    MechanismName = str
else:
    MechanismName = Literal[tuple(MECHANISMS)]
IndexFile = Annotated[Path, typer.Argument(metavar="INDEX", help="An index file that `fit` wrote.", show_default=False)]


@app.callback(invoke_without_command=True)
def _group(context: typer.Context) -> None:
    """Private learned indexes: fit, show, lookup, plot, compare, tune."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command()
def fit(
    file: DataFile,
    *,
    column: KeyColumn = None,
    domain: Annotated[
        str,
        typer.Option(metavar="DOMAIN", help="Which keys there can be. It is public, so don't take it from the data."),
    ],
    epsilon: Annotated[
        str,
        typer.Option(metavar="NUMBER", help="The privacy loss to pay: 0.1 is strict, 1 usual, 10 lax; 1/3 works too."),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="INDEX", help="The index file to write.")],
    beta: Beta = "1e-6",
    rows_per_user: Annotated[
        int, typer.Option(metavar="K", min=1, help="The most rows one person has: epsilon covers all of them.")
    ] = 1,
    capacity: Annotated[
        int | None,
        typer.Option(metavar="ROWS", min=1, help="A public bound on the rows; by default one is chosen privately."),
    ] = None,
    max_bytes: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="At most this many bytes.", rich_help_panel="Size: one of")
    ] = None,
    max_segments: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="At most this many segments.", rich_help_panel="Size: one of")
    ] = None,
    max_error: Annotated[
        int | None,
        typer.Option(
            metavar="ROWS",
            min=1,
            help="The fewest segments that stay this close to the noisy curve.",
            rich_help_panel="Size: one of",
        ),
    ] = None,
    mechanism: Annotated[
        MechanismName, typer.Option(help="Ours, or the paper's.", rich_help_panel="Method")
    ] = "scumble",
    slack: Annotated[
        SlackName,
        typer.Option(
            help="How lookups are widened: as measured privately, as computed in the paper, or so that no row is "
            "ever lost, which costs a delta of about (1 + e^epsilon) beta.",
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
            help="The ledger that pays. Without one, no run knows what earlier runs spent.",
            rich_help_panel="Budget",
        ),
    ] = None,
    limit: Annotated[
        str | None,
        typer.Option(metavar="EPSILON", help="Create the ledger with this limit.", rich_help_panel="Budget"),
    ] = None,
    delta_limit: Annotated[
        str | None,
        typer.Option(metavar="DELTA", help="Create it with this limit on delta.", rich_help_panel="Budget"),
    ] = None,
    label: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT", help="The ledger's name for it: by default, the column.", rich_help_panel="Budget"
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing output.")] = False,
    print_json: Json = False,
) -> None:
    """Build the private index of a column. This spends epsilon.

    Adding or removing one row changes the probability of any index by a factor of
    at most e^epsilon: a smaller one is more private, and widens lookups. Beta
    bounds the chance that any lookup at all loses a row. The index may be
    published. Lookups cost nothing more, and what is refused costs nothing.

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
    cost_epsilon, cost_delta = index_cost(epsilon, beta, rows_per_user, slack, blocks=1)
    public = parse_domain(domain)
    account = Account(ledger, limit, delta_limit)
    cost = Spend(cost_epsilon, label or column or file.stem, cost_delta, rows_per_user)
    account.check(cost)
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
        with account.open(cost) as payer:
            budget = pay(payer, cost)
            with working("building the index"):
                index.fit_counts(counts, domain=public, budget=budget, beta=beta, capacity=capacity)
            publish(draft, encode(index.model))
            # Asked only now that the file is in place, because another process may hold the ledger.
            left = {} if ledger is None else remaining(payer)
    about = None if ledger is None else {"path": str(ledger), **{name: float(left[name]) for name in left}}
    lines = _as_lines(index, output)
    if left:
        lines += [f"  ledger    {ledger}: epsilon {written(left['remaining'])} of {written(left['limit'])} remaining"]
    print_result({**_as_json(index, output), "ledger": about}, lines, as_json=print_json)


@app.command()
def show(index_file: IndexFile, print_json: Json = False) -> None:
    """Say what an index is, and what a lookup reads. Costs no epsilon.

    \b
    scumble index show salary.scumble
    """
    index = DPPLRIndex.load(index_file)
    print_result(_as_json(index, index_file), _as_lines(index, index_file), as_json=print_json)


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
    clipped to the domain. Positions count from 0; the row at `stop` is not read.

    \b
    scumble index lookup salary.scumble --at 35000
    scumble index lookup salary.scumble --between 30000 40000 --json
    """
    if (at is None) == (between is None):
        raise InvalidParameter("a lookup takes either --at or --between", hint="--between 30000 40000, for example")
    index = DPPLRIndex.load(index_file)
    low, high = between or (at or "", at or "")
    public = index.model.domain
    found = index.lookup(key_of(public, low, "the lower bound"), key_of(public, high, "the upper bound"))
    capacity = index.model.capacity
    about = {"start": found.start, "stop": found.stop, "rows": found.rows, "capacity": capacity}
    print_result(about, _lookup_lines(found, capacity), as_json=print_json)


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
    print_result({"path": str(output)}, [f"{output}: drawn"], as_json=print_json)


app.command()(compare)


@app.command()
def tune(
    *,
    hint: Annotated[Path, typer.Option(metavar="FILE", help="PUBLIC data: csv, tsv, parquet, arrow, feather or npy.")],
    column: KeyColumn = None,
    domain: Annotated[str, typer.Option(metavar="DOMAIN", help="Which keys there can be; as for `fit`.")],
    epsilon: Annotated[str, typer.Option(metavar="NUMBER", help="What the index may cost; as for `fit`.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="HINT", help="The hint file to write.")],
    beta: Beta = "1e-6",
    rows: Annotated[
        int | None,
        typer.Option(metavar="N", min=1000, help="About how many rows the table has; by default half the public ones."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing output.")] = False,
    print_json: Json = False,
) -> None:
    """Make a hint of public data, and simulate what it is good for. Spends nothing.

    The data must be PUBLIC: the hint is stored where the provider sees it, and so is
    what is printed here. One half of the rows gives the hint, the other plays the
    table; the hint that is written is made of both. Sizes are tried first, then plans:
    how epsilon is divided, and how coarse the cells are. An index that is given the hint
    checks in private whether its keys follow it, and goes without if they don't.

    \b
    scumble index tune --hint census.csv --column salary --domain int:0:200000 \\
        --epsilon 1 -o salary.hint
    scumble load DB people people.csv --index "salary int:0:200000 epsilon=1 hint=salary.hint"
    """
    amount, _ = index_cost(epsilon, beta, 1, "measured")
    public = parse_domain(domain)
    from scumble.lab.tune import chosen, trials

    with drafted(output, force=force, beside=[hint]) as draft:
        with working(f"reading {hint.name}"):
            counts = count_keys(hint, column, public)
        with working("simulating"):
            tried = list(trials(counts, public, amount, check_beta(beta), rows))
            made = Hint.of_counts(counts)
        draft.write(made.file(public))
        draft.replace()
    best = chosen(tried)
    terms = f"{column or hint.stem} {domain} epsilon={epsilon}"
    terms += "" if best.max_bytes == 4096 else f" max_bytes={best.max_bytes}"
    terms += (f" hint={output}" if best.hinted else "") + (f" plan={best.plan}" if best.plan else "")
    about = {"path": str(output), "bytes": len(made.packed), "pieces": len(made.marks), "terms": terms}
    lines = [f"{output}: a hint of {count(len(made.marks), 'piece')} in {len(made.packed):,} bytes, for {public.label}"]
    for trial in tried:
        how = f"with the hint, followed in {trial.followed:.0%} of the builds" if trial.hinted else "without a hint"
        how += f", plan {trial.plan}" if trial.plan else ""
        lines.append(
            f"  {trial.max_bytes:>6,} bytes, {trial.blocks:>2} blocks: {trial.extra_rows:>8,.0f} rows too many {how}"
        )
    lines.append(f'  best here: --index "{terms}"')
    print_result({**about, "trials": [asdict(trial) for trial in tried]}, lines, as_json=print_json)


def _as_json(index: DPPLRIndex, path: Path) -> dict[str, object]:
    return {"path": str(path), **index.summary().as_dict()}


def _as_lines(index: DPPLRIndex, path: Path) -> list[str]:
    """Say what the index is, what epsilon bought, and what a lookup reads."""
    about, model = index.summary(), index.model
    delta = f", delta {written(model.delta)}" if model.delta else ""
    loses = (
        f"a row, in any lookup at all, with probability at most {written(model.beta)} (beta)"
        if model.beta
        else "never a row: the index is lossless"
    )
    width = model.domain.width
    shared = f"; too fine to index, so {width:,} neighbours share a rank" if width > 1 else ""
    return [
        f"{path}: {count(about.segments, 'segment')} for {count(about.domain_size, 'rank')} in {about.bytes:,} bytes",
        f"  domain    {about.domain}{shared}",
        f"  privacy   epsilon {written(model.epsilon)}{delta}; paid once, lookups cost nothing more",
        f"  a lookup  reads its answer and about {about.expected_overhead_rows:,} rows more "
        f"(it is widened by {about.slack_rows:,} at each end)",
        f"  it loses  {loses}",
        f"  capacity  {about.capacity:,} rows, dummies included: the row count stays private",
        f"  made by   mechanism {about.mechanism} ({count(about.levels, 'level')}), slack {about.slack}, "
        f"segments within {count(about.max_error, 'row')} of the noisy curve",
    ]


def _lookup_lines(found: PositionRange, capacity: int) -> list[str]:
    if found.rows == 0:
        return ["nothing to read: no row of the index can have such a key"]
    share = 100 * found.rows / capacity
    return [
        f"positions {found.start:,} to {found.stop - 1:,} of the sorted rows (start {found.start}, stop {found.stop})",
        f"{count(found.rows, 'row')}, {share:.3g} % of the capacity of {capacity:,}",
    ]
