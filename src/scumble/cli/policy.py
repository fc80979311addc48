"""`scumble policy`: show and set what a database's owner asks of the enclaves that may have its key.

The terms are public. An owner signs them; an analyst can show them, and check that they are the owner's.
"""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from scumble.attestation.policy_document import SignedPolicy, policy_fields, read_policy
from scumble.cli.database import Json, Key, Target, at_service, opened
from scumble.cli.terminal import print_result
from scumble.errors import FileError, NotFound
from scumble.owner.remote.address import is_address

__all__ = ["app"]

app = typer.Typer(rich_markup_mode="rich")


@app.callback(invoke_without_command=True)
def _group(context: typer.Context) -> None:
    """What an enclave must prove before it gets a database's key.

    \b
    scumble policy show scumble://host:7300/clinic
    """
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def show(
    target: Target,
    key: Key = None,
    signed: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the signed document to FILE, for analysts.", show_default=False),
    ] = None,
    print_json: Json = False,
) -> None:
    """Show a database's policy: the terms as a TOML file has them, its number, and when it was signed.

    An analyst whose client knows an older policy, which the provider's new
    enclaves do not meet, needs the signed document: --policy FILE takes it.

    \b
    scumble policy show scumble://host:7300/clinic > clinic.toml
    scumble policy show scumble://host:7300/clinic --signed clinic.signed
    """
    with opened(target, key) as database:
        policy = database.policy
    if policy is None:
        raise NotFound("this database has no policy", hint="set one with `scumble policy set`")
    if signed is not None:
        try:
            signed.write_bytes(policy.to_bytes())
        except OSError as error:
            raise FileError(f"{signed} cannot be written: {error.strerror}", hint="name another file") from error
    _print(target, policy, as_json=print_json)


def set_policy(
    target: Target,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The terms, a TOML file.", show_default=False)],
    lower: Annotated[
        bool, typer.Option("--lower", help="Accept more than the policy before: without it that is refused.")
    ] = False,
    key: Key = None,
    print_json: Json = False,
) -> None:
    """Sign the terms in a file, and put them in force. Only the owner can.

    Clients hold every enclave against them, and enclaves each other before one
    hands the database's key to another. The enclave at the service has to meet
    them. What they would accept beyond the policy before is listed, and refused
    without --lower.

    \b
    scumble policy set scumble://host:7300/clinic clinic.toml
    """
    terms = read_policy(file)
    replacing: dict[str, Any] = {"policy": terms, "replaces_policy": True, "lowers_policy": lower}
    connecting = replacing if is_address(target) else {}
    with opened(target, key, **connecting) as database:  # the enclaves there may not meet the old terms any more
        policy = database.set_policy(terms, lower=lower)
    _print(target, policy, as_json=print_json)


def _print(target: str, policy: SignedPolicy, *, as_json: bool) -> None:
    terms = policy_fields(policy.terms)
    when = datetime.fromtimestamp(policy.not_before, UTC).isoformat()
    about = {"database": target, "serial": policy.serial, "signed_at": when, "terms": terms}
    print_result(about, [f"# {target}: policy {policy.serial}, signed {when}", *_toml(terms)], as_json=as_json)


def _toml(terms: dict[str, Any]) -> list[str]:
    """The terms as the lines of a TOML file; tables come last."""
    plain = [f"{name} = {_value(value)}" for name, value in terms.items() if not isinstance(value, dict)]
    tables = [(name, value) for name, value in terms.items() if isinstance(value, dict) and name != "floors"]
    tables += [(f"floors.{product}", value) for product, value in terms.get("floors", {}).items()]
    for name, value in tables:
        plain += ["", f"[{name}]", *(f"{part} = {number}" for part, number in value.items())]
    return plain


def _value(value: Any) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(f'"{each}"' for each in value) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)


app.command("show")(at_service(show, analysts=True))
app.command("set")(at_service(set_policy, policy=False))
