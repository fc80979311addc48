"""`scumble gateway`: a configuration goes in; tools that speak Arrow Flight SQL are served until it is stopped.

It is the owner's, and holds the owner's keys. Its log on stderr has a line for each call, and never what was asked.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from scumble.cli.database import Json
from scumble.errors import InvalidParameter, ScumbleError

if TYPE_CHECKING:
    from scumble.gateway.server import Gateway

__all__ = ["gateway"]


def gateway(
    config: Annotated[
        Path | None, typer.Argument(metavar="CONFIG", help="The configuration, a TOML file.", show_default=False)
    ] = None,
    *,
    new_token: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Print a token for a client, and the line for CONFIG; serve nothing."),
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Read CONFIG, open its databases, and serve nothing.")] = False,
    print_json: Json = False,
) -> None:
    """Serve databases to tools that speak Arrow Flight SQL: ADBC, JDBC, pandas, polars.

    It runs on your side, with your keys: whoever has one of its tokens reads
    everything in its databases. The file has hashes of tokens, not the tokens.

    \b
    scumble gateway --new-token alice
    scumble gateway gateway.toml --check
    scumble gateway gateway.toml
    """
    if (config is None) == (new_token is None) or (check and config is None):
        raise InvalidParameter("the gateway needs a configuration", hint="name CONFIG, or --new-token by itself")
    if new_token is not None:
        typer.echo(_token(new_token, as_json=print_json))
    elif config is not None:
        _serve(config, check_only=check, as_json=print_json)


def _token(name: str, *, as_json: bool) -> str:
    from scumble.gateway.config import NAME
    from scumble.gateway.tokens import hash_of, new_token

    if NAME.fullmatch(name) is None:
        raise InvalidParameter("this is no name for a client", hint="a letter, then letters, digits, _ or -")
    token = new_token()
    line = f'{name} = "{hash_of(token)}"'
    if as_json:
        return json.dumps({"client": name, "token": token, "line": line})
    return f"token for {name}, shown this once: {token}\nunder [tokens] in the configuration:\n{line}"


def _serve(path: Path, *, check_only: bool, as_json: bool) -> None:
    from scumble.gateway.config import read_config

    config = read_config(path)
    try:
        from scumble.gateway.serving import check, serve
    except ImportError as error:
        raise ScumbleError(
            f"the gateway needs {error.name or 'protobuf'}", hint="pip install 'scumble[gateway]'"
        ) from error

    def ready(gateway: "Gateway") -> None:
        if as_json:
            typer.echo(json.dumps({"listening": gateway.location, "databases": sorted(config.databases)}))
        else:
            typer.echo(f"listening at {gateway.location} for {', '.join(sorted(config.databases))}")

    if not check_only:
        serve(config, ready)
        return
    tables = check(config)
    if as_json:
        typer.echo(json.dumps({"databases": tables}))
    else:
        for name, names in tables.items():
            typer.echo(f"{name}: {', '.join(names) or 'no tables'}")
