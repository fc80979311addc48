"""Adaptive cells: a real partition, heavy ranks alone, and public constants only."""

from fractions import Fraction

import numpy as np
import pytest

from scumble.index.histogram import Histogram
from scumble.index.tree import cell_starts, release_adaptive_curve, scout_tree, worthwhile

SIZES = [2**17, 2**17 + 12_345, 2**20]


@pytest.mark.parametrize("size", SIZES)
def test_cells_partition_the_ranks(size: int) -> None:
    counts = np.random.default_rng(size).poisson(1, size)
    scout = scout_tree(size, Fraction(1, 7))
    starts = cell_starts(counts, scout, Fraction(1, 2))
    assert starts[0] == 0
    assert np.all(np.diff(starts) > 0)
    assert starts[-1] < size
    assert np.diff(starts).max() <= 4 * scout.blocks[0] + 1
    assert 500 < len(starts) < 20_000


def test_heavy_ranks_become_cells_of_their_own() -> None:
    size = 2**18
    counts = np.zeros(size, dtype=np.int64)
    heavy = np.array([0, 1, 777, 100_000, size - 1])
    counts[heavy] = 5_000
    starts = set(cell_starts(counts, scout_tree(size, Fraction(1, 2)), Fraction(1, 2)).tolist())
    assert set(heavy.tolist()) <= starts
    assert {2, 778, 100_001} <= starts


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("rows", [0, 1, 10**6])
def test_the_curve_ends_at_the_last_rank(size: int, rows: int) -> None:
    counts = np.zeros(size, dtype=np.int64)
    counts[size // 2] = rows
    curve = release_adaptive_curve(Histogram(counts), Fraction(7, 10))
    assert curve.knots[-1] == size - 1
    assert curve.levels == 6
    assert abs(curve.rows[-1] - rows) < 40 * curve.noise_rms


def test_small_domains_have_no_scout() -> None:
    assert not worthwhile(2**17 - 1)
    curve = release_adaptive_curve(Histogram(np.ones(1000, dtype=np.int64)), Fraction(1))
    assert curve.levels == 2
    assert len(curve.knots) == 1000
