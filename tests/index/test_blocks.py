"""Padded blocks: what one row can move, where rows and dummies lie, and that no lookup loses a row.

The reference is the definition: rows in the order of keys, each block's dummies between its halves.
"""

from fractions import Fraction
from itertools import pairwise
from math import ceil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import binom
from test_dp_plr import Receipts

from scumble import DPPLRIndex, IntegerDomain, Ledger
from scumble.errors import InvalidParameter
from scumble.index import slack as coverage
from scumble.index.blocks import Blocks, suitable_blocks
from scumble.index.contract import Terms
from scumble.index.curve import MAX_ROWS, Histogram, MonotoneCurve
from scumble.index.file import IndexModel, block_bytes, fixed_bytes, most_segments
from scumble.index.plan import BLOCK_SHARE, SLACK_SHARE
from scumble.index.segments import Segments, fit_all, join
from scumble.index.slack import MOST_BLOCKS, SLACKS, block_deviations, shift
from scumble.privacy.budget import unsafe_budget

IntArray = NDArray[np.int64]
MILLIONTH = Fraction(1, 10**6)
FALSE_ALARM = 1e-6


def built(counts: IntArray, blocks: int = 2, epsilon: Fraction = Fraction(1), **options: object) -> DPPLRIndex:
    beta = options.pop("beta", MILLIONTH)
    return DPPLRIndex(blocks=blocks, **options).fit_counts(  # type: ignore[arg-type]
        counts,
        domain=IntegerDomain(0, len(counts) - 1),
        budget=unsafe_budget(epsilon, delta=Fraction(1, 100)),
        beta=beta,  # type: ignore[arg-type]
    )


def halves_over(curves: list[list[int]]) -> tuple[IntArray, list[Segments]]:
    bounds = np.concatenate([[0], np.cumsum([len(curve) for curve in curves])])
    parts = fit_all([MonotoneCurve(np.cumsum(np.array(curve, dtype=np.int64))) for curve in curves], 2)
    assert parts is not None
    return bounds, parts


small = st.lists(st.integers(0, 4), min_size=2, max_size=4)
pairs = st.lists(small, min_size=4, max_size=4)


@given(pairs, st.data())
def test_one_row_moves_its_own_blocks_deviation_by_one_at_most_and_no_others(
    curves: list[list[int]], data: st.DataObject
) -> None:
    bounds, parts = halves_over(curves)
    size = int(bounds[-1])
    counts = np.array(data.draw(st.lists(st.integers(0, 6), min_size=size, max_size=size)), dtype=np.int64)
    before = block_deviations(Histogram(counts), bounds, parts)
    for rank in range(size):
        counts[rank] += 1
        moved = np.abs(block_deviations(Histogram(counts), bounds, parts) - before)
        own = int(np.searchsorted(bounds[::2], rank, side="right")) - 1
        assert moved[own] <= 1
        assert not np.delete(moved, own).any()
        counts[rank] -= 1


@given(pairs, st.data())
def test_deviations_are_those_of_rows_counted_from_both_ends(curves: list[list[int]], data: st.DataObject) -> None:
    bounds, parts = halves_over(curves)
    size = int(bounds[-1])
    counts = np.array(data.draw(st.lists(st.integers(0, 6), min_size=size, max_size=size)), dtype=np.int64)
    for block, deviation in enumerate(block_deviations(Histogram(counts), bounds, parts)):
        (a, b), (c, d) = pairwise(bounds[2 * block : 2 * block + 3].tolist())
        first, second = counts[a:b], counts[c:d]
        up, down = parts[2 * block], parts[2 * block + 1]
        total = up.at(up.size - 1) + down.at(down.size - 1)
        far = [abs(up.at(x) - int(first[: x + 1].sum())) for x in range(up.size)]
        end = down.at(down.size - 1)
        far += [abs(end - down.at(x) - int(second[x + 1 :].sum())) for x in range(down.size)]
        far += [abs(end - int(second.sum())), abs(total - int(first.sum() + second.sum()))]
        assert deviation == max(far)


def reference(stops: list[int], halves: list[int], most: int) -> list[tuple[int, bool]]:
    """What lies at each position: the half of a row, or of a dummy the first half of its block."""
    laid: list[tuple[int, bool]] = []
    dummies = 0
    for block, stop in enumerate(stops):
        first, second = halves[2 * block : 2 * block + 2]
        more = max(0, min(most - dummies, stop - (len(laid) + first + second)))
        dummies += more
        laid += [(2 * block, True)] * first + [(2 * block, False)] * more + [(2 * block + 1, True)] * second
    return laid


def blocks_of(stops: list[int]) -> Blocks:
    """Blocks of two ranks, one for each half, that end there."""
    count = len(stops)
    places = np.array([0, *stops])
    return Blocks(np.arange(2 * count + 1), np.zeros(count, np.int64), places, np.zeros(2 * count, np.int64))


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=5), st.data())
def test_dummies_fill_each_block_and_no_row_is_dropped(sizes: list[tuple[int, int, int]], data: st.DataObject) -> None:
    """Also where a block has more rows than places, or dummies run out."""
    stops = np.cumsum([length for length, _, _ in sizes]).tolist()
    halves = [rows for _, first, second in sizes for rows in (first, second)]
    most = data.draw(st.integers(0, 40))
    blocks = blocks_of(stops)
    layout = blocks.lay_out(np.array(halves, dtype=np.int64), most)
    laid = reference(stops, halves, most)
    gone = [(2 * k, False) for k in range(len(sizes)) for _ in range(int(layout.last[k] - layout.first[k]))]
    assert [each for each in laid if not each[1]] == gone
    for k, (first, last) in enumerate(zip(layout.first.tolist(), layout.last.tolist(), strict=True)):
        assert all(laid[at] == (2 * k, False) for at in range(first, last))
        assert first == last or (0 if k == 0 else stops[k - 1]) <= first <= last <= stops[k]
    assert layout.filled.tolist() == np.cumsum(layout.last - layout.first).tolist()
    places = blocks.unsafe_places(np.array(halves, dtype=np.int64))
    assert places.tolist() == [at for at, (_, real) in enumerate(reference(stops, halves, 1 << 40)) if real]


@given(st.integers(0, 2**32), st.sampled_from([1, 3, 8]), st.sampled_from(["measured", "lossless"]))
def test_every_lookup_finds_its_rows(seed: int, blocks: int, slack: str) -> None:
    rng = np.random.default_rng(seed)
    size = int(rng.integers(8 * blocks, 8 * blocks + 60))
    counts = rng.zipf(1.4, size) % 300
    index = built(counts, blocks, slack=slack, max_bytes=2000)
    firsts, lasts = (part.ravel() for part in np.meshgrid(np.arange(size), np.arange(size)))
    kept = firsts <= lasts
    outcome = index.unsafe_outcome(counts, firsts[kept], lasts[kept])
    assert not outcome.missed.any()
    assert (outcome.read >= outcome.rows).all()
    some = rng.choice(np.flatnonzero(kept), 20)
    starts, stops = index.positions.of_ranks(firsts[some], lasts[some])
    for first, last, start, stop in zip(firsts[some], lasts[some], starts, stops, strict=True):
        assert tuple(index.lookup(int(first), int(last))) == (start, stop)


def test_the_true_curve_is_within_the_band_that_is_drawn() -> None:
    counts = np.random.default_rng(5).zipf(1.5, 300) % 200
    index = built(counts, 6)
    blocks, ranks = index.model.blocks, np.arange(300)
    assert blocks is not None
    curve = blocks.unsafe_curve(counts)
    assert (index.model.stops_at(ranks) >= curve).all()
    held = np.flatnonzero(counts)
    places = blocks.unsafe_places(counts)
    assert (curve[held] == places[np.cumsum(counts)[held] - 1] + 1).all()
    figure = index.plot(unsafe_true_counts=counts)
    assert figure is not None


def test_a_lookup_over_whole_blocks_needs_no_slack() -> None:
    counts = np.full(64, 500)
    index = built(counts, 4)
    blocks = index.model.blocks
    assert blocks is not None
    assert index.unsafe_dummy_rows(counts) == blocks.rows - 32_000
    for k in range(4):
        first, end = int(blocks.bounds[2 * k]), int(blocks.bounds[2 * k + 2])
        assert tuple(index.lookup(first, end - 1)) == (blocks.places[k], blocks.places[k + 1])
    assert index.model.capacity == blocks.places[-1] == blocks.stops[-1]


def lost(model: IndexModel, counts: IntArray) -> bool:
    index = DPPLRIndex()
    index._positions = model
    ranks = np.arange(len(counts))
    outcome = index.unsafe_outcome(counts, ranks, ranks)
    return bool(outcome.missed.any())


@pytest.mark.slow
@pytest.mark.parametrize("planted", [False, True])
def test_builds_lose_rows_as_seldom_as_promised(planted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """With beta one half, which 32 blocks share; planted: a slack that forgets the second half."""
    if planted:
        monkeypatch.setattr(Segments, "deviation_from_end", lambda segments, histogram, marks: np.zeros(1, np.int64))
        monkeypatch.setattr(Segments, "surplus", lambda segments, histogram: np.zeros(1, np.int64))
    builds, counts, losses = 300, np.full(256, 60), 0
    for _ in range(builds):
        index = built(counts, MOST_BLOCKS, beta=Fraction(1, 2), max_error=1)
        losses += lost(index.model, counts)
    too_many = binom.isf(FALSE_ALARM, builds, 0.5)
    assert (losses > too_many) == planted
    assert losses > 0  # or the promise would be kept too well


@pytest.mark.parametrize("size", [64, 3000, 2**14 - 1])
@pytest.mark.parametrize("slack", ["measured", "lossless"])
def test_a_row_pays_for_the_releases_of_its_own_block(monkeypatch: pytest.MonkeyPatch, size: int, slack: str) -> None:
    """One tree of `levels` vectors in each half, one slack in each block; a row is in one of each.

    With a scout: `test_no_row_pays_more_than_epsilon_however_the_scout_searches`.
    """
    receipts = Receipts(monkeypatch)
    receipts.budget = Ledger(limit=1, delta_limit="0.1").spend(1, "test", delta="0.1")
    index = DPPLRIndex(slack=slack, blocks=4)  # type: ignore[arg-type]
    index.fit_counts(np.ones(size, dtype=np.int64), domain=IntegerDomain(0, size - 1), budget=receipts.budget)
    slacks, rest = receipts.costs[-4:], receipts.costs[:-4]
    levels = index.summary().levels
    assert len(rest) == 8 * levels
    assert set(slacks) == {BLOCK_SHARE}
    for half in range(8):
        assert sum(rest[half * levels : (half + 1) * levels]) + BLOCK_SHARE == 1


def test_noise_of_one_half_is_not_that_of_another() -> None:
    """All halves are alike here: so would be their noise, if it did not depend on where they are."""
    index = built(np.full(1600, 1000), 8, Fraction(1, 100), max_error=1)
    ends = index.model.segments.at_many(np.arange(99, 1600, 100))
    assert len(set(ends.tolist())) > 12
    blocks = index.model.blocks
    assert blocks is not None
    assert len(set(blocks.slacks.tolist())) > 5


@pytest.mark.parametrize("epsilon", [Fraction(1, 3), Fraction(40)], ids=str)
def test_a_lossless_index_pays_its_delta_for_any_number_of_blocks(epsilon: Fraction) -> None:
    """For many blocks it is less if epsilon is small, and more if it is large."""
    lossless = SLACKS["lossless"]
    whole, parts, any_number = (lossless.delta(epsilon, MILLIONTH, blocks) for blocks in (1, 2, None))
    assert parts == lossless.delta(epsilon, MILLIONTH, 32)
    assert any_number == max(whole, parts)
    assert (parts > whole) == (epsilon == 40)
    assert parts == coverage.lossless_delta(epsilon * BLOCK_SHARE, MILLIONTH / MOST_BLOCKS)
    assert whole == lossless.delta(epsilon, MILLIONTH) == coverage.lossless_delta(epsilon * SLACK_SHARE, MILLIONTH)
    assert SLACKS["measured"].delta(epsilon, MILLIONTH, None) == 0


def test_how_many_blocks_suit_a_table() -> None:
    def suiting(
        size: int = 2**20,
        rows: int = 10**6,
        epsilon: str = "1",
        max_bytes: int | None = 4096,
        *,
        nullable: bool = False,
    ) -> int:
        return suitable_blocks(size, rows, Fraction(epsilon), MILLIONTH, max_bytes, nullable=nullable)

    assert suiting() == suiting(rows=10**8) == MOST_BLOCKS
    assert suiting(rows=1000) == suiting(size=10) == suiting(size=1) == suiting(max_bytes=100) == 1
    assert suiting(size=100) == 12
    assert 1 < suiting(rows=10**5) < suiting(rows=2 * 10**5) < MOST_BLOCKS
    assert suiting(epsilon="0.1") < MOST_BLOCKS
    assert suiting(rows=2 * 10**5, nullable=True) == suiting(rows=10**5)
    assert suitable_blocks(2**20, 2 * 10**5, Fraction(1), MILLIONTH, None) == suiting(rows=2 * 10**5)
    assert suiting(max_bytes=None) == MOST_BLOCKS
    assert (suiting(max_bytes=512 + 5 * 64 - 1), suiting(max_bytes=512 + 5 * 64)) == (4, 5)
    padding = 2 * shift(BLOCK_SHARE, MILLIONTH / MOST_BLOCKS) + 8 / BLOCK_SHARE
    for nullable in (False, True):
        least = ceil(100 * 11 * padding * (1 + nullable))
        assert (suiting(rows=least - 1, nullable=nullable), suiting(rows=least, nullable=nullable)) == (10, 11)


def test_what_suits_can_be_built() -> None:
    for max_bytes in (576, 600, 640, 700, 1000, 4096):
        blocks = suitable_blocks(2**20, 2**35, Fraction(1), MILLIONTH, max_bytes)
        assert built(np.full(2**12, 2**23), blocks, max_bytes=max_bytes).size_bytes <= max_bytes


def test_the_least_room_that_is_accepted_is_enough() -> None:
    """Of segments, and of bytes, however the noise falls."""
    index = built(np.full(100, 50), 4, max_segments=8)
    assert len(index.model.segments) == 8
    delta = Fraction(1, 100)
    terms = Terms(IntegerDomain(0, 99), Fraction(1), delta, MILLIONTH, None, Fraction(1), delta)
    least = 0
    for max_bytes in range(1, 400):
        try:
            DPPLRIndex(blocks=4, max_bytes=max_bytes).check(terms)
        except InvalidParameter as error:
            assert "no room for 8 segments, two for each block" in str(error)  # noqa: PT017
        else:
            least = max_bytes
            break
    fixed = fixed_bytes(terms.domain, terms.epsilon, terms.delta, terms.beta) + block_bytes(4, 100)
    assert most_segments(least - fixed, 100, MAX_ROWS, MAX_ROWS, 8) == 8
    assert most_segments(least - 1 - fixed, 100, MAX_ROWS, MAX_ROWS, 8) < 8
    for _ in range(5):
        assert built(np.full(100, 2**29), 4, max_bytes=least).size_bytes <= least


@pytest.mark.parametrize(
    ("options", "size"),
    [
        ({"blocks": 0}, 100),
        ({"blocks": 33}, 1000),
        ({"blocks": 2, "mechanism": "paper"}, 100),
        ({"blocks": 2, "slack": "paper"}, 100),
        ({"blocks": 2}, 15),
        ({"blocks": 4, "max_segments": 7}, 100),
        ({"blocks": 4, "max_bytes": 120}, 100),
    ],
    ids=str,
)
def test_blocks_that_cannot_be_are_refused_before_the_draw(options: dict[str, object], size: int) -> None:
    ledger = Ledger(limit=1)
    with pytest.raises(InvalidParameter):
        DPPLRIndex(**options).fit(  # type: ignore[arg-type]
            np.arange(size), domain=IntegerDomain(0, size - 1), budget=ledger.spend(1, "k")
        )
    assert ledger.remaining() == 1


def test_curves_side_by_side_count_from_zero_each() -> None:
    _, parts = halves_over([[3, 4, 0], [5, 5], [0, 9, 1]])
    both = join(parts)
    assert both.size == 8
    assert (
        both.at_many(np.arange(8)).tolist()
        == [part.at(rank) for part in parts for rank in range(part.size)]
        == [both.at(rank) for rank in range(8)]
    )
