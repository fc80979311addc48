"""Repeats: whether rows that are about to be loaded were loaded, or paid for, before. It is the owner's own knowledge.

In comes the keyed digest of the rows and of the terms; out goes the batch whose load this one finishes, if that had
drawn its noise and is not in the table. Noise is a function of the owner's key, the batch, the terms and the rows, so
the retry gives the same release and costs nothing more. Rows that are in the table already are refused.
"""

import hmac
import json
from collections.abc import Collection, Sequence

from scumble.errors import Exists
from scumble.index.dp_plr import DESIGN
from scumble.owner.ledger import Content, Ledger, RecordedBudget, RetriedBudget, Spend
from scumble.privacy.budget import exact
from scumble.types import Schema
from scumble.wire.messages import to_fields
from scumble.wire.requests import IndexOrder

__all__ = ["can_retry", "content_digest", "lost_table", "paid_again", "terms_of", "unfinished"]


SINCE = ("columns", "hint", "plan", "grid")


def content_digest(key: bytes, schema: Schema, rows: bytes) -> str:
    """SECRET: a schema and the digest of rows of it, under a key that only their owner has.

    How wide values and nulls are stored is left out: it does not change the rows.
    """
    columns = schema.to_json()
    for column in columns:
        column.pop("null_bits", None)
        column["type"].pop("narrow", None)
    return hmac.digest(key, json.dumps(columns).encode() + rows, "sha256").hex()


def terms_of(orders: Sequence[IndexOrder], spends: Sequence[Spend], capacity: int | None, page_rows: int) -> str:
    """A digest of everything besides the rows that the releases of a load depend on.

    What an order may say since then and does not is left out: so a load that was left unfinished is known again.
    """
    costs = [[str(exact(s.epsilon, "epsilon")), str(exact(s.delta, "delta")), s.rows_per_user] for s in spends]
    stated = [
        {name: value for name, value in to_fields(order).items() if name not in SINCE or value is not None}
        for order in orders
    ]
    content = {"orders": stated, "costs": costs, "capacity": capacity, "page_rows": page_rows}
    content["design"] = DESIGN
    return hmac.digest(b"scumble terms v1", json.dumps(content).encode(), "sha256").hex()


def can_retry(ledger: Ledger, table_id: str, shown: Collection[str], terms: str) -> bool:
    """Whether a load on these terms may turn out to be one that was drawn and is not in the table."""
    contents = ledger.contents(table_id)
    return any(contents[batch].terms == terms for batch in _lost(ledger, table_id, shown) if batch in contents)


def _lost(ledger: Ledger, table_id: str, shown: Collection[str]) -> list[str]:
    """The batches of a table that were drawn and are not among those `shown`."""
    drawn = (entry.batch for entry in ledger.loads() if entry.table_id == table_id and entry.state == "drawn")
    return [batch for batch in dict.fromkeys(drawn) if batch not in shown]


def unfinished(ledger: Ledger, table_id: str, shown: Collection[str], content: Content, *, again: bool) -> str | None:
    """The batch of the same rows and terms that was drawn and is not among those `shown`; None if there is none.

    Exists if the rows are in the table, or were released on other terms, unless they shall be loaded `again`.
    """
    same = {batch: each for batch, each in ledger.contents(table_id).items() if each.rows == content.rows}
    lost = [batch for batch in _lost(ledger, table_id, shown) if batch in same]
    for batch in lost:
        if same[batch] == content:
            return batch
    if again:
        return None
    if any(batch in shown for batch in same):
        raise Exists(
            "these very rows are in the table already; nothing was loaded or spent",
            hint="if they shall be there twice, say --again (again=True); the cost then adds up",
        )
    if lost:
        raise Exists(
            "these very rows were released before on other terms, and are not in the table; nothing was loaded",
            hint="give the same indexes and capacity as then, which is free, or pay for them --again (again=True)",
        )
    return None


def paid_again(ledger: Ledger, batch: str, spends: Sequence[Spend]) -> tuple[RecordedBudget, ...]:
    """The budgets of an unfinished batch, which may be drawn again; what it has not paid for yet is paid now."""
    paid = {entry.partition: entry for entry in ledger.loads() if entry.batch == batch}
    named = [spend._replace(partition=(spend.partition[0], batch)) for spend in spends if spend.partition is not None]
    missing = [spend for spend in named if spend.partition not in paid]
    fresh = dict(zip((spend.partition for spend in missing), ledger.spend_all(missing), strict=True))
    return tuple(
        fresh[spend.partition] if spend.partition in fresh else RetriedBudget(ledger, paid[spend.partition])
        for spend in named
    )


def lost_table(ledger: Ledger, name: str, shown: Collection[str], rows_per_user: Collection[int]) -> str | None:
    """The id of a table of this name that never came to be, although something of its rows was drawn: to be used again.

    None of its batches may count as settled: of a table that was dropped, they do.
    """
    loads = ledger.loads()
    settled = {entry.table_id for entry in loads if ledger.is_settled(entry.id)}
    ids = [
        entry.table_id
        for entry in loads
        if entry.table_name.lower() == name.lower() and entry.state == "drawn" and entry.rows_per_user in rows_per_user
    ]
    return next((each for each in reversed(ids) if each not in settled and each not in shown), None)
