"""What every index shares: lookups within the rows, refusals at the edge of what is allowed, and what they cost."""

from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from scumble import DPPLRIndex, IntegerDomain
from scumble.errors import BudgetUsed, InvalidKeys, InvalidParameter, NotFitted
from scumble.index import curve
from scumble.index.contract import (
    Index,
    Outcome,
    PositionRange,
    Positions,
    Terms,
    check_beta,
    check_count,
    check_request,
    check_row_epsilon,
)
from scumble.index.curve import MAX_ROWS, Histogram, NoisyCurve, _isotonic, make_monotone
from scumble.privacy.budget import unsafe_budget

IntArray = NDArray[np.int64]
COUNTS = np.array([3, 2, 4, 1, 0, 0, 5])
CURVE = np.cumsum(COUNTS)


class Widened(Positions):
    """The true curve, widened by so many rows, and wrong by `shift`."""

    def __init__(self, slack: int, capacity: int, shift: int = 0) -> None:
        self.domain, self.capacity = IntegerDomain(10, 16), capacity
        self.slack, self.shift = slack, shift

    def starts_after(self, ranks: IntArray) -> IntArray:
        assert ranks.min() >= 0, "no index has such a rank"
        return CURVE[ranks] + self.shift - self.slack

    def stops_at(self, ranks: IntArray) -> IntArray:
        assert ranks.min() >= 0, "no index has such a rank"
        return CURVE[ranks] + self.shift + self.slack


@pytest.mark.parametrize("capacity", [0, 9, 15, 40])
@pytest.mark.parametrize("shift", [0, -50, 50])
@pytest.mark.parametrize("slack", [0, 2, 1000])
def test_a_lookup_has_every_row_of_its_range_within_the_capacity(slack: int, shift: int, capacity: int) -> None:
    positions = Widened(slack, capacity, shift)
    firsts, lasts = (part.ravel() for part in np.indices((7, 7)))
    starts, stops = positions.of_ranks(firsts, lasts)
    for first, last, start, stop in zip(firsts, lasts, starts, stops, strict=True):
        end = 0 if last < first else min(max(0, int(CURVE[last]) + shift + slack), capacity)
        begin = 0 if first == 0 else min(max(0, int(CURVE[first - 1]) + shift - slack), end)
        assert (start, stop) == (begin, end) == positions.lookup(10 + int(first), 10 + int(last))
        if first == last:
            assert positions.lookup(10 + int(first)) == (begin, end)
    one, many = positions.lookup_many([10, 13]), positions.lookup_many([10, 13], [10, 13])
    assert [part.tolist() for part in one] == [part.tolist() for part in many]


def test_a_range_without_keys_has_no_positions() -> None:
    positions = Widened(2, 15)
    assert positions.lookup(12, 11) == positions.lookup(20, 30) == PositionRange(0, 0)
    starts, stops = positions.of_ranks(np.array([3, 0]), np.array([2, -1]))
    assert (starts.tolist(), stops.tolist()) == ([0, 0], [0, 0])
    assert PositionRange(3, 8).rows == 5


class Exact(DPPLRIndex):
    """An index that reads too many rows on the left, and misses some on the right."""

    def __init__(self, shift: int) -> None:
        super().__init__()
        self._positions = Widened(1, 15, shift)


@pytest.mark.parametrize("shift", [0, 2, -3, 40])
def test_an_outcome_counts_rows_that_are_there_missed_and_read(shift: int) -> None:
    index = Exact(shift)
    firsts, lasts = np.array([0, 2, 3, 6, 1]), np.array([6, 3, 5, 6, 1])
    outcome = index.unsafe_outcome(COUNTS, firsts, lasts)
    for at, (first, last) in enumerate(zip(firsts.tolist(), lasts.tolist(), strict=True)):
        start, stop = index.lookup(10 + first, 10 + last)
        truth = set(range(int(CURVE[first] - COUNTS[first]), int(CURVE[last])))
        read = set(range(start, stop))
        assert (outcome.rows[at], outcome.missed[at], outcome.read[at]) == (len(truth), len(truth - read), len(read))
        assert outcome.extra[at] == len(read - truth)
    assert index.unsafe_dummy_rows(COUNTS) == 0
    assert Outcome(np.array([5]), np.array([2]), np.array([9])).extra.tolist() == [6]


def test_an_index_needs_no_dummies_unless_it_says_so() -> None:
    assert Index.unsafe_dummy_rows(DPPLRIndex(), np.arange(9)) == 0


@pytest.mark.parametrize("beta", [Fraction(1, 10**300), 1e-6, 1 - Fraction(1, 10**300)])
def test_a_beta_within_its_limits_is_accepted(beta: float | Fraction) -> None:
    assert check_beta(beta) == Fraction(str(beta))


@pytest.mark.parametrize("beta", [0, -1, 1, 2, Fraction(1, 10**300 + 1), Fraction(1, 10**301)])
def test_a_beta_beyond_its_limits_is_refused(beta: int | Fraction) -> None:
    with pytest.raises(InvalidParameter, match="beta"):
        check_beta(beta)


def test_an_epsilon_for_one_row_has_a_least_and_a_most() -> None:
    least, most, bit = Fraction(1, 2**20), Fraction(2**8), Fraction(1, 2**60)
    for good in (least, most):
        check_row_epsilon(good)
    for bad in (least - bit, most + bit):
        with pytest.raises(InvalidParameter, match="epsilon"):
            check_row_epsilon(bad)


@pytest.mark.parametrize("value", [0, -1, True, 1.0, "1", None, np.int64(0), np.float64(3)])
def test_what_is_no_count_is_refused(value: object) -> None:
    check_count(1, "capacity")
    check_count(np.int64(1), "capacity")
    with pytest.raises(InvalidParameter, match="capacity must be a whole number"):
        check_count(value, "capacity")


def test_a_capacity_holds_the_rows_and_is_below_the_most() -> None:
    histogram = Histogram.of_counts(COUNTS, 7)
    for good in (None, 15, MAX_ROWS):
        assert check_request(histogram, "0.5", good) == Fraction(1, 2)
    for bad in (14, MAX_ROWS + 1):
        with pytest.raises(InvalidParameter, match="do not fit the capacity"):
            check_request(histogram, "0.5", bad)
    with pytest.raises(InvalidParameter, match="capacity must be"):
        check_request(histogram, "0.5", 0)
    with pytest.raises(InvalidParameter, match="beta"):
        check_request(histogram, 0, None)


def test_counts_are_whole_from_zero_on_and_no_more_than_the_most_together() -> None:
    assert MAX_ROWS == 2**36 - 1
    with pytest.raises(InvalidKeys):
        Histogram.of_counts([2**62] * 4, 4)  # whose sum is 0 in 64 bits
    assert Histogram.of_counts([MAX_ROWS - 1, 1, 0], 3).fits(MAX_ROWS)
    assert not Histogram.of_counts([MAX_ROWS - 1, 1, 0], 3).fits(MAX_ROWS - 1)
    for counts in ([MAX_ROWS, 1, 0], [5, -1, 0], [1.0, 2.0, 3.0], [[1, 2, 3]], [True, False, True]):
        with pytest.raises(InvalidKeys):
            Histogram.of_counts(counts, 3)
    for counts in ([1, 2], [1, 2, 3, 4]):
        with pytest.raises(InvalidParameter, match="for a domain of 3 ranks"):
            Histogram.of_counts(counts, 3)
    assert Histogram.of_ranks(np.array([0, 2, 2]), 4).counts.tolist() == [1, 0, 2, 0]


def test_counts_may_be_the_most_in_one_rank_and_no_sum_wraps() -> None:
    assert Histogram.of_counts(np.array([MAX_ROWS, 0]), 2).size == 2
    with pytest.raises(InvalidKeys):
        Histogram.of_counts(np.array([0, *[2**62] * 4]), 5)  # which add up to 0 in 64 bits


@pytest.mark.parametrize("knots", [3, 4, 6, 8, 11, 30])
def test_a_curve_is_made_monotone_in_parts_as_in_one_piece(monkeypatch: pytest.MonkeyPatch, knots: int) -> None:
    rows = np.random.default_rng(knots).normal(0, 9, knots)
    whole = _isotonic(rows)
    assert np.all(np.diff(whole) >= 0)
    assert whole.mean() == pytest.approx(rows.mean())
    monkeypatch.setattr(curve, "CHUNK", 4)
    assert _isotonic(rows) == pytest.approx(whole)


def test_a_curve_is_cut_to_the_capacity_and_is_straight_between_its_knots() -> None:
    every = NoisyCurve(4, range(4), np.array([-3.0, 2.4, 2.6, 99.0]), 1, 1.0)
    assert make_monotone(every, 10).rows.tolist() == [0, 2, 3, 10]
    assert make_monotone(every, None).rows.tolist() == [0, 2, 3, 99]
    some = NoisyCurve(6, np.array([1, 5]), np.array([4.0, 8.0]), 1, 1.0)
    assert make_monotone(some, None).rows.tolist() == [2, 4, 5, 6, 7, 8]
    most = NoisyCurve(1, range(1), np.array([2.0**40]), 1, 1.0)
    assert make_monotone(most, None).rows.tolist() == [MAX_ROWS]


def test_a_refusal_gives_the_budget_back_and_a_used_one_is_refused() -> None:
    domain, index = IntegerDomain(0, 2), DPPLRIndex()
    for refused in ({"beta": 0}, {"capacity": 2}, {"domain": "int:0:2"}):
        budget = unsafe_budget(1)
        with pytest.raises(InvalidParameter):
            index.fit_counts([1, 2, 3], **({"domain": domain, "budget": budget} | refused))  # type: ignore[arg-type]
        assert budget.state == "cancelled"
        with pytest.raises(BudgetUsed):
            index.fit_counts([1, 2, 3], domain=domain, budget=budget)
    drawn = unsafe_budget(1)
    drawn.draw()
    for fit, rows in ((index.fit, [0, 1]), (index.fit_counts, [1, 1, 0])):
        with pytest.raises(BudgetUsed):
            fit(rows, domain=domain, budget=drawn)
        with pytest.raises(BudgetUsed):
            fit("no rows at all", domain="no domain", budget=drawn)  # type: ignore[arg-type]
        with pytest.raises(InvalidParameter, match="must come from a ledger"):
            fit(rows, domain=domain, budget=1)  # type: ignore[arg-type]
    for name in ("positions", "terms"):
        with pytest.raises(NotFitted):
            getattr(index, name)


def test_a_fit_is_on_the_terms_of_one_row_and_remembers_the_charge() -> None:
    budget = unsafe_budget(3, delta="1/4", rows_per_user=3)
    index = DPPLRIndex().fit_counts([1, 2, 3], domain=IntegerDomain(0, 2), budget=budget)
    million, quarter = Fraction(1, 10**6), Fraction(1, 4)
    assert index.terms == Terms(IntegerDomain(0, 2), Fraction(1), budget.row_delta, million, None, Fraction(3), quarter)
    assert budget.state == "drawn"
