"""Grids: cells that are a partition of the ranks, as fine as was asked for, and read back from their bytes alone."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from scumble import DPPLRIndex, IntegerDomain
from scumble.errors import InvalidParameter
from scumble.index.curve import Histogram
from scumble.index.grid import HEADER, MOST_CELLS, NEW, Grid, suitable_cells, suitable_parts
from scumble.index.hint import Hint
from scumble.index.mechanisms import gridded, wide_tree
from scumble.index.mechanisms.gridded import find_grid, release_over_grid
from scumble.index.mechanisms.wide_tree import WideTree, least_squares
from scumble.lab.audit.tap import replaced
from scumble.privacy.budget import unsafe_budget
from scumble.privacy.noise import Noise

IntArray = NDArray[np.int64]
ONE = Fraction(1)


def some_grids() -> list[Grid]:
    counts = np.zeros(50_000, dtype=np.int64)
    counts[[0, 7, 30_000, 49_999]] = 5000
    counts += np.arange(50_000) // 20_000
    model = (
        DPPLRIndex(max_bytes=4096)
        .fit_counts(counts, domain=IntegerDomain(0, 49_999), budget=unsafe_budget(1), capacity=10**6)
        .model
    )
    return [
        Grid.even(1, 10),
        Grid.even(30_000, 500),
        Grid.even(30_000, 10**7),
        Grid.of_curve(np.cumsum(counts).astype(np.float64), 20_000),
        Grid.of_curve(np.zeros(50_000), 900),
        Grid.of_hint(Hint.of_counts(counts), 2000),
        Grid.of_models([model, model], 3000),
        find_grid(Histogram(counts), 3000, ONE, Noise.fresh())[0],
    ]


def test_cells_are_a_partition_and_parts_are_of_cells() -> None:
    for grid in some_grids():
        assert grid.starts[0] == 0
        assert np.all(np.diff(grid.edges) > 0)
        assert grid.edges[-1] == grid.size
        assert np.all(np.diff(grid.cuts) > 0)
        assert grid.cuts[-1] == len(grid.starts)
        assert grid.parts & (grid.parts - 1) == 0
        assert [tree.leaves for tree in grid.trees(ONE)] == np.diff(grid.cuts).tolist()
        assert all(tree.epsilon == ONE for tree in grid.trees(ONE))


def test_a_grid_is_read_back_from_its_bytes() -> None:
    for grid in some_grids():
        again = Grid.unpacked(grid.packed, grid.size)
        assert again.packed == grid.packed
        assert again.digest == grid.digest
        assert np.array_equal(again.starts, grid.starts)
        assert (again.parts, again.levels, again.fan_out) == (grid.parts, grid.levels, grid.fan_out)


def test_heavy_ranks_are_cells_and_take_no_more_than_one() -> None:
    counts = np.ones(100_000)
    counts[[5, 60_000]] = 10**6
    grid = Grid.of_curve(np.cumsum(counts), 10_000)
    assert {5, 6, 60_000, 60_001} <= set(grid.starts.tolist())
    assert 0.9 * suitable_cells(10_000) <= len(grid.starts) <= suitable_cells(10_000) + 4


def test_a_wrong_curve_leaves_cells_everywhere() -> None:
    """All rows are expected at the first rank: a quarter of the cells is spread evenly all the same."""
    curve = np.full(200_000, 10**6, dtype=np.float64)
    grid = Grid.of_curve(curve, 10_000)
    assert np.diff(grid.edges).max() <= 8 * 200_000 / suitable_cells(10_000)


def test_more_rows_have_more_cells_and_parts() -> None:
    cells = [suitable_cells(rows) for rows in (1, 100, 1000, 10**4, 10**5, 10**6, 10**9)]
    parts = [suitable_parts(rows) for rows in (1, 100, 1000, 10**4, 10**5, 10**6, 10**9)]
    assert cells == sorted(cells)
    assert cells[-1] == MOST_CELLS
    assert parts == sorted(parts)
    assert (parts[0], parts[-1]) == (2, 64)


GOOD = Grid.even(30_000, 500).packed
HEAD = list(HEADER.unpack_from(GOOD))


@pytest.mark.parametrize(
    "data",
    [
        NEW,
        GOOD[:-1],
        GOOD + b"\0",
        GOOD[:10],
        *(
            HEADER.pack(*(value if place == at else old for place, old in enumerate(HEAD))) + GOOD[HEADER.size :]
            for at, value in [
                (0, 2),
                (1, 30_001),
                (2, 0),
                (2, 40_000),
                (3, 0),
                (3, 3),
                (3, 128),
                (4, 0),
                (4, 7),
                (5, 1),
            ]
        ),
        HEADER.pack(1, 30_000, 2, 1, 1, 2) + b"\xff" * 8,
    ],
)
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(InvalidParameter, match="no grid for this domain"):
        Grid.unpacked(data, 30_000)


# --- what a batch releases -------------------------------------------------------------------------


class Calls(list[tuple[IntArray, Fraction]]):
    """What reaches the sampler: the true values and the scale."""

    def add(self, values: IntArray, scale: Fraction, words: Any = None) -> None:
        self.append((values.copy(), scale))


def sampled(build: Any) -> Calls:
    calls = Calls()
    with replaced(wide_tree, "add_discrete_laplace", calls.add):
        build()
    return calls


def loss(one: Calls, other: Calls) -> Fraction:
    """What two tables differ by in all that is released, in noise scales: exact. Cells must be the same."""
    total = Fraction(0)
    for (values, scale), (moved, same) in zip(one, other, strict=True):
        assert scale == same
        total += int(np.abs(values - moved).sum()) / scale
    return total


@pytest.mark.parametrize("size", [3, 40, 700])
def test_every_row_costs_epsilon_over_a_given_grid(size: int) -> None:
    """And not more: whichever rank it has, in exact fractions."""
    counts, grid, epsilon = np.full(size, 5, dtype=np.int64), Grid.even(size, 900), Fraction(3, 7)

    def calls(table: IntArray) -> Calls:
        return sampled(lambda: release_over_grid(Histogram(table), grid, epsilon, Noise.fresh()))

    without = calls(counts)
    for rank in {0, 1, size // 2, size - 1}:
        more = counts.copy()
        more[rank] += 1
        assert loss(without, calls(more)) == epsilon


def test_every_row_costs_what_a_found_grid_does_not_leave() -> None:
    counts, epsilon, rows = np.full(20_000, 1, dtype=np.int64), Fraction(2), 900
    found: list[Fraction] = []

    def build(table: IntArray) -> Calls:
        return sampled(lambda: found.append(find_grid(Histogram(table), rows, epsilon, Noise.fresh())[1]))

    without = build(counts)
    for rank in (0, 9000, 19_999):
        more = counts.copy()
        more[rank] += 1
        assert loss(without, build(more)) == epsilon - found[-1]
    assert 0 < found[0] < epsilon


def test_a_grid_of_all_ranks_is_free() -> None:
    grid, left = find_grid(Histogram(np.full(300, 5, dtype=np.int64)), 900, ONE, Noise.fresh())
    assert left == ONE
    assert len(grid.starts) == 300


def test_a_found_grid_has_heavy_ranks_as_cells() -> None:
    """With some 17 noise scales each: one is missed with probability 1e-6 at most."""
    counts = np.zeros(1 << 17, dtype=np.int64)
    heavy = np.array([3, 5000, 5001, 70_000, (1 << 17) - 1])
    counts[heavy] = 120
    grid, left = find_grid(Histogram(counts), 10_000, ONE, Noise.fresh())
    assert np.isin(heavy, grid.starts).all()
    assert np.isin(heavy[:-1] + 1, grid.starts).all()
    assert left == ONE - gridded.BLOCK_SHARE - gridded.RANK_SHARE


def test_a_found_grid_is_finer_where_rows_are() -> None:
    counts = np.zeros(1 << 17, dtype=np.int64)
    counts[1 << 16 : (1 << 16) + (1 << 13)] = 4
    grid, _ = find_grid(Histogram(counts), 30_000, ONE, Noise.fresh())
    inside = (grid.starts >= 1 << 16) & (grid.starts < (1 << 16) + (1 << 13))
    assert inside.mean() > 0.5


# --- least squares ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("leaves", "blocks"),
    [(1, (1,)), (5, (1,)), (12, (4, 1)), (13, (4, 1)), (3, (4, 1)), (37, (9, 3, 1)), (26, (9, 3, 1)), (30, (16, 4, 1))],
)
def test_squared_weights_are_those_of_the_estimate(leaves: int, blocks: tuple[int, ...]) -> None:
    """By the estimate of every single node; and no weight exceeds 1, as the bound has it."""
    tree = WideTree(leaves, blocks, (Fraction(1, len(blocks)),) * len(blocks))
    widths = [tree.widths(level) for level in range(tree.levels)]
    weights = []
    for node in range(sum(widths)):
        values = np.zeros(sum(widths))
        values[node] = 1
        weights.append(np.cumsum(least_squares(np.split(values, np.cumsum(widths)[:-1]), tree)))
    prefixes = np.stack(weights, axis=1)
    assert np.allclose((prefixes**2).sum(axis=1), tree.squared_weights())
    assert np.allclose(((prefixes[-1] - prefixes) ** 2).sum(axis=1), tree.squared_weights(from_end=True))
    assert np.abs(prefixes).max() <= 1 + 1e-12
    assert np.abs(prefixes[-1] - prefixes).max() <= 1 + 1e-12
