"""SUM of integers and decimals, exactly, and of floats; null if there is nothing to add."""

from sqlglot import exp

from scumble.errors import Overflow
from scumble.sql.aggregates.contract import AggregateFunction, Argument, Finish, decimal, doubles, integer

__all__ = ["SUM"]


def _takes(argument: Argument) -> bool:
    return argument.is_number


def _finisher(argument: Argument) -> Finish:
    if argument.is_float:
        return lambda state: float(doubles(state[1])) if state[0][0] else None
    scale, type_ = argument.scale, argument.type
    whole = not scale and not (type_ is not None and type_.digits)

    def finish(state: list[list[int]]) -> object:
        if not state[0][0]:
            return None
        total = integer(state[1])
        if not abs(total) < 10**38:
            raise Overflow("a sum in this query leaves 128 bits", hint="cast to DOUBLE to compute in floats")
        return total if whole else decimal(total, scale)

    return finish


SUM = AggregateFunction((exp.Sum,), "sum", _takes, _finisher)
