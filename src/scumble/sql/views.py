"""Views: names for queries. A statement that reads one gets its text in front, as a WITH.

In come a statement's text and the views that there are; out goes a text that names tables alone. Only the owner's side
sees either: a view is sealed in the manifest, and what the enclave is asked shows nothing of it.
"""

from collections.abc import Iterator, Mapping

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from scumble.sql.names import is_cte
from scumble.sql.parse import Parsed, parse
from scumble.sql.spans import unsupported

__all__ = ["expanded", "view_text"]


def view_text(name: str, columns: tuple[str, ...], query: str) -> str:
    """A view as it stands in a WITH, which is how it is kept."""
    named = f" ({', '.join(map(_quoted, columns))})" if columns else ""
    return f"{_quoted(name)}{named} AS (\n{query}\n)"


def expanded(text: str, views: Mapping[str, str]) -> str:
    """A query with the views that it reads, and those that they read, in front. `views` go by names in lower case."""
    if not views:
        return text
    parsed = parse(text)
    needed = list(dict.fromkeys(_needed(parsed, views)))
    if not needed:
        return text
    first = parsed.tokens[0]
    if first.token_type is not TokenType.WITH:
        return f"WITH {', '.join(needed)}\n{text}"
    if parsed.tokens[1].token_type is TokenType.RECURSIVE:
        raise unsupported(
            text, "a recursive query cannot read a view", parsed.tree, hint="put the view's own query in its WITH"
        )
    return f"{text[: first.end + 1]} {', '.join(needed)},\n{text[first.end + 1 :]}"


def _needed(parsed: Parsed, views: Mapping[str, str]) -> Iterator[str]:
    """The texts of the views that a query reads, each after those that it reads itself."""
    for node in parsed.tree.find_all(exp.Table):
        is_view = isinstance(node.this, exp.Identifier) and node.db in ("", "main") and not node.catalog
        if is_view and node.name.lower() in views and not is_cte(node):
            if node.db:
                raise unsupported(parsed.text, "a view has no schema", node, hint="leave `main.` out")
            known = views[node.name.lower()]
            yield from _needed(parse(f"WITH {known} SELECT 1"), views)
            yield known


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
