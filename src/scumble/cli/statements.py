"""Where statements end: texts of several statements and dot commands become one after the other.

What is in them is the owner's own.
"""

import re
from collections.abc import Iterable, Iterator

__all__ = ["is_command", "split", "statements"]

# Where a `;` does not end a statement: in strings, names and comments, even unfinished ones.
_PART = re.compile(
    r"'(?:[^']|'')*(?:'|\Z)|\"[^\"]*(?:\"|\Z)|--[^\n]*|/\*.*?(?:\*/|\Z)|\$\$.*?(?:\$\$|\Z)|;|.", re.DOTALL
)


def split(text: str) -> tuple[list[str], str]:
    """Return the complete statements of a text, without their `;`, and the text after the last one."""
    found, begin = [], 0
    for part in _PART.finditer(text):
        if part[0] == ";":
            found.append(text[begin : part.start()].strip())
            begin = part.end()
    return [statement for statement in found if not _is_blank(statement)], text[begin:]


def is_command(text: str) -> bool:
    """Return whether a text is a dot command, which ends with its line."""
    return text.lstrip().startswith(".")


def statements(lines: Iterable[str]) -> Iterator[str]:
    """Yield statements and dot commands from the lines of a script; the last statement needs no `;`."""
    rest = ""
    for line in lines:
        if _is_blank(rest) and is_command(line):
            rest = ""
            yield line.strip()
            continue
        complete, rest = split(rest + line)
        yield from complete
    if not _is_blank(rest):
        yield rest.strip()


def _is_blank(text: str) -> bool:
    """Return whether a text is only space and comments."""
    return all(part[0].isspace() or part[0].startswith(("--", "/*")) for part in _PART.finditer(text))
