"""The same query again and again: ours shows the same for certain; planted fresh noise averages out."""

import numpy as np

from scumble.lab.attack.averaging import FRESH_SCALE, HIGH, attack, fresh_places, running_errors, stored_places
from scumble.lab.attack.laboratory import made_up_counts

COUNTS = made_up_counts(5_000, 1000)
TRUE = int(COUNTS[: HIGH + 1].sum())


def test_a_million_observations_of_ours_are_one() -> None:
    places = stored_places(COUNTS, 1, 1_000_000)
    assert len(places) == 1_000_000
    assert len(np.unique(places)) == 1
    first, last = running_errors(places, TRUE, [1, 1_000_000])
    assert first == last


def test_fresh_noise_averages_out() -> None:
    """The mean of n is within six standard errors but for 1e-8: for n from 10,000 on it is as good as normal."""
    places = fresh_places(COUNTS, 1, 1_000_000)
    numbers = [10_000, 100_000, 1_000_000]
    for number, error in zip(numbers, running_errors(places, TRUE, numbers), strict=True):
        assert error < 6 * 2**0.5 * FRESH_SCALE / number**0.5
    assert len(np.unique(places)) > 100


def test_the_whole_attack_ends_as_it_should() -> None:
    report = attack(1, 5_000, 2_000)
    assert report.as_expected, report.lines()
    assert report.findings[-1].figures == {"different": 1, "queries": 2_000}
