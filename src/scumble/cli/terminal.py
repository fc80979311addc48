"""What every command writes: its result as text or JSON, errors with a hint, and progress.

Errors go to stderr as `error:` and `hint:` lines. Only texts that Scumble or the argument parser wrote are printed.
Those of other libraries may quote keys from the data, so an unforeseen error shows only its type and place.
"""

import json
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Timer

import typer

from scumble.errors import BudgetError, ScumbleError, Unfinished, Unwitnessed

__all__ = ["BROKEN", "INTERRUPTED", "REFUSED", "at", "bar", "count", "print_result", "report", "say", "working"]

BROKEN, REFUSED, OVER_BUDGET, INTERRUPTED = 1, 2, 3, 130
_PATIENCE_SECONDS = 0.5


def count(number: int, noun: str) -> str:
    """Return a number of things in words: "1 row", "1,200 rows"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def at(host: str, port: int) -> str:
    """Return a host and a port as addresses have them: IPv6 stands in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def print_result(about: object, lines: Iterable[str], *, as_json: bool, err: bool = False) -> None:
    """Print what a command found out: lines for people, or `about` as JSON on one line."""
    for line in [json.dumps(about)] if as_json else lines:
        typer.echo(line, err=err)


def report(error: Exception) -> int:
    """Print an error to stderr and return its exit code."""
    match error:
        case BudgetError():
            return say(error, OVER_BUDGET)
        case ScumbleError():
            changed = isinstance(error, Unfinished) or (isinstance(error, Unwitnessed) and error.stored)
            return say(error, BROKEN if changed else REFUSED)
        case typer.Abort() | RuntimeError(args=("Query interrupted",)):  # the latter is how DuckDB reports Ctrl-C
            return INTERRUPTED
        case MemoryError():
            return say(ScumbleError("there is not enough memory", hint="a coarser domain needs less"), BROKEN)
    if hasattr(error, "format_message"):  # the argument parser's error, whose type typer does not export
        where = getattr(getattr(error, "ctx", None), "command_path", "scumble")
        what = error.format_message().rstrip(".").replace(": Value error, ", ": ")
        return say(ScumbleError(what, hint=f"see {where} --help"), REFUSED)
    if os.environ.get("SCUMBLE_DEBUG"):
        raise error
    return say(_unforeseen(error), BROKEN)


def say(error: ScumbleError, code: int) -> int:
    """Print an error of Scumble's, and return `code`."""
    typer.echo(f"error: {error.message}", err=True)
    if error.hint is not None:
        typer.echo(f"hint: {error.hint}", err=True)
    return code


def _unforeseen(error: Exception) -> ScumbleError:
    place = traceback.extract_tb(error.__traceback__)[-1]
    return ScumbleError(
        f"this should not happen: {type(error).__name__} in {Path(place.filename).name}, line {place.lineno}",
        hint="please report it; SCUMBLE_DEBUG=1 shows the whole error, which may include keys from the data",
    )


@contextmanager
def working(what: str) -> Iterator[None]:
    """Show `what` with a spinner while the block runs, if stderr is a terminal and the block takes long."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console  # slow to import

    spinner = Console(stderr=True).status(what)
    timer = Timer(_PATIENCE_SECONDS, spinner.start)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        spinner.stop()


@contextmanager
def bar(unit: str) -> Iterator[Callable[[str, int, int | None], None]]:
    """Yield a function to call with a description, how many are done, and of how many; it draws a bar on a terminal."""
    if not sys.stderr.isatty():
        yield lambda what, done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn(f"{{task.completed:,.0f}} {unit}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as drawn:
        task = drawn.add_task("starting", total=None)

        def show(what: str, done: int, total: int | None) -> None:
            # Building reports only once, at its start, with everything done.
            whole = None if total is None or done > total or what == "building" else total
            drawn.update(task, description=what, completed=done, total=whole)

        yield show
