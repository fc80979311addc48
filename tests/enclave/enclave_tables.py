"""For tests of the enclave: a storage in memory, and tables with a column of every width."""

from collections.abc import Sequence

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from scumble.enclave.dummies import Dummies
from scumble.enclave.grants import AccessList
from scumble.enclave.manifests import seal_manifest
from scumble.enclave.pages import DataKeys
from scumble.errors import NotFound, Tampered
from scumble.types import Column, Schema, parse_type
from scumble.wire.catalog import Catalog, Run, Table
from scumble.wire.lineage import Certificate, Draft, Link, database_id, first_title, sign_draft
from scumble.wire.storage import Envelope, RunShape, pack

OWNER = Ed25519PrivateKey.from_private_bytes(bytes(32))
OWNER_KEY = OWNER.public_key().public_bytes_raw()
NONCE = b"n" * 32
DATABASE = database_id(OWNER_KEY, NONCE)
DATA_KEY = bytes(range(32))
KEYS = DataKeys(DATA_KEY, DATABASE)
TITLE = first_title(DATABASE, OWNER, NONCE, DATA_KEY)
"""A database's first owner, its id, its data key, and the statement that it belongs to the owner."""
TYPES = [
    "boolean",
    "tinyint",
    "smallint",
    "integer",
    "bigint",
    "utinyint",
    "usmallint",
    "uinteger",
    "float",
    "double",
    "decimal(4,2)",
    "decimal(18,2)",
    "date",
    "timestamp",
    'category(["a","b","c"])',
    "text(1)",
    "text(8)",
    "text(20)",
    "uuid",
    "blob(9)",
    "decimal(38,2)",
    "interval",
]


class MemoryStorage:
    """A `Storage` that keeps everything in dicts, to be looked at and spoiled."""

    def __init__(self) -> None:
        self.manifests: dict[int, bytes] = {}
        self.packs: dict[int, bytes] = {}
        self.shapes: dict[str, RunShape] = {}
        self.pages: dict[tuple[str, int], bytearray] = {}
        self.tag_bytes: dict[tuple[str, int], bytes] = {}
        self.scratch: dict[str, bytes] = {}

    def head(self) -> bytes:
        return self.manifest(max(self.manifests, default=0))

    def manifest(self, version: int) -> bytes:
        if version not in self.manifests:
            raise NotFound("no such version")
        return self.manifests[version]

    def links(self, version: int) -> bytes:
        if version not in self.packs:
            raise NotFound("no such version")
        return self.packs[version]

    def tags(self, run: str, column: int) -> bytes:
        return self.tag_bytes[run, column]

    def read(self, run: str, column: int, first_page: int, pages: int, into: memoryview) -> None:
        there, slot_bytes = self.shapes[run][column]
        found = self.pages[run, column][first_page * slot_bytes : (first_page + pages) * slot_bytes]
        if first_page + pages > there or len(found) != into.nbytes:
            raise Tampered
        into[:] = found

    def create_run(self, run: str, shape: RunShape) -> None:
        self.shapes[run] = shape
        for column, (pages, slot_bytes) in enumerate(shape):
            self.pages[run, column] = bytearray(pages * slot_bytes)

    def write(self, run: str, column: int, first_page: int, pages: bytes | memoryview) -> None:
        at = first_page * self.shapes[run][column][1]
        self.pages[run, column][at : at + len(pages)] = pages

    def finish_run(self, run: str, tags: Sequence[bytes]) -> None:
        for column, content in enumerate(tags):
            self.tag_bytes[run, column] = content

    def commit(self, version: int, manifest: bytes) -> None:
        self.manifests[version] = manifest

    def write_scratch(self, name: str, sealed: bytes | memoryview) -> None:
        self.scratch[name] = bytes(sealed)

    def read_scratch(self, name: str) -> bytes:
        return self.scratch[name]

    def drop_scratch(self) -> None:
        self.scratch.clear()


def signed_manifest(
    keys: DataKeys,
    catalog: Catalog,
    real_rows: dict[str, int],
    access: AccessList,
    signer: Ed25519PrivateKey = OWNER,
    certificate: Certificate | None = None,
) -> bytes:
    """A manifest's file, as an enclave and whoever signs a version make it together."""
    dummies = {run: Dummies.after(rows) for run, rows in real_rows.items()}
    public, sealed = seal_manifest(keys, catalog, dummies, access)
    draft = Draft(catalog.restores, catalog.version, catalog.previous, Envelope(public, sealed, b"-").hash)
    signature = sign_draft(catalog.database, draft, signer)
    link = Link(draft, signer.public_key().public_bytes_raw(), signature, certificate)
    return pack(public, sealed, link.to_bytes())


def table_of(*types: str, runs: tuple[Run, ...] = ()) -> Table:
    """A table with columns c0, c1, ... of these types; `not null` after a type says so."""
    columns = [
        Column(f"c{place}", parse_type(text.removesuffix(" not null")), not text.endswith(" not null"))
        for place, text in enumerate(types)
    ]
    return Table("ab" * 16, "t", Schema(tuple(columns)), runs)
