"""Scumble: an encrypted database with differentially private learned indexes.

create, open                a database in a folder, or at a service: load tables, ask SQL, get exact answers
connect                     the same as a PEP 249 connection, for pandas.read_sql and the like; see scumble.dbapi
Database                    what they return: load, sql, prepare, explain, tables, ledger, check, rekey
IndexSpec, LoadOptions      which indexes a load makes, and how it is done

db = scumble.open("clinic")
db.sql("SELECT count(*), avg(amount) FROM visits WHERE day BETWEEN ? AND ?", (first, last)).df()

And the index by itself:

Ledger                      the privacy budget: limit it, spend it, see what remains
DPPLRIndex                  fit a column's index, look keys up, save, load, plot
PositionRange               what a lookup returns: positions start..stop-1 of the sorted rows
IntegerDomain, DecimalDomain, DateDomain, TimestampDomain,
FloatDomain, CategoryDomain, ExplicitKeys, StringDomain
                            what keys there can be, which is public
parse_domain                the same from text, such as "int:0:1048575"
ScumbleError                the root of every error raised on purpose (scumble.errors has the tree)

ledger = Ledger(limit=2)
index = DPPLRIndex(max_bytes=4096).fit(
    keys, domain=IntegerDomain(0, 2**20 - 1), budget=ledger.spend(1, "salary"), beta=1e-6
)
index.lookup(30_000, 40_000)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scumble.errors import ScumbleError
    from scumble.index.contract import PositionRange
    from scumble.index.dp_plr import DPPLRIndex
    from scumble.index.summary import IndexSummary
    from scumble.opening import connect, create, open  # noqa: A004  as in scumble.open(path)
    from scumble.owner.answers import Result
    from scumble.owner.database import Database, Prepared
    from scumble.owner.dbapi import Connection
    from scumble.owner.indexes import IndexSpec
    from scumble.owner.ledger import Ledger
    from scumble.owner.loading import LoadOptions, LoadReport
    from scumble.privacy.budget import Budget
    from scumble.types import (
        CategoryDomain,
        DateDomain,
        DecimalDomain,
        Domain,
        ExplicitKeys,
        FloatDomain,
        IntegerDomain,
        StringDomain,
        TimestampDomain,
        parse_domain,
    )

__version__ = "0.1.0"

__all__ = [
    "Budget",
    "CategoryDomain",
    "Connection",
    "DPPLRIndex",
    "Database",
    "DateDomain",
    "DecimalDomain",
    "Domain",
    "ExplicitKeys",
    "FloatDomain",
    "IndexSpec",
    "IndexSummary",
    "IntegerDomain",
    "Ledger",
    "LoadOptions",
    "LoadReport",
    "PositionRange",
    "Prepared",
    "Result",
    "ScumbleError",
    "StringDomain",
    "TimestampDomain",
    "connect",
    "create",
    "open",
    "parse_domain",
]

# Imported on use: an enclave process, which starts from this package too, then holds nothing but its own code.
_NAMES: dict[str, tuple[str, ...]] = {
    "scumble.types": (
        "CategoryDomain",
        "DateDomain",
        "DecimalDomain",
        "Domain",
        "ExplicitKeys",
        "FloatDomain",
        "IntegerDomain",
        "StringDomain",
        "TimestampDomain",
        "parse_domain",
    ),
    "scumble.errors": ("ScumbleError",),
    "scumble.index.dp_plr": ("DPPLRIndex",),
    "scumble.index.contract": ("PositionRange",),
    "scumble.index.summary": ("IndexSummary",),
    "scumble.opening": ("connect", "create", "open"),
    "scumble.owner.database": ("Database", "Prepared"),
    "scumble.owner.dbapi": ("Connection",),
    "scumble.owner.indexes": ("IndexSpec",),
    "scumble.owner.loading": ("LoadOptions", "LoadReport"),
    "scumble.owner.answers": ("Result",),
    "scumble.owner.ledger": ("Ledger",),
    "scumble.privacy.budget": ("Budget",),
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
