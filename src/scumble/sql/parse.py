"""Parsing: the text of one SELECT statement becomes a tree that knows where in the text its parts stand.

The dialect is DuckDB's. Anything but a query is refused here, and so is what `sql/forbidden.py` knows. Errors underline
what they are about. Only the owner's side sees the text.
"""

import logging
from dataclasses import dataclass
from functools import cached_property

from sqlglot import exp
from sqlglot.dialects import DuckDB
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from scumble.errors import BadQuery
from scumble.sql.forbidden import refuse_forbidden
from scumble.sql.spans import Span, bad, edited, span_of, unsupported

__all__ = [
    "Parameter",
    "Parsed",
    "is_control",
    "is_query",
    "parse",
    "tokens_of",
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
        inner = span_of(node)
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
    refuse_forbidden(text, tree)
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
