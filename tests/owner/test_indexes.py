"""Indexes as they are written: what is read, what is left at its default, and what delta is charged."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from scumble.errors import InvalidParameter
from scumble.owner.indexes import IndexSpec, _charged_delta, capacity_cost, index_cost
from scumble.privacy.budget import row_delta
from scumble.types import parse_domain

USUAL = IndexSpec("k", parse_domain("int:0:99"), "1/2")


def test_what_is_not_said_of_an_index_is_as_documented() -> None:
    assert IndexSpec.parse("k int:0:99 epsilon=1/2") == USUAL
    assert (USUAL.beta, USUAL.rows_per_user, USUAL.max_bytes) == (1e-6, 1, 4096)
    assert (USUAL.slack, USUAL.mechanism, USUAL.alpha_s, USUAL.blocks) == ("measured", "scumble", None, None)
    assert USUAL.terms == "int:0:99 epsilon=1/2"


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"beta": "1e-9"}, "beta=1e-9"),
        ({"rows_per_user": 2}, "rows_per_user=2"),
        ({"max_bytes": 4095}, "max_bytes=4095"),
        ({"max_bytes": 4097}, "max_bytes=4097"),
        ({"slack": "lossless"}, "slack=lossless"),
        ({"mechanism": "paper"}, "mechanism=paper"),
        ({"slack": "paper", "alpha_s": "8"}, "slack=paper alpha_s=8"),
        ({"blocks": 1}, "blocks=1"),
        ({"blocks": 4}, "blocks=4"),
    ],
)
def test_what_is_said_is_written_as_it_is_read(change: dict[str, Any], word: str) -> None:
    changed = replace(USUAL, **change)
    assert changed.terms == f"int:0:99 epsilon=1/2 {word}"
    assert IndexSpec.parse(f"k {changed.terms}") == changed


@pytest.mark.parametrize(
    "text",
    [
        *("k int:0:99", "k epsilon=1", "int:0:99", "", "k int:0:99 epsilon=1 epsilon=2", "k int:0:9 epsilon=1 slack=x"),
        *(
            f"k int:0:9 epsilon=1 {name}={value}"
            for name in ("rows_per_user", "max_bytes", "blocks")
            for value in "0x٣"
        ),
    ],
)
def test_what_is_no_index_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises(InvalidParameter) as caught:
        IndexSpec.parse(text)
    assert caught.value.hint


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_a_row_s_part_of_the_delta_that_is_charged_is_what_it_needs_and_hardly_more(rows: int) -> None:
    for needed in (Fraction(1, 10**9), Fraction(1, 7 * 10**6)):
        charged = _charged_delta(needed, Fraction(1, 2), rows)
        part = row_delta(Fraction(1, 2), charged, rows)
        assert needed <= part < needed * (1 + Fraction(1, 10**10))
    with pytest.raises(InvalidParameter, match="delta of 1"):
        _charged_delta(Fraction(99, 100), Fraction(50), 40)
    with pytest.raises(InvalidParameter, match="delta of 1"):
        _charged_delta(Fraction(1), Fraction(1), 1)


def test_only_a_lossless_index_and_a_drawn_capacity_cost_a_delta() -> None:
    assert index_cost("1/2", "1e-6", 1, "measured") == (Fraction(1, 2), Fraction(0))
    for epsilon, delta in (index_cost("1/2", "1e-6", 1, "lossless"), capacity_cost("1/2", "1e-6", 1)):
        assert epsilon == Fraction(1, 2)
        assert 0 < delta < Fraction(1, 10**5)
    for nothing in ("0", "-1"):
        with pytest.raises(InvalidParameter, match="greater than 0"):
            capacity_cost(nothing, "1e-6", 1)
