"""Clauses: the tokens of a SELECT without subqueries come in, where each of its clauses stands goes out."""

from sqlglot.tokenizer_core import TokenType

from scumble.sql.parse import Parsed
from scumble.sql.source import Span

__all__ = ["clause_spans"]

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


def clause_spans(parsed: Parsed) -> dict[str, Span]:
    """Where each clause of the outermost SELECT begins and ends; the text may have parentheses around all of it."""
    depth = outermost = 0
    starts: list[tuple[str, int]] = []
    end = len(parsed.text)
    before: TokenType | None = None
    for token in parsed.tokens:
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
    stops = [start for _, start in starts[1:]] + [min(end, parsed.tokens[-1].end + 1)]
    return {name: Span(start, stop) for (name, start), stop in zip(starts, stops, strict=True)}
