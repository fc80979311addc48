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

from scumble.domain.categories import CategoryDomain
from scumble.domain.contract import MAX_SIZE, Domain
from scumble.domain.decimals import DecimalDomain
from scumble.domain.explicit import ExplicitKeys
from scumble.domain.floats import FloatDomain
from scumble.domain.integers import IntegerDomain
from scumble.domain.strings import StringDomain
from scumble.domain.text import parse_domain
from scumble.domain.times import DateDomain, TimestampDomain

__all__ = [
    "MAX_SIZE",
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
]
