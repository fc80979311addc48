"""`scumble shell`: run statements and dot commands, typed or through a pipe, one after the other.

An error does not end it. Everything in it is the owner's own.
"""

import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from scumble import opening
from scumble.cli.database import Key, Target, asking, check_there, service_options
from scumble.cli.query import as_json, as_table, stats_line
from scumble.cli.tables import table_lines
from scumble.cli.terminal import INTERRUPTED, REFUSED, count, report
from scumble.cli.transcript import exchange_lines, public_names
from scumble.errors import InvalidParameter
from scumble.owner.database import Database
from scumble.owner.remote.address import is_address
from scumble.provider.front import Provider

__all__ = ["is_command", "shell", "split", "statements"]

SHOWN_EXCHANGES = 5
# Where a `;` does not end a statement: in strings, names and comments, even unfinished ones.
_PART = re.compile(
    r"'(?:[^']|'')*(?:'|\Z)|\"[^\"]*(?:\"|\Z)|--[^\n]*|/\*.*?(?:\*/|\Z)|\$\$.*?(?:\$\$|\Z)|;|.", re.DOTALL
)
_HELP = """\
SELECT ...;           a query, on as many lines as it needs: ; ends it
.tables               the tables
.schema [TABLE]       their columns, types, indexes and capacity: all public
.explain SELECT ...   what a query would read, and what the provider would see
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
    """Run queries one after the other; .help lists the other commands.

    A terminal has history and completion (Tab). The history is kept in
    ~/.local/state/scumble/history, where only you can read it. It contains the
    constants of your queries: --no-history keeps none.

    It also reads statements from a pipe. The exit code is then 2 if any failed.

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

            session.run(typed_statements(session.names, session.commands, history=not no_history))
            return
        if not session.run(statements(sys.stdin)):
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
                self.database.close()
                self.database = self._reopen()
        return well

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


def split(text: str) -> tuple[list[str], str]:
    """Return the complete statements of a text, without their `;`, and the text after the last one."""
    found, begin = [], 0
    for part in _PART.finditer(text):
        if part[0] == ";":
            found.append(text[begin : part.start()].strip())
            begin = part.end()
    return [statement for statement in found if not _is_blank(statement)], text[begin:]


def is_command(text: str) -> bool:
    """Return whether a text is a dot command, which ends with its line."""
    return text.lstrip().startswith(".")


def statements(lines: Iterable[str]) -> Iterator[str]:
    """Yield statements and dot commands from the lines of a script; the last statement needs no `;`."""
    rest = ""
    for line in lines:
        if _is_blank(rest) and is_command(line):
            rest = ""
            yield line.strip()
            continue
        complete, rest = split(rest + line)
        yield from complete
    if not _is_blank(rest):
        yield rest.strip()


def _is_blank(text: str) -> bool:
    """Return whether a text is only space and comments."""
    return all(part[0].isspace() or part[0].startswith(("--", "/*")) for part in _PART.finditer(text))
