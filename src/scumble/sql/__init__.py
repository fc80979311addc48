"""SQL: query text comes in; plans for the enclave, and SQL for DuckDB at the owner's side, go out. No row is seen here.

In the order of the pipeline:

parse, refusals, source       text to a tree; what is refused, and how it is underlined
names, unknown                which tables and columns are meant
constants, bounds, patterns   constants to words
predicate                     conditions to the enclave's predicates
pushdown                      which conditions reach which table
cover, plan, union, scans     predicates to ranks, positions and pages
aggregate, arithmetic,        what the enclave aggregates
clauses
rows                          what DuckDB does with fetched rows
query, statement              the results, and prepared statements
explain                       what a bound statement will do, in words
"""

from scumble.sql.explain import Explanation, explain
from scumble.sql.plan import Access, Scan
from scumble.sql.query import GROUPS, AggregateQuery, Fetch, Output, RowQuery
from scumble.sql.statement import Bound, Statement, prepare

__all__ = [
    "GROUPS",
    "Access",
    "AggregateQuery",
    "Bound",
    "Explanation",
    "Fetch",
    "Output",
    "RowQuery",
    "Scan",
    "Statement",
    "explain",
    "prepare",
]
