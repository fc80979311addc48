"""AVG: the sum divided by the count, rounded once; null if there is no value."""

from fractions import Fraction

from sqlglot import exp

from scumble.sql.aggregates.contract import AggregateFunction, Argument, Finish, number

__all__ = ["AVERAGE"]


def _takes(argument: Argument) -> bool:
    return argument.is_number


def _finisher(argument: Argument) -> Finish:
    read, unit = number(argument), 10**argument.scale

    def finish(state: list[list[int]]) -> float | None:
        count = state[0][0]
        if not count:
            return None
        total = read(state[1])
        return total / count if isinstance(total, float) else float(Fraction(total) / (count * unit))

    return finish


AVERAGE = AggregateFunction((exp.Avg,), "sum", _takes, _finisher)
