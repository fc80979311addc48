"""The command line: arguments come in, text or JSON goes out, and an exit code.

0 done; 2 refused, and nothing was spent or written; 3 the ledger refuses; 1 something broke on the way; 130 Ctrl-C. It
is the owner's tool, and still no key from the data is ever printed: errors name rows, never what is in them.
"""

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from scumble import __version__
from scumble.cli import index, ledger
from scumble.cli.refusals import report

__all__ = ["app", "main"]

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,  # they show local variables, and so keys
    rich_markup_mode="rich",
)
app.add_typer(index.app, name="index")
app.add_typer(ledger.app, name="ledger")


@app.callback(invoke_without_command=True)
def _top(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Private learned indexes: build one, look keys up, keep the budget.

    An index tells which few rows of a sorted column a key range needs, and is
    safe to publish: its privacy loss is the epsilon that you chose, paid once.
    Lookups cost nothing more.

    \b
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
