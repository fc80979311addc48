"""SQL: query text becomes plans for the enclave, and SQL that DuckDB runs at the owner's side. No row is seen here.

In the order of the pipeline:

parse        text to a tree; what is refused, and how it is underlined
names        which tables and columns are meant
constants    constants and parameters to words
predicate    conditions to the enclave's predicates
plan         predicates to ranks, positions and pages
aggregate    queries whose aggregates the enclave computes; the aggregates themselves are in aggregates/
rows         all other queries: rows to fetch, and what DuckDB does with them
statement    prepared statements: the functions to call
explain      what a bound statement will do, in words
changes      UPDATE and DELETE: what is read and rewritten
explain_changes  what a change will do, in words
"""

from scumble.sql.aggregate import GROUPS, AggregateQuery, Output
from scumble.sql.explain import Explanation, explain
from scumble.sql.explain_changes import ChangeExplanation
from scumble.sql.plan import RunScan, TableAccess
from scumble.sql.rows import Fetch, RowQuery
from scumble.sql.statement import Bound, Statement, prepare

__all__ = [
    "GROUPS",
    "AggregateQuery",
    "Bound",
    "ChangeExplanation",
    "Explanation",
    "Fetch",
    "Output",
    "RowQuery",
    "RunScan",
    "Statement",
    "TableAccess",
    "explain",
    "prepare",
]
