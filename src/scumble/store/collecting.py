"""Collecting: manifests of old versions come in, and only their links stay, many of them in one pack.

The newest manifests are kept whole, for slow readers and for whoever wants to know what a version had. Of those before,
the chain needs nothing but the signed links (`wire/links.py`), some 100 bytes each. A pack is durable before the first
manifest that it stands for is deleted, so that each version can be read as the one or the other at any time. Nothing
that a pack could not give back as it was is ever collected: versions of release 0.1, which nobody signed, stay whole.
"""

from collections.abc import Callable, Iterator, Sequence, Sized
from typing import Protocol

from scumble.errors import InvalidParameter, NotFound
from scumble.wire.lineage import Link
from scumble.wire.links import in_packs, last_stated, unpack_links

__all__ = ["KEPT", "MOST_AT_ONCE", "Due", "LinkPacks", "Packs", "check_kept"]

KEPT = 32
"""How many of the newest manifests are kept whole, unless somebody says otherwise."""

MOST_AT_ONCE = 1024
"""How many versions a commit collects at most: a database that never was collected is caught up with bit by bit."""


def check_kept(keep: int) -> int:
    """The number, or InvalidParameter: the head itself is always whole."""
    if type(keep) is not int or keep < 1:
        raise InvalidParameter("at least the newest version has to be kept whole", hint="keep 1 or more")
    return keep


class Due:
    """When to collect: whenever twice as many are whole as are to be kept, so that each commit pays little for it."""

    def __init__(self) -> None:
        self._whole: int | None = None

    def is_due(self, whole: Callable[[], Sized], keep: int) -> bool:
        """Whether it is time, after one more commit. Which versions are `whole` is asked for once, and then counted."""
        self._whole = len(whole()) if self._whole is None else self._whole + 1
        return self._whole >= 2 * keep

    def done(self, collected: int, keep: int) -> None:
        """So many were collected. What is left but for a rest can't be, and is tried again with the next ones only."""
        self._whole = (self._whole or 0) - collected if collected == MOST_AT_ONCE else keep


class Packs(Protocol):
    """Where packs are kept, each by the first version in it."""

    def __iter__(self) -> Iterator[int]:
        """The first versions of all packs."""

    def __getitem__(self, first: int) -> bytes:
        """A pack."""

    def __setitem__(self, first: int, pack: bytes) -> None:
        """Keep a pack, durably, in the place of the one that is there: all of it or nothing."""


class LinkPacks:
    """The links of collected versions. Any number may read them; only the writer adds some."""

    def __init__(self, packs: Packs) -> None:
        self._packs = packs

    def holding(self, version: int) -> bytes:
        """The pack that has this version's link; NotFound if none has."""
        first = max((first for first in self._packs if first <= version), default=0)
        if first:
            pack = self._packs[first]
            if version <= last_stated(pack):
                return pack
        raise NotFound("there is no such version of the database", hint="`scumble check` shows what there is")

    def last(self) -> int:
        """The last version that is in a pack; 0 if none is."""
        first = max(self._packs, default=0)
        return last_stated(self._packs[first]) if first else 0

    def add(self, links: Sequence[Link]) -> set[int]:
        """Pack links, of ascending versions; the versions of those that are in a pack now, just as they are here."""
        last = max(self._packs, default=0)
        newest = self._packs[last] if last else b""
        end = last_stated(newest) if newest else 0
        new = [link for link in links if link.draft.version > end]
        for first, pack in in_packs(new, newest):
            self._packs[first] = pack
        again = [link for link in links if link.draft.version <= end]  # a crash came before these were deleted
        return {link.draft.version for link in new} | {link.draft.version for link in again if self._has(link)}

    def _has(self, link: Link) -> bool:
        try:
            return link in unpack_links(self.holding(link.draft.version))
        except NotFound:
            return False
