"""Trees of tests: what is known to hold, or not to, decides; what could not be translated is never passed over."""

import pytest

from scumble.sql.constants import Fixed, Literal, Range
from scumble.sql.predicate import Draft, Leaf, all_of, any_of, matches_nulls, on_column
from scumble.types import Operator, parse_type
from scumble.wire.plan import And, Compare, Constant, Or

TINY = parse_type("tinyint")
YES, NO = Constant(True), Constant(False)
A, B = Leaf(0, Fixed(TINY, (((1,), (2,)),))), Leaf(1, Fixed(TINY, ()), True, True)


@pytest.mark.parametrize(
    ("parts", "either", "both"),
    [
        ([], NO, YES),
        ([NO], NO, NO),
        ([YES], YES, YES),
        ([YES, NO], YES, NO),
        ([A], A, A),
        ([A, NO], A, NO),
        ([A, YES], YES, A),
        ([A, A], A, A),
        ([A, B], Or((A, B)), And((A, B))),
        ([A, Or((B, A))], Or((A, B)), And((A, Or((B, A))))),
        ([A, And((B, A))], Or((A, And((B, A)))), And((A, B))),
    ],
)
def test_what_is_known_decides_and_the_rest_stays(parts: list[Draft], either: Draft, both: Draft) -> None:
    assert any_of(parts) == either
    assert all_of(parts) == both


def test_a_part_that_was_not_translated_leaves_nothing_of_a_disjunction() -> None:
    assert any_of([A, None]) is None
    assert any_of([YES, None]) is None


def test_ranges_of_one_column_become_one_and_others_stay_apart() -> None:
    low: tuple[Operator, Literal] = (">", Literal(3))
    high: tuple[Operator, Literal] = ("<", Literal(9))
    above, below = Leaf(0, Range(TINY, (low,), False, False)), Leaf(0, Range(TINY, (high,), False, False))
    assert all_of([above, B, below]) == And((Leaf(0, Range(TINY, (low, high), False, False)), B))
    for other in (on_column(below, 1), Leaf(0, below.entry, True), Leaf(0, Range(TINY, (high,), False, True))):
        assert all_of([above, other]) == And((above, other))


@pytest.mark.parametrize(
    ("draft", "matches"),
    [
        (A, False),
        (B, True),
        (YES, True),
        (NO, False),
        (Compare(0, 1, "="), False),
        (And((A, B)), False),
        (And((B, B)), True),
        (Or((A, B)), True),
        (Or((A, A)), False),
    ],
)
def test_a_row_of_nulls_matches_where_a_null_does(draft: Draft, matches: bool) -> None:
    assert matches_nulls(draft) is matches
