"""Answers: which rows of an answer matched, and what Python makes of their values."""

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from scumble.errors import Overflow
from scumble.owner.answers import GroupReader, Result, _numbers
from scumble.types import Column, Schema, parse_type
from scumble.wire.plan import Aggregate, Aggregates


def test_only_what_duckdb_has_as_a_hugeint_is_an_int() -> None:
    types = [pa.decimal128(38, 0), pa.decimal128(37, 0), pa.decimal128(38, 1)]
    table = pa.table({str(kind): pa.array([Decimal(7), None], kind) for kind in types})
    rows = Result(lambda: table).fetchall()
    assert rows == [(7, 7, 7), (None, None, None)]
    assert [type(value) for value in rows[0]] == [int, Decimal, Decimal]


@pytest.mark.parametrize(
    ("mask", "one_piece"),
    [
        ("", False),
        ("000", False),
        ("1", True),
        ("010", True),
        ("011", True),
        ("1110", True),
        ("01110", True),
        ("101", False),
        ("0101", False),
        ("1101", False),
        ("10001", False),
    ],
)
def test_the_rows_that_matched_are_chosen_and_as_a_slice_if_they_are_one_piece(mask: str, one_piece: bool) -> None:
    matched = _numbers(np.array([*map(int, mask)], np.uint8))
    places = np.arange(len(mask))
    assert [*places[matched]] == [place for place, bit in enumerate(mask) if bit == "1"]
    assert isinstance(matched, slice) == one_piece


@pytest.mark.parametrize("grouped", [False, True])
def test_without_groups_there_is_a_row_whether_anything_matches_or_not(grouped: bool) -> None:
    schema = Schema((Column("ok", parse_type("boolean"), nullable=True),))
    wanted = Aggregates((Aggregate("count", None),), (0,) if grouped else ())
    answer = np.zeros(wanted.layout(schema)[1], np.int64)
    reader = GroupReader(wanted, schema, ())
    assert reader.rows(memoryview(answer.tobytes())) == ([] if grouped else [()])
    answer[1 + 2 * grouped] = 3  # the third of the groups is that of nulls
    assert reader.rows(memoryview(answer.tobytes())) == ([(None,)] if grouped else [()])
    answer[0] = 1
    with pytest.raises(Overflow):
        reader.rows(memoryview(answer.tobytes()))
