"""`scumble ledger`: create a budget ledger, and see what was spent. It is the owner's own bookkeeping.

`scumble ledger DB` is short for `scumble ledger show DB`.
"""

from pathlib import Path
from typing import Annotated

import typer
from typer.core import TyperGroup

from scumble.cli.database import Json, Key, check_there
from scumble.cli.terminal import print_result
from scumble.errors import FileError
from scumble.owner import key_file
from scumble.owner.composition import row_costs
from scumble.owner.ledger import Ledger
from scumble.privacy.budget import show as exactly

__all__ = ["app"]


class _ShowByDefault(TyperGroup):
    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        """Take a first word that is not a command as what to show."""
        if args and args[0] not in self.commands and args[0] != "--help":
            args = ["show", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(rich_markup_mode="rich", cls=_ShowByDefault)

File = Annotated[Path, typer.Argument(metavar="FILE", help="The ledger file.", show_default=False)]
_UNSETTLED = (
    "not settled: the load that drew it failed or is under way, or a restore took its batch away; later batches of "
    "that table pay on top of it, except the same rows on the same terms, which finish it"
)
Shown = Annotated[Path, typer.Argument(metavar="DB", help="A database's folder, or a ledger file.", show_default=False)]


@app.callback(invoke_without_command=True)
def _group(context: typer.Context) -> None:
    """The privacy budget: what was spent, and what remains.

    \b
    scumble ledger clinic
    """
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command()
def create(
    file: File,
    limit: Annotated[str, typer.Option(metavar="EPSILON", help="The most epsilon that can ever be spent.")],
    delta_limit: Annotated[
        str, typer.Option(metavar="DELTA", help="The most delta; only --slack lossless spends any.")
    ] = "0",
    as_json: Json = False,
) -> None:
    """Create a ledger; its limits can never be changed.

    A database has one already: this is for single indexes, as `scumble index fit`
    makes them. Indexes over the same people's rows should share a ledger: their
    epsilons add up, and the ledger refuses what would exceed the limit. Amounts
    are exact, even 0.1 and 1/3.

    \b
    scumble ledger create budget.ledger --limit 2
    """
    if file.exists():
        raise FileError(f"{file} exists already", hint=f"`scumble ledger show {file}` shows it")
    with Ledger.open(file, limit, delta_limit=delta_limit) as ledger:
        _print(ledger, as_json=as_json)


@app.command()
def show(database: Shown, key: Key = None, as_json: Json = False) -> None:
    """Show what was spent on what, and what remains. `scumble ledger DB` does the same.

    A spend is drawn once it paid for an index, open if a crash left it paid but
    unused, and cancelled if it was given back. The batches of a table add up. Of
    one whose loader has stated that its rows are new, only what it costs beyond
    the others counts. That holds for batches that are settled, that is, in the
    table. If a load fails or is killed after its noise was drawn, or a restore
    takes its batch away, its spends are unsettled, and every later batch of that
    table pays on top of them, since it may contain the same rows.

    It shows the file as it is. What was spent on another device is taken up from
    the newest version by the next load or grant, before anything is spent.

    \b
    scumble ledger clinic
    scumble ledger show budget.ledger
    """
    file = database
    if database.is_dir():
        check_there(database)
        file = key_file.ledger_path(key_file.key_path(database, key))
    if not file.exists():
        raise FileError(f"there is no ledger at {file}", hint=_hint(database, file))
    with Ledger.open(file) as ledger:
        _print(ledger, as_json=as_json)


def _hint(database: Path, file: Path) -> str:
    if database.is_dir():
        return "it belongs beside the key file: name that with --key, or restore the ledger"
    return f"make one with `scumble ledger create {file} --limit 2`"


def _print(ledger: Ledger, *, as_json: bool) -> None:
    lines = [str(ledger), *([_UNSETTLED] if ledger.unsettled() else [])]
    unsettled = {entry.id for entry in ledger.unsettled()}
    entries = [
        {
            "id": entry.id,
            "time": entry.time.isoformat(),
            "label": entry.label,
            "epsilon": float(entry.epsilon),
            "delta": float(entry.delta),
            "rows_per_user": entry.rows_per_user,
            "partition": entry.partition,
            "new_rows": entry.new_rows,
            "state": entry.state,
            "unsettled": entry.id in unsettled,
        }
        for entry in ledger.entries()
    ]
    amounts = {
        "limit": ledger.limit,
        "spent": ledger.spent(),
        "remaining": ledger.remaining(),
        "delta_limit": ledger.delta_limit,
        "delta_spent": ledger.spent_delta(),
        "delta_remaining": ledger.remaining_delta(),
    }
    numbers = {name: float(amount) for name, amount in amounts.items()}
    costs = row_costs(ledger.loads())
    lines += [
        f"{name}: a row costs {exactly(cost.presence)} to be there, {exactly(cost.change)} more for each change "
        "of an indexed column, and nothing for other changes"
        for name, cost in costs.items()
    ]
    rows = {name: {"presence": float(cost.presence), "change": float(cost.change)} for name, cost in costs.items()}
    about = {"path": str(ledger.path), **numbers, "rows": rows, "entries": entries}
    print_result(about, lines, as_json=as_json)
