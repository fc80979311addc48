"""Every index of the paper behind one contract; and of each comparator, what the paper says of it.

False alarms: every statistical test states its threshold for a probability of 1e-7, and a planted defect is caught.
"""

import os
from collections.abc import Callable
from fractions import Fraction
from math import exp, sqrt
from pathlib import Path
from types import SimpleNamespace

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import binom, gamma

from scumble import Budget, DPPLRIndex, ExplicitKeys, FloatDomain, IntegerDomain, Ledger, PositionRange, ScumbleError
from scumble.errors import BudgetUsed, InvalidKeys, InvalidParameter, NotFitted, OutOfDomain
from scumble.index.contract import Index
from scumble.index.slack import shift
from scumble.lab import comparators
from scumble.lab.comparators import (
    CryptEpsilonIndex,
    CryptEpsilonPublishedIndex,
    DPBPlusTreeIndex,
    ExactIndex,
    SpecialIndex,
    curves,
    limits,
)
from scumble.lab.comparators.crypt_epsilon_published import bins_of
from scumble.lab.comparators.curves import truncation_delta
from scumble.lab.comparators.dp_bplus_tree import RoutingTree
from scumble.privacy import noise
from scumble.privacy.budget import unsafe_budget

IntArray = NDArray[np.int64]
FALSE_ALARM = 1e-7

PUBLISHED: list[Callable[[], Index]] = [CryptEpsilonIndex, CryptEpsilonPublishedIndex, SpecialIndex, DPBPlusTreeIndex]
PRIVATE: dict[str, Callable[[], Index]] = {
    "Crypt-epsilon": CryptEpsilonIndex,
    "Crypt-epsilon, as published": CryptEpsilonPublishedIndex,
    "SPECIAL": SpecialIndex,
    "DP B+ tree": DPBPlusTreeIndex,
    "DP B+ tree, B = 0": lambda: DPBPlusTreeIndex(overflow_rows=0),
    "DP-PLR": DPPLRIndex,
    "DP-PLR as published": lambda: DPPLRIndex(mechanism="paper", slack="paper"),
    "DP-PLR, published mechanism": lambda: DPPLRIndex(mechanism="paper"),
    "DP-PLR, published slack": lambda: DPPLRIndex(slack="paper"),
    "DP-PLR, seven segments": lambda: DPPLRIndex(max_segments=7),
    # What is trained is trained briefly: the contract holds from the first step on.
    "DPRMIIndex": lambda: comparators.DPRMIIndex(steps=4),
    "FMIIndex": lambda: comparators.FMIIndex(steps=4),
    "FMIPerceptronsIndex": lambda: comparators.FMIPerceptronsIndex(hidden=(6, 5, 4), epochs=3, batch=16),
}
EVERY = PRIVATE | {"exact": ExactIndex}
LOSSLESS = [name for name in EVERY if name.startswith(("SPECIAL", "DP-PLR", "exact"))] + ["DP B+ tree"]  # at beta 1e-9


def spend(epsilon: int | str = 1, delta: str = "0.9") -> Budget:
    """A budget of no ledger: thousands of fits do not wait for a database each."""
    return unsafe_budget(epsilon, delta=delta, label="test")


def fitted(make: Callable[[], Index], counts: object, *, beta: float = 1e-9, capacity: int | None = None) -> Index:
    array = np.array(counts, dtype=np.int64)
    index, domain = make(), IntegerDomain(0, len(array) - 1)
    if isinstance(index, ExactIndex):
        return index.fit_counts(array, domain=domain, beta=beta, capacity=capacity)
    return index.fit_counts(array, domain=domain, budget=spend(), beta=beta, capacity=capacity)


def end_of(index: Index) -> int:
    """The public end of all positions."""
    return index.positions.capacity


def every_range(size: int) -> tuple[IntArray, IntArray]:
    firsts, lasts = np.triu_indices(size)
    return firsts.astype(np.int64), lasts.astype(np.int64)


# --- the contract ----------------------------------------------------------------------------------

TABLES = {
    "N=1, empty": [0],
    "N=1": [7],
    "N=2, empty": [0, 0],
    "N=2": [5, 9],
    "N=3": [0, 4, 1],
    "empty": [0] * 50,
    "one key holds all": [0] * 20 + [10_000] + [0] * 29,
    "flat": [3] * 50,
    "one key": [10**6],
}


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("name", EVERY)
def test_lookups(name: str, table: str) -> None:
    """Ranges lie within the positions there are, many are what single ones are, and outcomes are what lookups bring."""
    counts = np.array(TABLES[table], dtype=np.int64)
    index = fitted(EVERY[name], counts)
    size, end = len(counts), end_of(index)
    firsts, lasts = every_range(size)
    starts, stops = index.lookup_many(firsts, lasts)
    assert starts.dtype == stops.dtype == np.int64
    assert np.all((starts >= 0) & (starts <= stops) & (stops <= end))
    outcome = index.unsafe_outcome(counts, firsts, lasts)
    np.testing.assert_array_equal(outcome.read, stops - starts)
    rows = [counts[first : last + 1].sum() for first, last in zip(firsts, lasts, strict=True)]
    assert outcome.rows.tolist() == rows
    assert np.all((outcome.missed >= 0) & (outcome.missed <= outcome.rows))
    assert np.all(outcome.extra >= 0)
    if name in LOSSLESS:
        assert not outcome.missed.any()
    for i in range(0, len(firsts), 37):
        found = index.lookup(int(firsts[i]), int(lasts[i]))
        assert type(found) is PositionRange
        assert type(found.start) is type(found.stop) is int
        assert found == (starts[i], stops[i])


@pytest.mark.parametrize("name", EVERY)
def test_points_empty_ranges_and_open_ends(name: str) -> None:
    index = fitted(EVERY[name], [20] * 30)
    assert [index.lookup(key) for key in range(-2, 33)] == [index.lookup(key, key) for key in range(-2, 33)]
    points = index.lookup_many(np.arange(-2, 33))
    assert [index.lookup(key) for key in range(-2, 33)] == list(zip(*(a.tolist() for a in points), strict=True))
    for low, high in ((7, 3), (30, 99), (-9, -1)):
        assert index.lookup(low, high) == PositionRange(0, 0)
        assert [a.tolist() for a in index.lookup_many([low], [high])] == [[0], [0]]
    assert index.lookup(None, None) == index.lookup(-100, 100) == index.lookup(0, 29)
    assert index.lookup(None, 5) == index.lookup(0, 5)
    assert index.lookup(5, None) == index.lookup(5, 29)
    assert index.lookup(None, 5).start == 0
    with pytest.raises(NotFitted):
        EVERY[name]().lookup(3)
    with pytest.raises(NotFitted):
        _ = EVERY[name]().size_bytes


@pytest.mark.parametrize("name", EVERY)
def test_columns_of_keys_and_explicit_keys(name: str) -> None:
    index, domain = EVERY[name](), ExplicitKeys([5, 9])
    if isinstance(index, ExactIndex):
        index.fit([9, 5, 9], domain=domain)
        assert [index.lookup(5), index.lookup(9)] == [(0, 1), (1, 3)]
    else:
        index.fit([9, 5, 9], domain=domain, budget=spend())
    assert index.lookup(7) == PositionRange(0, 0)


@pytest.mark.parametrize("name", EVERY)
def test_a_given_capacity_is_kept(name: str) -> None:
    index = fitted(EVERY[name], [100] * 10, capacity=1234)
    if isinstance(index, DPBPlusTreeIndex):
        assert end_of(index) == index.stored_rows  # its positions are those of the padded leaves
    else:
        assert end_of(index) == 1234
        assert index.lookup(None, None).stop <= 1234


@pytest.mark.parametrize("name", EVERY)
def test_nothing_secret_is_shown(name: str) -> None:
    index = EVERY[name]()
    assert "not fitted" in repr(index)
    index = fitted(EVERY[name], [31337, 0, 0])
    assert "31337" not in repr(index) + str(index)
    assert "not fitted" not in repr(index)
    assert "leaks" in (repr(index) + index.name).lower() or name != "exact"


@settings(max_examples=40)
@given(st.lists(st.integers(0, 300), min_size=1, max_size=40), st.sampled_from(LOSSLESS))
def test_every_key_finds_its_rows(counts: list[int], name: str) -> None:
    """At beta = 1e-9 a failure here is a defect, not an accident."""
    array = np.array(counts, dtype=np.int64)
    index = fitted(EVERY[name], array)
    assert not index.unsafe_outcome(array, *every_range(len(array))).missed.any()
    if name != "DP B+ tree":
        curve = np.concatenate([[0], np.cumsum(array)])
        starts, stops = index.lookup_many(np.arange(len(array)))
        assert np.all(starts <= curve[:-1])
        assert np.all(stops >= curve[1:])


# --- budget ----------------------------------------------------------------------------------------


class Receipts:
    """Listens at the sampler, below all that draw noise: which vector was noised, with what scale, and when."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.vectors: list[IntArray] = []
        self.noises: list[IntArray] = []
        self.scales: list[Fraction] = []
        self.states: list[str] = []
        self.budget = spend()
        original = noise._add_from_stream

        def listen(values: IntArray, scale: Fraction, words: noise.Words) -> None:
            before = values.copy()
            original(values, scale, words)
            self.vectors.append(before)
            self.noises.append(values - before)
            self.scales.append(scale)
            self.states.append(self.budget.state)

        monkeypatch.setattr(noise, "_add_from_stream", listen)

    def fit(self, make: Callable[[], Index], counts: IntArray, epsilon: int | str = 1, beta: float = 1e-6) -> Index:
        self.vectors, self.noises, self.scales, self.states = [], [], [], []
        self.budget = spend(epsilon)
        return make().fit_counts(counts, domain=IntegerDomain(0, len(counts) - 1), budget=self.budget, beta=beta)


def loss(receipts: Receipts, make: Callable[[], Index], before: IntArray, after: IntArray, epsilon: str) -> Fraction:
    """The privacy loss between two histograms, exactly: every released number's change over its noise scale."""
    receipts.fit(make, before, epsilon)
    vectors, scales = receipts.vectors, receipts.scales
    receipts.fit(make, after, epsilon)
    assert receipts.scales == scales
    changes = [int(np.abs(a - b).sum()) for a, b in zip(vectors, receipts.vectors, strict=True)]
    return sum((change / scale for change, scale in zip(changes, scales, strict=True)), Fraction(0))


def worst_loss(receipts: Receipts, make: Callable[[], Index], size: int, epsilon: str) -> Fraction:
    """The largest privacy loss over all neighbours of one table: a row added to each rank."""
    base = np.random.default_rng(size).integers(0, 50, size)
    return max(loss(receipts, make, base, base + (np.arange(size) == rank), epsilon) for rank in range(size))


@pytest.mark.parametrize("make", PUBLISHED)
def test_no_neighbour_costs_more_than_epsilon_and_some_cost_all_of_it(
    monkeypatch: pytest.MonkeyPatch, make: Callable[[], Index]
) -> None:
    receipts = Receipts(monkeypatch)
    for size, epsilon in [*((n, "1") for n in (*range(1, 10), 15, 16, 17, 31, 33, 63, 64)), (12, "0.1"), (5, "7/3")]:
        assert worst_loss(receipts, make, size, epsilon) == Fraction(epsilon)


def test_a_level_too_few_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: the paper's log2 N levels, and one curve of SPECIAL left unpaid."""
    receipts = Receipts(monkeypatch)
    monkeypatch.setattr(RoutingTree, "scale", property(lambda tree: (tree.levels - 1) / tree.epsilon))
    assert worst_loss(receipts, DPBPlusTreeIndex, 16, "1") > 1
    monkeypatch.setattr(curves, "special_scale", lambda terms: terms.domain.size / terms.epsilon)
    assert worst_loss(receipts, SpecialIndex, 16, "1") == 2


@pytest.mark.parametrize("name", PRIVATE)
def test_the_budget_is_drawn_before_the_noise(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    receipts = Receipts(monkeypatch)
    receipts.fit(PRIVATE[name], np.full(20, 5, dtype=np.int64))
    assert receipts.states
    assert set(receipts.states) == {"drawn"}
    monkeypatch.setattr(Budget, "draw", lambda self: None)  # planted
    receipts.fit(PRIVATE[name], np.full(20, 5, dtype=np.int64))
    assert "open" in receipts.states


SENSITIVITIES: dict[str, Callable[[int], int]] = {
    "Crypt-epsilon": lambda size: size,
    "Crypt-epsilon, as published": lambda size: 1,
    "SPECIAL": lambda size: size,
    "DP B+ tree": lambda size: (size - 1).bit_length() + 1,
    "DP-PLR": lambda size: 1,
}


@pytest.mark.parametrize("size", [1, 2, 50, 1000])
@pytest.mark.parametrize("name", SENSITIVITIES)
def test_every_noise_is_paid_for(monkeypatch: pytest.MonkeyPatch, name: str, size: int) -> None:
    """The costs of all noisy vectors, sensitivity over scale, add up to what the budget leaves for one row: exactly."""
    receipts = Receipts(monkeypatch)
    receipts.fit(PRIVATE[name], np.ones(size, dtype=np.int64), "2/3")
    assert sum(SENSITIVITIES[name](size) / scale for scale in receipts.scales) == Fraction(2, 3)
    receipts = Receipts(monkeypatch)
    budget = Ledger(limit=1, delta_limit="0.9").spend(1, "test", delta="0.9", rows_per_user=4)
    PRIVATE[name]().fit_counts([3] * size, domain=IntegerDomain(0, size - 1), budget=budget)
    assert sum(SENSITIVITIES[name](size) / scale for scale in receipts.scales) == Fraction(1, 4)


@pytest.mark.parametrize("name", PRIVATE)
def test_one_budget_pays_for_one_fit(name: str) -> None:
    budget = spend()
    PRIVATE[name]().fit([1], domain=IntegerDomain(0, 9), budget=budget)
    with pytest.raises(BudgetUsed):
        PRIVATE[name]().fit([1], domain=IntegerDomain(0, 9), budget=budget)
    assert budget.state == "drawn"


@pytest.mark.parametrize("make", PUBLISHED)
def test_builds_never_share_noise_and_lookups_draw_none(
    monkeypatch: pytest.MonkeyPatch, make: Callable[[], Index]
) -> None:
    receipts = Receipts(monkeypatch)
    counts = np.full(50, 5, dtype=np.int64)
    seen: set[tuple[int, ...]] = set()
    for build in range(1, 6):
        index = receipts.fit(make, counts)
        drawn = len(receipts.noises)
        seen |= {tuple(samples.tolist()) for samples in receipts.noises}
        assert len(seen) == build * drawn  # nor do the two curves of SPECIAL share it
    assert index.lookup(3, 9) == index.lookup(3, 9)
    assert len(receipts.noises) == drawn


# --- refusals --------------------------------------------------------------------------------------

GOOD: dict[str, object] = {"keys": [1, 2, 3], "domain": IntegerDomain(0, 9), "beta": 1e-6}
BAD: dict[str, tuple[dict[str, object], type[ScumbleError]]] = {
    "null": ({"keys": [1, None]}, InvalidKeys),
    "NaN": ({"keys": np.array([1.0, np.nan]), "domain": FloatDomain("0", "9", "0.1")}, InvalidKeys),
    "text for numbers": ({"keys": ["one"]}, InvalidKeys),
    "out of domain": ({"keys": [1, 918_273]}, OutOfDomain),
    "beta 0": ({"beta": 0}, InvalidParameter),
    "beta 1": ({"beta": 1}, InvalidParameter),
    "beta beyond floats": ({"beta": "1e-400"}, InvalidParameter),
    "beta NaN": ({"beta": float("nan")}, InvalidParameter),
    "no domain": ({"domain": "int:0:9"}, InvalidParameter),
    "capacity too small": ({"capacity": 2}, InvalidParameter),
    "capacity too large": ({"capacity": 2**40}, InvalidParameter),
    "capacity of no type": ({"capacity": 2.5}, InvalidParameter),
}


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("name", EVERY)
def test_bad_input_is_refused_and_costs_nothing(name: str, case: str) -> None:
    changes, kind = BAD[case]
    ledger, index = Ledger(limit=1, delta_limit="0.9"), EVERY[name]()
    arguments = GOOD | changes
    keys = arguments.pop("keys")
    if not isinstance(index, ExactIndex):
        arguments["budget"] = ledger.spend(1, "test", delta="0.9")
    with pytest.raises(kind) as caught:
        index.fit(keys, **arguments)  # type: ignore[arg-type]
    assert caught.value.hint
    assert "918" not in str(caught.value)
    assert ledger.remaining() == 1
    assert ledger.remaining_delta() == Fraction(9, 10)
    with pytest.raises(NotFitted):
        index.lookup(1)


@pytest.mark.parametrize("name", EVERY)
def test_bad_counts_cost_nothing(name: str) -> None:
    for counts in ([1, 2], [1, -1, 0], [1.0, 2.0, 3.0], [[1, 2, 3]], [2**36, 0, 0]):
        ledger = Ledger(limit=1)
        spent = {} if name == "exact" else {"budget": ledger.spend(1, "test")}
        with pytest.raises(ScumbleError) as caught:
            EVERY[name]().fit_counts(counts, domain=IntegerDomain(0, 2), **spent)  # type: ignore[arg-type]
        assert caught.value.hint
        assert ledger.remaining() == 1


@pytest.mark.parametrize(
    ("make", "bytes_a_rank"), [(CryptEpsilonIndex, 8), (SpecialIndex, 24), (DPBPlusTreeIndex, 24), (ExactIndex, 8)]
)
def test_too_little_memory_is_refused_and_costs_nothing(
    monkeypatch: pytest.MonkeyPatch, make: Callable[[], Index], bytes_a_rank: int
) -> None:
    monkeypatch.setattr(limits, "available_bytes", lambda: 100 * bytes_a_rank)
    fitted(make, [1] * 100)
    ledger = Ledger(limit=1, delta_limit="0.9")
    spent = {} if make is ExactIndex else {"budget": ledger.spend(1, "test", delta="0.9")}
    with pytest.raises(InvalidParameter, match="memory") as caught:
        make().fit_counts([1] * 101, domain=IntegerDomain(0, 100), **spent)  # type: ignore[arg-type]
    assert "coarser" in str(caught.value.hint)
    assert ledger.remaining() == 1


def test_available_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What Linux says is available, page cache included; elsewhere the free pages."""
    assert 2**20 < limits.available_bytes() < 2**50
    monkeypatch.setattr(limits, "MEMINFO", tmp_path / "meminfo")
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert free / 2 < limits.available_bytes() < 2 * free
    (tmp_path / "meminfo").write_text("MemTotal:  999 kB\nMemAvailable:   77 kB\n")
    assert limits.available_bytes() == 77 * 1024


@pytest.mark.parametrize(("make", "size"), [(CryptEpsilonIndex, 2**20), (SpecialIndex, 2**19)])
def test_noise_beyond_the_sampler_is_refused_and_costs_nothing(make: Callable[[], Index], size: int) -> None:
    """The largest scale that the sampler draws is 2^40; a rank more, and the fit is refused."""
    counts, epsilon = np.ones(size + 1, dtype=np.int64), f"1/{2**20}"
    make().fit_counts(counts[1:], domain=IntegerDomain(1, size), budget=spend(epsilon))
    ledger = Ledger(limit=1, delta_limit="0.9")
    with pytest.raises(InvalidParameter, match="scale") as caught:
        make().fit_counts(counts, domain=IntegerDomain(0, size), budget=ledger.spend(epsilon, "test", delta="0.9"))
    assert caught.value.hint
    assert ledger.remaining() == 1


# --- Crypt-epsilon ---------------------------------------------------------------------------------


def noise_is_of_scale(errors: IntArray, scale: float) -> bool:
    """Whether |X| is on average as large as it should be: at scales of hundreds it is exponential, its sum gamma."""
    total = float(np.abs(errors).sum()) / scale
    return bool(gamma.ppf(FALSE_ALARM / 2, len(errors)) < total < gamma.isf(FALSE_ALARM / 2, len(errors)))


def test_crypt_epsilon_noise_has_the_exact_scale() -> None:
    """A tenth more or less noise would be 14 standard deviations off; the sqrt(N) of slip 9 far more."""
    size = 20_000
    counts = np.random.default_rng(3).poisson(4, size)
    index = fitted(CryptEpsilonIndex, counts)
    assert isinstance(index, CryptEpsilonIndex)
    errors = index.curves.lower - np.cumsum(counts)
    assert noise_is_of_scale(errors, size)
    for wrong in (1.1 * size, size / 1.1, sqrt(size)):
        assert not noise_is_of_scale(errors, wrong)
    # Independent at every point: neighbours are as often on the same side as not.
    same = int((np.sign(errors[1:]) == np.sign(errors[:-1])).sum())
    assert binom.ppf(FALSE_ALARM, size - 1, 0.5) <= same <= binom.isf(FALSE_ALARM, size - 1, 0.5)


def test_crypt_epsilon_loses_rows_and_shows_no_row_count() -> None:
    counts = np.full(1000, 10, dtype=np.int64)
    index = fitted(CryptEpsilonIndex, counts)
    assert isinstance(index, CryptEpsilonIndex)
    ranks = np.arange(1000)
    outcome = index.unsafe_outcome(counts, ranks, ranks)
    assert outcome.missed.sum() > 0.3 * outcome.rows.sum()
    assert index.curves.capacity == max(0, index.curves.lower.max())
    assert index.curves.lower is index.curves.upper
    assert index.unsafe_dummy_rows(counts) == 0


@pytest.mark.parametrize(
    ("keys", "bins"),
    [
        ([0, 1, 2, 3], [0, 1, 2, 3]),  # without gaps, each key has its bin
        ([0, 1, 2, 4], [0, 1, 2, 3]),  # width 1: the last bin takes in its end
        ([0, 1, 2, 5], [0, 0, 1, 2]),  # width 2 from the first gap too many on
        ([-7, 100], [0, 1]),
        ([5], [0]),
        ([-(2**63), 0, 2**63 - 1], [0, 1, 2]),
        ([0, 2**64 - 1], [0, 1]),
    ],
)
def test_bins_are_cut_from_the_range_of_the_keys(keys: list[int], bins: list[int]) -> None:
    assert bins_of(ExplicitKeys(keys)).tolist() == bins


def test_crypt_epsilon_as_published_sums_noise_and_mistakes_bins_for_keys() -> None:
    """The error of the last point is of the order sqrt(2 N), neither 1 nor N; 400 builds, 14 standard deviations."""
    size = 400
    counts = np.full(size, 10, dtype=np.int64)
    ends = [int(fitted(CryptEpsilonPublishedIndex, counts).curves.lower[-1]) - 10 * size for _ in range(400)]  # type: ignore[attr-defined]
    spread = 2 * exp(-1) / (1 - exp(-1)) ** 2 * size  # the variance of so many discrete Laplace noises of scale 1
    assert 0.4 < float(np.mean(np.square(ends))) / spread < 1.9
    # One key in two: nearly all lookups end up among other keys' rows. Without gaps they do not.
    keys = np.concatenate([[0, 1], np.arange(4, 2 * size, 2)])
    many = np.full(len(keys), 10_000, dtype=np.int64)
    ranks = np.arange(10, len(keys))
    for domain, lost in ((ExplicitKeys(keys[::1]), 0.0), (ExplicitKeys(np.append(keys[:-1], 10 * size)), 0.9)):
        index = CryptEpsilonPublishedIndex().fit_counts(many, domain=domain, budget=spend())
        outcome = index.unsafe_outcome(many, ranks, ranks)
        assert abs(outcome.missed.sum() / outcome.rows.sum() - lost) < 0.11


def test_crypt_epsilon_as_published_takes_no_texts() -> None:
    budget = spend()
    with pytest.raises(InvalidParameter, match="bins"):
        CryptEpsilonPublishedIndex().fit(["a"], domain=ExplicitKeys(["a", "b"]), budget=budget)
    assert budget.state == "cancelled"


# --- SPECIAL ---------------------------------------------------------------------------------------

BETA = 0.3  # large, so that truncation happens; its delta at epsilon 1/2 is 0.8


def build_special(counts: IntArray) -> SpecialIndex:
    domain, budget = IntegerDomain(0, len(counts) - 1), spend("0.5")
    return SpecialIndex().fit_counts(counts, domain=domain, budget=budget, beta=BETA)


def losing_builds(builds: int) -> int:
    counts = np.array([9, 0, 30, 1, 5], dtype=np.int64)
    ranges = every_range(len(counts))
    return sum(bool(build_special(counts).unsafe_outcome(counts, *ranges).missed.any()) for _ in range(builds))


def test_special_never_loses_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: without the truncation rows are lost with probability 0.2 a build or so; in 200 builds, certainly."""
    assert losing_builds(600) == 0
    bare = SimpleNamespace(cumsum=np.cumsum, minimum=lambda a, b, out: out, maximum=lambda a, b, out: out)
    monkeypatch.setattr(curves, "np", bare)
    assert losing_builds(200) > 0


def truncating_builds(receipts: Receipts, builds: int) -> int:
    found = 0
    for _ in range(builds):
        index = receipts.fit(SpecialIndex, np.full(5, 9, dtype=np.int64), "0.5", BETA)
        moved = curves.special_shift(index.terms)
        lower, upper = receipts.noises
        found += bool((lower > moved).any() or (upper < -moved).any())
    return found


def test_special_truncates_no_more_often_than_its_delta_pays_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The chance is 0.26 a build. Planted: a shift that covers each point alone, not all 2N of them, chance 0.97."""
    builds = 1000
    receipts = Receipts(monkeypatch)
    most = binom.isf(FALSE_ALARM, builds, BETA)
    assert 0 < truncating_builds(receipts, builds) <= most
    monkeypatch.setattr(curves, "special_shift", lambda terms: shift(1 / curves.special_scale(terms), terms.beta))
    assert truncating_builds(receipts, builds) > most


def test_special_keeps_its_curves_apart() -> None:
    counts = np.random.default_rng(5).poisson(20, 300)
    index = fitted(SpecialIndex, counts)
    assert isinstance(index, SpecialIndex)
    curve = np.cumsum(counts)
    moved = curves.special_shift(index.terms)
    assert np.all(index.curves.lower <= curve)
    assert np.all(index.curves.upper >= curve)
    assert index.curves.capacity == index.curves.upper[-1]
    assert noise_is_of_scale(
        np.concatenate([index.curves.lower - curve + moved, index.curves.upper - curve - moved]), 600
    )


def test_special_is_refused_without_its_delta() -> None:
    needed = truncation_delta(Fraction(1), Fraction(1, 10**6))
    for delta in (Fraction(0), needed - Fraction(1, 10**15)):
        ledger = Ledger(limit=1, delta_limit="0.1")
        with pytest.raises(InvalidParameter, match=r"delta of 0\.0000037") as caught:
            SpecialIndex().fit([1], domain=IntegerDomain(0, 9), budget=ledger.spend(1, "test", delta=delta))
        assert "delta=" in str(caught.value.hint)
        assert ledger.remaining() == 1
        assert ledger.remaining_delta() == Fraction(1, 10)
    budget = Ledger(limit=1, delta_limit="0.1").spend(1, "test", delta=needed)
    SpecialIndex().fit([1], domain=IntegerDomain(0, 9), budget=budget)
    assert budget.state == "drawn"


def special_law(rows: int, epsilon: float, moved: int, reach: int) -> NDArray[np.float64]:
    """P(lower, upper) of SPECIAL on one rank with 0 or 1 rows, over lower >= -reach and upper <= reach."""
    p = exp(-epsilon / 2)
    distance = np.zeros(2 * reach + 1)  # of the upper curve from the true one: max(0, X + moved)
    for x in range(-20 * reach, reach - moved):
        distance[max(0, x + moved)] += (1 - p) / (1 + p) * p ** abs(x)
    above = np.array([distance[upper - rows] if upper >= rows else 0 for upper in range(reach)])
    below = np.array([distance[rows + lower] if rows + lower >= 0 else 0 for lower in range(-1, reach)])
    return np.outer(below, above)


def test_the_delta_of_special_is_enough_and_none_would_not_be() -> None:
    """Exactly, on one rank: the mass by which one table's law exceeds e^epsilon times its neighbour's."""
    for epsilon, beta in ((1.0, 0.2), (0.5, 0.05), (2.0, 0.1)):
        moved = shift(Fraction(epsilon) / 2, Fraction(beta) / 2)
        laws = [special_law(rows, epsilon, moved, 200) for rows in (0, 1)]
        assert all(abs(law.sum() - 1) < 1e-9 for law in laws)
        for one, other in (laws, laws[::-1]):
            excess = np.maximum(0, one - exp(epsilon) * other).sum()
            assert 0.5 * beta < excess < truncation_delta(Fraction(epsilon), Fraction(beta))


def test_the_delta_of_special_is_rounded_up_to_twelve_digits() -> None:
    with mpmath.workprec(400):
        for epsilon in (Fraction(1), Fraction(1, 3), Fraction(20)):
            whole = 1 + mpmath.exp(mpmath.mpf(epsilon.numerator) / epsilon.denominator)
            places = 12 - len(str(int(whole)))
            digits = int(mpmath.ceil(whole * mpmath.mpf(10) ** places))
            assert truncation_delta(epsilon, Fraction(1, 10**6)) == Fraction(digits, 10 ** (places + 6))


# --- DP B+ tree ------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", range(1, 65))
def test_the_tree_is_a_binary_tree_over_the_ranks(size: int) -> None:
    """2N - 1 nodes, each inner one the sum of two neighbouring blocks, ceil(log2 N) + 1 levels deep."""
    tree = RoutingTree(size, Fraction(1))
    nodes = np.array([tree.nodes(row) for row in np.eye(size, dtype=np.int64)]).T
    assert nodes.shape == (2 * size - 1, size)
    assert nodes[0].all()
    for i in range(1, size):
        left, right = nodes[2 * i - 1], nodes[2 * i]
        np.testing.assert_array_equal(nodes[i - 1], left + right)
        assert left.any()
        assert np.flatnonzero(right)[0] == np.flatnonzero(left)[-1] + 1
    counts = np.arange(size) ** 2
    np.testing.assert_array_equal(tree.leaf_counts(tree.nodes(counts)), counts)
    assert nodes.sum(axis=0).max() == tree.levels == (size - 1).bit_length() + 1


def test_the_layout_of_the_leaves() -> None:
    """Positions run over the leaves as stored: noisy count plus B each, and never less than nothing."""
    counts = np.array([40, 0, 3, 0, 100], dtype=np.int64)
    for overflow in (0, 5, 1000):
        index = fitted(lambda overflow=overflow: DPBPlusTreeIndex(overflow), counts)  # type: ignore[misc]
        assert isinstance(index, DPBPlusTreeIndex)
        sizes = np.maximum(0, RoutingTree(5, Fraction(1)).leaf_counts(index.nodes) + overflow)
        ends = np.concatenate([[0], np.cumsum(sizes)]).tolist()
        for first, last in zip(*every_range(5), strict=True):
            assert index.lookup(int(first), int(last)) == (ends[first], ends[last + 1])
        assert index.stored_rows == ends[-1]
        firsts, lasts = every_range(5)
        outcome = index.unsafe_outcome(counts, firsts, lasts)
        missed = [np.maximum(0, counts - sizes)[a : b + 1].sum() for a, b in zip(firsts, lasts, strict=True)]
        assert outcome.missed.tolist() == missed
        kept = int(np.minimum(counts, sizes).sum())
        assert index.unsafe_dummy_rows(counts) == index.stored_rows - kept
        assert outcome.extra[4] == index.unsafe_dummy_rows(counts)  # the whole domain


LEAVES = np.full(16, 200, dtype=np.int64)


def losing_trees(builds: int, overflow_rows: int | None) -> int:
    ranks = np.arange(16)
    found = 0
    for _ in range(builds):
        index = fitted(lambda: DPBPlusTreeIndex(overflow_rows), LEAVES, beta=BETA)
        found += bool(index.unsafe_outcome(LEAVES, ranks, ranks).missed.any())
    return found


def test_leaves_lose_rows_no_more_often_than_beta() -> None:
    """The chance is 0.26 a build. Planted: five dummies less a leaf, chance 0.56, which is missed once in 1e30 runs."""
    builds = 1000
    most = binom.isf(FALSE_ALARM, builds, BETA)
    overflow = shift(Fraction(1, 5), Fraction(BETA) / 16)
    assert 0 < losing_trees(builds, None) <= most
    assert losing_trees(builds, overflow - 5) > most


def test_overflow_rows_are_checked() -> None:
    for wrong in (-1, 2.5, True, "3", 2**36):
        with pytest.raises(InvalidParameter) as caught:
            DPBPlusTreeIndex(wrong)  # type: ignore[arg-type]
        assert caught.value.hint
    assert DPBPlusTreeIndex(np.int64(7)).overflow_rows == 7  # type: ignore[arg-type]


# --- exact, sizes, model ---------------------------------------------------------------------------


def test_an_exact_index_is_exact_and_takes_no_budget() -> None:
    counts = np.random.default_rng(7).poisson(2, 200)
    index = ExactIndex().fit_counts(counts, domain=IntegerDomain(0, 199))
    outcome = index.unsafe_outcome(counts, *every_range(200))
    assert not outcome.missed.any()
    assert not outcome.extra.any()
    ledger = Ledger(limit=1)
    budget = ledger.spend(1, "test")
    with pytest.raises(InvalidParameter, match="leaks"):
        ExactIndex().fit([1], domain=IntegerDomain(0, 9), budget=budget)
    assert budget.state == "cancelled"
    budget = ledger.spend(1, "test")
    with pytest.raises(InvalidParameter, match="leaks"):
        ExactIndex().fit_counts([1], domain=IntegerDomain(0, 0), budget=budget)
    assert budget.state == "cancelled"
    assert ledger.remaining() == 1
    with pytest.raises(InvalidParameter, match="no privacy"):
        _ = index.terms


@pytest.mark.parametrize("size", [1, 2, 100, 1001])
def test_sizes_are_those_of_the_papers_table(size: int) -> None:
    made = [fitted(make, [3] * size) for make in (CryptEpsilonIndex, SpecialIndex, DPBPlusTreeIndex, ExactIndex)]
    assert [index.size_bytes for index in made] == [8 * size, 16 * size, 8 * (2 * size - 1), 8 * size]


def test_wild_curves_are_clipped() -> None:
    """Noise is neither monotone nor bounded; a lookup's positions are in order and within the capacity."""
    lower, upper = np.array([-50, 90, 10, 5]), np.array([-3, 40, 200, 60])
    both = curves.TwoCurves(IntegerDomain(0, 3), lower, upper, 100)
    assert both.lookup(0) == (0, 0)  # stops below 0
    assert both.lookup(1) == (0, 40)  # starts below 0
    assert both.lookup(2) == (90, 100)  # stops beyond the capacity
    assert both.lookup(2, 1) == (0, 0)
    assert both.lookup(3) == (10, 60)
    assert both.lookup(0, 3) == (0, 60)
    backwards = curves.TwoCurves(IntegerDomain(0, 3), lower, lower, 100)
    assert backwards.lookup(2) == (10, 10)  # starts after it stops: empty
    for model in (both, backwards):
        firsts, lasts = every_range(4)
        single = [model.lookup(int(a), int(b)) for a, b in zip(firsts, lasts, strict=True)]
        assert list(zip(*(a.tolist() for a in model.lookup_many(firsts, lasts)), strict=True)) == single
    assert upper.tolist() == [-3, 40, 200, 60]  # lookups leave the curves alone
    assert lower.tolist() == [-50, 90, 10, 5]
