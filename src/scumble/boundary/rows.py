"""Rows on their way from the owner to the enclave: a matrix of int64 words, one row of it for each row of the table.

SECRET, and sealed on its way. A row is the words of its columns one after the other; then, if any column is nullable,
bits that say which are not null, 64 to a word; then for each indexed attribute the rank of its key. A null key has the
rank `domain.size`, and a dummy row the rank `domain.size + 1` in every index, so that after sorting the nulls follow
all keys, and the dummies, all zeros otherwise, come last, as they are sent.
"""

from dataclasses import dataclass
from functools import cached_property

from scumble.schema import Schema

__all__ = ["RowLayout"]


@dataclass(frozen=True)
class RowLayout:
    """PUBLIC: where in a row its parts stand; `index_sizes` are those of the indexed attributes' domains, in order."""

    schema: Schema
    index_sizes: tuple[int, ...]

    @cached_property
    def column_offsets(self) -> tuple[int, ...]:
        """The first word of every column."""
        offsets, at = [], 0
        for column in self.schema:
            offsets.append(at)
            at += column.type.words
        return tuple(offsets)

    @cached_property
    def validity_offset(self) -> int:
        """The first word of validity bits: bit c % 64 of word c // 64 is 1 if column c is not null."""
        return sum(column.type.words for column in self.schema)

    @cached_property
    def key_offset(self) -> int:
        """The rank in the first index; the others follow."""
        nullable = any(column.nullable for column in self.schema)
        return self.validity_offset + nullable * -(-len(self.schema) // 64)

    @cached_property
    def words(self) -> int:
        """How many words a row takes."""
        return self.key_offset + len(self.index_sizes)

    def dummy_keys(self) -> tuple[int, ...]:
        """The key words of a dummy row."""
        return tuple(size + 1 for size in self.index_sizes)
