"""A curve over cells that a public hint gives, instead of a scout; and the check that notices a wrong hint.

A histogram, secret, goes in with an epsilon; one noisy bit, whether its keys follow the hint, and then a public noisy
curve come out. What the two cost adds up. docs/privacy.md section 4.5.
"""

from dataclasses import dataclass
from fractions import Fraction
from math import ceil

import numpy as np
from numpy.typing import NDArray

from scumble.index.curve import Histogram
from scumble.index.hint import Hint
from scumble.index.mechanisms import Halves
from scumble.index.mechanisms.wide_tree import release_parts
from scumble.privacy.noise import Noise, add_discrete_laplace

__all__ = ["CHECK_SHARE", "HintedCells", "follows", "hinted_cells", "misfit", "release_hinted"]

IntArray = NDArray[np.int64]

CHECK_SHARE = Fraction(1, 48)  # of epsilon, for the check: what a wrong hint costs
EVENLY = 0.25  # of the cells are spread over the ranks, so that sparse regions get blocks of their own
UNLIKELY = 4  # standard deviations of a cell's rows about the hint that are put down to chance
TRUSTED = 4  # noise scales of misfit in all that are: a right hint is refused once in a hundred builds
PART_BITS = 8


@dataclass(frozen=True, eq=False)
class HintedCells:
    """PUBLIC: the first rank of every cell, the marks between which each lies, and the marks of all ranks."""

    starts: IntArray
    edges: IntArray
    marks: IntArray


def hinted_cells(hint: Hint, rows: int, rows_per_cell: float, least: int) -> HintedCells:
    """Cells of about so many expected rows, if there are `rows`; `least` cells at least, if there are as many ranks.

    A rank that is expected to hold most of a cell is one by itself. Every cell has marks of its own.
    """
    size, span = hint.marks.size, hint.span
    marks = hint.at_many(np.arange(size))
    cells = min(size, max(2 * least, ceil(rows / rows_per_cell)))
    share = ((1 - EVENLY) / span) * (marks + 1) + (EVENLY / size) * np.arange(1, size + 1)
    full = np.flatnonzero(np.diff(np.floor(share * cells), prepend=0.0) > 0) + 1
    heavy = np.flatnonzero(np.diff(share, prepend=0.0) * cells > 0.5)
    new = np.flatnonzero(np.diff(marks, prepend=-1) > 0)  # ranks that share a mark stay in one cell
    starts = np.unique(np.concatenate([[0], np.searchsorted(new, np.concatenate([full, heavy, heavy + 1]))]))
    starts = np.append(0, new[1:])[starts[starts < len(new)]]
    return HintedCells(starts, np.append(0, marks[np.append(starts[1:], size) - 1] + 1), marks)


def misfit(counts: IntArray, cells: HintedCells, rows: int) -> IntArray:
    """SECRET: by how many rows cells are not divided as the hint has it, beyond chance, in an array of one.

    A cell's rows are counted on either side of its middle mark, and the two numbers subtracted, the one on the larger
    side weighted down. How many rows a cell has does not matter: the tree measures that. Sensitivity: 1,
    since a row lies in one cell, and weighs 1 at most in its difference.
    """
    span, ends = int(cells.edges[-1]), np.append(cells.starts[1:], len(counts))
    first, last = cells.edges[:-1], cells.edges[1:]
    middle = np.clip(np.searchsorted(cells.marks, (first + last) // 2), cells.starts, ends)
    inner = np.flatnonzero((cells.starts < middle) & (middle < ends))
    starts, middle, ends, first, last = (each[inner] for each in (cells.starts, middle, ends, first, last))
    part = (cells.marks[middle - 1] + 1 - first) / (last - first)
    larger = np.maximum(part, 1 - part)
    chance = np.sqrt(rows / span * (last - first) * part * (1 - part)) / larger
    allowed = np.ceil(UNLIKELY * chance).astype(np.int64) + 1
    left, right = (np.rint(each / larger * (1 << PART_BITS)).astype(np.int64) for each in (1 - part, part))
    curve = np.concatenate([[0], np.cumsum(counts)])
    left *= curve[middle] - curve[starts]
    right *= curve[ends] - curve[middle]
    return np.add.reduce(np.maximum((np.abs(left - right) >> PART_BITS) - allowed, 0), keepdims=True, initial=0)


def follows(histogram: Histogram, hint: Hint, rows: int, cells: HintedCells, epsilon: Fraction, noise: Noise) -> bool:
    """Release whether the keys follow a hint: whether their misfit, with noise, is small.

    Sensitivity: 1; neighbours: one row added or removed; cost: epsilon; docs/privacy.md 4.5.
    """
    words = noise.stream("hint", hint.packed, rows, cells.starts, cells.edges, epsilon)
    released = misfit(histogram.counts, cells, rows)
    add_discrete_laplace(released, 1 / epsilon, words)
    return int(released[0]) <= ceil(TRUSTED / epsilon)


def release_hinted(
    histogram: Histogram, hint: Hint, cells: HintedCells, parts: int, epsilon: Fraction, noise: Noise
) -> Halves:
    """Release the curves of so many parts of equally many cells, over marks; their bounds are ranks.

    The cells are public, so no scout is paid for. Sensitivity: 1 a level in L1; neighbours: one row added or removed;
    cost: epsilon; docs/privacy.md 4.5.
    """
    counts = np.add.reduceat(histogram.counts, cells.starts)
    cuts = np.arange(parts + 1) * len(counts) // parts
    curves = release_parts(counts, cells.edges, cuts, [epsilon] * parts, noise, "hinted", hint.packed, cells.starts)
    bounds = np.append(cells.starts, hint.marks.size)[cuts]
    return Halves(bounds, curves, max(curve.levels for curve in curves))
