"""Rows on their way through the enclave: more than fit its memory, sealed in scratch storage, and sorted there.

All of it is SECRET; how many rows there are, how long they are and in which order chunks are read and written is public
and depends on nothing else. Chunks are sorted one by one, then merged in pairs by a network.
"""

from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np

from scumble.enclave import kernels
from scumble.enclave.kernels import Words
from scumble.enclave.pages import Scratch
from scumble.wire.storage import Storage

__all__ = ["Rows"]


class Rows:
    """SECRET: rows of `words` words each, in chunks of `chunk_rows`; only the last chunk may be shorter.

    Chunks that are put away are called by `name` and a number.
    """

    def __init__(self, storage: Storage, words: int, chunk_rows: int, name: str = "chunk") -> None:
        self._storage, self._scratch, self._name = storage, Scratch(), name
        self._words, self._chunk_rows = words, chunk_rows
        self._filling = np.empty((chunk_rows, words), np.int64)
        self._filled = 0
        self._lengths: list[int] = []
        self._generations: Counter[int] = Counter()  # so that what a chunk was before is not taken for what it is

    def __len__(self) -> int:
        return sum(self._lengths) + self._filled

    def append(self, batch: Words) -> None:
        """Add rows; what fills a chunk is sealed and put away."""
        at = 0
        while at < len(batch):
            if self._filled == self._chunk_rows:
                self._store(len(self._lengths), self._filling)
                self._lengths.append(self._filled)
                self._filled = 0
            take = min(len(batch) - at, self._chunk_rows - self._filled)
            self._filling[self._filled : self._filled + take] = batch[at : at + take]
            self._filled += take
            at += take

    def keys(self, key_word: int) -> "Rows":
        """One of the words of every row, as rows of their own."""
        keys = Rows(self._storage, 1, self._chunk_rows, "keys")
        for chunk in self.chunks():
            keys.append(np.ascontiguousarray(chunk[:, key_word : key_word + 1]))
        return keys

    def sort(self, key_word: int = 0, prepare: Callable[[Words], None] | None = None) -> None:
        """Sort all rows by one of their words, which `prepare` may write first. May be called again with another."""
        if not self._lengths:
            if prepare is not None:
                prepare(self._filling[: self._filled])
            kernels.sort_rows(self._filling[: self._filled], key_word)
            return
        if self._filled:
            self._store(len(self._lengths), self._filling[: self._filled])
            self._lengths.append(self._filled)
            self._filled = 0
        self._filling = np.empty((0, self._words), np.int64)
        pair = np.empty((2 * self._chunk_rows, self._words), np.int64)
        for place in range(len(self._lengths)):
            chunk = self._load(place, pair)
            if prepare is not None:
                prepare(chunk)
            kernels.sort_rows(chunk, key_word)
            self._store(place, chunk)
        for low, high in _network(len(self._lengths)):
            first = self._lengths[low]
            both = pair[: first + self._lengths[high]]
            self._load(low, both)
            self._load(high, both[first:])
            kernels.merge_rows(both, first, key_word)
            self._store(low, both[:first])
            self._store(high, both[first:])

    def chunks(self) -> Iterator[Words]:
        """The rows in order, one chunk after the other; each is good until the next is asked for."""
        chunk = np.empty((self._chunk_rows if self._lengths else 0, self._words), np.int64)
        for place in range(len(self._lengths)):
            yield self._load(place, chunk)
        if self._filled:
            yield self._filling[: self._filled]

    def _store(self, place: int, chunk: Words) -> None:
        self._generations[place] += 1
        sealed = self._scratch.seal(self._state(place), chunk.reshape(-1).view(np.uint8).data)
        self._storage.write_scratch(f"{self._name}-{place}", sealed)

    def _load(self, place: int, into: Words) -> Words:
        chunk = into[: self._lengths[place]]
        sealed = self._storage.read_scratch(f"{self._name}-{place}")
        self._scratch.open_into(self._state(place), sealed, chunk.reshape(-1).view(np.uint8).data)
        return chunk

    def _state(self, place: int) -> str:
        return f"{self._name} {place}, state {self._generations[place]}"


def _network(count: int) -> Iterator[tuple[int, int]]:
    """Batcher's odd-even merge sort of `count` things: the pairs to put in order, in sequence.

    It is the network of the next power of two without the pairs that reach beyond: what would lie there is greater than
    everything and never moves.
    """
    half = 1
    while half < count:
        step = half
        while step:
            for base in range(step % half, count - step, 2 * step):
                for low in range(base, min(base + step, count - step)):
                    if low // (2 * half) == (low + step) // (2 * half):
                        yield low, low + step
            step //= 2
        half *= 2
