"""Options of every command that may reach a database at a service: which code to trust, and whether to do without.

They are added to a command's own where it is registered, and kept for the time of the command.
"""

import inspect
from collections.abc import Callable
from contextvars import ContextVar
from functools import wraps
from typing import Annotated, Any

import typer

__all__ = ["connecting", "reaching"]

Measurement = Annotated[
    str | None,
    typer.Option(
        metavar="HEX",
        help="At a service: the code to trust. By default the one that was there at first.",
        show_default=False,
    ),
]
Simulated = Annotated[
    bool,
    typer.Option(
        "--insecure-simulated-enclave",
        help="At a service: take evidence that proves nothing. Whoever runs it can then read everything.",
    ),
]

Owner = Annotated[
    str | None,
    typer.Option(
        metavar="PUBLICKEY",
        help="As an analyst: whose database it has to be. By default the one who was its owner at first.",
        show_default=False,
    ),
]

_WARNING = "warning: the enclave is simulated; whoever runs the service can read everything"
_OPTIONS: dict[str, tuple[Any, Any]] = {
    "measurement": (Measurement, None),
    "insecure_simulated_enclave": (Simulated, False),
    "owner": (Owner, None),
}
_given: ContextVar[dict[str, Any]] = ContextVar("given", default={})  # noqa: B039  never changed


def connecting(*, warned: bool = True) -> dict[str, Any]:
    """What the command was given of them, as `scumble.open` takes it."""
    given = _given.get()
    if warned and given.get("insecure_simulated_enclave"):
        typer.echo(_WARNING, err=True)
    return given


def reaching(command: Callable[..., None], *, analysts: bool = True) -> Callable[..., None]:
    """A command with these options besides its own; `analysts` may use it too, and say whose database it has to be."""
    options = {name: option for name, option in _OPTIONS.items() if analysts or name != "owner"}

    @wraps(command)
    def with_options(*arguments: Any, **named: Any) -> None:
        given = {name: named.pop(name) for name in options}
        token = _given.set({name: value for name, value in given.items() if value not in (None, False)})
        try:
            command(*arguments, **named)
        finally:
            _given.reset(token)

    signature = inspect.signature(command, eval_str=True)
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, (kind, default) in options.items()
    ]
    with_options.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[*signature.parameters.values(), *added]
    )
    with_options.__annotations__ = {
        **command.__annotations__,
        **{name: kind for name, (kind, _) in options.items()},
    }
    return with_options
