"""Aggregates: each makes SQL's value of what was accumulated, and nothing else knows one by name."""

import math
import statistics
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from sql_tables import BIGINT, BOOLEAN, DOUBLE, catalog_of, decimal, evaluate, small_table, text
from sqlglot import exp

from scumble.errors import Overflow
from scumble.owner.answers import GroupReader
from scumble.sql import AggregateQuery, RowQuery, prepare
from scumble.sql.aggregates import FUNCTIONS
from scumble.sql.aggregates.contract import AggregateFunction, Argument, State
from scumble.sql.aggregates.extremes import MAXIMUM

CATALOG = catalog_of(small_table())
VALUES = [7, -3, 12, 12, 40]
COLUMN, EXPRESSION = ("column", 0), ("*", ("column", 0), ("column", 1))


def _words(value: int, count: int) -> list[int]:
    data = value.to_bytes(8 * count, "little", signed=True)
    return np.frombuffer(data, np.int64).tolist()  # type: ignore[no-any-return]


def _state(call: type, values: list[int]) -> State:
    if call in (exp.Min, exp.Max):
        return [[len(values)], [min(values, default=0), max(values, default=0)]]
    return [[len(values)], _words(sum(values), 2), _words(sum(value * value for value in values), 3)]


def _double_state(values: list[float]) -> State:
    pairs = [[sum(values), 0.0], [sum(value * value for value in values), 0.0]]
    return [[len(values)], *(np.array(pair).view(np.int64).tolist() for pair in pairs)]


PLAIN: dict[type, Callable[[list[Any]], Any]] = {
    exp.Count: len,
    exp.Sum: sum,
    exp.Avg: statistics.fmean,
    exp.Min: min,
    exp.Max: max,
    exp.Variance: statistics.variance,
    exp.VariancePop: statistics.pvariance,
    exp.Stddev: statistics.stdev,
    exp.StddevSamp: statistics.stdev,
    exp.StddevPop: statistics.pstdev,
}


def test_every_aggregate_is_tested_here() -> None:
    assert set(PLAIN) == set(FUNCTIONS)


@pytest.mark.parametrize("call", FUNCTIONS)
def test_the_value_of_a_state(call: type) -> None:
    finisher = FUNCTIONS[call].finisher
    whole = finisher(Argument(COLUMN, 0, BIGINT))(_state(call, VALUES))
    assert whole == pytest.approx(PLAIN[call](VALUES))
    cents = finisher(Argument(COLUMN, 2, decimal(9, 2)))(_state(call, VALUES))
    assert float(cents) == pytest.approx(float(PLAIN[call]([Decimal(value) / 100 for value in VALUES])))
    if call not in (exp.Min, exp.Max):
        floats = [value / 8 for value in VALUES]
        assert finisher(Argument(COLUMN, 0, DOUBLE))(_double_state(floats)) == pytest.approx(PLAIN[call](floats))
    nothing = finisher(Argument(COLUMN, 0, BIGINT))(_state(call, []))
    assert nothing == (0 if call is exp.Count else None)


def test_a_sum_is_whole_unless_its_type_is_decimal() -> None:
    kinds: list[tuple[Argument, type]] = [
        (Argument(COLUMN, 0, BIGINT), int), (Argument(COLUMN, 0, decimal(9, 0)), Decimal),
        (Argument(COLUMN, 2, decimal(9, 2)), Decimal), (Argument(EXPRESSION, 0), int),
        (Argument(EXPRESSION, 2), Decimal),
    ]  # fmt: skip
    for argument, kind in kinds:
        words = [[1], _words(700, 2 if argument.is_column else 3)]
        found = FUNCTIONS[exp.Sum].finisher(argument)(words)
        assert type(found) is kind
        assert found == Decimal(700) / 10**argument.scale


def test_a_sample_of_one_has_no_variance_and_an_infinite_one_none_that_is_a_number() -> None:
    argument = Argument(COLUMN, 0, DOUBLE)
    assert FUNCTIONS[exp.Variance].finisher(argument)(_double_state([3.0])) is None
    assert FUNCTIONS[exp.VariancePop].finisher(argument)(_double_state([3.0])) == 0
    assert math.isnan(FUNCTIONS[exp.Stddev].finisher(argument)(_double_state([math.inf, 1.0])))
    assert FUNCTIONS[exp.Sum].finisher(argument)(_double_state([math.inf, 1.0])) == math.inf


def test_sums_and_extremes_of_expressions_have_128_bits() -> None:
    total = FUNCTIONS[exp.Sum].finisher(Argument(EXPRESSION, 3))
    assert total([[2], _words(-(10**37), 3)]) == Decimal(-(10**34))
    with pytest.raises(Overflow):
        total([[2], _words(10**38, 3)])
    value = -(10**25)
    ends = [value >> 64, _words(value, 2)[0] ^ -(1 << 63)]
    assert FUNCTIONS[exp.Min].finisher(Argument(EXPRESSION, 3))([[2], [*ends, 0, 0]]) == Decimal(-(10**22))


@pytest.mark.parametrize(
    ("argument", "takers"),
    [
        (Argument(None), {exp.Count}),
        (Argument(COLUMN, 0, text(9)), {exp.Count, exp.Min, exp.Max}),
        (Argument(COLUMN, 0, BOOLEAN), {exp.Count, exp.Min, exp.Max}),
        (Argument(COLUMN, 0, BIGINT), set(FUNCTIONS)),
        (Argument(EXPRESSION, 2), {exp.Sum, exp.Avg, exp.Min, exp.Max}),
    ],
)
def test_what_each_takes(argument: Argument, takers: set[type]) -> None:
    assert {call for call, function in FUNCTIONS.items() if function.takes(argument)} == takers


def test_a_new_aggregate_needs_no_other_change(monkeypatch: pytest.MonkeyPatch) -> None:
    sql = "SELECT bool_or(ok), count(*) FROM t"
    assert isinstance(prepare(sql, CATALOG, evaluate).query, RowQuery)
    bool_or = AggregateFunction((exp.LogicalOr,), "max", lambda argument: argument.is_column, MAXIMUM.finisher)
    monkeypatch.setitem(FUNCTIONS, exp.LogicalOr, bool_or)
    query = prepare(sql, CATALOG, evaluate).query
    assert isinstance(query, AggregateQuery)
    reader = GroupReader(query.aggregates, query.table.schema, query.outputs)
    slots, length = query.aggregates.layout(query.table.schema)
    answer = np.zeros(length, np.int64)
    for (_, at, size), words in zip((slot for own in slots for slot in own), ([9], [7], [0, 1]), strict=True):
        answer[at : at + size] = words
    assert reader.rows(memoryview(answer.tobytes())) == [(True, 9)]
