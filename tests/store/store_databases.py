"""Databases for these tests: manifests with made-up tables, and runs full of bytes that stand for sealed pages."""

import json
import random
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

import pytest

from scumble.errors import NotFound
from scumble.store.files import FileStore
from scumble.store.memory import MemoryStore
from scumble.store.protocol import Store
from scumble.types import Column, Schema, parse_type
from scumble.wire.catalog import Catalog, Run, Table
from scumble.wire.lineage import Draft, Link
from scumble.wire.links import link_of, unpack_links
from scumble.wire.storage import Envelope, pack, pack_unsigned, public_part, unpack

PAGE_ROWS = 16
AnyStore = TypeVar("AnyStore", bound=Store)
SCHEMA = Schema(
    (
        Column("amount", parse_type("bigint"), False),
        Column("day", parse_type("date"), True, null_bits=False),  # as release 0.1 wrote it
        Column("flag", parse_type("boolean"), False),
    )
)
SLOT_BYTES = (16 * 8 + 16, 16 * 5 + 16, 16 * 1 + 16)
MAKERS: dict[str, Callable[[Path, str], Store]] = {
    "files": FileStore.create,
    "memory": lambda _, database: MemoryStore(database),
}


@pytest.fixture(params=MAKERS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """A store of each kind, with nothing in it."""
    return MAKERS[request.param](tmp_path / "db", "d0")


def another(store: Store) -> Store:
    """The same database opened once more, where that is possible."""
    return FileStore(store.folder) if isinstance(store, FileStore) else store


def manifest(version: int, runs: dict[str, int], previous: bytes = b"") -> bytes:
    """A manifest of one table with these runs, each of so many pages."""
    hashes = ("00" * 32,) * len(SCHEMA)
    made = tuple(Run(run, "b", None, pages * PAGE_ROWS - 3, PAGE_ROWS, None, hashes) for run, pages in runs.items())
    catalog = Catalog("d0", version, sha256(previous).hexdigest(), (Table("t0", "t", SCHEMA, made),))
    return pack(json.dumps(catalog.to_json()).encode(), b"sealed" * 20, b"signed")


def signed(version: int, runs: dict[str, int], previous: bytes = b"") -> bytes:
    """The same with a link that belongs to it, under a signature that no store looks at."""
    public, sealed, _ = unpack(manifest(version, runs, previous))
    before = unpack(previous).hash if previous else ""
    draft = Draft(0, version, before, Envelope(public, sealed, b"-").hash)
    return pack(public, sealed, Link(draft, b"o" * 32, sha256(public).digest() * 2).to_bytes())


def unsigned(version: int, runs: dict[str, int]) -> bytes:
    """The same as release 0.1 made it."""
    return pack_unsigned(*unpack(manifest(version, runs))[:2])


def commit_many(store: Store, first: int, last: int, runs: dict[str, int] | None = None) -> list[bytes]:
    """Versions in a row, in one go, that all have the same runs; their manifests."""
    made = []
    with store.writer(busy_seconds=5):
        for version in range(first, last + 1):
            previous = store.head() if version > 1 else b""
            made.append(signed(version, runs or {}, previous))
            store.commit(version, made[-1])
    return made


def links_of(store: Store, head: int) -> list[Link]:
    """The links of all versions, whole or collected."""
    links: list[Link] = []
    while len(links) < head:
        version = len(links) + 1
        try:
            found = link_of(version, store.manifest(version))
            assert found is not None
            links.append(found)
        except NotFound:
            links += [link for link in unpack_links(store.links(version)) if version <= link.draft.version <= head]
            assert len(links) >= version
    return links


def shape(pages: int) -> list[tuple[int, int]]:
    return [(pages, slot_bytes) for slot_bytes in SLOT_BYTES]


def pages_of(run: str, column: int, pages: int) -> bytes:
    """What stands for the sealed pages of a column: the same at every call."""
    return random.Random(f"{run} {column}").randbytes(pages * SLOT_BYTES[column])  # noqa: S311


def tags_of(run: str, pages: int) -> list[bytes]:
    return [random.Random(f"tags {run} {column}").randbytes(16 * pages) for column in range(3)]  # noqa: S311


def write_run(store: Store, run: str, pages: int) -> None:
    store.create_run(run, shape(pages))
    for column in range(3):
        content = pages_of(run, column, pages)
        half = pages // 2
        store.write(run, column, half, memoryview(content)[half * SLOT_BYTES[column] :])
        store.write(run, column, 0, content[: half * SLOT_BYTES[column]])
    store.finish_run(run, tags_of(run, pages))


def load(store: Store, version: int, runs: dict[str, int], new: str) -> None:
    """One whole load, as an enclave would do it: `new` is made and committed together with the other runs."""
    with store.writer(busy_seconds=1):
        store.write_scratch("sort-1", b"s" * 100)
        assert store.read_scratch("sort-1") == b"s" * 100
        write_run(store, new, runs[new])
        try:
            previous = store.head()
        except NotFound:
            previous = b""
        store.commit(version, manifest(version, runs, previous))


def database(folder: Path, *runs: tuple[str, int]) -> FileStore:
    """A database in which every run came with its own version."""
    return filled(FileStore.create(folder, "d0"), *runs)


def filled(store: AnyStore, *runs: tuple[str, int]) -> AnyStore:
    for version in range(1, len(runs) + 1):
        load(store, version, dict(runs[:version]), runs[version - 1][0])
    return store


def read(store: Store, run: str, column: int, first: int, pages: int) -> bytes:
    into = bytearray(pages * SLOT_BYTES[column])
    store.read(run, column, first, pages, memoryview(into))
    return bytes(into)


def check_run(store: Store, run: str, pages: int) -> None:
    for column in range(3):
        assert read(store, run, column, 0, pages) == pages_of(run, column, pages)
        assert store.tags(run, column) == tags_of(run, pages)[column]


def files(folder: Path) -> set[str]:
    """The names of all files of a database that a load can leave."""
    found = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    return {name for name in found if name not in ("lock", "database.json") and not name.startswith("transcript.log")}


CATALOG_0_1 = json.loads(public_part(manifest(1, {"ab": 3, "cd": 2})))
"""The public part of a manifest as release 0.1 wrote it: without the widths of rows."""
del CATALOG_0_1["tables"][0]["row_bits"]
