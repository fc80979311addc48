"""Changes of rows that wait in a stream's log: files beside its segments, each sealed under a key of its own. SECRET.

An UPDATE, DELETE or TRUNCATE also concerns rows that were not sent yet. What these become is written to a file in the
log's folder *before* the version of the database is stored that the statement makes, together with the draft of that
version. So a crash leaves no doubt: the change counts if, and only if, the draft has become a version. Whoever holds
the database for writing writes such files, also while another process has the log open; that one takes them over
before it sends anything (`StreamLog.absorb`).

A row that was deleted keeps its number, and counts as one that waits until its batch is sent: so neither the sizes nor
the times of batches depend on what was deleted (docs/privacy.md, 11.4).
"""

import json
import os
import re
import secrets
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from pathlib import Path

from scumble import durable
from scumble.errors import Corrupt
from scumble.owner.stream_segments import SALT_BYTES, Numbered, cipher_of, packed_left, record_in, sealed, unpacked_left
from scumble.wire.lineage import Draft

__all__ = ["LogChange", "change_files", "read_changes", "write_change"]

MAGIC = b"scumchg\x01"
_NAME = re.compile(r"[0-9]{16}\.change")
_HEAD_BYTES = 4


@dataclass(frozen=True, eq=False)
class LogChange:
    """SECRET: what is left of the rows `first` to `stop - 1` of a log, which are all that waited.

    `settled` is a batch that was about to be sent, and is dealt with: its rows come before `first`. Without a `draft`
    there was nothing to change in the database, and the change counts at once.
    """

    first: int
    stop: int
    left: Numbered
    settled: str | None = None
    draft: Draft | None = None

    def over(self, others: Numbered, first: int) -> Numbered:
        """The rows of a log from a number on, as this has changed them; `others` are those from `stop` on."""
        return self.left.between(max(first, self.first), self.stop).followed_by(others)


def change_files(folder: Path, names: Sequence[str] | None = None) -> list[Path]:
    """The changes beside a log, in the order of their making; `names` are those of the log's files, if known."""
    found = os.listdir(folder) if names is None else names  # noqa: PTH208
    return [folder / name for name in sorted(found) if _NAME.fullmatch(name)]


def write_change(folder: Path, key: bytes, table_id: str, change: LogChange) -> Path:
    """Write a change, durably; whoever does holds the database for writing."""
    last = max((int(path.stem) for path in change_files(folder)), default=0)
    path, salt = folder / f"{last + 1:016d}.change", secrets.token_bytes(SALT_BYTES)
    head = json.dumps({
        "settled": change.settled,
        "draft": None if change.draft is None else astuple(change.draft),
    }).encode()  # fmt: skip
    body = len(head).to_bytes(_HEAD_BYTES, "big") + head + packed_left(change.first, change.stop, change.left)
    durable.create(path, MAGIC + salt + sealed(cipher_of(key, table_id, salt), 0, body), 0o600)
    return path


def read_changes(files: Sequence[Path], keys: Sequence[bytes], table_id: str) -> list[LogChange]:
    """The changes in some files; of one that is gone, the segments have it."""
    found = []
    for path in files:
        try:
            data = path.read_bytes()
        except FileNotFoundError:  # its holder has just taken it over
            continue
        begin = len(MAGIC) + SALT_BYTES
        ciphers = [cipher_of(key, table_id, data[len(MAGIC) : begin]) for key in keys]
        opened = [body for cipher in ciphers if (body := record_in(cipher, 0, data[begin:])) is not None]
        if data[: len(MAGIC)] != MAGIC or not opened:
            raise Corrupt(
                f"the change {path} of a stream's log is damaged, or sealed under another key",
                hint="restore it from a backup of the same time as the key file",
            )
        stop = _HEAD_BYTES + int.from_bytes(opened[0][:_HEAD_BYTES], "big")
        head = json.loads(opened[0][_HEAD_BYTES:stop])
        draft = None if head["draft"] is None else Draft(*head["draft"])
        found.append(LogChange(*unpacked_left(opened[0][stop:]), head["settled"], draft))
    return found
