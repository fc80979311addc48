"""Errors on their way out: an exception comes in, `error:` and `hint:` lines and an exit code go out.

Only texts that Scumble or the argument parser wrote are printed. Those of other libraries may hold keys from the data,
so of an error that nobody foresaw only the type and the place are told.
"""

import os
import traceback
from pathlib import Path

import typer

from scumble.errors import BudgetError, ScumbleError

__all__ = ["BROKEN", "INTERRUPTED", "OVER_BUDGET", "REFUSED", "report", "say"]

BROKEN, REFUSED, OVER_BUDGET, INTERRUPTED = 1, 2, 3, 130


def report(error: Exception) -> int:
    """Print an error to stderr and return the exit code it stands for."""
    match error:
        case BudgetError():
            return say(error, OVER_BUDGET)
        case ScumbleError():
            return say(error, REFUSED)
        case typer.Abort() | RuntimeError(args=("Query interrupted",)):  # the latter is DuckDB's word for Ctrl-C
            return INTERRUPTED
        case MemoryError():
            return say(ScumbleError("there is not enough memory", hint="a coarser domain needs less"), BROKEN)
    if hasattr(error, "format_message"):  # the argument parser's own, whose type typer does not export
        where = getattr(getattr(error, "ctx", None), "command_path", "scumble")
        return say(ScumbleError(error.format_message().rstrip("."), hint=f"see {where} --help"), REFUSED)
    if os.environ.get("SCUMBLE_DEBUG"):
        raise error
    return say(_unforeseen(error), BROKEN)


def say(error: ScumbleError, code: int) -> int:
    """Print an error of ours, and return the code."""
    typer.echo(f"error: {error.message}", err=True)
    if error.hint is not None:
        typer.echo(f"hint: {error.hint}", err=True)
    return code


def _unforeseen(error: Exception) -> ScumbleError:
    place = traceback.extract_tb(error.__traceback__)[-1]
    return ScumbleError(
        f"this should not happen: {type(error).__name__} in {Path(place.filename).name}, line {place.lineno}",
        hint="please report it; SCUMBLE_DEBUG=1 shows all of it, which may include keys from the data",
    )
