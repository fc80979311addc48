"""`scumble shell`: run statements and dot commands, typed or through a pipe, one after the other.

An error does not end it. Everything in it is the owner's own.
"""

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from scumble import opening
from scumble.cli.database import Key, Target, asking, check_there, service_options
from scumble.cli.query import explained_for, result_lines, stats_line
from scumble.cli.statements import statements
from scumble.cli.tables import table_lines
from scumble.cli.terminal import INTERRUPTED, REFUSED, count, report
from scumble.cli.transcript import exchange_lines, public_names
from scumble.errors import InvalidParameter
from scumble.owner.database import Database
from scumble.owner.remote.address import is_address
from scumble.provider.front import Provider

__all__ = ["shell"]

SHOWN_EXCHANGES = 5
_HELP = """\
SELECT ...;           a query, on as many lines as it needs: ; ends it
INSERT, UPDATE, ...;  a change, which others see at once
BEGIN; ... COMMIT;    changes that others see together, or after ROLLBACK; never
.tables               the tables
.schema [TABLE]       their columns, types, indexes and capacity: all public
.explain SELECT ...   what a statement would do, and what the provider would see
.ledger               what was spent, and what remains
.transcript           what the provider saw last
.timer on|off         show how long a query took and how many pages it read
.help                 this list
.quit                 leave, as Ctrl-D does. Ctrl-C discards the line"""


def shell(
    target: Target,
    no_history: Annotated[
        bool, typer.Option("--no-history", help="Keep no history: it would contain the constants of your queries.")
    ] = False,
    print_json: Annotated[bool, typer.Option("--json", help="Print every answer as one line of JSON.")] = False,
    key: Key = None,
) -> None:
    """Run statements one after the other; .help lists the other commands.

    A terminal has history and completion (Tab). The history is kept in
    ~/.local/state/scumble/history, where only you can read it. It contains the
    constants of your queries: --no-history keeps none.

    It also reads statements from a pipe. The exit code is then 2 if any failed.
    What BEGIN has begun and nothing has committed is rolled back at the end.

    \b
    scumble shell clinic
    echo "SELECT count(*) FROM visits;" | scumble shell clinic
    """
    if not is_address(target):
        check_there(Path(target))
    asked, reach = asking(), service_options()
    typed = sys.stdin.isatty() and sys.stdout.isatty()
    session = _Shell(
        target, lambda: opening.open(target, key=key, passphrase=asked, **reach), print_json=print_json, timer=typed
    )
    try:
        if typed:
            tables = count(len(session.database.tables), "table")
            typer.echo(f"{target}: {tables}. .help lists the commands; .quit or Ctrl-D leaves.")
            from scumble.cli.prompt import typed_statements

            session.run(typed_statements(session.names, session.commands, session.prompt, history=not no_history))
            return
        if not session.run(statements(sys.stdin)):
            raise typer.Exit(REFUSED)
    finally:
        session.leave()


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
        """Run everything until the end or .quit; return whether nothing failed."""
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
                # The enclave may or may not have received the request: a new session starts its count anew.
                self.leave()
                self.database = self._reopen()
        return well

    def leave(self) -> None:
        """Close the database. What was not committed is rolled back, which is said."""
        if self.database.in_transaction:
            typer.echo("the transaction was not committed: it is rolled back", err=True)
        self.database.close()

    def prompt(self) -> str:
        return "scumble (transaction)> " if self.database.in_transaction else "scumble> "

    def names(self) -> Iterator[str]:
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
        explained = explained_for(self.database, text) if self._timer else None
        begun = time.perf_counter()
        result = self.database.execute(text)
        seconds = time.perf_counter() - begun
        for line in result_lines(result, self.database, as_json_line=self._print_json):
            typer.echo(line)
        if explained is not None:
            typer.echo(stats_line(explained, seconds), err=True)

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
            raise InvalidParameter("a transcript is kept where the folder is", hint="ask the provider for it")
        last = list(service.transcript.exchanges())[-SHOWN_EXCHANGES:]
        names = public_names(Path(self._target), set())
        for exchange in last:
            for line in exchange_lines(exchange, names):
                typer.echo(line)

    def _set_timer(self, text: str) -> None:
        if text not in ("on", "off"):
            raise InvalidParameter("the timer is on or off", hint=".timer on")
        self._timer = text == "on"
