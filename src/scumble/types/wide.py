"""Values of 128 bits: two words, of which the first has the upper half and the second the lower one.

The lower half's top bit is flipped, since words are signed: so they compare first word first, as everywhere. Numbers
become words here, and comparisons with constants intervals of them; what the numbers mean is up to each type.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from scumble.types.column import Bracket, Interval, Operator, ValueWords

WIDE_BYTES = 16
_LEAST_WORD = -(1 << 63)
_LOW = (1 << 64) - 1
_TOP = np.uint64(1 << 63)


def wide_words(number: int) -> ValueWords:
    """Return the words of a number from -2^127 to 2^127 - 1."""
    return number >> 64, (number & _LOW) + _LEAST_WORD


def wide_number(words: ValueWords) -> int:
    """Return the number of its words."""
    return (words[0] << 64) + (words[1] - _LEAST_WORD)


def wide_interval(op: Operator, bracket: Bracket, least: int, most: int) -> Interval | None:
    """Return the words of the numbers from least to most that compare so with a constant; None if there are none."""
    above, below = bracket
    low = above if op in ("=", ">=") else below + 1 if op == ">" else least
    high = below if op in ("=", "<=") else above - 1 if op == "<" else most
    low, high = max(low, least), min(high, most)
    return (wide_words(low), wide_words(high)) if low <= high else None


def words_of_halves(upper: NDArray[Any], lower: NDArray[Any]) -> NDArray[np.int64]:
    """Return words [n, 2] of the numbers' halves, both of 64 bits."""
    words = np.empty((len(upper), 2), np.int64)
    words[:, 0] = upper.view(np.int64)
    words[:, 1] = (lower.view(np.uint64) ^ _TOP).view(np.int64)
    return words


def lower_half(words: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return the lower halves of words [n, 2]."""
    half: NDArray[np.uint64] = np.ascontiguousarray(words[:, 1]).view(np.uint64) ^ _TOP
    return half
