"""The catalog's copies of rows: what they hold, as JSON, and what nobody may claim of them."""

from dataclasses import replace
from typing import Any

import pytest

from scumble.errors import Tampered
from scumble.types import Column, Schema, parse_type
from scumble.wire.catalog import Run, Table

SCHEMA = Schema(tuple(Column(name, parse_type("integer"), False) for name in "abc"))
WHOLE = Run("00" * 16, "ba" * 16, None, 64, 16, None, ("00" * 32,) * 3)
NARROW = replace(WHOLE, id="01" * 16, attribute="b", columns=(0, 1))
TABLE = Table("ab" * 16, "t", SCHEMA, (NARROW, WHOLE))


def test_a_narrow_run_says_what_it_holds_and_a_whole_one_is_written_as_ever() -> None:
    assert "columns" not in WHOLE.to_json()
    assert NARROW.to_json()["columns"] == [0, 1]
    again = Table.from_json(TABLE.to_json())
    assert again.copies == TABLE.copies == (("b", (0, 1)), (None, None))
    assert [again.held(run) for run in again.runs] == [(0, 1), (0, 1, 2)]
    assert again.to_json() == TABLE.to_json()


def test_what_a_run_holds() -> None:
    for places, held in (([], True), ([0], True), ([1, 0], True), ([2], False), ([0, 2], False)):
        assert NARROW.holds(places) == held
        assert WHOLE.holds(places)


def test_the_bytes_of_a_run_are_those_of_its_columns() -> None:
    assert TABLE.run_bytes(WHOLE) == 4 * 3 * (16 * 4 + 16)
    assert TABLE.run_bytes(NARROW) == 4 * 2 * (16 * 4 + 16)
    assert TABLE.capacity == 64


@pytest.mark.parametrize(
    "columns", [[], [0], [2, 1], [1, 1], [1, 3], [-1, 1], [0, 1, 2, 3], ["b"], "ab", [0, 1, 2]], ids=str
)
def test_columns_that_a_copy_cannot_have_are_tampered_with(columns: Any) -> None:
    """None, without its own, in another order, twice, or such as there are not. All of them are written as none."""
    fields = TABLE.to_json()
    fields["runs"][0]["columns"] = columns
    if columns == [0, 1, 2]:
        assert Table.from_json(fields).runs[0].holds([0, 1, 2])
        return
    with pytest.raises(Tampered):
        Table.from_json(fields)


def test_a_table_has_every_column_somewhere_and_the_same_in_every_batch() -> None:
    for runs in (
        (NARROW,),
        (NARROW, replace(NARROW, id="02" * 16, attribute="a")),
        (NARROW, replace(NARROW, id="02" * 16, batch="bb" * 16, columns=(1, 2)), WHOLE),
        (NARROW, replace(NARROW, id="02" * 16, batch="bb" * 16, columns=None), WHOLE),
        (WHOLE, replace(WHOLE, id="02" * 16, columns=(0, 1))),
    ):
        with pytest.raises(Tampered):
            Table.from_json(replace(TABLE, runs=runs).to_json())
