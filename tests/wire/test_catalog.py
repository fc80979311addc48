"""The catalog's copies of rows: what they hold, as JSON, and what nobody may claim of them."""

from dataclasses import replace
from typing import Any

import pytest

from scumble.errors import Tampered
from scumble.types import Column, Schema, parse_type
from scumble.wire.catalog import Layer, Run, Table

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


def test_terms_and_comments_are_written_only_if_there_are_any_and_read_again() -> None:
    assert not {"terms", "comments"} & TABLE.to_json().keys()
    assert "based" not in WHOLE.to_json()
    said = replace(TABLE, terms=("b int:0:9 epsilon=1",), comments=(("a", "what"),))
    again = Table.from_json(said.to_json())
    assert (again.terms, again.comments) == (said.terms, said.comments)
    assert again.to_json() == said.to_json()


@pytest.mark.parametrize(
    "fields",
    [
        {"terms": ["d int:0:9 epsilon=1"]},
        {"terms": ["b int:0:9 epsilon=1", "b int:0:9 epsilon=2"]},
        {"terms": [7]},
        {"comments": {"d": "what"}},
        {"comments": {"a": 7}},
    ],
    ids=str,
)
def test_what_is_said_of_columns_that_are_not_there_is_tampered_with(fields: dict[str, Any]) -> None:
    with pytest.raises(Tampered):
        Table.from_json(TABLE.to_json() | fields)


def test_a_column_that_a_run_lacks_is_in_a_layer_over_all_of_it() -> None:
    layer = Layer("0a" * 16, 0, 4, (2,), ("00" * 32,))
    based = replace(WHOLE, based=2, layers=(layer,))
    table = replace(TABLE, runs=(replace(NARROW, based=2), based))
    again = Table.from_json(table.to_json())
    assert again.runs[1].based == 2
    assert [based.is_based(place) for place in range(3)] == [True, True, False]
    assert table.run_bytes(based) == 4 * 3 * (16 * 4 + 16)
    for wrong in (
        replace(WHOLE, based=2),
        replace(based, layers=(replace(layer, pages=3),)),
        replace(based, layers=(replace(layer, columns=(1,)),)),
        replace(based, based=1),
        replace(based, based=0),
        replace(WHOLE, based=4),
    ):
        with pytest.raises(Tampered):
            Table.from_json(replace(TABLE, runs=(NARROW, wrong)).to_json())
