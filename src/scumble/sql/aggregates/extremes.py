"""MIN and MAX, of columns of any type and of arithmetic; null if there is no value.

The state has the words of the least value, then those of the greatest. An expression's are its high word, then its low
word with the top bit flipped, so that they compare in this order.
"""

from functools import partial

from sqlglot import exp

from scumble.sql.aggregates.contract import AggregateFunction, Argument, Finish, decimal, integer

__all__ = ["MAXIMUM", "MINIMUM"]


def _takes(argument: Argument) -> bool:
    return argument.expression is not None and (argument.type is None or argument.type.is_ordered)


def _finisher(argument: Argument, *, least: bool) -> Finish:
    type_, scale = argument.type, argument.scale

    def finish(state: list[list[int]]) -> object:
        if not state[0][0]:
            return None
        half = len(state[1]) // 2
        words = state[1][:half] if least else state[1][half:]
        if type_ is not None:
            return type_.value_of(tuple(words))
        high, low = words
        return decimal(integer([low ^ -(1 << 63), high]), scale)

    return finish


MINIMUM = AggregateFunction((exp.Min,), "min", _takes, partial(_finisher, least=True))
MAXIMUM = AggregateFunction((exp.Max,), "max", _takes, partial(_finisher, least=False))
