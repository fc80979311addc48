"""Predicates on fetched rows: a tree comes in, a function goes out that takes columns and bounds and gives a mask.

Columns, bounds and masks are SECRET; the tree's shape is public, and only the shape decides what is called.
"""

from collections.abc import Callable
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from scumble.boundary.predicate import And, Compare, Constant, In, Or, Predicate
from scumble.enclave import kernels
from scumble.enclave.pages import FetchedColumn
from scumble.schema import Schema

__all__ = ["Columns", "Evaluate", "compiled"]

Words = NDArray[np.int64]
Mask = NDArray[np.uint8]
Columns = Callable[[int], FetchedColumn]
Evaluate = Callable[[Columns, Words, int], Mask]
"""Columns, bounds and the number of rows come in; 1 for every row that matches, in a new array, comes out."""

_OPERATORS = {"=": kernels.EQ, "<": kernels.LT, "<=": kernels.LE}


def compiled(predicate: Predicate, schema: Schema) -> Evaluate:
    """The function that evaluates a predicate on rows of this schema."""
    match predicate:
        case In():
            return _compiled_in(predicate, schema)
        case Compare(left, right, op, negated):
            operator = _OPERATORS[op]

            def compare(columns: Columns, bounds: Words, rows: int) -> Mask:
                a, b = columns(left), columns(right)
                return kernels.mask_compare(a.words, b.words, operator, a.valid, b.valid, negated=negated)

            return compare
        case Constant(value):
            return lambda columns, bounds, rows: np.full(rows, value, np.uint8)
        case And(parts):
            every = [compiled(part, schema) for part in parts]
            return lambda *given: reduce(np.bitwise_and, (evaluate(*given) for evaluate in every))
        case Or(parts):
            some = [compiled(part, schema) for part in parts]
            return lambda *given: reduce(np.bitwise_or, (evaluate(*given) for evaluate in some))


def _compiled_in(leaf: In, schema: Schema) -> Evaluate:
    place, negated, null_matches = leaf.column, leaf.negated, leaf.null_matches
    shape = (leaf.intervals, 2, schema.columns[place].type.words)
    these = slice(leaf.offset, leaf.offset + leaf.intervals * 2 * shape[2])

    def contains(columns: Columns, bounds: Words, rows: int) -> Mask:
        fetched = columns(place)
        intervals = bounds[these].reshape(shape)
        return kernels.mask_intervals(
            fetched.words, intervals, fetched.valid, negated=negated, null_matches=null_matches
        )

    return contains
