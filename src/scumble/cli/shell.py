"""`scumble shell`: statements and dot commands come in, typed or through a pipe; answers go out.

An error does not end it. Everything in it is the owner's own.
"""

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from scumble import opening
from scumble.cli.answers import as_json, as_table
from scumble.cli.database import Key, Target, asking, check_there
from scumble.cli.describe import count
from scumble.cli.query import stats_line
from scumble.cli.reaching import connecting
from scumble.cli.refusals import INTERRUPTED, REFUSED, report
from scumble.cli.statements import units
from scumble.cli.tables import table_lines
from scumble.cli.transcript import exchange_lines, public_names
from scumble.errors import InvalidParameter
from scumble.owner.database import Database
from scumble.owner.remote.address import is_address
from scumble.provider.front import Provider

__all__ = ["shell"]

SHOWN_EXCHANGES = 5
_HELP = """\
SELECT ...;           a query, on as many lines as it needs: ; ends it
.tables               the tables
.schema [TABLE]       what is public of them: columns, types, indexes, capacity
.explain SELECT ...   what a query would read, and what the provider would see
.ledger               what was spent, and what remains
.transcript           what the provider saw last
.timer on|off         say how long a query took and how many pages it read
.help                 this
.quit                 the end; so is Ctrl-D. Ctrl-C forgets the line"""


def shell(
    target: Target,
    no_history: Annotated[
        bool, typer.Option("--no-history", help="Keep no history: it would hold the constants of your queries.")
    ] = False,
    print_json: Annotated[bool, typer.Option("--json", help="Print every answer as one line of JSON.")] = False,
    key: Key = None,
) -> None:
    """Ask queries one after the other; .help says what else there is.

    On a terminal with history and completion (Tab). The history is kept in
    ~/.local/state/scumble/history, where only you can read it, and it holds the
    constants of your queries: --no-history keeps none.

    Through a pipe it works as well. It then ends with code 2 if anything failed.

    \b
    scumble shell clinic
    echo "SELECT count(*) FROM visits;" | scumble shell clinic
    """
    if not is_address(target):
        check_there(Path(target))
    asked, reach = asking(), connecting()
    typed = sys.stdin.isatty() and sys.stdout.isatty()
    session = _Shell(
        target, lambda: opening.open(target, key=key, passphrase=asked, **reach), print_json=print_json, timer=typed
    )
    try:
        if typed:
            tables = count(len(session.database.tables), "table")
            typer.echo(f"{target}: {tables}. .help says what there is; .quit or Ctrl-D ends.")
            from scumble.cli.terminal import typed_units

            session.run(typed_units(session.names, session.commands, history=not no_history))
            return
        if not session.run(units(sys.stdin)):
            raise typer.Exit(REFUSED)
    finally:
        session.database.close()


class _Shell:
    def __init__(self, target: str, reopen: Callable[[], Database], *, print_json: bool, timer: bool) -> None:
        self.database = reopen()
        self._target, self._reopen, self._print_json, self._timer = target, reopen, print_json, timer
        self.commands: dict[str, Callable[[str], None]] = {
            ".tables": self._tables,
            ".schema": self._schema,
            ".explain": lambda sql: typer.echo(str(self.database.explain(sql.rstrip("; ")))),
            ".ledger": lambda _: typer.echo(str(self.database.ledger)),
            ".transcript": self._transcript,
            ".timer": self._set_timer,
            ".help": lambda _: typer.echo(_HELP),
        }

    def run(self, entered: Iterator[str]) -> bool:
        """Do one after the other, until the end or .quit; whether all went well."""
        well = True
        for text in entered:
            if text.rstrip(" ;") in (".quit", ".exit"):
                break
            try:
                self._do(text)
            except Exception as error:
                if report(error) == INTERRUPTED:
                    typer.echo("interrupted", err=True)
                well = False
            except KeyboardInterrupt:
                typer.echo("interrupted", err=True)
                well = False
                # The enclave may or may not have got the request: only a new session counts from the start.
                self.database.close()
                self.database = self._reopen()
        return well

    def names(self) -> Iterator[str]:
        """What can be completed."""
        for table in self.database.tables:
            yield table.name
            yield from (column.name for column in table.schema)

    def _do(self, text: str) -> None:
        if text.startswith("."):
            name, _, rest = text.partition(" ")
            if name.rstrip(";") not in self.commands:
                raise InvalidParameter(f"there is no command {name}", hint=".help lists them")
            self.commands[name.rstrip(";")](rest.strip())
            return
        begun = time.perf_counter()
        result = self.database.sql(text)
        seconds = time.perf_counter() - begun
        for line in [as_json(result)] if self._print_json else as_table(result):
            typer.echo(line)
        if self._timer:
            typer.echo(stats_line(self.database.explain(text), seconds), err=True)

    def _tables(self, _: str) -> None:
        for table in self.database.tables:
            typer.echo(table.name)

    def _schema(self, name: str) -> None:
        name = name.rstrip("; ")
        for table in (self.database.table(name),) if name else self.database.tables:
            for line in table_lines(table):
                typer.echo(line)

    def _transcript(self, _: str) -> None:
        service = self.database.service
        if not isinstance(service, Provider):
            raise InvalidParameter("this provider shows no transcript", hint="ask whoever keeps it")
        last = list(service.transcript.exchanges())[-SHOWN_EXCHANGES:]
        names = public_names(Path(self._target), set())
        for exchange in last:
            for line in exchange_lines(exchange, names):
                typer.echo(line)

    def _set_timer(self, text: str) -> None:
        if text not in ("on", "off"):
            raise InvalidParameter("the timer is on or off", hint=".timer on")
        self._timer = text == "on"
