"""Scumble: an encrypted database with differentially private learned indexes.

create, open                a database in a folder, or at a service: load tables, ask SQL, get exact answers
connect                     the same as a PEP 249 connection, for pandas.read_sql and the like; see scumble.dbapi
Database                    what they return: load, sql, prepare, explain, tables, ledger, check, rekey
IndexSpec, LoadOptions      which indexes a load makes, and how it is done
suggest, Suggestion         a schema for rows that have none, to be read and edited; nothing of it is public
SchemaFile                  the schema as it was declared, for `load(..., schema=)`
PublishedFromData           the warning of a load that was asked to derive its schema from the rows

db = scumble.open("clinic")
db.sql("SELECT count(*), avg(amount) FROM visits WHERE day BETWEEN ? AND ?", (first, last)).df()

And the index on its own:

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

__version__ = "0.2.0.dev0"

# Where each public name is defined. They are imported on use: an enclave process, which starts from this package too,
# then holds nothing but its own code.
_HOMES = {
    "Budget": "scumble.privacy.budget",
    "CategoryDomain": "scumble.types",
    "Connection": "scumble.dbapi",
    "DPPLRIndex": "scumble.index.dp_plr",
    "Database": "scumble.owner.database",
    "DateDomain": "scumble.types",
    "DecimalDomain": "scumble.types",
    "Domain": "scumble.types",
    "ExplicitKeys": "scumble.types",
    "FloatDomain": "scumble.types",
    "IndexSpec": "scumble.owner.indexes",
    "IndexSummary": "scumble.index.summary",
    "IntegerDomain": "scumble.types",
    "Ledger": "scumble.owner.ledger",
    "LoadOptions": "scumble.owner.loading",
    "LoadReport": "scumble.owner.loading",
    "PositionRange": "scumble.index.contract",
    "Prepared": "scumble.owner.database",
    "PublishedFromData": "scumble.owner.suggest",
    "Result": "scumble.owner.answers",
    "SchemaFile": "scumble.owner.schema_file",
    "ScumbleError": "scumble.errors",
    "StringDomain": "scumble.types",
    "Suggestion": "scumble.owner.suggest",
    "TimestampDomain": "scumble.types",
    "connect": "scumble.dbapi",
    "create": "scumble.opening",
    "open": "scumble.opening",
    "parse_domain": "scumble.types",
    "suggest": "scumble.owner.suggest",
}
__all__ = sorted(_HOMES)  # noqa: PLE0605  a list indeed

if TYPE_CHECKING:  # a type checker cannot read the table; tests/test_init.py compares the two
    from scumble.dbapi import Connection as Connection
    from scumble.dbapi import connect as connect
    from scumble.errors import ScumbleError as ScumbleError
    from scumble.index.contract import PositionRange as PositionRange
    from scumble.index.dp_plr import DPPLRIndex as DPPLRIndex
    from scumble.index.summary import IndexSummary as IndexSummary
    from scumble.opening import create as create
    from scumble.opening import open as open  # noqa: A004  as in scumble.open(path)
    from scumble.owner.answers import Result as Result
    from scumble.owner.database import Database as Database
    from scumble.owner.database import Prepared as Prepared
    from scumble.owner.indexes import IndexSpec as IndexSpec
    from scumble.owner.ledger import Ledger as Ledger
    from scumble.owner.loading import LoadOptions as LoadOptions
    from scumble.owner.loading import LoadReport as LoadReport
    from scumble.owner.schema_file import SchemaFile as SchemaFile
    from scumble.owner.suggest import PublishedFromData as PublishedFromData
    from scumble.owner.suggest import Suggestion as Suggestion
    from scumble.owner.suggest import suggest as suggest
    from scumble.privacy.budget import Budget as Budget
    from scumble.types import CategoryDomain as CategoryDomain
    from scumble.types import DateDomain as DateDomain
    from scumble.types import DecimalDomain as DecimalDomain
    from scumble.types import Domain as Domain
    from scumble.types import ExplicitKeys as ExplicitKeys
    from scumble.types import FloatDomain as FloatDomain
    from scumble.types import IntegerDomain as IntegerDomain
    from scumble.types import StringDomain as StringDomain
    from scumble.types import TimestampDomain as TimestampDomain
    from scumble.types import parse_domain as parse_domain


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
