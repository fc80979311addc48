"""Changes by keys: what is asked is as long for any number of keys up to a power of two, and for nulls."""

from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from scumble.errors import UnsupportedQuery
from scumble.owner.changing import Asking, Changes
from scumble.types import Column, Schema, parse_type
from scumble.wire.catalog import Table

TABLE = Table("ab" * 16, 't "x"', Schema((Column("k", parse_type("integer"), nullable=True),)), ())


def asked(keys: list[int | None]) -> tuple[list[int], str, list[int | None]]:
    """How many rows each key is said to have, and what was asked, if the table has those below 10."""
    seen: list[Any] = []

    def run(sql: str, params: Any) -> Any:
        seen.append((sql, params))
        return SimpleNamespace(fetchall=lambda: [(key,) for key in params if key is not None and key < 10])

    changes: Any = Changes(None, None, Asking(lambda sql: None, run), None)  # type: ignore[arg-type, return-value]
    found = changes._matching(TABLE, ["k"], pa.table({"k": pa.array(keys, pa.int64())}))
    ((sql, params),) = seen
    return found, sql, params


@pytest.mark.parametrize(
    ("keys", "found", "number"),
    [
        ([], [], 1),
        ([3], [1], 1),
        ([30], [0], 1),
        ([None], [0], 1),
        ([3, 30], [1, 0], 2),
        ([3, None, 30], [1, 0, 0], 4),
        ([1, 2, 3, 4], [1, 1, 1, 1], 4),
        ([1, 2, 3, 4, 50], [1, 1, 1, 1, 0], 8),
    ],
)
def test_keys_are_asked_for_by_powers_of_two(keys: list[int | None], found: list[int], number: int) -> None:
    matched, sql, params = asked(keys)
    assert matched == found
    assert params == [*keys, *[None] * (number - len(keys))]
    assert sql == f'SELECT "k" FROM "t ""x""" WHERE "k" IN ({", ".join("?" * number)})'  # noqa: S608


def test_do_nothing_takes_a_key_of_one_column() -> None:
    asking = Asking(lambda sql: None, lambda sql, params: None)  # type: ignore[arg-type, return-value]
    changes: Any = Changes(None, None, asking, None)  # type: ignore[arg-type]
    with pytest.raises(UnsupportedQuery, match="one column"):
        changes._matching(TABLE, ["k", "v"], pa.table({"k": [1]}))
