"""Tables' public schemas: column types, and how values become the words that pages hold.

types          what columns there can be
declared       types as the owner writes them
scalars        one value at a time: the front of the three below, and intervals of words to ranks
    words          a value, such as a constant in a query, to words and back
    comparisons    column op constant to an interval of words
    patterns       LIKE to intervals of words
arrow          Arrow schemas to ours, whole Arrow columns to words, and back
    conversion     Arrow columns to the Arrow type of a column, exactly
    arrow_text     texts to words and back
"""

from scumble.schema.types import Column, ColumnType, Kind, Schema

__all__ = ["Column", "ColumnType", "Kind", "Schema"]
