"""Sizes of answers: padded ones tell nothing, for certain; planted ones that are not padded tell the counts."""

from scumble.lab.attack.laboratory import Seen
from scumble.lab.attack.planted import UnsafeUnpaddedEnclave
from scumble.lab.attack.volume import RANGES, attack, guess_counts, watch_queries

ROWS, QUERIES = 2_000, 120


def test_within_one_range_everything_seen_is_the_same() -> None:
    seen, true = watch_queries(1, ROWS, QUERIES)
    assert len(seen) == len(true) == QUERIES
    assert len(set(true.tolist())) > QUERIES // 4
    for place in range(len(RANGES)):
        assert len(set(seen[place :: len(RANGES)])) == 1
    found = guess_counts(seen, true)
    assert abs(found.explained) < 1e-6
    assert found.sizes == 1


def test_answers_that_are_not_padded_give_the_counts_away() -> None:
    seen, true = watch_queries(1, ROWS, QUERIES, UnsafeUnpaddedEnclave)
    found = guess_counts(seen, true)
    assert found.explained > 0.999
    assert found.exact > 0.99


def test_a_byte_more_for_a_row_is_enough_to_be_found() -> None:
    """Planted in what is seen: the guesser finds a leak of a byte in thousands."""
    seen, true = watch_queries(1, ROWS, QUERIES)
    leaking = [Seen(*one[:3], one.answer_bytes + int(count) // 8) for one, count in zip(seen, true, strict=True)]
    assert guess_counts(leaking, true).explained > 0.9


def test_the_whole_attack_ends_as_it_should() -> None:
    report = attack(1, ROWS, QUERIES)
    assert report.as_expected, report.lines()
    assert [finding.leaky for finding in report.findings] == [True, False]
