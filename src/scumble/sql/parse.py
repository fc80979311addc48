"""Parsing: SQL text comes in, one checked SELECT statement goes out, with the places of its tokens and parameters.

The dialect is DuckDB's. What is not a query, or could do anything but read the tables of the database, is refused here.
Only the owner's side sees the text.
"""

from dataclasses import dataclass
from functools import cached_property

from sqlglot import exp
from sqlglot.dialects import DuckDB
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from scumble.errors import BadQuery
from scumble.sql.source import Span, bad, edited, refuse_forbidden, span_of, unsupported

__all__ = ["Parameter", "Parsed", "parse"]

DIALECT = DuckDB()

# After one of these a colon is part of a slice, a struct or a lambda; elsewhere `:name` is a parameter.
ENDS_AN_EXPRESSION = {
    TokenType.VAR,
    TokenType.IDENTIFIER,
    TokenType.STRING,
    TokenType.NUMBER,
    TokenType.R_PAREN,
    TokenType.R_BRACKET,
    TokenType.L_BRACKET,
    TokenType.R_BRACE,
}

BEGINS_A_QUERY = {TokenType.SELECT, TokenType.WITH, TokenType.VALUES, TokenType.FROM, TokenType.L_PAREN}


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
        """The token that begins at a character."""
        return {token.start: place for place, token in enumerate(self.tokens)}

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
        if inner is None or (place := self.token_at.get(inner.start)) is None:
            return None
        # The parser remembers the names of most functions; of others only what is between the parentheses.
        known = bool(node._meta) and "start" in node.meta
        for start in [place] if known else range(place - 1, -1, -1):
            if known or self.tokens[start].text.lower() == node.sql_name().lower():
                span = self._parenthesised(start)
                if span is not None and span.stop >= inner.stop:
                    return span
        return None

    def _parenthesised(self, place: int) -> Span | None:
        """From a token to the end of the parentheses that follow it."""
        depth = 0
        for token in self.tokens[place + 1 :]:
            depth += (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)
            if depth == 0:
                whole = token.token_type is TokenType.R_PAREN
                return Span(self.tokens[place].start, token.end + 1) if whole else None
        return None


def parse(text: str) -> Parsed:
    """Parse one SELECT statement."""
    try:
        tokens = DIALECT.tokenize(text + "\n")  # which misreads a string at the very end
    except SqlglotError as error:
        raise BadQuery("the query ends inside a string, a name or a comment", hint="close its quotes") from error
    while tokens and tokens[-1].token_type is TokenType.SEMICOLON:
        tokens.pop()
    if not tokens:
        raise BadQuery("there is no query", hint="write a SELECT statement")
    for place, token in enumerate(tokens):
        if token.token_type is TokenType.SEMICOLON:
            rest = Span(tokens[place + 1].start, tokens[-1].end + 1)
            raise unsupported(text, "there is more than one statement", rest, hint="send one at a time")
    named, parameters = _named_parameters(text, tokens)
    tree = _tree(text, named)
    if sum(1 for _ in tree.find_all(exp.Placeholder)) != len(parameters):
        raise bad(text, "a parameter stands where there can be none", parameters[0].span if parameters else None)
    refuse_forbidden(text, tree)
    return Parsed(text, tree, tuple(tokens), parameters)


def _tree(text: str, tokens: list[Token]) -> exp.Expr:
    refusal = unsupported(
        text,
        "only queries are answered: SELECT, WITH, VALUES, UNION",
        Span(tokens[0].start, tokens[0].end + 1),
        hint="`scumble load` takes rows in, and `scumble explain` shows plans",
    )
    if tokens[0].token_type not in BEGINS_A_QUERY:
        raise refusal
    try:
        trees = DIALECT.parser().parse(tokens, text)
    except SqlglotError as error:
        details = getattr(error, "errors", [])
        raise bad(text, "this is not SQL: " + _reason(details), _error_span(text, details)) from error
    if len(trees) != 1 or (tree := trees[0]) is None:
        raise refusal
    while isinstance(tree, exp.Subquery) and not tree.args.get("alias") and isinstance(tree.this, exp.Query):
        if any(value for key, value in tree.args.items() if key != "this"):
            break
        tree = tree.this
    if not isinstance(tree, exp.Select | exp.SetOperation | exp.Subquery | exp.Values):
        raise refusal
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
