"""Merged indexes: every lookup finds all rows, whatever the batches were made of; and what they promise holds.

A statistical test here fails a sound merge with probability 1e-6 at most, and catches the planted defect beside it.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from inspect import signature
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import binom

from scumble import DPPLRIndex, IntegerDomain
from scumble.errors import InvalidParameter
from scumble.index import evidence, merging
from scumble.index.blocks import LEAST_BYTES, LEAST_RANKS, OTHER_BYTES
from scumble.index.evidence import reach, rows_between
from scumble.index.file import IndexModel, decode, encode
from scumble.index.grid import NEW, Grid
from scumble.index.kinds import Asked, kind_of
from scumble.index.merging import merged
from scumble.index.tally import NodeCounts, Tally
from scumble.lab.audit.tap import replaced
from scumble.privacy.budget import unsafe_budget

IntArray = NDArray[np.int64]
Counts = Sequence[IntArray]
MILLIONTH = Fraction(1, 10**6)
rng = np.random.default_rng(15)


def fit(counts: IntArray, beta: Fraction = MILLIONTH, epsilon: int = 1, **options: Any) -> DPPLRIndex:
    return DPPLRIndex(**options).fit_counts(
        counts,
        domain=IntegerDomain(0, len(counts) - 1),
        budget=unsafe_budget(epsilon),
        beta=beta,
        capacity=int(counts.sum()) + 7,
    )


def tally_of(index: DPPLRIndex) -> Tally:
    return index.tally or Tally.of_index(index.model, index.model.capacity + 9)


def lost_rows(model: IndexModel, counts: IntArray) -> bool:
    """Whether a lookup of any two ranks loses a row: a range begins as its first rank does, and ends as its last."""
    ranks = np.arange(len(counts))
    starts, stops = (model.unsafe_rows_below(counts, ends) for ends in model.of_ranks(ranks, ranks))
    curve = np.cumsum(counts)
    return bool(np.any(starts > curve - counts) or np.any(stops < curve))


def finds_every_row(model: IndexModel, counts: IntArray) -> bool:
    """By the places that rows lie at: all of a rank's are inside of what is read for it, and no two rows share one."""
    rows = int(counts.sum())
    places = np.arange(rows) if model.blocks is None else model.blocks.unsafe_places(counts)
    if len(np.unique(places)) < rows or (rows and places[-1] >= model.capacity):
        return False
    ranks = np.repeat(np.arange(len(counts)), counts)
    starts, stops = model.of_ranks(ranks, ranks)
    return bool(np.all(starts <= places) and np.all(places < stops))


def batches(size: int, number: int, rows: int) -> list[IntArray]:
    """Uneven keys, each batch a little different."""
    weights = rng.pareto(1.0, size) + 0.02
    return [
        np.bincount(rng.choice(size, rows, p=np.roll(weights, i) / weights.sum()), minlength=size)
        for i in range(number)
    ]


# --- every row is found ----------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 9, 300, 5000, 40_000])
def test_a_batch_over_a_grid_finds_every_row(size: int) -> None:
    (counts,) = batches(size, 1, 3000)
    index = fit(counts, grid=NEW)
    assert finds_every_row(index.model, counts)
    assert not lost_rows(index.model, counts)
    assert encode(decode(encode(index.model))) == encode(index.model)


def _over_one_grid(parts: Counts) -> list[DPPLRIndex]:
    first = fit(parts[0], grid=NEW)
    assert first.tally is not None
    assert first.tally.grid is not None
    packed = first.tally.grid.packed
    return [first, *(fit(c, grid=packed, epsilon=1 + i % 2) for i, c in enumerate(parts[1:]))]


def _grid_of_the_first(parts: Counts) -> list[DPPLRIndex]:
    first = fit(parts[0], blocks=4)
    grid = Grid.of_models([first.model], 1000)
    return [first, *(fit(c, grid=grid) for c in parts[1:])]


KINDS: dict[str, Callable[[Counts], list[DPPLRIndex]]] = {
    "common grid": _over_one_grid,
    "different grids": lambda parts: [fit(c, grid=Grid.even(len(c), 300 + 500 * (i % 3))) for i, c in enumerate(parts)],
    "no grid": lambda parts: [fit(c) for c in parts],
    "no grid, blocks": lambda parts: [fit(c, blocks=1 + i % 5) for i, c in enumerate(parts)],
    "a grid from the first": _grid_of_the_first,
}


@pytest.mark.parametrize(("kind", "size"), list(product(KINDS, [60, 3000, 20_000])))
def test_merged_batches_lose_no_row(kind: str, size: int) -> None:
    parts = batches(size, 6, 4000)
    indexes, counts = KINDS[kind](parts), np.sum(parts, axis=0)
    for index, own in zip(indexes, parts, strict=True):
        assert not lost_rows(index.model, own)
    result = merged([tally_of(index) for index in indexes])
    assert finds_every_row(result.index, counts)
    assert not lost_rows(result.index, counts)
    assert result.tally.batches == 6
    assert result.index.epsilon == max(index.model.epsilon for index in indexes)
    assert result.index.beta == 6 * MILLIONTH == result.tally.beta
    assert len(encode(result.index)) <= 4096
    assert encode(decode(encode(result.index))) == encode(result.index)


@pytest.mark.parametrize("kind", KINDS)
def test_merging_level_by_level_is_merging_at_once(kind: str) -> None:
    """For a common grid to the last byte; whole indexes are kept as they were, so there as well."""
    parts = batches(3000, 7, 2500)
    tallies = [tally_of(index) for index in KINDS[kind](parts)]
    first, second = merged(tallies[:3]).tally, merged(tallies[3:5]).tally
    level_by_level = merged([merged([first, second]).tally, *tallies[5:]])
    assert encode(level_by_level.index) == encode(merged(tallies).index)
    assert level_by_level.tally.batches == 7
    assert level_by_level.tally.capacity == sum(tally.capacity for tally in tallies)
    assert finds_every_row(level_by_level.index, np.sum(parts, axis=0))


def hard_cells(grid: Grid, rows: int, where: str) -> IntArray:
    """All rows of a cell on one of its ranks: the estimate knows nothing of that."""
    counts = np.zeros(grid.size, dtype=np.int64)
    ends = np.append(grid.starts[1:], grid.size) - 1
    counts[{"first": grid.starts, "before the last": np.maximum(ends - 1, grid.starts), "last": ends}[where]] = rows
    return counts


@pytest.mark.parametrize("where", ["first", "before the last", "last"])
def test_rows_anywhere_in_a_cell_are_found(where: str) -> None:
    grid = Grid.even(1 << 14, 900)
    assert np.diff(grid.starts).min() > 2
    parts = [hard_cells(grid, 12, where)] * 5
    result = merged([tally_of(fit(c, grid=grid)) for c in parts])
    assert finds_every_row(result.index, np.sum(parts, axis=0))


@pytest.mark.parametrize("where", ["first", "before the last"])
def test_planted_cells_taken_for_straight_lose_rows(where: str) -> None:
    """As if rows were spread evenly in every cell, and there were no noise, as with a large epsilon there is little."""
    grid, straight = Grid.even(1 << 14, 900), evidence.counted_stretch

    def planted(*given: Any) -> evidence.Stretch:
        stretch = straight(*given)
        target, total = stretch.target, stretch.target[-1]
        after = np.append(total, total - target)
        return replace(stretch, up=(target, target), down=(after, after))

    parts = [hard_cells(grid, 200, where)] * 5
    tallies = [tally_of(fit(c, grid=grid, epsilon=200)) for c in parts]
    assert finds_every_row(merged(tallies).index, np.sum(parts, axis=0))
    with replaced(merging, "counted_stretch", planted):
        assert not finds_every_row(merged(tallies).index, np.sum(parts, axis=0))


@settings(max_examples=25, deadline=None)
@given(st.lists(st.lists(st.integers(0, 30), min_size=24, max_size=24), min_size=1, max_size=5), st.integers(0, 3))
def test_any_small_tables(tables: list[list[int]], kind: int) -> None:
    """Of 25 runs of five tables with beta 1e-9 each: none may lose a row."""
    parts = [np.array(table, dtype=np.int64) for table in tables]
    tiny = Fraction(1, 10**9)
    options: list[dict[str, Any]] = [{"grid": Grid.even(24, 100)}, {}, {"blocks": 3}, {"grid": NEW}]
    tallies = [tally_of(fit(c, beta=tiny, **options[(kind + i) % 4])) for i, c in enumerate(parts)]
    assert finds_every_row(merged(tallies).index, np.sum(parts, axis=0))


# --- how often ------------------------------------------------------------------------------------


def losses(builds: int, beta: Fraction, number: int) -> int:
    """Of so many merges of some batches, how many lose a row. Ranks are cells, so that noise is all there is."""
    counts, grid = np.full(64, 40, dtype=np.int64), Grid.even(64, 3000)
    lost = 0
    for _ in range(builds):
        tallies = [tally_of(fit(counts, beta=beta, grid=grid)) for _ in range(number)]
        lost += lost_rows(merged(tallies, max_bytes=None).index, number * counts)
    return lost


@pytest.mark.parametrize("builds", [60, pytest.param(150, marks=pytest.mark.slow)])
def test_no_more_merges_lose_a_row_than_was_said(builds: int) -> None:
    beta, number = Fraction(1, 20), 4
    assert losses(builds, beta, number) <= binom.isf(1e-6, builds, float(number * beta))


def test_planted_slacks_that_are_too_small_are_noticed() -> None:
    """A merge that takes the noise of one batch for that of all: it fails far more often than it says."""
    builds, beta, number = 60, Fraction(1, 20), 9

    def planted(counts: NodeCounts, weights: Any, chance: Fraction) -> int:
        return reach(replace(counts, spent=((Fraction(1), 1),)), weights, chance)

    with replaced(merging, "reach", planted):
        assert losses(builds, beta, number) > binom.isf(1e-6, builds, float(number * beta))


def test_noise_grows_as_the_root_of_the_number_of_batches() -> None:
    counts, grid = np.full(256, 40, dtype=np.int64), Grid.even(256, 10_000)
    tally = tally_of(fit(counts, grid=grid))
    weights = np.arange(1.0, 9.0)
    one, many = (reach(merged([tally] * number).tally.counted[0], weights, MILLIONTH) for number in (1, 16))
    assert 3 * one < many < 4 * one  # the tails of a sum are lighter than one batch's


def test_batches_with_less_epsilon_count_as_such() -> None:
    counts, grid = np.full(256, 40, dtype=np.int64), Grid.even(256, 10_000)
    weights = np.arange(1.0, 9.0)
    cheap, dear = (fit(counts, grid=grid, epsilon=epsilon).tally for epsilon in (1, 4))
    assert cheap is not None
    assert dear is not None
    reaches = [reach(merged(both).tally.counted[0], weights, MILLIONTH) for both in product([cheap, dear], repeat=2)]
    assert reaches[0] > reaches[1] == reaches[2] > reaches[3]


# --- whole indexes ---------------------------------------------------------------------------------


@pytest.mark.parametrize("blocks", [1, 2, 5])
def test_rows_between_two_ranks_lie_within_the_error(blocks: int) -> None:
    """Every pair of ranks; the error is that of slacks which just cover the curves."""
    size = 48
    counts = rng.integers(0, 60, size)
    model = fit(counts, blocks=blocks).model
    assert not lost_rows(model, counts)
    curve = np.concatenate([[0], np.cumsum(counts)])
    for first in range(size):
        lasts = np.arange(first - 1, size)
        rows, error = rows_between(model, np.full(len(lasts), first), lasts)
        assert np.all(np.abs(rows - (curve[lasts + 1] - curve[first])) <= error)
        assert error[0] == 0
        assert np.all(error <= (3 + 2 * blocks) * model.slack_rows)


def test_whole_indexes_add_their_slacks() -> None:
    """Sorted rows: the slack is the sum, and a little for the new segments."""
    parts = batches(2000, 5, 3000)
    indexes = [fit(c) for c in parts]
    result = merged([tally_of(index) for index in indexes], max_bytes=None)
    slacks = sum(index.model.slack_rows for index in indexes)
    assert result.index.blocks is None
    assert slacks <= result.index.slack_rows <= slacks + result.index.segments.max_error + 5


def test_lossless_indexes_stay_lossless() -> None:
    parts = batches(500, 3, 900)
    tallies = []
    for counts in parts:
        index = DPPLRIndex(slack="lossless").fit_counts(
            counts,
            domain=IntegerDomain(0, 499),
            budget=unsafe_budget(1, delta=Fraction(1, 100)),
            capacity=1000,
        )
        tallies.append(Tally.of_index(index.model, 1000))
    result = merged(tallies)
    assert result.index.beta == 0
    assert result.index.delta == Fraction(1, 100)


def test_an_index_that_promises_nothing_makes_a_merge_promise_nothing() -> None:
    counts = np.full(30, 9, dtype=np.int64)
    printed = fit(counts, mechanism="paper", slack="paper", alpha_s=8)
    assert merged([tally_of(printed), tally_of(fit(counts))]).index.beta == 1


# --- how many blocks -------------------------------------------------------------------------------


def planned(
    parts: int,
    reach: int,
    *slacks: int,
    blocks: Sequence[int] = (),
    size: int = 4000,
    capacity: int = 9600,
    max_bytes: int | None = None,
    widths: Sequence[int] = (1,),
) -> int:
    """How many blocks are planned for node counts of so many parts, or for none, and whole indexes of these slacks.

    The noise of each block reaches as far as `reach`; bounds lie `widths` apart.
    """
    counts = tally_of(fit(np.full(24, 9, dtype=np.int64), grid=Grid.even(24, 100))).counted[0]
    main = replace(counts, grid=replace(counts.grid, parts=parts)) if parts else None
    whole: list[Any] = [SimpleNamespace(usual_slack=slack, blocks=None) for slack in slacks]
    whole += [SimpleNamespace(usual_slack=0, blocks=[None] * number) for number in blocks]
    tally: Any = SimpleNamespace(domain=IntegerDomain(0, size - 1), capacity=capacity)

    def bounds(number: int) -> IntArray:
        return np.cumsum([0, *(widths[place % len(widths)] for place in range(2 * number))])

    with (
        replaced(merging, "Counted", SimpleNamespace(of=lambda main: main)),
        replaced(merging, "_reaches", lambda counted, number: iter([reach] * number)),
        replaced(merging, "_stretches", lambda counted, whole, bounds: iter([stretch] * (len(bounds) - 1))),
        replaced(merging, "_bounds", lambda counted, number: bounds(number)),
        replaced(merging, "_even_bounds", lambda tally, whole, halves: bounds(halves // 2)),
        replaced(merging, "reach", lambda main, weights, beta: reach),
    ):
        stretch: Any = SimpleNamespace(weights_up=None)
        plan = merging._planned(tally, main, whole, max_bytes)
    assert len(plan.stretches) == len(plan.bounds) - 1
    assert plan.reaches == [reach if parts else 0] * max(1, plan.blocks)
    return plan.blocks


@pytest.mark.parametrize(
    ("blocks", "options"),
    [
        (32, {"parts": 64, "reach": 10}),  # 3/2 of 32 times 10 is a twentieth of 9,600
        (16, {"parts": 64, "reach": 11}),
        (32, {"parts": 64, "reach": 11, "capacity": 10_560}),
        (0, {"parts": 64, "reach": 1000}),
        (0, {"parts": 2, "reach": 0}),  # one block is none
        (2, {"parts": 4, "reach": 0}),
        (32, {"parts": 64, "reach": 0, "slacks": [7]}),  # 32 times twice 7 is 448
        (16, {"parts": 64, "reach": 0, "slacks": [8]}),
        (16, {"parts": 64, "reach": 0, "slacks": [4, 4]}),
        (32, {"parts": 64, "reach": 5, "slacks": [3]}),  # 240 and 192
        (16, {"parts": 64, "reach": 5, "slacks": [4]}),
        (0, {"parts": 0, "reach": 0, "slacks": [1]}),
        (8, {"parts": 0, "reach": 0, "blocks": [5, 9]}),  # the largest power of two that one of them has
        (4, {"parts": 0, "reach": 0, "blocks": [7, 1]}),
        (4, {"parts": 0, "reach": 0, "blocks": [4], "slacks": [60]}),
        (2, {"parts": 0, "reach": 0, "blocks": [4], "slacks": [61]}),
        (0, {"parts": 64, "reach": 0, "widths": [1, 0]}),
        (0, {"parts": 64, "reach": 0, "widths": [0]}),
        (32, {"parts": 64, "reach": 0, "widths": [1, 2]}),
        (2, {"parts": 64, "reach": 0, "size": 2 * LEAST_RANKS}),
        (0, {"parts": 64, "reach": 0, "size": 2 * LEAST_RANKS - 1}),
        (4, {"parts": 64, "reach": 0, "max_bytes": OTHER_BYTES + 4 * LEAST_BYTES}),
        (2, {"parts": 64, "reach": 0, "max_bytes": OTHER_BYTES + 4 * LEAST_BYTES - 1}),
    ],
)
def test_as_many_blocks_as_add_few_dummies(blocks: int, options: dict[str, Any]) -> None:
    parts, reach, slacks = options.pop("parts"), options.pop("reach"), options.pop("slacks", ())
    assert planned(parts, reach, *slacks, **options) == blocks


def test_a_merged_index_has_a_page_unless_stated() -> None:
    for build in (merged, merging.index_of_tally):
        assert signature(build).parameters["max_bytes"].default == 4096


# --- refusals -------------------------------------------------------------------------------------


def test_node_counts_over_different_grids_are_not_added() -> None:
    counts = np.full(300, 9, dtype=np.int64)
    one, other = (fit(counts, grid=Grid.even(300, rows)).tally for rows in (100, 4000))
    assert one is not None
    assert other is not None
    with pytest.raises(InvalidParameter, match="different grids"):
        one.counted[0].plus(other.counted[0])
    assert len(Tally.added([one, other]).counted) == 2


def test_different_domains_are_refused() -> None:
    one, other = (tally_of(fit(np.full(size, 9, dtype=np.int64))) for size in (30, 31))
    with pytest.raises(InvalidParameter, match="different domains"):
        merged([one, other])
    with pytest.raises(InvalidParameter, match="nothing"):
        merged([])


def test_a_file_that_is_too_small_is_refused() -> None:
    tally = tally_of(fit(np.full(30, 9, dtype=np.int64)))
    with pytest.raises(InvalidParameter, match="no room"):
        merged([tally], max_bytes=90)


@pytest.mark.parametrize(
    "options",
    [
        {"slack": "lossless"},
        {"slack": "paper"},
        {"mechanism": "paper"},
        {"max_error": 9},
        {"max_segments": 9},
    ],
)
def test_a_grid_excludes_other_options(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidParameter, match="a grid goes with"):
        DPPLRIndex(grid=NEW, **options)


def test_a_grid_of_another_domain_or_without_capacity_is_refused() -> None:
    counts, domain = np.full(30, 9, dtype=np.int64), IntegerDomain(0, 29)
    with pytest.raises(InvalidParameter, match="no grid for this domain"):
        fit(counts, grid=Grid.even(31, 100))
    with pytest.raises(InvalidParameter, match="no grid for this domain"):
        fit(counts, grid=b"something else")
    budget = unsafe_budget(1)
    with pytest.raises(InvalidParameter, match="needs a capacity"):
        DPPLRIndex(grid=NEW).fit_counts(counts, domain=domain, budget=budget)
    assert budget.state == "cancelled"


def test_the_kind_of_a_table_s_index_has_a_tally_if_it_has_a_grid() -> None:
    counts, kind = np.full(30, 9, dtype=np.int64), kind_of("scumble")
    for grid in (None, NEW, Grid.even(30, 100).packed):
        index = kind.make(Asked(4096, "measured", None, 1, None, None, grid))
        index.fit_counts(counts, domain=IntegerDomain(0, 29), budget=unsafe_budget(1), capacity=300)
        tally = kind.tally(index)
        assert (tally is None) == (grid is None)
        assert tally is None or tally.capacity == 300


def test_a_merged_index_is_loaded_from_its_file(tmp_path: Any) -> None:
    counts = np.full(4000, 9, dtype=np.int64)
    index = fit(counts, grid=Grid.even(4000, 40_000))
    assert index.model.blocks is not None
    index.save(tmp_path / "merged.scumble")
    loaded = DPPLRIndex.load(tmp_path / "merged.scumble")
    assert encode(loaded.model) == encode(index.model)
    assert loaded.tally is None
    assert loaded.summary().beta == 1e-6
