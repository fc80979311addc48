"""Exact numbers: what was written is what is meant, and what is shown is what there is."""

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scumble.errors import (
    InvalidParameter,
)
from scumble.privacy.budget import _MOST_BITS, exact, from_ratio, ratio, show


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (2, Fraction(2)),
        (0.1, Fraction(1, 10)),
        (1e-5, Fraction(1, 100_000)),
        ("2.5", Fraction(5, 2)),
        (" 1/3 ", Fraction(1, 3)),
        ("1e-5", Fraction(1, 100_000)),
        (".5", Fraction(1, 2)),
        ("-2", Fraction(-2)),
        (Decimal("0.30"), Fraction(3, 10)),
        (Fraction(1, 7), Fraction(1, 7)),
        (np.float64(0.1), Fraction(1, 10)),
        (np.int64(3), Fraction(3)),
    ],
)
def test_a_number_means_what_was_written(value: object, number: Fraction) -> None:
    assert exact(value, "epsilon") == number


@pytest.mark.parametrize(
    "value",
    [
        float("nan"), float("inf"), -float("inf"), Decimal("NaN"), Decimal("sNaN"), Decimal("Infinity"),
        "nan", "inf", "", "one", "1/0", "1/", "1_000", "٣", "0x10", "1 / 3", "1e999999999", "9" * 5000,
        10**5000, Fraction(1, 10**5000), True, None, [1], 1j, b"1", Decimal("1e-999999999"),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_what_is_no_exact_number_is_refused(value: object) -> None:
    with pytest.raises(InvalidParameter, match=r"^epsilon ") as caught:
        exact(value, "epsilon")
    assert caught.value.hint


@given(st.fractions())
def test_ratio_round_trips(number: Fraction) -> None:
    assert from_ratio(ratio(number)) == number


@pytest.mark.parametrize("text", ["2/4", "1", "01/2", "1/02", "-0/1", "1/0", "0.5", "", " 1/2", "1/2\n", "٣/2"])
def test_only_canonical_ratios_are_read_back(text: str) -> None:
    with pytest.raises(ValueError, match=r"ratio|lowest"):
        from_ratio(text)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (Fraction(0), "0"),
        (Fraction(100), "100"),
        (Fraction(3, 2), "1.5"),
        (Fraction(-1, 8), "-0.125"),
        (Fraction(1, 3), "1/3"),
        (Fraction(1, 100_000), "0.00001"),
        (Fraction(1, 10**12), "1e-12"),
        (Fraction(1, 3**100), "about 1.940325217e-48"),
    ],
)
def test_show(number: Fraction, text: str) -> None:
    assert show(number) == text


@given(st.fractions(max_denominator=10**9))
def test_what_is_shown_without_about_is_exact(number: Fraction) -> None:
    text = show(number)
    assert text.startswith("about") or exact(text, "number") == number


def test_a_total_of_any_length_can_be_shown() -> None:
    number = sum((Fraction(1, n) for n in range(1, 12_000)), Fraction(0))
    assert show(number).startswith("about 9.96983")  # ln 11999 + 0.57722 + 1/(2*11999)


@pytest.mark.parametrize("text", ["1e99999999999999999999", "9" * 5000, "1e5000", "0." + "1" * 5000])
def test_what_is_too_long_is_called_so(text: str) -> None:
    with pytest.raises(InvalidParameter, match="too many digits"):
        exact(text, "epsilon")


def test_a_long_total_is_read_back_and_a_longer_one_not() -> None:
    longest = Fraction(10**4095, 10**4094 + 1)
    assert len(ratio(longest)) == 2 * 4096
    assert from_ratio(ratio(longest)) == longest
    with pytest.raises(ValueError, match="not a ratio"):
        from_ratio(ratio(longest * 10))


def test_a_ratio_that_nobody_would_write_is_not_read_back() -> None:
    """However canonical it is: the time it takes grows with the square of its length."""
    with pytest.raises(ValueError, match="not a ratio"):
        from_ratio("1/" + "3" * 2 * _MOST_BITS)


@pytest.mark.parametrize(
    ("longest", "longer"),
    [
        ("9" * 1000, "9" * 1001),
        ("1e1000", "1e1001"),
        ("1e-1000", "1e-1001"),
        (2**4096 - 1, 2**4096),
        (Fraction(1, 2**4096 - 1), Fraction(1, 2**4096)),
        ("1/" + "9" * 1233, "1/" + "9" * 1234),
        ("1/" + "0" * 1997 + "1", "1/" + "0" * 1998 + "1"),
    ],
    ids=["digits", "exponent", "negative exponent", "numerator", "denominator", "ratio", "text"],
)
def test_the_longest_amount_is_read_and_a_longer_one_refused(longest: object, longer: object) -> None:
    assert exact(longest, "epsilon") > 0
    with pytest.raises(InvalidParameter, match="too many digits"):
        exact(longer, "epsilon")


@pytest.mark.parametrize(
    ("whole", "rough"),
    [
        (Fraction(1, 10**40), Fraction(1, 10**41)),
        (Fraction(2**131), Fraction(2**132)),
        (Fraction(2**132 - 1, 2**40), Fraction(2**132 - 1, 2**41)),
        (Fraction(2**129, 3), Fraction(2**130, 3)),
        (Fraction(2, 3**82), Fraction(4, 3**82)),
    ],
    ids=["places", "number", "digits", "ratio", "small ratio"],
)
def test_what_is_short_is_shown_whole_and_what_is_longer_roughly(whole: Fraction, rough: Fraction) -> None:
    assert exact(show(whole), "number") == whole
    assert show(rough).startswith("about ")
