"""Spends: which terms make sense, and what one says of the load that it pays for."""

from datetime import UTC, datetime
from fractions import Fraction

import pytest

from scumble.errors import InvalidParameter
from scumble.owner.spends import Entry, Spend, as_text, check_terms, load_partition, positive, probability

WHEN = datetime(2026, 1, 1, tzinfo=UTC)


def entry(partition: tuple[str, str] | None, new_rows: bool | None) -> Entry:
    return Entry(7, WHEN, "visits day", Fraction(1), Fraction(0), 1, partition, "drawn", new_rows)


def test_a_spend_has_no_delta_and_one_row_per_user_unless_it_says_so() -> None:
    assert Spend(1, "a") == (1, "a", 0, 1, None, None)


def test_a_tables_id_is_a_word() -> None:
    assert load_partition("ab", "day of week", "0a") == ("ab day of week", "0a")
    for wrong in ("", "a b", " "):
        with pytest.raises(InvalidParameter):
            load_partition(wrong, "day", "0a")


def test_amounts_are_positive_and_probabilities_below_1() -> None:
    assert (positive("1e-9", "epsilon"), positive(1, "epsilon")) == (Fraction(1, 10**9), Fraction(1))
    assert [probability(value, "delta") for value in (0, "0.999")] == [Fraction(0), Fraction(999, 1000)]
    for amount in (0, "-1e-9", -1):
        with pytest.raises(InvalidParameter):
            positive(amount, "epsilon")
    for chance in ("-1e-9", 1, "1.5", -1):
        with pytest.raises(InvalidParameter):
            probability(chance, "delta")


@pytest.mark.parametrize("rows", [1, 2, 3**30, 2**63 - 1])
@pytest.mark.parametrize("partition", [None, ("group", "part")])
def test_terms_that_make_sense(rows: int, partition: object) -> None:
    check_terms("label", rows, partition)


@pytest.mark.parametrize(
    ("label", "rows", "partition"),
    [
        ("", 1, None),
        (" ", 1, None),
        ("a\n", 1, None),
        (5, 1, None),
        ("label", 0, None),
        ("label", -1, None),
        ("label", 2**63, None),
        ("label", True, None),
        ("label", 1.0, None),
        ("label", 1, ["group", "part"]),
        ("label", 1, ("", "part")),
        ("label", 1, ("group", "")),
        ("label", 1, ("group", 5)),
        ("label", 1, ("group", "part", "more")),
        ("label", 1, "gp"),
    ],
)
def test_terms_that_make_no_sense(label: object, rows: object, partition: object) -> None:
    with pytest.raises(InvalidParameter):
        check_terms(label, rows, partition)


def test_an_entry_of_a_load_names_the_table_the_column_and_the_batch() -> None:
    load = entry(("ab day", "0a"), new_rows=False)
    assert (load.table_id, load.what, load.batch, load.table_name) == ("ab", "day", "0a", "visits")
    group = entry(("ab day", "0a"), new_rows=None)
    assert (group.table_id, group.what, group.batch) == (None, "day", "0a")
    for new_rows in (None, True):
        alone = entry(None, new_rows)
        assert (alone.table_id, alone.what, alone.batch) == (None, "", "")


def test_a_list_of_entries_stands_in_columns_that_are_wide_enough() -> None:
    entries = [entry(None, None), entry(("group", "part"), None), entry(("ab day", "0a" * 16), new_rows=True)]
    lines = as_text(entries, "all").splitlines()
    assert [line.split() for line in lines[1:]] == [
        ["id", "label", "epsilon", "delta", "rows", "per", "user", "part", "state"],
        ["7", "visits", "day", "1", "0", "1", "drawn"],
        ["7", "visits", "day", "1", "0", "1", "group", "/", "part", "drawn"],
        ["7", "visits", "day", "1", "0", "1", "batch", "0a0a0a0a,", "new", "rows", "drawn"],
    ]
    assert len({line.rindex(" ") for line in lines[1:]}) == 1
    assert as_text([], "nothing") == "ledger: nothing"
