"""The fuzz targets: for every reader of bytes or text, a function that takes any bytes, and valid inputs to start from.

A target holds if it returns or raises a ScumbleError. Everything works on small databases of its own in a temporary
folder; no target needs atheris, so that `make test` can replay the corpus.
"""

import json
import os
import re
import shutil
import signal
import struct
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from hashlib import sha256
from io import BytesIO
from itertools import repeat
from pathlib import Path
from random import Random
from string import ascii_uppercase
from typing import Any

import numpy as np
import pyarrow as pa

from scumble import opening
from scumble.enclave.lines import TrustedEnclave
from scumble.enclave.manifests import open_manifest
from scumble.enclave.pages import NONCE_BYTES, DataKeys
from scumble.errors import ScumbleError, Tampered
from scumble.index import file as index_file
from scumble.owner import key_file
from scumble.owner.anchor import Anchor
from scumble.owner.database import Database
from scumble.owner.encoding import encode_rows
from scumble.owner.indexes import IndexSpec
from scumble.owner.keys import OwnerKey
from scumble.owner.ledger import Ledger
from scumble.owner.queries import LocalSQL
from scumble.owner.schema_file import SchemaFile
from scumble.owner.session import Session
from scumble.owner.sources import open_source
from scumble.provider.front import Provider
from scumble.sql import explain, prepare
from scumble.store.backup import backup, restore
from scumble.store.files import FileStore
from scumble.store.manifests import stated_shapes
from scumble.store.memory import MemoryStore
from scumble.store.protocol import Store
from scumble.types import Column, Schema, parse_domain, parse_type
from scumble.wire import requests
from scumble.wire.charges import Charge
from scumble.wire.grants import Grant
from scumble.wire.lineage import Draft, Link, sign_draft
from scumble.wire.storage import Envelope, pack, unpack

__all__ = ["PLANTED", "TARGETS", "Ready", "holds"]

Run = Callable[[bytes], None]
Mutate = Callable[[bytes, Random], bytes]

SEPARATOR = b"|then|"
MOST_RANKS, MOST_BYTES = 1 << 12, 1 << 24
"""What a request of the owner's may ask for here: more is honest work, and no hang."""


@dataclass(frozen=True)
class Ready:
    """A target that is set up: what to call, what to start from, and how to change an input other than byte by byte."""

    run: Run
    seeds: Sequence[bytes]
    mutate: Mutate | None = None


def holds(run: Run, data: bytes) -> None:
    """Call a target, and let every exception out that is no ScumbleError."""
    with suppress(ScumbleError):
        run(data)


# --- a small database ------------------------------------------------------------------------------

_ROWS = pa.table(
    {
        "k": pa.array([3, 9, 9, 14, 21, 30], pa.int32()),
        "name": pa.array(["ash", None, "birch", "", "é", "ash"]),
        "colour": pa.array(["red", "blue", None, "red", "red", "blue"]),
        "share": pa.array([0.5, None, 2.0, -1.0, 8.5, 0.0]),
    }
)
_TYPES = {"name": "text(10)", "colour": 'category(["blue","red"])', "k": "integer not null"}
_INDEXES = ("k int:0:31 epsilon=1",)


def _make_database(home: Path) -> Database:
    db = opening.create(home / "db", limit=1000, delta_limit="1e-3")
    for _ in range(2):
        db.load("t", _ROWS, types=_TYPES, indexes=_INDEXES, page_rows=16, capacity=16, again=True)
    return db


def _copier(store: Store) -> Callable[[], MemoryStore]:
    """A function that copies a database into memory, so that every input finds the same one."""
    archive = BytesIO()
    backup(archive, store)

    def copy() -> MemoryStore:
        made = MemoryStore()
        restore(BytesIO(archive.getvalue()), made.restoring())
        return made

    return copy


# --- mutations -------------------------------------------------------------------------------------

_ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2, 7, 64, 1 << 20, 1 << 31, 1 << 40, 1 << 63, -(1 << 63), 1 << 64, 10**30, 0.5, 1e308,
    "", "0", "k", "t", "-1", "\0", "é", "\ud800", "1/0", "1e9", [], {}, [[]], [None], {"": 0}, "a" * 300,
)  # fmt: skip
_TOKEN = re.compile(r"\w+|\s+|.", re.DOTALL)


def mutate_json(tree: Any, rng: Random) -> Any:
    """Another tree: one place in it is replaced, left out or doubled."""
    if isinstance(tree, dict | list) and tree and rng.random() < 0.85:
        keys = list(tree) if isinstance(tree, dict) else list(range(len(tree)))
        key = rng.choice(keys)
        other: Any = dict(tree) if isinstance(tree, dict) else list(tree)
        chance = rng.random()
        if chance < 0.06:
            del other[key]
        elif chance < 0.12:
            if isinstance(other, list):
                other.insert(key, other[key])
            else:
                other[rng.choice(["k", "id", "index", "task", "x"])] = other[key]
        else:
            other[key] = mutate_json(other[key], rng)
        return other
    if isinstance(tree, int) and rng.random() < 0.4:
        return tree + rng.choice([-1, 1, 8, -tree - 1, tree])
    if isinstance(tree, str) and tree and rng.random() < 0.4:
        place = rng.randrange(len(tree))
        return tree[:place] + rng.choice(["", "0", "9", ":", "-", "[", '"', "é"]) + tree[place + rng.randrange(2) :]
    return rng.choice(_ODD)


def _json_bytes(tree: Any) -> bytes:
    return json.dumps(tree).encode()


def _mutate_json_bytes(data: bytes, rng: Random) -> bytes:
    try:
        return _json_bytes(mutate_json(json.loads(data), rng))
    except (ValueError, RecursionError):
        return data


def _mutate_text(vocabulary: Sequence[str]) -> Mutate:
    """Replace, put in, leave out or double tokens: most of what comes out still looks like the language."""

    def mutate(data: bytes, rng: Random) -> bytes:
        tokens = _TOKEN.findall(data.decode(errors="replace"))
        for _ in range(rng.randint(1, 4)):
            place, word = rng.randrange(len(tokens) + 1), rng.choice(vocabulary)
            stop = min(len(tokens), place + rng.randint(0, 3))
            match rng.randrange(5):
                case 0:
                    tokens[place:place] = [word]
                case 1:
                    tokens[place : place + 1] = [word]
                case 2:
                    del tokens[place:stop]
                case 3:
                    tokens[place:place] = tokens[place:stop] * rng.choice([1, 1, 1, 50])
                case _:
                    start = rng.randrange(len(tokens) + 1)
                    tokens[place:place] = tokens[start : start + rng.randint(1, 6)]
        return "".join(tokens).encode(errors="replace")

    return mutate


def _vocabulary(texts: Sequence[str], *more: str) -> list[str]:
    found = {token for text in texts for token in _TOKEN.findall(text)}
    return sorted(found | set(more) | {"", " ", "-1", "0", "1e400", "9" * 30, "\0", "é", "²", "'", '"', "\ufffd"})


# --- index files -----------------------------------------------------------------------------------


def _checked_index(body: bytes) -> bytes:
    return body + sha256(body).digest()[: index_file.CHECKSUM_BYTES]


def _index_seeds(home: Path) -> list[bytes]:
    with _make_database(home) as db:
        models = [index_file.decode(run.index) for run in db.table("t").runs if run.index is not None]
    return [index_file.encode(model)[: -index_file.CHECKSUM_BYTES] for model in models]


def _index(home: Path) -> Ready:
    """Index files, as they are and with their checksum put right, which an adversary would do too."""

    def run(data: bytes) -> None:
        for content in (data, _checked_index(data)):
            try:
                model = index_file.decode(content)
            except ScumbleError:
                continue
            size = model.domain.size
            model.stops_at(np.array([0, size // 2, size - 1]))
            assert index_file.encode(model)  # what was read can be written

    return Ready(run, _index_seeds(home))


# --- what lies in the provider's folder, and beside it ---------------------------------------------

_REPLACED = ("HEAD", "database.json", "manifest", "tags", "pages", "key", "anchor", "ledger")


def _place_of(home: Path, what: str) -> Path:
    match what:
        case "key" | "anchor" | "ledger":
            return home / f"db.{what}"
        case "manifest":
            return home / "db" / "manifests" / (home / "db" / "HEAD").read_text().strip()
        case "tags" | "pages":
            return min((home / "db" / "runs").glob(f"*.{what}"))
    return home / "db" / what


def _put(home: Path, what: str, content: bytes) -> None:
    place = _place_of(home, what)
    if what == "manifest":  # an attacker would give it the right name, too
        name = f"{place.name[:8]}-{sha256(content).hexdigest()[:16]}.manifest"
        place.unlink()
        place = place.with_name(name)
        (home / "db" / "HEAD").write_text(name + "\n")
    place.write_bytes(content)


def _with_a_file_replaced(home: Path, kinds: Sequence[str], use: Callable[[Path], None]) -> Ready:
    """A database with one file replaced, in a fresh copy for each input: the first byte says which file."""
    origin, place = home / "origin", home / "place"
    origin.mkdir()
    _make_database(origin).close()
    (origin / "db" / "transcript.log").unlink()

    def run(data: bytes) -> None:
        if not data:
            return
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(origin, place)
        _put(place, kinds[data[0] % len(kinds)], data[1:])
        use(place / "db")

    def mutate(data: bytes, rng: Random) -> bytes:
        which = data[:1] or b"\0"
        changed = _mutate_manifest if kinds[which[0] % len(kinds)] == "manifest" else _mutate_json_bytes
        return which + changed(data[1:], rng)

    return Ready(run, [bytes([n]) + _place_of(origin, what).read_bytes() for n, what in enumerate(kinds)], mutate)


def _folder(home: Path) -> Ready:
    """Any file of a database, the owner's too: it is opened, queried, checked and written to."""

    def use(folder: Path) -> None:
        with opening.open(folder) as db:
            db.sql("SELECT count(*), sum(k), max(name) FROM t WHERE k < 20").fetchall()
            db.check()
            db.ledger.spent()
            if "t" in [table.name for table in db.tables]:
                db.drop("t")

    return _with_a_file_replaced(home, _REPLACED, use)


def _store(home: Path) -> Ready:
    """The provider alone, without a key: HEAD, database.json, manifest, tags or pages replaced, everything read."""

    def use(folder: Path) -> None:
        store = FileStore(folder)
        try:
            store.stamp()
            shapes = stated_shapes(store.head())[1]
            for name, shape in shapes.items():
                for column, (_, slot_bytes, pages) in enumerate(shape.columns):
                    if pages * slot_bytes < MOST_BYTES:
                        store.tags(name, column)
                        store.read(name, column, 0, pages, memoryview(bytearray(pages * slot_bytes)))
            with store.writer():
                store.drop_unreferenced()
        finally:
            store.close()

    return _with_a_file_replaced(home, _REPLACED[:5], use)


def _owner_files(home: Path) -> Ready:
    """Key file and anchor: an even first byte for a key, an odd one for an anchor."""
    path = home / "any.key"
    (home / "seed.key").unlink(missing_ok=True)
    key = OwnerKey("ab" * 16, bytes(range(32)), bytes(32))
    key_file.SCRYPT_COST = 2
    sealed = key.to_bytes("secret")
    anchors = key.anchor_key()
    Anchor(3, "cd" * 32).save(home / "seed.anchor", anchors)

    def run(data: bytes) -> None:
        if not data:
            return
        path.write_bytes(data[1:])
        path.chmod(0o600)
        if data[0] % 2:
            Anchor.load(path, anchors)
        elif b'"n": 2,' in data or b"scrypt" not in data:  # a higher cost is honest work
            key_file.is_protected(path)
            OwnerKey.open(path, "secret")

    def mutate(data: bytes, rng: Random) -> bytes:
        try:
            tree = mutate_json(json.loads(data[1:]), rng)
            if isinstance(tree, dict) and "checksum" in tree and rng.random() < 0.7:
                header = {name: value for name, value in tree.items() if name != "checksum"}
                tree["checksum"] = key_file._checksum(header)
            return data[:1] + key_file.canonical(tree)
        except (ValueError, RecursionError):
            return data

    plain = key.to_bytes(None)
    return Ready(run, [b"\0" + plain, b"\0" + sealed, b"\1" + (home / "seed.anchor").read_bytes()], mutate)


def _ledger(home: Path) -> Ready:
    """Ledger files."""
    path, seed = home / "any.ledger", home / "seed.ledger"
    with Ledger.open(seed, 10, delta_limit="1e-3") as ledger:
        ledger.spend("1/2", "first").draw()
        ledger.spend(1, "second").cancel()

    def run(data: bytes) -> None:
        for old in home.glob("any.ledger*"):
            old.unlink()
        path.write_bytes(data)
        with Ledger.open(path) as ledger:
            ledger.spent()
            len(ledger.entries())
            ledger.spend("1/4", "third").draw()

    def mutate(data: bytes, rng: Random) -> bytes:
        other = bytearray(data)
        for _ in range(rng.randint(1, 4)):
            if other:
                other[rng.randrange(len(other))] = rng.choice([0, 1, 255, rng.randrange(256)])
        return bytes(other)

    return Ready(run, [seed.read_bytes()], mutate)


# --- manifests -------------------------------------------------------------------------------------


def _mutate_manifest(data: bytes, rng: Random) -> bytes:
    """Change the public part, and put its length right."""
    try:
        public, sealed, signed = unpack(data)
        changed = _json_bytes(mutate_json(json.loads(public), rng))
    except (ValueError, RecursionError, ScumbleError):
        return data
    return pack(changed, sealed, signed)


def _manifest(home: Path) -> Ready:
    """Manifests without a valid seal: the envelope, the shapes that they state, and the enclave, which refuses."""
    with _make_database(home) as db:
        assert isinstance(db.service, Provider)
        head = db.service.store.head()
        database = db.service.store.database
    keys = DataKeys(bytes(32), database)

    def run(data: bytes) -> None:
        for read in (unpack, stated_shapes, lambda content: open_manifest(keys, content)):
            with suppress(ScumbleError):
                read(data)

    return Ready(run, [head], _mutate_manifest)


def _catalog(home: Path) -> Ready:
    """Any JSON in a manifest that the right key sealed: through the enclave, and to the owner."""
    with _make_database(home) as db:
        assert isinstance(db.service, Provider)
        key, copy = db._versions.key.as_owner(), _copier(db.service.store)
    data_key, signer = key.data_key(), key.signing_key()
    keys = DataKeys(data_key, key.database)
    public, sealed, _ = unpack(copy().head())
    secret = keys.manifest.decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], public)

    def run(data: bytes) -> None:
        nonce, public = bytes(NONCE_BYTES), data.replace(b"DATABASE", key.database.encode())
        rest = nonce + keys.manifest.encrypt(nonce, secret, public)
        digest = Envelope(public, rest, b"-").hash
        try:
            stated = json.loads(public)
            draft = Draft(int(stated["restores"]), int(stated["version"]), str(stated["previous"]), digest)
        except (ValueError, KeyError, TypeError, RecursionError, OverflowError):
            draft = Draft(0, 2, "", digest)
        link = Link(draft, signer.public_key().public_bytes_raw(), sign_draft(key.database, draft, signer))
        head = pack(public, rest, link.to_bytes())
        held = copy()
        held._manifests[-1] = head
        session = Session(TrustedEnclave(held), key.database, signer, data_key)
        for table in session.ask(requests.Open(None)).catalog.tables:
            for index in (run.index for run in table.runs if run.index is not None):
                index_file.decode(index)

    return Ready(run, [public.replace(key.database.encode(), b"DATABASE")], _mutate_json_bytes)


# --- requests to the enclave -----------------------------------------------------------------------


def _wire(home: Path) -> Ready:
    """Requests in a session with the owner's key, with any content: `SEPARATOR` stands between two of them."""
    with _make_database(home) as db:
        assert isinstance(db.service, Provider)
        key, table, copy = db._versions.key, db.table("t"), _copier(db.service.store)
        queries = [
            "SELECT count(*), sum(k), min(name), stddev(share) FROM t WHERE k < 20 GROUP BY colour",
            "SELECT sum(k * (k + 2)) FROM t WHERE k < 5 OR name = 'ash'",
            "SELECT * FROM t WHERE k BETWEEN 3 AND 9 AND colour IS NOT NULL",
        ]
        accesses = [prepare(sql, db._versions.catalog).bind().accesses[0] for sql in queries]
    data_key, signer = key.data_key(), key.signing_key()

    def run(data: bytes) -> None:
        named = data.replace(b"TABLE-ID", table.id.encode()).replace(b"RUN-ID", table.runs[0].id.encode())
        held = copy()
        with held.writer():
            session = Session(TrustedEnclave(held), key.database, signer, data_key)
            session.ask(requests.Open(None))
            for request in named.split(SEPARATOR)[:12]:
                if request and not _is_large(request):
                    with suppress(ScumbleError):
                        session._exchange(request)

    def mutate(data: bytes, rng: Random) -> bytes:
        parts = data.split(SEPARATOR)
        place = rng.randrange(len(parts))
        parts[place] = _mutate_request(parts[place], rng)
        return SEPARATOR.join(parts)

    seeds = []
    for access in accesses:
        scans = [requests.Scan(table.runs.index(scan.run), scan.predicate, scan.pages) for scan in access.scans]
        execution = requests.pack_execution(0, scans, access.bounds)
        seeds.append(SEPARATOR.join([_packed(requests.Prepare(access.plan)), execution]))
    orders, batch = (IndexSpec.parse(_INDEXES[0]).order(),), "ba" * 16
    begin = requests.BeginLoad(batch, (Fraction(0), Fraction(0)), "t", table.id, table.schema, orders, 16, 1 << 16)
    rows = requests.ROWS + np.zeros((16, 8), np.int64).tobytes()
    pay = requests.Pay(batch, (Charge(batch, table.id, "k", Fraction(1), Fraction(0), 1, new_rows=False),))
    build = _packed(pay, requests.Reserve(16), requests.Build(3, batch))
    seeds.append(SEPARATOR.join([_packed(begin), rows, build]))
    others = _packed(
        requests.CheckChain(),
        requests.CheckPages(table.runs[0].id, 0, 0, 1),
        requests.Reseal(bytes(32), key.as_owner().title(), ()),
        requests.AddGrant(Grant("0" * 16, "ada", bytes(32), {"t": frozenset(["read"])}), rehearsed=False),
        requests.ListGrants(),
        requests.RevokeGrant("ada"),
        requests.DropTable("t"),
    )
    seeds.append(others)
    defined = _packed(
        requests.CreateTable("u", "cd" * 16, table.schema, ("k int:0:9 epsilon=1",), (("k", "a key"),)),
        requests.AddColumn("t", Schema((Column("more", parse_type("text(9)"), nullable=True),)), (0, 0, 0, 0)),
        requests.RenameColumn("t", "more", "less"),
        requests.SetTerms("t", ("k int:0:9 epsilon=1",)),
        requests.DropIndex("t", "k"),
        requests.DropColumn("t", "less"),
        requests.SetView("v", '"v" AS (SELECT 1)'),
        requests.RenameTable("t", "w"),
        requests.Truncate("w"),
        requests.DropTable("u", within=True),
        requests.Look(),
        requests.Settle(10),
    )
    seeds.append(defined)
    nameless = [seed.replace(table.id.encode(), b"TABLE-ID") for seed in seeds]
    return Ready(run, [seed.replace(table.runs[0].id.encode(), b"RUN-ID") for seed in nameless], mutate)


def _packed(*asked: requests.Request[Any]) -> bytes:
    return SEPARATOR.join(map(requests.pack_request, asked))


def _mutate_request(request: bytes, rng: Random) -> bytes:
    kind, body = request[:1], request[1:]
    if kind == requests.JSON:
        return kind + _mutate_json_bytes(body, rng)
    words = list(struct.unpack(f"<{len(body) // 8}q", body[: len(body) // 8 * 8])) or [0]
    for _ in range(rng.randint(1, 3)):
        place = rng.randrange(len(words))
        odd = rng.choice([0, 1, -1, -2, 3, 1 << 20, 1 << 40, (1 << 63) - 1, -(1 << 63), words[place] // 2])
        match rng.randrange(4):
            case 0:
                words.insert(place, odd)
            case 1 if len(words) > 1:
                del words[place]
            case _:
                words[place] = odd
    return kind + struct.pack(f"<{len(words)}q", *words)


def _is_large(request: bytes) -> bool:
    """Whether it asks for a load that any owner might ask for, and that takes long."""
    if request[:1] != requests.JSON:
        return False
    try:
        fields = json.loads(request[1:])
        if fields.get("task") != "load":
            return False
        sizes = [parse_domain(order["domain"]).size for order in fields["orders"]]
        return max([*sizes, 0]) > MOST_RANKS or max(fields["memory_bytes"], fields["page_rows"]) > MOST_BYTES
    except Exception:
        return False


# --- text ------------------------------------------------------------------------------------------

_SQL = (
    "SELECT count(*), sum(k), avg(share) FROM t WHERE k BETWEEN 3 AND ? AND name LIKE 'a%'",
    "SELECT colour, min(name), max(k * (k - 2)) FROM t WHERE NOT (k < $1 OR share IS NULL) GROUP BY colour",
    "WITH x AS (SELECT k, name FROM t WHERE k IN (1, 2, $low)) SELECT * FROM x JOIN t USING (k) ORDER BY 1 LIMIT 3",
    "SELECT a.k, row_number() OVER (PARTITION BY b.colour ORDER BY a.k) FROM t a, t b WHERE a.k = b.k AND b.k > 2 + ?",
    "(SELECT k FROM t UNION ALL SELECT k FROM t WHERE share > 0.5e1) EXCEPT SELECT -1",
    "SELECT CASE WHEN k = 1 THEN 'x' ELSE name END, CAST(k AS VARCHAR) || 'é' FROM t WHERE colour = 'red' HAVING 1 = 1",
    "FROM t SELECT k WHERE EXISTS (SELECT 1 FROM t u WHERE u.k = t.k AND u.name IS DISTINCT FROM t.name)",
    "SELECT variance(k), stddev_pop(share), count(DISTINCT name) FILTER (WHERE k > :n) FROM t WHERE k = ANY([1, 2])",
    "SELECT * EXCLUDE (k) REPLACE (1 AS share) FROM t WHERE name SIMILAR TO 'a.*' OR name ILIKE '_b%' ESCAPE '\\'",
    "SELECT DATE '2020-01-01' + INTERVAL 3 DAY, {'a': k}, [k, 2][1:2], x -> x + 1 FROM t QUALIFY rank() OVER () = 1",
    "VALUES (1, 'a'), (2, NULL)",
)
_DOMAINS = (
    "int:0:1000", "int:-5:9223372036854775807:7", "decimal:0:100:0.25", "date:2000-01-01:2030-12-31",
    "timestamp:2020-01-01T00:00:00:2020-12-31T23:59:59:1min", "timestamp:2020-01-01T00:00:00Z:2020-01-01T00:00:01Z:1ms",
    "float:0:1:0.001", 'category:["a","b","é"]', "keys:[1,5,9]", 'keys:["x","y"]', 'string:["d","m","t"]',
)  # fmt: skip
_COLUMN_TYPES = (
    "integer", "decimal(12,2)", 'category(["a","b"])', 'category:["a"]', "text(25)", "timestamp with time zone",
    "double precision", "varchar", "timestamp_ns", "boolean",
)  # fmt: skip
_SPECS = (
    "k int:0:31 epsilon=1",
    "amount decimal:0:100000:0.01 epsilon=0.5 beta=1e-6 rows_per_user=3 max_bytes=4096 slack=lossless",
    'c category:["a","b"] epsilon=1/3 slack=paper',
)
_VALUES: tuple[Any, ...] = (1, "a", None, 2.5, -(2**70), True, "2020-01-01", b"x")


def _text_target(read: Callable[[str], object], seeds: Sequence[str], *more: str) -> Ready:
    def run(data: bytes) -> None:
        read(data.decode(errors="surrogateescape" if data[:1] == b"\xff" else "replace"))

    return Ready(run, [seed.encode() for seed in seeds], _mutate_text(_vocabulary(seeds, *more)))


def _sql(home: Path) -> Ready:
    """SQL against a fixed catalog: prepared, bound to parameters of every kind, explained."""
    with _make_database(home) as db:
        catalog = db._versions.catalog
    local = LocalSQL()

    def read(text: str) -> None:
        statement = prepare(text, catalog, local.evaluate)
        keys = list(statement.parsed.keys.values())
        for shift in range(len(_VALUES) if keys else 1):
            values = [_VALUES[(place + shift) % len(_VALUES)] for place in range(min(statement._needed, 50))]
            named = {key: _VALUES[(n + shift) % len(_VALUES)] for n, key in enumerate(keys) if isinstance(key, str)}
            with suppress(ScumbleError):
                explain(statement.bind(named or values))

    words = (
        "LATERAL UNNEST PIVOT OFFSET DISTINCT ON ROLLUP CUBE ALL SOME GLOB :: ** // << @> -> ->> != ~ $0 ?1 :x -- /*"
    )
    return _text_target(read, _SQL, *words.split(), "((((" * 40, "NOT " * 60, "current_date", "read_csv('x')")


def _domain(home: Path) -> Ready:
    """Domain text."""

    def read(text: str) -> None:
        domain = parse_domain(text)
        assert parse_domain(domain.text).size == domain.size  # the text of a domain reads as that domain

    return _text_target(read, _DOMAINS, "1e-400", "0001-01-01", "9999-12-31", "[[[[" * 30, "1ns", "NaN", "-0")


def _type(home: Path) -> Ready:
    """Type text."""
    return _text_target(parse_type, _COLUMN_TYPES, "not null", "(((", "[", "\\ud800", ",", "99999")


def _spec(home: Path) -> Ready:
    """Index specs, and what they cost."""

    def read(text: str) -> None:
        IndexSpec.parse(text).order()

    return _text_target(read, _SPECS, *_DOMAINS, "epsilon=", "beta=0", "max_bytes=1", "1/0", "inf", "nan", "=")


def _schema(home: Path) -> Ready:
    """Schema files, which read as they are written."""

    def read(text: str) -> None:
        file = SchemaFile.parse(text)
        assert SchemaFile.parse(file.text) == file

    seeds = [
        '# a table\nk bigint not null\n"odd name" text(20) # a comment\n--index k int:0:99 epsilon=0.5\n',
        'c category(["a","#","\\"b"])\r\nd date\n--index c category:["a","#"] epsilon=1/3 beta=1e-9\n',
    ]
    return _text_target(read, seeds, *_COLUMN_TYPES, *_SPECS, "not null", "--index", "\\u0000", "\n", '"', "#")


def _csv(home: Path) -> Ready:
    """CSV files: opened with and without declared types, read, and turned into words. The first byte says which.

    What is left undeclared is read as text, so that every cell is tried in both ways.
    """
    paths = [home / "any.csv", home / "any.tsv"]
    spec = IndexSpec.parse("k int:0:31 epsilon=1")

    def run(data: bytes) -> None:
        if not data:
            return
        path = paths[data[0] & 1]
        path.write_bytes(data[1:])
        types = {"k": "integer", "d": "date", "c": 'category(["a","b"])'} if data[0] & 2 else {}
        domains = {spec.column: spec.domain} if data[0] & 4 else {}
        with open_source(path, types=types, domains=domains, batch_rows=4) as source:
            rest = {name: "text(64)" for name in source.schema.names if name.lower() not in {*types, *domains}}
            schema = source.declared(rest | types, domains)
            layout = _row_layout(schema, spec, domains)
            for batch in source:
                encode_rows(batch, layout, [(schema.place("k"), spec.domain)] if layout.index_sizes else [])

    first = b'k,name,d,c\n1,"a ""b""",2020-01-01,a\n2,,2020-02-30,b\n'
    seeds = [
        b"\0" + first,
        b"\7" + first.replace(b",", b"\t"),
        b"\6" + b'\xef\xbb\xbfk,d,c\r\n3,2021-12-31,a\r\n,"1999-01-01",\r\n',
        b"\0x,y,z,w\n1.5,true,12:30:00,2020-01-01 10:00:00\n-1e300,false,23:59:59.5,2020-01-01T10:00:00Z\n",
    ]
    vocabulary = _vocabulary([seed.decode(errors="replace") for seed in seeds], '""', "\r", "\n\n", ",,", "nan", "1e5")
    mutate_text = _mutate_text(vocabulary)
    return Ready(run, seeds, lambda data, rng: data[:1] + mutate_text(data[1:], rng))


def _row_layout(schema: Any, spec: IndexSpec, domains: Any) -> Any:
    from scumble.wire.requests import RowLayout

    return RowLayout(schema, (spec.domain.size,) if domains and spec.column in schema else ())


# --- planted: a copy of a target with a fault in it ------------------------------------------------


def _planted_length(home: Path) -> Ready:
    """An index decoder that trusts a length."""

    def run(data: bytes) -> None:
        body = data[len(index_file.MAGIC) :]
        if len(body) < index_file.HEADER.size + 4:
            raise Tampered
        (length,) = index_file.TEXT_LENGTH.unpack_from(body, index_file.HEADER.size)
        end = index_file.HEADER.size + 4 + length
        index_file.TEXT_LENGTH.unpack_from(body, end)  # beyond the end, if the length says so

    return Ready(run, _index_seeds(home))


def _planted_loop(home: Path) -> Ready:
    """A reader of domains that steps over spaces, and forgets to where there are two of them."""

    def read(text: str) -> None:
        at = text.find("  ")
        while 0 <= at < len(text):
            at += text[at] != " "
        parse_domain(text)

    return _text_target(read, _DOMAINS)


def _planted_c_loop(home: Path) -> Ready:
    """A reader whose C code does not come back, and keeps the interpreter meanwhile."""

    def read(text: str) -> None:
        if "  " in text:
            deque(repeat(text), maxlen=0)
        parse_domain(text)

    return _text_target(read, _DOMAINS)


def _planted_deaf(home: Path) -> Ready:
    """The same with every signal blocked: only from outside can it be ended."""
    c_loop = _planted_c_loop(home)

    def run(data: bytes) -> None:
        if b"  " in data:
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        c_loop.run(data)

    return Ready(run, c_loop.seeds, c_loop.mutate)


def _planted_crash(home: Path) -> Ready:
    """A reader that ends the process at a word that only coverage leads to."""

    def run(data: bytes) -> None:
        if data[:1] == b"S" and data[1:2] == b"C" and data[2:3] == b"U" and data[3:4] == b"M":
            os.abort()

    def mutate(data: bytes, rng: Random) -> bytes:
        place = rng.randrange(4)
        return data[:place].ljust(place, b".") + rng.choice(ascii_uppercase).encode() + data[place + 1 : 4]

    return Ready(run, [b"....", b"abcd"], mutate)


Prepare = Callable[[Path], Ready]


def _named(*targets: Prepare) -> dict[str, Prepare]:
    return {target.__name__.strip("_").replace("_", "-"): target for target in targets}


TARGETS = _named(
    *(_index, _folder, _store, _owner_files, _ledger, _manifest, _catalog, _wire),
    *(_sql, _domain, _type, _spec, _schema, _csv),
)
PLANTED = _named(_planted_length, _planted_loop, _planted_c_loop, _planted_deaf, _planted_crash)
