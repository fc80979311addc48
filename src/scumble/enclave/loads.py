"""Loads: the rows of a batch become runs, sorted sealed copies of them, each with its private index.

Rows are SECRET until they are sealed; the runs' catalog entries are public, and all that they say of the rows is in
their indexes. `Load.build` is the whole of it: for each indexed attribute, sort its keys obliviously, count them
obliviously, learn the index; then sort the rows by their keys, each dummy into the block that wants it, and seal the
columns page by page: those that the copy holds. The owner has spent and drawn each index's budget before.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256

import numpy as np

from scumble.enclave import kernels
from scumble.enclave.dummies import Dummies
from scumble.enclave.grants import Cost, Payment
from scumble.enclave.grids import EarlierRuns, earlier_runs
from scumble.enclave.orders import Copy, blocks_of, check_orders, copies_of, index_of, paid_budget
from scumble.enclave.pages import DataKeys, keep_tally, reserve_run
from scumble.enclave.placing import Placed, placed
from scumble.enclave.rows import Rows
from scumble.enclave.sealing import seal_run
from scumble.enclave.validation import RowCheck, rules_of
from scumble.enclave.versions import OpenVersion
from scumble.errors import Exists, InvalidParameter, Refused, Stale
from scumble.index.contract import RunIndex
from scumble.index.dp_plr import DESIGN
from scumble.index.grid import NEW
from scumble.index.kinds import kind_of
from scumble.index.tally import Tally
from scumble.privacy.noise import Fact, Noise, encode_facts
from scumble.wire.catalog import Run, Streamed, Table
from scumble.wire.grants import Right
from scumble.wire.requests import BeginLoad, Build, IndexOrder, RowLayout
from scumble.wire.storage import Storage

__all__ = ["Load", "begin_load", "loaded"]

ANALYST_MEMORY_BYTES = 1 << 30
_BATCH = re.compile("[0-9a-f]{32}")
DUMMY_ROWS = 1 << 16  # so many are added at a time


@dataclass(frozen=True)
class Place:
    """PUBLIC: where the runs of a load go, if not after all others: see `BeginLoad`."""

    instead: frozenset[str] = frozenset()
    beside: bool = False
    terms: tuple[str, ...] | None = None

    def kept(self, table: Table) -> tuple[Run, ...]:
        """The runs of a table that stay."""
        return tuple(run for run in table.runs if run.id not in self.instead)


class Load:
    """SECRET: rows on their way into a table."""

    def __init__(
        self,
        storage: Storage,
        table: Table,
        orders: tuple[IndexOrder, ...],
        page_rows: int,
        memory_bytes: int,
        batch: str,
        cost: Cost,
        *,
        tail: bool = False,
        place: Place | None = None,
    ) -> None:
        self.batch, self.cost, self._tail = batch, cost, tail
        self.place = place or Place()
        self._storage, self.table, self._orders, self._page_rows = storage, table, orders, page_rows
        copies, kept = copies_of(table.schema, orders), self.place.kept(table)
        has_all = self.place.beside and any(run.columns is None for run in kept if not run.tail)
        self._copies = copies[: len(orders)] if has_all else copies
        self._layout = RowLayout(table.schema, tuple(order.domain.size for order in orders))
        # Two chunks are merged at a time, and a third is being read or written.
        chunk_rows = memory_bytes // (24 * self._layout.words) // page_rows * page_rows
        self._rows = Rows(storage, self._layout.words, max(chunk_rows, page_rows))
        self.replaces = tuple(run for run in table.runs if run.id in self.place.instead)
        """Runs whose rows these are: they leave the table."""
        self._check = RowCheck(self._layout, rules_of(table.schema, orders))
        self._hash = sha256()  # of the rows as they come, however they are cut
        self._noise_key = self._fingerprint = self._paid_for = b""
        self._capacity = 0
        self._keys: DataKeys | None = None
        self._names: list[str] = []
        self._tallies: dict[str, Tally | None] = {}
        self.earlier: dict[str, EarlierRuns] = {}
        self._spoiled = False
        self._built: tuple[tuple[Run, Dummies], ...] | None = None

    @property
    def sent_rows(self) -> int:
        """How many rows there are so far, dummies included. PUBLIC."""
        return len(self._rows)

    @property
    def right(self) -> Right:
        """What an analyst needs to have it built."""
        return "insert" if self._tail else "load"

    def append(self, rows: memoryview) -> None:
        """Take some rows, laid out as wire/requests.py says."""
        if len(rows) % (8 * self._layout.words):
            raise InvalidParameter("a row is cut short", hint="send whole rows")
        if self._fingerprint:
            raise InvalidParameter("the rows were paid for already", hint="begin another load")
        self._hash.update(rows)
        batch = np.frombuffer(rows, np.int64).reshape(-1, self._layout.words)
        self._check.look_at(batch)
        self._rows.append(batch)

    def seal_rows(self, batch: str, keys: DataKeys) -> bytes:
        """Name the batch, and take the rows that were sent, dummies included, for all of it.

        Returns what a payment is for: these rows, on these terms. Other terms would be another release of them.
        BadRows if any of them does not fit the table, before it is paid for: which one it is, nobody learns.
        """
        self._check.settle(0, len(self._rows))
        self._take_grids(len(self._rows))
        self.batch, self._fingerprint = batch, self._fingerprint_under(keys)
        terms = encode_facts(tuple(map(self._terms, self._orders)))
        self._paid_for = keys.fingerprint(self._fingerprint + sha256(terms).digest())
        return self._paid_for

    def _fingerprint_under(self, keys: DataKeys) -> bytes:
        """Of the rows, and of the design: what was paid for under another one would be another release."""
        return keys.fingerprint(self._hash.digest() + bytes([DESIGN]))

    def _take_grids(self, rows: int) -> None:
        """Give orders that ask for it the grid of the table's earlier batches, so that all of them can be merged."""
        self._orders = tuple(
            replace(order, grid=self.earlier[order.attribute].grid(rows)) if order.grid == NEW else order
            for order in self._orders
        )

    def is_paid(self, payment: Payment | None, request: Build) -> bool:
        """Whether just these rows and terms were paid for under the batch's name, and all of their cost, if any."""
        if self.batch != request.batch:
            return False
        if payment is None:
            return not (self.cost.epsilon or self.cost.delta)
        return payment.digest == self._paid_for and payment.covers(self.cost)

    def reserve(self, keys: DataKeys, capacity: int) -> None:
        """Make room for the runs; `capacity`, public, is how many rows were sent, dummies included.

        What can fail here, such as a full disk, fails before the owner draws the indexes' budgets. BadRows if any row
        does not fit the table: which one it is, nobody learns.
        """
        if len(self._rows) != capacity or capacity % self._page_rows:
            raise InvalidParameter("the rows do not fill the capacity", hint="send dummy rows to the end of a page")
        self._check.settle(0, capacity)
        self._take_grids(capacity)
        self._capacity, self._keys, self._noise_key = capacity, keys, keys.noise()
        self._fingerprint = self._fingerprint_under(keys)
        self._names = [os.urandom(16).hex() for _ in self._copies]
        pages = capacity // self._page_rows
        for name, copy in zip(self._names, self._copies, strict=True):
            reserve_run(self._storage, self.table, name, pages, self._page_rows, copy.columns)

    def confirm(self, real_rows: int) -> None:
        """Refuse another number of real rows than were sent: BadRows."""
        self._check.settle(real_rows, real_rows)

    def build(self, real_rows: int) -> tuple[tuple[Run, Dummies], ...]:
        """Make the runs, once: asked again, because the database has changed meanwhile, it has them."""
        if self._built is None:
            if self._spoiled:
                raise InvalidParameter("these rows were used up by a build that failed", hint="begin another load")
            self._spoiled = True  # their keys give way to what they are sorted by
            self._built = tuple(self._build(real_rows))
        return self._built

    def _build(self, real_rows: int) -> Iterator[tuple[Run, Dummies]]:
        learned = [self._learn(place, real_rows) for place in range(len(self._orders))]
        runs = list(zip(self._names, self._copies, strict=True))
        by_key, as_loaded = runs[: len(self._orders)], runs[len(self._orders) :]
        # These are sealed first, while the rows lie in the order of loading.
        whole = [self._seal(name, copy, None, self._capacity) for name, copy in as_loaded]
        self._add_dummies(max([self._capacity, *(where.capacity for where in learned)]) - len(self._rows))
        for place, ((name, copy), where) in enumerate(zip(by_key, learned, strict=True)):
            key_word, seen = self._layout.key_offset + place, np.zeros(1, np.int64)
            self._rows.sort(key_word, partial(where.write_keys, key_word=key_word, seen=seen))
            yield self._seal(name, copy, where.index, where.capacity), where.dummies
        yield from ((run, Dummies.after(real_rows)) for run in whole)

    def _learn(self, place: int, real_rows: int) -> Placed:
        """Count the sorted keys at or below each rank, and release the index. Cost: what the owner has drawn."""
        order, keys = self._orders[place], self._rows.keys(self._layout.key_offset + place)
        keys.sort()
        cumulative = np.zeros(order.domain.size, np.int64)
        for chunk in keys.chunks():
            cumulative += kernels.cumulative_counts(chunk[:, 0], order.domain.size)
        counts = np.diff(cumulative, prepend=0)
        nullable = self.table.schema[order.attribute].nullable
        index, paid = index_of(order, blocks_of(order, self._capacity, nullable=nullable)), paid_budget(order)
        index.unsafe_fit_counts(
            counts, self._noise(order), domain=order.domain, budget=paid, beta=order.beta, capacity=self._capacity
        )
        kind = kind_of(order.mechanism)
        released, self._tallies[order.attribute] = kind.released(index), kind.tally(index)
        return placed(released, counts, real_rows, self._capacity, self._page_rows, nullable=nullable)

    def _add_dummies(self, more: int) -> None:
        step = max(1, min(more, DUMMY_ROWS))
        rows = np.zeros((step, self._layout.words), np.int64)
        rows[:, self._layout.key_offset :] = self._layout.dummy_keys()
        for at in range(0, more, step):
            self._rows.append(rows[: more - at])

    def _terms(self, order: IndexOrder) -> Fact:
        """All that an index depends on besides the rows: also whether they may lack a key, which takes blocks away."""
        return *index_terms(order), self.table.schema[order.attribute].nullable

    def _noise(self, order: IndexOrder) -> Noise:
        """The noise of an index: the same if the same rows come again under the same batch and terms, or else fresh.

        Neither the table's id nor how many rows a page has is among the terms: a new table has another id each time it
        is tried, and the index depends on neither.
        """
        terms = DESIGN, self._terms(order), self._capacity, self._layout.words, self._layout.key_offset
        return Noise.derived(self._noise_key, "index", batch=self.batch, terms=terms, digest=self._fingerprint)

    def _seal(self, name: str, copy: Copy, index: RunIndex | None, capacity: int) -> Run:
        """Seal the first rows as a run: all that are real are among them."""
        if self._keys is None:
            raise InvalidParameter("no room was made for the runs", hint="reserve it first")
        encoded = None if index is None else index.to_bytes()
        made = Run(name, self.batch, copy.attribute, capacity, self._page_rows, encoded, (), copy.columns)
        tally = None if copy.attribute is None else self._tallies.get(copy.attribute)
        kept = None if tally is None else keep_tally(self._storage, self._keys, tally.to_bytes())
        made = replace(made, tail=self._tail, tally=kept)
        return seal_run(self._storage, self._keys, self.table, self._layout, self._rows, made, None)


def index_terms(order: IndexOrder) -> tuple[Fact, ...]:
    """All that an order says, to name the release of its index."""
    return (
        order.attribute,
        order.domain.text,
        order.epsilon,
        order.delta,
        order.beta,
        order.rows_per_user,
        order.max_bytes,
        order.slack,
        order.mechanism,
        order.alpha_s,
        order.blocks,
        # As a load that an earlier commit has left unfinished named it: the same rows get the same noise.
        *(() if order.columns is None else (("columns", *order.columns),)),
        *(() if order.hint is None else (("hint", order.hint),)),
        *(() if order.plan is None else (("plan", order.plan),)),
        *(() if order.grid is None else (("grid", order.grid),)),
    )


# --- from a request to a version ---------------------------------------------------------------------


def begin_load(version: OpenVersion, request: BeginLoad) -> Load | None:
    """A load into a table of this version or into a new one, if the signer may load there; None if it was loaded."""
    version.check_signed()
    page_rows, memory_bytes = request.page_rows, request.memory_bytes
    if not _BATCH.fullmatch(request.batch) or page_rows & (page_rows - 1) or not 16 <= page_rows <= 1 << 20:
        raise InvalidParameter("a batch has 32 hexadecimal digits, a page a power of two of rows", hint="upgrade")
    if version.has_batch(request.batch, request.instead):
        return None
    cost = Cost.of(request.orders, request.capacity_cost)
    table = Table(request.table_id, request.table, request.schema, ())
    if request.table in version.catalog or version.grant is not None:
        table = version.catalog.table(request.table)
    place = Place(frozenset(request.instead), request.beside, request.terms)
    if version.grant is not None:
        if place != Place():
            raise Refused
        memory_bytes = min(memory_bytes, ANALYST_MEMORY_BYTES)
        if not version.grant.may("insert" if request.tail else "load", table.name):
            raise Refused
        version.manifest.access.check_left(version.grant, cost, request.batch)
    if request.tail and (request.orders or table.id not in version.catalog.by_id):
        raise InvalidParameter("rows are inserted into a table that is there, without indexes", hint="create it first")
    if request.tail and place != Place():
        raise InvalidParameter("rows of the tail take nobody's place", hint="upgrade Scumble")
    left = replace(table, runs=tuple(run for run in place.kept(table) if not run.tail))
    made = copies_of(table.schema, request.orders)
    other = not request.tail and not place.beside and left.runs and dict(left.copies) != dict(made)
    if table.schema != request.schema or other:
        raise Exists(
            f"the table {request.table!r} is there, with other columns or indexes",
            hint="load into a table of another name",
        )
    check_orders(request.orders)
    load = Load(
        version.storage,
        table,
        request.orders,
        page_rows,
        memory_bytes,
        request.batch,
        cost,
        tail=request.tail,
        place=place,
    )
    load.earlier = earlier_runs(version, table, request.orders)
    return load


def loaded(version: OpenVersion, load: Load, real_rows: int, streamed: Streamed | None = None) -> OpenVersion:
    """Build the runs; the version that has them, in the table as it is by then. Nobody else sees it yet."""
    manifest = version.manifest
    try:
        load.confirm(real_rows)
        built = load.build(real_rows)
    finally:
        version.storage.drop_scratch()
    there = manifest.catalog.by_id.get(load.table.id)
    if there is None:
        if load.table.runs or load.table.name in manifest.catalog:
            raise Stale("the table was dropped, or made by another load, meanwhile", hint="load again")
        there = load.table
    place = load.place
    if place.beside and not _has_same_runs(there, load.table):
        raise Stale("the table has changed meanwhile", hint="try again")
    # In the order of loading, which tells a ledger on another device what was in the table when a batch was stated new.
    merged = (*_batches(load.table), load.batch) if place.beside else ()
    new = tuple(replace(run, merged=merged) for run, _ in built)
    terms = there.terms if place.terms is None else place.terms
    runs = (*_without(there, load.replaces), *new)
    table = replace(there, runs=runs, terms=terms, streamed=streamed or there.streamed)
    _check_order(table)
    return version.having(table, {run.id: dummies for run, dummies in built})


def _check_order(table: Table) -> None:
    if not table.is_right:
        raise InvalidParameter("the table would not be in order", hint="upgrade Scumble")


def _without(table: Table, replaced: tuple[Run, ...]) -> tuple[Run, ...]:
    """A table's runs but some; Stale if these are not as they were."""
    gone = {run.id: run.layers for run in replaced}
    if gone != {run.id: run.layers for run in table.runs if run.id in gone}:
        raise Stale("the rows have changed meanwhile", hint="try again")
    return tuple(run for run in table.runs if run.id not in gone)


def _has_same_runs(now: Table, before: Table) -> bool:
    return [(run.id, run.layers) for run in now.runs] == [(run.id, run.layers) for run in before.runs]


def _batches(table: Table) -> tuple[str, ...]:
    """The batches whose rows are in a table, but for its tail."""
    return tuple(dict.fromkeys(batch for run in table.settled for batch in run.batches))
