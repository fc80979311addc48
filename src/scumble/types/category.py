"""Categories, `category:["a","b","c"]`: strings come in, places in a public sorted list go out.

The list is public, keys and ranks are secret; the search is for the owner's side.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from scumble.types.domain import KEY, KEYS, Place, unlisted
from scumble.types.keys import read_column
from scumble.types.listed import ListDomain, list_text, search_span, string_list, text_ranks


@dataclass(frozen=True, init=False, repr=False)
class CategoryDomain(ListDomain):
    """A public, sorted list of distinct strings."""

    takes: ClassVar[str] = "strings"
    values: tuple[str, ...]
    _places: dict[str, int] = field(compare=False)

    def __init__(self, values: Sequence[str]) -> None:
        object.__setattr__(self, "values", string_list(values, "categories"))
        object.__setattr__(self, "_places", {value: rank for rank, value in enumerate(self.values)})

    @property
    def size(self) -> int:
        """The number of categories."""
        return len(self.values)

    @property
    def text(self) -> str:
        """The canonical text."""
        return f"category:{list_text(self.values)}"

    def key(self, rank: int) -> str:
        """Return the category of a rank."""
        return self.values[self._checked_rank(rank)]

    def rank(self, key: object) -> int:
        """Return the place of one category in the list."""
        return self._rank_of_plain(self._plain(key, KEY), KEY)

    def ranks(self, keys: object) -> NDArray[np.int64]:
        """Return the place of every category in the list."""
        return text_ranks(read_column(keys, KEYS), self._rank_of_plain, self._plain)

    def _rank_of_plain(self, key: Any, place: Place) -> int:
        rank = self._places.get(key)
        if rank is None:
            raise unlisted(place, self.label)
        return rank

    def _span_of_plain(self, low: Any, high: Any) -> tuple[int, int]:
        return search_span(self.values, low, high)
