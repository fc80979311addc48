"""What an aggregate of SQL is: which calls, over what, made of what the enclave accumulates, and how.

Numbers as the enclave sends them are read here, too. For the owner's side alone.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from sqlglot import exp

from scumble.types import ColumnType
from scumble.wire.plan import Expression, Function

__all__ = ["AggregateFunction", "Argument", "Finish", "State", "decimal", "integer", "number"]

State = list[list[int]]
"""What was accumulated for one group: the words of each part, as `Aggregate.parts` in `wire/plan.py` lists them."""

Finish = Callable[[State], Any]
"""Makes SQL's value of a state."""

_EXACT = Context(prec=60)
_WORD = (1 << 64) - 1


class Argument(NamedTuple):
    """What an aggregate is called on: a column with its `type`, arithmetic on columns without one, or None for `*`.

    The SQL value is the words' divided by 10^scale.
    """

    expression: Expression | None
    scale: int = 0
    type: ColumnType | None = None

    @property
    def is_column(self) -> bool:
        return self.type is not None

    @property
    def is_number(self) -> bool:
        """Whether the enclave can add it up: beyond one word it cannot."""
        return self.expression is not None and (self.type is None or (self.type.is_number and self.type.words == 1))

    @property
    def is_float(self) -> bool:
        return self.type is not None and self.type.is_float


@dataclass(frozen=True)
class AggregateFunction:
    """One aggregate: what sqlglot parses its calls to, what the enclave accumulates for it, and its two questions."""

    calls: tuple[type[exp.AggFunc], ...]
    accumulates: Function
    takes: Callable[[Argument], bool]
    """Whether it can be computed over an argument; if not, DuckDB does it over the rows."""
    finisher: Callable[[Argument], Finish]
    """How to make SQL's value of a state, for an argument that it takes."""


def integer(words: list[int]) -> int:
    """A signed integer of several words, the least first."""
    if len(words) == 2:
        return (words[1] << 64) + (words[0] & _WORD)
    return sum((word & _WORD) << (64 * at) for at, word in enumerate(words[:-1])) + (
        words[-1] << (64 * (len(words) - 1))
    )


def doubles(words: list[int]) -> Fraction | float:
    """The exact sum of two doubles; a float only if it is not finite."""
    high, low = np.array(words, np.int64).view(np.float64).tolist()
    if not math.isfinite(high):
        return float(high)
    return Fraction(high) + Fraction(low)


def number(argument: Argument) -> Callable[[list[int]], int | Fraction | float]:
    """What reads a sum over an argument, of its values or of their squares."""
    return doubles if argument.is_float else integer


def decimal(unscaled: int, scale: int) -> Decimal:
    """An integer divided by a power of ten, exactly."""
    return Decimal(unscaled).scaleb(-scale, _EXACT)
