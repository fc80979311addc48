"""Trees of tests: what is known to hold, or not to, decides; what could not be translated is never passed over."""

import pytest
from sql_tables import evaluate
from sqlglot import exp, parse_one

from scumble.sql.constants import Constants, Fixed, Literal, Param, Points, Range
from scumble.sql.predicate import Draft, Leaf, Translator, all_of, any_of, matches_nulls, on_column
from scumble.types import Column, Operator, Schema, parse_type
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


# --- what SQL's conditions become ------------------------------------------------------------------

TEXT = parse_type("text(8)")
SCHEMA = Schema((Column("n", TINY, nullable=True), Column("s", TEXT, nullable=True)))
ONE, TWO, NULL, OPEN = Literal(1), Literal(2), Literal(None), Param(0)


def translated(condition: str) -> Draft | None:
    """A condition on columns n and s; x is another table's, and ? is open."""

    def column(node: exp.Column) -> int | None:
        return {"n": 0, "s": 1}.get(node.name)

    constants = Constants({"": 0, "?": 0}, evaluate)
    return Translator(SCHEMA, column, constants).exact(parse_one(condition, dialect="duckdb"))


def listed(*values: Literal | Param, negated: bool = False) -> Leaf:
    return Leaf(0, Points(TINY, values, negated), negated)


def bounded(*comparisons: tuple[Operator, Literal | Param], negated: bool = False) -> Leaf:
    between = len(comparisons) > 1
    return Leaf(0, Range(TINY, comparisons, negated, between), negated)


@pytest.mark.parametrize(
    ("condition", "draft"),
    [
        ("n IN (1, 2)", listed(ONE, TWO)),
        ("n IN (1)", listed(ONE)),
        ("NOT n IN (1, 2)", listed(ONE, TWO, negated=True)),
        ("n NOT IN (1, 2)", listed(ONE, TWO, negated=True)),
        ("n IN (1, ?)", listed(ONE, OPEN)),
        ("n IN (?, NULL)", listed(OPEN, NULL)),
        ("n NOT IN (?, NULL)", listed(OPEN, NULL, negated=True)),  # decided when it is bound
        ("n IN (1, NULL)", listed(ONE, NULL)),
        ("n NOT IN (1, NULL)", NO),
        ("n IN (NULL)", NO),
        ("n NOT IN (NULL, NULL)", NO),
        ("x IN (1, 2)", None),
        ("n IN (SELECT 1)", None),
        ("n IN (1, x)", None),
        ("n IN (x)", None),
        ("n IN (1, 'a' || 'b')", None),
        ("n IN (1, CAST('2' AS VARCHAR))", None),  # DuckDB compares these as texts
        ("n IN (CAST('2' AS VARCHAR))", None),
        ("n IN (NULL, CAST('2' AS VARCHAR))", None),
        ("s IN ('a', CAST('b' AS VARCHAR))", Leaf(1, Points(TEXT, (Literal("a"), Literal("b", typed=True))))),
        ("n IN (1, 'word')", None),  # no exact interval
        ("n = 1", bounded(("=", ONE))),
        ("n <> 1", bounded(("=", ONE), negated=True)),
        ("n = NULL", NO),
        ("NOT n = NULL", NO),
        ("n = ?", bounded(("=", OPEN))),
        ("n = 'word'", None),
        ("n BETWEEN 1 AND 2", bounded((">=", ONE), ("<=", TWO))),
        ("n BETWEEN 1 AND NULL", NO),
        ("n NOT BETWEEN 1 AND NULL", bounded((">=", ONE), ("<=", NULL), negated=True)),
        ("n BETWEEN ? AND NULL", bounded((">=", OPEN), ("<=", NULL))),
        ("n NOT BETWEEN NULL AND NULL", NO),
        ("n = CAST('2' AS VARCHAR)", None),
        ("x = 1", None),
    ],
)
def test_a_condition_is_translated_exactly_or_not_at_all(condition: str, draft: Draft | None) -> None:
    assert translated(condition) == draft
