"""Sorting in bounded memory: the network sorts whatever there is, and many chunks give what one chunk gives."""

from collections.abc import Iterable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from scumble.enclave.kernels import Words
from scumble.enclave.rows import Rows, _network
from scumble.errors import Tampered
from scumble.store.files import FileStore


class Scratch:
    """Storage as far as sorting needs it, in memory."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.calls: list[tuple[str, str, int]] = []

    def write_scratch(self, name: str, sealed: bytes | memoryview) -> None:
        self.calls.append(("write", name, len(sealed)))
        self.files[name] = bytes(sealed)

    def read_scratch(self, name: str) -> bytes:
        self.calls.append(("read", name, len(self.files[name])))
        return self.files[name]


def _sorted(rows: Words, key_word: int, chunk_rows: int, batch: int = 7) -> tuple[Words, Scratch]:
    scratch = Scratch()
    kept = Rows(scratch, rows.shape[1], chunk_rows)  # type: ignore[arg-type]
    for at in range(0, len(rows), batch):
        kept.append(rows[at : at + batch])
    assert len(kept) == len(rows)
    kept.sort(key_word)
    chunks = [chunk.copy() for chunk in kept.chunks()]
    assert all(len(chunk) == chunk_rows for chunk in chunks[:-1])
    return np.concatenate(chunks), scratch


def _apply(pairs: Iterable[tuple[int, int]], rows: NDArray[Any]) -> None:
    """Put each pair of every row's values in order."""
    for low, high in pairs:
        pair = rows[:, [low, high]]
        rows[:, low], rows[:, high] = pair.min(axis=1), pair.max(axis=1)


@pytest.mark.parametrize("count", range(13))
def test_the_network_sorts_every_sequence_of_zeros_and_ones(count: int) -> None:
    """By the 0-1 principle it then sorts everything."""
    pairs = list(_network(count))
    assert all(0 <= low < high < count for low, high in pairs)
    inputs = np.array(list(product((0, 1), repeat=count)), np.int8).reshape(2**count, count)
    _apply(pairs, inputs)
    assert (np.diff(inputs, axis=1) >= 0).all()


@pytest.mark.parametrize("count", [16, 17, 23, 31, 32, 33, 64])
def test_the_network_sorts_larger_numbers_of_chunks(count: int) -> None:
    rng = np.random.default_rng(count)
    values = np.array([rng.permutation(count) for _ in range(300)])
    _apply(_network(count), values)
    assert (values == np.arange(count)).all()


def test_the_network_has_as_many_pairs_as_batchers() -> None:
    """A round more would sort as well, and read and write every chunk for nothing."""
    assert [len(list(_network(1 << p))) for p in range(2, 7)] == [
        (p * p - p + 4) * 2 ** (p - 2) - 1 for p in range(2, 7)
    ]
    assert [len(list(_network(count))) for count in range(4)] == [0, 0, 1, 3]


def test_a_network_without_its_last_pair_does_not_sort() -> None:
    """The check above can fail."""
    inputs = np.array(list(product((0, 1), repeat=6)), np.int8)
    _apply(list(_network(6))[:-1], inputs)
    assert (np.diff(inputs, axis=1) < 0).any()


@pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 32, 33, 63, 64, 100, 129])
@pytest.mark.parametrize("chunk_rows", [16, 32, 1024])
def test_chunks_are_sorted_as_one_would_be(count: int, chunk_rows: int) -> None:
    rows = np.random.default_rng(count).integers(-50, 50, (count, 3))
    got, _ = _sorted(rows, 1, chunk_rows) if count else (rows, None)
    assert (got[:, 1] == np.sort(rows[:, 1])).all()
    assert sorted(got.tolist()) == sorted(rows.tolist())


@given(
    st.lists(st.tuples(st.integers(-3, 3), st.integers(-(2**63), 2**63 - 1)), min_size=1, max_size=150),
    st.sampled_from([16, 32, 48]),
    st.integers(1, 60),
)
@settings(max_examples=80, suppress_health_check=[HealthCheck.too_slow])
def test_any_rows_in_any_batches(rows: list[tuple[int, int]], chunk_rows: int, batch: int) -> None:
    words = np.array(rows, np.int64)
    for key_word in (0, 1):
        got, _ = _sorted(words, key_word, chunk_rows, batch)
        assert (np.diff(got[:, key_word].astype(object)) >= 0).all()
        assert sorted(map(tuple, got.tolist())) == sorted(rows)


def test_sorting_again_by_another_word() -> None:
    rows = np.random.default_rng(1).integers(0, 1000, (90, 4))
    kept = Rows(Scratch(), 4, 16)  # type: ignore[arg-type]
    kept.append(rows)
    for key_word in (2, 0, 3, 2):
        kept.sort(key_word)
        got = np.concatenate([chunk.copy() for chunk in kept.chunks()])
        assert (got[:, key_word] == np.sort(rows[:, key_word])).all()
        assert sorted(got.tolist()) == sorted(rows.tolist())


def test_what_the_provider_sees_depends_on_the_number_of_rows_only() -> None:
    rng = np.random.default_rng(2)
    seen = [_sorted(rng.integers(0, most, (100, 3)), 0, 16)[1] for most in (1, 2, 10**9)]
    assert seen[0].calls == seen[1].calls == seen[2].calls
    assert len(seen[0].calls) > 20


def test_scratch_is_sealed_and_bound_to_its_place() -> None:
    rows = np.full((64, 2), 0x51756F6B6B61)
    scratch = Scratch()
    kept = Rows(scratch, 2, 16)  # type: ignore[arg-type]
    kept.append(rows)
    kept.sort(0)
    assert not [piece for piece in scratch.files.values() if b"akkouQ" in piece]
    names = sorted(scratch.files)
    one, other = scratch.files[names[0]], scratch.files[names[1]]
    assert one != other
    for changed in (other, one[:-1], one[:20] + bytes([one[20] ^ 1]) + one[21:], b"", bytes(11)):
        scratch.files[names[0]] = changed
        with pytest.raises(Tampered):
            list(kept.chunks())
    scratch.files[names[0]] = one
    assert len(np.concatenate([chunk.copy() for chunk in kept.chunks()])) == 64


def test_an_old_chunk_in_the_place_of_a_new_one() -> None:
    """The provider puts back what a chunk was before the sort: rows would be there twice, and others not at all."""
    replayed = Scratch()
    kept = Rows(replayed, 1, 16)  # type: ignore[arg-type]
    kept.append(np.arange(64, 0, -1).reshape(-1, 1))
    kept.append(np.zeros((1, 1), np.int64))
    unsorted = dict(replayed.files)
    kept.sort(0)
    replayed.files["chunk-0"] = unsorted["chunk-0"]
    with pytest.raises(Tampered):
        list(kept.chunks())


def test_over_a_real_store(tmp_path: Path) -> None:
    store = FileStore.create(tmp_path / "db", "0a")
    rows = np.random.default_rng(3).integers(0, 99, (70, 2))
    with store.writer():
        kept = Rows(store, 2, 16)
        kept.append(rows)
        kept.sort(1)
        assert (np.concatenate([chunk.copy() for chunk in kept.chunks()])[:, 1] == np.sort(rows[:, 1])).all()
        assert len(list((tmp_path / "db/scratch").iterdir())) == 5
    assert list((tmp_path / "db/scratch").iterdir()) == []
