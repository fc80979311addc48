"""Charges: what was paid for which batch, kept in the sealed part of a version before any noise of it is drawn.

A client states them when it pays for a load; whoever opens a later version reads from them what was spent, on whatever
device. The owner and the enclave see all of them, an analyst sees its own grant's, the provider sees none.
"""

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Self

from scumble.errors import InvalidParameter
from scumble.wire.messages import from_fields, to_fields

__all__ = ["CAPACITY", "STREAM", "Charge"]

CAPACITY = "capacity"
"""What a charge calls the drawing of a capacity; every other name but the next is an indexed column's."""
STREAM = "(stream)"
"""What a charge calls the sizes and times of all batches of a stream. Its batch is no batch, but names the stream."""

_BATCH = re.compile("[0-9a-f]{32}")
_MOST_BITS = 4096  # of an amount's two parts: the exact amounts that a ledger takes


@dataclass(frozen=True)
class Charge:
    """What one release of a load costs one user: the index on the column `what` of a batch, or its "capacity".

    `table` is the table's id. `new_rows` is the loader's statement that no row of the batch, nor an older state of it,
    is in another batch of the table. `grant` is the id of the grant that paid, None if the owner did.
    """

    batch: str
    table: str
    what: str
    epsilon: Fraction
    delta: Fraction
    rows_per_user: int
    new_rows: bool
    grant: str | None = None

    def __post_init__(self) -> None:
        if not _BATCH.fullmatch(self.batch):
            raise InvalidParameter("a batch has 32 hexadecimal digits", hint="upgrade Scumble")
        if min(self.epsilon, self.delta) < 0 or self.delta >= 1 or self.rows_per_user < 1:
            raise InvalidParameter(
                "a charge is not negative, its delta below 1, and a user has at least one row", hint="epsilon=1"
            )
        parts = (part for amount in (self.epsilon, self.delta) for part in amount.as_integer_ratio())
        if max(part.bit_length() for part in parts) > _MOST_BITS:
            raise InvalidParameter("a charge has too many digits", hint="epsilon=1")

    def to_json(self) -> dict[str, Any]:
        return to_fields(self)

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Self:
        """The inverse; InvalidParameter if a field is missing, superfluous or something else."""
        return from_fields(cls, fields)
