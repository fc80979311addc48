"""What a load costs and which rows a table takes, decided before anything is sent."""

import pytest

from scumble.errors import InvalidParameter
from scumble.owner.indexes import IndexSpec
from scumble.owner.loading import LoadOptions, _spends
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


@pytest.mark.parametrize("amount", ["0", "-1", "1/2000000", "257", "1024"])
def test_an_epsilon_that_no_index_can_be_built_for_is_refused_before_it_is_spent(amount: str) -> None:
    with pytest.raises(InvalidParameter, match="epsilon"):
        IndexSpec.parse(f"k int:0:9 epsilon={amount} slack=paper").order()
    with pytest.raises(InvalidParameter, match=r"epsilon|delta"):
        _spends(Table("0a" * 16, "t", schema("k integer"), ()), [], LoadOptions(capacity_epsilon=amount), "0b" * 16)
