"""Releases that are what they were: from the same rows and the same noise, every cell, node, bound and byte again.

A build that was lost is made again by the same noise, and must not release anything else: so a change of any of these
numbers is a change of what a release says. Whole numbers are compared, far from where floats of another machine differ.
"""

from collections.abc import Callable
from fractions import Fraction
from hashlib import sha256
from math import exp
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from scumble import DPPLRIndex, IntegerDomain
from scumble.index.curve import Histogram
from scumble.index.file import IndexModel, encode
from scumble.index.grid import NEW, Grid
from scumble.index.hint import Hint
from scumble.index.mechanisms.gridded import find_grid, release_over_grid
from scumble.index.mechanisms.paper import BinaryTree
from scumble.index.mechanisms.scout import find_cells, scout_tree
from scumble.index.mechanisms.wide_tree import WideTree, estimate, release_parts, wide_tree
from scumble.index.merging import merged
from scumble.index.tally import Tally
from scumble.privacy.budget import unsafe_budget
from scumble.privacy.noise import Noise

IntArray = NDArray[np.int64]


def pinned(*found: Any) -> str:
    """A name for some numbers, or bytes."""
    name = sha256()
    for each in found:
        name.update(each if isinstance(each, bytes) else np.asarray(each, dtype=np.int64).tobytes())
    return name.hexdigest()[:12]


def noise(number: int = 0) -> Noise:
    return Noise(bytes([number] * 32))


# --- rows ------------------------------------------------------------------------------------------


def smooth(size: int, rate: float = 1.0) -> IntArray:
    return np.random.default_rng(size).poisson(rate, size)


def heavy(size: int, *ranks: int, rows: int = 4000) -> IntArray:
    counts = smooth(size)
    counts[list(ranks)] = rows
    return counts


def clumped(size: int, clump: int) -> IntArray:
    """Rows that come in clumps of neighbouring ranks."""
    rng = np.random.default_rng(size)
    return rng.poisson(np.repeat(rng.gamma(0.1, 10, -(-size // clump)), clump)[:size])


def stepped(size: int) -> IntArray:
    rates = np.repeat([0.0, 30.0, 0.1, 2.0, 0.0], -(-size // 5))[:size]
    return np.random.default_rng(size).poisson(rates)


def ramps(size: int) -> IntArray:
    """Rows that differ inside of every coarse block, and between some of them."""
    ranks = np.arange(size)
    return np.random.default_rng(size).poisson(ranks % 64 * 0.3 * (1 + (ranks // 9000) % 3))


# --- the scout -------------------------------------------------------------------------------------

N = 1 << 18
SCOUTED: dict[str, tuple[Callable[[], IntArray], Fraction, float]] = {
    "smooth": (lambda: smooth(N + 37), Fraction(1, 2), 380.0),
    "narrow blocks": (lambda: smooth(1 << 14, 9), Fraction(1, 2), 40.0),
    "odd blocks": (lambda: heavy(20_011, 0, 7, 20_010), Fraction(2), 60.0),
    "two heavy ranks": (lambda: heavy(N, 5, N - 1), Fraction(8), 24.0),
    "one group": (lambda: heavy(N, *range(4000, 4200, 3), rows=300), Fraction(3), 70.0),
    "heavy ranks all over": (lambda: heavy(N, *range(11, N, 8191)), Fraction(1), 190.0),
    "clumps": (lambda: clumped(N, 600), Fraction(1), 100.0),
    "wide clumps": (lambda: clumped(N, 5000), Fraction(1, 3), 500.0),
    "steps": (lambda: stepped(N + 4099), Fraction(1), 190.0),
    "dense": (lambda: stepped(1 << 17), Fraction(4), 20.0),
    "dense blocks": (lambda: ramps(N), Fraction(1, 10), 60.0),
    "dense and smooth": (lambda: smooth(N, 30), Fraction(4), 60.0),
    "few rows": (lambda: smooth(N, 0.01), Fraction(1, 10), 2000.0),
}
CELLS = {
    "smooth": "705 0 ef3bfb05f613",
    "narrow blocks": "3764 0 75bdcc9e73fc",
    "odd blocks": "887 317 a99f5b3e4e39",
    "two heavy ranks": "25087 15530 5da3d31945a1",
    "one group": "4695 1184 bb4a867bdd97",
    "heavy ranks all over": "2224 2224 310558ae4ba5",
    "clumps": "13353 13353 4ae718700a78",
    "wide clumps": "4375 4375 307cd5fc8a5d",
    "steps": "55446 55446 a8e85d40bbd4",
    "dense": "37014 37014 76669d88e8af",
    "dense blocks": "80897 80897 95e229803dc8",
    "dense and smooth": "131090 0 29c64daee291",
    "few rows": "518 0 64fb153d22d1",
}


@pytest.mark.parametrize("rows", SCOUTED)
def test_the_scout_finds_the_same_cells(rows: str) -> None:
    made, epsilon, rows_per_cell = SCOUTED[rows]
    counts = made()
    found = find_cells(counts, scout_tree(len(counts), epsilon), rows_per_cell, noise())
    assert f"{len(found.starts)} {found.searched.sum()} {pinned(found.starts, found.searched)}" == CELLS[rows]


# --- trees -----------------------------------------------------------------------------------------

TREES = {
    "one leaf": wide_tree(1, Fraction(1)),
    "one level": wide_tree(17, Fraction(1, 2)),
    "two levels": wide_tree(107, Fraction(1)),
    "three levels": wide_tree(1000, Fraction(3), 9),
    "uneven": WideTree(47, (20, 10, 2, 1), (Fraction(1, 5), Fraction(1), Fraction(1, 2), Fraction(1, 3))),
}
WIDE = {
    "one leaf": "[1, 2, 16, 25] [1356962, 1841347] c8263e48d046",
    "one level": "[14, 21, 75, 102] [8397533, 133201735] 9f27b3934320",
    "two levels": "[16, 20, 71, 96] [7339506, 93371804] 7a2350b75d07",
    "three levels": "[12, 14, 40, 53] [3870740, 25376961] 7a39349cedca",
    "uneven": "[10, 12, 91, 139] [4288324, 27584584] da471d9732f5",
}


@pytest.mark.parametrize("shape", TREES)
def test_a_wide_tree_gives_the_same_leaves_and_bounds(shape: str) -> None:
    tree = TREES[shape]
    leaves = np.rint(1000 * estimate(smooth(tree.leaves, 20), tree, noise(), "x"))
    bounds = [tree.bound(Fraction(1, beta)) for beta in (2, 5, 10**5, 10**9)]
    spread = [round(1e6 * tree.noise_rms), round(1e6 * tree.worst_variance)]
    weights = [np.rint(1e6 * tree.squared_weights(from_end=end)) for end in (False, True)]
    assert f"{bounds} {spread} {pinned(leaves, *weights)}" == WIDE[shape]


def test_parts_are_released_the_same() -> None:
    cuts, edges = np.array([0, 3, 20, 100]), np.cumsum(np.arange(101))
    curves = release_parts(smooth(100, 9), edges, cuts, [Fraction(1), Fraction(2), Fraction(1)], noise(), "y")
    (whole,) = release_parts(smooth(100, 9), edges, np.array([0, 100]), [Fraction(1)], noise(), "y")
    found = [
        [curve.size, curve.levels, *np.asarray(curve.knots), *np.rint(1000 * curve.rows), round(1e6 * curve.noise_rms)]
        for curve in (*curves, whole)
    ]
    assert pinned(*found) == PARTS


PARTS = "1527dbd5c826"
BINARY = {
    (1, Fraction(1, 128)): [-207, 181019, 90, 590, 1768, 11790, 12803, 2268],
    (1, Fraction(1, 129)): [-78, 182433, 90, 594, 1782, 11883, 12903, 2286],
    (1, Fraction(1, 1)): [2, 1357, 1, 4, 14, 92, 100, 18],
    (2, Fraction(1, 3)): [0, 8475, 8, 32, 87, 557, 605, 111],
    (5, Fraction(40, 1)): [12, 2, 0, 0, 1, 7, 8, 2],
    (63, Fraction(1, 50)): [15777, 734847, 1950, 3660, 7050, 32370, 34602, 8322],
    (100, Fraction(3, 2)): [6420, 12323, 34, 60, 113, 506, 542, 133],
    (4096, Fraction(1, 1)): [8415028, 46861, 188, 271, 431, 1586, 1685, 494],
    (70001, Fraction(1, 10)): [2432091988, 700927, 3444, 4554, 6717, 22203, 23490, 7565],
}


@pytest.mark.parametrize(("leaves", "epsilon"), BINARY)
def test_a_binary_tree_has_the_same_bounds(leaves: int, epsilon: Fraction) -> None:
    tree = BinaryTree(leaves, epsilon)
    betas = [Fraction(1, 2), Fraction(1, 100), Fraction(1, 10**6), Fraction(1, 10**40), Fraction(1, 10**41)]
    curve = tree.release(Histogram(smooth(leaves)), noise())
    found = [
        int(curve.rows.sum()),
        round(1000 * tree.noise_rms),
        *(tree.bound(beta) for beta in betas),
        tree.chernoff_bound(betas[2]),
    ]
    assert found == BINARY[leaves, epsilon]


def test_a_looser_bound_counts_every_prefix_once() -> None:
    assert [BinaryTree(1, Fraction(1, 100)).chernoff_bound(Fraction(1, part)) for part in (2, 10, 1000)] == [
        295,
        502,
        1029,
    ]


def test_a_bound_that_is_no_more_than_rounding_away_is_not_taken() -> None:
    """The tail beyond five rows, to the last bit: floats may have made it too small."""
    p = exp(-1)
    assert BinaryTree(1, Fraction(1)).bound(Fraction(2 * p / (1 + p) * p**5)) == 6
    assert BinaryTree(1, Fraction(1)).bound(Fraction(2 * p / (1 + p) * p**5 * (1 + 1e-8))) == 5


# --- grids -----------------------------------------------------------------------------------------


def _model(counts: IntArray, **options: Any) -> IndexModel:
    return _index(counts, **options).model


def _index(counts: IntArray, number: int = 0, **options: Any) -> DPPLRIndex:
    return DPPLRIndex(**options).unsafe_fit_counts(
        counts,
        noise(number),
        domain=IntegerDomain(0, len(counts) - 1),
        budget=unsafe_budget(Fraction(1 + number % 2)),
        beta=1e-6,
        capacity=int(counts.sum()) + 7,
    )


FOUND: dict[str, tuple[Callable[[], IntArray], int, Fraction]] = {
    "smooth": (lambda: smooth(1 << 15), 900, Fraction(1)),
    "heavy": (lambda: heavy(40_011, 0, 7, 8, 30_000, 40_010, rows=300), 3000, Fraction(1)),
    "narrow": (lambda: smooth(4097, 3), 500, Fraction(1, 2)),
    "steps": (lambda: stepped(1 << 16), 5000, Fraction(2)),
    "clumps": (lambda: clumped(1 << 17, 900), 20_000, Fraction(1)),
    "all ranks": (lambda: smooth(512, 3), 1, Fraction(1)),
    "more": (lambda: smooth(513, 3), 1, Fraction(1)),
}
GRIDS = {
    "smooth": "652 4 2 24 b62a7ecdc7e3 7/12 680 939eb64d3b1c",
    "heavy": "1570 16 2 20 287c3344dbaf 7/12 1650 277fae8e47db",
    "narrow": "475 4 2 20 54b237fce547 7/24 499 6cb78e9c1c1c",
    "steps": "2046 32 2 16 0aeaf2ad8d9c 7/6 2174 39717ee0e2e1",
    "clumps": "6379 64 2 20 f91b3bb1f092 7/12 6699 bbbb6bd8f9fc",
    "all ranks": "512 2 2 32 f7f2ba1e9572 1 528 6a4d24f3fe9d",
    "more": "272 2 2 23 d0ecc6895e93 7/12 284 8a4798342e6a",
}


def shape(grid: Grid) -> str:
    return f"{len(grid.starts)} {grid.parts} {grid.levels} {grid.fan_out} {pinned(grid.packed)}"


@pytest.mark.parametrize("rows", FOUND)
def test_the_same_grid_is_found_and_counted_over(rows: str) -> None:
    made, batch_rows, epsilon = FOUND[rows]
    histogram, source = Histogram(made()), noise()
    grid, left = find_grid(histogram, batch_rows, epsilon, source)
    nodes = release_over_grid(histogram, grid, left, source)
    assert f"{shape(grid)} {left} {len(nodes)} {pinned(nodes)}" == GRIDS[rows]


def test_the_same_grids_are_made_of_public_curves() -> None:
    counts, flat = heavy(30_000, 0, 7, 29_999), np.zeros(50_000)
    found = {
        "one rank": Grid.even(1, 10),
        "even": Grid.even(30_000, 500),
        "fine": Grid.even(30_000, 10**7),
        "curve": Grid.of_curve(np.cumsum(stepped(60_000)).astype(np.float64), 20_000),
        "heavy": Grid.of_curve(np.cumsum(counts).astype(np.float64), 3000),
        "flat": Grid.of_curve(flat, 900),
        "wrong": Grid.of_curve(flat + 10**6, 10_000),
        "hint": Grid.of_hint(Hint.of_counts(counts), 2000),
        "models": Grid.of_models([_model(counts), _model(stepped(30_000), blocks=4)], 3000),
    }
    assert {name: shape(grid) for name, grid in found.items()} == CURVES


CURVES = {
    "one rank": "1 1 1 2 aefc0711302d",
    "even": "440 4 2 22 6632f42564ba",
    "fine": "30000 64 3 11 66de0551ed48",
    "curve": "5184 64 2 17 dc0117d5d4b7",
    "heavy": "1457 16 2 19 4bcc88524223",
    "flat": "652 4 2 24 1a225de0f65c",
    "wrong": "3249 64 2 13 162bfef29806",
    "hint": "1112 16 2 14 3a83bd647563",
    "models": "1457 16 2 19 9494a25dd008",
}

# --- merged indexes --------------------------------------------------------------------------------


def _tally(index: DPPLRIndex) -> Tally:
    return index.tally or Tally.of_index(index.model, index.model.capacity + 9)


def _over(grid: Grid | bytes, *tables: IntArray) -> list[Tally]:
    return [_tally(_index(counts, number, grid=grid)) for number, counts in enumerate(tables)]


MERGED: dict[str, Callable[[], list[Tally]]] = {
    "one rank": lambda: _over(NEW, smooth(1, 50)),
    "few ranks": lambda: _over(Grid.even(24, 100), *([smooth(24, 9)] * 3)),
    "common grid": lambda: _over(Grid.even(3000, 900), *([smooth(3000, 3)] * 6)),
    "blocks": lambda: _over(Grid.even(4000, 40_000), *([smooth(4000, 20)] * 3)),
    "wide cells": lambda: _over(Grid.even(40_000, 300), *([stepped(40_000)] * 4)),
    "different grids": lambda: [
        *_over(Grid.even(3000, 900), smooth(3000, 9), smooth(3000, 5)),
        *_over(Grid.even(3000, 90), stepped(3000)),
    ],
    "no grid": lambda: [_tally(_index(smooth(3000, 9), number)) for number in range(3)],
    "no grid, blocks": lambda: [_tally(_index(smooth(9000, 30), number, blocks=1 + 3 * number)) for number in range(3)],
    "both": lambda: [
        *_over(Grid.even(9000, 40_000), *([smooth(9000, 20)] * 2)),
        _tally(_index(smooth(9000, 30), 9, blocks=8)),
        _tally(_index(smooth(9000, 3), 10)),
    ],
}
INDEXES = {
    "one rank": "18 57 0 1 b20a867fa90c",
    "few ranks": "57 708 0 1 5e1809299343",
    "common grid": "244 54277 2 2 46a70d2af600",
    "blocks": "92 242751 32 2 7cc34d0f1001",
    "wide cells": "15885 1027816 0 2 562848bdee46",
    "different grids": "1863 64732 2 2 6a5116c44ddd",
    "no grid": "231 81090 0 3 61b66b3140ad",
    "no grid, blocks": "1336 813606 4 3 7192e14cbb93",
    "both": "762 677371 32 3 abed0acf0237",
}


@pytest.mark.parametrize("tallies", MERGED)
def test_merged_indexes_have_the_same_bytes(tallies: str) -> None:
    found = merged(MERGED[tallies]())
    model = found.index
    small, any_size = (encode(merged([found.tally], max_bytes=most).index) for most in (1000, None))
    shape = f"{model.slack_rows} {model.capacity} {0 if model.blocks is None else len(model.blocks)} {model.levels}"
    assert f"{shape} {pinned(encode(model), found.tally.to_bytes(), small, any_size)}" == INDEXES[tallies]
