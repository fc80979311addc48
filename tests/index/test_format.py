"""The index file as docs/format.md describes it: read by a second reader that shares no code with the first.

The files tests/vectors/index-v*.index were written once and are kept: a change of the format must change the version.
"""

import hashlib
import json
import struct
from pathlib import Path

import numpy as np
import pytest

from scumble import DPPLRIndex, ExplicitKeys, IntegerDomain, Ledger
from scumble.index.file import encode

VECTORS = Path(__file__).parents[1] / "vectors"


class Reader:
    """docs/format.md, line by line, in plain Python."""

    def __init__(self, data: bytes) -> None:
        assert data[:8] == bytes.fromhex("5343554d424c451a")
        assert data[8] in (1, 2, 3)
        assert hashlib.sha256(data[:-8]).digest()[:8] == data[-8:]
        self.mechanism, self.slack, self.levels = data[9], data[10], data[11]
        (self.count,) = struct.unpack_from("<I", data, 12)
        self.ceiling, self.max_error, self.slack_rows, self.capacity = struct.unpack_from("<4Q", data, 16)
        self.at, self.data = 48, data
        self.domain, self.epsilon, self.delta, self.beta = (self.text() for _ in range(4))
        listed, blocks = data[8] == 2, 0
        if data[8] == 3:
            listed, blocks = struct.unpack_from("<BH", data, self.at)
            self.at += 3
        if not listed:
            low, high = self.domain.removeprefix("int:").split(":")
            self.keys = list(range(int(low), int(high) + 1))
        else:
            first, last, count = map(int, self.domain.split())
            self.keys = [first + step for step in self.numbers(count, last - first)]
        self.size = len(self.keys)
        self.bounds, self.slacks = [0, self.size], [self.slack_rows]
        if blocks:
            self.bounds = [*self.numbers(2 * blocks, self.size - 1), self.size]
            summed = self.numbers(blocks, self.slack_rows)
            self.slacks = [after - before for before, after in zip([0, *summed], summed, strict=False)]
        self.starts = self.numbers(self.count, self.size - 1)
        self.values = self.numbers(2 * self.count, self.ceiling)
        assert self.at == len(data) - 8

    def text(self) -> str:
        (length,) = struct.unpack_from("<I", self.data, self.at)
        self.at += 4 + length
        return self.data[self.at - length : self.at].decode()

    def bits(self, count: int) -> str:
        length = (count + 7) // 8
        part = self.data[self.at : self.at + length]
        self.at += length
        return "".join(f"{byte:08b}" for byte in part)[:count]

    def numbers(self, count: int, greatest: int) -> list[int]:
        b = max(0, (greatest // count).bit_length() - 1)
        low = self.bits(count * b)
        high = self.bits(count + (greatest >> b))
        ones = [place for place, bit in enumerate(high) if bit == "1"]
        return [
            ((place - i) << b) + sum(int(bit) << j for j, bit in enumerate(low[i * b : (i + 1) * b]))
            for i, place in enumerate(ones)
        ]

    def rows(self, x: int) -> int:
        quantum = 1
        while 2 * quantum <= self.max_error // 16:
            quantum *= 2
        lift = 2 * self.max_error // quantum + 2
        half = max(h for h, bound in enumerate(self.bounds[:-1]) if bound <= x)
        low, high = self.bounds[half], self.bounds[half + 1]
        mine = [j for j, start in enumerate(self.starts) if low <= start < high]
        added = self.values[2 * mine[0] - 1] if half else 0
        first, last = (
            [(self.values[2 * j + which] - added - (place + 1) * lift) * quantum for place, j in enumerate(mine)]
            for which in (0, 1)
        )
        j = max(place for place, piece in enumerate(mine) if self.starts[piece] <= x)
        start = self.starts[mine[j]]
        end = (self.starts[mine[j + 1]] if j + 1 < len(mine) else high) - 1
        line = first[j] + (last[j] - first[j]) * (x - start) // max(1, end - start)
        return int(max([line, 0, *last[:j]]))

    def place(self, x: int) -> tuple[int, int, int, int]:
        """Of a rank in blocks: its position, its block's slack, and where the block begins and ends."""
        ends = [self.rows(bound - 1) for bound in self.bounds[1:]]
        places = [0]
        for k, slack in enumerate(self.slacks):
            places.append(places[-1] + ends[2 * k] + ends[2 * k + 1] + slack)
        assert places[-1] == self.capacity
        half = max(h for h, bound in enumerate(self.bounds[:-1]) if bound <= x)
        k = half // 2
        offset = places[k + 1] - ends[half] if half % 2 else places[k]
        return offset + self.rows(x), self.slacks[k], places[k], places[k + 1]

    def lookup(self, a: int, b: int) -> list[int]:
        if len(self.bounds) == 2:
            start = 0 if a == 0 else max(0, self.rows(a - 1) - self.slack_rows)
            return [start, min(self.capacity, self.rows(b) + self.slack_rows)]
        at, slack, _, end = self.place(b)
        stop, start = min(end, at + slack), 0
        if a:
            at, slack, begin, end = self.place(a - 1)
            start = end if a in self.bounds[::2] else max(begin, at - slack)
        return [min(start, stop), stop]


@pytest.mark.parametrize(
    "options", [{"max_bytes": 400}, {"max_error": 1}, {"max_segments": 1}, {"slack": "paper"}], ids=str
)
def test_a_second_reader_agrees(options: dict[str, int]) -> None:
    keys = np.random.default_rng(4).zipf(1.3, 30_000) % 700
    index = DPPLRIndex(**options)  # type: ignore[arg-type]
    index.fit(keys, domain=IntegerDomain(0, 699), budget=Ledger(limit=1).spend("0.5", "keys"))
    reader = Reader(encode(index.model))
    summary = index.summary()
    assert (reader.count, reader.max_error, reader.capacity) == (summary.segments, summary.max_error, summary.capacity)
    assert (reader.epsilon, reader.delta, reader.beta) == ("1/2", "0/1", "1/1000000")
    for a, b in [(0, 0), (0, 699), (5, 5), (300, 420), (699, 699)]:
        assert list(index.lookup(a, b)) == reader.lookup(a, b)


def test_a_second_reader_agrees_on_a_list_of_integers() -> None:
    keys = np.cumsum(np.random.default_rng(5).geometric(0.2, 700)) - 900
    index = DPPLRIndex(max_bytes=300)
    index.fit(np.repeat(keys, 9), domain=ExplicitKeys(keys), budget=Ledger(limit=1).spend("0.5", "keys"))
    reader = Reader(encode(index.model))
    assert reader.keys == keys.tolist()
    for a, b in [(0, 0), (0, 699), (5, 5), (300, 420), (699, 699)]:
        assert list(index.lookup(reader.keys[a], reader.keys[b])) == reader.lookup(a, b)


@pytest.mark.parametrize("listed", [False, True])
def test_a_second_reader_agrees_on_blocks(listed: bool) -> None:
    keys = np.cumsum(np.random.default_rng(6).geometric(0.2, 700)) if listed else np.arange(700)
    rows = np.repeat(keys, np.random.default_rng(7).zipf(1.5, 700) % 60)
    domain = ExplicitKeys(keys) if listed else IntegerDomain(0, 699)
    index = DPPLRIndex(max_bytes=900, blocks=5).fit(rows, domain=domain, budget=Ledger(limit=1).spend("0.5", "keys"))
    reader = Reader(encode(index.model))
    assert reader.keys == keys.tolist()
    assert len(reader.slacks) == 5
    edges = sorted({0, 1, 699, *(bound + step for bound in reader.bounds[1:-1] for step in (-1, 0, 1))})
    for a in edges:
        for b in edges:
            if a <= b:
                assert list(index.lookup(reader.keys[a], reader.keys[b])) == reader.lookup(a, b)


@pytest.mark.parametrize("version", ["v1", "v2", "v3", "v4"])
def test_the_kept_file_still_answers_the_same(version: str) -> None:
    expected = json.loads((VECTORS / f"index-{version}.json").read_text())
    index = DPPLRIndex.load(VECTORS / f"index-{version}.index")
    assert index.summary().as_dict() == expected["summary"]
    assert [[*key, *index.lookup(*key)] for key in expected["keys"]] == expected["found"]
    assert encode(index.model) == (VECTORS / f"index-{version}.index").read_bytes()
