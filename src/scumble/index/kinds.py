"""The kinds of index that a table can have: how one is made from an order's terms, and how its file is read.

An order names its kind as `mechanism`; all of that is PUBLIC. Known from the start are DP-PLR's two mechanisms alone.
A program for research adds the comparators, `scumble.lab.research`, and nothing else does: so an enclave whose measured
code lacks them neither builds nor reads one.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import NamedTuple

from scumble.errors import FileError, InvalidParameter
from scumble.index import file
from scumble.index.contract import Index, RunIndex, Terms
from scumble.index.dp_plr import DPPLRIndex
from scumble.index.hint import Hint
from scumble.index.plan import Plan
from scumble.index.slack import SlackName
from scumble.index.tally import Tally
from scumble.privacy.budget import Exact

__all__ = ["COMPARATOR_MAGIC", "Asked", "Kind", "decoded", "forget", "is_known", "kind_of", "learn"]

COMPARATOR_MAGIC = b"SCUMBLC\x1a"
"""What the file of a comparator begins with: docs/format.md."""
RESEARCH_HINT = (
    "comparators are for research: `scumble --research`, or scumble.lab.research.enable(); at a service its enclaves "
    "need the option as well"
)


class Asked(NamedTuple):
    """PUBLIC: how an index is to be made."""

    max_bytes: int | None
    slack: SlackName
    alpha_s: Exact | None
    blocks: int
    hint: Hint | None
    plan: Plan | None
    grid: bytes | None = None


class Kind(ABC):
    """A kind of index.

    `has_blocks` if rows can be laid out in as many padded blocks as suit them; `states_delta` if an order states the
    delta that it pays, rather than that its slack has one.
    """

    has_blocks: bool = False
    states_delta: bool = False

    @abstractmethod
    def make(self, asked: Asked) -> Index:
        """An index that is not fitted yet; InvalidParameter if there can be none like that."""

    def check(self, asked: Asked, terms: Terms) -> None:
        """Refuse what a build on these terms would refuse. Nothing is spent."""
        self.make(asked).check(terms)

    @abstractmethod
    def released(self, index: Index) -> RunIndex:
        """What a run's catalog entry holds of an index that was fitted."""

    def tally(self, index: Index) -> Tally | None:
        """What is stored beside the run, so that it can be merged with others; None if it can be as a whole at best."""
        return None


class _DPPLR(Kind):
    def __init__(self, mechanism: str) -> None:
        self.mechanism = mechanism
        self.has_blocks = file.MECHANISMS[mechanism].release_halves is not None

    def make(self, asked: Asked) -> DPPLRIndex:
        return DPPLRIndex(
            max_bytes=asked.max_bytes,
            mechanism=self.mechanism,
            slack=asked.slack,
            alpha_s=asked.alpha_s,
            blocks=asked.blocks,
            hint=asked.hint,
            plan=asked.plan,
            grid=asked.grid,
        )

    def released(self, index: Index) -> RunIndex:
        assert isinstance(index, DPPLRIndex)  # noqa: S101  `make` makes nothing else
        return index.model

    def tally(self, index: Index) -> Tally | None:
        assert isinstance(index, DPPLRIndex)  # noqa: S101  `make` makes nothing else
        return index.tally


_KINDS: dict[str, Kind] = {name: _DPPLR(name) for name in file.MECHANISMS}
_READERS: dict[bytes, Callable[[bytes], RunIndex]] = {}


def learn(kinds: Mapping[str, Kind], magic: bytes, read: Callable[[bytes], RunIndex]) -> None:
    """Know some more kinds, and how their files are read, from now on, in all of this process."""
    _KINDS.update(kinds)
    _READERS[magic] = read


def forget(kinds: Mapping[str, Kind], magic: bytes) -> None:
    """Know them no more."""
    for name in kinds:
        _KINDS.pop(name, None)
    _READERS.pop(magic, None)


def kind_of(mechanism: str) -> Kind:
    """The kind of that name; InvalidParameter if this program knows none."""
    kind = _KINDS.get(mechanism)
    if kind is None:
        raise InvalidParameter(
            "there is no such mechanism here", hint=f"one of {', '.join(map(repr, _KINDS))}; {RESEARCH_HINT}"
        )
    return kind


def is_known(data: bytes) -> bool:
    """Whether this program can read the index of a run."""
    return not data.startswith(COMPARATOR_MAGIC) or COMPARATOR_MAGIC in _READERS


def decoded(data: bytes) -> RunIndex:
    """The index of a run, decoded once for the same bytes; FileError if it is of a kind that this program lacks."""
    if not is_known(data):
        raise FileError("the table has an index of a kind that this program does not know", hint=RESEARCH_HINT)
    read = _READERS.get(data[: len(COMPARATOR_MAGIC)], file.decoded)
    return read(data)
