"""Key domains: keys of any type come in, exact ranks 0..N-1 go out, and the model behind sees ranks only.

A domain (its kind, bounds, step or list) is public; `parse_domain` reads it from text.
Keys and their ranks are secret: an error names the row and the kind of trouble, and never shows a key.

    IntegerDomain     int:0:1000                    whole numbers, also with a step
    DecimalDomain     decimal:0:1000000:0.01        prices and the like
    DateDomain        date:2000-01-01:2030-12-31    days
    TimestampDomain   timestamp:FIRST:LAST:15min    instants in bins
    FloatDomain       float:0:1:0.001               floats in bins
    CategoryDomain    category:["a","b"]            a public list of strings
    ExplicitKeys      keys:[1,5,9]                  the paper's dom(A)
    StringDomain      string:["d","m"]              strings between public split points
"""

from scumble.types.category import CategoryDomain
from scumble.types.column import Column, ColumnType, Kind, Schema
from scumble.types.decimals import DecimalDomain
from scumble.types.domain import MAX_SIZE, Domain
from scumble.types.floats import FloatDomain
from scumble.types.integer import IntegerDomain
from scumble.types.listed import ExplicitKeys
from scumble.types.parse import parse_domain
from scumble.types.strings import StringDomain
from scumble.types.times import DateDomain, TimestampDomain

__all__ = [
    "MAX_SIZE",
    "CategoryDomain",
    "Column",
    "ColumnType",
    "DateDomain",
    "DecimalDomain",
    "Domain",
    "ExplicitKeys",
    "FloatDomain",
    "IntegerDomain",
    "Kind",
    "Schema",
    "StringDomain",
    "TimestampDomain",
    "parse_domain",
]
