"""Lives of a database, in any order: load, retry, kill, roll back, restore, drop, rekey, grant, revoke, from everybody.

An oracle beside the database knows the true rows of every version, who has seen which, and every index that the
provider ever got to see. Each answer has to be exact for the version that the provider shows, or a refusal that the
situation allows: `Tampered` if and only if the provider puts somebody back behind what it has seen. And an owner's
ledger has at least the loss of every release that it can know of, for the row that lost most.
"""

import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from mortal import Host, Killed

import scumble
from scumble.enclave.vault import Vault
from scumble.errors import BadQuery, KeyRefused, Locked, Overdraft, Refused, Stale, Tampered, Unavailable
from scumble.index.file import decode
from scumble.owner.database import Database
from scumble.owner.keys import AnalystKey, open_key
from scumble.owner.loading import LoadOptions
from scumble.store.files import FileStore
from scumble.wire.catalog import Catalog
from scumble.wire.storage import public_part

INDEX = "k int:0:63 epsilon=1/2 slack=lossless"
NARROW = {"u": " columns=k"}  # whose rows are in the order of loading, too
BLOCKS = (None, None, 4)  # of a load: mostly as many as suit, which is one for so few rows
OWNERS, ANALYST = ("desk", "laptop"), "ada"
TABLES = ("t", "u")
SEEDS = 4
ROWS = 6
LIMIT, ALLOTMENT = 1000, 1
STEPS = ("pages", "before", "after")  # where an enclave is killed: before the commit of a load, or after
STATEMENTS = {each.name for each in fields(LoadOptions)}

Row = tuple[int, int]


def rows_of(seed: int) -> tuple[Row, ...]:
    """Rows that no other seed has."""
    return tuple((seed * ROWS + place, seed * 100 + place) for place in range(ROWS))


@dataclass(frozen=True, repr=False)
class Node:
    """A version as the oracle knows it: the rows of every batch, and what it follows."""

    number: int
    parent: "Node | None"
    tables: dict[str, dict[str, tuple[Row, ...]]]
    granted: bool = False
    restored: bool = False
    keys: int = 0  # how many rekeys there were

    def __repr__(self) -> str:
        return f"version {self.number}"

    def follows(self, seen: "Node | None") -> bool:
        """Whether somebody who has seen another version may go on to this one: a descendant, or a later restore."""
        at: Node | None = self
        while at is not None and seen is not None:
            if at is seen or (at.restored and at.number > seen.number):
                return True
            at = at.parent
        return seen is None


@dataclass
class Releases:
    """Every index that the provider has seen: its rows, its cost, and the version in which it came first."""

    seen: dict[bytes, tuple[tuple[Row, ...], Fraction, Node]] = field(default_factory=dict)

    def loss(self, known: Callable[[Node], bool]) -> Fraction:
        """The true loss, by the releases of such versions, of the row that lost most: what it is in adds up."""
        lost: Counter[Row] = Counter()
        for rows, epsilon, node in self.seen.values():
            if known(node):
                for row in set(rows):
                    lost[row] += epsilon  # type: ignore[assignment]
        return max(map(Fraction, lost.values()), default=Fraction(0))


class Shaky(FileStore):
    """A store that kills the enclave that works on it, at a chosen step."""

    armed: str | None = None

    def finish_run(self, *given: Any) -> Any:
        self._reach("pages")
        return super().finish_run(*given)

    def commit(self, *given: Any) -> Any:
        self._reach("before")
        super().commit(*given)
        self._reach("after")

    def _reach(self, step: str) -> None:
        if self.armed == step:
            self.armed = None
            raise Killed


class Life(RuleBasedStateMachine):
    """Two devices of an owner, an analyst, two enclaves, and a provider that kills and rolls back at will."""

    ended: ClassVar[Counter[str]] = Counter()
    """How what people did has ended, in all lives of this process."""

    def __init__(self) -> None:
        super().__init__()
        self.home = Path(tempfile.mkdtemp())
        self.folder, self.snapshots = self.home / "db", list[tuple[Path, Node]]()
        (self.home / "desk").mkdir()
        with scumble.create(self.folder, key=self._key("desk"), limit=LIMIT, delta_limit="1e-3"):
            pass
        shutil.copytree(self.home / "desk", self.home / "laptop")
        (self.home / ANALYST).mkdir()
        self.identity = AnalystKey.create(self._key(ANALYST), None).text
        self.vaults = [Vault(), Vault()]
        self.releases, self.nodes = Releases(), 0
        self.shown = self._node(None, {})
        self.anchors: dict[str, Node | None] = {"desk": self.shown, "laptop": self.shown, ANALYST: None}
        self.memory: list[Node | None] = [None, None]
        self.loaded: set[tuple[str, int]] = set()
        self.revoked = False

    def teardown(self) -> None:
        shutil.rmtree(self.home)

    # --- the oracle ----------------------------------------------------------------------------------------

    def _key(self, client: str) -> Path:
        return self.home / client / "db.key"

    def _node(self, parent: Node | None, tables: dict[str, dict[str, tuple[Row, ...]]], **more: Any) -> Node:
        self.nodes += 1
        return Node(self.nodes, parent, tables, **more)

    def _next(self, tables: dict[str, dict[str, tuple[Row, ...]]] | None = None, **more: Any) -> Node:
        there = self.shown
        return self._node(
            there, there.tables if tables is None else tables, **({"granted": there.granted, "keys": there.keys} | more)
        )

    def _head(self) -> Catalog:
        store = FileStore(self.folder)
        try:
            return Catalog.from_json(json.loads(public_part(store.head())))
        finally:
            store.close()

    def _may_see(self, client: str, enclave: int) -> bool:
        """Whether nobody is put back who takes part: the client, or the enclave."""
        return self.shown.follows(self.anchors[client]) and self.shown.follows(self.memory[enclave])

    def _went_on(self, client: str, enclave: int, node: Node) -> None:
        self.shown = node
        self.anchors[client] = self.memory[enclave] = node

    @contextmanager
    def _opened(self, client: str, enclave: int, armed: str | None = None, **more: Any) -> Iterator[Database]:
        store = Shaky(self.folder)

        def killed() -> Vault:
            self.vaults[enclave], self.memory[enclave] = Vault(), None
            return self.vaults[enclave]

        provider, path = Host(store, self.vaults[enclave], killed), self._key(client)
        with Database(provider, open_key(path, store.database, None), path, **more) as db:
            store.armed = armed
            yield db

    @contextmanager
    def _judged(self, client: str, enclave: int) -> Iterator[None]:
        """Judge how something ends: it must end well where it can, and in the right refusal where it cannot."""
        fine = self._may_see(client, enclave)
        memory = self.memory[enclave]
        locked = client == ANALYST and (memory is None or memory.keys != self.shown.keys)
        refused = client == ANALYST and not self.shown.granted
        try:
            yield
        except (Tampered, KeyRefused):
            assert not fine, "tampering was claimed where there was none"
            self.ended["tampered"] += 1
        except (Locked, Refused):
            killed = client == ANALYST and self.memory[enclave] is None  # meanwhile: the owner has to open it first
            assert locked or refused or killed or not fine, "somebody was refused who has the right"
            self.ended["refused"] += 1
        else:
            assert fine, "a version was accepted that goes back behind what was seen"
            assert not locked, "an enclave without the key gave an answer"
            assert not refused, "somebody without a right got an answer"
            self.ended["well"] += 1

    # --- what people do ------------------------------------------------------------------------------------

    @rule(client=st.sampled_from([*OWNERS, ANALYST]), enclave=st.integers(0, 1), table=st.sampled_from(TABLES))
    def query(self, client: str, enclave: int, table: str) -> None:
        expected = Counter(row for batch in self.shown.tables.get(table, {}).values() for row in batch)
        with self._judged(client, enclave), self._opened(client, enclave) as db:
            visible = {each.name for each in db.tables}
            for where in ("", " WHERE k < 1000"):
                try:
                    found = Counter(db.sql(f"SELECT k, v FROM {table}{where}").fetchall())  # noqa: S608
                except BadQuery:
                    assert table not in visible
                    continue
                assert found == expected
                keys = Counter(db.sql(f"SELECT k FROM {table}{where}").fetchall())  # noqa: S608
                assert keys == Counter((k,) for k, _ in expected.elements())
            assert visible == {name for name in self.shown.tables if client != ANALYST or name == TABLES[0]}
            self._went_on(client, enclave, self.shown)
            if client in OWNERS:
                lost = self.releases.loss(self.shown.follows)
                assert db.ledger.spent() >= lost, "more was lost than the ledger says"

    @rule(
        client=st.sampled_from([*OWNERS, ANALYST]),
        enclave=st.integers(0, 1),
        table=st.sampled_from(TABLES),
        seed=st.integers(0, SEEDS - 1),
        killed=st.sampled_from([None, None, *STEPS]),
        states=st.booleans(),
        blocks=st.sampled_from(BLOCKS),
    )
    def load(
        self,
        client: str,
        enclave: int,
        table: str,
        seed: int,
        killed: str | None,
        states: bool,
        blocks: int | None = None,
    ) -> None:
        if client == ANALYST and table != TABLES[0]:
            return
        before = {run.batch for there in self._head().tables for run in there.runs}
        again = (table, seed) in self.loaded
        stated = {"again": again, "new_rows": states and not again}
        options: dict[str, Any] = {name: value for name, value in stated.items() if value and name in STATEMENTS}
        source = pa.table(dict(zip(("k", "v"), map(list, zip(*rows_of(seed), strict=True)), strict=True)))
        known = self.shown
        with self._judged(client, enclave):
            try:
                with self._opened(client, enclave, killed) as db:
                    index = INDEX + NARROW.get(table, "") + ("" if blocks is None else f" blocks={blocks}")
                    db.load(table, source, indexes=[index], capacity=16, page_rows=16, **options)
            except Overdraft:
                assert client == ANALYST
            except (Unavailable, Stale):
                assert killed
                self.anchors[client] = self.memory[enclave] = None  # as far as the oracle knows
            except BadQuery:
                assert client == ANALYST
        new = {run.batch for there in self._head().tables for run in there.runs} - before
        assert len(new) <= 1, "a batch was loaded twice"
        if new:
            (batch,) = new
            assert batch is not None
            tables = dict(known.tables)
            tables[table] = tables.get(table, {}) | {batch: rows_of(seed)}
            node = self._next(tables)
            self.loaded.add((table, seed))
            self._went_on(client, enclave, node)

    @precondition(lambda self: any(self.shown.tables.values()))
    @rule(client=st.sampled_from(OWNERS), enclave=st.integers(0, 1), data=st.data())
    def drop(self, client: str, enclave: int, data: st.DataObject) -> None:
        table = data.draw(st.sampled_from(sorted(self.shown.tables)))
        with self._judged(client, enclave), self._opened(client, enclave) as db:
            db.drop(table)
            left = {name: batches for name, batches in self.shown.tables.items() if name != table}
            self._went_on(client, enclave, self._next(left, granted=self.shown.granted and table != TABLES[0]))

    @precondition(lambda self: TABLES[0] in self.shown.tables and not self.shown.granted and not self.revoked)
    @rule(client=st.sampled_from(OWNERS), enclave=st.integers(0, 1))
    def grant(self, client: str, enclave: int) -> None:
        with self._judged(client, enclave), self._opened(client, enclave) as db:
            db.grant(ANALYST, self.identity, {TABLES[0]: ["read", "load"]}, epsilon=ALLOTMENT, delta="1e-4")
            self._went_on(client, enclave, self._next(granted=True))

    @precondition(lambda self: self.shown.granted)
    @rule(client=st.sampled_from(OWNERS), enclave=st.integers(0, 1))
    def revoke(self, client: str, enclave: int) -> None:
        with self._judged(client, enclave), self._opened(client, enclave) as db:
            db.revoke(ANALYST)
            self.revoked = True
            self._went_on(client, enclave, self._next(granted=False))

    @rule(enclave=st.integers(0, 1))
    def rekey(self, enclave: int) -> None:
        with self._judged("desk", enclave), self._opened("desk", enclave) as db:
            db.rekey()
            self._went_on("desk", enclave, self._next(keys=self.shown.keys + 1))
            for name in ("db.key", "db.anchor"):  # the owner carries the key along, and what was seen with it
                shutil.copy(self.home / "desk" / name, self.home / "laptop" / name)
            self.anchors["laptop"] = self.shown

    # --- what the provider does ----------------------------------------------------------------------------

    @rule(enclave=st.integers(0, 1))
    def kill(self, enclave: int) -> None:
        self.vaults[enclave], self.memory[enclave] = Vault(), None

    @precondition(lambda self: len(self.snapshots) < 3)
    @rule()
    def keep(self) -> None:
        path = self.home / f"snapshot{len(self.snapshots)}"
        shutil.copytree(self.folder, path)
        self.snapshots.append((path, self.shown))

    @precondition(lambda self: self.snapshots)
    @rule(data=st.data())
    def put_back(self, data: st.DataObject) -> None:
        path, node = data.draw(st.sampled_from(self.snapshots))
        shutil.rmtree(self.folder)
        shutil.copytree(path, self.folder)
        self.shown = node

    # --- what holds all the time -----------------------------------------------------------------------------

    @invariant()
    def what_was_released_is_known(self) -> None:
        """Every index in a version that the provider got to see."""
        for table in self._head().tables:
            for run in table.runs:
                if run.index is not None and run.index not in self.releases.seen:
                    rows = self.shown.tables[table.name][str(run.batch)]
                    self.releases.seen[run.index] = rows, decode(run.index).epsilon, self.shown


class RestoredLife(Life):
    """The same, and the owner may accept what was put back."""

    @precondition(lambda self: not all(self.shown.follows(self.anchors[client]) for client in OWNERS))
    @rule(client=st.sampled_from(OWNERS), enclave=st.integers(0, 1))
    def accept_restored(self, client: str, enclave: int) -> None:
        anchor = self.anchors[client]
        if anchor is None or self.shown.follows(anchor):
            return
        if anchor.keys != self.shown.keys:  # it was sealed under a key that the owner has replaced since
            with pytest.raises((KeyRefused, Tampered, Refused)), self._opened(client, enclave, accept_restored=True):
                pass
            return
        with self._opened(client, enclave, accept_restored=True):
            granted = self.shown.granted and not self.revoked
            self._went_on(client, enclave, self._next(granted=granted, restored=True))
