"""Text: a value's words are its UTF-8 bytes, zero-padded, as big-endian words with the top bit flipped, and its length.

The greatest length in bytes is part of the type, public, and never taken from the data. The key domain of strings is
`string:["d","m"]`, the intervals between public split points; keys and ranks are secret.
"""

import struct
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from scumble.errors import InvalidParameter
from scumble.types.arrow import bitmap, first_failure, refused
from scumble.types.column import Bracket, ColumnType, Interval, Operator, SqlType, ValueWords, numbers_in
from scumble.types.domain import EMPTY, MAX_SIZE, Domain, DomainPartError
from scumble.types.keys import Place
from scumble.types.listed import ListDomain, list_text, string_list
from scumble.types.schema import Column

MAX_BYTES = 1 << 16
DEFAULT_BYTES = 64
"""What a text column holds unless the owner says otherwise. It is public, so it must not follow the data."""

ANY, ONE = (True, "%"), (True, "_")
_LEAST_WORD, _MOST_WORD = -(2**63), 2**63 - 1
_GREATEST = "\U0010ffff"
_TOP = np.uint64(1 << 63)
_MASKS = np.array([((1 << 64) - 1) >> (64 - 8 * kept) << (64 - 8 * kept) for kept in range(9)], np.uint64)
"""For every number of bytes that a word keeps, first byte highest."""

_BLOCK_ROWS = 1 << 14  # handled at a time, so that intermediate columns stay in the cache


@dataclass(frozen=True)
class TextType(ColumnType):
    """`text(max_bytes)`: at most so many bytes of UTF-8."""

    kind = "text"
    names = dict.fromkeys(("text", "varchar", "string", "char", "bpchar"), "text")
    families: ClassVar[tuple[str, ...]] = ("string",)
    examples = ("text(25)",)
    sql_types = (SqlType("VARCHAR", 12, 2**31 - 1, quote="'"),)
    arrow_name = "string"
    sources = frozenset(["string", "integer", "boolean"])
    is_text = True
    sql_name: ClassVar[str] = "varchar"

    max_bytes: int = DEFAULT_BYTES

    def __post_init__(self) -> None:
        if not 1 <= self.max_bytes <= MAX_BYTES:
            raise InvalidParameter(
                f"a {self.kind} has 1 to {MAX_BYTES} bytes at most", hint=f"write {self.kind}(25), for example"
            )

    @classmethod
    def of_text(cls, name: str, rest: str) -> Self:
        """Read `(25)`, or nothing for the usual number of bytes."""
        numbers = numbers_in(rest)
        if len(numbers) > 1:
            raise InvalidParameter(f"a {cls.kind} has one number, its most bytes")
        return cls(cls.sql_name, max_bytes=numbers[0]) if numbers else cls(cls.sql_name)

    @property
    def label(self) -> str:
        return f"text({self.max_bytes})"

    @cached_property
    def words(self) -> int:
        """As many words as the bytes need, and one for the length."""
        return -(-self.max_bytes // 8) + 1

    @cached_property
    def width_bytes(self) -> int:
        """The bytes and the length; earlier pages have the words."""
        return self.max_bytes + self._length_bytes if self.narrow else 8 * self.words

    @property
    def _length_bytes(self) -> int:
        return (self.max_bytes.bit_length() + 7) // 8

    def to_page(self, words: NDArray[np.int64]) -> NDArray[Any]:
        if not self.narrow:
            return words
        values = np.empty((len(words), self.width_bytes), np.uint8)
        letters = np.ascontiguousarray((words[:, :-1].view(np.uint64) ^ _TOP).astype(">u8"))
        values[:, : self.max_bytes] = letters.view(np.uint8)[:, : self.max_bytes]
        lengths = np.ascontiguousarray(words[:, -1]).view(np.uint8).reshape(-1, 8)
        values[:, self.max_bytes :] = lengths[:, : self._length_bytes]
        return values

    def from_page(self, raw: NDArray[np.uint8]) -> NDArray[Any]:
        return raw.reshape(-1, self.width_bytes) if self.narrow else super().from_page(raw)

    def widened(self, values: NDArray[Any]) -> NDArray[np.int64]:
        if not self.narrow:
            return values
        letters = np.zeros((len(values), 8 * (self.words - 1)), np.uint8)
        letters[:, : self.max_bytes] = values[:, : self.max_bytes]
        lengths = np.zeros((len(values), 8), np.uint8)
        lengths[:, : self._length_bytes] = values[:, self.max_bytes :]
        words = np.empty((len(values), self.words), np.int64)
        words[:, :-1] = (letters.view(">u8").astype(np.uint64) ^ _TOP).view(np.int64)
        words[:, -1:] = lengths.view(np.int64)
        return words

    def scanned(self, values: NDArray[Any]) -> NDArray[np.int64]:
        return self.widened(values)

    @cached_property
    def full_interval(self) -> Interval:
        letters = self.words - 1
        return (_LEAST_WORD,) * letters + (0,), (_MOST_WORD,) * letters + (self.max_bytes,)

    def _encoded(self, value: object) -> bytes | None:
        """Return the bytes of a value; None if it is none."""
        return utf8(value)

    def _words(self, value: object) -> ValueWords | None:
        encoded = self._encoded(value)
        return None if encoded is None or len(encoded) > self.max_bytes else self._packed(encoded)

    def _packed(self, encoded: bytes, length: int | None = None) -> ValueWords:
        """Return the words of at most `max_bytes` bytes; `length` stands in the last word if it is to be another."""
        letters = self.words - 1
        padded = struct.unpack(f">{letters}Q", encoded.ljust(8 * letters, b"\0"))
        return (*(word + _LEAST_WORD for word in padded), len(encoded) if length is None else length)

    def value_of(self, words: ValueWords) -> Any:
        return unpacked(words)[: words[-1]].decode()

    def _bracket(self, value: object) -> Bracket | None:
        return None  # a text is more than one word: `_compared` does without

    def _compared(self, op: Operator, value: object) -> Interval | None:
        """Compare bytes; of two texts with the same padded bytes the shorter is less, which strict bounds use."""
        encoded = self._encoded(value)
        if encoded is None:
            return None
        least, most = self.full_interval
        cut = encoded[: self.max_bytes]
        exact = self._packed(cut)
        if len(cut) < len(encoded):  # every text of the column that starts like the constant is less than it
            above = (*exact[:-1], len(cut) + 1)
            return self.empty_interval if op == "=" else (least, exact) if op in ("<", "<=") else (above, most)
        low = exact if op in ("=", ">=") else (*exact[:-1], len(cut) + 1) if op == ">" else least
        high = exact if op in ("=", "<=") else (*exact[:-1], len(cut) - 1) if op == "<" else most
        return low, high

    def prefix_interval(self, prefix: str) -> Interval | None:
        encoded = utf8(prefix)
        if encoded is None:
            return None
        if len(encoded) > self.max_bytes:
            return self.empty_interval
        room = 8 * (self.words - 1)
        return self._packed(encoded), self._packed(encoded.ljust(room, b"\xff"), self.max_bytes)

    def like_intervals(
        self, pattern: str, escape: str | None, *, case_insensitive: bool
    ) -> tuple[Interval, ...] | None:
        """Return the interval of a pattern that is a text or a prefix; only DuckDB knows what matches another."""
        parts = None if case_insensitive else pattern_parts(pattern, escape)
        if parts is None:
            return None
        wild = next((at for at, (is_wild, _) in enumerate(parts) if is_wild), len(parts))
        fixed = "".join(letter for _, letter in parts[:wild])
        if any(part != ANY for part in parts[wild:]):
            return None
        pair = self.prefix_interval(fixed) if parts[wild:] else self.interval("=", fixed)
        return None if pair is None else (pair,)

    def comparable_with(self, other: ColumnType) -> bool:
        """Words compare if there are as many."""
        return isinstance(other, TextType) and other.is_text and self.words == other.words

    def _span(self, domain: Domain, low: ValueWords, high: ValueWords) -> tuple[int, int]:
        least, most = self.full_interval
        return domain.span(
            None if low <= least else _text_at_or_before(low), None if high >= most else self._text_at_or_after(high)
        )

    def _text_at_or_after(self, words: ValueWords) -> str:
        """Return a text that no text of the type at or before the upper bound exceeds.

        An upper bound is a text's words; or with less than its length, for what is before it; or filled up with 0xff
        bytes, for what starts like it.
        """
        padded, length = unpacked(words), words[-1]
        letters = padded.rstrip(b"\xff")
        filled = len(letters) < len(padded)
        if filled:
            return self._greatest_from(letters)
        stripped = padded.rstrip(b"\0")
        if len(stripped) <= length:
            exact = padded[:length].ljust(length, b"\0")
            return exact.decode() if _is_whole(exact) else self._greatest_from(exact)
        return self._before(stripped)

    def _greatest_from(self, prefix: bytes) -> str:
        """Return what is at least as great as every text that starts with these bytes, the last of which may be cut."""
        return _valid_part(prefix) + _GREATEST * (self.max_bytes + 1)

    def _before(self, text: bytes) -> str:
        """Return what is less than `text`, and at least as great as every text of the type that is."""
        if not _is_whole(text):
            return self._greatest_from(text)
        whole = text.decode()
        previous = chr(0xD7FF if whole[-1] == "\ue000" else ord(whole[-1]) - 1)
        return whole[:-1] + previous + _GREATEST * (self.max_bytes + 1)

    @classmethod
    def of_arrow(cls, field: Any) -> Self:
        return cls(cls.sql_name)

    def encode(self, column: Column, array: Any, valid: NDArray[np.uint8] | None, first_row: int) -> NDArray[np.int64]:
        """Return the words of strings, whatever stands at the nulls."""
        count, letters = len(array), self.words - 1
        words = np.zeros((count, letters + 1), np.int64)
        if count == 0:
            return words
        self._check(column, array, first_row)
        offsets = np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + count + 1]
        data = array.buffers()[2]
        start, stop = int(offsets[0]), int(offsets[-1])
        padded = np.zeros(stop - start + 8 * letters, np.uint8)
        if stop > start:
            padded[: stop - start] = np.frombuffer(data, np.uint8)[start:stop]
        # The big-endian word that begins at any byte; the padding lets the last text's words be read whole.
        window = np.ndarray((len(padded) - 7,), ">u8", padded, strides=(1,))
        flat = words.view(np.uint64)
        for first in range(0, count, _BLOCK_ROWS):
            block = offsets[first : first + _BLOCK_ROWS + 1].astype(np.int64)
            begins, lengths = block[:-1] - start, block[1:] - block[:-1]
            if lengths.max() > self.max_bytes:
                raise refused(
                    column,
                    first_row + first + int(np.argmax(lengths > self.max_bytes)),
                    f"the {self.kind} is longer than {self.max_bytes} bytes, the most that {self.label} holds",
                    f"declare the column {self.kind}(N), N up to {MAX_BYTES}: it is public, not taken from the data",
                )
            rows = slice(first, first + len(lengths))
            for place in range(letters):
                kept = np.minimum(np.maximum(lengths - 8 * place, 0), 8)
                flat[rows, place] = (window[begins + 8 * place] & _MASKS[kept]) ^ _TOP
            words[rows, letters] = lengths
        return words

    def _check(self, column: Column, array: Any, first_row: int) -> None:
        """Refuse what is no text."""
        _check_utf8(column, array, first_row)

    def decode(self, words: NDArray[Any], valid: NDArray[Any] | None) -> Any:
        import pyarrow as pa

        if words.dtype == np.uint8:
            words = self.widened(words)
        count, letters = len(words), words.shape[1] - 1
        lengths = words[:, letters].clip(0, self.max_bytes)
        offsets = np.zeros(count + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        parts = []
        for first in range(0, count, _BLOCK_ROWS):
            rows = slice(first, first + _BLOCK_ROWS)
            block = np.ascontiguousarray(words[rows, :letters]).view(np.uint64) ^ _TOP
            padded = block.astype(">u8").view(np.uint8).reshape(-1, 8 * letters)
            parts.append(padded[np.arange(8 * letters) < lengths[rows, None]])
        kept = np.concatenate(parts) if parts else np.zeros(0, np.uint8)
        buffers = [bitmap(valid), pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(kept)]
        return pa.Array.from_buffers(self.arrow_type, count, buffers)


def _check_utf8(column: Column, array: Any, first_row: int) -> None:
    import pyarrow as pa

    def check(part: Any) -> None:
        part.validate(full=True)

    try:
        check(array)
    except pa.ArrowInvalid:
        row = first_failure(array, check)
    else:
        return
    raise refused(column, first_row + row, "the text is not valid UTF-8", "correct its encoding")


def utf8(text: object) -> bytes | None:
    """Return the bytes of a string; None if it is none, or no valid Unicode."""
    try:
        return text.encode() if isinstance(text, str) else None
    except UnicodeEncodeError:
        return None


def pattern_parts(pattern: str, escape: str | None) -> list[tuple[bool, str]] | None:
    """Return a LIKE pattern's characters, and whether each is a wildcard; None if the escape is wrong."""
    if escape is not None and len(escape) > 1:
        return None
    parts: list[tuple[bool, str]] = []
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            escaped = next(characters, None)
            if escaped is None:
                return None
            parts.append((False, escaped))
        else:
            parts.append((character in "%_", character))
    return parts


def unpacked(words: ValueWords) -> bytes:
    """Return the padded bytes of a text's words."""
    return struct.pack(f">{len(words) - 1}Q", *(word - _LEAST_WORD for word in words[:-1]))


def _text_at_or_before(words: ValueWords) -> str:
    """Return the greatest text at or before a lower bound that words can spell; cut in a character, the part before."""
    padded, length = unpacked(words), words[-1]
    return _valid_part(padded.ljust(length, b"\0")[: max(0, length)])


def _valid_part(encoded: bytes) -> str:
    """Return the text up to where the bytes stop being UTF-8."""
    try:
        return encoded.decode()
    except UnicodeDecodeError as error:
        return encoded[: error.start].decode()


def _is_whole(encoded: bytes) -> bool:
    return len(_valid_part(encoded).encode()) == len(encoded)


@dataclass(frozen=True, init=False, repr=False)
class StringDomain(ListDomain):
    """All strings, cut at public split points: the rank is the number of splits <= key, by UTF-8 bytes."""

    name: ClassVar[str] = "string"
    example: ClassVar[str] = 'string:LIST, for example string:["d","m","t"]'
    cell_type: ClassVar[str] = "text"
    takes: ClassVar[str] = "strings"
    splits: tuple[str, ...]

    def __init__(self, splits: Sequence[str]) -> None:
        listed = string_list(splits, "split points")
        if listed[0] == "":
            raise DomainPartError(
                "list", "the empty string splits nothing off", item=0, hint="leave it out: rank 0 starts there"
            )
        if len(listed) == MAX_SIZE:
            raise DomainPartError("list", f"there are more than {MAX_SIZE} ranks", hint="use fewer split points")
        self._set(splits=listed)

    @property
    def size(self) -> int:
        return len(self.splits) + 1

    @property
    def text(self) -> str:
        return f"string:{list_text(self.splits)}"

    def key(self, rank: int) -> str:
        return self.splits[rank - 1] if self._checked_rank(rank) else ""

    def _rank_of(self, exact: Any, place: Place) -> int:
        # Python compares strings by code point, which is the order of their UTF-8 bytes.
        return bisect_right(self.splits, exact)

    def _span_of(self, low: Any, high: Any) -> tuple[int, int]:
        if low is not None and high is not None and low > high:
            return EMPTY
        first = 0 if low is None else bisect_right(self.splits, low)
        return first, self.size - 1 if high is None else bisect_right(self.splits, high)
