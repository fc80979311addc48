"""`scumble anchor`: carry what this device knows of a database to another one, so that no old version passes there.

The text is signed by the key that exports it. It holds no secret: a version's number, and a hash.
"""

from pathlib import Path
from typing import Annotated

import typer

from scumble.cli.database import Json, Key, Target, asking, at_service, opened
from scumble.cli.terminal import print_result
from scumble.errors import Disputed, FileError, InvalidParameter
from scumble.owner.anchor import Anchor, database_in, read_anchor_text
from scumble.owner.keys import open_key
from scumble.wire.grants import parse_public_key

__all__ = ["app"]

app = typer.Typer(rich_markup_mode="rich")


@app.callback(invoke_without_command=True)
def _group(context: typer.Context) -> None:
    """Carry the newest version seen to another device.

    The anchor beside a key file remembers the newest version of the database, so
    that a provider who puts back an old one is noticed. A device without it has
    nothing to go by. Export it on one device, and import it on the other.
    """
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def export(
    target: Target,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write it to a file instead.", show_default=False),
    ] = None,
    key: Key = None,
    print_json: Json = False,
) -> None:
    """Print the newest version seen as a line of text, signed by your key.

    \b
    scumble anchor export clinic -o seen.txt
    """
    with opened(target, key) as database:
        text, version = database.anchor(), database.version
    lines = [text]
    if output is not None:
        try:
            output.write_text(f"{text}\n")
        except OSError as error:
            raise FileError(f"{output} cannot be written: {error.strerror}", hint="name another file") from error
        lines = [f"{output}: version {version}"]
    print_result({"database": target, "version": version, "anchor": text}, lines, as_json=print_json)


app.command("export")(at_service(export, analysts=True))


@app.command("import")
def import_(
    key: Annotated[Path, typer.Argument(metavar="KEY", help="The key file to remember it for.", show_default=False)],
    text: Annotated[
        str,
        typer.Argument(metavar="TEXT", help="What `scumble anchor export` printed, or its file.", show_default=False),
    ],
    owner: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="For an analyst: the owner's public key, if it is not known yet."),
    ] = None,
    print_json: Json = False,
) -> None:
    """Remember the version that another device, or the owner, has seen.

    It has to be signed by your own key or, for an analyst, by the owner's. What is
    remembered never goes back to an older version.

    \b
    scumble anchor import clinic.key seen.txt
    scumble anchor import clinic.key scumble-anchor-1:eyJkYXRhYmFzZSI6...
    """
    if not text.startswith("scumble-anchor"):
        try:
            text = Path(text).read_text()
        except (OSError, ValueError) as error:
            raise FileError("this is neither an anchor nor a file with one", hint="copy all of the text") from error
    database = database_in(text)
    held = open_key(key, database, asking())
    known = parse_public_key(owner).hex() if owner is not None else held.known_owner(key)
    trusted = [held.public_key(), *([] if known is None else [bytes.fromhex(known)])]
    anchor, path = read_anchor_text(text, database, trusted), held.anchor_path(key)
    before = Anchor.load(path, held.anchor_key())
    if before is not None and before.seen[:2] > anchor.seen[:2]:
        raise InvalidParameter(
            f"version {before.version} was seen here, which is later than {anchor.version}",
            hint="nothing was changed: export it here, and import it there",
        )
    if before is not None and before.seen[:2] == anchor.seen[:2] and before.manifest != anchor.manifest:
        raise Disputed(
            f"version {before.version} ({before.manifest[:16]}) that was seen here is another than version "
            f"{anchor.version} ({anchor.manifest[:16]}) of the text",
            statements=(before.seen, anchor.seen),
        )
    if before is None or before.seen[:2] < anchor.seen[:2]:
        (anchor if before is None else before.at(anchor)).save(path, held.anchor_key())
    about = {"database": database, "version": anchor.version, "anchor": str(path)}
    print_result(about, [f"{path}: remembers version {anchor.version}"], as_json=print_json)
