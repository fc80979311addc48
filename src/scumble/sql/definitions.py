"""Statements that define things: the text of a CREATE, ALTER, DROP, TRUNCATE or REINDEX becomes what it asks for.

They are read from their tokens, since types and index terms are Scumble's own. What a table cannot keep without looking
at its rows is refused here, with the reason. All of it but a view's text is PUBLIC once it is carried out.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass

from sqlglot.tokenizer_core import Token, TokenType

from scumble.errors import BadQuery, InvalidParameter, UnsupportedQuery
from scumble.sql.parse import tokens_of
from scumble.sql.spans import Span, bad, unsupported
from scumble.types import parse_type

__all__ = [
    "AddedColumn",
    "Definition",
    "DroppedColumn",
    "DroppedIndex",
    "DroppedTable",
    "DroppedView",
    "NewColumn",
    "NewIndex",
    "NewTable",
    "NewView",
    "Reindexing",
    "RenamedColumn",
    "RenamedTable",
    "TruncatedTable",
    "definition_of",
]


@dataclass(frozen=True)
class NewColumn:
    """A column as it is declared: `type` as `parse_type` reads it, and the text of its DEFAULT, if there is one."""

    name: str
    type: str
    nullable: bool = True
    comment: str = ""
    default: str | None = None


@dataclass(frozen=True)
class NewTable:
    """CREATE TABLE: its columns, or the `query` that it shall hold the rows of; and the terms of its indexes."""

    table: str
    columns: tuple[NewColumn, ...] = ()
    terms: tuple[str, ...] = ()
    query: str | None = None
    if_not_exists: bool = False


@dataclass(frozen=True)
class DroppedTable:
    """DROP TABLE."""

    table: str
    if_exists: bool = False


@dataclass(frozen=True)
class TruncatedTable:
    """TRUNCATE: a table without its rows."""

    table: str


@dataclass(frozen=True)
class RenamedTable:
    """ALTER TABLE ... RENAME TO."""

    table: str
    name: str


@dataclass(frozen=True)
class RenamedColumn:
    """ALTER TABLE ... RENAME COLUMN."""

    table: str
    column: str
    name: str


@dataclass(frozen=True)
class AddedColumn:
    """ALTER TABLE ... ADD COLUMN."""

    table: str
    column: NewColumn
    if_not_exists: bool = False


@dataclass(frozen=True)
class DroppedColumn:
    """ALTER TABLE ... DROP COLUMN."""

    table: str
    column: str
    if_exists: bool = False


@dataclass(frozen=True)
class NewIndex:
    """CREATE INDEX: its options as they are written, `domain` and `epsilon` among them."""

    table: str
    column: str
    options: tuple[tuple[str, str], ...]
    if_not_exists: bool = False


@dataclass(frozen=True)
class DroppedIndex:
    """DROP INDEX of a column; of whichever table has one if it names none."""

    column: str
    table: str | None = None
    if_exists: bool = False


@dataclass(frozen=True)
class Reindexing:
    """REINDEX of a table, or of one of its columns; `options` stand in for those that were declared."""

    table: str
    column: str | None = None
    options: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class NewView:
    """CREATE VIEW: the query, and the names of its columns, if they are given."""

    name: str
    query: str
    columns: tuple[str, ...] = ()
    if_not_exists: bool = False


@dataclass(frozen=True)
class DroppedView:
    """DROP VIEW."""

    name: str
    if_exists: bool = False


Definition = (
    NewTable
    | DroppedTable
    | TruncatedTable
    | RenamedTable
    | RenamedColumn
    | AddedColumn
    | DroppedColumn
    | NewIndex
    | DroppedIndex
    | Reindexing
    | NewView
    | DroppedView
)

OBLIVIOUS = "could only be kept by looking at the rows, which nobody may see"
REFUSED = {
    "PRIMARY KEY": (f"a key {OBLIVIOUS}", "INSERT ... ON CONFLICT (key) DO UPDATE replaces rows by a key"),
    "UNIQUE": (f"that values are unique {OBLIVIOUS}", "INSERT ... ON CONFLICT (key) DO UPDATE replaces rows by a key"),
    "FOREIGN KEY": (f"a foreign key {OBLIVIOUS}", "join the tables to find rows without a partner"),
    "REFERENCES": (f"a foreign key {OBLIVIOUS}", "join the tables to find rows without a partner"),
    "CHECK": (f"a CHECK {OBLIVIOUS}", "a column's type bounds its values: decimal(4,2), category([...]), NOT NULL"),
    "CONSTRAINT": (f"a constraint {OBLIVIOUS}", "NOT NULL and the column's type are kept"),
    "GENERATED": ("columns that the database would have to work out are not kept", "work them out in a query"),
    "COLLATE": ("texts are compared byte by byte", "leave it out"),
    "USING": ("columns that the database would have to work out are not kept", "work them out in a query"),
}
NUMBERED = {"SERIAL", "BIGSERIAL", "SMALLSERIAL", "IDENTITY", "AUTO_INCREMENT", "AUTOINCREMENT"}
BEGINS = {"CREATE", "ALTER", "DROP", "TRUNCATE", "REINDEX"}
CONSTRAINTS = {"NOT", "NULL", "COMMENT", "DEFAULT", *REFUSED, *NUMBERED}


def definition_of(text: str) -> Definition | None:
    """What a statement defines; None if it is of another kind. BadQuery or UnsupportedQuery if it cannot be."""
    tokens = tokens_of(text)
    if tokens[0].text.upper() not in BEGINS:
        return None
    reader = _Reader(text, tokens)
    found = _STATEMENTS[reader.word()](reader)
    reader.end()
    return found


class _Reader:
    """Reads tokens one after the other."""

    def __init__(self, text: str, tokens: list[Token]) -> None:
        self.text, self._tokens, self._at = text, tokens, 0

    @property
    def _next(self) -> Token | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def peek(self) -> str:
        """The next word in capitals; nothing at the end, and nothing for what stands in quotes."""
        token = self._next
        quoted = token is None or token.token_type in (TokenType.STRING, TokenType.IDENTIFIER)
        return "" if token is None or quoted else token.text.upper()

    def word(self) -> str:
        found = self.peek()
        self._at += 1
        return found

    def takes(self, *words: str) -> bool:
        """Go past some words if they come next."""
        texts = [token.text.upper() for token in self._tokens[self._at : self._at + len(words)]]
        if texts != list(words):
            return False
        self._at += len(words)
        return True

    def expect(self, *words: str) -> None:
        if not self.takes(*words):
            raise self.bad(f"{' '.join(words)} is expected here")

    def name(self) -> str:
        """A name, in quotes or not."""
        token = self._next
        known = token is not None and (token.token_type is TokenType.IDENTIFIER or token.text.isidentifier())
        if token is None or not known or token.token_type is TokenType.STRING:
            raise self.bad("a name is expected here")
        self._at += 1
        return token.text

    def table(self) -> str:
        """The name of a table, perhaps after that of its schema."""
        first = self.name()
        if not self.takes("."):
            return first
        if first.lower() != "main":
            raise self.unsupported("there is one schema, main", "leave it out")
        return self.name()

    def string(self) -> str:
        token = self._next
        if token is None or token.token_type is not TokenType.STRING:
            raise self.bad("a text in single quotes is expected here")
        self._at += 1
        return token.text

    def names(self) -> tuple[str, ...]:
        """A list of names in parentheses."""
        self.expect("(")
        found = [self.name()]
        while self.takes(","):
            found.append(self.name())
        self.expect(")")
        return tuple(found)

    def options(self) -> tuple[tuple[str, str], ...]:
        """What stands after WITH: `(name = value, ...)`."""
        if not self.takes("WITH"):
            return ()
        self.expect("(")
        found = []
        while True:
            name = self.name().lower()
            self.expect("=")
            found.append((name, self._value()))
            if not self.takes(","):
                break
        self.expect(")")
        return tuple(found)

    def _value(self) -> str:
        token = self._next
        if token is None or token.token_type in (TokenType.COMMA, TokenType.R_PAREN, TokenType.L_PAREN):
            raise self.bad("a value is expected here")
        self._at += 1
        return token.text

    def until(self, stops: Callable[[Token], bool]) -> str:
        """The text up to the comma, the closing parenthesis or the token that ends it; at least one token of it."""
        start, depth = self._at, 0
        while (token := self._next) is not None:
            ends = token.token_type in (TokenType.COMMA, TokenType.R_PAREN) or stops(token)
            if depth == 0 and ends and self._at > start:
                break
            depth += (token.text in ("(", "[")) - (token.text in (")", "]"))
            if depth < 0:
                break
            self._at += 1
        if self._at == start:
            raise self.bad("something is missing here")
        return self.text[self._tokens[start].start : self._tokens[self._at - 1].end + 1]

    def type(self) -> str:
        """A type as `parse_type` reads it: an ENUM is a category."""
        first, start = self._next, self._span.start
        words = self.until(lambda token: token.text.upper() in CONSTRAINTS)
        at = Span(start, start + len(words))
        if first is not None and first.text.upper() in NUMBERED:
            raise self.unsupported("rows are not numbered: nobody may see how many there are", "insert the numbers", at)
        if first is not None and first.token_type is TokenType.ENUM:
            listed = tokens_of(words)[2:-1:2]
            if any(token.token_type is not TokenType.STRING for token in listed):
                raise self.bad("an ENUM lists texts in single quotes")
            return f"category({json.dumps([token.text for token in listed])})"
        if words.lower() in ("text", "varchar", "string", "char", "bpchar", "blob", "bytea"):
            kind = "blob" if words.lower() in ("blob", "bytea") else "text"
            raise self.unsupported(
                f"a {kind} column needs a length: all its values take as much room, so that none shows",
                f"{kind}(25) has room for 25 bytes",
                at,
            )
        try:
            parse_type(words)
        except InvalidParameter as error:
            raise bad(self.text, error.message.split("\n")[0], at, hint=error.hint) from None
        return words

    def rest(self) -> str:
        """All that is left of the text."""
        start = self._next
        if start is None:
            raise self.bad("a query is expected here")
        end = self._tokens[-1].end + 1
        self._at = len(self._tokens)
        return self.text[start.start : end]

    def end(self) -> None:
        if self._next is not None:
            raise self.bad("the statement should end here")

    def bad(self, message: str) -> BadQuery:
        return bad(self.text, f"this is not SQL: {message}", self._span)

    def unsupported(self, message: str, hint: str, at: Span | None = None) -> UnsupportedQuery:
        return unsupported(self.text, message, at or self._span, hint=hint)

    @property
    def _span(self) -> Span:
        token = self._next or self._tokens[-1]
        return Span(token.start, token.end + 1)


# --- CREATE ------------------------------------------------------------------------------------------


def _create(reader: _Reader) -> Definition:
    if reader.takes("OR", "REPLACE"):
        raise reader.unsupported("what is there is not replaced", "DROP it first; BEGIN and COMMIT make it one change")
    if reader.peek() in ("TEMP", "TEMPORARY"):
        raise reader.unsupported("nothing is kept for a session alone", "use WITH, or a table that you drop afterwards")
    if reader.peek() == "UNIQUE":
        message, hint = REFUSED["UNIQUE"]
        raise reader.unsupported(message, hint)
    match reader.word():
        case "TABLE":
            return _create_table(reader)
        case "INDEX":
            return _create_index(reader)
        case "VIEW":
            return _create_view(reader)
        case "TRIGGER":
            raise reader.unsupported("nothing is done when a row comes or goes: nobody may see that", "do it in SQL")
        case "SEQUENCE":
            raise reader.unsupported("rows are not numbered: nobody may see how many there are", "insert the numbers")
    raise reader.unsupported("this cannot be created", "CREATE TABLE, INDEX and VIEW are there")


def _create_table(reader: _Reader) -> NewTable:
    if_not_exists = reader.takes("IF", "NOT", "EXISTS")
    name, columns = reader.table(), []
    if reader.takes("("):
        while True:
            columns.append(_column(reader))
            if not reader.takes(","):
                break
        reader.expect(")")
    terms = []
    for option, value in reader.options():
        if option != "index":
            raise reader.unsupported(f"there is no option {option!r}", "index = 'amount decimal:0:9:0.01 epsilon=0.5'")
        terms.append(value)
    query = reader.rest() if reader.takes("AS") else None
    if bool(columns) == (query is not None):
        raise reader.bad("a table has columns, or AS and a query")
    return NewTable(name, tuple(columns), tuple(terms), query, if_not_exists)


def _column(reader: _Reader) -> NewColumn:
    if reader.peek() in REFUSED:
        message, hint = REFUSED[reader.peek()]
        raise reader.unsupported(message, hint)
    name, type_ = reader.name(), reader.type()
    nullable, comment, default = True, "", None
    while reader.peek() not in ("", ",", ")"):
        if reader.takes("NOT", "NULL"):
            nullable = False
        elif reader.takes("NULL"):
            nullable = True
        elif reader.takes("COMMENT"):
            comment = reader.string()
        elif reader.takes("DEFAULT"):
            default = reader.until(lambda token: token.text.upper() in CONSTRAINTS)
        elif reader.peek() in NUMBERED:
            raise reader.unsupported("rows are not numbered: nobody may see how many there are", "insert the numbers")
        elif reader.peek() in REFUSED:
            message, hint = REFUSED[reader.peek()]
            raise reader.unsupported(message, hint)
        else:
            raise reader.bad("NOT NULL, COMMENT, a comma or the end is expected here")
    return NewColumn(name, type_, nullable, comment, default)


def _create_index(reader: _Reader) -> NewIndex:
    if_not_exists = reader.takes("IF", "NOT", "EXISTS")
    if reader.peek() != "ON":
        reader.name()  # an index goes by its column's name
    reader.expect("ON")
    table = reader.table()
    if reader.takes("USING"):
        raise reader.unsupported("there is one kind of index", "leave USING out")
    columns = reader.names()
    if len(columns) > 1:
        raise reader.unsupported("an index is on one column", "make one for each: a query takes the best of them")
    return NewIndex(table, columns[0], _index_options(reader), if_not_exists)


INDEX_OPTIONS = {
    "domain", "epsilon", "delta", "beta", "rows_per_user", "max_bytes", "slack", "mechanism", "alpha_s", "blocks",
    "columns", "hint", "plan",
}  # fmt: skip


def _index_options(reader: _Reader, *more: str) -> tuple[tuple[str, str], ...]:
    options = reader.options()
    for option, _ in options:
        if option not in INDEX_OPTIONS and option not in more:
            raise reader.unsupported(f"there is no option {option!r}", "WITH (domain = 'int:0:9', epsilon = 1)")
    if len(dict(options)) < len(options):
        raise reader.bad("an option is there twice")
    return options


def _create_view(reader: _Reader) -> NewView:
    if_not_exists = reader.takes("IF", "NOT", "EXISTS")
    name = reader.table()
    columns = reader.names() if reader.peek() == "(" else ()
    reader.expect("AS")
    return NewView(name, reader.rest(), columns, if_not_exists)


# --- the others --------------------------------------------------------------------------------------


def _drop(reader: _Reader) -> Definition:
    what = reader.word()
    if what not in ("TABLE", "INDEX", "VIEW"):
        raise reader.unsupported("this cannot be dropped", "DROP TABLE, INDEX and VIEW are there")
    if_exists = reader.takes("IF", "EXISTS")
    if what == "INDEX":
        first = reader.name()
        table, column = (first, reader.name()) if reader.takes(".") else (None, first)
        return DroppedIndex(column, table, if_exists)
    name = reader.table()
    if reader.takes("CASCADE"):
        raise reader.unsupported("nothing depends on a table but rights to it, which go with it", "leave CASCADE out")
    reader.takes("RESTRICT")
    return DroppedTable(name, if_exists) if what == "TABLE" else DroppedView(name, if_exists)


def _truncate(reader: _Reader) -> TruncatedTable:
    reader.takes("TABLE")
    return TruncatedTable(reader.table())


def _alter(reader: _Reader) -> Definition:
    reader.expect("TABLE")
    table = reader.table()
    match reader.word():
        case "RENAME":
            if reader.takes("TO"):
                return RenamedTable(table, reader.name())
            reader.takes("COLUMN")
            column = reader.name()
            reader.expect("TO")
            return RenamedColumn(table, column, reader.name())
        case "ADD":
            reader.takes("COLUMN")
            if_not_exists = reader.takes("IF", "NOT", "EXISTS")
            return AddedColumn(table, _column(reader), if_not_exists)
        case "DROP":
            reader.takes("COLUMN")
            if_exists = reader.takes("IF", "EXISTS")
            return DroppedColumn(table, reader.name(), if_exists)
    raise reader.unsupported(
        "a table can be altered by RENAME TO, RENAME COLUMN, ADD COLUMN and DROP COLUMN",
        "for another type: ADD a column, UPDATE it, and DROP the old one",
    )


def _reindex(reader: _Reader) -> Reindexing:
    reader.takes("TABLE")
    table = reader.table()
    columns = reader.names() if reader.peek() == "(" else ()
    if len(columns) > 1:
        raise reader.unsupported("an index is on one column", "REINDEX the table, or one column after the other")
    return Reindexing(table, columns[0] if columns else None, _index_options(reader, "capacity_epsilon"))


_STATEMENTS: dict[str, Callable[[_Reader], Definition]] = {
    "CREATE": _create,
    "ALTER": _alter,
    "DROP": _drop,
    "TRUNCATE": _truncate,
    "REINDEX": _reindex,
}
