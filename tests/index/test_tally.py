"""Tallies: what is stored beside a run is read back to the last bit, and nothing else is taken for one."""

from dataclasses import replace
from fractions import Fraction
from hashlib import sha256
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from scumble import DPPLRIndex, IntegerDomain
from scumble.errors import Corrupt, InvalidParameter, NewerVersion
from scumble.index.grid import NEW, Grid
from scumble.index.tally import MAGIC, MOST_BATCHES, MOST_ROWS, Batches, NodeCounts, Tally, WholeIndex
from scumble.privacy.budget import unsafe_budget
from scumble.types import Domain, ExplicitKeys


def tally(domain: Domain | None = None, grid: Grid | bytes | None = NEW, epsilon: int = 1) -> Tally:
    domain = domain or IntegerDomain(0, 499)
    counts = np.where(np.arange(domain.size) < 500, 7, 0)
    index = DPPLRIndex(grid=grid).fit_counts(counts, domain=domain, budget=unsafe_budget(epsilon), capacity=5000)
    return index.tally or Tally.of_index(index.model, 5000)


def some_tallies() -> list[Tally]:
    common = Grid.even(500, 1000)
    return [
        tally(),
        tally(grid=None),
        Tally.added(
            [tally(grid=common), tally(grid=common, epsilon=3), tally(grid=Grid.even(500, 10)), tally(grid=None)]
        ),
        tally(ExplicitKeys([3, 5, 900, 2**40])),
        tally(ExplicitKeys(["a", "b", "c"])),
        tally(IntegerDomain(-3, 20_000)),
    ]


def test_bytes_are_read_back() -> None:
    for one in some_tallies():
        again = Tally.from_bytes(one.to_bytes())
        assert again.to_bytes() == one.to_bytes()
        assert again.domain.text == one.domain.text
        assert again.totals == one.totals
        for counts, same in zip(one.counted, again.counted, strict=True):
            assert np.array_equal(counts.nodes, same.nodes)
            assert counts.spent == same.spent
            assert counts.grid.digest == same.grid.digest


def test_counts_add_and_facts_with_them() -> None:
    grid = Grid.even(500, 1000)
    one, other, third = tally(grid=grid), tally(grid=grid, epsilon=3), tally(grid=grid)
    both = Tally.added([one, other, third])
    assert np.array_equal(both.counted[0].nodes, sum(each.counted[0].nodes for each in (one, other, third)))
    assert both.counted[0].spent == ((Fraction(1), 2), (Fraction(3), 1))
    assert (both.batches, both.capacity) == (3, 15_000)
    assert both.epsilon == 3
    assert both.beta == Fraction(3, 10**6)
    assert both.grid is not None
    assert both.grid.digest == grid.digest


def test_the_grid_of_most_batches_is_for_later_ones() -> None:
    many, few = Grid.even(500, 1000), Grid.even(500, 10)
    assert many.digest != few.digest
    added = Tally.added([tally(grid=few), tally(grid=many), tally(grid=many), tally(grid=None)])
    assert added.grid is not None
    assert added.grid.digest == many.digest
    assert tally(grid=None).grid is None


def test_beta_is_no_more_than_certainty() -> None:
    half = Batches(1, Fraction(1), Fraction(0), Fraction(1, 2), 10)
    assert Batches.together([half] * 3) == Batches(3, Fraction(1), Fraction(0), Fraction(1), 30)


def test_what_is_dearest_counts_and_rows_and_batches_have_a_limit() -> None:
    one = Batches(MOST_BATCHES - 3, Fraction(2), Fraction(1, 9), Fraction(0), MOST_ROWS - 5)
    other = Batches(3, Fraction(3), Fraction(1, 8), Fraction(0), 5)
    both = Batches(MOST_BATCHES, Fraction(3), Fraction(1, 8), Fraction(0), MOST_ROWS)
    assert Batches.together([one, other]) == both
    assert Batches.together([other, one]) == both
    for more in (other._replace(number=4), other._replace(capacity=6)):
        with pytest.raises(InvalidParameter, match="too many rows"):
            Batches.together([one, more])


def test_too_many_rows_are_refused() -> None:
    one = tally()
    counts = one.counted[0]
    large = NodeCounts(counts.grid, counts.nodes, counts.spent, counts.batches._replace(capacity=MOST_ROWS))
    with pytest.raises(InvalidParameter, match="too many rows"):
        Tally.added([one, Tally(one.domain, (large,))])


def test_only_indexes_with_segments_are_whole_ones() -> None:
    with pytest.raises(InvalidParameter, match="segments"):
        Tally.of_index(object(), 10)  # type: ignore[arg-type]


@pytest.mark.parametrize("at", ["start", "end", "middle"])
def test_altered_bytes_are_noticed(at: str) -> None:
    data = bytearray(some_tallies()[2].to_bytes())
    data[{"start": 0, "end": -1, "middle": len(data) // 2}[at]] ^= 1
    with pytest.raises(Corrupt, match="no tally" if at == "start" else "truncated or altered"):
        Tally.from_bytes(bytes(data))


def test_a_newer_version_is_told_from_damage() -> None:
    data = bytearray(tally().to_bytes())
    data[len(MAGIC)] = 2
    with pytest.raises(NewerVersion):
        Tally.from_bytes(bytes(data))
    body = bytes(data[: len(MAGIC)]) + b"\0" + bytes(data[len(MAGIC) + 1 : -8])
    with pytest.raises(Corrupt):  # there is no earlier one
        Tally.from_bytes(body + sha256(body).digest()[:8])


def test_no_cut_and_no_other_byte_passes_for_a_tally() -> None:
    """With a checksum that fits: whatever is read is a tally with just these bytes, or Corrupt."""
    body = some_tallies()[2].to_bytes()[:-8]
    rng = np.random.default_rng(4)
    for trial in range(400):
        if trial % 4 == 0:
            altered = body[: int(rng.integers(len(MAGIC) + 1, len(body)))]
        else:
            place = int(rng.integers(len(MAGIC) + 1, min(len(body), 400) if trial % 2 else len(body)))
            altered = body[:place] + bytes([int(rng.integers(256))]) + body[place + 1 :]
        data = altered + sha256(altered).digest()[:8]
        try:
            read = Tally.from_bytes(data)
        except Corrupt:
            continue
        assert read.to_bytes() == data


COUNTED = tally(grid=Grid.even(500, 10)).counted[0]
MOST_NODES = MOST_ROWS * COUNTED.grid.nodes // 2
WHOLE = tally(grid=None).whole[0]


def is_read(*counted: NodeCounts, whole: tuple[WholeIndex, ...] = (), domain: Domain | None = None) -> bool:
    """Whether a tally of these parts is read back, whole; or it is Corrupt."""
    data = Tally(domain or IntegerDomain(0, 499), counted, whole).to_bytes()
    try:
        return Tally.from_bytes(data).to_bytes() == data
    except Corrupt:
        return False


def nodes(first: int) -> NDArray[np.int64]:
    made = np.zeros(COUNTED.grid.nodes, dtype=np.int64)
    made[0] = first
    return made


@pytest.mark.parametrize(
    ("fields", "possible"),
    [
        ({}, True),
        ({"number": 0}, False),
        ({"number": MOST_BATCHES}, True),
        ({"number": MOST_BATCHES + 1}, False),
        ({"capacity": 0}, True),
        ({"capacity": MOST_ROWS}, True),
        ({"capacity": MOST_ROWS + 1}, False),
        ({"epsilon": Fraction(0)}, False),
        ({"epsilon": Fraction(-1)}, False),
        ({"epsilon": Fraction(1, 10**9)}, True),
        ({"delta": Fraction(1, 7)}, True),
        ({"delta": Fraction(-1, 7)}, False),
        ({"beta": Fraction(0)}, True),
        ({"beta": Fraction(1)}, True),
        ({"beta": Fraction(-1, 7)}, False),
        ({"beta": Fraction(8, 7)}, False),
    ],
)
def test_batches_that_cannot_be_are_corrupt(fields: dict[str, Any], possible: bool) -> None:
    batches = COUNTED.batches._replace(**fields)
    spent = ((Fraction(1), batches.number),)
    assert is_read(replace(COUNTED, batches=batches, spent=spent)) == possible
    assert is_read(whole=(WHOLE._replace(batches=WHOLE.batches._replace(**fields)),)) == possible


@pytest.mark.parametrize(
    ("spent", "possible"),
    [
        ([(1, 3)], True),
        ([(1, 1), (2, 2)], True),
        ([(1, 1), (2, 1), (3, 1)], True),
        ([(1, 0), (2, 3)], False),
        ([(1, 2)], False),
        ([(1, 4)], False),
        ([(0, 1), (2, 2)], False),
        ([(-1, 3)], False),
        ([(1, 1), (2, 1), (3, 1), (4, 0)], False),
        ([], False),
    ],
)
def test_costs_are_those_of_the_batches(spent: list[tuple[int, int]], possible: bool) -> None:
    batches = COUNTED.batches._replace(number=3)
    paid = tuple((Fraction(epsilon), number) for epsilon, number in spent)
    assert is_read(replace(COUNTED, batches=batches, spent=paid)) == possible


def test_counts_that_no_rows_have_are_corrupt() -> None:
    assert is_read(replace(COUNTED, nodes=nodes(MOST_NODES)))
    assert not is_read(replace(COUNTED, nodes=nodes(MOST_NODES + 1)))
    for value in (-1, 1, 0, -7):
        again = Tally.from_bytes(Tally(IntegerDomain(0, 499), (replace(COUNTED, nodes=nodes(value)),)).to_bytes())
        assert again.counted[0].nodes.tolist() == nodes(value).tolist()


def test_parts_of_another_tally_are_corrupt() -> None:
    other = tally(grid=Grid.even(500, 1000)).counted[0]
    assert other.grid.digest != COUNTED.grid.digest
    assert is_read(COUNTED, other)
    assert is_read(COUNTED, whole=(WHOLE, WHOLE))
    assert not is_read()
    assert not is_read(COUNTED, COUNTED)
    assert not is_read(whole=(WHOLE,), domain=IntegerDomain(1, 500))
    large = replace(other, batches=other.batches._replace(capacity=MOST_ROWS))
    assert is_read(large)
    assert not is_read(COUNTED, large)
    for data in (MAGIC, MAGIC[:-1], b"", MAGIC + bytes(8)):
        with pytest.raises(Corrupt):
            Tally.from_bytes(data)


def test_a_tally_is_small() -> None:
    """Some six bits a node, for one batch and for many."""
    one = tally(IntegerDomain(0, 9999))
    nodes = one.counted[0].grid.nodes
    assert len(one.to_bytes()) < 6 * nodes / 8 + len(one.counted[0].grid.packed) + 200
    many = Tally.added([one] * 64)
    assert len(many.to_bytes()) < 12 * nodes / 8 + len(one.counted[0].grid.packed) + 200
