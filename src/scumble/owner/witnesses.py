"""The witnesses that the holder of a key has chosen, and how many of them have to cosign each version.

A version comes in that the service shows or has just stored; its signatures, which are PUBLIC, go to every witness.
Each one that has seen nothing to the contrary cosigns. A witness whose history this version does not follow shows a
link of that, signed by the owner or an analyst: a fork or a rollback is Disputed however many others agree. The list
and the cosignatures lie beside the key file; who can write there can shorten the list, as with pins.
"""

import glob
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from scumble.errors import (
    Disputed,
    FileError,
    InvalidParameter,
    NotFound,
    ScumbleError,
    Tampered,
    Unavailable,
    Unwitnessed,
)
from scumble.owner.key_file import beside, canonical, parse_canonical, read_small, replace_file
from scumble.owner.keys import Key, OwnerKey
from scumble.wire.grants import parse_public_key, public_text
from scumble.wire.lineage import Link, Seen, Title, check_follows, origin
from scumble.wire.messages import from_fields, to_fields
from scumble.wire.requests import Opened
from scumble.witness.cosignatures import (
    MOST_BYTES,
    MOST_LINKS,
    NONCE_BYTES,
    Answer,
    Cosignature,
    Presentation,
    from_json_bytes,
    to_json_bytes,
)
from scumble.witness.log import Witness

__all__ = ["Listed", "Witnesses", "check_place", "compare", "lists_beside", "witness_in"]

OpenedSince = Callable[[Seen | None], Opened]

WAIT_SECONDS = 5.0
ASK_AGAIN_SECONDS = 600.0
"""For so long cosignatures of a version are enough. Later all are asked again; those that do not answer count still."""
_SCHEMES = ("http", "https")


@dataclass(frozen=True)
class Listed:
    """PUBLIC: the witnesses' public keys by where they are, and how many of them have to cosign."""

    need: int
    places: dict[str, bytes]

    @classmethod
    def load(cls, path: Path) -> Self:
        """The list in a file; an empty one if there is none."""
        try:
            match parse_canonical(read_small(path)[0]):
                case {"format": 1, "need": int(need), "witnesses": dict(places)}:
                    return cls(need, {place: parse_public_key(text) for place, text in places.items()})
        except FileNotFoundError:
            return cls(0, {})
        except (OSError, InvalidParameter, AttributeError):
            pass
        raise FileError(f"{path} does not read as a list of witnesses", hint="restore it, or delete it and add them")

    def save(self, path: Path) -> None:
        """Replace the file; InvalidParameter if the list demands more than it has, or has one witness twice."""
        if not min(1, len(self.places)) <= self.need <= len(self.places):
            raise InvalidParameter(
                f"{self.need} of {len(self.places)} witnesses cannot be demanded",
                hint="say how many with --need; to demand more, add more of them first",
            )
        if len(set(self.places.values())) < len(self.places):
            raise InvalidParameter("this witness is listed already", hint="one witness counts once, wherever it is")
        places = {place: public_text(witness) for place, witness in self.places.items()}
        replace_file(path, canonical({"format": 1, "need": self.need, "witnesses": places}))


def lists_beside(key_path: Path) -> list[Path]:
    """The lists of a key's holder: an analyst has one for each database."""
    stem = glob.escape(key_path.name.removesuffix(".key"))
    return sorted([*key_path.parent.glob(f"{stem}.witnesses"), *key_path.parent.glob(f"{stem}.*.witnesses")])


class Witnesses:
    """The witnesses of one key file's holder."""

    def __init__(self, key_path: Path) -> None:
        self._key_path = key_path
        self._tried: Listed | None = None

    # --- the list ----------------------------------------------------------------------------------

    def path(self, key: Key, ending: str = "witnesses") -> Path:
        """The list's place: clinic.witnesses for clinic.key; an analyst has one for each database."""
        return beside(self._key_path, f".{ending}" if isinstance(key, OwnerKey) else f".{key.database}.{ending}")

    def listed(self, key: Key) -> Listed:
        return Listed.load(self.path(key)) if self._tried is None else self._tried

    @contextmanager
    def trying(self, listed: Listed) -> Iterator[None]:
        """Go by another list while the block runs, and ask all of it. What is demanded, and was cosigned, stays."""
        self._tried = listed
        try:
            yield
        finally:
            self._tried = None

    def put(self, key: Key, listed: Listed) -> None:
        """Go by this list from now on; what was cosigned before is asked for again."""
        listed.save(self.path(key))
        self.path(key, "cosigned").unlink(missing_ok=True)

    # --- cosignatures ------------------------------------------------------------------------------

    def vouch(self, key: Key, opened: Opened, opened_since: OpenedSince) -> bool:
        """Return once enough witnesses have cosigned a version; False if there is a later one, to be opened first.

        `opened_since` asks the enclave for the newest version, with the links that lead to it from another one.
        """
        listed = self.listed(key)
        known = self.cosigned(key, opened.seen) if listed.places and self._tried is None else {}
        if len(known) >= listed.need and (not listed.places or self._asked_lately(key)):
            return True
        if not opened.catalog.titles:
            raise Unwitnessed("nobody has signed this database yet", hint="its owner runs `scumble upgrade` first")
        if not opened.links:  # the service was asked for what came after this very version
            newest = opened_since(None)
            if newest.seen != opened.seen:
                return False
            opened = replace(opened, links=newest.links)
        for place, witness in listed.places.items():
            try:
                cosignature = _cosigned(place, witness, opened, opened_since)
            except _Later:
                return False
            known |= {} if cosignature is None else {witness: cosignature}
        if self._tried is None:
            fields = [to_fields(cosignature) for cosignature in known.values()]
            replace_file(self.path(key, "cosigned"), canonical({"format": 1, "cosignatures": fields}))
        if len(known) < listed.need:
            silent = [place for place, witness in listed.places.items() if witness not in known]
            raise Unwitnessed(
                f"{len(known)} of {len(listed.places)} witnesses have cosigned version {opened.version}, "
                f"and {listed.need} have to",
                hint=f"see whether these run, or demand fewer with `scumble witness remove`: {', '.join(silent)}",
            )
        return True

    def cosigned(self, key: Key, seen: Seen) -> dict[bytes, Cosignature]:
        """Which of the listed witnesses have cosigned a version, as far as it is remembered here."""
        try:
            content = parse_canonical(read_small(self.path(key, "cosigned"))[0])
            every = [from_fields(Cosignature, fields) for fields in (content or {})["cosignatures"]]
        except (OSError, KeyError, TypeError, InvalidParameter):
            return {}
        of_it = [each for each in every if each.seen == seen and each.database.split()[0] == key.database]
        listed = self.listed(key).places.values()
        return {each.witness: each for each in of_it if each.witness in listed and each.is_by(each.witness)}

    def _asked_lately(self, key: Key) -> bool:
        """Whether the witnesses need not be asked whether they have seen a later version since."""
        with suppress(OSError):
            return 0 <= time.time() - self.path(key, "cosigned").stat().st_mtime < ASK_AGAIN_SECONDS
        return False


class _Later(Exception):
    """The service shows a later version than the one that was to be cosigned."""


def _cosigned(place: str, witness: bytes, opened: Opened, opened_since: OpenedSince) -> Cosignature | None:
    """A witness's statement that this version is the newest, None without one; Disputed if it can prove otherwise."""
    database, titles = opened.catalog.database, opened.catalog.titles
    answer = ask(place, witness, database, titles, opened.links)
    if answer is None or answer.cosignature is None or answer.cosignature.seen == opened.seen:
        return None if answer is None else answer.cosignature
    _check_same(place, opened, answer)
    if answer.shows_older:
        answer = ask(place, witness, database, titles, ())
    if answer is None or answer.cosignature is None or answer.shows_older:
        return None  # it claims what it does not show
    try:
        newest = opened_since(answer.cosignature.seen)
    except Tampered:
        raise _disputed(place, "does not follow", opened, answer) from None
    if newest.seen != opened.seen:
        raise _Later
    answer = ask(place, witness, database, titles, newest.links)
    cosignature = None if answer is None else answer.cosignature
    return cosignature if cosignature is not None and cosignature.seen == opened.seen else None


def _check_same(place: str, opened: Opened, answer: Answer) -> None:
    """Disputed if a witness shows another version of the same number."""
    if answer.link is not None and _differ(answer.link, opened.seen):
        raise _disputed(place, "is another than", opened, answer)


def _differ(link: Link, seen: Seen) -> bool:
    return link.draft.seen[:2] == seen[:2] and link.draft.hash != seen[2]


def _disputed(place: str, how: str, opened: Opened, answer: Answer) -> Disputed:
    link = answer.link
    assert link is not None  # noqa: S101  the callers have looked
    who = "the owner" if link.certificate is None else f"the holder of grant {link.certificate.grant}"
    return Disputed(
        f"version {opened.version} ({opened.hash[:16]}) {how} version {link.draft.version} ({link.draft.hash[:16]}), "
        f"which {who} has signed and the witness at {place} has seen",
        restores=link.draft.restores,
        statements=(*opened.links[-1:], link, answer.cosignature),
    )


# --- asking one witness ------------------------------------------------------------------------------


def ask(place: str, witness: bytes, database: str, titles: Sequence[Title], links: Sequence[Link]) -> Answer | None:
    """Present links to a witness; None if it is not there, or its answer is not signed, for this question, as it must.

    What the answer shows of the database was signed by its owner, or somebody whom the owner has certified.
    """
    answer: Answer | None = None
    for start in range(0, max(len(links), 1), MOST_LINKS):
        nonce = secrets.token_bytes(NONCE_BYTES)
        shown = Presentation(database, nonce, tuple(titles), tuple(links[start : start + MOST_LINKS]))
        try:
            answer = from_json_bytes(Answer, exchange(place, to_json_bytes(shown)))
            if answer.cosignature is None and answer.link is None:
                continue  # it has seen nothing
            if answer.cosignature is None or answer.link is None or not answer.cosignature.is_by(witness):
                return None
            if (answer.cosignature.nonce, answer.cosignature.database) != (nonce, origin(database, titles, b"")):
                return None
            check_follows(database, answer.titles, (answer.link,), None, answer.link.draft.seen)
        except ScumbleError:
            return None
    return answer


def exchange(place: str, body: bytes) -> bytes:
    """Send a presentation to a witness at an address, or to the one in a folder; its answer, or Unavailable."""
    parts = urlsplit(place)
    if parts.scheme not in _SCHEMES:
        return _in_folder(Path(place), body)
    import http.client

    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.netloc, timeout=WAIT_SECONDS)
    try:
        connection.request("POST", "/v1/present", body)
        response = connection.getresponse()
        answer: bytes = response.read(MOST_BYTES + 1)
    except (OSError, http.client.HTTPException, ValueError):
        raise Unavailable(f"the witness at {place} does not answer", hint="see whether it runs") from None
    finally:
        connection.close()
    if response.status != http.client.OK:
        raise Unavailable(f"the witness at {place} does not serve this database", hint="ask who runs it")
    return answer


def _in_folder(folder: Path, body: bytes) -> bytes:
    with closing(_opened(folder)) as witness:
        return to_json_bytes(witness.answer(from_json_bytes(Presentation, body)))


def _opened(folder: Path) -> Witness:
    if not (folder / "witness.key").exists():
        raise Unavailable(f"there is no witness in {folder}", hint="perhaps its disk is not mounted")
    return Witness(folder)


def witness_in(place: str) -> str:
    """The public key of the witness in a folder; that of one elsewhere has to be known from whoever runs it."""
    if urlsplit(place).scheme in _SCHEMES:
        raise InvalidParameter("whose witness this is must be said", hint="give the public key that it prints")
    with closing(_opened(Path(place))) as witness:
        return witness.text


def check_place(place: str) -> str:
    """Where a witness is, as it is listed: an address of HTTP, or a folder's absolute path."""
    parts = urlsplit(place)
    if parts.scheme in _SCHEMES and parts.netloc and parts.path in ("", "/"):
        return f"{parts.scheme}://{parts.netloc}"
    if "://" not in place:
        return str(Path(place).absolute())
    raise InvalidParameter("a witness is at http://HOST:PORT, or in a folder", hint="as `scumble witness serve` says")


def compare(key: Key, titles: Sequence[Title], places: dict[str, bytes]) -> dict[str, Cosignature | None]:
    """What each witness has seen; Disputed if two of them have seen versions that cannot both be of one history."""
    if not titles:
        raise NotFound("nobody has signed this database yet", hint="its owner runs `scumble upgrade` first")
    answers = {place: ask(place, witness, key.database, titles, ()) for place, witness in places.items()}
    for place, answer in answers.items():
        if answer is None or answer.link is None:
            continue
        for other, witness in places.items():
            met = ask(other, witness, key.database, answer.titles, (answer.link,)) if other != place else None
            link = None if met is None else met.link
            if link is not None and _differ(link, answer.link.draft.seen):
                raise Disputed(
                    f"the witnesses at {place} and {other} have seen different versions {link.draft.version} "
                    f"({answer.link.draft.hash[:16]} and {link.draft.hash[:16]}), both signed",
                    statements=(answer.link, link),
                )
    return {place: None if answer is None else answer.cosignature for place, answer in answers.items()}
