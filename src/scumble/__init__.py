"""Scumble: differentially private learned indexes for encrypted databases.

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

from scumble.domain import (
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
from scumble.errors import ScumbleError
from scumble.index.dp_plr import DPPLRIndex
from scumble.index.positions import PositionRange
from scumble.index.summary import IndexSummary
from scumble.privacy.ledger import Budget, Ledger

__version__ = "0.1.0"

__all__ = [
    "Budget",
    "CategoryDomain",
    "DPPLRIndex",
    "DateDomain",
    "DecimalDomain",
    "Domain",
    "ExplicitKeys",
    "FloatDomain",
    "IndexSummary",
    "IntegerDomain",
    "Ledger",
    "PositionRange",
    "ScumbleError",
    "StringDomain",
    "TimestampDomain",
    "parse_domain",
]
