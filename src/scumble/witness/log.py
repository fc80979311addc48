"""What a witness remembers: its key, and for each database an append-only file of the versions that were shown to it.

Presentations come in; every signature in them is checked, from the database's id on. A version that follows what was
seen is on disk before it is cosigned, so that a witness which dies never cosigns two histories. Nothing else changes
what it remembers. The key is SECRET to the witness; all the rest is public.
"""

import fcntl
import json
import os
import threading
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from scumble import durable
from scumble.errors import Busy, Corrupt, FileError, Refused, ScumbleError, Tampered
from scumble.wire.grants import public_text
from scumble.wire.lineage import Link, Seen, Title, check_follows, check_titles, origin
from scumble.wire.messages import codec
from scumble.witness.cosignatures import Answer, Cosignature, Presentation

__all__ = ["Witness"]

MOST_DATABASES = 10_000
_KEY, _LOGS = "witness.key", "log"
_TITLES, _LINK = codec(tuple[Title, ...]), codec(Link)


@dataclass
class _Log:
    """One database's versions, by restores and number, in the order in which they came."""

    titles: tuple[Title, ...] = ()
    links: dict[tuple[int, int], Link] = field(default_factory=dict)

    @property
    def newest(self) -> Link | None:
        return next(reversed(self.links.values()), None)

    @property
    def seen(self) -> Seen | None:
        return None if self.newest is None else self.newest.draft.seen

    def take(self, database: str, titles: tuple[Title, ...], links: tuple[Link, ...]) -> None:
        """Go on to the last of these links; Tampered unless it follows. No title that was seen is ever taken back."""
        if titles[: len(self.titles)] != self.titles:
            raise Tampered
        check_follows(database, titles, links, self.seen, links[-1].draft.seen)
        self.titles = titles
        self.links |= {link.draft.seen[:2]: link for link in links}


class Witness:
    """A witness in a folder of its own, which no other process may use meanwhile. Threads may share it."""

    def __init__(self, folder: Path, only: frozenset[str] = frozenset()) -> None:
        """Open the witness in a folder, or make it there; with `only`, for these databases and no others."""
        self._folder, self._only, self._turn = folder, only, threading.Lock()
        self._logs: dict[str, _Log] = {}
        try:
            (folder / _LOGS).mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._key = _key(folder / _KEY)
            except BaseException:
                os.close(self._lock)
                raise
        except BlockingIOError:
            raise Busy(f"another process runs the witness in {folder}", hint="stop it, or ask it over HTTP") from None
        except OSError as error:
            raise FileError(f"{folder} cannot hold a witness: {error.strerror}", hint="name another folder") from error

    def close(self) -> None:
        os.close(self._lock)

    @property
    def text(self) -> str:
        """The public key, as owners and analysts list it."""
        return public_text(self._key.public_key().public_bytes_raw())

    def answer(self, shown: Presentation) -> Answer:
        """Judge a presentation, and state the newest version seen: the presented one only if it follows the others.

        Tampered if its own signatures do not hold; Refused if this witness does not serve its database.
        """
        database, titles, links = shown.database, shown.titles, shown.links
        check_titles(database, titles)
        name = origin(database, titles, b"")
        if links:
            check_follows(database, titles, links, None, links[-1].draft.seen)
        with self._turn:
            log = self._log(database, name)
            if links and links[-1].draft.seen != log.seen:
                self._remember(log, name, shown)
            if log.seen is None:
                return Answer(None, (), None)
            number = links[-1].draft.seen[:2] if links else log.seen[:2]
            statement = Cosignature.signed(self._key, name, shown.nonce, log.seen)
            return Answer(statement, log.titles, log.links.get(number, log.newest))

    def _remember(self, log: _Log, name: str, shown: Presentation) -> None:
        """Write down a version that follows, before anybody is told of it; one that does not changes nothing."""
        grown = _Log(log.titles, dict(log.links))
        known = [place for place, link in enumerate(shown.links, 1) if link.draft.seen == log.seen]
        links = shown.links[known[-1] :] if known else shown.links
        try:
            grown.take(shown.database, shown.titles, links)
        except Tampered:
            return
        entry = {"titles": _TITLES.pack(grown.titles), "links": [_LINK.pack(link) for link in links]}
        path = self._path(name)
        try:
            with path.open("ab") as file:
                file.write(json.dumps(entry, separators=(",", ":")).encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
            durable.sync_folder(path.parent)
        except OSError as error:
            self._logs.pop(name, None)  # what is on disk is read again
            raise FileError(f"the log {path} cannot be written: {error.strerror}", hint="make room for it") from error
        log.titles, log.links = grown.titles, grown.links
        self._logs[name] = log

    def _log(self, database: str, name: str) -> _Log:
        if self._only and database not in self._only:
            raise Refused
        log = self._logs.get(name)
        if log is None:
            if not self._path(name).exists() and len(list((self._folder / _LOGS).iterdir())) >= MOST_DATABASES:
                raise Refused
            log = self._read(database, name)
            if log.links:  # or strangers could fill the memory by asking for databases that there are not
                self._logs[name] = log
        return log

    def _read(self, database: str, name: str) -> _Log:
        """The log on disk, every signature in it checked again. A last line that was cut off was never answered."""
        path, log = self._path(name), _Log()
        try:
            data = path.read_bytes() if path.exists() else b""
            whole = data[: data.rfind(b"\n") + 1]
            if whole != data:
                os.truncate(path, len(whole))
            for line in whole.splitlines():
                entry = json.loads(line)
                log.take(
                    database, _TITLES.unpack(entry["titles"]), tuple(_LINK.unpack(link) for link in entry["links"])
                )
        except OSError as error:
            raise FileError(f"the log {path} cannot be read: {error.strerror}", hint="check its mode") from error
        except (ValueError, KeyError, TypeError, IndexError, ScumbleError):
            raise Corrupt(f"the log {path} is damaged", hint="restore the witness's folder from a backup") from None
        return log

    def _path(self, name: str) -> Path:
        return self._folder / _LOGS / name.replace(" ", "-")


def _key(path: Path) -> Ed25519PrivateKey:
    if not path.exists():
        durable.create(path, Ed25519PrivateKey.generate().private_bytes_raw().hex().encode() + b"\n", 0o600)
    try:
        return Ed25519PrivateKey.from_private_bytes(bytes.fromhex(path.read_text().strip()))
    except ValueError:
        raise Corrupt(
            f"{path} is no key of a witness", hint="start one in another folder, and list that instead"
        ) from None
