"""Orders: the indexes that a load is asked to build, held against all that a build could refuse, and their copies.

Everything here is PUBLIC and comes from whoever loads, who may be an analyst and lie. An order that could not be built
is refused when the load begins: before a row is sent, and before anything is paid.
"""

from collections.abc import Sequence
from typing import NamedTuple

from scumble.errors import InvalidParameter
from scumble.index.blocks import suitable_blocks
from scumble.index.contract import Index, Terms, check_beta, check_row_epsilon
from scumble.index.curve import MAX_ROWS
from scumble.index.hint import Hint
from scumble.index.kinds import Asked, kind_of
from scumble.index.plan import USUAL, Plan
from scumble.privacy.budget import Budget, unsafe_budget
from scumble.types import Schema
from scumble.wire.requests import IndexOrder

__all__ = ["Copy", "blocks_of", "check_orders", "copies_of", "index_of", "paid_budget"]


class Copy(NamedTuple):
    """A copy of a batch's rows: what it is sorted by, None for the order of loading, and its columns' places.

    None for the columns stands for all of them.
    """

    attribute: str | None
    columns: tuple[int, ...] | None


def copies_of(schema: Schema, orders: Sequence[IndexOrder]) -> tuple[Copy, ...]:
    """The copies that a load makes: one for each order and, unless one of these has every column, one that has.

    InvalidParameter or NotFound if an order names columns that there are not, one twice, or not its own.
    """
    copies = tuple(Copy(order.attribute, _columns_of(schema, order)) for order in orders)
    has_all = any(copy.columns is None for copy in copies)
    return copies if has_all else (*copies, Copy(None, None))


def _columns_of(schema: Schema, order: IndexOrder) -> tuple[int, ...] | None:
    names = order.columns
    if names is None:
        return None
    if len(set(names)) < len(names) or order.attribute not in names or any(schema[n].name != n for n in names):
        raise InvalidParameter(
            "an index's columns are its own and others, each once and under its name", hint="columns=day,ward"
        )
    return None if len(names) == len(schema) else tuple(sorted(map(schema.place, names)))


def check_orders(orders: Sequence[IndexOrder]) -> None:
    """InvalidParameter if an index could not be built, of however many rows: nothing has been spent yet."""
    for order in orders:
        paid, beta = paid_budget(order), check_beta(order.beta)
        check_row_epsilon(paid.row_epsilon)
        some_rows = 1
        terms = Terms(order.domain, paid.row_epsilon, paid.row_delta, beta, some_rows, paid.epsilon, paid.delta)
        # More blocks leave less room for each and fewer cost no more: between the two all can be built.
        for blocks in {order.blocks if order.blocks is not None else 1, blocks_of(order, MAX_ROWS, nullable=False)}:
            kind_of(order.mechanism).check(_asked(order, blocks), terms)


def paid_budget(order: IndexOrder) -> Budget:
    """What the owner's ledger has drawn for an index."""
    return unsafe_budget(order.epsilon, delta=order.delta, label=order.attribute, rows_per_user=order.rows_per_user)


def index_of(order: IndexOrder, blocks: int) -> Index:
    """An index on an order's terms, not fitted yet; InvalidParameter if it is of a kind that this enclave lacks."""
    return kind_of(order.mechanism).make(_asked(order, blocks))


def _asked(order: IndexOrder, blocks: int) -> Asked:
    hint = None if order.hint is None else Hint.unpacked(order.hint, order.domain.size)
    plan = None if order.plan is None else Plan.parse(order.plan)
    return Asked(order.max_bytes, order.slack, order.alpha_s, blocks, hint, plan, order.grid)


def blocks_of(order: IndexOrder, capacity: int, *, nullable: bool) -> int:
    """As many blocks as were asked for, or as suit what is public of the rows."""
    if order.blocks is not None or not kind_of(order.mechanism).has_blocks or order.slack == "paper":
        return order.blocks or 1
    epsilon = order.epsilon / order.rows_per_user
    plan = USUAL if order.plan is None else Plan.parse(order.plan)
    terms = order.domain.size, capacity, epsilon, order.beta, order.max_bytes
    return suitable_blocks(*terms, nullable=nullable, plan=plan)
