"""Which runs are merged, by public sizes alone; and the indexes that a flush takes over from the first batch."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from scumble import DPPLRIndex, IntegerDomain
from scumble.owner.compacting import FEW, FEW_OF_TAIL, _as_before, _state, is_due, merge_all, merge_tiers
from scumble.privacy.budget import unsafe_budget
from scumble.types import Column, Schema, parse_type
from scumble.wire.catalog import Kept, Run, Table
from scumble.wire.requests import Merge

KEPT = Kept("0a" * 16, 10, "00" * 32)
SCHEMA = Schema(tuple(Column(name, parse_type("integer"), nullable=False) for name in "kv"))


def run(number: int, capacity: int, attribute: str | None = "k", **more: object) -> Run:
    made = Run(f"{number:032x}", "b", attribute, capacity, 16, None if attribute is None else b"index", ())
    return replace(made, **{"tally": None if attribute is None else KEPT, **more})  # type: ignore[arg-type]


def table(*runs: Run) -> Table:
    return Table("ab" * 16, "t", SCHEMA, runs)


class Asked:
    """Stands for the versions of a database: what it was asked to merge."""

    def __init__(self, there: Table) -> None:
        self.catalog, self.merged, self._there = self, list[list[int]](), there

    def table(self, name: str) -> Table:
        assert name == "t"
        return self._there

    def work(self, request: Merge) -> None:
        assert request.table == "t"
        self.merged.append([int(each, 16) for each in request.runs])


def tiers(*runs: Run) -> list[list[int]]:
    asked = Asked(table(*runs))
    gone = merge_tiers(asked, "t")  # type: ignore[arg-type]
    assert gone == sum(len(each) - 1 for each in asked.merged)
    assert is_due(table(*runs)) == bool(asked.merged)
    return asked.merged


def everything(*runs: Run) -> list[list[int]]:
    asked = Asked(table(*runs))
    gone = merge_all(asked, "t")  # type: ignore[arg-type]
    assert gone == sum(len(each) - 1 for each in asked.merged)
    return asked.merged


def settled(*capacities: int) -> list[Run]:
    return [run(number, capacity) for number, capacity in enumerate(capacities)]


@pytest.mark.parametrize(
    ("capacities", "merged"),
    [
        ((), []),
        ((16,), []),
        ((16, 16), []),  # a few are left as they are
        ((16, 16, 16), [[0, 1, 2]]),
        ((2700, 900, 300, 100), []),
        ((2700, 800, 300, 100), [[1, 2, 3]]),
        ((2600, 900, 300, 100), [[0, 1, 2, 3]]),
        ((2700, 900, 200, 100), [[2, 3]]),
        ((2601, 900, 300, 100), []),
        ((100, 2400, 100, 900, 200), [[1, 3, 4, 0, 2]]),
        ((9000, 100, 2700, 100, 900), [[1, 3]]),
    ],
)
def test_runs_are_merged_from_the_largest_that_the_others_are_half_as_large_as(
    capacities: tuple[int, ...], merged: list[list[int]]
) -> None:
    assert tiers(*settled(*capacities)) == merged


def test_a_few_runs_are_left_and_more_of_the_tail() -> None:
    assert (FEW, FEW_OF_TAIL) == (2, 8)
    tail = [run(number, 256, None, tail=True) for number in range(9)]
    assert tiers(*tail[:8]) == []
    assert tiers(*tail) == [list(range(9))]
    loaded = [run(number, 256, None) for number in range(4)]
    assert tiers(*loaded) == [[0, 1, 2, 3]]


def test_only_runs_whose_indexes_add_up_are_merged_by_the_policy() -> None:
    runs = settled(16, 16, 16, 16)
    assert tiers(*runs[:2], *(replace(each, tally=None) for each in runs[2:])) == []
    assert tiers(*runs, run(9, 16, tally=None)) == [[0, 1, 2, 3]]


def test_copies_and_the_tail_are_merged_apart_and_erased_runs_not_at_all() -> None:
    runs = [
        run(0, 16),
        run(1, 16),
        run(2, 16, "v"),
        run(3, 16, "v"),
        run(4, 16, erased=True),
        run(5, 16, None, tail=True),
        run(6, 16, None, tail=True, erased=True),
    ]
    assert everything(*runs) == [[5, 6], [0, 1], [2, 3]]
    assert everything(run(0, 16), run(1, 16, "v"), run(2, 16, None, tail=True)) == []
    loaded = [run(0, 16, None, erased=True), run(1, 16, None)]
    assert everything(*loaded) == [[0, 1]]


def test_of_indexes_that_are_added_as_a_whole_the_largest_is_merged() -> None:
    runs = [run(0, 16, tally=None), run(1, 64, tally=None), run(2, 32, tally=None), run(3, 16)]
    assert everything(*runs) == [[1, 3]]
    assert everything(*runs[:3]) == []


def test_a_flush_takes_the_indexes_of_the_first_batch() -> None:
    def index(epsilon: int, size: int = 30) -> bytes:
        made = DPPLRIndex().fit_counts(
            np.ones(size, np.int64), domain=IntegerDomain(0, size - 1), budget=unsafe_budget(epsilon), capacity=64
        )
        return made.model.to_bytes()

    runs = [
        run(0, 64, None),
        run(1, 64, "v", columns=(1,)),
        run(2, 64, "k"),
        run(3, 64, "k"),
        run(4, 64, "k", tail=True),
    ]
    indexes = {1: index(2, 20), 2: index(3), 3: index(4)}
    made = [replace(each, index=indexes.get(place)) for place, each in enumerate(runs)]
    found = _as_before(table(*made))
    assert [(spec.column, spec.domain.size, spec.epsilon, spec.columns) for spec in found] == [
        ("v", 20, Fraction(2), ("v",)),
        ("k", 30, Fraction(3), None),
    ]
    assert _as_before(table(run(0, 64, None))) == []
    later = table(replace(runs[2], index=None), replace(runs[3], index=indexes[3]))
    assert [spec.epsilon for spec in _as_before(later)] == [Fraction(4)]


def test_another_tail_has_another_name() -> None:
    one, other = run(0, 16, None, tail=True), run(1, 16, None, tail=True)
    assert len({_state([one]), _state([other]), _state([one, other]), _state([replace(one, moved=True)])}) == 4
    assert _state([one, other]) == _state([replace(one), replace(other)])
