"""What is refused in any query: what would read files, the system or chance, and what the order of rows decides.

A tree comes in; an error that underlines the offender goes out, or nothing. A query that gets past here depends on the
tables, its own text and, if it asks for it, the clock.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

from sqlglot import exp

from scumble.errors import BadQuery, QueryError, UnsupportedQuery

__all__ = [
    "CLOCK",
    "Span",
    "bad",
    "edited",
    "function_name",
    "reads_clock",
    "refuse_forbidden",
    "span_of",
    "underlined",
    "unsupported",
]


E = TypeVar("E", bound=QueryError)


@dataclass(frozen=True)
class Span:
    """Characters start, start + 1, ..., stop - 1 of the text."""

    start: int
    stop: int


def underlined(text: str, span: Span | None) -> str:
    """The line that the span begins in, with a line of ^^^ under it; empty if it is not known where."""
    if span is None:
        return ""
    begin = text.rfind("\n", 0, span.start) + 1
    end = text.find("\n", span.start)
    line = text[begin : len(text) if end < 0 else end]
    width = max(1, min(span.stop, begin + len(line)) - span.start)
    margin = "".join("\t" if letter == "\t" else " " for letter in line[: span.start - begin])
    return f"\n  {line}\n  {margin}{'^' * width}"


def bad(text: str, message: str, at: "Span | exp.Expr | None", *, hint: str | None = None) -> BadQuery:
    """The query is not SQL, or names what is not there."""
    return _error(BadQuery, text, message, at, hint)


def unsupported(text: str, message: str, at: "Span | exp.Expr | None", *, hint: str | None = None) -> UnsupportedQuery:
    """The query is SQL, and is refused."""
    return _error(UnsupportedQuery, text, message, at, hint)


def _error(kind: type[E], text: str, message: str, at: "Span | exp.Expr | None", hint: str | None) -> E:
    span = span_of(at) if isinstance(at, exp.Expr) else at
    return kind(message + underlined(text, span), hint=hint)


def span_of(node: exp.Expr) -> Span | None:
    """From the first to the last character that the parser remembers for a node and what is below it."""
    places = [part.meta for part in node.walk() if part._meta and "start" in part.meta]
    if not places:
        return None if node.parent is None else span_of(node.parent)
    return Span(min(place["start"] for place in places), max(place["end"] for place in places) + 1)


def edited(text: str, edits: Iterable[tuple[Span, str]]) -> str:
    """The text with some spans replaced; an edit inside of another one is dropped."""
    parts, at = [], 0
    for span, replacement in sorted(edits, key=lambda edit: (edit[0].start, -edit[0].stop)):
        if span.start >= at:
            parts += [text[at : span.start], replacement]
            at = span.stop
    return "".join([*parts, text[at:]])


TABLE_FUNCTIONS = {"range", "generate_series", "unnest", "repeat", "repeat_row"}

CHANCE = {
    "random", "rand", "randn", "setseed", "uuid", "gen_random_uuid", "uuidv4", "uuidv7", "uniform", "normal",
    "randstr", "zipf",
}  # fmt: skip
SYSTEM = {
    "getenv", "nextval", "currval", "current_setting", "set_config", "getvariable", "txid_current", "query",
    "query_table", "write_log", "current_query", "current_database", "current_schema", "current_schemas",
    "in_search_path",
    "current_connection_id", "current_transaction_id", "current_query_id", "pg_typeof_file", "sniff_csv", "glob",
    "current_catalog", "getvar", "parse_duckdb_log_message", "file_exists", "copy_database",
}  # fmt: skip
SYSTEM_PREFIXES = (
    "read_", "parquet_", "duckdb_", "pragma_", "sqlite_", "postgres_", "mysql_", "iceberg_", "delta_", "pg_",
)  # fmt: skip
CLOCK = {
    "now", "today", "current_date", "current_time", "current_timestamp", "current_localtime", "current_localtimestamp",
    "localtime", "localtimestamp", "get_current_time", "get_current_timestamp", "transaction_timestamp", "age",
    "currentdate", "currenttime", "currenttimestamp", "currentdatetime", "currentuser",
}  # fmt: skip


def refuse_forbidden(text: str, tree: exp.Expr) -> None:
    """Raise UnsupportedQuery if a query must not be answered."""
    for node in tree.walk():
        match node:
            case exp.TableSample():
                raise unsupported(text, "a sample depends on chance and on the order of rows", node.parent)
            case exp.DDL() | exp.DML() | exp.Command() | exp.Into() | exp.Lock():
                raise unsupported(text, "only queries are answered, nothing that changes data", node)
            case exp.Join() if (node.args.get("method") or "").upper() == "POSITIONAL":
                raise unsupported(text, "a positional join depends on the order of rows", node)
            case exp.Column() if node.name.lower() == "rowid":
                raise unsupported(text, "rows have no rowid", node, hint="select by a key of your own")
            case exp.Table() if not isinstance(node.this, exp.Identifier):
                _refuse_table_function(text, node)
            case exp.Func():
                _refuse_function(text, node)


def function_name(node: exp.Func) -> str:
    """The name that a function goes by, in lower case."""
    return (node.name if isinstance(node, exp.Anonymous) else node.sql_name()).lower()


def reads_clock(node: exp.Expr) -> bool:
    """Whether an expression may change with time."""
    return any(function_name(part) in CLOCK for part in node.find_all(exp.Func))


def _refuse_table_function(text: str, node: exp.Table) -> None:
    function = node.this
    name = function_name(function) if isinstance(function, exp.Func) else "?"
    if name not in TABLE_FUNCTIONS:
        raise unsupported(
            text, "only tables of this database can be queried", node, hint="load the file with `scumble load`"
        )


def _refuse_function(text: str, node: exp.Func) -> None:
    aliases = [] if isinstance(node, exp.Anonymous) else node.sql_names()
    names = {function_name(node), *map(str.lower, aliases)}
    if isinstance(node, exp.Glob):
        return  # the operator `x GLOB 'a*'`; the table function is refused as one
    if names & CHANCE:
        raise unsupported(text, "this function depends on chance", node)
    if names & SYSTEM or any(name.startswith(SYSTEM_PREFIXES) for name in names):
        raise unsupported(text, "this function looks outside of the tables", node)
