"""Random Arrow tables with columns of every type, and how to load them.

Each column has a small pool of values, so that conditions with values of the pool match some rows and not others.
"""

import datetime
import json
import math
from dataclasses import dataclass, field
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa

UTC = datetime.UTC
EPOCH = datetime.datetime(1970, 1, 1)
INTEGERS = {
    "i8": (pa.int8(), -128, 127),
    "i16": (pa.int16(), -(1 << 15), (1 << 15) - 1),
    "i32": (pa.int32(), -(1 << 31), (1 << 31) - 1),
    "i64": (pa.int64(), -(1 << 63) + 1, (1 << 63) - 1),
    "u8": (pa.uint8(), 0, 255),
    "u16": (pa.uint16(), 0, (1 << 16) - 1),
    "u32": (pa.uint32(), 0, (1 << 32) - 1),
    "u64": (pa.uint64(), 0, (1 << 63) - 1),
    "Mixed Case": (pa.int32(), -(1 << 31), (1 << 31) - 1),
}
DECIMALS = {"d0": (18, 0), "d2": (9, 2), "d6": (18, 6), "d4": (4, 4)}
TIMESTAMPS = {
    "ts_s": pa.timestamp("s"),
    "ts_ms": pa.timestamp("ms"),
    "ts_us": pa.timestamp("us"),
    "ts_ns": pa.timestamp("ns"),
    "tz": pa.timestamp("us", tz="UTC"),
    "tz_ny": pa.timestamp("us", tz="America/New_York"),
}
WORDS = [
    "", "a", "ab", "abc", "abd", "abcdefg", "abcdefgh", "abcdefghi", "b", "B", "A", "é", "éa", "ß", "日本", "日",
    "\U0001f600", "a\0", "a\0b", "\0", "a%", "a_b", "%", "_", "\\", "it's", "zebra", "zz", " a", "a ",
    "\ud7ff", "\ue000", "\U0010ffff", "10", "2020-01-05", "true",
]  # fmt: skip
CATEGORIES = {
    "cat": ["ash", "birch", "elm", "oak", "yew"],
    "cat2": ["", "A", "N'A", "a", "b%", "é", "日本"],
}


@dataclass
class Col:
    """A column: its name as SQL writes it, its kind, its Arrow type, and the values it may hold."""

    name: str
    kind: str
    type: pa.DataType
    nullable: bool
    pool: list[Any]
    declared: str | None = None
    index: str | None = None
    small: bool = True  # whether sums of squares and products stay exact in DuckDB's own arithmetic
    held: list[str] | None = None  # by its index's copy of the rows: all columns, if it is None

    @property
    def sql(self) -> str:
        return '"' + self.name + '"' if not self.name.isidentifier() else self.name


@dataclass
class RandomTable:
    """A table to load: batches of rows, one for each load, and its columns."""

    name: str
    columns: list[Col]
    batches: list[pa.Table]
    page_rows: int
    capacity: list[int | None] = field(default_factory=list)

    @property
    def whole(self) -> pa.Table:
        return pa.concat_tables(self.batches)

    @property
    def types(self) -> dict[str, str]:
        return {column.name: column.declared for column in self.columns if column.declared}

    @property
    def indexes(self) -> list[str]:
        return [f"{c.name} {c.index} epsilon=40 beta=1e-9{_held(c)}" for c in self.columns if c.index]

    def by_kind(self, *kinds: str) -> list[Col]:
        return [column for column in self.columns if column.kind in kinds]


def random_table(rng: Random, name: str, rows: int | None = None) -> RandomTable:
    """A table of some of all the columns that there can be."""
    others = ["f32", "f64", "b", "b2", "day", "tm", "tm_ms", "txt", "name"]
    every = [*INTEGERS, *DECIMALS, *TIMESTAMPS, *CATEGORIES, *others]
    names = rng.sample(every, rng.randint(4, 11))
    for needed in (rng.choice(["i32", "i64", "u16"]), rng.choice(["cat", "cat2", "b"])):
        if needed not in names:
            names.append(needed)
    rng.shuffle(names)
    columns = [random_column(rng, each) for each in names]
    columns = [c for c in columns if c.name.isidentifier() or not c.index]
    if not any(c.index for c in columns) or rng.random() < 0.9:
        indexed, most = [c for c in columns if c.index], rng.choice([0, 1, 1, 2, 2, 3, 3])
        for column in rng.sample(indexed, max(0, len(indexed) - most)):
            column.index = None
    _narrow(columns)
    if rows is None:
        rows = rng.choice([0, 1, 2, 5, 17, 40, 150, 300, 300, 700, 2500])
    page_rows = rng.choice([16, 16, 32, 64])
    cuts = sorted(rng.randint(0, rows) for _ in range(rng.choice([0, 0, 0, 1, 1, 2])))
    sizes = [end - start for start, end in zip([0, *cuts], [*cuts, rows], strict=True)]
    batches = [random_rows(rng, columns, size) for size in sizes]
    capacity = [rng.choice([None, max(1, size), size + rng.randint(1, 100)]) for size in sizes]
    return RandomTable(name, columns, batches, page_rows, capacity)


def _held(column: Col) -> str:
    return "" if column.held is None else f" columns={','.join(map(json.dumps, column.held))}"


def _narrow(columns: list[Col]) -> None:
    """Let some indexes hold some columns only; by chance of its own, so that tables of a seed stay what they were."""
    names = [column.name for column in columns]
    rng = Random(repr(names))  # noqa: S311
    for column in columns:
        if column.index and rng.random() < 0.6:
            fewest = rng.choice([0, len(names) // 2, len(names) - 2])
            column.held = sorted({column.name, *rng.sample(names, rng.randint(fewest, len(names) - 1))})


def random_rows(rng: Random, columns: list[Col], rows: int) -> pa.Table:
    arrays = []
    for column in columns:
        rate = rng.choice([0.05, 0.3, 1.0 if rng.random() < 0.1 else 0.3]) if column.nullable else 0
        values = [None if rng.random() < rate else rng.choice(column.pool) for _ in range(rows)]
        whole = column.type == pa.timestamp("ns")  # a datetime has no nanoseconds: the pool has integers
        arrays.append(pa.array(values, pa.int64()).cast(column.type) if whole else pa.array(values, column.type))
    schema = pa.schema([pa.field(c.name, c.type, nullable=c.nullable) for c in columns])
    return pa.table(arrays, schema=schema)


def random_column(rng: Random, name: str) -> Col:  # noqa: PLR0911  one for each kind
    nullable = rng.random() < 0.6
    if name in INTEGERS:
        return _integers(rng, name, nullable)
    if name in DECIMALS:
        return _decimals(rng, name, nullable)
    if name in TIMESTAMPS:
        return _timestamps(rng, name, nullable)
    if name in CATEGORIES:
        listed = CATEGORIES[name]
        index = rng.choice([None, "category:" + json.dumps(listed)])
        chosen = rng.sample(listed, rng.randint(1, len(listed)))
        return Col(name, "category", pa.string(), nullable, chosen, f"category({json.dumps(listed)})", index)
    if name in ("f32", "f64"):
        return _floats(rng, name, nullable)
    if name in ("b", "b2"):
        return Col(name, "boolean", pa.bool_(), nullable, rng.choice([[True, False], [True], [False, False, True]]))
    if name == "day":
        first = rng.choice([datetime.date(2020, 1, 1), datetime.date(1969, 12, 20), datetime.date(1992, 2, 25)])
        days = [first + datetime.timedelta(rng.randint(0, 40)) for _ in range(rng.randint(1, 30))]
        index = rng.choice([None, f"date:{min(days)}:{max(days) + datetime.timedelta(rng.randint(0, 9))}"])
        return Col(name, "date", pa.date32(), nullable, days, None, index)
    if name in ("tm", "tm_ms"):
        step = 1 if name == "tm" else 1000
        micros = [0, 86_399_999_000] + [
            rng.randrange(0, 86_400_000_000 // step) * step for _ in range(rng.randint(1, 9))
        ]
        times = [(EPOCH + datetime.timedelta(microseconds=m)).time() for m in micros]
        return Col(name, "time", pa.time64("us") if name == "tm" else pa.time32("ms"), nullable, times)
    return _texts(rng, name, nullable)


def _integers(rng: Random, name: str, nullable: bool) -> Col:
    type_, least, most = INTEGERS[name]
    low, high = rng.choice([(0, 20), (-10, 10), (0, 100), (0, 100), (least, most)])
    low, high = max(low, least), min(high, most)
    wide = high - low > 1000
    pool = [rng.randint(low, high) for _ in range(rng.randint(1, 40))]
    if wide:
        pool += [least, most]
    index: str | None
    if rng.random() < 0.15:
        index = "keys:" + json.dumps(sorted(set(pool)))
    elif wide or rng.random() < 0.2:  # every key has to lie on a step
        step = max(1, (high - low) // rng.randint(50, 5000)) if wide else rng.randint(2, 5)
        pool = [low + (value - low) // step * step for value in pool]
        index = rng.choice([None, f"int:{low}:{high}:{step}"])
    else:
        index = rng.choice([None, f"int:{low}:{high}", f"int:{low}:{high}"])
    if name in ("Mixed Case", "u64") and rng.random() < 0.5:
        index = None
    return Col(name, "integer", type_, nullable, pool, None, index, small=not wide)


def _decimals(rng: Random, name: str, nullable: bool) -> Col:
    digits, scale = DECIMALS[name]
    limit = 10**digits - 1
    wide = rng.random() < 0.3
    span = limit if wide else min(limit, 500)
    units = [rng.randint(-span, span) for _ in range(rng.randint(1, 30))] + ([-limit, limit] if wide else [0])
    step = rng.choice([1, 1, 3, 10]) if not wide else max(1, span // 700)
    units = [min(units) + (unit - min(units)) // step * step for unit in units]
    pool = [Decimal(unit).scaleb(-scale) for unit in units]
    index = rng.choice([None, f"decimal:{min(pool):f}:{max(pool):f}:{Decimal(step).scaleb(-scale):f}"])
    return Col(name, "decimal", pa.decimal128(digits, scale), nullable, pool, None, index, small=not wide)


def _floats(rng: Random, name: str, nullable: bool) -> Col:
    pool = [rng.randint(-80, 80) / 8 for _ in range(rng.randint(1, 20))] + [-0.0, 0.0]
    index = rng.choice([None, f"float:-10:10:{rng.choice(['0.125', '0.1', '1', '0.3'])}"])
    small = True
    if index is None and rng.random() < 0.6:
        extreme = [math.nan, math.inf, -math.inf, 5e-324, 1.7976931348623157e308, 1e-3, 0.1]
        if name == "f32":
            extreme = [math.nan, math.inf, -math.inf, 2.0**-149, 3.4028234663852886e38, 0.125]
        pool += rng.sample(extreme, rng.randint(1, 4))
        small = all(not math.isfinite(value) or abs(value) < 100 for value in pool)
    return Col(name, "float", pa.float32() if name == "f32" else pa.float64(), nullable, pool, None, index, small)


def _timestamps(rng: Random, name: str, nullable: bool) -> Col:
    type_ = TIMESTAMPS[name]
    first = rng.choice(
        [datetime.datetime(2020, 1, 1), datetime.datetime(1969, 12, 31, 20), datetime.datetime(2024, 3, 10)]
    )
    per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[type_.unit]
    start = int((first - EPOCH).total_seconds()) * per_second
    resolution, seconds = rng.choice([(None, 0), ("1min", 60), ("7min", 420), ("1h", 3600), ("90s", 90)])
    if resolution is None:
        offsets = [
            rng.choice([rng.randrange(0, 9000) * per_second, rng.randrange(0, 3600 * per_second)]) for _ in range(20)
        ]
    else:
        offsets = [rng.randrange(0, 40 * 3600 // seconds) * seconds * per_second for _ in range(20)]
    ticks = [start + offset for offset in [0, *offsets[: rng.randint(1, 20)]]]
    pool: list[Any]
    if type_.unit == "ns":
        pool = list(ticks)
    else:
        pool = [EPOCH + datetime.timedelta(microseconds=tick * (10**6 // per_second)) for tick in ticks]
        if type_.tz:
            pool = [moment.replace(tzinfo=UTC) for moment in pool]
    last = first + datetime.timedelta(hours=40)
    index = resolution and f"timestamp:{first.isoformat()}:{last.isoformat()}:{resolution}"
    return Col(name, "timestamp", type_, nullable, pool, None, index)


def _texts(rng: Random, name: str, nullable: bool) -> Col:
    pool = rng.sample(WORDS, rng.randint(1, 14)) if name == "txt" else rng.sample(WORDS[:12], rng.randint(2, 8))
    splits = sorted(set(rng.sample(["a", "ab", "abc", "abcdefgh", "b", "é", "z", "日"], rng.randint(1, 5))))
    index = rng.choice([None, "string:" + json.dumps(splits), "string:" + json.dumps(splits, ensure_ascii=False)])
    if rng.random() < 0.15:
        index = "keys:" + json.dumps(sorted(set(pool)))
    longest = max(len(value.encode()) for value in pool)
    declared = rng.choice([None, f"text({max(1, longest)})", f"text({longest + rng.randint(1, 9)})"])
    return Col(name, "text", pa.string(), nullable, pool, declared, index)
