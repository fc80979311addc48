"""The fitted index, and its file: a few hundred bytes, from which it is read back bit for bit.

All of it is public: the segments and the slack came out of differentially private releases, the rest the owner chose.
docs/format.md describes every byte. The checksum finds accidents, not adversaries; against those, the database seals
the file.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from hashlib import sha256
from itertools import pairwise
from os import PathLike
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from scumble.errors import Corrupt, DomainError, FileError, InvalidParameter, NewerVersion
from scumble.index.blocks import LEAST_RANKS, Blocks
from scumble.index.contract import RunIndex
from scumble.index.hint import Hint
from scumble.index.mechanisms import Mechanism
from scumble.index.mechanisms.paper import PAPER
from scumble.index.mechanisms.scumble import SCUMBLE
from scumble.index.packing import pack, packed_bytes, unpack
from scumble.index.segments import Segments, quantum
from scumble.index.slack import MOST_BLOCKS, SLACKS, Slack
from scumble.privacy.budget import from_ratio, ratio
from scumble.types import Domain, ExplicitKeys, parse_domain

__all__ = [
    "MECHANISMS",
    "IndexModel",
    "block_bytes",
    "decode",
    "decoded",
    "domain_bytes",
    "encode",
    "fixed_bytes",
    "most_segments",
    "packed_domain",
    "read_file",
    "unpacked_domain",
    "write_file",
]

KEPT_MODELS = 1 << 14
MECHANISMS: dict[str, Mechanism] = {mechanism.name: mechanism for mechanism in (SCUMBLE, PAPER)}

IntArray = NDArray[np.int64]

MAGIC = b"SCUMBLE\x1a"
VERSION = 4
"""The newest that is read, and written with a hint; 3 is written for blocks, 2 for a list of integers, 1 otherwise."""
CHECKSUM_BYTES = 8
MOST_ROWS = 2**37  # twice the most rows of a table: room for noise and slack, and products with ranks stay exact

# version, mechanism, slack, levels; then segments, ceiling, max_error, slack_rows, capacity
HEADER = struct.Struct("<BBBBIQQQQ")
TEXT_LENGTH = struct.Struct("<I")
BLOCKS = struct.Struct("<BH")  # from version 3 on: whether the domain's list is packed, and how many blocks there are
HINT_LENGTH = struct.Struct("<I")  # of version 4
USUAL_SLACK = 1 << 16
"""Room is kept for slacks up to this on average; larger ones take a few bytes more."""
MOST_SPAN = 2**62
"""Lists of integers that span more are written as text."""


@dataclass(frozen=True, eq=False)
class IndexModel(RunIndex):
    """PUBLIC: the index that a file holds. In blocks, `slack_rows` is the largest of theirs.

    The segments are over ranks, or over the marks that a hint gives them.
    """

    domain: Domain
    segments: Segments
    slack_rows: int
    capacity: int
    epsilon: Fraction
    delta: Fraction
    beta: Fraction
    levels: int
    mechanism: str
    slack: str
    blocks: Blocks | None = None
    hint: Hint | None = None

    def _at(self, rank: int) -> int:
        """The rows of its curve at or before a rank."""
        return self.segments.at(rank if self.hint is None else self.hint.at(rank))

    def _at_many(self, ranks: IntArray) -> IntArray:
        return self.segments.at_many(ranks if self.hint is None else self.hint.at_many(ranks))

    def start_after(self, rank: int) -> int:
        rows = self._at(rank)
        return rows - self.slack_rows if self.blocks is None else self.blocks.start_after(rank, rows)

    def stop_at(self, rank: int) -> int:
        rows = self._at(rank)
        return rows + self.slack_rows if self.blocks is None else self.blocks.stop_at(rank, rows)

    def starts_after(self, ranks: IntArray) -> IntArray:
        rows = self._at_many(ranks)
        if self.blocks is not None:
            return self.blocks.starts_after(ranks, rows)
        rows -= self.slack_rows
        return rows

    def stops_at(self, ranks: IntArray) -> IntArray:
        rows = self._at_many(ranks)
        if self.blocks is not None:
            return self.blocks.stops_at(ranks, rows)
        rows += self.slack_rows
        return rows

    def to_bytes(self) -> bytes:
        return encode(self)

    @property
    def segment_ranks(self) -> IntArray:
        """The ranks that segments begin at; with a hint, the first rank of each whose mark lies on it."""
        if self.hint is None:
            return self.segments.starts
        marks = self.hint.at_many(np.arange(self.domain.size))
        return np.unique(np.searchsorted(marks, self.segments.starts))

    @property
    def usual_slack(self) -> int:
        """What each end of a lookup is widened by, in blocks on average."""
        return self.slack_rows if self.blocks is None else round(self.blocks.slacks.sum() / len(self.blocks))

    def curve(self, ranks: IntArray) -> IntArray:
        """About where the rows up to each rank end, in positions."""
        rows = self._at_many(ranks)
        return rows if self.blocks is None else rows + self.blocks.offsets[self.blocks.half(ranks)]

    def rows_up_to(self, ranks: IntArray) -> IntArray:
        """About how many rows lie at or before each rank: as `curve`, without the dummies of blocks."""
        rows = self._at_many(ranks)
        if self.blocks is None:
            return rows
        rows += np.concatenate([[0], np.cumsum(self.segments.totals)[:-1]])[self.blocks.half(ranks)]
        return rows

    def unsafe_rows_below(self, counts: IntArray, places: IntArray) -> IntArray:
        if self.blocks is None:
            return super().unsafe_rows_below(counts, places)
        return self.blocks.unsafe_rows_below(counts, places)


def encode(model: IndexModel) -> bytes:
    """The file of an index."""
    segments, blocks = model.segments, model.blocks
    values = _lifted(segments)
    ceiling = int(values[-1])
    domain, keys = packed_domain(model.domain)
    header = HEADER.pack(
        4 if model.hint else 3 if blocks else 2 if keys else 1,
        MECHANISMS[model.mechanism].code,
        SLACKS[model.slack].code,
        model.levels,
        len(segments),
        ceiling,
        segments.max_error,
        int(blocks.slacks.sum()) if blocks else model.slack_rows,
        model.capacity,
    )
    texts = [domain, ratio(model.epsilon), ratio(model.delta), ratio(model.beta)]
    body = b"".join(
        [
            MAGIC,
            header,
            *(TEXT_LENGTH.pack(len(text.encode())) + text.encode() for text in texts),
            BLOCKS.pack(bool(keys), len(blocks) if blocks else 0) if blocks or model.hint else b"",
            keys,
            HINT_LENGTH.pack(len(model.hint.packed)) + model.hint.packed if model.hint else b"",
            _packed_blocks(blocks) if blocks else b"",
            pack(segments.starts, segments.size - 1),
            pack(values, ceiling),
        ]
    )
    return body + sha256(body).digest()[:CHECKSUM_BYTES]


def decode(data: bytes) -> IndexModel:
    """The index of a file; Corrupt or NewerVersion if there is none in it."""
    if data[: len(MAGIC)] != MAGIC:
        raise Corrupt("this is not a Scumble index file", hint="`scumble index fit` writes one")
    if len(data) > len(MAGIC) and data[len(MAGIC)] > VERSION:
        raise NewerVersion(
            f"this index file has format version {data[len(MAGIC)]}; this Scumble reads up to {VERSION}",
            hint="upgrade Scumble",
        )
    body, checksum = data[:-CHECKSUM_BYTES], data[-CHECKSUM_BYTES:]
    if sha256(body).digest()[:CHECKSUM_BYTES] != checksum:
        raise Corrupt(
            "this index file is truncated or altered", hint="restore it from a copy: building it anew costs epsilon"
        )
    try:
        return _parse(body[len(MAGIC) :])
    except (struct.error, ValueError, IndexError, DomainError, InvalidParameter) as error:
        raise Corrupt("this index file's parts do not fit together", hint="restore it from a copy") from error


@lru_cache(KEPT_MODELS)
def decoded(data: bytes) -> IndexModel:
    """The same, decoded once for the same bytes: for a run's index, which a planner needs with every query."""
    return decode(data)


def read_file(path: str | PathLike[str]) -> bytes:
    """The bytes of an index file, of whatever kind."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise FileError(
            f"cannot read the index file: {error.strerror}", hint=f"check the path {path}, and its permissions"
        ) from error


def write_file(path: str | PathLike[str], data: bytes) -> None:
    """Write an index file, of whatever kind."""
    try:
        Path(path).write_bytes(data)
    except OSError as error:
        raise FileError(
            f"cannot write the index file: {error.strerror}", hint=f"check the path {path}, and its permissions"
        ) from error


def _parse(body: bytes) -> IndexModel:
    version, mechanism, slack, levels, count, ceiling, max_error, slack_rows, capacity = HEADER.unpack_from(body)
    at = HEADER.size
    texts = []
    for _ in range(4):
        (length,) = TEXT_LENGTH.unpack_from(body, at)
        at += TEXT_LENGTH.size
        texts.append(body[at : at + length].decode())
        at += length
    listed, count_of_blocks = version == 2, 0
    if version >= 3:
        listed, count_of_blocks = BLOCKS.unpack_from(body, at)
        at += BLOCKS.size
    domain, listed_bytes = unpacked_domain(texts[0], body[at:]) if listed else (parse_domain(texts[0]), 0)
    at += listed_bytes
    hint = None
    if version == 4:
        (length,) = HINT_LENGTH.unpack_from(body, at)
        at += HINT_LENGTH.size
        hint = Hint.unpacked(body[at : at + length], domain.size)
        at += length
    size = domain.size if hint is None else hint.span
    if not 1 <= count <= size or not 1 <= max_error <= MOST_ROWS or max(slack_rows, capacity) > MOST_ROWS:
        raise ValueError("impossible sizes")
    if ceiling * quantum(max_error) > MOST_ROWS + _lift(max_error) * quantum(max_error) * count:
        raise ValueError("more rows than the kernels can multiply exactly")
    bounds = slacks = np.empty(0, np.int64)
    in_blocks = version == 3 or count_of_blocks > 0
    if in_blocks:
        bounds, slacks, taken = _unpacked_blocks(body[at:], count_of_blocks, domain.size, slack_rows)
        at += taken
    cut = at + packed_bytes(count, size - 1)
    starts = unpack(body[at:cut], count, size - 1)
    if starts[0] != 0 or np.any(np.diff(starts) <= 0):
        raise ValueError("segments out of order")
    curves = _curves(starts, bounds[:-1], hint) if in_blocks else (0,)
    first, last = _lowered(unpack(body[cut:], 2 * count, ceiling), max_error, curves)
    segments = Segments(size, starts, first, last, max_error, curves)
    blocks = Blocks.of(bounds, segments.totals, slacks) if in_blocks else None
    if blocks is not None and blocks.rows != capacity:
        raise ValueError("blocks of another length")
    return IndexModel(
        domain=domain,
        segments=segments,
        slack_rows=slack_rows if blocks is None else int(slacks.max()),
        capacity=capacity,
        epsilon=from_ratio(texts[1]),
        delta=from_ratio(texts[2]),
        beta=from_ratio(texts[3]),
        levels=levels,
        mechanism=_named(MECHANISMS, mechanism),
        slack=_named(SLACKS, slack),
        blocks=blocks,
        hint=hint,
    )


def _packed_blocks(blocks: Blocks) -> bytes:
    """The first rank of every half, and the slacks added up, which the header has the last of."""
    slacks = np.cumsum(blocks.slacks)
    return pack(blocks.bounds[:-1], int(blocks.bounds[-1]) - 1) + pack(slacks, int(slacks[-1]))


def _unpacked_blocks(rest: bytes, blocks: int, size: int, slack_rows: int) -> tuple[IntArray, IntArray, int]:
    """The halves' bounds, the slacks, and how many bytes they take; ValueError if there are no such blocks."""
    if not 1 <= blocks <= MOST_BLOCKS or size < LEAST_RANKS * blocks:
        raise ValueError("an impossible number of blocks")
    cut = packed_bytes(2 * blocks, size - 1)
    end = cut + packed_bytes(blocks, slack_rows)
    bounds, slacks = unpack(rest[:cut], 2 * blocks, size - 1), unpack(rest[cut:end], blocks, slack_rows)
    if bounds[0] != 0 or np.any(np.diff(bounds) <= 0) or slacks[-1] != slack_rows:
        raise ValueError("blocks out of order")
    return np.append(bounds, size), np.diff(slacks, prepend=0), end


def _curves(starts: IntArray, bounds: IntArray, hint: Hint | None) -> tuple[int, ...]:
    """The piece that each half begins with; ValueError if none does."""
    firsts = bounds if hint is None else hint.before(bounds)
    if hint is not None and np.any(hint.at_many(bounds) < firsts):
        raise ValueError("a half begins within a mark")
    pieces = np.searchsorted(starts, firsts)
    if np.any(np.append(starts, -1)[pieces] != firsts):
        raise ValueError("a half begins within a segment")
    return tuple(pieces.tolist())


def block_bytes(blocks: int, size: int) -> int:
    """How many bytes of a file blocks take, unless their slacks are unusually large."""
    return BLOCKS.size + packed_bytes(2 * blocks, size - 1) + packed_bytes(blocks, blocks * USUAL_SLACK)


def packed_domain(domain: Domain) -> tuple[str, bytes]:
    """The domain's text, and its list in packed form: empty if it has no list of integers that can be packed."""
    if not isinstance(domain, ExplicitKeys) or domain.integers is None:
        return domain.text, b""
    keys, first, last = domain.integers, int(domain.keys[0]), int(domain.keys[-1])
    if last - first >= MOST_SPAN:
        return domain.text, b""
    return f"{first} {last} {domain.size}", pack((keys - keys[0]).astype(np.int64), last - first)


def unpacked_domain(text: str, rest: bytes) -> tuple[Domain, int]:
    """The inverse, and how many bytes the list takes; ValueError if no such list was ever packed."""
    first, last, count = map(int, text.split(" "))
    if text != f"{first} {last} {count}" or not 1 <= count <= last - first + 1 <= MOST_SPAN:
        raise ValueError("an impossible list of keys")
    length = packed_bytes(count, last - first)
    steps = unpack(rest[:length], count, last - first)
    if steps[0] != 0 or steps[-1] != last - first or not -(2**63) <= first <= last < 2**64:
        raise ValueError("an impossible list of keys")
    keys = steps.astype(np.uint64) + np.uint64(first) if last >= 2**63 and first >= 0 else steps + first
    return ExplicitKeys(keys), length


def domain_bytes(domain: Domain) -> int:
    """How many bytes of a file a domain takes: its text, or a list of integers in packed form."""
    text, keys = packed_domain(domain)
    return len(text.encode()) + len(keys)


def _named(choices: Mapping[str, Mechanism] | Mapping[str, Slack], code: int) -> str:
    for name, choice in choices.items():
        if choice.code == code:
            return name
    raise ValueError("no such mechanism or slack")


def _lift(max_error: int) -> int:
    """Quanta that each piece is raised by over the one before: it may start lower by up to twice max_error."""
    return 2 * max_error // quantum(max_error) + 2


def _lifted(segments: Segments) -> IntArray:
    """First and last values in turn, in quanta, raised so that they never fall: a curve by the end of the last."""
    step = quantum(segments.max_error)
    pairs = np.stack([segments.first, segments.last], axis=1) // step
    pairs += _lift(segments.max_error) * np.arange(1, len(segments) + 1)[:, None]
    for begin, end in pairwise((*segments.curves[1:], len(segments))):
        pairs[begin:end] += pairs[begin - 1, 1] - _lift(segments.max_error) * begin
    return pairs.ravel()


def _lowered(values: IntArray, max_error: int, curves: tuple[int, ...]) -> tuple[IntArray, IntArray]:
    pairs = values.reshape(-1, 2).copy()
    for begin, end in reversed(list(pairwise((*curves[1:], len(pairs))))):
        pairs[begin:end] -= pairs[begin - 1, 1] - _lift(max_error) * begin
    pairs -= _lift(max_error) * np.arange(1, len(pairs) + 1)[:, None]
    pairs *= quantum(max_error)
    return np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1])


def fixed_bytes(domain: Domain, *numbers: Fraction) -> int:
    """The length of all but the segments; without a list of keys, which is public and can be long."""
    texts = [*map(ratio, numbers), "" if domain.is_list else domain.text]
    lengths = sum(TEXT_LENGTH.size + len(text.encode()) for text in texts)
    return len(MAGIC) + HEADER.size + lengths + CHECKSUM_BYTES


def most_segments(room_bytes: int, size: int, rows: int, max_error: int, curves: int = 1) -> int:
    """How many segments over curves that end at `rows` in all are sure to pack into `room_bytes`; 0 if not even one."""
    low, high = 0, size + 1
    while high - low > 1:
        middle = (low + high) // 2
        ceiling = (rows + curves * max_error) // quantum(max_error) + curves + _lift(max_error) * middle
        if packed_bytes(middle, size - 1) + packed_bytes(2 * middle, ceiling) <= room_bytes:
            low = middle
        else:
            high = middle
    return low
