"""Indexes as they are written: what is read, what is left at its default, and what delta is charged."""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scumble.errors import FileError, InvalidParameter
from scumble.index.dp_plr import DPPLRIndex, left_after_check
from scumble.index.file import decode, encode
from scumble.index.hint import Hint
from scumble.index.slack import SLACKS
from scumble.owner.indexes import IndexSpec, _charged_delta, capacity_cost, hint_of, index_cost
from scumble.privacy.budget import row_delta, unsafe_budget
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
    for needed, epsilon, users in (
        (Fraction(1), Fraction(1), 1),
        (1 - Fraction(1, 10**12), Fraction(1), 1),  # the next of twelve digits is 1
        (Fraction(1, 10**9), Fraction(3000), 20),  # a row's part is below any number that is computed with
    ):
        with pytest.raises(InvalidParameter, match="delta of 1"):
            _charged_delta(needed, epsilon, users)
    assert _charged_delta(1 - Fraction(2, 10**12), Fraction(1), 1) < 1


def test_a_charged_delta_is_the_next_of_twelve_digits_above() -> None:
    assert _charged_delta(Fraction(1, 7 * 10**6), Fraction(1, 2), 1) == Fraction("1.42857142859e-7")


def test_epsilon_is_checked_for_one_row() -> None:
    """What noise can be drawn for, 2^-20 to 2^8, is of a row's part of epsilon, and so is the delta."""
    assert index_cost(1024, "1e-6", 4, "measured") == (Fraction(1024), Fraction(0))
    for epsilon, rows in ((1025, 4), (Fraction(1, 2**20), 2)):
        with pytest.raises(InvalidParameter, match="for one row"):
            index_cost(epsilon, "1e-6", rows, "measured")
        with pytest.raises(InvalidParameter, match="for one row"):
            capacity_cost(epsilon, "1e-6", rows)
    assert replace(USUAL, epsilon=300, rows_per_user=2).order().epsilon == 300
    epsilon, delta = index_cost(3, "1e-6", 3, "lossless")
    needed = SLACKS["lossless"].delta(Fraction(1), Fraction(1, 10**6), None)
    assert row_delta(epsilon, delta, 3) == pytest.approx(needed, rel=1e-9)


# --- hints -------------------------------------------------------------------------------------------


def public(domain: str, *keys: int) -> Hint:
    return Hint.of_keys(keys, parse_domain(domain))


def released(domain: str, rows: int) -> bytes:
    """The file of an index that was built before."""
    made = parse_domain(domain)
    index = DPPLRIndex(max_bytes=4096).fit_counts(
        np.arange(made.size) * rows, domain=made, budget=unsafe_budget(5), capacity=1 << 20
    )
    return encode(index.model)


def test_a_hint_is_given_as_such_as_keys_or_as_a_file(tmp_path: Path) -> None:
    domain, keys = parse_domain("int:0:99"), [5, 5, 60]
    hint = public("int:0:99", *keys)
    assert hint_of(None, domain, []) is None
    assert hint_of(hint, domain, []) is hint
    for given in (keys, np.array(keys)):
        made = hint_of(given, domain, [])
        assert made is not None
        assert made.packed == hint.packed
    path = tmp_path / "previous"  # as a path it is one, and not the word
    hint.save(path, domain)
    for written in (path, str(path)):
        read = hint_of(written, domain, [released("int:0:99", 3)])
        assert read is not None
        assert read.packed == hint.packed
    with pytest.raises(InvalidParameter, match="another domain"):
        hint_of(path, parse_domain("int:0:98"), [])
    with pytest.raises(FileError, match="cannot read the hint"):
        hint_of(tmp_path / "nothing", domain, [])


def test_an_index_that_was_released_is_a_hint_for_its_own_domain(tmp_path: Path) -> None:
    domain, path, earlier = parse_domain("int:0:99"), tmp_path / "some.index", released("int:0:99", 3)
    path.write_bytes(earlier)
    from_file, from_batches = hint_of(path, domain, []), hint_of("previous", domain, [earlier])
    assert from_file is not None
    assert from_batches is not None
    assert from_file.packed == from_batches.packed == Hint.of_models([decode(earlier)]).packed
    with pytest.raises(InvalidParameter, match="another domain"):
        hint_of(path, parse_domain("int:0:98"), [])


def test_earlier_batches_give_a_hint_together_if_they_have_the_domain() -> None:
    domain, batches = parse_domain("int:0:99"), [released("int:0:99", 3), released("int:0:98", 3)]
    batches.append(released("int:0:99", 1))
    hint = hint_of("previous", domain, batches)
    assert hint is not None
    assert hint.packed == Hint.of_models([decode(batches[0]), decode(batches[2])]).packed
    assert hint_of("previous", domain, []) is None
    assert hint_of("previous", domain, batches[1:2]) is None


def test_an_order_carries_its_hint_and_is_written_with_the_name_of_one(tmp_path: Path) -> None:
    hint = public("int:0:99", 5, 5, 60)
    assert replace(USUAL, hint=hint).order().hint == hint.packed
    assert (USUAL.order().hint, replace(USUAL, hint="previous").order().hint) == (None, None)
    for given in ("previous", "some.hint", tmp_path / "some.hint"):
        spec = replace(USUAL, hint=given)
        assert spec.terms == f"int:0:99 epsilon=1/2 hint={given}"
        assert IndexSpec.parse(f"k {spec.terms}") == replace(spec, hint=str(given))
    for unnamed in (hint, [5, 5, 60], None):
        assert replace(USUAL, hint=unnamed).terms == "int:0:99 epsilon=1/2"


def test_the_delta_of_a_lossless_index_is_for_what_the_check_of_its_hint_leaves() -> None:
    hint = public("int:0:99", 5, 5, 60)
    plain, hinted = (index_cost(1, "1e-6", 1, "lossless", 1, each)[1] for each in (None, hint))
    left = SLACKS["lossless"].delta(left_after_check(Fraction(1), hint), Fraction(1, 10**6), 1)
    assert hinted == pytest.approx(left, rel=1e-9)
    assert hinted != plain


def test_only_a_lossless_index_and_a_drawn_capacity_cost_a_delta() -> None:
    assert index_cost("1/2", "1e-6", 1, "measured") == (Fraction(1, 2), Fraction(0))
    for epsilon, delta in (index_cost("1/2", "1e-6", 1, "lossless"), capacity_cost("1/2", "1e-6", 1)):
        assert epsilon == Fraction(1, 2)
        assert 0 < delta < Fraction(1, 10**5)
    for nothing in ("0", "-1"):
        with pytest.raises(InvalidParameter, match="greater than 0"):
            capacity_cost(nothing, "1e-6", 1)


@pytest.mark.parametrize("terms", ["int:0:9 epsilon=1", "int:0:9999 epsilon=1 slack=paper"])
def test_an_order_that_states_no_blocks_is_checked_for_a_single_one(terms: str) -> None:
    """Two would be refused for so few ranks, and with the published slack."""
    assert IndexSpec.parse(f"day {terms}").order().blocks is None
    with pytest.raises(InvalidParameter, match="block"):
        IndexSpec.parse(f"day {terms} blocks=2").order()
