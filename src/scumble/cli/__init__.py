"""The command line. To add a command, write its function in one of these modules and name it once in `_PANELS`.

Exit codes: 0 done; 2 refused, and nothing was spent or written; 3 refused by the ledger; 1 something broke half-way;
130 Ctrl-C. It is the owner's tool, but keys from the data are printed only in answers: errors name rows, not values.
"""

import sys
from collections.abc import Callable, Sequence
from typing import Annotated

import typer

from scumble import __version__
from scumble.cli import anchor, index, ledger, policy, witness
from scumble.cli.access import grant, grants, revoke
from scumble.cli.backup import backup, check, restore
from scumble.cli.database import at_service
from scumble.cli.insert import insert
from scumble.cli.keys import identity, init, passphrase, rekey, upgrade
from scumble.cli.lab import attack, audit
from scumble.cli.load import load
from scumble.cli.query import explain, query
from scumble.cli.service import attest, gateway, serve, tenant
from scumble.cli.shell import shell
from scumble.cli.stream import stream
from scumble.cli.suggest import suggest
from scumble.cli.tables import drop, tables
from scumble.cli.terminal import report
from scumble.cli.transcript import transcript
from scumble.cli.upkeep import compact, flush, vacuum

__all__ = ["app", "main"]

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,  # they show local variables, and so keys
    rich_markup_mode="rich",
)


def _shared(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command for owners and analysts, in a folder or at a service."""
    return at_service(command, analysts=True)


# Every command, in the order of the help. One that opens a database is wrapped: `at_service` for owners alone.
_PANELS: dict[str, list[Callable[..., None]]] = {
    "The database": [
        at_service(init),
        suggest,
        _shared(load),
        _shared(insert),
        _shared(stream),
        _shared(query),
        _shared(explain),
        _shared(shell),
        _shared(tables),
    ],
    "Maintenance": [
        _shared(check),
        at_service(drop),
        _shared(flush),
        _shared(compact),
        at_service(vacuum),
        at_service(rekey),
        at_service(upgrade),
        passphrase,
        backup,
        restore,
    ],
    "Access for others": [identity, at_service(grant), at_service(revoke), at_service(grants)],
    "At a service": [serve, tenant, at_service(attest), gateway],
    "Privacy": [transcript, attack, audit],
}
for _panel, _commands in _PANELS.items():
    for _command in _commands:
        app.command(rich_help_panel=_panel)(_command)
app.add_typer(anchor.app, name="anchor", rich_help_panel="Maintenance")
app.add_typer(witness.app, name="witness", rich_help_panel="At a service")
app.add_typer(policy.app, name="policy", rich_help_panel="At a service")
app.add_typer(ledger.app, name="ledger", rich_help_panel="Privacy")
app.add_typer(index.app, name="index", rich_help_panel="The index on its own")


@app.callback(invoke_without_command=True)
def _top(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
    research: Annotated[
        bool,
        typer.Option(
            "--research",
            help="Let tables have comparators as indexes: more code to trust, some lose rows. For comparisons only.",
        ),
    ] = False,
) -> None:
    """An encrypted database with private learned indexes.

    Tables are sealed in a folder that you need not trust. An index says which few
    pages a query needs, and reveals no more about the data than the epsilon you
    chose, paid once, at loading. Queries cost nothing; answers are exact.

    \b
    scumble init clinic
    scumble suggest visits.csv -o visits.schema
    scumble load clinic visits visits.csv --schema visits.schema \\
        --index "amount decimal:0:100000:0.01 epsilon=0.5"
    scumble query clinic "SELECT count(*) FROM visits WHERE amount > 99"
    scumble transcript clinic

    \b
    The index on its own:
    scumble index fit people.csv --column salary --domain int:0:200000 \\
        --epsilon 1 -o salary.scumble
    scumble index lookup salary.scumble --between 30000 40000
    """
    if research:
        from scumble.lab.research import enabled  # scipy takes its time

        context.with_resource(enabled())
    if version:
        typer.echo(f"scumble {__version__}")
    elif context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; `arguments` default to those of the process."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    try:
        code = app(words, prog_name="scumble", standalone_mode=False)
    except Exception as error:
        return report(error)
    return code if isinstance(code, int) else 0
