"""Comparators as files: versioned, checksummed, read back to the bit. docs/format.md describes every byte.

What a file holds is public if the index is: numbers and arrays that were released, the domain, and the terms. Of the
exact index that is every count, so its file is as SECRET as the rows. The checksum finds accidents, not adversaries.
"""

import json
import struct
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from hashlib import sha256
from os import PathLike
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from scumble.errors import Corrupt, DomainError, InvalidParameter, NewerVersion
from scumble.index.blocks import Blocks
from scumble.index.contract import Index, Positions, Terms
from scumble.index.curve import MAX_ROWS
from scumble.index.file import packed_domain, read_file, unpacked_domain, write_file
from scumble.index.kinds import COMPARATOR_MAGIC
from scumble.privacy.budget import from_ratio, ratio
from scumble.types import Domain, parse_domain

__all__ = ["SavedIndex", "State", "decode", "encode"]

MAGIC = COMPARATOR_MAGIC
VERSION = 1
HEAD = struct.Struct("<BI")  # version, length of the header
CHECKSUM_BYTES = 8
MOST_POSITIONS = 2**62  # the leaves of a tree may hold more dummies than any table has rows
TYPES = {"i8": np.dtype("<i8"), "f8": np.dtype("<f8")}


@dataclass(frozen=True, eq=False)
class State:
    """What an index keeps: whole numbers and arrays of 64 bits, by name."""

    numbers: Mapping[str, int] = field(default_factory=dict)
    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    def number(self, name: str, least: int = 0, most: int = MAX_ROWS) -> int:
        """A number of a file; ValueError if it cannot be."""
        value = self.numbers[name]
        if type(value) is not int or not least <= value <= most:
            raise ValueError("an impossible number")
        return value

    def whole(self, name: str, length: int) -> NDArray[np.int64]:
        """An array of so many whole numbers; ValueError if it is another."""
        found = self.arrays[name]
        if found.dtype != np.int64 or len(found) != length:
            raise ValueError("an array of another length or type")
        return found

    def real(self, name: str, length: int) -> NDArray[np.float64]:
        """An array of so many finite numbers; ValueError if it is another."""
        found = self.arrays[name]
        if found.dtype != np.float64 or len(found) != length or not np.isfinite(found).all():
            raise ValueError("an array of another length or type")
        return found


class SavedIndex(Index):
    """An index that can be saved and loaded. `kind` names it in files, so it never changes.

    `needs_delta` if epsilon alone does not pay for it; `numbers_per_rank` of the domain are in its file.
    """

    kind: ClassVar[str]
    needs_delta: ClassVar[bool] = False
    numbers_per_rank: ClassVar[int] = 0

    def chance_of_loss(self, beta: Fraction) -> Fraction:
        """The chance that any lookup loses a row, if it was fitted with this beta: 1 if it promises nothing."""
        return Fraction(1)

    @property
    @abstractmethod
    def usual_slack(self) -> int:
        """What each end of a lookup is widened by, on average."""

    def most_dummies(self, terms: Terms) -> int:
        """About how many dummies rows need to lie as they have to."""
        return 0

    @property
    def leaves(self) -> Blocks | None:
        """Where rows have to lie, if not as they are sorted."""
        return None

    def extra_rows(self, ranks: Sequence[tuple[int, int]], lookups: int) -> int:
        """About how many rows beyond their answers so many lookups read, those of these ranges of ranks among them."""
        return 2 * self.usual_slack * lookups

    @abstractmethod
    def _state(self) -> State:
        """What to keep of a fitted index."""

    @classmethod
    @abstractmethod
    def _restored(cls, domain: Domain, state: State, terms: Terms | None) -> tuple[Self, Positions]:
        """An index made of what was kept, and its positions; ValueError or KeyError if nothing like it was."""

    def save(self, path: str | PathLike[str]) -> None:
        """Write a file from which `load` reads the index."""
        write_file(path, encode(self))

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Read an index of this kind; `comparators.load` reads any."""
        index = decode(read_file(path), {cls.kind: cls})
        assert isinstance(index, cls)  # noqa: S101  no other kind was offered
        return index


def encode(index: SavedIndex) -> bytes:
    """The file of a fitted index."""
    positions, terms, state = index.positions, index._terms, index._state()
    domain, keys = packed_domain(positions.domain)
    header = {
        "kind": index.kind,
        "domain": domain,
        "key_bytes": len(keys),
        "terms": None if terms is None else _terms_text(terms),
        "numbers": dict(state.numbers),
        "arrays": [[name, _type_of(array), len(array)] for name, array in state.arrays.items()],
    }
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    arrays = [array.astype(TYPES[_type_of(array)]).tobytes() for array in state.arrays.values()]
    body = b"".join([MAGIC, HEAD.pack(VERSION, len(text)), text, keys, *arrays])
    return body + sha256(body).digest()[:CHECKSUM_BYTES]


def decode(data: bytes, kinds: Mapping[str, type[SavedIndex]]) -> SavedIndex:
    """The index of a file, if it is of one of these kinds; Corrupt or NewerVersion otherwise."""
    if data[: len(MAGIC)] != MAGIC:
        raise Corrupt("this is no file of a comparator", hint="`save` writes one; DPPLRIndex has files of its own")
    if len(data) > len(MAGIC) and data[len(MAGIC)] > VERSION:
        raise NewerVersion(
            f"this file has format version {data[len(MAGIC)]}; this Scumble reads up to {VERSION}",
            hint="upgrade Scumble",
        )
    body, checksum = data[:-CHECKSUM_BYTES], data[-CHECKSUM_BYTES:]
    if sha256(body).digest()[:CHECKSUM_BYTES] != checksum:
        raise Corrupt("this file is truncated or altered", hint="restore it from a copy")
    try:
        header, rest = _parsed(body[len(MAGIC) :])
        kind = kinds.get(header["kind"])
        if kind is not None:
            return _restored(kind, header, rest)
    except (struct.error, ValueError, KeyError, TypeError, IndexError, DomainError, InvalidParameter) as error:
        raise Corrupt("this file's parts do not fit together", hint="restore it from a copy") from error
    raise Corrupt("this file holds another kind of index", hint=f"this reads {', '.join(kinds)}")


def _parsed(body: bytes) -> tuple[dict[str, Any], bytes]:
    version, length = HEAD.unpack_from(body)
    if version != VERSION or length > len(body) - HEAD.size:
        raise ValueError("an impossible header")
    header = json.loads(body[HEAD.size : HEAD.size + length])
    if not isinstance(header, dict) or not isinstance(header["kind"], str):
        raise ValueError("an impossible header")
    return header, body[HEAD.size + length :]


def _restored(kind: type[SavedIndex], header: dict[str, Any], rest: bytes) -> SavedIndex:
    key_bytes = header["key_bytes"]
    if key_bytes:
        domain, taken = unpacked_domain(header["domain"], rest[:key_bytes])
        if taken != key_bytes:
            raise ValueError("a list of another length")
    else:
        domain = parse_domain(header["domain"])
    at, arrays = key_bytes, {}
    for name, form, count in header["arrays"]:
        size = 8 * count
        if type(count) is not int or not 0 <= size <= len(rest) - at:
            raise ValueError("an array of another length")
        arrays[name] = np.frombuffer(rest[at : at + size], TYPES[form]).astype(TYPES[form].newbyteorder("="))
        at += size
    if at != len(rest):
        raise ValueError("more than was saved")
    terms = None if header["terms"] is None else _terms(domain, header["terms"])
    index, positions = kind._restored(domain, State(header["numbers"], arrays), terms)
    index._positions, index._terms = positions, terms
    return index


def _type_of(array: NDArray[Any]) -> str:
    return "i8" if array.dtype == np.int64 else "f8"


def _terms_text(terms: Terms) -> list[Any]:
    numbers = (terms.epsilon, terms.delta, terms.beta, terms.charged_epsilon, terms.charged_delta)
    return [*map(ratio, numbers), terms.capacity]


def _terms(domain: Domain, texts: list[Any]) -> Terms:
    *numbers, capacity = texts
    if capacity is not None and (type(capacity) is not int or not 1 <= capacity <= MAX_ROWS):
        raise ValueError("an impossible capacity")
    epsilon, delta, beta, charged_epsilon, charged_delta = map(from_ratio, numbers)
    return Terms(domain, epsilon, delta, beta, capacity, charged_epsilon, charged_delta)
