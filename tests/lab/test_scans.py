"""Lookups over sealed pages: pages, bytes and answers counted by hand, for right indexes and for lossy ones."""

from fractions import Fraction

import numpy as np
import pytest

from scumble import DPPLRIndex, IntegerDomain
from scumble.lab import scans
from scumble.lab.comparators import CryptEpsilonIndex, DPBPlusTreeIndex, ExactIndex
from scumble.lab.compare import Case, Contender, Lookups
from scumble.lab.scans import PAGE_ROWS, Scan, scan_costs, sealed_rows
from scumble.privacy.budget import unsafe_budget

COUNTS = np.array([PAGE_ROWS, 0, 10, PAGE_ROWS - 10, 5])
CASE = Case(COUNTS, IntegerDomain(0, 4), Fraction(20), Fraction(1, 10**6), Fraction(0))
LOOKUPS = Lookups(np.array([0, 2, 3, 4]), np.array([0, 2]), np.array([4, 3]))


def costs(contender: Contender, case: Case = CASE) -> list[Scan]:
    return list(scan_costs([contender], case, LOOKUPS))


def test_an_exact_index_reads_the_pages_of_its_rows_and_no_other() -> None:
    point, span = costs(Contender("exact", ExactIndex, private=False))
    assert (point.table_pages, point.pages_mean, point.right_share) == (3, 1, 1)
    assert (span.pages_mean, span.right_share) == ((3 + 1) / 2, 1)
    assert point.bytes_mean == 2 * (8 * PAGE_ROWS + 16)
    assert point.note is None


@pytest.mark.parametrize("make", [DPPLRIndex, DPBPlusTreeIndex])
def test_an_index_that_loses_no_row_answers_right(make: type[DPPLRIndex] | type[DPBPlusTreeIndex]) -> None:
    for scan in costs(Contender("right", make)):
        assert scan.right_share == 1
        assert scan.pages_mean is not None
        assert scan.pages_mean >= 1


def test_an_index_that_loses_rows_is_seen_to() -> None:
    """At epsilon 1/100 the noise is some hundred times the table: four lookups in four are right once in 10^4 times."""
    counts = np.full(400, 3, dtype=np.int64)
    case = Case(counts, IntegerDomain(0, 399), Fraction(1, 100), Fraction(1, 10**6), Fraction(0))
    point, _ = scan_costs([Contender("lossy", CryptEpsilonIndex)], case, Lookups.sample(counts, 100))
    assert point.right_share is not None
    assert point.right_share < 0.9


def test_a_tree_lays_rows_out_in_leaves_and_loses_what_has_no_room() -> None:
    counts = np.array([2, 0, 3])
    index = DPBPlusTreeIndex(0).fit_counts(counts, domain=IntegerDomain(0, 2), budget=unsafe_budget(1))
    ends = np.array([1, 4, 9])
    index._positions = type(index.curves)(index.curves.domain, ends, ends, 9)
    places, end = scans.laid_out(index, counts)
    assert (places.tolist(), end) == ([0, -1, 4, 5, 6], 9)


def test_a_tree_of_too_many_dummies_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scans, "MOST_POSITIONS", 10)
    point, span = costs(Contender("tree", DPBPlusTreeIndex))
    assert "leaves" in (point.note or "")
    assert span.pages_mean is None


def test_positions_beyond_the_table_read_nothing() -> None:
    with sealed_rows(np.arange(5), np.arange(5)) as rows:
        assert rows.scan(0, 5, 1, 3) == (1, 6)
        assert rows.scan(3, 3, 1, 3) == (0, 0)
        assert rows.scan(PAGE_ROWS, 2 * PAGE_ROWS, 1, 3) == (0, 0)
        assert rows.scan(0, 10 * PAGE_ROWS, 0, 4) == (1, 10)
        assert rows.scan(0, 5, -9, 4) == (1, 10)  # dummies add nothing
