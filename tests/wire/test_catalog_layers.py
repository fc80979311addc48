"""Layers and added columns in a catalog: what they cover, how many bytes they take, and which cannot be."""

from dataclasses import replace
from typing import Any

import pytest

from scumble.errors import Tampered
from scumble.types import Column, Schema, parse_type
from scumble.wire.catalog import LIVE, TAG_BYTES, Kept, Layer, Run, Table

SCHEMA = Schema(tuple(Column(name, parse_type("integer"), nullable=False) for name in "abc"))
LAYER = Layer("0a" * 16, 2, 3, (0, 1), ("00", "01"))
RUN = Run("01" * 16, "b", "a", 96, 16, b"index", ("00", "01", "02"))
TAIL = Run("02" * 16, "c", None, 32, 16, None, ("00", "01", "02"), tail=True)


def table(*runs: Run, **more: Any) -> Table:
    return Table("ab" * 16, "t", SCHEMA, runs, **more)


@pytest.mark.parametrize(
    ("first", "pages", "columns", "covered"),
    [
        (2, 3, (0, 1), True),
        (1, 5, (1, 0, 2), True),
        (0, 5, (0, 1), True),
        (0, 4, (0, 1), False),
        (3, 3, (0, 1), False),
        (2, 3, (0,), False),
        (2, 3, (0, 2), False),
    ],
)
def test_a_layer_under_another_that_has_all_of_it_is_gone(
    first: int, pages: int, columns: tuple[int, ...], covered: bool
) -> None:
    later = Layer("0b" * 16, first, pages, columns, ())
    assert LAYER.is_covered_by(later) == covered
    assert RUN.under(LAYER).under(later).layers == ((later,) if covered else (LAYER, later))


def test_rows_may_be_dead_where_a_layer_has_their_live_bytes() -> None:
    assert not RUN.under(LAYER).has_dead
    assert RUN.under(LAYER).under(replace(LAYER, columns=(LIVE,))).has_dead


def test_layers_and_added_columns_count_among_the_bytes() -> None:
    slot = 16 * 4 + TAG_BYTES
    assert table().run_bytes(RUN) == 6 * 3 * slot
    assert table().run_bytes(RUN.under(LAYER)) == 6 * 3 * slot + 3 * 2 * slot
    assert table().run_bytes(RUN.under(replace(LAYER, columns=(LIVE,)))) == 6 * 3 * slot + 3 * (16 + TAG_BYTES)
    assert table().run_bytes(replace(RUN, based=2)) == 6 * 2 * slot
    assert table().run_bytes(replace(RUN, columns=(0, 2))) == 6 * 2 * slot


ADDED = Layer("0c" * 16, 0, 6, (2,), ("00",))


@pytest.mark.parametrize(
    ("runs", "right"),
    [
        ([replace(RUN, based=2, layers=(ADDED,))], True),
        ([replace(RUN, based=3)], True),
        ([replace(RUN, based=2)], False),  # nothing has the third column
        ([replace(RUN, based=2, layers=(replace(ADDED, pages=5),))], False),
        ([replace(RUN, based=2, layers=(replace(ADDED, columns=(1,)),))], False),
        ([replace(RUN, based=1, layers=(ADDED,))], False),
        ([replace(RUN, based=1, layers=(replace(ADDED, columns=(1, 2), tag_hashes=("0", "1")),))], True),
        ([replace(RUN, based=0, layers=(replace(ADDED, columns=(0, 1, 2), tag_hashes=("0", "1", "2")),))], False),
        ([replace(RUN, based=4)], False),
        ([RUN, TAIL], True),
        ([TAIL], True),
        ([replace(TAIL, attribute="a")], False),
        ([RUN, replace(TAIL, columns=(0, 1))], False),
        ([replace(RUN, columns=(0, 1))], False),  # no copy has all columns
        ([RUN, replace(RUN, id="03" * 16, attribute="b", columns=(0, 1))], True),
        ([RUN, replace(RUN, id="03" * 16, attribute="b", columns=(0, 2))], False),  # not its own
        ([RUN, replace(RUN, id="03" * 16, attribute="b", columns=(1, 0))], False),
        ([RUN, replace(RUN, id="03" * 16, attribute="b", columns=(1, 3))], False),
        ([RUN, replace(RUN, id="03" * 16, columns=(0, 1))], False),  # another batch's copy has others
    ],
)
def test_a_table_is_read_if_its_runs_can_be(runs: list[Run], right: bool) -> None:
    fields = table(*runs).to_json()
    if right:
        assert Table.from_json(fields).to_json() == fields
    else:
        with pytest.raises(Tampered):
            Table.from_json(fields)


@pytest.mark.parametrize(
    ("terms", "comments", "right"),
    [
        (("a int:0:9", "b"), (("c", "said"),), True),
        (("d int:0:9",), (), False),
        (("a int:0:9", "a int:0:8"), (), False),
        ((), (("d", "said"),), False),
        ((7,), (), False),
        ((), (("a", 7),), False),
    ],
)
def test_terms_and_comments_are_texts_of_columns(terms: Any, comments: Any, right: bool) -> None:
    assert table(terms=terms, comments=comments).is_right == right


def test_every_field_of_a_run_is_kept() -> None:
    more = {"merged": ("x", "y"), "moved": True, "erased": True, "based": 3, "tally": Kept("0d" * 16, 9, "00")}
    run = replace(RUN, layers=(LAYER,), **more)  # type: ignore[arg-type]
    (again,) = Table.from_json(table(run).to_json()).runs
    assert {name: getattr(again, name) for name in more} == more
    assert (again.layers, again.index, again.batches) == ((LAYER,), b"index", ("x", "y"))
    assert RUN.batches == ("b",)
    for name in (*more, "layers", "tail", "columns"):
        assert name not in RUN.to_json()


def test_runs_of_the_tail_belong_to_every_copy() -> None:
    other = replace(RUN, id="03" * 16, attribute="b")
    made = table(TAIL, RUN, other)
    assert (made.attributes, made.settled, made.tail) == (("a", "b"), (RUN, other), (TAIL,))
    assert made.runs_by("a") == (RUN, TAIL)
    assert made.runs_by("b") == (other, TAIL)
    assert made.capacity == 96 + 32
    assert table(TAIL).attributes == (None,)
    assert table(TAIL).runs_by(None) == (TAIL,)
    assert made.copies == (("a", None), ("b", None))
    assert "capacity 128, indexes on a, b" in repr(made)
    assert "indexes on nothing" in repr(table(TAIL))
