"""Where statements end: text comes in, the statements that a `;` ends go out, and the rest. Text is the asker's own."""

import re
from collections.abc import Iterable, Iterator

__all__ = ["is_command", "split", "units"]

# What a `;` does not count in: strings, names, comments; without their end, too, up to the end of the text.
_PART = re.compile(
    r"'(?:[^']|'')*(?:'|\Z)|\"[^\"]*(?:\"|\Z)|--[^\n]*|/\*.*?(?:\*/|\Z)|\$\$.*?(?:\$\$|\Z)|;|.", re.DOTALL
)


def split(text: str) -> tuple[list[str], str]:
    """The statements of a text, without their `;`, and what stands after the last of them."""
    statements, begin = [], 0
    for part in _PART.finditer(text):
        if part[0] == ";":
            statements.append(text[begin : part.start()].strip())
            begin = part.end()
    return [statement for statement in statements if not _is_blank(statement)], text[begin:]


def is_command(text: str) -> bool:
    """Whether a text is a dot command, which ends with its line."""
    return text.lstrip().startswith(".")


def units(lines: Iterable[str]) -> Iterator[str]:
    """Statements and dot commands from the lines of a script; the last statement needs no `;`."""
    rest = ""
    for line in lines:
        if _is_blank(rest) and is_command(line):
            rest = ""
            yield line.strip()
            continue
        statements, rest = split(rest + line)
        yield from statements
    if not _is_blank(rest):
        yield rest.strip()


def _is_blank(text: str) -> bool:
    """Whether there is nothing but space and comments."""
    return all(part[0].isspace() or part[0].startswith(("--", "/*")) for part in _PART.finditer(text))
