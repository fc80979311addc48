"""COUNT: of all rows, or of those where a column is not null."""

from sqlglot import exp

from scumble.sql.aggregates.contract import AggregateFunction, Argument, Finish

__all__ = ["COUNT"]


def _takes(argument: Argument) -> bool:
    return argument.expression is None or argument.is_column


def _finisher(_: Argument) -> Finish:
    return lambda state: state[0][0]


COUNT = AggregateFunction((exp.Count,), "count", _takes, _finisher)
