"""Mechanisms: sensitivity by brute force, the estimate against plain linear algebra, cells, and a third mechanism."""

from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from scumble import DPPLRIndex, IntegerDomain
from scumble.errors import Corrupt, InvalidParameter
from scumble.index.curve import Histogram
from scumble.index.file import MECHANISMS
from scumble.index.mechanisms import Mechanism, variance
from scumble.index.mechanisms import scout as scout_module
from scumble.index.mechanisms import wide_tree as tree_module
from scumble.index.mechanisms.paper import BinaryTree
from scumble.index.mechanisms.scout import LONGEST_CELL, Cells, _suspicious, find_cells, scout_tree, worthwhile
from scumble.index.mechanisms.scumble import release_adaptive_curve, release_halves
from scumble.index.mechanisms.wide_tree import HALF_FAN_OUT, WideTree, estimate, least_squares, wide_tree
from scumble.index.slack import SLACKS, SlackName
from scumble.privacy.budget import unsafe_budget
from scumble.privacy.noise import Noise

SIZES = range(1, 65)
LARGE = [2**17, 2**17 + 12_345, 2**20]
EPSILONS = [Fraction(1), Fraction(1, 10), Fraction(7, 3)]


def cost(tree: BinaryTree | WideTree, before: NDArray[np.int64], after: NDArray[np.int64]) -> Fraction:
    """The privacy loss between two histograms, exactly: every node's change over its noise scale, added up."""
    if isinstance(tree, BinaryTree):
        return int(np.abs(tree.nodes(before) - tree.nodes(after)).sum()) / tree.scale
    levels = zip(tree.nodes(before), tree.nodes(after), tree.scales, strict=True)
    return sum((int(np.abs(a - b).sum()) / scale for a, b, scale in levels), Fraction(0))


def worst_cost(tree: BinaryTree | WideTree) -> Fraction:
    """The largest privacy loss over all neighbours: a row added to each rank of several histograms."""
    rng = np.random.default_rng(1)
    worst = Fraction(0)
    for base in (np.zeros(tree.leaves, dtype=np.int64), rng.integers(0, 50, tree.leaves)):
        for rank in range(tree.leaves):
            neighbour = base.copy()
            neighbour[rank] += 1
            worst = max(worst, cost(tree, base, neighbour), cost(tree, neighbour, base))
    return worst


@pytest.mark.parametrize("make", [BinaryTree, wide_tree])
@pytest.mark.parametrize("epsilon", EPSILONS, ids=str)
def test_no_neighbour_costs_more_than_epsilon(make: type, epsilon: Fraction) -> None:
    for size in SIZES:
        tree = make(size, epsilon)
        assert tree.epsilon == epsilon
        assert worst_cost(tree) <= epsilon


@pytest.mark.parametrize("make", [BinaryTree, wide_tree])
def test_the_whole_of_epsilon_is_used(make: type) -> None:
    """Full nodes on every level under some rank: noise beyond need would be waste."""
    for size in (1, 2, 16, 64):
        assert worst_cost(make(size, Fraction(1))) == 1


def test_a_scout_costs_what_it_says() -> None:
    scout = scout_tree(2**17 + 5, Fraction(1, 7))
    assert scout.epsilon == Fraction(1, 7)
    small = WideTree(61, (16, 1), scout.epsilons)
    assert worst_cost(small) == Fraction(1, 7)


def test_a_row_pays_for_a_search_if_any_of_the_cells_was_searched() -> None:
    scout = WideTree(61, (16, 1), (Fraction(1, 4), Fraction(3, 4)))
    for place in range(3):
        cells = Cells(np.array([0, 9, 30]), np.arange(3) == place)
        assert cells.cost(scout) == 1
        assert [cells.cost(scout, first, first + 1) == 1 for first in range(3)] == [
            place == first for first in range(3)
        ]
        assert [cells.cost(scout, first) == 1 for first in range(3)] == [place >= first for first in range(3)]
    assert Cells(np.array([0]), np.array([False])).cost(scout) == Fraction(1, 4)


@pytest.mark.parametrize("mask", range(16))
def test_a_cell_was_searched_if_any_of_its_ranks_was(monkeypatch: pytest.MonkeyPatch, mask: int) -> None:
    """Also one that ends with the first rank of a block, or begins with the last."""
    searched = np.array([mask >> block & 1 for block in range(4)], dtype=np.bool_)
    starts = [0, 15, 17, 33, 48, 49, 63]
    monkeypatch.setattr(scout_module, "_suspicious", lambda light, scout: searched)
    monkeypatch.setattr(scout_module, "_cut", lambda *given: np.array(starts))
    scout = WideTree(64, (16, 1), (Fraction(1, 4), Fraction(3, 4)))
    found = find_cells(np.zeros(64, dtype=np.int64), scout, 190.0, Noise.fresh()).searched
    ends = [*starts[1:], 64]
    assert found.tolist() == [
        any(searched[rank // 16] for rank in range(start, end)) for start, end in zip(starts, ends, strict=True)
    ]


def test_a_scout_has_some_four_thousand_coarse_blocks() -> None:
    """Of sixteen fine ones each, where there are as many ranks."""
    shapes = [scout_tree(size, Fraction(1)).blocks for size in (100, 2**14, 2**16 - 1, 2**16, 2**17 - 1, 2**17)]
    assert shapes == [(1, 1), (4, 1), (15, 1), (16, 1), (16, 1), (32, 1)]


@dataclass(frozen=True)
class OneLevelShort(BinaryTree):
    """Planted defect: the paper's log2 N levels."""

    @property
    def scale(self) -> Fraction:
        return max(1, self.levels - 1) / self.epsilon


@dataclass(frozen=True)
class HalfTheNoise(WideTree):
    """Planted defect: noise for half the sensitivity."""

    @property
    def scales(self) -> tuple[Fraction, ...]:
        return tuple(scale / 2 for scale in super().scales)


def test_planted_defects_are_caught() -> None:
    assert worst_cost(OneLevelShort(64, Fraction(1))) > 1
    full = wide_tree(64, Fraction(1))
    assert worst_cost(HalfTheNoise(64, full.blocks, full.epsilons)) == 2


def test_levels() -> None:
    assert [BinaryTree(n, Fraction(1)).levels for n in (1, 2, 3, 4, 1023, 1024, 2**20)] == [1, 2, 2, 3, 10, 11, 21]
    assert [wide_tree(n, Fraction(1)).levels for n in (1, 2, 18, 100, 10**4, 10**5, 2**20)] == [1, 1, 1, 2, 3, 4, 5]
    assert wide_tree(2**20, Fraction(1)).blocks == (16**4, 16**3, 16**2, 16, 1)
    assert [wide_tree(n, Fraction(1)).levels for n in (76, 77)] == [1, 2]  # about 18^1.5
    assert [wide_tree(n, Fraction(1), HALF_FAN_OUT).levels for n in (26, 28)] == [1, 2]  # about 9^1.5


@given(st.integers(1, 300), st.data())
def test_binary_prefixes_add_up(size: int, data: st.DataObject) -> None:
    tree = BinaryTree(size, Fraction(1))
    counts = np.array(data.draw(st.lists(st.integers(0, 1000), min_size=size, max_size=size)), dtype=np.int64)
    assert tree.prefixes(tree.nodes(counts)).tolist() == np.cumsum(counts).tolist()


def system(tree: WideTree) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The map from leaves to nodes, and each node's precision."""
    rows, weights = [], []
    for block, scale in zip(tree.blocks, tree.scales, strict=True):
        for start in range(0, tree.leaves, block):
            row = np.zeros(tree.leaves)
            row[start : start + block] = 1
            rows.append(row)
            weights.append(1 / variance(scale))
    return np.array(rows), np.array(weights)


@given(st.integers(1, 90), st.sampled_from([(1,), (5, 1), (9, 3, 1), (20, 10, 2, 1), (64, 1)]), st.data())
def test_estimate_is_the_weighted_least_squares_solution(
    size: int, blocks: tuple[int, ...], data: st.DataObject
) -> None:
    tree = WideTree(size, blocks, tuple(Fraction(i + 1, 10) for i in range(len(blocks))))
    noisy = [
        np.array(data.draw(st.lists(st.integers(-50, 50), min_size=n, max_size=n)), dtype=float)
        for n in map(tree.widths, range(tree.levels))
    ]
    matrix, weights = system(tree)
    target = np.concatenate(noisy)
    normal = matrix.T @ (weights[:, None] * matrix)
    expected = np.linalg.solve(normal, matrix.T @ (weights * target))
    assert np.allclose(least_squares([level.copy() for level in noisy], tree), expected, atol=1e-6)


@pytest.mark.parametrize("size", [1, 2, 17, 60, 343, 400])
def test_prefix_errors_stay_within_the_stated_variance_and_weights(size: int) -> None:
    """What the Chernoff bound of coverage rests on: every weight at most 1, every variance at most the worst."""
    tree = wide_tree(size, Fraction(1))
    matrix, weights = system(tree)
    solve = np.linalg.solve(matrix.T @ (weights[:, None] * matrix), matrix.T * weights)
    prefixes = np.cumsum(solve, axis=0)
    variances = (prefixes**2 / weights).sum(axis=1)
    assert np.abs(prefixes).max() <= 1 + 1e-9
    assert variances.max() <= tree.worst_variance * (1 + 1e-9)
    assert np.sqrt(variances.mean()) == pytest.approx(tree.noise_rms, rel=0.25)


@pytest.mark.parametrize("make", [BinaryTree, wide_tree])
def test_the_noise_that_is_added_has_the_stated_spread(make: type) -> None:
    """Over 300 builds the mean square error is within 8 standard deviations of what the shape says."""
    tree = make(256, Fraction(1))
    histogram = Histogram(np.full(256, 10))
    truth = np.cumsum(histogram.counts)
    errors = np.array([tree.release(histogram).rows - truth for _ in range(300)])
    per_build = (errors**2).mean(axis=1)
    spread = per_build.std() / np.sqrt(300)
    assert abs(per_build.mean() - tree.noise_rms**2) < 8 * spread + 0.25 * tree.noise_rms**2
    assert (errors**2).mean() > 0.5 * tree.noise_rms**2, "half the noise would show"


def test_every_node_has_its_own_noise() -> None:
    """Noise reused between nodes, levels or builds would repeat values: at scale 10^6 a repetition is no accident."""
    tree = WideTree(64, (8, 1), (Fraction(1, 10**6), Fraction(1, 10**6)))
    leaves = [estimate(np.zeros(64, dtype=np.int64), tree) for _ in range(4)]
    assert len({round(float(x), 6) for build in leaves for x in build}) == 4 * 64


# --- adaptive cells --------------------------------------------------------------------------------


@pytest.mark.parametrize("size", LARGE)
def test_cells_partition_the_ranks(size: int) -> None:
    counts = np.random.default_rng(size).poisson(1, size)
    scout = scout_tree(size, Fraction(1, 7))
    starts = find_cells(counts, scout, 380.0).starts
    assert starts[0] == 0
    assert np.all(np.diff(starts) > 0)
    assert starts[-1] < size
    assert np.diff(starts).max() <= LONGEST_CELL * scout.blocks[0] + 1
    assert 500 < len(starts) < 20_000


def test_heavy_ranks_become_cells_of_their_own() -> None:
    size = 2**18
    counts = np.zeros(size, dtype=np.int64)
    heavy = np.array([0, 1, 777, 100_000, size - 1])
    counts[heavy] = 5_000
    starts = set(find_cells(counts, scout_tree(size, Fraction(1, 2)), 380.0).starts.tolist())
    assert set(heavy.tolist()) <= starts
    assert {2, 778, 100_001} <= starts


def test_only_groups_with_heavy_ranks_are_searched_and_cost_more() -> None:
    """Two of sixteen groups here. Smooth keys pay for the coarse blocks alone, but for chance."""
    size, epsilon = 2**18, Fraction(8)
    scout = scout_tree(size, epsilon)
    counts = np.random.default_rng(3).poisson(1, size)
    smooth = find_cells(counts, scout, 190 / float(epsilon))
    counts[[5, size // 2]] = 10**6
    heavy = find_cells(counts, scout, 190 / float(epsilon))
    assert heavy.searched.sum() > smooth.searched.sum()
    first = int(np.searchsorted(heavy.starts, size // 16))
    assert heavy.searched[:3].all()
    assert heavy.cost(scout, 0, 3) == heavy.cost(scout) == scout.epsilon
    if not heavy.searched[first : first + 9].any():
        assert heavy.cost(scout, first, first + 9) == scout.epsilons[0] < scout.epsilon


@pytest.mark.parametrize("planted", [False, True])
def test_no_row_pays_more_than_epsilon_however_the_scout_searches(
    monkeypatch: pytest.MonkeyPatch, planted: bool
) -> None:
    """Of each rank: every level in which it counts, by what was really added; planted: trees that forget a search."""
    size, epsilon = 2**14, Fraction(1)
    counts = np.random.default_rng(4).poisson(3, size)
    counts[[100, 9000]] = 5000
    if planted:
        monkeypatch.setattr(Cells, "cost", lambda cells, scout, *some: scout.epsilons[0])
    paid = np.zeros(size, dtype=object)

    def charged(given, tree, noise=None, what="", *facts):  # type: ignore[no-untyped-def]
        if what == "scout's blocks":
            paid[:] += tree.epsilon
        elif what == "scout's ranks":
            width = facts[1][0]
            for block in facts[2].tolist():
                paid[block * width : (block + 1) * width] += tree.epsilon
        else:
            paid[int(facts[0][0]) : int(facts[1][-1])] += tree.epsilon
        return estimate(given, tree, noise, what, *facts)

    for module in (scout_module, tree_module):
        monkeypatch.setattr(module, "estimate", charged)
    release_halves(Histogram(counts), 8, epsilon, Noise.fresh())
    assert (max(paid) > epsilon) == planted
    assert max(paid) >= epsilon
    assert min(paid) > epsilon / 2


def test_halves_have_as_many_levels_as_the_highest_tree() -> None:
    halves = release_halves(Histogram(np.ones(107, dtype=np.int64)), 2, Fraction(1), Noise.fresh())
    assert [(curve.size, curve.levels) for curve in halves.curves] == [(26, 1), (27, 2), (27, 2), (27, 2)]
    assert halves.levels == 2


@pytest.mark.parametrize("size", LARGE)
@pytest.mark.parametrize("rows", [0, 1, 10**6])
def test_the_curve_ends_at_the_last_rank(size: int, rows: int) -> None:
    counts = np.zeros(size, dtype=np.int64)
    counts[size // 2] = rows
    curve = release_adaptive_curve(Histogram(counts), Fraction(7, 10))
    assert curve.knots[-1] == size - 1
    assert 3 <= curve.levels <= 5
    assert abs(curve.rows[-1] - rows) < 40 * curve.noise_rms


@pytest.mark.parametrize(("scales", "searched"), [(3.9, False), (4.1, True)])
def test_a_block_that_stands_out_by_more_than_chance_is_searched(scales: float, searched: bool) -> None:
    """By so many noise scales more than the largest step that is likely; its group is searched with it."""
    scout, light = scout_tree(2**18, Fraction(1)), np.zeros(2**12)
    rows = np.arange(0.0, 200.0, 0.01)
    scale = np.sqrt((variance(scout.scales[0]) + rows / 256) / 2)
    light[1000] = rows[np.argmax(rows / scale > np.log(2**12) + scales)]
    assert _suspicious(light, scout).nonzero()[0].tolist() == (list(range(768, 1024)) if searched else [])


def test_small_domains_have_no_scout() -> None:
    assert not worthwhile(2**14 - 1)
    assert worthwhile(2**14)
    curve = release_adaptive_curve(Histogram(np.ones(1000, dtype=np.int64)), Fraction(1))
    assert curve.levels == 2
    assert len(curve.knots) == 1000


# --- the registry ----------------------------------------------------------------------------------


def test_codes_in_index_files_are_those_of_release_0_1() -> None:
    assert {name: mechanism.code for name, mechanism in MECHANISMS.items()} == {"scumble": 0, "paper": 1}
    assert {name: slack.code for name, slack in SLACKS.items()} == {"measured": 0, "paper": 1, "lossless": 2}


@pytest.mark.parametrize("slack", list(SLACKS))
def test_a_mechanism_needs_nothing_but_its_registration(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, slack: SlackName
) -> None:
    """A third one is fitted, saved, loaded and looked up like the other two."""

    def halves(size: int, epsilon: Fraction) -> WideTree:
        return WideTree(size, (4, 1), (epsilon / 2, epsilon / 2))

    third = Mechanism(
        "halves",
        7,
        halves,
        lambda histogram, epsilon, noise, plan: halves(histogram.size, epsilon).release(histogram, noise),
    )
    with pytest.raises(InvalidParameter):
        DPPLRIndex(mechanism="halves")
    monkeypatch.setitem(MECHANISMS, "halves", third)
    budget = unsafe_budget(Fraction(1), delta=Fraction(1, 2))
    index = DPPLRIndex(mechanism="halves", slack=slack)
    index.fit_counts(np.full(64, 9), domain=IntegerDomain(0, 63), budget=budget)
    index.save(tmp_path / "third.index")
    loaded = DPPLRIndex.load(tmp_path / "third.index")
    assert (loaded.mechanism, loaded.slack) == ("halves", slack)
    assert loaded.lookup(3, 40) == index.lookup(3, 40)
    monkeypatch.undo()
    with pytest.raises(Corrupt):
        DPPLRIndex.load(tmp_path / "third.index")
