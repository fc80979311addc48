"""`scumble attack`: what a provider could try comes in by name, what it would learn goes out. On made-up data only.

No data of anybody's is read, no ledger touched: databases are made in a temporary folder and gone afterwards.
"""

import json
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from scumble.cli.database import Json
from scumble.cli.progress import working
from scumble.cli.refusals import BROKEN
from scumble.errors import InvalidParameter
from scumble.index.plot import SUFFIXES
from scumble.privacy.amounts import exact

if TYPE_CHECKING:
    from scumble.lab.attack.report import Report

__all__ = ["attack"]

LEAST, MOST = exact("0.01", "epsilon"), exact(2, "epsilon")


class Name(StrEnum):
    """The attacks."""

    RECONSTRUCTION = "reconstruction"
    SINGLE_RECORD = "single-record"
    VOLUME = "volume"
    AVERAGING = "averaging"
    STORAGE = "storage"
    ALL = "all"


def attack(
    which: Annotated[Name, typer.Argument(metavar="ATTACK", help="reconstruction, single-record, volume, ...")] = (
        Name.ALL
    ),
    *,
    epsilon: Annotated[str, typer.Option(metavar="NUMBER", help="Of the indexes under attack: 0.01 to 2.")] = "1",
    rows: Annotated[
        int | None, typer.Option(metavar="N", min=2000, max=10_000_000, help="How many rows to make up.")
    ] = None,
    queries: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=500, max=10_000_000, help="How many queries the attacker sees, or games it plays."
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="PICTURE", help="Draw what came out: .png or .svg.")
    ] = None,
    print_json: Json = False,
) -> None:
    """Attack made-up databases as their provider could, and see what it learns.

    reconstruction, single-record, volume, averaging, storage, or all of them.
    Each is tried on something that leaks too, where it must win: the exact index,
    or a weakness planted for the purpose. No data of yours is touched.

    \b
    scumble attack reconstruction --epsilon 1 -o attack.png
    scumble attack storage
    """
    cost = exact(epsilon, "epsilon")
    if not LEAST <= cost <= MOST:
        raise InvalidParameter(
            "epsilon must lie between 0.01 and 2", hint="indexes of ten times as much are attacked as well"
        )
    if output is not None and output.suffix.lower() not in SUFFIXES:
        raise InvalidParameter("a picture is a .png or .svg file", hint="attack.png, for example")
    if output is not None and which is Name.STORAGE:
        raise InvalidParameter("there is nothing to draw of this attack", hint="leave the picture out")
    reports = []
    chosen = [name for name in Name if which in (name, Name.ALL) and name is not Name.ALL]
    sizes = {name: value for name, value in (("rows", rows), ("queries", queries)) if value is not None}
    for name in chosen:
        with working(f"attack: {name.value}"):
            reports.append(_attack(name)(epsilon, sizes))
        if not print_json:
            typer.echo("\n".join([*reports[-1].lines(), ""]))
    if output is not None:
        from scumble.lab.attack.picture import draw

        with working("drawing"):
            draw(reports, output)
        if not print_json:
            typer.echo(f"{output}: drawn")
    if print_json:
        picture = None if output is None else str(output)
        typer.echo(json.dumps({"picture": picture, "attacks": [report.to_json() for report in reports]}))
    if not all(report.as_expected for report in reports):
        typer.echo("error: an attack did not end as it should", err=True)
        raise typer.Exit(BROKEN)


def _attack(name: Name) -> Callable[[str, dict[str, int]], "Report"]:
    """The attack by name, with epsilon, and as many rows and queries as were asked for."""
    from scumble.lab.attack import averaging, reconstruction, single_record, storage, volume

    match name:
        case Name.RECONSTRUCTION:
            return lambda epsilon, sizes: reconstruction.attack(epsilon, **sizes)
        case Name.SINGLE_RECORD:
            return lambda epsilon, sizes: single_record.attack(epsilon, **sizes)
        case Name.VOLUME:
            return lambda epsilon, sizes: volume.attack(epsilon, **sizes)
        case Name.AVERAGING:
            return lambda epsilon, sizes: averaging.attack(epsilon, **sizes)
        case _:
            return lambda epsilon, sizes: storage.attack()
