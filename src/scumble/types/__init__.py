"""Column types and key domains: what a value is to SQL, as words in a page, in Arrow, and as a key with a rank.

One file for each type, which owns all of it, with its key domain where it has one:

    boolean    boolean
    integer    tinyint to ubigint           IntegerDomain     int:0:1000                    also with a step
    float      float, double                FloatDomain       float:0:1:0.001               floats in bins
    date       date                         DateDomain        date:2000-01-01:2030-12-31    days
    time       time
    timestamp  timestamp_s to timestamp_ns  TimestampDomain   timestamp:FIRST:LAST:15min    instants in bins
    decimal    decimal(12,2)                DecimalDomain     decimal:0:1000000:0.01        prices and the like
    text       text(25)                     StringDomain      string:["d","m"]              between split points
    category   category(["a","b"])          CategoryDomain    category:["a","b"]            a public list
    uuid       uuid
    blob       blob(32)
    interval   interval
    listed                                  ExplicitKeys      keys:[1,5,9]                  the paper's dom(A)

A new type is a file like these and its line in `register_types` below, a new domain one in `register_domains`. Types,
schemas and domains are public; values, keys, words and ranks are secret. Other rooms import from here only.
"""

from scumble.types.arrow import (
    arrow_schema,
    check_convertible,
    check_stated,
    convert,
    encode,
    family,
    parse_type,
    schema_of,
    split_nullability,
)
from scumble.types.blob import BlobType
from scumble.types.boolean import BooleanType
from scumble.types.category import CategoryDomain, CategoryType
from scumble.types.column import TYPES, ColumnType, Interval, Operator, SqlType, register_types
from scumble.types.date import DateDomain, DateType
from scumble.types.decimal import DecimalDomain, DecimalType
from scumble.types.domain import MAX_SIZE, Domain, parse_domain, register_domains
from scumble.types.float import FloatDomain, FloatType
from scumble.types.integer import IntegerDomain, IntegerType
from scumble.types.interval import IntervalType
from scumble.types.listed import ExplicitKeys
from scumble.types.ranks import GridRule, RankRule, rank_rule
from scumble.types.schema import Column, Schema
from scumble.types.text import StringDomain, TextType
from scumble.types.time import TimeType
from scumble.types.timestamp import TimestampDomain, TimestampType
from scumble.types.uuid import UuidType, uuids_of

__all__ = [
    "MAX_SIZE",
    "TYPES",
    "CategoryDomain",
    "Column",
    "ColumnType",
    "DateDomain",
    "DecimalDomain",
    "Domain",
    "ExplicitKeys",
    "FloatDomain",
    "GridRule",
    "IntegerDomain",
    "Interval",
    "Operator",
    "RankRule",
    "Schema",
    "SqlType",
    "StringDomain",
    "TimestampDomain",
    "arrow_schema",
    "check_convertible",
    "check_stated",
    "convert",
    "encode",
    "family",
    "parse_domain",
    "parse_type",
    "rank_rule",
    "schema_of",
    "split_nullability",
    "uuids_of",
]

register_types(
    BooleanType,
    IntegerType,
    FloatType,
    DateType,
    TimeType,
    TimestampType,
    DecimalType,
    TextType,
    CategoryType,
    UuidType,
    BlobType,
    IntervalType,
)
register_domains(
    IntegerDomain,
    DecimalDomain,
    DateDomain,
    TimestampDomain,
    FloatDomain,
    CategoryDomain,
    ExplicitKeys,
    StringDomain,
)
