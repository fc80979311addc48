"""`scumble witness`: run a witness, and say which of them have to cosign the versions of a database.

Who runs a witness needs no key but the witness's own, and learns ids, version numbers, hashes and public keys.
"""

import re
from pathlib import Path
from typing import Annotated

import typer

from scumble.cli.database import Json, Key, Target, at_service, opened
from scumble.cli.terminal import at, print_result
from scumble.errors import InvalidParameter, NotFound
from scumble.owner.witnesses import Listed, check_place, lists_beside
from scumble.wire.grants import public_text
from scumble.witness.log import Witness

__all__ = ["app"]

app = typer.Typer(rich_markup_mode="rich")
_ID = re.compile("[0-9a-f]{40}|[0-9a-f]{32}")  # release 0.1 made the shorter ones
Need = Annotated[
    int | None,
    typer.Option(metavar="K", min=1, help="How many of the listed ones have to cosign.", show_default=False),
]
Place = Annotated[str, typer.Argument(metavar="PLACE", help="http://HOST:PORT, or its folder.", show_default=False)]


@app.callback(invoke_without_command=True)
def _group(context: typer.Context) -> None:
    """Have others remember which version is the newest.

    An anchor notices an old version on one device. Witnesses notice it for all:
    each cosigns (database, version, hash) only if that follows what it has seen.
    Run them where the provider is not: on a second device, at a colleague's.
    """
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command("serve")
def serve(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="What the witness remembers, and its key.", show_default=False)
    ],
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="Where to listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(metavar="P", min=0, max=65535, help="0 takes a free one.")] = 7400,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="ID", help="Serve this database only; may be repeated.", show_default=False),
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Make or read the key, print it, and stop.")] = False,
    print_json: Json = False,
) -> None:
    """Run a witness, until SIGTERM or Ctrl-C.

    The first start makes a key in FOLDER, whose public half is printed: owners and
    analysts add it with `scumble witness add`. Keep FOLDER; a witness that has lost
    it knows nothing of the past. Anyone may present versions, but only such as their
    owner, or an analyst whom the owner has certified, has signed.

    \b
    scumble witness serve /var/lib/witness --host 0.0.0.0
    """
    for each in only or ():
        if not _ID.fullmatch(each):
            raise InvalidParameter(
                f"{each!r} is no id of a database", hint="an owner finds it in the key file, under `database`"
            )
    witness = Witness(folder, frozenset(only or ()))
    try:
        if check:
            print_result({"witness": witness.text}, [witness.text], as_json=print_json)
            return
        from scumble.witness.server import serve as run

        def ready(taken: int) -> None:
            where = f"http://{at(host, taken)}"
            about = {"witness": witness.text, "listening": where}
            print_result(about, [f"witness {witness.text}, serving at {where}"], as_json=print_json)

        run(witness, host, port, ready)
    finally:
        witness.close()


def add(
    target: Target,
    place: Place,
    witness: Annotated[
        str | None,
        typer.Argument(
            metavar="PUBLICKEY",
            help="As `scumble witness serve` prints it; not needed for one in a folder.",
            show_default=False,
        ),
    ] = None,
    need: Need = None,
    key: Key = None,
    print_json: Json = False,
) -> None:
    """Have a witness cosign every version that you open or make.

    It is added if it answers, and if what it has seen agrees with what the service
    shows. Without --need the number stays as it is, or is 1. The list is yours: an
    analyst has another one.

    \b
    scumble witness add clinic http://witness.example:7400 scumble1... --need 2
    scumble witness add clinic /media/stick/witness
    """
    with opened(target, key) as database:
        listed = database.add_witness(place, witness, need)
    _print(target, listed, as_json=print_json)


app.command("add")(at_service(add, analysts=True))


def show(target: Target, key: Key = None, print_json: Json = False) -> None:
    """Show your witnesses, and what each has seen last.

    If two of them have seen versions that cannot both be of one history, this is an
    error that names both: somebody has shown you, or them, a fork.

    \b
    scumble witness list clinic
    """
    with opened(target, key) as database:
        listed, statements = database.witnesses()
    seen = {place: None if each is None else each.seen[1] for place, each in statements.items()}
    _print(target, listed, seen, as_json=print_json)


app.command("list")(at_service(show, analysts=True))


@app.command("remove")
def remove(
    key: Annotated[Path, typer.Argument(metavar="KEY", help="Your key file.", show_default=False)],
    place: Place,
    need: Need = None,
    print_json: Json = False,
) -> None:
    """Demand nothing more of a witness, in any list beside your key file.

    It works without the database, since that may be refused until the witness is
    back. What you demand is not lowered silently: say --need if too few are left.

    \b
    scumble witness remove clinic.key http://witness.example:7400 --need 1
    """
    gone, found = check_place(place), False
    for path in lists_beside(key):
        before = Listed.load(path)
        if gone in before.places:
            places = {each: witness for each, witness in before.places.items() if each != gone}
            Listed((need or before.need) if places else 0, places).save(path)
            found = True
    if not found:
        raise NotFound(f"there is no witness at {gone} in a list beside {key}", hint="see `scumble witness list`")
    print_result({"key": str(key), "removed": gone}, [f"{gone}: no longer a witness of yours"], as_json=print_json)


def _print(target: str, listed: Listed, seen: dict[str, int | None] | None = None, *, as_json: bool) -> None:
    witnesses = [
        {"place": place, "witness": public_text(witness), **({} if seen is None else {"version": seen[place]})}
        for place, witness in listed.places.items()
    ]
    lines = [f"{target}: {listed.need} of {len(witnesses)} witnesses have to cosign each version"]
    for each in witnesses:
        version = each.get("version", "")
        known = "" if seen is None else "  does not answer" if version is None else f"  has seen version {version}"
        lines.append(f"  {each['place']}  {each['witness']}{known}")
    about = {"database": target, "need": listed.need, "witnesses": witnesses}
    print_result(about, lines if witnesses else [f"{target}: no witnesses"], as_json=as_json)
