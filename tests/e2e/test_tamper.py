"""Storage that lies: every file flipped, cut, deleted, swapped, put back. Right answers or a clear error, no third way.

What may be refused with something other than `Tampered`, and why:

    KeyRefused     database.json names another database: the key is that of another one, as far as anybody can tell
    NewerVersion   the format in database.json is a later one, before any key comes into play
    NotFound       there is no database.json: no database at all

A change to anything that a version of the database consists of, be it a page that no query reads, is found by `check`.
"""

import json
import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from databases import copy, counted, create, expected, files, load, reopen, rows, stored, sums

from scumble.enclave.manifests import open_manifest
from scumble.enclave.pages import DataKeys
from scumble.errors import KeyRefused, NewerVersion, NotFound, ScumbleError, Tampered
from scumble.owner.database import Database
from scumble.owner.keys import OwnerKey
from scumble.wire.catalog import TAG_BYTES, Run, Table
from scumble.wire.requests import CheckPages
from scumble.wire.storage import pack, unpack

COUNT = 20
ONE_INDEX = ("k int:0:127 epsilon=1",)
SMALL_BYTES = 100
SAMPLES = 3  # bytes of each larger file that `make test` flips

Outcome = tuple[type[ScumbleError] | None, type[ScumbleError] | None]
"""What the queries ended in, and what `check` did; None for what was right."""


@pytest.fixture(autouse=True)
def _no_hang() -> Iterator[None]:
    def stop(*_: Any) -> None:
        raise TimeoutError("it hangs")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(1200)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two tables of two batches each, and as they were three versions ago beside it."""
    home = tmp_path_factory.mktemp("origin")
    with create(home) as db:
        load(db, "a", COUNT, 1, capacity=32)
        load(db, "a", COUNT, 2, capacity=32)
    shutil.copytree(home, home / "older")
    with reopen(home) as db:
        load(db, "b", COUNT, 3, capacity=32, indexes=ONE_INDEX)
        load(db, "b", COUNT, 4, capacity=32, indexes=ONE_INDEX)
        _ask(db)
    return home


@pytest.fixture
def home(origin: Path, tmp_path: Path) -> Path:
    """A copy to spoil."""
    copy(origin, tmp_path / "home")
    shutil.rmtree(tmp_path / "home" / "older")
    return tmp_path / "home"


def _between(seeds: tuple[int, ...]) -> int:
    return sum(30 <= key <= 70 for seed in seeds for key in rows(COUNT, seed)["k"].to_pylist())


def _ask(db: Database) -> None:
    """Queries over every column, with every index and with none; all of them have to be right."""
    for table, seeds in (("a", (1, 2)), ("b", (3, 4))):
        assert stored(db, table) == expected(*seeds, count=COUNT)
        assert counted(db, table) == sums(*seeds, count=COUNT)
        query = f"SELECT count(*) FROM {table} WHERE k BETWEEN 30 AND 70"  # noqa: S608
        assert db.sql(query).fetchall() == [(_between(seeds),)]


def _outcome(home: Path) -> Outcome:
    try:
        db = reopen(home, first_opening=not os.path.lexists(home / "db.anchor"))
    except ScumbleError as error:
        return type(error), type(error)
    with db:
        found: list[type[ScumbleError] | None] = []
        for use in (_ask, Database.check):
            try:
                use(db)
                found.append(None)
            except ScumbleError as error:
                found.append(type(error))
        return found[0], found[1]


def _kind(name: str) -> str:
    if name in ("db.key", "db.ledger", "db.anchor") or name.startswith("db/transcript.log"):
        return name.removeprefix("db.").removeprefix("db/")
    return {"runs": name.rpartition(".")[2], "manifests": "manifest"}.get(name.split("/")[1], name.split("/")[1])


def _files_of(home: Path, *kinds: str) -> list[Path]:
    names = {*files(home), "db/lock", "db/transcript.log"}
    found = [home / name for name in sorted(names) if _kind(name) in kinds]
    assert found, f"no file of {kinds} to spoil"
    return found


def _some_of(home: Path, kind: str) -> list[Path]:
    """The first and the last file of a kind: those in between are of the same making."""
    paths = _files_of(home, kind)
    return paths if len(paths) < 3 else [paths[0], paths[-1]]


def _check_change(home: Path, path: Path) -> Outcome:
    """A file was changed: check that the outcome is one that its kind allows."""
    kind, outcome = _kind(str(path.relative_to(home))), _outcome(home)
    match kind:
        case "pages" | "tags" | "manifest":
            assert outcome[0] in (None, Tampered)
            assert outcome[1] is Tampered
        case "HEAD" | "anchor":
            assert outcome == (Tampered, Tampered)
        case "database.json":  # JSON forgives some changes, and what it says is the same
            assert set(outcome) <= {None, Tampered, KeyRefused, NewerVersion}
        case "lock" | "transcript.log":
            assert outcome == (None, None)
        case "key":
            assert set(outcome) <= {KeyRefused, NewerVersion}
    return outcome


def _spoil(home: Path, path: Path, contents: Iterator[bytes]) -> set[Outcome]:
    """Check that every such content in the place of the file's ends as its kind allows; what they ended in."""
    content, found = path.read_bytes(), set[Outcome]()
    for spoiled in contents:
        path.write_bytes(spoiled)
        found.add(_check_change(home, path))
    path.write_bytes(content)
    assert _outcome(home) == (None, None)
    return found


def _is_noticed(found: set[Outcome], kind: str) -> bool:
    """Whether all of these changes were noticed; of database.json some, and none of what nobody relies on."""
    noticed = found - {(None, None)}
    if kind in ("lock", "transcript.log"):
        return not noticed
    return bool(noticed) and (noticed == found or kind == "database.json")


def _flipped(content: bytes, step: int, bit: int) -> Iterator[bytes]:
    for at in range(0, len(content), step):
        yield content[:at] + bytes([content[at] ^ 1 << (bit + at) % 8]) + content[at + 1 :]


KINDS = ["pages", "tags", "manifest", "HEAD", "database.json", "lock", "transcript.log", "anchor", "key"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_byte_flipped(home: Path, kind: str) -> None:
    for path in _some_of(home, kind):
        content = path.read_bytes()
        step = 1 if len(content) <= SMALL_BYTES else len(content) // SAMPLES
        assert _is_noticed(_spoil(home, path, _flipped(content, step, 0)), kind)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["HEAD", "database.json", "anchor", "key"])
def test_every_byte_flipped(home: Path, kind: str) -> None:
    for path in _files_of(home, kind):
        assert _is_noticed(_spoil(home, path, _flipped(path.read_bytes(), 1, 3)), kind)


@pytest.mark.slow
def test_every_byte_of_every_page_flipped(home: Path) -> None:
    """As `check` reads them, page by page, in one session: the tags in memory are those of the manifest."""
    with reopen(home) as db:
        for table in db.tables:
            for run in table.runs:
                shapes = [table.slot_bytes(column, run.page_rows) for column in range(len(table.schema))]
                with (home / "db" / "runs" / f"{run.id}.pages").open("r+b", buffering=0) as file:
                    at = 0
                    for column, slot in enumerate(shapes):
                        for byte in range(slot * run.pages):
                            _flip(file.fileno(), at + byte)
                            with pytest.raises(Tampered):
                                db._versions.session.ask(CheckPages(run.id, column, byte // slot, 1))
                            _flip(file.fileno(), at + byte)
                        at += slot * run.pages
        assert db.check() > 0


@pytest.mark.slow
def test_every_byte_of_every_manifest_and_tag_flipped(home: Path) -> None:
    """As the enclave opens them: no key vouches for another manifest, no manifest for another tag."""
    key = OwnerKey.open(home / "db.key")
    keys = DataKeys(key.data_key(), key.database)
    for path in _files_of(home, "manifest"):
        open_manifest(keys, path.read_bytes())
        for flipped in _flipped(path.read_bytes(), 1, 3):
            with pytest.raises(Tampered):
                open_manifest(keys, flipped)
    with reopen(home) as db:
        runs = [run for table in db.tables for run in table.runs]
    hashes = {run.id: run.tag_hashes for run in runs}
    hashes |= {run.tally.id: (run.tally.tag_hash,) for run in runs if run.tally is not None}
    for path in _files_of(home, "tags"):
        content = path.read_bytes()
        size = len(content) // len(hashes[path.stem])
        parts = [content[at : at + size] for at in range(0, len(content), size)]
        assert [sha256(part).hexdigest() for part in parts] == list(hashes[path.stem])


def _flip(handle: int, at: int) -> None:
    os.pwrite(handle, bytes([os.pread(handle, 1, at)[0] ^ 1 << at % 8]), at)


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_cut_off_emptied_or_made_longer(home: Path, kind: str) -> None:
    for path in _some_of(home, kind):
        content = path.read_bytes()
        lengths = {0, 1, len(content) // 2, len(content) - TAG_BYTES, len(content) - 1}
        cut = [content[:length] for length in sorted(lengths) if 0 <= length < len(content)]
        assert _is_noticed(_spoil(home, path, iter([*cut, content + b"\0", content + content])), kind)


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_deleted_or_a_folder_in_its_place(home: Path, kind: str) -> None:
    for path in _some_of(home, kind):
        content, mode = path.read_bytes(), path.stat().st_mode
        path.unlink()
        if kind == "database.json":
            assert _outcome(home) == (NotFound, NotFound)
        elif kind == "anchor":  # the owner's own: who has no memory cannot be reminded
            assert _outcome(home) == (None, None)
            path.unlink()
        else:
            _check_change(home, path)
            path.unlink(missing_ok=True)
        path.mkdir()
        outcome = _outcome(home)
        assert outcome[0] is not None or kind in ("pages", "tags", "manifest", "lock", "transcript.log")
        path.rmdir()
        path.write_bytes(content)
        path.chmod(mode)
        assert _outcome(home) == (None, None)


@pytest.mark.parametrize("kind", ["pages", "tags", "manifest"])
def test_a_file_in_the_place_of_another_of_its_kind(home: Path, kind: str) -> None:
    paths = _files_of(home, kind)
    for one, other in [*pairwise(paths), (paths[0], paths[-1])]:
        first, second = one.read_bytes(), other.read_bytes()
        one.write_bytes(second)
        _check_change(home, one)
        other.write_bytes(first)  # and now both are swapped
        _check_change(home, one)
        one.write_bytes(first)
        other.write_bytes(second)
    assert _outcome(home) == (None, None)


# --- pages -----------------------------------------------------------------------------------------


class _Slot:
    """A sealed page in its file, and its tag in the other."""

    def __init__(self, home: Path, table: Table, run: Run, column: int, page: int) -> None:
        sizes = [table.slot_bytes(place, run.page_rows) for place in range(len(table.schema))]
        self.size = sizes[column]
        self.pages, self.tags = home / f"db/runs/{run.id}.pages", home / f"db/runs/{run.id}.tags"
        self.offset = sum(run.pages * size for size in sizes[:column]) + page * self.size
        self.tag_offset = TAG_BYTES * (column * run.pages + page)

    def read(self) -> tuple[bytes, bytes]:
        page = self.pages.read_bytes()[self.offset : self.offset + self.size]
        return page, self.tags.read_bytes()[self.tag_offset : self.tag_offset + TAG_BYTES]

    def write(self, page: bytes | None, tag: bytes | None) -> None:
        for path, offset, content in ((self.pages, self.offset, page), (self.tags, self.tag_offset, tag)):
            if content is not None:
                old = path.read_bytes()
                path.write_bytes(old[:offset] + content + old[offset + len(content) :])


def _slots(home: Path) -> list[tuple[tuple[str, str, int, int], _Slot]]:
    with reopen(home) as db:
        return [
            ((table.name, run.id, column, page), _Slot(home, table, run, column, page))
            for table in db.tables
            for run in table.runs
            for column in range(len(table.schema))
            for page in range(run.pages)
        ]


def _is_near(one: tuple[str, str, int, int], other: tuple[str, str, int, int], differs: str) -> bool:
    """Whether two pages are of the same place but for what differs."""
    place = {"page": 3, "column": 2, "run": 1, "table": 0}[differs]
    same = [a == b for a, b in zip(one, other, strict=True)]
    if differs == "table":
        return not same[0] and same[2] and same[3]
    return not same[place] and all(same[:place]) and all(same[place + 1 :])


def _check_swaps(home: Path, differs: str, what: str, every: int) -> int:
    """Swap every so many pages with one that differs in this; how many there were."""
    slots = _slots(home)
    tried = 0
    for place, (name, slot) in list(enumerate(slots))[::every]:
        others = [s for n, s in slots[place + 1 :] if s.size == slot.size and _is_near(name, n, differs)]
        for other in others[:1]:
            mine, its = slot.read(), other.read()
            take = (what != "tags", what != "pages")
            slot.write(*(content if taken else None for content, taken in zip(its, take, strict=True)))
            other.write(*(content if taken else None for content, taken in zip(mine, take, strict=True)))
            queries, check = _outcome(home)
            assert queries in (None, Tampered)
            assert check is Tampered
            slot.write(*mine)
            other.write(*its)
            tried += 1
    assert _outcome(home) == (None, None)
    return tried


DIFFER, SWAPPED = ("page", "column", "run", "table"), ("pages", "tags", "both")


@pytest.mark.parametrize("differs", DIFFER)
@pytest.mark.parametrize("what", SWAPPED)
def test_pages_swapped(home: Path, differs: str, what: str) -> None:
    assert _check_swaps(home, differs, what, 7) >= 4


@pytest.mark.slow
@pytest.mark.parametrize("differs", DIFFER)
@pytest.mark.parametrize("what", SWAPPED)
def test_all_pages_swapped(home: Path, differs: str, what: str) -> None:
    assert _check_swaps(home, differs, what, 1) >= 24


def test_a_page_of_zeros_or_of_its_own_tag(home: Path) -> None:
    for _, slot in _slots(home)[::12]:
        mine = slot.read()
        for page in (bytes(slot.size), mine[1] * (slot.size // TAG_BYTES) + mine[0][slot.size // 16 * 16 :]):
            slot.write(page, None)
            assert _outcome(home)[1] is Tampered
            slot.write(page, page[-TAG_BYTES:])
            assert _outcome(home)[1] is Tampered
        slot.write(*mine)


def test_a_page_spoiled_while_the_database_is_open(home: Path) -> None:
    slots = _slots(home)
    with reopen(home) as db:
        _ask(db)
        db.check()
        for _, slot in slots[::3]:
            page, tag = slot.read()
            with slot.pages.open("r+b") as file:
                file.seek(slot.offset + slot.size // 2)
                file.write(bytes([page[slot.size // 2] ^ 16]))
            with pytest.raises(Tampered):
                db.check()
            with suppress(Tampered):
                _ask(db)
            with slot.pages.open("r+b") as file:
                file.seek(slot.offset)
                file.write(page)
            assert tag
            _ask(db)


# --- versions --------------------------------------------------------------------------------------


def _put_head(home: Path, version: int, manifest: bytes) -> None:
    """Make a manifest the head, under the name that fits it."""
    name = f"{version:08d}-{sha256(manifest).hexdigest()[:16]}.manifest"
    (home / "db/manifests" / name).write_bytes(manifest)
    (home / "db/HEAD").write_text(f"{name}\n")


def _manifests(home: Path) -> list[Path]:
    return sorted((home / "db/manifests").iterdir())


def test_the_head_put_back(home: Path) -> None:
    for path in _manifests(home)[:-1]:
        (home / "db/HEAD").write_text(f"{path.name}\n")
        assert _outcome(home) == (Tampered, Tampered)
        with pytest.raises(Tampered), reopen(home) as db:
            load(db, "c")


def test_the_head_put_back_while_the_database_is_open(home: Path) -> None:
    with reopen(home) as db:
        _ask(db)
        (home / "db/HEAD").write_text(f"{_manifests(home)[-2].name}\n")
        for use in (_ask, Database.check, lambda db: load(db, "c"), lambda db: db.drop("a")):
            with pytest.raises(Tampered):
                use(db)
        assert {entry.state for entry in db.ledger.entries()} == {"drawn"}
    assert len(_manifests(home)) == 9


def test_the_folder_put_back(origin: Path, home: Path) -> None:
    shutil.rmtree(home / "db")
    shutil.copytree(origin / "older" / "db", home / "db")
    assert _outcome(home) == (Tampered, Tampered)
    # Only together with the owner's own memory is it the old database, whole.
    (home / "db.anchor").unlink()
    with reopen(home, first_opening=True) as db:
        assert stored(db, "a") == expected(1, 2, count=COUNT)
        assert [table.name for table in db.tables] == ["a"]
        db.check()


def test_a_restored_backup_can_be_accepted(origin: Path, home: Path) -> None:
    """`Database.accept` is what the owner of a restored backup needs; it has to be reachable."""
    shutil.rmtree(home / "db")
    shutil.copytree(origin / "older" / "db", home / "db")
    with pytest.raises(Tampered):
        reopen(home)
    with reopen(home, accept_restored=True) as db:
        assert stored(db, "a") == expected(1, 2, count=COUNT)
    with reopen(home) as db:
        load(db, "c")
        db.check()


def test_another_branch_of_the_same_history(origin: Path, home: Path, tmp_path: Path) -> None:
    """Versions that the owner's key made, after the same version, and yet not those that the owner has seen."""
    branch = tmp_path / "branch"
    shutil.copytree(origin / "older", branch)
    for more in range(3):
        with reopen(branch) as db:
            load(db, f"x{more}", COUNT, 7, capacity=32, indexes=ONE_INDEX)
            version = db.version
        spoiled = tmp_path / "spoiled"
        copy(home, spoiled)
        shutil.rmtree(spoiled / "db")
        shutil.copytree(branch / "db", spoiled / "db")
        assert _outcome(spoiled) == (Tampered, Tampered)
    assert version == 11


def test_another_database(home: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    with create(other) as db:
        for seed in (1, 2, 3, 4):
            load(db, "a", COUNT, seed, capacity=32)
    ours = (home / "db/database.json").read_bytes()
    spoiled = tmp_path / "spoiled"
    for taken in ("all", "all but its name", "manifests"):
        copy(home, spoiled)
        if taken == "manifests":
            shutil.rmtree(spoiled / "db/manifests")
            shutil.copytree(other / "db/manifests", spoiled / "db/manifests")
            shutil.copy(other / "db/HEAD", spoiled / "db/HEAD")
        else:
            shutil.rmtree(spoiled / "db")
            shutil.copytree(other / "db", spoiled / "db")
        if taken == "all":
            assert _outcome(spoiled) == (KeyRefused, KeyRefused)
        else:
            (spoiled / "db/database.json").write_bytes(ours)
            assert _outcome(spoiled) == (Tampered, Tampered)
            (spoiled / "db.anchor").unlink()
            assert _outcome(spoiled) == (Tampered, Tampered)


def _places(tree: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    return [at, *(place for key, value in inner for place in _places(value, (*at, key)))]


@pytest.mark.parametrize("anchored", [True, False])
def test_a_catalog_altered_under_a_name_that_fits(home: Path, anchored: bool) -> None:
    """The provider can hash, too: only the seal shows it."""
    head = _manifests(home)[-1]
    public, sealed, signed = unpack(head.read_bytes())
    for at in _places(json.loads(public))[1::3]:
        catalog = json.loads(public)
        inner = catalog
        for key in at[:-1]:
            inner = inner[key]
        value = inner[at[-1]]
        inner[at[-1]] = value + 1 if isinstance(value, int) else value[:-1] if isinstance(value, str | list) else None
        if catalog == json.loads(public):
            continue
        _put_head(home, 5, pack(json.dumps(catalog, separators=(",", ":")).encode(), sealed, signed))
        if not anchored:
            (home / "db.anchor").unlink(missing_ok=True)
        assert _outcome(home) == (Tampered, Tampered)


def test_the_sealed_part_of_another_version(home: Path) -> None:
    *_, before, head = _manifests(home)
    (home / "db.anchor").unlink()
    _put_head(
        home,
        5,
        pack(unpack(head.read_bytes()).public, unpack(before.read_bytes()).sealed, unpack(head.read_bytes()).signed),
    )
    assert _outcome(home) == (Tampered, Tampered)


def test_an_anchor_of_another_database_or_time(origin: Path, home: Path, tmp_path: Path) -> None:
    with create(tmp_path / "other"):
        pass
    shutil.copy(tmp_path / "other/db.anchor", home / "db.anchor")
    assert _outcome(home) == (Tampered, Tampered)
    shutil.copy(origin / "older/db.anchor", home / "db.anchor")  # what is newer descends from it
    assert _outcome(home) == (None, None)


def test_a_missing_version_in_between(home: Path) -> None:
    """The chain is broken: who remembers an earlier version does not open it, and `check` finds it in any case."""
    _manifests(home)[1].unlink()
    assert _outcome(home) == (None, Tampered)


def test_what_is_spoiled_is_not_written_to(home: Path) -> None:
    """A load into a database with a spoiled head is refused, and costs nothing."""
    before = (home / "db.ledger").read_bytes()
    head = home / "db/HEAD"
    with reopen(home) as db:
        head.write_bytes(head.read_bytes()[:-1])
        with pytest.raises(Tampered):
            load(db, "c")
    assert (home / "db.ledger").read_bytes() == before


def test_the_anchor_never_goes_back(home: Path, tmp_path: Path) -> None:
    """A slow opener that has seen an older version must not make the owner forget a newer one."""
    shutil.copytree(home / "db", tmp_path / "old")
    with reopen(home) as slow, reopen(home) as quick:
        service: Any = slow.service
        request = service.request

        def overtaken(session: int, sealed: bytes) -> bytes:
            answer: bytes = request(session, sealed)
            service.request = request
            load(quick, "c", COUNT, 5, capacity=32)
            return answer

        service.request = overtaken
        slow.check()
    shutil.rmtree(home / "db")
    shutil.copytree(tmp_path / "old", home / "db")
    assert _outcome(home) == (Tampered, Tampered)


def test_a_load_that_the_provider_plays_again(home: Path) -> None:
    """All that went to the enclave is the provider's to keep and to send again: it must not load the rows twice."""
    with reopen(home) as db:
        provider: Any = db.service
        enclave = provider._enclave
        greeted: list[bytes] = []
        asked: list[bytes] = []
        greet, request = enclave.greet, enclave.request

        def greeting(sealed: bytes) -> Any:
            greeted.append(bytes(sealed))
            return greet(sealed)

        def asking(session: int, sealed: bytes) -> Any:
            asked.append(bytes(sealed))
            return request(session, sealed)

        enclave.greet, enclave.request = greeting, asking
        key = OwnerKey.open(home / "db.key")
        second = Database(provider, key, home / "db.key")
        load(second, "c", COUNT, 5, capacity=32)
        version = second.version
        assert counted(second, "c") == sums(5, count=COUNT)
        played = list(asked)
        with provider.writer():
            try:
                session, _ = greet(greeted[0])
                for sealed in played:
                    request(session, sealed)
            except ScumbleError:
                pass
        assert counted(db, "c") == sums(5, count=COUNT)
        assert db.version == version
