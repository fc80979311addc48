"""LIKE and prefixes match what DuckDB matches, and the ranks of an interval miss no key in it."""

import json
from datetime import datetime
from decimal import Decimal
from itertools import pairwise
from typing import Any, get_args

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scumble.types import ColumnType, Operator, parse_domain, parse_type

LETTERS = "aAb%_\\!é\n😀\uffff\U0010ffff"
TEXTS = st.text(st.sampled_from(LETTERS), max_size=5)


@pytest.fixture(scope="module")
def db() -> duckdb.DuckDBPyConnection:
    return duckdb.connect()


def categories_of(texts: set[str]) -> ColumnType:
    return parse_type(f"category({json.dumps(sorted(texts))})")


@settings(max_examples=200)
@given(texts=st.sets(TEXTS, min_size=1), pattern=TEXTS, escape=st.sampled_from([None, "!", "\\"]), blind=st.booleans())
def test_like_on_categories_is_duckdbs(
    db: duckdb.DuckDBPyConnection, texts: set[str], pattern: str, escape: str | None, blind: bool
) -> None:
    type_ = categories_of(texts)
    found = type_.like_intervals(pattern, escape, case_insensitive=blind)
    said = f"c {'ILIKE' if blind else 'LIKE'} ?" + ("" if escape is None else f" ESCAPE '{escape}'")
    if found is None:
        is_ascii = pattern.isascii() and all(text.isascii() for text in texts)
        assert (blind and (escape or not is_ascii)) or pattern.count(escape or "none") > 0
        return
    db.register("t", pa.table({"c": pa.array(type_.group_values), "n": range(len(texts))}))
    rows = db.execute(f"SELECT n FROM t WHERE {said} ORDER BY n", [pattern]).fetchall()  # noqa: S608
    assert [row[0] for row in rows] == [code for (low,), (high,) in found for code in range(low, high + 1)]
    assert all(after[0][0] > before[1][0] + 1 for before, after in pairwise(found))


@settings(max_examples=150)
@given(texts=st.lists(TEXTS, min_size=1), prefix=TEXTS | st.text(max_size=12))
def test_prefixes(texts: list[str], prefix: str) -> None:
    text_type, category = parse_type("text(20)"), categories_of(set(texts))
    bounds = text_type.prefix_interval(prefix)
    assert bounds is not None
    for text in texts:
        assert (bounds[0] <= text_type.words_of(text) <= bounds[1]) == text.startswith(prefix)
    codes = category.prefix_interval(prefix)
    assert codes is not None
    for code, text in enumerate(sorted(set(texts))):
        assert (codes[0] <= (code,) <= codes[1]) == text.startswith(prefix)
    assert parse_type("integer").prefix_interval(prefix) is None


INDEXED: list[tuple[str, str, st.SearchStrategy[Any]]] = [
    ("bigint", "int:-50:50", st.integers(-50, 50)),
    ("utinyint", "int:0:100:5", st.integers(0, 20).map(lambda n: 5 * n)),
    ("bigint", "keys:[1,5,9]", st.sampled_from([1, 5, 9])),
    ("decimal(12,2)", "decimal:-1:1:0.01", st.integers(-100, 100).map(lambda n: Decimal(n).scaleb(-2))),
    ("decimal(12,2)", "float:-1:1:0.3", st.integers(-100, 100).map(lambda n: Decimal(n).scaleb(-2))),
    ("double", "float:-1:1:0.01", st.floats(-1, 1)),
    ("float", "float:-1:1:0.01", st.floats(-1, 1, width=32)),
    ("double", "decimal:-1:1:0.01", st.integers(-100, 100).map(lambda n: n / 100)),
    ("date", "date:1999-01-01:2001-12-31", st.dates(datetime(1999, 1, 1).date(), datetime(2001, 12, 31).date())),
    ("timestamp", "timestamp:2000-01-01:2000-12-31:1h", st.datetimes(datetime(2000, 1, 1), datetime(2000, 12, 30))),
    (
        "timestamp_ns",
        "timestamp:2000-01-01:2000-01-02:100ns",
        st.integers(946_684_800 * 10**9, 946_771_199 * 10**9).map(lambda n: np.datetime64(n, "ns")),
    ),
    ("timestamptz", "timestamp:2000-01-01:2000-12-31:1d", st.datetimes(datetime(2000, 1, 1), datetime(2000, 12, 30))),
    ('category(["a","b","c"])', 'category:["a","b","c"]', st.sampled_from("abc")),
    ('category(["a","b","c"])', 'string:["b"]', st.sampled_from("abc")),
    ("text(8)", 'string:["A","a","é"]', st.text(st.sampled_from("Aaé\0\ue000"), max_size=2)),
    ("text(8)", 'keys:["A","a","é"]', st.sampled_from(["A", "a", "é"])),
]


@pytest.mark.parametrize(("declared", "text", "keys"), INDEXED, ids=lambda part: part if isinstance(part, str) else "")
@settings(max_examples=100)
@given(data=st.data())
def test_ranks_of_an_interval_miss_no_key(
    declared: str, text: str, keys: st.SearchStrategy[Any], data: st.DataObject
) -> None:
    type_, domain = parse_type(declared), parse_domain(text)
    key, low, high = data.draw(keys), data.draw(keys), data.draw(keys)
    ops = st.sampled_from(get_args(Operator))
    first, second = type_.interval(data.draw(ops), low), type_.interval(data.draw(ops), high)
    assert first is not None
    assert second is not None
    bounds = max(first[0], second[0]), min(first[1], second[1])
    words = type_.words_of(key)
    rank = int(domain.ranks(type_.decode(np.array([words if len(words) > 1 else words[0]], np.int64), None))[0])
    start, stop = type_.rank_span(domain, *bounds)
    if bounds[0] <= words <= bounds[1]:
        assert start <= rank <= stop
    assert type_.rank_span(domain, *type_.full_interval) == (0, domain.size - 1)


def test_ranks_are_no_more_than_needed() -> None:
    def ranks(declared: str, text: str, op: Operator, value: object) -> tuple[int, int]:
        bounds = parse_type(declared).interval(op, value)
        assert bounds is not None
        return parse_type(declared).rank_span(parse_domain(text), *bounds)

    assert ranks("bigint", "int:0:9", ">", 3) == (4, 9)
    assert ranks("bigint", "int:0:9", "<", 0) == (0, -1)
    assert ranks("decimal(12,2)", "decimal:0:1:0.01", "<", Decimal("0.055")) == (0, 5)
    assert ranks("date", "date:2000-01-01:2000-01-31", "<", "2000-01-03") == (0, 1)
    assert ranks("date", "date:2000-01-01:2000-01-31", ">", "9999-12-31") == (0, -1)
    assert ranks("double", "float:0:1:0.25", "<", 0.5) == (0, 1)
    assert ranks("text(5)", 'string:["m"]', "<", "m") == (0, 0)
    assert ranks("text(5)", 'string:["m"]', ">=", "m") == (1, 1)
    assert ranks("text(5)", 'string:["m"]', "<=", "lzzzzzzzzz") == (0, 0)


def test_prefixes_span_few_ranks() -> None:
    domain, type_ = parse_domain('string:["b","c","d"]'), parse_type("text(10)")

    def ranked(prefix: str) -> tuple[int, int]:
        return type_.rank_span(domain, *(type_.prefix_interval(prefix) or type_.full_interval))

    assert ranked("b") == (1, 1)
    assert ranked("") == (0, 3)
    assert ranked("far too long for it") == (0, -1)
