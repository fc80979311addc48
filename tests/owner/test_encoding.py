"""Rows become the matrix that the enclave expects, and a key outside its domain is refused without being shown."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scumble.errors import BadRows
from scumble.owner.encoding import dummy_rows, encode_rows
from scumble.types import Domain, parse_domain, schema_of
from scumble.wire.requests import RowLayout

MARKER = "MARKER_7319"


def layout_of(batch: Any, indexes: list[tuple[int, Domain]], types: dict[str, str] | None = None) -> RowLayout:
    domains = {batch.schema.names[place]: domain for place, domain in indexes}
    schema = schema_of(batch.schema, types=types, domains=domains)
    return RowLayout(schema, tuple(domain.size for _, domain in indexes))


def test_rows_as_the_boundary_says() -> None:
    batch = pa.record_batch(
        {"a": pa.array([7, None, 9]), "t": pa.array(["x", "", None]), "k": pa.array(["b", "a", None])},
        schema=pa.schema([("a", pa.int64()), ("t", pa.string()), ("k", pa.string())]),
    )
    indexes = [(2, parse_domain('category:["a","b"]')), (0, parse_domain("int:0:100"))]
    layout = layout_of(batch, indexes, {"t": "text(5)"})
    rows = encode_rows(batch, layout, indexes, 1)
    assert layout.words == 1 + 2 + 1 + 1 + 2
    top = -(2**63)
    assert rows.tolist() == [
        [7, top + (ord("x") << 56), 1, 1, 0b111, 1, 7],
        [0, top, 0, 0, 0b110, 0, 101],
        [9, 0, 0, 0, 0b001, 2, 9],
    ]
    assert dummy_rows(2, layout).tolist() == [[0] * 5 + [3, 102]] * 2


def test_without_nulls_and_without_indexes() -> None:
    schema = pa.schema([pa.field("a", pa.int8(), nullable=False)])
    batch = pa.record_batch({"a": pa.array([1, 2], pa.int8())}, schema=schema)
    layout = layout_of(batch, [])
    assert encode_rows(batch, layout, []).tolist() == [[1], [2]]
    assert dummy_rows(2, layout).tolist() == [[0], [0]]
    assert dummy_rows(0, layout).shape == (0, 1)
    assert encode_rows(batch.slice(0, 0), layout, []).shape == (0, 1)


@given(st.lists(st.lists(st.none() | st.integers(-9, 9), min_size=70, max_size=70), max_size=5))
def test_more_than_64_columns(cells: list[list[int | None]]) -> None:
    columns = [pa.array([row[place] for row in cells], pa.int64()) for place in range(70)]
    batch = pa.record_batch(columns, names=[f"c{place}" for place in range(70)])
    domain = parse_domain("int:-9:9")
    indexes: list[tuple[int, Domain]] = [(63, domain), (69, domain)]
    layout = layout_of(batch, indexes)
    rows = encode_rows(batch, layout, indexes)
    assert layout.key_offset == 72
    for place, column in enumerate(layout.schema):
        bits = rows[:, layout.validity_offset + place // 64].view(np.uint64) >> np.uint64(place % 64) & np.uint64(1)
        words = rows[:, layout.column_offsets[place]]
        assert column.type.decode(words, bits).to_pylist() == [row[place] for row in cells]
    for index, (place, _) in enumerate(indexes):
        expected = [domain.size if (key := row[place]) is None else domain.rank(key) for row in cells]
        assert rows[:, layout.key_offset + index].tolist() == expected


@pytest.mark.parametrize(
    ("text", "array", "trouble"),
    [
        ("int:0:100", pa.array([None, 1, 731_900]), "column 'c', row 13: the key is outside the domain int:0:100"),
        ("int:0:100", pa.array([0, 1, 731_900]), "column 'c', row 13: the key is outside the domain int:0:100"),
        ("int:0:100:10", pa.array([None, 0, 31]), "column 'c', row 13: the key lies between two steps"),
        ("float:0:1:0.1", pa.array([0.5, None, float("nan")]), "column 'c', row 13: the key is NaN"),
        ('keys:["a"]', pa.array(["a", None, MARKER]), "column 'c', row 13: the key is not in the list"),
        ('category:["a"]', pa.array(["a", None, MARKER]), "column 'c', row 13: the value is not in the list"),
        ("int:0:100", pa.array(["a", None, MARKER]), "column 'c': the keys"),
        ("date:2000-01-01:2000-12-31", pa.array([1, 2, 3]), "column 'c': the keys"),
    ],
)
def test_keys_outside_their_domain(text: str, array: Any, trouble: str) -> None:
    batch, domain = pa.record_batch({"c": array}), parse_domain(text)
    with pytest.raises(BadRows) as refusal:
        encode_rows(batch, layout_of(batch, [(0, domain)]), [(0, domain)], 11)
    assert str(refusal.value).startswith(trouble)
    assert refusal.value.hint
    assert "7319" not in str(refusal.value)


def test_every_kind_of_domain() -> None:
    batch = pa.record_batch(
        {
            "d": pa.array([0.25, None, 0.5]),
            "s": pa.array(["zoo", "abc", None]),
            "k": pa.array([9, None, 1]),
            "t": pa.array([0, 3_600, None], pa.timestamp("s", "UTC")),
            "p": pa.array([0.1 + 0.2, None, 1.0]),
        }
    )
    indexes = [
        (0, parse_domain("float:0:1:0.25")),
        (1, parse_domain('string:["m"]')),
        (2, parse_domain("keys:[1,5,9]")),
        (3, parse_domain("timestamp:1970-01-01:1970-01-02:1h")),
        (4, parse_domain("decimal:0:1:0.1")),
    ]
    layout = layout_of(batch, indexes, {"p": "decimal(5,1)"})
    ranks = encode_rows(batch, layout, indexes)[:, layout.key_offset :]
    assert ranks.T.tolist() == [[1, 4, 2], [1, 0, 2], [2, 3, 0], [0, 1, 25], [3, 11, 10]]


def test_batches_of_other_columns() -> None:
    batch = pa.record_batch({"a": [1]})
    with pytest.raises(BadRows, match="other columns"):
        encode_rows(pa.record_batch({"b": [1]}), layout_of(batch, []), [])
