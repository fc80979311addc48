"""Where the rows of a run go: sorted by their keys, in the padded blocks that its index has.

The index and the capacity are PUBLIC; where a block's dummies lie is SECRET, and so are the rows that are written to.
"""

from dataclasses import dataclass

import numpy as np

from scumble.enclave import kernels
from scumble.enclave.dummies import Dummies
from scumble.enclave.kernels import Words
from scumble.index.contract import RunIndex

__all__ = ["Placed", "placed"]


@dataclass(frozen=True, eq=False)
class Placed:
    """An index, and where the rows of its run go: PUBLIC the first two, SECRET the others."""

    index: RunIndex
    capacity: int
    dummies: Dummies
    filled: Words

    def write_keys(self, chunk: Words, key_word: int, seen: Words) -> None:
        """Write into rows what they are sorted by."""
        blocks, ranks = self.index.blocks, self.index.domain.size
        sorted_as = np.zeros(len(self.filled), np.int64)
        if blocks is not None:
            sorted_as[:] = 2 * blocks.bounds[1::2] - 1  # after the last rank of its first half
        kernels.place_rows(chunk, key_word, ranks, self.filled, sorted_as, seen)


def placed(index: RunIndex, counts: Words, real_rows: int, sent_rows: int, page_rows: int, *, nullable: bool) -> Placed:
    """Where the rows of a run go. With blocks there is room for them, and for as many rows as were sent after them.

    Rows without a key follow the last block. How many there are is secret, so there is room for as many as there
    could be: as many rows as were sent, and the dummies of the blocks, of each at most twice its slack.
    """
    blocks = index.blocks
    if blocks is None:
        capacity = -(-sent_rows // page_rows) * page_rows
        return Placed(index, capacity, Dummies.after(real_rows), np.zeros(0, np.int64))
    capacity = max(blocks.rows, sent_rows + 2 * int(blocks.slacks.sum()) if nullable else sent_rows)
    capacity = -(-capacity // page_rows) * page_rows
    layout = blocks.lay_out(counts, capacity - real_rows)
    return Placed(index, capacity, Dummies.between(blocks, layout, real_rows), layout.filled)
