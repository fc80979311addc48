"""The prompt of `scumble shell` on a terminal, with history and completion; it yields whole statements.

The history file holds queries and so the constants in them; only its owner can read it.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.lexers import PygmentsLexer
from pygments.lexers.sql import SqlLexer  # type: ignore[import-untyped]

from scumble.cli.statements import is_command, split

__all__ = ["history_path", "typed_statements"]

KEYWORDS = """
all and any as asc avg begin between by case cast commit conflict count cross date delete desc distinct do else end
except exists false filter first from full group having ilike in inner insert intersect interval into is join last
lateral left like limit max min not null nulls offset on or order outer over partition right rollback select set stddev
sum then timestamp true union update using values variance when where window with
""".upper().split()
_WORD = re.compile(r"\.?\w*$")


def history_path() -> Path:
    """Return the history file, in the user's state folder."""
    home = os.environ.get("XDG_STATE_HOME")
    return (Path(home) if home else Path.home() / ".local" / "state") / "scumble" / "history"


def typed_statements(
    names: Callable[[], Iterable[str]], commands: Iterable[str], prompt: Callable[[], str], *, history: bool
) -> Iterator[str]:
    """Yield what is typed, one statement or dot command at a time. Ctrl-C discards the line, Ctrl-D ends it all."""
    session: PromptSession[str] = PromptSession(
        history=_history() if history else InMemoryHistory(),
        completer=_Completer(names, tuple(commands)),
        complete_while_typing=False,
        lexer=PygmentsLexer(SqlLexer),
        multiline=True,
        key_bindings=_enter_ends_a_statement(),
        prompt_continuation=lambda width, line, wrapped: "...> ".rjust(width),
    )
    while True:
        try:
            text = session.prompt(prompt())
        except KeyboardInterrupt:
            continue
        except EOFError:
            return
        if is_command(text):
            yield text.strip()
            continue
        yield from split(text)[0]


class _Completer(Completer):
    def __init__(self, names: Callable[[], Iterable[str]], commands: tuple[str, ...]) -> None:
        self._names, self._commands = names, commands

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        """Complete dot commands at the start; else names of tables and columns, then keywords, in any case."""
        before = document.text_before_cursor
        found = _WORD.search(before)
        word = found[0] if found else ""
        if is_command(before) and word.startswith("."):
            choices: Iterable[str] = self._commands
        else:
            word = word.removeprefix(".")  # of visits.amount
            choices = dict.fromkeys([*sorted(self._names()), *KEYWORDS])
        for choice in choices:
            if choice.lower().startswith(word.lower()):
                yield Completion(choice, start_position=-len(word))


def _enter_ends_a_statement() -> KeyBindings:
    keys = KeyBindings()

    @keys.add("enter")
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        text = buffer.text
        if not text.strip() or is_command(text) or not split(text)[1].strip():
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    return keys


def _history() -> History:
    path = history_path()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600))
    except OSError:  # no place to keep it
        return InMemoryHistory()
    return FileHistory(path)
