"""Parsing: the text of one SELECT statement becomes a tree that knows where in the text its parts stand.

The dialect is DuckDB's. Anything but a query is refused here, and so is what would read files, the system or chance,
and what the order of rows decides: an answer depends on the tables, the query's text and, if it asks for it, the clock.
Errors underline what they are about. Only the owner's side sees the text.
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from sqlglot import exp
from sqlglot.dialects import DuckDB
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from scumble.errors import BadQuery, QueryError, UnsupportedQuery

__all__ = [
    "Parameter",
    "Parsed",
    "Span",
    "bad",
    "edited",
    "is_control",
    "is_query",
    "parse",
    "reads_clock",
    "tokens_of",
    "unsupported",
]

DIALECT = DuckDB()

# After one of these a colon is part of a slice, a struct or a lambda; elsewhere `:name` is a parameter.
ENDS_AN_EXPRESSION = {
    TokenType.VAR, TokenType.IDENTIFIER, TokenType.STRING, TokenType.NUMBER, TokenType.R_PAREN, TokenType.R_BRACKET,
    TokenType.L_BRACKET, TokenType.R_BRACE,
}  # fmt: skip
BEGINS_A_QUERY = {TokenType.SELECT, TokenType.WITH, TokenType.VALUES, TokenType.FROM, TokenType.L_PAREN}

ASKS = {"PIVOT", "UNPIVOT", "DESCRIBE", "SHOW", "SUMMARIZE", "EXPLAIN"}
"""What begins other statements that change nothing. They are refused as queries."""

CONTROLS = {"BEGIN", "START", "COMMIT", "ROLLBACK", "END", "ABORT"}

KEYWORDS = {
    TokenType.SELECT: "SELECT",
    TokenType.FROM: "FROM",
    TokenType.WHERE: "WHERE",
    TokenType.GROUP_BY: "GROUP",
    TokenType.HAVING: "HAVING",
    TokenType.WINDOW: "WINDOW",
    TokenType.QUALIFY: "QUALIFY",
    TokenType.ORDER_BY: "ORDER",
    TokenType.LIMIT: "LIMIT",
    TokenType.OFFSET: "OFFSET",
}
OPENING = {TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE}
CLOSING = {TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE}

# --- spans of the text -------------------------------------------------------------------------------

Error = TypeVar("Error", bound=QueryError)


@dataclass(frozen=True)
class Span:
    """Characters start, start + 1, ..., stop - 1 of the text."""

    start: int
    stop: int


def _underlined(text: str, span: Span | None) -> str:
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


def _error(kind: type[Error], text: str, message: str, at: "Span | exp.Expr | None", hint: str | None) -> Error:
    span = _span_of(at) if isinstance(at, exp.Expr) else at
    return kind(message + _underlined(text, span), hint=hint)


def _span_of(node: exp.Expr) -> Span | None:
    """From the first to the last character that the parser remembers for a node and what is below it."""
    known = [part.meta for part in node.walk() if part._meta and "start" in part.meta]
    if not known:
        return None if node.parent is None else _span_of(node.parent)
    return Span(min(meta["start"] for meta in known), max(meta["end"] for meta in known) + 1)


def edited(text: str, edits: Iterable[tuple[Span, str]]) -> str:
    """The text with some spans replaced; an edit inside of another one is dropped."""
    parts, at = [], 0
    for span, replacement in sorted(edits, key=lambda edit: (edit[0].start, -edit[0].stop)):
        if span.start >= at:
            parts += [text[at : span.start], replacement]
            at = span.stop
    return "".join([*parts, text[at:]])


# --- statements --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Parameter:
    """A placeholder: what it is called in the tree, what the caller binds it by, and where it stands."""

    name: str
    key: int | str
    span: Span

    @property
    def sql_name(self) -> str:
        """What DuckDB calls it: names of columns show it."""
        return self.name if isinstance(self.key, str) else str(self.key + 1)


@dataclass(frozen=True, eq=False)
class Parsed:
    """A statement: its text, its tree, its tokens, its parameters in the order of the text."""

    text: str
    tree: exp.Expr
    tokens: tuple[Token, ...]
    parameters: tuple[Parameter, ...]

    @cached_property
    def keys(self) -> dict[str, int | str]:
        """For every parameter's name in the tree, its key in what the caller binds: a position or a name."""
        return {parameter.name: parameter.key for parameter in self.parameters}

    @cached_property
    def sql_names(self) -> dict[str, str]:
        """For every parameter's name in the tree, DuckDB's name for it."""
        return {parameter.name: parameter.sql_name for parameter in self.parameters}

    @cached_property
    def token_at(self) -> dict[int, int]:
        return {token.start: number for number, token in enumerate(self.tokens)}

    @cached_property
    def parameter_edits(self) -> list[tuple[Span, str]]:
        """What makes every parameter one of DuckDB's: `?` and `:name` become `$1` and `$name`."""
        return [(parameter.span, f"${parameter.sql_name}") for parameter in self.parameters]

    @cached_property
    def sql(self) -> str:
        """The statement with all parameters named."""
        return edited(self.text, self.parameter_edits)

    def call_span(self, node: exp.Func) -> Span | None:
        """Where a function call stands, from its name to its closing parenthesis."""
        inner = _span_of(node)
        if inner is None or (number := self.token_at.get(inner.start)) is None:
            return None
        # The parser remembers the names of most functions; of others only what is between the parentheses.
        known = bool(node._meta) and "start" in node.meta
        for start in [number] if known else range(number - 1, -1, -1):
            if known or self.tokens[start].text.lower() == node.sql_name().lower():
                span = self._parenthesised(start)
                if span is not None and span.stop >= inner.stop:
                    return span
        return None

    def text_of(self, node: exp.Expr) -> str:
        """The text of the query, or of the FROM, inside of a statement that changes something."""
        is_from = isinstance(node, exp.From)
        begins = {TokenType.FROM} if is_from else {TokenType.SELECT, TokenType.VALUES, TokenType.WITH, TokenType.FROM}
        depth, start = 0, -1
        for token, following in zip(self.tokens, [*self.tokens[1:], None], strict=True):
            if depth == 0 and start < 0 and token.token_type in begins:
                start = token.start
            conflict = token.token_type is TokenType.ON and following and following.text.upper() == "CONFLICT"
            if depth == 0 and start >= 0 and (conflict or (is_from and token.token_type is TokenType.WHERE)):
                return self.text[start : token.start].rstrip()
            depth += (token.token_type in OPENING) - (token.token_type in CLOSING)
        if start < 0:
            raise bad(self.text, "it cannot be told where the rows begin", node, hint="without parentheses around them")
        return self.text[start : self.tokens[-1].end + 1]

    def _parenthesised(self, number: int) -> Span | None:
        """From a token to the end of the parentheses that follow it."""
        depth = 0
        for token in self.tokens[number + 1 :]:
            depth += (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)
            if depth == 0:
                whole = token.token_type is TokenType.R_PAREN
                return Span(self.tokens[number].start, token.end + 1) if whole else None
        return None

    def clause_spans(self) -> dict[str, Span]:
        """Where each clause of the outermost SELECT begins and ends; the text may have parentheses around all of it.

        For a SELECT without subqueries.
        """
        depth = outermost = 0
        starts: list[tuple[str, int]] = []
        end = len(self.text)
        before: TokenType | None = None
        for token in self.tokens:
            kind = token.token_type
            depth += (kind in OPENING) - (kind in CLOSING)
            if not starts and kind in (TokenType.SELECT, TokenType.FROM):
                outermost = depth
            if starts and depth < outermost:
                end = token.start
                break
            distinct_from = kind is TokenType.FROM and before is TokenType.DISTINCT
            if depth == outermost and kind in KEYWORDS and not distinct_from:
                starts.append((KEYWORDS[kind], token.start))
            before = kind
        stops = [start for _, start in starts[1:]] + [min(end, self.tokens[-1].end + 1)]
        return {name: Span(start, stop) for (name, start), stop in zip(starts, stops, strict=True)}


def parse(text: str, *, change: bool = False) -> Parsed:
    """Parse one SELECT statement, or with `change` one that changes something."""
    tokens = tokens_of(text)
    named, parameters = _named_parameters(text, tokens)
    tree = _changing_tree(text, named) if change else _tree(text, named)
    if sum(1 for _ in tree.find_all(exp.Placeholder)) != len(parameters):
        raise bad(text, "a parameter stands where there can be none", parameters[0].span if parameters else None)
    _refuse_forbidden(text, tree)
    return Parsed(text, tree, tuple(tokens), parameters)


def tokens_of(text: str) -> list[Token]:
    """The tokens of one statement, of which there is at least one."""
    try:
        tokens = DIALECT.tokenize(text + "\n")  # which misreads a string at the very end
    except SqlglotError as error:
        raise BadQuery("the query ends inside a string, a name or a comment", hint="close its quotes") from error
    while tokens and tokens[-1].token_type is TokenType.SEMICOLON:
        tokens.pop()
    if not tokens:
        raise BadQuery("there is no query", hint="write a SELECT statement")
    for number, token in enumerate(tokens):
        if token.token_type is TokenType.SEMICOLON:
            rest = Span(tokens[number + 1].start, tokens[-1].end + 1)
            raise unsupported(text, "there is more than one statement", rest, hint="send one at a time")
    found: list[Token] = tokens
    return found


def is_query(text: str) -> bool:
    """Whether a statement asks, as far as its first word tells; what cannot be read is taken for a question, too."""
    try:
        tokens = DIALECT.tokenize(text + "\n")
    except SqlglotError:
        return True
    return not tokens or tokens[0].token_type in BEGINS_A_QUERY or tokens[0].text.upper() in ASKS


def is_control(text: str) -> bool:
    """Whether a statement begins or ends a transaction, as far as its first word tells."""
    try:
        tokens = DIALECT.tokenize(text + "\n")
    except SqlglotError:
        return False
    return bool(tokens) and tokens[0].text.upper() in CONTROLS


def _trees(text: str, tokens: list[Token]) -> list[exp.Expr | None]:
    try:
        trees: list[exp.Expr | None] = DIALECT.parser().parse(tokens, text)
        return trees
    except SqlglotError as error:
        details = getattr(error, "errors", [])
        raise bad(text, "this is not SQL: " + _reason(details), _error_span(text, details)) from error


def _changing_tree(text: str, tokens: list[Token]) -> exp.Expr:
    logging.getLogger("sqlglot").setLevel(logging.ERROR)  # it warns of statements that it does not know: so do we
    tree = next(iter(_trees(text, tokens)), None)
    if tree is None:
        raise bad(text, "this is not SQL", Span(tokens[0].start, tokens[0].end + 1))
    return tree


def _tree(text: str, tokens: list[Token]) -> exp.Expr:
    first = tokens[0]
    trees = _trees(text, tokens) if first.token_type in BEGINS_A_QUERY else []
    tree = trees[0] if len(trees) == 1 else None
    while isinstance(tree, exp.Subquery) and not tree.args.get("alias") and isinstance(tree.this, exp.Query):
        if any(value for key, value in tree.args.items() if key != "this"):
            break
        tree = tree.this
    if not isinstance(tree, exp.Select | exp.SetOperation | exp.Subquery | exp.Values):
        raise unsupported(
            text,
            "only queries are answered: SELECT, WITH, VALUES, UNION",
            Span(first.start, first.end + 1),
            hint="`execute` takes statements that change something, and `explain` shows plans",
        )
    return tree


def _named_parameters(text: str, tokens: list[Token]) -> tuple[list[Token], tuple[Parameter, ...]]:
    """The tokens with every parameter in the form `$name`, so that the tree tells them apart."""
    named: list[Token] = []
    parameters: list[Parameter] = []
    styles = set()
    after: TokenType | None = None
    skip = False
    key: int | str
    for token, following in zip(tokens, [*tokens[1:], None], strict=True):
        if skip:
            skip, after = False, token.token_type
            continue
        marks = token.token_type in (TokenType.PARAMETER, TokenType.COLON)
        adjacent = following is not None and following.start == token.end + 1 and text[following.start] != '"'
        if token.token_type is TokenType.PLACEHOLDER:
            name, key, style, stop = f"p{len(parameters) + 1}", len(parameters), "?", token.end
        elif marks and adjacent and following and (token.text == "$" or after not in ENDS_AN_EXPRESSION):
            word, stop, skip = following.text, following.end, True
            if word.isdigit():
                if not word.isascii() or len(word) > 5 or not int(word):
                    raise bad(text, "there is no such parameter", Span(token.start, stop + 1), hint="they begin at $1")
                name, key, style = f"p{word}", int(word) - 1, "$1"
            else:
                name, key, style = word, word, "$name"
        else:
            named.append(token)
            after = token.token_type
            continue
        at = Span(token.start, stop + 1)
        parameters.append(Parameter(name, key, at))
        styles.add(style)
        if len(styles) > 1:
            raise bad(text, "parameters of different kinds in one query", at, hint="use only ?, only $1 or only $name")
        named.append(Token(TokenType.PARAMETER, "$", token.line, token.col, token.start, token.end))
        named.append(Token(TokenType.VAR, name, token.line, token.col, token.start, stop))
    return named, tuple(parameters)


def _reason(details: list[dict[str, object]]) -> str:
    text = str(details[0].get("description") or "") if details else ""
    return (text.split("<")[0].strip(" .") or "it cannot be parsed").lower()


def _error_span(text: str, details: list[dict[str, object]]) -> Span | None:
    if not details:
        return None
    highlight = str(details[0].get("highlight") or "")
    context = str(details[0].get("start_context") or "")
    start = text.find(context + highlight)
    if start < 0 or not highlight:
        return Span(max(0, len(text.rstrip()) - 1), len(text.rstrip()))
    return Span(start + len(context), start + len(context) + len(highlight))


# --- what is refused ---------------------------------------------------------------------------------

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


def _refuse_forbidden(text: str, tree: exp.Expr) -> None:
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
