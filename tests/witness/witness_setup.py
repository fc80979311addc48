"""Witnesses for these tests, in folders: what a client asks one over HTTP, it asks these in its own process."""

import secrets
import shutil
from hashlib import sha256
from pathlib import Path

from scumble.owner.database import Database
from scumble.owner.keys import OwnerKey
from scumble.owner.witnesses import Listed
from scumble.wire.grants import parse_public_key
from scumble.wire.lineage import Draft, Link, Title, next_title, sign_draft
from scumble.witness.cosignatures import Presentation
from scumble.witness.log import Witness

__all__ = ["Made", "copied", "demand", "digest", "make", "put_back"]


def make(home: Path, *names: str) -> dict[str, bytes]:
    """The public keys of new witnesses, by their folders."""
    made = {}
    for name in names:
        witness = Witness(home / name)
        made[str(home / name)] = parse_public_key(witness.text)
        witness.close()
    return made


def demand(database: Database, need: int, places: dict[str, bytes]) -> None:
    """Have the holder of a key demand cosignatures from now on."""
    versions = database._versions
    versions.witnesses.put(versions.key, Listed(need, places))


def copied(folder: Path, name: str) -> Path:
    return Path((shutil.copytree if folder.is_dir() else shutil.copyfile)(folder, folder.with_name(name)))


def put_back(folder: Path, copy: Path) -> None:
    shutil.rmtree(folder)
    shutil.copytree(copy, folder)


class Made:
    """A history of versions, signed by an owner's key as clients sign them, without a database."""

    def __init__(self, database: str | None = None, first: int = 1) -> None:
        """A database whose id is as it is drawn, or as release 0.1 drew it, with its first signed version."""
        self.keys = [OwnerKey.draw() if database is None else OwnerKey(database, secrets.token_bytes(32))]
        self.database = self.keys[0].database
        self.titles: tuple[Title, ...] = (self.keys[0].title(first),)

    def links(self, *drafts: tuple[int, int, str], previous: str = "") -> tuple[Link, ...]:
        """Versions after each other: restores, number, and a word that the hash is made of."""
        links = []
        for restores, version, word in drafts:
            draft = Draft(restores, version, previous, digest(word))
            links.append(self.signed(draft))
            previous = draft.hash
        return tuple(links)

    def signed(self, draft: Draft, key: OwnerKey | None = None) -> Link:
        signing = (key or self.keys[-1]).signing_key()
        return Link(draft, signing.public_key().public_bytes_raw(), sign_draft(self.database, draft, signing))

    def rekey(self, version: int) -> None:
        old, new = self.keys[-1], OwnerKey(self.database, secrets.token_bytes(32))
        self.titles += (next_title(self.database, version, old.signing_key(), new.signing_key(), new.data_key()),)
        self.keys.append(new)

    def shown(self, *links: Link) -> Presentation:
        return Presentation(self.database, secrets.token_bytes(16), self.titles, links)


def digest(word: str) -> str:
    return sha256(word.encode()).hexdigest()
