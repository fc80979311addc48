"""Loaded words against their types: what the owner's encoder makes is taken, anything else is refused, as a whole."""

import datetime
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from enclave_tables import KEYS, MemoryStorage
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from scumble.enclave import kernels, validation
from scumble.enclave.grants import Cost
from scumble.enclave.loads import Load
from scumble.enclave.validation import RowCheck, rules_of
from scumble.errors import BadRows, InvalidParameter, NotFound
from scumble.owner.encoding import dummy_rows, encode_rows
from scumble.types import Column, GridRule, Schema, parse_domain, parse_type, rank_rule
from scumble.types.float import float_word
from scumble.wire.catalog import Table
from scumble.wire.requests import IndexOrder, RowLayout

Rows = NDArray[np.int64]

DAY = datetime.date(2013, 1, 1)
COLUMNS: dict[str, tuple[str, pa.DataType, list[Any], str | None]] = {
    "flag": ("boolean", pa.bool_(), [True, False, None], None),
    "tiny": ("tinyint", pa.int8(), [-128, 127, None], "int:-128:127"),
    "number": ("bigint", pa.int64(), [-(2**63), 2**63 - 1, 0, None], None),
    "id": ("integer", pa.int32(), [5, 0, 999, None], "int:0:999"),
    "even": ("integer", pa.int32(), [4, 0, 998, None], "int:0:998:2"),
    "large": ("bigint", pa.int64(), [0, 6 * 10**17, 6, None], "int:0:600000000000000000:6"),
    "price": ("decimal(8,2)", pa.decimal128(8, 2), [Decimal("1.25"), Decimal("-99.75"), None], "decimal:-100:100:0.25"),
    "day": ("date", pa.date32(), [DAY, DAY + datetime.timedelta(9), None], "date:2013-01-01:2013-12-31"),
    "at": (
        "timestamp",
        pa.timestamp("us"),
        [datetime.datetime(2020, 1, 1, 3, 14, 15), datetime.datetime(2020, 12, 31), None],
        "timestamp:2020-01-01T00:00:00:2020-12-31T23:59:59:15min",
    ),
    "clock": ("time", pa.time64("us"), [datetime.time(23, 59, 59, 999999), datetime.time(0), None], None),
    "share": ("double", pa.float64(), [0.1, -0.0, 0.999, None], "float:0:1:0.01"),
    "any": ("double", pa.float64(), [float("nan"), float("inf"), -float("inf"), -5e-324, -0.0, None], None),
    "single": ("float", pa.float32(), [1.5, -3.4e38, float("nan"), float("inf"), 1e-45, -0.0, None], None),
    "uuid": ("uuid", pa.uuid(), [bytes(16), b"\xff" * 16, None], None),
    "wide": ("decimal(38,2)", pa.decimal128(38, 2), [Decimal(10) ** 35, Decimal("-0.01"), Decimal(0), None], None),
    "price38": ("decimal(20,2)", pa.decimal128(20, 2), [Decimal("1.25"), Decimal(0), None], "decimal:0:100:0.25"),
    "blob": ("blob(9)", pa.binary(), [b"", b"\xff\xfe", b"\0" * 9, b"123456789", None], None),
    "span": ("interval", pa.month_day_nano_interval(), [pa.MonthDayNano([-1, 2, -3000]), None], None),
    "name": ("text(12)", pa.string(), ["", "zoë", "日本\U0001f600", "a\0b", "12 bytes ful", None], 'string:["d","m"]'),
    "code": ("text(3)", pa.string(), ["a", "bb", None], 'keys:["a","bb","ccc"]'),
    "colour": ('category(["a","b","c"])', pa.string(), ["c", "a", None], 'category:["a","b","c"]'),
    "listed": ('category(["a","b","c"])', pa.string(), ["c", "a", None], 'string:["b"]'),
    "key": ("bigint", pa.int64(), [9, 1, None], "keys:[1,5,9]"),
}


def order_of(name: str, domain: str) -> IndexOrder:
    return IndexOrder(name, parse_domain(domain), Fraction(1), Fraction(0), Fraction(1, 10**6), 1, 4096, "measured")


class Batch:
    """Rows of some columns as the owner encodes them, and how they are laid out."""

    def __init__(self, names: list[str], count: int = 20, *, indexed: bool = True, nullable: bool = True) -> None:
        self.schema = Schema(tuple(Column(name, parse_type(COLUMNS[name][0]), nullable) for name in names))
        self.orders = tuple(order_of(name, text) for name in names if (text := COLUMNS[name][3]) and indexed)
        self.layout = RowLayout(self.schema, tuple(order.domain.size for order in self.orders))
        arrays = {}
        for name in names:
            values = [value for value in COLUMNS[name][2] if nullable or value is not None]
            arrays[name] = pa.array([values[place % len(values)] for place in range(count)], COLUMNS[name][1])
        keys = [(self.schema.place(order.attribute), order.domain) for order in self.orders]
        self.rows = encode_rows(pa.record_batch(arrays), self.layout, keys)

    def takes(self, rows: Rows, dummies: int = 3, real: int | None = None) -> bool:
        """Whether the enclave takes the rows, and dummies after them, cut anywhere."""
        check = RowCheck(self.layout, rules_of(self.schema, self.orders))
        whole = np.concatenate([rows, dummy_rows(dummies, self.layout)])
        for part in np.array_split(whole, 3):
            check.look_at(np.ascontiguousarray(part))
        try:
            check.settle(0, len(whole))
            check.settle(*(2 * [len(rows) if real is None else real]))
        except BadRows:
            return False
        return True


@pytest.mark.parametrize("nullable", [True, False])
@pytest.mark.parametrize("names", [*([name] for name in COLUMNS), list(COLUMNS)], ids=lambda names: names[0])
def test_what_the_owner_encodes_is_taken(names: list[str], nullable: bool) -> None:
    batch = Batch(names, nullable=nullable)
    assert batch.takes(batch.rows)
    assert batch.takes(batch.rows[:0])
    assert batch.takes(batch.rows, dummies=0)


def test_more_than_64_columns() -> None:
    names = [f"c{place}" for place in range(130)]
    schema = Schema(tuple(Column(name, parse_type("tinyint"), place % 3 != 0) for place, name in enumerate(names)))
    layout = RowLayout(schema, ())
    values: dict[str, Any] = {name: pa.array([place % 100, 3, 5], pa.int8()) for place, name in enumerate(names)}
    values["c127"] = pa.array([None, 1, None], pa.int8())
    rows = encode_rows(pa.record_batch(values), layout, [])
    for place, bit in [(0, 0), (0, 1), (1, 63), (2, 2), (2, 40)]:
        changed = rows.copy()
        changed[1, layout.validity_offset + place] ^= np.int64(-(2**63) if bit == 63 else 1 << bit)
        check = RowCheck(layout, ())
        check.look_at(changed)
        with pytest.raises(BadRows):
            check.settle(3, 3)
    check = RowCheck(layout, ())
    check.look_at(rows)
    check.settle(3, 3)
    for place in (1, 64, 65, 127, 128):  # a null with the words of a value, each by its own bit
        changed, flag = rows.copy(), np.int64(-(2**63) if place % 64 == 63 else 1 << place % 64)
        changed[1, layout.validity_offset + place // 64] &= ~flag
        changed[1, place] = 5
        check = RowCheck(layout, ())
        check.look_at(changed)
        with pytest.raises(BadRows):
            check.settle(3, 3)


# --- each bad word ---------------------------------------------------------------------------------


BAD: dict[str, list[Any]] = {
    "flag": [2, -1, 2**63 - 1],
    "tiny": [128, -129, 2**40],
    "id": [2**31, -(2**31) - 1],
    "price": [10**8, -(10**8)],
    "day": [2**31, -(2**31) - 1],
    "clock": [-1, 86_400 * 10**6],
    "any": [float_word(float("inf")) + 1, 2**63 - 1, float_word(-float("inf")) - 1, -(2**63), (0x7FF8 << 48) + 1],
    "single": [float_word(0.1), float_word(1e300), float_word(1e-46), float_word(2**-149 * 1.5), 1],
    "colour": [77, 3, -1],
    "listed": [77, 3, -1],
}


@pytest.mark.parametrize(("name", "word"), [(name, word) for name, words in BAD.items() for word in words])
@pytest.mark.parametrize("indexed", [True, False])
@pytest.mark.parametrize("row", [0, 7, 19])
def test_words_that_no_value_has_are_refused(name: str, word: int, indexed: bool, row: int) -> None:
    batch = Batch([name], indexed=indexed)
    changed = batch.rows.copy()
    changed[row, 0] = word
    changed[row, batch.layout.validity_offset] = 1
    assert not batch.takes(changed)


def _text(raw: bytes, length: int | None = None, words: int = 2) -> list[int]:
    padded = raw.ljust(8 * words, b"\0")
    letters = [int.from_bytes(padded[at : at + 8], "big") - 2**63 for at in range(0, 8 * words, 8)]
    return [*letters, len(raw) if length is None else length]


def _takes_text(words: list[int]) -> bool:
    batch = Batch(["name"], indexed=False)
    changed = batch.rows.copy()
    changed[4, :3], changed[4, 3] = words, 1
    return batch.takes(changed)


NO_UTF_8 = (
    *(b"\x80", b"\xc0\x80", b"\xc1\xbf", b"\xc3", b"a\xc3b", b"\xe0\x9f\xbf", b"\xed\xa0\x80", b"\xef\xbf"),
    *(b"\xf0\x8f\xbf\xbf", b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80", b"\xff", b"\xfe", b"1234567\xc3", b"1234567\xc3a"),
    *(b"\xe2\x28\xa1", b"\xf0\x28\x8c\xbc", b"\xf0\x90\x28\xbc", b"\xf0\x9f\x98", b"\xc2\x7f", b"\xc2\xc0"),
)


@pytest.mark.parametrize("raw", NO_UTF_8, ids=bytes.hex)
def test_text_that_is_no_utf_8_is_refused(raw: bytes) -> None:
    with pytest.raises(UnicodeDecodeError):
        raw.decode()
    assert not _takes_text(_text(raw))


def test_lengths_and_padding_of_text() -> None:
    assert _takes_text(_text(b"name"))
    assert _takes_text(_text(b"nam\0"))
    assert not _takes_text(_text(b"name", 3))  # a byte beyond the end
    assert not _takes_text(_text(b"name", -1))
    assert not _takes_text(_text(b"twelve bytes", 13))
    assert not _takes_text(_text(b"thirteen byte", 13))
    assert _takes_text(_text(b"twelve bytes", 12))
    assert not _takes_text(_text("zoë".encode(), 3))  # cut in a character
    assert not _takes_text([0, 0, 0])  # a null's words, but it is none


@given(st.lists(st.binary(max_size=16) | st.text(max_size=5).map(str.encode), min_size=1, max_size=40))
@settings(max_examples=300)
def test_utf_8_is_what_python_decodes(texts: list[bytes]) -> None:
    kept = [raw[:16] for raw in texts]

    def decodes(raw: bytes) -> bool:
        try:
            raw.decode()
        except UnicodeDecodeError:
            return False
        return True

    words = np.array([_text(raw) for raw in kept], np.int64)
    assert kernels.check_text(words, 16).tolist() == [int(decodes(raw)) for raw in kept]


def test_every_pair_of_bytes_and_every_lead_of_three() -> None:
    raws = [bytes([a, b]) for a in range(256) for b in range(256)]
    raws += [bytes([a, b, 0x80, 0x80]) for a in range(0xE0, 0x100) for b in range(256)]
    raws += [bytes([a, b, 0xBF]) for a in range(0xE0, 0x100) for b in range(256)]

    def decodes(raw: bytes) -> bool:
        return len(raw.decode("utf-8", "ignore").encode()) == len(raw)

    words = np.array([_text(raw, words=1) for raw in raws], np.int64)
    assert kernels.check_text(words, 8).tolist() == [int(decodes(raw)) for raw in raws]


@given(st.lists(st.floats(width=64) | st.floats(width=32), min_size=1, max_size=30))
def test_floats_of_32_bits(values: list[float]) -> None:
    with np.errstate(over="ignore"):
        single = [int(np.isnan(value) or float(np.float32(value)) == value) for value in values]
    assert kernels.check_single(np.array([float_word(value) for value in values])).tolist() == single


# --- nulls, ranks and dummies -----------------------------------------------------------------------


@pytest.mark.parametrize("name", list(COLUMNS))
def test_a_null_has_the_words_of_a_null(name: str) -> None:
    batch = Batch([name])
    null = COLUMNS[name][2].index(None)
    for word in range(parse_type(COLUMNS[name][0]).words):
        for wrong in (1, -1):
            changed = batch.rows.copy()
            changed[null, word] = wrong
            assert not batch.takes(changed)


@pytest.mark.parametrize("name", [name for name, column in COLUMNS.items() if column[3]])
@pytest.mark.parametrize("change", [1, -1, 2, 10**6, -(2**62)])
@pytest.mark.parametrize("row", range(4))
def test_a_rank_is_that_of_its_column(name: str, change: int, row: int) -> None:
    batch = Batch([name])
    changed = batch.rows.copy()
    changed[row, -1] += change
    assert not batch.takes(changed)


@pytest.mark.parametrize("name", [name for name, column in COLUMNS.items() if column[3]])
def test_a_word_is_that_of_its_rank(name: str) -> None:
    """Every value of the column next to a rank of another, which is its own only if the two share it."""
    batch = Batch([name])
    for one in range(5):
        for other in range(5):
            changed = batch.rows.copy()
            changed[one, -1] = batch.rows[other, -1]
            assert batch.takes(changed) == (batch.rows[one, -1] == batch.rows[other, -1])


@pytest.mark.parametrize("off", [1, 3])
def test_a_key_between_two_steps_is_refused(off: int) -> None:
    for name in ("even", "large"):
        batch = Batch([name])
        changed = batch.rows.copy()
        changed[0, 0] += off  # in `large` many steps share a rank, so that this one stays
        assert not batch.takes(changed)


def test_long_lists_are_checked_for_a_rank_that_there_is() -> None:
    domain = parse_domain("keys:[" + ",".join(map(str, range(0, 900, 3))) + "]")
    schema = Schema((Column("k", parse_type("bigint"), False),))
    order = IndexOrder("k", domain, Fraction(1), Fraction(0), Fraction(1, 10**6), 1, 4096, "measured")
    for rank, taken in [(5, True), (0, True), (299, True), (300, False), (-1, False)]:
        check = RowCheck(RowLayout(schema, (300,)), rules_of(schema, [order]))
        check.look_at(np.array([[15, rank]]))
        if taken:
            check.settle(1, 1)
        else:
            with pytest.raises(BadRows):
                check.settle(1, 1)


@pytest.mark.parametrize("indexed", [True, False])
def test_dummies_are_all_zeros_and_come_last(indexed: bool) -> None:
    batch = Batch(["id", "name", "price"], indexed=indexed)
    dummy = dummy_rows(1, batch.layout)
    assert batch.takes(batch.rows, real=20)
    assert not batch.takes(batch.rows, real=19)
    if indexed:  # else a dummy is a row of nulls
        assert not batch.takes(batch.rows, real=21)
        assert not batch.takes(np.concatenate([batch.rows[:5], dummy, batch.rows[5:]]))
    for word in range(batch.layout.words):
        half = dummy.copy()
        half[0, word] += 1
        assert not batch.takes(np.concatenate([batch.rows, dummy, half]), real=20)


def test_a_number_of_real_rows_that_cannot_be() -> None:
    batch = Batch(["id"])
    for real in (-1, 24, 2**62, -(2**62)):
        assert not batch.takes(batch.rows, real=real)
    for more in (21, 2**62):  # than were sent, even if all of them are real
        assert not batch.takes(batch.rows, dummies=0, real=more)


# --- whole batches ---------------------------------------------------------------------------------


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_one_bad_word_anywhere_refuses_the_whole_batch(data: st.DataObject) -> None:
    names = data.draw(st.lists(st.sampled_from(list(BAD)), min_size=1, max_size=4, unique=True))
    batch = Batch(names, count=data.draw(st.integers(1, 60)), nullable=data.draw(st.booleans()))
    assert batch.takes(batch.rows)
    name = data.draw(st.sampled_from(names))
    row = data.draw(st.integers(0, len(batch.rows) - 1))
    changed = batch.rows.copy()
    changed[row, batch.layout.column_offsets[batch.schema.place(name)]] = data.draw(st.sampled_from(BAD[name]))
    assert not batch.takes(changed)


@given(st.lists(st.none() | st.text(max_size=20), min_size=1, max_size=50))
@settings(max_examples=200, deadline=None)
def test_any_text_of_the_owners_is_taken(texts: list[str | None]) -> None:
    fitting = [text if text is None or len(text.encode()) <= 40 else text[:10] for text in texts]
    schema = Schema((Column("t", parse_type("text(40)"), True),))
    order = order_of("t", 'string:["a","k","é","日"]')
    layout = RowLayout(schema, (order.domain.size,))
    rows = encode_rows(pa.record_batch({"t": pa.array(fitting, pa.string())}), layout, [(0, order.domain)])
    check = RowCheck(layout, rules_of(schema, [order]))
    check.look_at(rows)
    check.settle(len(rows), len(rows))
    with pytest.raises(BadRows):  # and all of them were looked at
        check.settle(len(rows) + 1, len(rows) + 1)


def test_a_refused_batch_stores_nothing() -> None:
    batch = Batch(["id", "name"], count=32)
    batch.rows[31, 0] = 2**40
    storage = MemoryStorage()
    table = Table("ab" * 16, "t", batch.schema, ())
    load = Load(storage, table, batch.orders, 16, 1 << 20, "ba" * 16, Cost(Fraction(0), Fraction(0)))
    load.append(memoryview(batch.rows.tobytes()))
    with pytest.raises(BadRows) as caught:
        load.reserve(KEYS, 32)
    assert caught.value.row is None
    assert caught.value.column is None
    assert (storage.shapes, storage.pages, storage.manifests) == ({}, {}, {})


# --- types and domains -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("type_", "domain"),
    [
        ("integer", "date:2013-01-01:2013-12-31"),
        ("date", "int:0:9"),
        ("decimal(8,2)", "int:0:9"),
        ("double", "int:0:9"),
        ("text(8)", "date:2013-01-01:2013-12-31"),
        ("text(8)", "decimal:0:9:1"),
        ("text(8)", "float:0:1:0.1"),
        ("text(8)", "keys:[1,5]"),
        ("integer", 'keys:["1","5"]'),
        ("integer", 'string:["d"]'),
        ("decimal(8,2)", "keys:[1,5]"),
        ("boolean", "int:0:1"),
        ("time", "timestamp:2020-01-01T00:00:00:2020-12-31T23:59:59:1h"),
        ("boolean", 'category:["false","true"]'),
    ],
)
def test_a_domain_that_does_not_fit_its_column(type_: str, domain: str) -> None:
    with pytest.raises(InvalidParameter, match="cannot be indexed"):
        rank_rule(parse_type(type_), parse_domain(domain))
    schema = Schema((Column("k", parse_type(type_), True),))
    with pytest.raises(InvalidParameter, match="cannot be indexed"):
        rules_of(schema, [order_of("k", domain)])


def test_indexes_name_each_column_once() -> None:
    schema = Schema((Column("k", parse_type("integer"), True),))
    wrong: list[tuple[list[IndexOrder], type[Exception]]] = [
        ([order_of("k", "int:0:9"), order_of("k", "int:0:9")], InvalidParameter),
        ([order_of("K", "int:0:9")], InvalidParameter),
        ([order_of("j", "int:0:9")], NotFound),
    ]
    for orders, error in wrong:
        with pytest.raises(error):
            rules_of(schema, orders)


GRIDS: list[tuple[str, str, Callable[[int], Any]]] = [
    ("bigint", "int:-50:77:3", lambda word: word),
    ("bigint", "int:-9223372036854775808:9223372036854775807", lambda word: word),
    ("ubigint", "int:0:18446744073709551610:5", lambda word: word),
    ("decimal(18,3)", "decimal:-1.5:2.5:0.004", lambda word: Decimal(word).scaleb(-3)),
    ("decimal(18,3)", "decimal:-1.5:2.5:0.0003", lambda word: Decimal(word).scaleb(-3)),
    ("integer", "decimal:-100:100:0.5", lambda word: word),
    ("integer", "decimal:0.5:100:1", lambda word: word),
    ("date", "timestamp:1970-01-01T12:00:00:1971-01-01T00:00:00:7h", lambda word: np.datetime64(word, "D")),
    ("timestamp_s", "timestamp:1970-01-01T00:00:00.5:1970-01-02:1500ms", lambda word: np.datetime64(word, "s")),
    ("timestamp_ms", "date:1970-01-01:1970-01-09", lambda word: np.datetime64(word, "ms")),
]  # fmt: skip


@pytest.mark.parametrize(("type_", "text", "value_of"), GRIDS, ids=[f"{grid[0]}-{grid[1]}" for grid in GRIDS])
@given(
    words=st.lists(
        st.integers(-200, 200) | st.integers(-(2**63), 2**63 - 1) | st.integers(0, 10).map(lambda d: d * 86_400_000),
        min_size=1,
        max_size=40,
    )
)
@settings(max_examples=60, deadline=None)
def test_grid_rules_agree_with_domains(type_: str, text: str, value_of: Callable[[int], Any], words: list[int]) -> None:
    """For any words, the rule holds for the domain's own rank, and for no other; for no rank if it has none."""
    domain = parse_domain(text)
    rule = rank_rule(parse_type(type_), domain)
    assert isinstance(rule, GridRule)
    x = np.array([word if type_ != "ubigint" else abs(word) % 2**63 for word in words], np.int64)
    ranks = []
    for word in x.tolist():
        try:
            ranks.append(domain.rank(value_of(word)))
        except Exception:
            ranks.append(-1)
    right = np.array(ranks, np.int64)
    assert kernels.check_grid(x, right, rule).tolist() == [int(rank >= 0) for rank in ranks]
    for moved in (right + 1, right - 1, np.zeros_like(right), np.full_like(right, domain.size - 1)):
        same = (moved == right) & (right >= 0)
        assert kernels.check_grid(x, moved, rule).tolist() == same.astype(int).tolist()


def test_a_number_of_two_words_is_on_the_grid_only_as_a_whole() -> None:
    type_, domain = parse_type("decimal(38,2)"), parse_domain("decimal:-100:100:0.25")
    values = [Decimal("1.25"), Decimal("-99.75"), Decimal("1.20")]
    strays = [Decimal("1.25") + Decimal(sign * 2**64) / 100 for sign in (-1, 1)]  # with the same lower half
    words = np.array([type_.words_of(value) for value in (*values, *strays)], np.int64)
    ranks = np.array([domain.rank(value) for value in values[:2]] + [domain.rank(Decimal("1.25"))] * 3, np.int64)
    found = validation.RankCheck(rank_rule(type_, domain)).fits(ranks, words, None)
    assert found.tolist() == [1, 1, 0, 0, 0]


def test_a_number_of_two_words_may_fill_the_lower_of_them() -> None:
    type_, domain = parse_type("decimal(38,2)"), parse_domain("decimal:-8e16:8e16:1e12")
    values = [Decimal("5e16"), Decimal("-5e16"), Decimal("8e16"), Decimal("-8e16")]
    words = np.array([type_.words_of(value) for value in values], np.int64)
    ranks = np.array([domain.rank(value) for value in values], np.int64)
    assert validation.RankCheck(rank_rule(type_, domain)).fits(ranks, words, None).tolist() == [1] * 4
