"""Constants of several types side by side: their words are worked out only where DuckDB compares each as it stands."""

from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from scumble.sql.constants import Literal, Param, Points, Range, Replan
from scumble.types import parse_type

DAY, MOMENT = date(2020, 1, 2), datetime(2020, 1, 3)

MIXTURES = [
    ("integer", [1, 2], True),
    ("integer", [1, Decimal("2.5")], True),
    ("integer", [1, None], True),
    ("bigint", [2**53 + 1, 9e15], False),  # as doubles, 2^53 and 2^53 + 1 are the same
    ("integer", [Decimal("1.5"), 2.5], False),
    ("integer", [1, "2"], False),
    ("integer", [True, 2], False),
    ("double", [1, 2.5, Decimal("3.5")], True),
    ("double", [1, "2"], False),
    ("date", ["2020-01-01", DAY], True),
    ("timestamp", ["2020-01-01", DAY, MOMENT], True),
    ("timestamp", [DAY, MOMENT.replace(tzinfo=UTC)], False),
    ("timestamp", ["2020-01-01", MOMENT.replace(tzinfo=UTC)], False),
    ("text(5)", ["a", "b"], True),
    ("text(5)", ["a", 1], False),
]


@pytest.mark.parametrize(
    ("kind", "values", "known"), MIXTURES, ids=[f"{kind} {values}" for kind, values, _ in MIXTURES]
)
def test_constants_that_are_made_one_type_first(kind: str, values: list[object], known: bool) -> None:
    type_ = parse_type(kind)
    for params in (None, values):
        constants = [Literal(value) if params is None else Param(place) for place, value in enumerate(values)]
        points = Points(type_, tuple(constants))
        first, *others = constants
        between = Range(type_, ((">=", first), *(("<=", other) for other in others)), between=True)
        if known:
            assert len(points.resolve(params)) == len(values)
            assert len(between.resolve(params)) == 1
        else:
            with pytest.raises(Replan):
                points.resolve(params)
            with pytest.raises(Replan):
                between.resolve(params)
