"""Loads: rows in, sorted runs out, with nulls after all keys and dummies after the nulls; the same in little memory."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from enclave_tables import DATA_KEY, DATABASE, KEYS, OWNER, OWNER_KEY, TITLE, MemoryStorage, signed_manifest, table_of
from numpy.typing import NDArray

from scumble.enclave import loads
from scumble.enclave.dummies import Dummies
from scumble.enclave.grants import AccessList, Cost, Payment
from scumble.enclave.loads import Load, begin_load, loaded
from scumble.enclave.manifests import open_manifest
from scumble.enclave.orders import Copy
from scumble.enclave.pages import RunReader
from scumble.enclave.vault import Unlocked, Vault
from scumble.enclave.versions import History, OpenVersion, Pending
from scumble.errors import BadRows, Exists, InvalidParameter, NotFound, Overdraft, Refused, Stale
from scumble.index.dp_plr import DESIGN
from scumble.types import parse_domain
from scumble.wire.catalog import Catalog, Run, Table
from scumble.wire.charges import Charge
from scumble.wire.grants import Grant
from scumble.wire.lineage import Link, sign_draft
from scumble.wire.requests import BeginLoad, Build, IndexOrder, RowLayout
from scumble.wire.storage import pack

PAGE_ROWS = 16
BATCH, OTHER_BATCH = "ba" * 16, "bb" * 16
SIZE = 64
TABLE = table_of("integer", "bigint not null", "text(12)")
TEXT = TABLE.schema.columns[2].type
NOTHING = Cost(Fraction(0), Fraction(0))
ORDERS = tuple(
    IndexOrder(
        name, parse_domain(f"int:0:{SIZE - 1}"), Fraction(1), Fraction(0), Fraction(1, 10**6), 1, 4096, "measured"
    )
    for name in ("c0", "c1")
)


def _rows(real: int, capacity: int, orders: int, seed: int = 1) -> NDArray[np.int64]:
    """Real rows, a fifth of them with a null in c0, and dummies after them."""
    layout = RowLayout(TABLE.schema, (SIZE,) * orders)
    rng = np.random.default_rng(seed)
    rows = np.zeros((capacity, layout.words), np.int64)
    first, second = rng.integers(0, SIZE, real), rng.integers(0, SIZE, real)
    null = rng.integers(0, 5, real) == 0
    rows[:real, layout.column_offsets[0]] = np.where(null, 0, first)
    rows[:real, layout.column_offsets[1]] = second
    texts = [TEXT.words_of(str(1000 + place)) for place in range(real)]
    rows[:real, layout.column_offsets[2] : layout.validity_offset] = np.array(texts).reshape(real, TEXT.words)
    rows[:real, layout.validity_offset] = np.where(null, 0b110, 0b111)
    for place, ranks in list(enumerate((np.where(null, SIZE, first), second)))[:orders]:
        rows[:real, layout.key_offset + place] = ranks
        rows[real:, layout.key_offset + place] = SIZE + 1
    return rows


def _built(
    rows: NDArray[np.int64], orders: tuple[IndexOrder, ...], memory_bytes: int = 1 << 24
) -> tuple[tuple[Run, ...], MemoryStorage]:
    storage = MemoryStorage()
    load = Load(storage, TABLE, orders, PAGE_ROWS, memory_bytes, "ba" * 16, NOTHING)
    for at in range(0, len(rows), 37):
        load.append(memoryview(rows[at : at + 37].tobytes()))
    load.reserve(KEYS, len(rows))
    real_rows = int((rows[:, -1] <= SIZE).sum()) if orders else len(rows)
    return tuple(run for run, _ in load.build(real_rows)), storage


def _content(table: Table, run: Run, storage: MemoryStorage) -> list[tuple[int, int, int, int]]:
    """Of each row: is c0 there, c0, c1, the first word of c2."""
    reader = RunReader(storage, KEYS, table, run)
    first, second, third = (reader.fetch(column, 0, run.pages) for column in range(3))
    assert first.valid is not None
    assert second.valid is None
    columns = first.valid, first.words, second.words, third.words[:, 0]
    return [(int(a), int(b), int(c), int(d)) for a, b, c, d in zip(*columns, strict=True)]


@pytest.mark.parametrize(("real", "capacity"), [(0, 16), (1, 16), (16, 16), (50, 96), (100, 112)])
@pytest.mark.parametrize("memory_bytes", [1, 4000, 1 << 24])
def test_every_run_has_every_row_in_its_order(real: int, capacity: int, memory_bytes: int) -> None:
    rows = _rows(real, capacity, 2)
    runs, storage = _built(rows, ORDERS, memory_bytes)
    given = sorted(
        (int(row[RowLayout(TABLE.schema, (SIZE, SIZE)).validity_offset]) & 1, int(row[0]), int(row[1]), int(row[2]))
        for row in rows[:real]
    )
    assert [run.attribute for run in runs] == ["c0", "c1"]
    assert {run.batch for run in runs} == {"ba" * 16}
    for place, run in enumerate(runs):
        assert (run.capacity, run.page_rows, run.pages) == (capacity, PAGE_ROWS, capacity // PAGE_ROWS)
        assert run.index is not None
        content = _content(TABLE, run, storage)
        assert sorted(content[:real]) == given
        assert set(content[real:]) <= {(0, 0, 0, 0)}  # dummies, all at the end
        keys = (
            [row[1] if row[0] else SIZE for row in content[:real]] if place == 0 else [row[2] for row in content[:real]]
        )
        assert keys == sorted(keys)


def test_small_chunks_go_to_the_provider_sealed_and_large_ones_do_not() -> None:
    rows = _rows(90, 96, 2)
    assert _built(rows, ORDERS)[1].scratch == {}
    small = _built(rows, ORDERS, 1)[1].scratch
    assert len([name for name in small if name.startswith("chunk")]) == 6
    assert len(small) == 12  # and as many of the keys alone
    plain = rows[3].tobytes()[16:24]
    assert not [piece for piece in small.values() if plain in piece]


def test_without_an_index_the_order_is_that_of_loading() -> None:
    rows = _rows(20, 32, 0)
    (run,), storage = _built(rows, ())
    assert run.attribute is None
    assert run.index is None
    given = [TEXT.words_of(str(1000 + place))[0] for place in range(20)]
    assert [row[3] for row in _content(TABLE, run, storage)] == given + [0] * 12


@pytest.mark.parametrize(("length", "words"), [(5, 2), (12, 3)])
def test_every_word_of_a_text_is_kept(length: int, words: int) -> None:
    table = table_of(f"text({length}) not null")
    text = table.schema.columns[0].type
    assert text.words == words
    rows = np.array([text.words_of("abcde"[: place % 6]) for place in range(PAGE_ROWS)])
    storage = MemoryStorage()
    load = Load(storage, table, (), PAGE_ROWS, 1 << 20, BATCH, NOTHING)
    load.append(memoryview(rows.tobytes()))
    load.reserve(KEYS, PAGE_ROWS)
    ((run, _),) = load.build(PAGE_ROWS)
    assert RunReader(storage, KEYS, table, run).fetch(0, 0, 1).words.tolist() == rows.tolist()


def test_nothing_is_sealed_without_room_for_it() -> None:
    load = Load(MemoryStorage(), TABLE, (), PAGE_ROWS, 1 << 20, BATCH, NOTHING)
    with pytest.raises(InvalidParameter, match="no room"):
        load._seal("00" * 16, Copy(None, None), None, 16)


def test_as_many_dummies_are_added_as_are_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loads, "DUMMY_ROWS", 5)
    for more in (0, 1, 5, 12):
        load = Load(MemoryStorage(), TABLE, ORDERS, PAGE_ROWS, 1 << 20, BATCH, NOTHING)
        load._add_dummies(more)
        assert len(load._rows) == more
        added = [row for chunk in load._rows.chunks() for row in chunk.tolist()]
        assert added == _rows(0, more, 2).tolist()


@pytest.mark.parametrize(("sent", "capacity"), [(16, 32), (32, 16), (17, 17), (0, 16)])
def test_rows_that_do_not_fill_the_capacity(sent: int, capacity: int) -> None:
    storage = MemoryStorage()
    load = Load(storage, TABLE, ORDERS, PAGE_ROWS, 1 << 20, "ba" * 16, NOTHING)
    load.append(memoryview(_rows(0, sent, 2).tobytes()))
    with pytest.raises(InvalidParameter):
        load.reserve(KEYS, capacity)
    assert storage.shapes == {}


def test_the_same_rows_again_give_the_same_indexes_and_any_others_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the same batch, in whatever memory; a row that differs, or another batch, gets noise of its own."""
    rough = tuple(replace(order, epsilon=Fraction(1, 100)) for order in ORDERS)
    rows = _rows(90, 96, 2)
    other = rows.copy()
    other[0] = rows[1]

    def indexes(rows: NDArray[np.int64], memory_bytes: int, batch: str) -> tuple[bytes | None, ...]:
        load = Load(MemoryStorage(), TABLE, rough, PAGE_ROWS, memory_bytes, batch, NOTHING)
        for at in range(0, len(rows), memory_bytes % 60 + 5):
            load.append(memoryview(rows[at : at + memory_bytes % 60 + 5].tobytes()))
        load.reserve(KEYS, len(rows))
        return tuple(run.index for run, _ in load.build(90))

    first = indexes(rows, 1, "ba" * 16)
    assert indexes(rows, 1 << 24, "ba" * 16) == first
    changes = [indexes(other, 1, "ba" * 16), indexes(rows, 1, "bb" * 16)]
    monkeypatch.setattr(loads, "DESIGN", DESIGN + 1)  # a later release, whose indexes would be others anyway
    changes.append(indexes(rows, 1, "ba" * 16))
    for changed in changes:
        assert all(one != another for one, another in zip(first, changed, strict=True))


def test_what_was_paid_for_under_another_design_is_not_paid_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def sealed() -> bytes:
        load = Load(MemoryStorage(), TABLE, ORDERS, PAGE_ROWS, 1 << 20, "ba" * 16, NOTHING)
        load.append(memoryview(_rows(90, 96, 2).tobytes()))
        return load.seal_rows("ba" * 16, KEYS)

    now = sealed()
    assert sealed() == now
    monkeypatch.setattr(loads, "DESIGN", DESIGN + 1)
    assert sealed() != now


# --- what is paid for --------------------------------------------------------------------------------


def _paid(load: Load, epsilon: Fraction, delta: Fraction, batch: str = BATCH) -> Payment:
    charge = Charge(batch, TABLE.id, "c0", epsilon, delta, 1, new_rows=True)
    return Payment(batch, load.seal_rows(batch, KEYS), (charge,))


@pytest.mark.parametrize("cost", [(1, 0), (0, Fraction(1, 9)), (1, Fraction(1, 9))])
def test_rows_are_built_once_all_that_they_cost_is_paid(cost: tuple[int, Fraction]) -> None:
    epsilon, delta = Fraction(cost[0]), Fraction(cost[1])
    load = Load(MemoryStorage(), TABLE, ORDERS, PAGE_ROWS, 1 << 20, BATCH, Cost(epsilon, delta))
    load.append(memoryview(_rows(3, 16, 2).tobytes()))
    payment = _paid(load, epsilon, delta)
    assert load.is_paid(payment, Build(3, BATCH))
    assert not load.is_paid(payment, Build(3, OTHER_BATCH))
    assert not load.is_paid(None, Build(3, BATCH))
    assert not load.is_paid(replace(payment, digest=bytes(32)), Build(3, BATCH))
    assert not load.is_paid(replace(payment, charges=()), Build(3, BATCH))


def test_what_was_paid_for_on_other_terms_is_not_paid_for() -> None:
    """Nor for one index less: the same rows under other terms would be another release, with noise of its own."""
    rows = memoryview(_rows(3, 16, 2).tobytes())

    def sealed(orders: tuple[IndexOrder, ...]) -> bytes:
        load = Load(MemoryStorage(), TABLE, orders, PAGE_ROWS, 1 << 20, BATCH, NOTHING)
        load.append(rows)
        return load.seal_rows(BATCH, KEYS)

    first, second = ORDERS
    others = [
        (first, replace(second, beta=second.beta / 2)),
        (replace(first, max_bytes=2048), second),
        (first, replace(second, delta=Fraction(1, 9))),
    ]
    assert len({sealed(orders) for orders in (ORDERS, *others)}) == 4
    assert sealed(ORDERS) == sealed(tuple(replace(order) for order in ORDERS))


def test_what_was_paid_for_a_table_whose_keys_may_be_null_is_not_paid_for_another() -> None:
    """Blocks are fewer where keys may be missing, so the two would be different releases of the same rows."""
    columns = TABLE.schema.columns
    assert columns[0].nullable
    other = replace(TABLE, schema=type(TABLE.schema)((replace(columns[0], nullable=False), *columns[1:])))
    terms = [Load(MemoryStorage(), at, ORDERS, PAGE_ROWS, 1 << 20, BATCH, NOTHING)._terms for at in (TABLE, other)]
    first, second = (facts(ORDERS[0]) for facts in terms)
    assert first != second
    assert terms[0](ORDERS[1]) == terms[1](ORDERS[1])


def test_rows_that_cost_nothing_need_no_payment_under_their_own_name() -> None:
    load = Load(MemoryStorage(), TABLE, (), PAGE_ROWS, 1 << 20, BATCH, NOTHING)
    assert load.is_paid(None, Build(0, BATCH))
    assert not load.is_paid(None, Build(0, OTHER_BATCH))


def test_no_row_follows_those_that_were_paid_for() -> None:
    load = Load(MemoryStorage(), TABLE, ORDERS, PAGE_ROWS, 1 << 20, BATCH, NOTHING)
    rows = memoryview(_rows(3, 16, 2).tobytes())
    for cut in (1, 8, len(rows) // 16 - 8):
        with pytest.raises(InvalidParameter, match="cut short"):
            load.append(rows[:cut])
    load.append(rows)
    load.seal_rows(BATCH, KEYS)
    with pytest.raises(InvalidParameter, match="paid for already"):
        load.append(rows)


def test_rows_that_do_not_fit_are_not_paid_for_and_not_built() -> None:
    """Neither a row that fits no type, nor another number of real rows than were sent; none and all of them may be."""
    for real, others in ((0, (-1, 1, 16)), (3, (0, 2, 4, 16)), (16, (0, 15))):
        load = Load(MemoryStorage(), TABLE, ORDERS, PAGE_ROWS, 1 << 20, BATCH, NOTHING)
        load.append(memoryview(_rows(real, 16, 2).tobytes()))
        load.seal_rows(BATCH, KEYS)
        load.reserve(KEYS, 16)
        load.confirm(real)
        for other in others:
            with pytest.raises(BadRows):
                load.confirm(other)
    wrong = _rows(3, 16, 2)
    wrong[1, RowLayout(TABLE.schema, (SIZE, SIZE)).key_offset] += 1
    load = Load(MemoryStorage(), TABLE, ORDERS, PAGE_ROWS, 1 << 20, BATCH, NOTHING)
    load.append(memoryview(wrong.tobytes()))
    with pytest.raises(BadRows):
        load.seal_rows(BATCH, KEYS)
    with pytest.raises(BadRows):
        load.reserve(KEYS, 16)


# --- where a load goes -------------------------------------------------------------------------------

RUNS = tuple(
    Run(f"{place:032x}", OTHER_BATCH, name, 16, 16, None, ("00" * 32,)) for place, name in enumerate(("c0", "c1"))
)
ADAS = Grant("a" * 16, "ada", b"a" * 32, {"t": frozenset(["load"]), "u": frozenset(["read"])}, Fraction(2))
REQUEST = BeginLoad(BATCH, (Fraction(0), Fraction(0)), "t", "00" * 16, TABLE.schema, ORDERS, PAGE_ROWS, 1 << 20)


def _version(*tables: Table, grant: Grant | None = None) -> OpenVersion:
    storage, access = MemoryStorage(), AccessList(OWNER_KEY, (ADAS,))
    catalog = Catalog(DATABASE, 1, "", tables, (TITLE,))
    real_rows = {run.id: 5 for table in tables for run in table.runs}
    manifest = open_manifest(KEYS, signed_manifest(KEYS, catalog, real_rows, access))
    return OpenVersion(storage, KEYS, Unlocked(DATA_KEY, access, *manifest.seen), manifest, grant, ())


def _begun(version: OpenVersion, request: BeginLoad = REQUEST) -> Load:
    load = begin_load(version, request)
    assert load is not None
    return load


THERE = replace(TABLE, runs=RUNS)
U = replace(TABLE, id="cd" * 16, name="u")


def test_a_load_goes_into_the_table_of_its_name_or_a_new_one_of_the_owner_s() -> None:
    assert _begun(_version(THERE)).table.id == TABLE.id
    assert _begun(_version(TABLE)).table.id == TABLE.id
    new = _begun(_version(THERE), replace(REQUEST, table="v")).table
    assert (new.id, new.name, new.runs) == ("00" * 16, "v", ())
    assert begin_load(_version(THERE), replace(REQUEST, batch=OTHER_BATCH)) is None


def test_an_analyst_s_load_needs_the_right_to_a_table_that_is_there() -> None:
    assert _begun(_version(THERE, U, grant=ADAS)).table.id == TABLE.id
    for table, error in (("u", Refused), ("v", NotFound)):
        with pytest.raises(error):
            begin_load(_version(THERE, U, grant=ADAS), replace(REQUEST, table=table))
    with pytest.raises(Overdraft):
        begin_load(_version(THERE, grant=ADAS), replace(REQUEST, capacity_cost=(Fraction(1, 9), Fraction(0))))


def test_a_table_keeps_its_columns_and_its_indexes() -> None:
    other = table_of("integer").schema
    plain = replace(TABLE, runs=(replace(RUNS[0], attribute=None),))
    assert _begun(_version(plain), replace(REQUEST, orders=()))
    assert _begun(_version(TABLE), replace(REQUEST, orders=()))
    for there, changes in (
        (THERE, {"schema": other, "orders": ()}),
        (TABLE, {"schema": other, "orders": ()}),
        (THERE, {"orders": ORDERS[:1]}),
        (THERE, {"orders": ()}),
        (plain, {}),
    ):
        with pytest.raises(Exists):
            begin_load(_version(there), replace(REQUEST, **changes))


@pytest.mark.parametrize(
    "changes",
    [
        *({"page_rows": rows} for rows in (-16, 0, 1, 8, 15, 17, 24, 48, (1 << 20) + 1, 1 << 21)),
        *({"batch": batch} for batch in ("", "b", "BA" * 16, BATCH + "0", BATCH + "\n", "../" * 8)),
    ],
)
def test_a_batch_and_a_page_have_their_form(changes: dict[str, int | str]) -> None:
    with pytest.raises(InvalidParameter, match="32 hexadecimal digits"):
        begin_load(_version(TABLE), replace(REQUEST, **changes))  # type: ignore[arg-type]


def test_the_smallest_and_the_largest_page() -> None:
    for page_rows in (16, 1 << 20):
        assert _begun(_version(TABLE), replace(REQUEST, page_rows=page_rows))


def test_an_analyst_s_load_takes_no_more_memory_than_one_may(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = memoryview(_rows(50, 64, 2).tobytes())

    def is_put_away(grant: Grant | None, memory_bytes: int) -> bool:
        version = _version(THERE, grant=grant)
        _begun(version, replace(REQUEST, memory_bytes=memory_bytes)).append(rows)
        assert isinstance(version.storage, MemoryStorage)
        return bool(version.storage.scratch)

    assert [is_put_away(grant, 1 << 20) for grant in (None, ADAS)] == [False, False]
    assert [is_put_away(grant, 1) for grant in (None, ADAS)] == [True, True]
    monkeypatch.setattr(loads, "ANALYST_MEMORY_BYTES", 1)
    assert [is_put_away(grant, 1 << 20) for grant in (None, ADAS)] == [False, True]


# --- the version that has the rows -------------------------------------------------------------------


def _ready(version: OpenVersion, request: BeginLoad = REQUEST) -> Load:
    load = _begun(version, request)
    load.append(memoryview(_rows(3, 16, 2).tobytes()))
    load.reserve(KEYS, 16)
    return load


def _history(version: OpenVersion) -> History:
    return History(version.storage, Vault(), DATABASE, OWNER_KEY, DATA_KEY)


def _drafted(version: OpenVersion, load: Load, real_rows: int) -> Pending:
    made = loaded(version, load, real_rows)
    return _history(version).draft(made, made.manifest.catalog.tables, made.manifest.dummies, made.manifest.access)


def test_a_drafted_version_has_the_runs_beside_those_that_there_were() -> None:
    version = _version(THERE, U)
    pending = _drafted(version, _ready(version), 3)
    tables = pending.catalog.by_id
    assert set(tables) == {TABLE.id, U.id}
    assert [run.batch for run in tables[TABLE.id].runs] == [OTHER_BATCH, OTHER_BATCH, BATCH, BATCH]
    new = _version(U)
    made = _drafted(new, _ready(new), 3).catalog
    assert sorted(table.name for table in made.tables) == ["t", "u"]


def test_a_drafted_version_counts_the_real_rows_of_each_run() -> None:
    version = _version(THERE)
    pending = _drafted(version, _ready(version), 3)
    signature = sign_draft(DATABASE, pending.draft, OWNER)
    sealed = pack(pending.public, pending.sealed, Link(pending.draft, OWNER_KEY, signature).to_bytes())
    found = sorted(dummies.to_bytes() for dummies in open_manifest(KEYS, sealed).dummies.values())
    assert found == [Dummies.after(rows).to_bytes() for rows in (3, 3, 5, 5)]


def test_a_table_that_was_dropped_or_made_meanwhile_is_stale() -> None:
    load = _ready(_version(THERE))
    dropped = _version(U)
    with pytest.raises(Stale):
        _drafted(dropped, load, 3)
    new = _ready(_version(U))
    made = _version(THERE, U)
    with pytest.raises(Stale):
        _drafted(made, new, 3)


def test_a_load_that_fails_leaves_nothing_at_the_provider() -> None:
    version = _version(THERE)
    load = _ready(version, replace(REQUEST, memory_bytes=1))
    version.storage.write_scratch("chunk-0", b"sealed")
    with pytest.raises(BadRows):
        _drafted(version, load, 4)
    assert isinstance(version.storage, MemoryStorage)
    assert version.storage.scratch == {}
