"""What every key domain promises: keys come in, ranks 0..size-1 go out.

A domain is public, the keys it maps are secret, and so is every rank of a loaded key.
"""

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

from scumble.domain.refusals import Place
from scumble.errors import DomainError, InvalidParameter

EMPTY = (0, -1)
"""The canonical span of a query that no rank answers."""

MAX_SIZE = 2**26
"""A domain with more keys than this gets a coarser public step: `width` keys share a rank."""

SHOWN = 60  # characters of a domain's text that an error message shows


class DomainPartError(DomainError):
    """A domain that cannot be, and which part of its text is to blame; `parse_domain` underlines it."""

    def __init__(self, part: str, message: str, *, hint: str | None = None, item: int | None = None) -> None:
        super().__init__(message, hint=hint)
        self.part = part
        self.item = item


class Domain(ABC):
    """A public, exact, monotone map from keys to the ranks 0..size-1."""

    @property
    @abstractmethod
    def size(self) -> int:
        """The number of ranks, N."""

    @property
    @abstractmethod
    def text(self) -> str:
        """The canonical text, which `parse_domain` reads back to an equal domain."""

    @property
    def is_list(self) -> bool:
        """Whether the domain carries an explicit public list, so that its text can be long."""
        return False

    @property
    def width(self) -> int:
        """How many neighbouring steps share one rank: 1 unless the domain is larger than `MAX_SIZE`."""
        return 1

    @abstractmethod
    def rank(self, key: object) -> int:
        """Return the rank of one key; raise `OutOfDomain` or `InvalidKeys`."""

    @abstractmethod
    def ranks(self, keys: object) -> NDArray[np.int64]:
        """Return the rank of every key of a numpy, Arrow or pandas column, a sequence or a scalar."""

    @abstractmethod
    def span(self, low: object, high: object) -> tuple[int, int]:
        """Return the first and last rank of the query low <= key <= high, clipped; None is open-ended.

        A query that no rank answers gives `(0, -1)`.
        """

    @abstractmethod
    def spans(self, lows: object, highs: object) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return `span` for many queries at once.

        None in place of a whole column is open-ended; a null inside a column is refused, since there it is
        more often missing data than an open end.
        """

    @abstractmethod
    def key(self, rank: int) -> object:
        """Return the smallest key of a rank."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}<{self.label}>"

    @property
    def label(self) -> str:
        """The text, cut to what fits in a message."""
        text = self.text
        return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."

    def _checked_rank(self, rank: int) -> int:
        if not 0 <= rank < self.size:
            raise InvalidParameter(
                f"there is no such rank in the domain {self.label}", hint=f"ranks are 0 to {self.size - 1}"
            )
        return int(rank)


KEY = Place("the key")
KEYS = Place("the keys")
LOW = Place("the lower bound", query=True)
HIGH = Place("the upper bound", query=True)
