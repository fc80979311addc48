"""The command line: arguments come in, text or JSON goes out, and an exit code.

0 done; 2 refused, and nothing was spent or written; 3 the ledger refuses; 1 something broke on the way; 130 Ctrl-C. It
is the owner's tool, and still no key from the data is ever printed but in an answer: errors name rows, never what is in
them.
"""

import sys
from collections.abc import Callable, Sequence
from typing import Annotated

import typer

from scumble import __version__
from scumble.cli import index, ledger
from scumble.cli.attack import attack
from scumble.cli.attest import attest
from scumble.cli.audit import audit
from scumble.cli.backup import backup
from scumble.cli.check import check
from scumble.cli.drop import drop
from scumble.cli.gateway import gateway
from scumble.cli.grant import grant
from scumble.cli.grants import grants
from scumble.cli.identity import identity
from scumble.cli.init import init
from scumble.cli.load import load
from scumble.cli.query import explain, query
from scumble.cli.reaching import reaching
from scumble.cli.refusals import report
from scumble.cli.rekey import passphrase, rekey
from scumble.cli.restore import restore
from scumble.cli.revoke import revoke
from scumble.cli.serve import serve, tenant
from scumble.cli.shell import shell
from scumble.cli.tables import tables
from scumble.cli.transcript import transcript

__all__ = ["app", "main"]

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,  # they show local variables, and so keys
    rich_markup_mode="rich",
)
_PANELS: dict[str, list[Callable[..., None]]] = {
    "The database": [init, load, query, explain, shell, tables],
    "Its care": [check, drop, rekey, passphrase, backup, restore],
    "Others' rights": [identity, grant, revoke, grants],
    "At a service": [serve, tenant, attest, gateway],
    "Its privacy": [transcript, attack, audit],
}
_LOCAL: set[Callable[..., None]] = {
    passphrase,
    backup,
    restore,
    identity,
    serve,
    tenant,
    gateway,
    transcript,
    attack,
    audit,
}
_SHARED: set[Callable[..., None]] = {load, query, explain, shell, tables, check}  # with analysts
for _panel, _commands in _PANELS.items():
    for _command in _commands:
        _shown = _command if _command in _LOCAL else reaching(_command, analysts=_command in _SHARED)
        app.command(rich_help_panel=_panel)(_shown)
app.add_typer(ledger.app, name="ledger", rich_help_panel="Its privacy")
app.add_typer(index.app, name="index", rich_help_panel="The index by itself")


@app.callback(invoke_without_command=True)
def _top(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """An encrypted database with private learned indexes.

    Tables lie sealed in a folder that you need not trust. An index tells which
    few pages a query needs, and shows no more of the data than the epsilon that
    you chose, paid once, at loading. Queries cost nothing; answers are exact.

    \b
    scumble init clinic
    scumble load clinic visits visits.csv \\
        --index "amount decimal:0:100000:0.01 epsilon=0.5"
    scumble query clinic "SELECT count(*) FROM visits WHERE amount > 99"
    scumble transcript clinic

    \b
    The index by itself:
    scumble index fit people.csv --column salary --domain int:0:200000 \\
        --epsilon 1 -o salary.scumble
    scumble index lookup salary.scumble --between 30000 40000
    """
    if version:
        typer.echo(f"scumble {__version__}")
    elif context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; without arguments, those of the process."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    try:
        code = app(words, prog_name="scumble", standalone_mode=False)
    except Exception as error:
        return report(error)
    return code if isinstance(code, int) else 0
