"""What a load costs and which rows a table takes, decided before anything is sent."""

from fractions import Fraction

import pytest

from scumble.errors import InvalidParameter
from scumble.owner.indexes import IndexSpec
from scumble.owner.loading import LoadOptions, _holds, _spends
from scumble.types import Column, Schema, parse_type
from scumble.wire.catalog import Table


def schema(*columns: str) -> Schema:
    """Columns like `k integer not null`."""
    parts = [text.removesuffix(" not null").partition(" ") for text in columns]
    return Schema(
        tuple(
            Column(name, parse_type(kind), not text.endswith("not null"))
            for (name, _, kind), text in zip(parts, columns, strict=True)
        )
    )


@pytest.mark.parametrize(
    ("table", "rows", "held"),
    [
        ("k integer not null", "k integer not null", True),
        ("k integer", "k integer not null", True),
        ("k integer", "k integer", True),
        ("k integer not null", "k integer", False),
        ("k integer", "k bigint", False),
        ("k integer", "j integer", False),
    ],
)
def test_a_table_takes_rows_of_its_columns_and_nulls_only_where_they_may_be(table: str, rows: str, held: bool) -> None:
    assert _holds(schema(table), schema(rows)) is held
    assert _holds(schema("a date", table), schema("a date", rows)) is held
    assert not _holds(schema(table), schema(rows, "b date"))


def test_the_capacity_is_drawn_for_whoever_has_most_rows() -> None:
    table = Table("0a" * 16, "t", schema("k integer", "j integer"), ())
    orders = [
        IndexSpec.parse("k int:0:9 epsilon=2 rows_per_user=1").order(),
        IndexSpec.parse("j int:0:9 epsilon=3 rows_per_user=3").order(),
    ]
    *indexes, capacity = _spends(table, orders, LoadOptions())
    assert [spend.rows_per_user for spend in indexes] == [1, 3]
    assert (capacity.epsilon, capacity.rows_per_user) == (Fraction(2, 10), 3)
    assert len(_spends(table, orders, LoadOptions(capacity=100))) == 2


@pytest.mark.parametrize("amount", ["0", "-1", "1/2000000", "257", "1024"])
def test_an_epsilon_that_no_index_can_be_built_for_is_refused_before_it_is_spent(amount: str) -> None:
    with pytest.raises(InvalidParameter, match="epsilon"):
        IndexSpec.parse(f"k int:0:9 epsilon={amount} slack=paper").order()
    with pytest.raises(InvalidParameter, match=r"epsilon|delta"):
        _spends(Table("0a" * 16, "t", schema("k integer"), ()), [], LoadOptions(capacity_epsilon=amount))
