"""What no query may do: read files, the system or chance, or what the order of rows decides.

So an answer depends on the tables, the query's text and, if it asks for it, the clock.
"""

from sqlglot import exp

from scumble.sql.spans import unsupported

__all__ = ["reads_clock", "refuse_forbidden"]

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
            case exp.DDL() | exp.DML() | exp.Command() | exp.Into() | exp.Lock() if node is not tree:
                raise unsupported(text, "only queries are answered, nothing that changes data", node)
            case exp.Join() if (node.args.get("method") or "").upper() == "POSITIONAL":
                raise unsupported(text, "a positional join depends on the order of rows", node)
            case exp.Column() if node.name.lower() == "rowid":
                raise unsupported(text, "rows have no rowid", node, hint="select by a key of your own")
            case exp.Table() if not isinstance(node.this, exp.Identifier):
                _refuse_table_function(text, node)
            case exp.Func():
                _refuse_function(text, node)


def _function_name(node: exp.Func) -> str:
    """The name that a function goes by, in lower case."""
    return (node.name if isinstance(node, exp.Anonymous) else node.sql_name()).lower()


def reads_clock(node: exp.Expr) -> bool:
    """Whether an expression may change with time."""
    return any(_function_name(part) in CLOCK for part in node.find_all(exp.Func))


def _refuse_table_function(text: str, node: exp.Table) -> None:
    function = node.this
    name = _function_name(function) if isinstance(function, exp.Func) else "?"
    if name not in TABLE_FUNCTIONS:
        raise unsupported(
            text, "only tables of this database can be queried", node, hint="load the file with `scumble load`"
        )


def _refuse_function(text: str, node: exp.Func) -> None:
    aliases = [] if isinstance(node, exp.Anonymous) else node.sql_names()
    names = {_function_name(node), *map(str.lower, aliases)}
    if isinstance(node, exp.Glob):
        return  # the operator `x GLOB 'a*'`; the table function is refused as one
    if names & CHANCE:
        raise unsupported(text, "this function depends on chance", node)
    if names & SYSTEM or any(name.startswith(SYSTEM_PREFIXES) for name in names):
        raise unsupported(text, "this function looks outside of the tables", node)
