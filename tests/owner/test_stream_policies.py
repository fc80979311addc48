"""The noisy policies: their laws, computed from the definition, against what they claim and against what they draw.

Three ways to be wrong and still look right: noise of the tests that is too small by the factor that a proof saves; a
test that passes rows that come after it; a delta that is charged for half of epsilon and drawn for all of it.
"""

import hashlib
import os
from decimal import Decimal
from fractions import Fraction
from math import exp

import numpy as np
import pytest
from numpy.typing import NDArray

from scumble.errors import InvalidParameter
from scumble.index.slack import lossless_delta
from scumble.owner.stream_policies import BETA, Collected, Heartbeat, Policy, Threshold, Timer, policy_named
from scumble.privacy.budget import row_delta
from scumble.privacy.noise import Fact, Noise

REACH = 400  # of the noise that is summed up: beyond it lies less than 1e-40
ROUNDING = 1e-9


def collected(rows: int, batch: str = "ab" * 16, key: bytes | None = None) -> Collected:
    digest = hashlib.sha256(str(rows).encode()).digest()
    return Collected(batch, rows, lambda: digest, os.urandom(32) if key is None else key)


# --- the law of a threshold --------------------------------------------------------------------------


def first_batches(counts: list[int], threshold: int, epsilon: Fraction, *, anew: bool = False) -> NDArray[np.float64]:
    """The chances that the first batch is sent at each tick, and that none is, as the definition has it.

    `anew` plants the defect of a threshold that gets other noise at every tick.
    """
    p, moved = exp(-epsilon), np.arange(-REACH, REACH + 1)
    weights = (1 - p) / (1 + p) * p ** np.abs(moved)
    needed = threshold + moved[:, None] - np.array(counts)  # of the noise of a test
    passed = np.where(needed > 0, p ** np.maximum(needed, 0) / (1 + p), 1 - p ** np.maximum(1 - needed, 0) / (1 + p))
    if anew:
        passed, weights = weights @ passed[None], np.ones(1)
    silent = np.cumprod(np.hstack([np.ones((len(passed), 1)), 1 - passed]), axis=1)
    sent = np.hstack([silent[:, :-1] * passed, silent[:, -1:]])
    found: NDArray[np.float64] = weights @ sent
    return found


def losses(one: list[int], other: list[int], epsilon: Fraction, *, anew: bool = False) -> NDArray[np.float64]:
    laws = [first_batches(counts, 12, epsilon, anew=anew) for counts in (one, other)]
    found: NDArray[np.float64] = np.abs(np.log(laws[0] / laws[1]))
    return found


@pytest.mark.parametrize("epsilon", [Fraction(1, 4), Fraction(1), Fraction(3)])
def test_the_tests_of_a_threshold_cost_what_one_of_them_does(epsilon: Fraction) -> None:
    """One row more from any tick on: no batch's time tells more than epsilon, though two noises of 1/epsilon meet."""
    streams = ([12] * 12, [0, 2, 4, 6, 8, 10, 12, 14, 16], [30] * 4, [0] * 30)
    worst = 0.0
    for counts in streams:
        for first in range(len(counts)):
            more = [count + (tick >= first) for tick, count in enumerate(counts)]
            found = losses(counts, more, epsilon)
            assert (found[:first] < ROUNDING).all()  # a batch before the row: it is in the next one
            worst = max(worst, *found[first:])
    assert 0.9 < worst / epsilon < 1 + ROUNDING


def test_planted_defects_of_the_tests_show() -> None:
    """Noise that is drawn anew, and noise of half the scale, tell more than epsilon in the same streams."""
    counts, more = [10] * 12, [11] * 12
    assert max(losses(counts, more, Fraction(1), anew=True)) > 1.5
    assert max(losses(counts, more, Fraction(2))) > 1.5


def test_a_threshold_draws_by_this_law() -> None:
    """Chi-squared of when the first batch comes, in 1,500 streams: a false alarm has a chance of 1e-6."""
    from scipy.stats import chi2

    policy, counts, streams = Threshold(Fraction(1), 1, 12), [4, 8, 10, 12, 14], 1500
    expected = first_batches(counts, 12, policy.test_epsilon).tolist()
    found = [0] * len(expected)
    for _ in range(streams):
        key = os.urandom(32)
        ticks = [tick for tick, rows in enumerate(counts) if policy.due(collected(rows, key=key), tick) is not None]
        found[ticks[0] if ticks else -1] += 1
    statistic = sum((o - streams * e) ** 2 / (streams * e) for o, e in zip(found, expected, strict=True))
    assert statistic < chi2.isf(1e-6, len(expected) - 1)
    # Power: the law of noise of half the scale is as far off as this statistic could never miss.
    other = first_batches(counts, 12, 2 * policy.test_epsilon).tolist()
    assert sum(streams * (a - b) ** 2 / b for a, b in zip(other, expected, strict=True)) > 200


# --- sizes and costs -------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", [Timer(Fraction(1, 10)), Threshold(Fraction(1, 5), 1, 1)])
def test_a_batch_has_room_for_every_row(policy: Timer) -> None:
    for rows in (0, 1, 255, 256, 1000, 10**6):
        for _ in range(50):
            beat = policy.sized(collected(rows))
            assert beat.rows == rows
            assert beat.capacity >= max(rows, 256)
            assert beat.capacity % 256 == 0


def test_what_is_charged_covers_what_is_drawn() -> None:
    assert not any(Heartbeat(256).cost)
    for epsilon in (Fraction(1, 10), Fraction(1), Fraction(4)):
        for users in (1, 3):
            timer, threshold = Timer(epsilon, users), Threshold(epsilon, users, 100)
            assert timer.size_epsilon * users == epsilon
            assert (threshold.size_epsilon + threshold.test_epsilon) * users == epsilon
            for policy in (timer, threshold):
                charged, delta = policy.cost
                assert charged == epsilon
                assert row_delta(epsilon, delta, users) >= lossless_delta(policy.size_epsilon, BETA)
                assert 0 < delta < Fraction(1, 10**9)


def test_noise_depends_on_the_key_the_batch_the_terms_and_the_rows() -> None:
    key, policy = bytes(32), Timer(Fraction(1, 10**6))
    first = policy.sized(collected(500, key=key))
    assert policy.sized(collected(500, key=key)) == first  # the same release repeated is the same
    others = [
        policy.sized(collected(501, key=key)),
        policy.sized(collected(500, batch="cd" * 16, key=key)),
        policy.sized(collected(500, key=bytes(31) + b"\1")),
        Timer(Fraction(1, 10**6 + 1)).sized(collected(500, key=key)),
        Threshold(Fraction(2, 10**6), 1, 9).sized(collected(500, key=key)),
    ]
    assert len({beat.capacity for beat in [first, *others]}) == 6  # the key is fixed, and with it what comes out


def test_no_question_is_asked_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """The noise of the threshold, of the tests and of the size have streams under different keys."""
    asked: list[bytes] = []
    stream = Noise.stream

    def noting(noise: Noise, *question: Fact) -> object:
        asked.append(noise._key + repr(question).encode())
        return stream(noise, *question)

    monkeypatch.setattr(Noise, "stream", noting)
    policy, key = Threshold(Fraction(1), 1, 1), bytes(32)
    for tick in range(20):
        policy.due(collected(50 + tick, key=key), tick)
    thresholds = [each for each in asked if b"threshold" in each]
    assert len(set(thresholds)) == 1
    assert len(set(asked)) == len(asked) - len(thresholds) + 1


# --- what is asked for -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "more", "policy"),
    [
        ("heartbeat", {}, Heartbeat(256)),
        ("heartbeat", {"rows": 257}, Heartbeat(512)),
        ("timer", {"epsilon": "0.1"}, Timer(Fraction(1, 10))),
        (
            "threshold",
            {"epsilon": Decimal("0.5"), "rows": 1000, "rows_per_user": 2},
            Threshold(Fraction(1, 2), 2, 1000),
        ),
    ],
)
def test_policies_by_name(name: str, more: dict[str, object], policy: Policy) -> None:
    options: dict[str, object] = {"rows": 256, "epsilon": None, "rows_per_user": 1, **more}
    found = policy_named(name, **options)  # type: ignore[arg-type]
    assert found == policy
    assert found.settings["policy"] == name


@pytest.mark.parametrize(
    ("name", "more", "words"),
    [
        ("hourly", {}, "no policy 'hourly'"),
        ("heartbeat", {"epsilon": 1}, "costs no epsilon"),
        ("heartbeat", {"rows": 0}, "rows must lie"),
        ("heartbeat", {"rows": 1 << 40}, "rows must lie"),
        ("timer", {}, "needs an epsilon"),
        ("timer", {"epsilon": 0}, "greater than 0"),
        ("timer", {"epsilon": -1}, "greater than 0"),
        ("timer", {"epsilon": "much"}, "read exactly"),
        ("timer", {"epsilon": 1, "rows_per_user": 0}, "at least one row"),
        ("threshold", {"epsilon": 1, "rows": 0}, "rows must lie"),
        ("threshold", {"epsilon": "1e-20"}, "epsilon"),
    ],
)
def test_terms_that_make_no_sense_are_refused(name: str, more: dict[str, object], words: str) -> None:
    options: dict[str, object] = {"rows": 256, "epsilon": None, "rows_per_user": 1, **more}
    with pytest.raises(InvalidParameter, match=words):
        policy_named(name, **options)  # type: ignore[arg-type]


def test_the_law_that_is_computed_is_a_law() -> None:
    assert abs(first_batches([3, 9, 15], 12, Fraction(1, 2)).sum() - 1) < ROUNDING


def test_a_heartbeat_takes_users_for_rows() -> None:
    assert Heartbeat(256).rows_per_user == 1


def test_half_of_a_threshold_s_epsilon_is_for_the_tests_and_half_for_the_size() -> None:
    policy = Threshold(Fraction(3), 2, 256)
    assert policy.size_epsilon == policy.test_epsilon == Fraction(3, 4)
