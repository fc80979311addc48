"""Tallies: what is stored beside a run is read back to the last bit, and nothing else is taken for one."""

from fractions import Fraction
from hashlib import sha256

import numpy as np
import pytest

from scumble import DPPLRIndex, IntegerDomain
from scumble.errors import Corrupt, InvalidParameter, NewerVersion
from scumble.index.grid import NEW, Grid
from scumble.index.tally import MAGIC, MOST_ROWS, Batches, NodeCounts, Tally
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
    with pytest.raises(Corrupt):
        Tally.from_bytes(bytes(data))


def test_a_newer_version_is_told_from_damage() -> None:
    data = bytearray(tally().to_bytes())
    data[len(MAGIC)] = 2
    with pytest.raises(NewerVersion):
        Tally.from_bytes(bytes(data))


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


def test_a_tally_is_small() -> None:
    """Some six bits a node, for one batch and for many."""
    one = tally(IntegerDomain(0, 9999))
    nodes = one.counted[0].grid.nodes
    assert len(one.to_bytes()) < 6 * nodes / 8 + len(one.counted[0].grid.packed) + 200
    many = Tally.added([one] * 64)
    assert len(many.to_bytes()) < 12 * nodes / 8 + len(one.counted[0].grid.packed) + 200
