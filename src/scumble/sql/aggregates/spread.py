"""VARIANCE and STDDEV of columns of numbers, of the sample or the population, rounded only once at the end."""

import math
from fractions import Fraction
from functools import partial

from sqlglot import exp

from scumble.sql.aggregates.contract import AggregateFunction, Argument, Finish, number

__all__ = ["SPREADS"]


def _takes(argument: Argument) -> bool:
    return argument.is_column and argument.is_number


def _finisher(argument: Argument, *, sample: bool, root: bool) -> Finish:
    read, unit = number(argument), 10 ** (2 * argument.scale)

    def finish(state: list[list[int]]) -> float | None:
        count = state[0][0]
        freedom = count - 1 if sample else count
        if freedom <= 0:
            return None
        total, squares = read(state[1]), read(state[2])
        if isinstance(total, float) or isinstance(squares, float):  # something was not finite
            return math.nan
        variance = (count * Fraction(squares) - Fraction(total) ** 2) / (count * freedom) / unit
        variance = max(variance, Fraction(0))
        return math.sqrt(variance) if root else float(variance)

    return finish


SPREADS = (
    AggregateFunction((exp.Variance,), "squares", _takes, partial(_finisher, sample=True, root=False)),
    AggregateFunction((exp.VariancePop,), "squares", _takes, partial(_finisher, sample=False, root=False)),
    AggregateFunction((exp.Stddev, exp.StddevSamp), "squares", _takes, partial(_finisher, sample=True, root=True)),
    AggregateFunction((exp.StddevPop,), "squares", _takes, partial(_finisher, sample=False, root=True)),
)
