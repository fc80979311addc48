"""The index as its users call it, beyond what tests/lab/test_comparators.py asks of every index."""

import datetime as dt
import math
import re
import subprocess
import sys
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

import scumble
from scumble import (
    Budget,
    CategoryDomain,
    DateDomain,
    DecimalDomain,
    Domain,
    DPPLRIndex,
    ExplicitKeys,
    FloatDomain,
    IntegerDomain,
    Ledger,
    StringDomain,
    TimestampDomain,
)
from scumble.errors import (
    DomainError,
    InvalidParameter,
    LedgerBusy,
    NotFitted,
)
from scumble.index import dp_plr
from scumble.index import slack as coverage
from scumble.index.curve import MAX_ROWS, MonotoneCurve, NoisyCurve, make_monotone
from scumble.index.file import block_bytes, fixed_bytes, most_segments
from scumble.index.hint import Hint
from scumble.index.mechanisms import paper
from scumble.index.mechanisms import wide_tree as wide
from scumble.privacy import noise
from scumble.privacy.budget import unsafe_budget


def spend(epsilon: int | str = 1) -> Budget:
    """A budget of no ledger: thousands of fits do not wait for a database each."""
    return unsafe_budget(epsilon, label="test")


@pytest.mark.parametrize("options", [{}, {"slack": "paper"}, {"mechanism": "paper"}], ids=str)
def test_a_large_domain(options: dict[str, str]) -> None:
    rng = np.random.default_rng(8)
    size = 2**18 + 77
    keys = np.concatenate([rng.integers(0, size, 200_000), np.full(5000, 4242), np.full(3000, size - 1)])
    index = DPPLRIndex(max_bytes=4096, **options)  # type: ignore[arg-type]
    index.fit(keys, domain=IntegerDomain(0, size - 1), budget=spend(), beta=1e-9)
    curve = np.concatenate([[0], np.cumsum(np.bincount(keys, minlength=size))])
    starts, stops = index.lookup_many(np.arange(size))
    assert np.all(starts <= curve[:-1])
    assert np.all(stops >= curve[1:])
    assert index.summary().bytes <= 4096


def test_widened_far_less_than_the_published_design() -> None:
    counts = np.random.default_rng(9).poisson(1, 2**18)
    domain = IntegerDomain(0, 2**18 - 1)
    ours = DPPLRIndex(max_bytes=4096).fit_counts(counts, domain=domain, budget=spend())
    theirs = DPPLRIndex(max_bytes=4096, mechanism="paper", slack="paper").fit_counts(
        counts, domain=domain, budget=spend()
    )
    assert theirs.summary().slack_rows > 3 * ours.summary().slack_rows


# --- domains ---------------------------------------------------------------------------------------

DAY = dt.date(2020, 1, 1)
KINDS: list[tuple[Domain, list[object]]] = [
    (IntegerDomain(-(2**63), 2**63 - 1), [-(2**63), 0, 2**63 - 1]),
    (IntegerDomain(2**62, 2**62 + 1000), [2**62, 2**62 + 1, 2**62 + 1000]),
    (DecimalDomain("0", "100", "0.01"), [Decimal("0.01"), Decimal("0.29"), Decimal("99.99")]),
    (DateDomain("2020-01-01", "2020-12-31"), [DAY, DAY + dt.timedelta(1), DAY + dt.timedelta(365)]),
    (
        TimestampDomain("2020-01-01T00:00:00", "2020-01-01T00:00:01", "100ns"),
        [np.datetime64("2020-01-01T00:00:00.000000100"), np.datetime64("2020-01-01T00:00:00.999999900")],
    ),
    (CategoryDomain(["no", "perhaps", "yes"]), ["no", "yes", "yes"]),
    (ExplicitKeys([3, 7, 1000]), [3, 1000, 1000]),
    (StringDomain(["g", "p"]), ["apple", "grape", "zebra"]),
    (FloatDomain("0", "1", "0.001"), [0.1, 0.2, 0.9999]),
]


@pytest.mark.parametrize(
    ("domain", "keys"),
    [pytest.param(*KINDS[0], marks=pytest.mark.slow), *KINDS[1:]],  # 2^24 ranks
    ids=[type(domain).__name__ for domain, _ in KINDS],
)
def test_every_kind_of_domain(tmp_path: Path, domain: Domain, keys: list[object]) -> None:
    many = [key for key in keys for _ in range(2000)]
    index = DPPLRIndex().fit(many, domain=domain, budget=spend(), beta=1e-9)
    index.save(tmp_path / "f")
    for found in (index, DPPLRIndex.load(tmp_path / "f")):
        order = np.sort(domain.ranks(many))
        for key in keys:
            positions = np.flatnonzero(order == domain.rank(key))
            assert found.lookup(key).start <= positions[0]
            assert found.lookup(key).stop > positions[-1]


def test_arrow_columns() -> None:
    keys = pa.chunked_array([pa.array([1, 2, 3], pa.int32()), pa.array([4, 5], pa.int32())])
    index = DPPLRIndex().fit(keys, domain=IntegerDomain(0, 9), budget=spend(), beta=1e-9)
    assert index.lookup(1, 5).rows >= 5


# --- budget ----------------------------------------------------------------------------------------


class Receipts:
    """Listens to the noise: what each call costs, and whether the budget was drawn before the first."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.costs: list[Fraction] = []
        self.states: list[str] = []
        self.budget = spend()
        original = noise.add_discrete_laplace

        def listen(values: NDArray[np.int64], scale: Fraction, words: noise.Words | None = None) -> None:
            self.costs.append(1 / scale)
            self.states.append(self.budget.state)
            original(values, scale, words)

        for module in (noise, paper, wide):
            monkeypatch.setattr(module, "add_discrete_laplace", listen)


@pytest.mark.parametrize("size", [1, 50, 3000, 2**17])
@pytest.mark.parametrize("slack", ["measured", "paper", "lossless"])
def test_every_noise_is_paid_for(monkeypatch: pytest.MonkeyPatch, size: int, slack: str) -> None:
    """Each noisy vector has L1 sensitivity 1, so the costs 1/scale of all of them add up to epsilon: exactly."""
    wide.wide_tree(size, Fraction(1)).bound(Fraction(1, 10**6))
    receipts = Receipts(monkeypatch)
    if slack == "lossless":
        receipts.budget = Ledger(limit=1, delta_limit="0.1").spend(1, "test", delta="0.1")
    counts = np.ones(size, dtype=np.int64)
    index = DPPLRIndex(slack=slack)  # type: ignore[arg-type]
    index.fit_counts(counts, domain=IntegerDomain(0, size - 1), budget=receipts.budget)
    assert sum(receipts.costs) == 1
    assert set(receipts.states) == {"drawn"}
    assert len(receipts.costs) == index.summary().levels + (slack != "paper")


def test_the_binary_mechanism_is_paid_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its one vector of nodes has a sensitivity of as many as there are levels."""
    receipts = Receipts(monkeypatch)
    index = DPPLRIndex(mechanism="paper").fit_counts(
        np.ones(100, dtype=np.int64), domain=IntegerDomain(0, 99), budget=receipts.budget
    )
    assert receipts.costs[0] * index.summary().levels + receipts.costs[1] == 1


def test_rows_per_user_scales_the_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    receipts = Receipts(monkeypatch)
    receipts.budget = Ledger(limit=1).spend(1, "test", rows_per_user=4)
    DPPLRIndex().fit([1] * 50, domain=IntegerDomain(0, 9), budget=receipts.budget)
    assert sum(receipts.costs) == Fraction(1, 4)


def test_builds_never_share_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = np.full(200, 1000)

    def build() -> list[float]:
        index = DPPLRIndex().fit_counts(counts, domain=IntegerDomain(0, 199), budget=spend("0.001"))
        return list(map(float, index.noisy_curve.rows))

    assert len({tuple(build()) for _ in range(5)}) == 5
    # Planted defect: a key stream that starts over.
    monkeypatch.setattr(noise, "_key_stream", lambda key: lambda n: np.arange(n, dtype=np.uint64) * np.uint64(2**53))
    assert len({tuple(build()) for _ in range(5)}) == 1


def test_a_crash_after_the_draw_leaves_it_spent(tmp_path: Path) -> None:
    """A real process dies at its first noise; the ledger on disk knows of the spend."""
    path = tmp_path / "ledger"
    script = f"""
import os, scumble
from scumble.index.mechanisms import wide_tree as wide
wide.add_discrete_laplace = lambda *a: os.kill(os.getpid(), 9)
ledger = scumble.Ledger.open({str(path)!r}, limit=2)
scumble.DPPLRIndex().fit([1], domain=scumble.IntegerDomain(0, 9), budget=ledger.spend(1, "salary"))
"""
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == -9
    ledger = Ledger.open(path)
    assert ledger.remaining() == 1
    assert [entry.state for entry in ledger.entries()] == ["drawn"]


# --- refusals --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"max_bytes": 100, "max_error": 5},
        {"max_bytes": 0},
        {"max_segments": -1},
        {"max_error": 0},
        {"max_error": True},
        {"max_error": 2.5},
        {"mechanism": "laplace"},
        {"slack": "none"},
        {"alpha_s": 8},
        {"alpha_s": -8, "slack": "paper"},
        {"alpha_s": 0, "slack": "paper"},
        {"alpha_s": 8, "slack": "measured"},
    ],
    ids=str,
)
def test_bad_parameters_are_refused_at_once(options: dict[str, object]) -> None:
    with pytest.raises(InvalidParameter) as caught:
        DPPLRIndex(**options)  # type: ignore[arg-type]
    assert caught.value.hint


def test_impossible_sizes_and_budgets_cost_nothing() -> None:
    domain = IntegerDomain(0, 2)
    ledger = Ledger(limit=1)
    with pytest.raises(InvalidParameter, match="max_bytes"):
        DPPLRIndex(max_bytes=40).fit_counts([1, 2, 3], domain=domain, budget=ledger.spend(1, "test"))
    with pytest.raises(InvalidParameter, match="delta"):
        DPPLRIndex(slack="lossless").fit_counts([1, 2, 3], domain=domain, budget=ledger.spend(1, "test"))
    with pytest.raises(InvalidParameter, match="epsilon"):
        DPPLRIndex().fit_counts([1, 2, 3], domain=domain, budget=Ledger(limit=10**9).spend(10**9, "test"))
    assert ledger.remaining() == 1


def test_no_budget_no_fit_no_domain() -> None:
    with pytest.raises(InvalidParameter, match="ledger"):
        DPPLRIndex().fit([1], domain=IntegerDomain(0, 9), budget=1)  # type: ignore[arg-type]
    with pytest.raises(InvalidParameter):
        Ledger(limit=1).spend(0, "test")
    with pytest.raises(NotFitted):
        _ = DPPLRIndex().noisy_curve
    with pytest.raises(DomainError):
        ExplicitKeys([3, 2])
    with pytest.raises(DomainError):
        IntegerDomain(5, 4)


# --- the published choices, and what is shown ------------------------------------------------------


def test_published_slack() -> None:
    counts = np.full(1024, 10)
    index = DPPLRIndex(mechanism="paper", slack="paper", alpha_s=8, max_error=50)
    index.fit_counts(counts, domain=IntegerDomain(0, 1023), budget=spend(2))
    z = coverage.published_bound(1024, Fraction(2), Fraction(8))
    assert z <= index.summary().slack_rows <= z + 50
    assert index.model.beta == 1  # as it is printed, it promises nothing


def test_a_published_slack_may_be_as_narrow_as_asked_for() -> None:
    index = DPPLRIndex(slack="paper", alpha_s="1/2", max_error=50)
    assert index.alpha_s == Fraction(1, 2)
    index.fit_counts(np.full(1024, 10), domain=IntegerDomain(0, 1023), budget=spend(2))
    z = coverage.published_bound(1024, Fraction(2), Fraction(1, 2))
    assert z <= index.model.slack_rows <= z + 50


def test_lossless_says_its_delta() -> None:
    budget = Ledger(limit=1, delta_limit="1e-5").spend(1, "test", delta="1e-5")
    index = DPPLRIndex(slack="lossless").fit([1] * 100, domain=IntegerDomain(0, 9), budget=budget)
    assert index.summary().beta == 0
    assert index.summary().delta == 1e-5


@pytest.mark.parametrize("epsilon", ["0.01", "100"])
def test_a_fit_follows_the_curve_as_closely_as_its_noise_makes_sense(epsilon: str) -> None:
    counts, domain = np.arange(300) % 7, IntegerDomain(0, 299)
    free = DPPLRIndex().fit_counts(counts, domain=domain, budget=spend(epsilon))
    assert free.model.segments.max_error == max(1, math.ceil(free.noisy_curve.noise_rms))
    roomy = DPPLRIndex(max_segments=300).fit_counts(counts, domain=domain, budget=spend(epsilon))
    assert roomy.model.segments.max_error == max(1, math.ceil(roomy.noisy_curve.noise_rms / 2))
    asked = DPPLRIndex(max_error=17).fit_counts(counts, domain=domain, budget=spend(epsilon))
    assert asked.model.segments.max_error == 17


@pytest.mark.parametrize("blocks", [1, 2, 4])
@pytest.mark.parametrize("hint", [None, Hint.of_counts(np.arange(300) % 7)], ids=["", "hinted"])
def test_segments_get_the_bytes_that_the_rest_of_the_file_leaves(
    monkeypatch: pytest.MonkeyPatch, blocks: int, hint: Hint | None
) -> None:
    """For so many curves, over ranks or the marks of a hint, up to as many rows as the curves have in the end."""
    asked, ends = list[tuple[int, ...]](), list[int]()

    def monotone(curve: NoisyCurve, capacity: int | None) -> MonotoneCurve:
        made = make_monotone(curve, capacity)
        ends.append(int(made.rows[-1]))
        return made

    def most(*given: int) -> int:
        asked.append(given)
        return most_segments(*given)

    monkeypatch.setattr(dp_plr, "make_monotone", monotone)
    monkeypatch.setattr(dp_plr, "most_segments", most)
    counts, domain, beta = np.arange(300) % 7, IntegerDomain(0, 299), Fraction(1, 1000)
    counts[[0, -1]] = 2000  # so that what is before the last rank, or at the first, is another number of rows
    index = DPPLRIndex(max_bytes=777, blocks=blocks, hint=hint)
    index.fit_counts(counts, domain=domain, budget=spend(3), beta=beta, capacity=8192)
    room = 777 - fixed_bytes(domain, Fraction(3), Fraction(0), beta) - (block_bytes(blocks, 300) if blocks > 1 else 0)
    size, curves = 300 if hint is None else hint.span, 1 if blocks == 1 else 2 * blocks
    assert asked[0] == (room, size, MAX_ROWS, MAX_ROWS, curves)
    assert len(ends) == curves
    assert {(*given[:3], given[4]) for given in asked[1:]} == {(room, size, sum(ends), curves)}


@pytest.mark.parametrize("blocks", [1, 2, 3])
def test_dummies_are_what_the_blocks_hold_beside_the_rows(tmp_path: Path, blocks: int) -> None:
    """Of an index that was read from its file as well."""
    counts = np.full(100, 50)
    index = DPPLRIndex(blocks=blocks).fit_counts(counts, domain=IntegerDomain(0, 99), budget=spend(), capacity=6000)
    assert index.unsafe_dummy_rows(counts) == (0 if blocks == 1 else index.model.capacity - 5000)
    if index.model.blocks is not None:
        assert index.model.slack_rows == max(index.model.blocks.slacks)
    index.save(tmp_path / "f")
    loaded = DPPLRIndex.load(tmp_path / "f")
    assert loaded.blocks == blocks
    assert loaded.unsafe_dummy_rows(counts) == index.unsafe_dummy_rows(counts)


def test_a_model_states_what_was_charged_and_how_many_rows_there_may_be() -> None:
    counts, domain = np.full(20, 3), IntegerDomain(0, 19)
    budget = unsafe_budget(2, delta="1/8", rows_per_user=2)
    model = DPPLRIndex().fit_counts(counts, domain=domain, budget=budget, beta="1/1000").model
    assert (model.epsilon, model.delta, model.beta) == (Fraction(2), Fraction(0), Fraction(1, 1000))
    assert model.capacity == model.segments.at(19) + model.slack_rows
    budget = unsafe_budget(2, delta="1/8", rows_per_user=2)
    model = (
        DPPLRIndex(slack="lossless").fit_counts(counts, domain=domain, budget=budget, beta="1/1000", capacity=61).model
    )
    assert (model.epsilon, model.delta, model.beta) == (Fraction(2), Fraction(1, 8), Fraction(0))
    assert model.capacity == 61


def test_nothing_secret_is_shown() -> None:
    from scumble.index.curve import Histogram

    histogram = Histogram(np.array([31337, 31337]))
    assert "31337" not in repr(histogram) + str(histogram)
    index = DPPLRIndex().fit([7] * 31337, domain=IntegerDomain(0, 9), budget=spend())
    assert "31337" not in repr(index)
    assert "segments" in repr(index)
    assert "slack_rows" in str(index.summary())
    assert "<table>" in index.summary()._repr_html_()


def test_no_noise_but_from_the_noise_module() -> None:
    """No numpy or standard generator anywhere, the key stream in one module, chance elsewhere for keys and names."""
    root = Path(scumble.__file__).parent
    sources = {path.relative_to(root).as_posix(): path.read_text() for path in root.rglob("*.py")}
    generators = re.compile(r"np\.random|numpy\.random|default_rng|^import random|^from random", re.M)
    assert not [name for name, text in sources.items() if generators.search(text)]
    chance = re.compile(r"urandom|secrets\.\w|uuid4")
    found = {name for name, text in sources.items() if chance.search(text)}
    enclave = {
        f"enclave/{name}.py" for name in ("changes", "lines", "loads", "manifests", "merges", "pages", "sharing")
    }
    assert {name for name in found if name.startswith("enclave/")} == enclave
    rooms = {name if name.startswith("privacy/") else name.split("/")[0] for name in found}
    elsewhere = {"durable.py", "gateway", "lab", "owner", "provider", "store", "wire"}
    assert rooms == {"enclave", "privacy/noise.py", *elsewhere}
    assert not re.search(r"np\.random|default_rng|float\(", sources["privacy/noise.py"])


def test_a_ledger_that_is_busy_at_the_draw_leaves_nothing_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The draw is refused before any noise: the budget is cancelled like any other refusal."""
    ledger = Ledger.open(tmp_path / "ledger", limit=1)
    monkeypatch.setattr(Budget, "draw", lambda self: (_ for _ in ()).throw(LedgerBusy("busy", hint="wait")))
    with pytest.raises(LedgerBusy):
        DPPLRIndex().fit([1], domain=IntegerDomain(0, 9), budget=ledger.spend(1, "test"))
    assert ledger.remaining() == 1
