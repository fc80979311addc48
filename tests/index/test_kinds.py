"""Kinds of index: what is known from the start, what a program learns, and the files of kinds that it lacks."""

from collections.abc import Iterator

import numpy as np
import pytest

from scumble import DPPLRIndex, IntegerDomain
from scumble.errors import FileError, InvalidParameter
from scumble.index import file, kinds
from scumble.index.contract import Index, RunIndex
from scumble.index.kinds import Asked, Kind
from scumble.privacy.budget import unsafe_budget

PLAIN = Asked(4096, "measured", None, 1, None, None)


class Learnt(Kind):
    """A kind that says nothing of itself."""

    def make(self, asked: Asked) -> Index:
        return DPPLRIndex(max_bytes=asked.max_bytes)

    def released(self, index: Index) -> RunIndex:
        assert isinstance(index, DPPLRIndex)
        return index.model


@pytest.fixture
def fitted() -> DPPLRIndex:
    return DPPLRIndex().fit_counts(np.full(9, 5), domain=IntegerDomain(0, 8), budget=unsafe_budget(1))


@pytest.fixture
def learnt(fitted: DPPLRIndex) -> Iterator[Learnt]:
    kind, before = Learnt(), dict(kinds._KINDS)
    kinds.learn({"learnt": kind}, kinds.COMPARATOR_MAGIC, lambda data: fitted.model)
    yield kind
    kinds.forget({"learnt": kind}, kinds.COMPARATOR_MAGIC)
    assert before == kinds._KINDS


def test_the_two_mechanisms_are_known_from_the_start_and_one_of_them_lays_rows_out_in_blocks() -> None:
    assert [kinds.kind_of(name).has_blocks for name in ("scumble", "paper")] == [True, False]
    assert [kinds.kind_of(name).states_delta for name in ("scumble", "paper")] == [False, False]
    for name in ("scumble", "paper"):
        made = kinds.kind_of(name).make(PLAIN)
        assert isinstance(made, DPPLRIndex)
        assert (made.mechanism, made.max_bytes, made.slack) == (name, 4096, "measured")
    with pytest.raises(InvalidParameter, match="mechanism") as refused:
        kinds.kind_of("learnt")
    assert "'scumble', 'paper'" in (refused.value.hint or "")


def test_a_kind_that_says_nothing_has_no_blocks_and_states_no_delta(learnt: Learnt) -> None:
    assert kinds.kind_of("learnt") is learnt
    assert (learnt.has_blocks, learnt.states_delta) == (False, False)


def test_a_kind_that_says_nothing_keeps_no_tally_of_what_it_releases(learnt: Learnt, fitted: DPPLRIndex) -> None:
    assert learnt.released(fitted) is fitted.model
    assert learnt.tally(fitted) is None


def test_a_file_begins_with_what_the_format_says(fitted: DPPLRIndex) -> None:
    """docs/format.md"""
    assert kinds.COMPARATOR_MAGIC == b"SCUMBLC\x1a"
    data = file.encode(fitted.model)
    assert kinds.is_known(data)
    assert kinds.decoded(data).capacity == fitted.model.capacity


def test_a_file_of_a_kind_that_was_not_learnt_is_not_read() -> None:
    data = b"SCUMBLC\x1a and more"
    assert not kinds.is_known(data)
    with pytest.raises(FileError, match="does not know"):
        kinds.decoded(data)


def test_a_file_of_a_kind_that_was_learnt_is_read_by_its_reader(learnt: Learnt, fitted: DPPLRIndex) -> None:
    data = b"SCUMBLC\x1a and more"
    assert kinds.is_known(data)
    assert kinds.decoded(data) is fitted.model
    assert kinds.is_known(file.encode(fitted.model))
    assert kinds.decoded(file.encode(fitted.model)) is not fitted.model
