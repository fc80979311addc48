"""The versions of a database, as a session has them: opened, followed, drafted and committed.

SECRET. A signer gets the newest version as far as it has rights to it. A change is drafted on top of that version, and
committed with the signature of whoever asked for it: the owner, or an analyst under a grant. What the vault remembers
is never gone behind, unless the owner on record declares that a backup was restored.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from scumble.enclave.dummies import Dummies
from scumble.enclave.grants import AccessList, visible
from scumble.enclave.manifests import Manifest, links_since, open_manifest, read_head, seal_manifest, signed_catalog
from scumble.enclave.pages import DataKeys, RunReader
from scumble.enclave.vault import Unlocked, Vault
from scumble.errors import Exists, InvalidParameter, Locked, Refused, Stale, Tampered
from scumble.wire.catalog import Catalog, Run, Table
from scumble.wire.grants import Grant
from scumble.wire.lineage import Draft, Link, Title, check_titles, data_key_hash, is_derived, origin
from scumble.wire.requests import Create, Follow, Open, Opened, Restore, Upgrade
from scumble.wire.storage import Envelope, Storage, pack, unpack

__all__ = ["History", "OpenVersion", "Pending"]

EMPTY: Mapping[str, Dummies] = MappingProxyType({})


@dataclass
class OpenVersion:
    """SECRET: a version that a session has open, as far as its signer may see it: all of it, if `grant` is None."""

    storage: Storage
    keys: DataKeys
    unlocked: Unlocked
    manifest: Manifest
    grant: Grant | None
    links: tuple[Link, ...]
    readers: dict[str, tuple[RunReader, Dummies]] = field(default_factory=dict)
    stored: Manifest | None = None
    """The manifest as it was read or stored; `manifest` has what the session has changed since."""

    def __post_init__(self) -> None:
        self.stored = self.stored or self.manifest
        self.catalog = visible(self.manifest.catalog, self.grant)
        self.runs: dict[str, tuple[Table, Run]] = {
            run.id: (table, run) for table in self.catalog.tables for run in table.runs
        }
        self.readers = {name: self._kept(name, *known) for name, known in self.readers.items() if name in self.runs}

    def _kept(self, name: str, reader: RunReader, dummies: Dummies) -> tuple[RunReader, Dummies]:
        """A reader for a run as it is in this version, from one that has read it in another."""
        table, run = self.runs[name]
        return (reader if reader.run.layers == run.layers else reader.of(table, run)), dummies

    def reader(self, run: str) -> tuple[RunReader, Dummies]:
        """A run's reader, and where its dummies lie."""
        known = self.readers.get(run)
        if known is None:
            if run not in self.runs:
                raise Stale("the table has changed", hint="ask again")
            reader = RunReader(self.storage, self.keys, *self.runs[run])
            known = self.readers[run] = reader, self.manifest.dummies[run]
        return known

    def has_batch(self, batch: str, but: Collection[str] = ()) -> bool:
        """Whether a run has rows of a batch, one that is not among those `but` which there are."""
        return any(batch in run.batches for name, (_, run) in self.runs.items() if name not in but)

    def having(self, table: Table, dummies: Mapping[str, Dummies] = EMPTY) -> "OpenVersion":
        """The same with a table as it is after a change, or a new one, and with the dummies of new runs."""
        manifest = self.manifest
        others = tuple(other for other in manifest.catalog.tables if other.id != table.id)
        catalog = replace(manifest.catalog, tables=(*others, table))
        return replace(self, manifest=replace(manifest, catalog=catalog, dummies={**manifest.dummies, **dummies}))

    def without(self, table: Table) -> "OpenVersion":
        """The same without a table, and without rights to it."""
        manifest = self.manifest
        left = tuple(other for other in manifest.catalog.tables if other.id != table.id)
        access = manifest.access.dropping(table.name)
        return replace(self, manifest=replace(manifest, catalog=replace(manifest.catalog, tables=left), access=access))

    def viewing(self, name: str, text: str) -> "OpenVersion":
        """The same with a view, or without it if its text is empty."""
        return replace(self, manifest=replace(self.manifest, access=self.manifest.access.viewing(name, text)))

    def has_tables_of(self, other: "OpenVersion") -> bool:
        """Whether the tables are the same as in another version."""
        mine, others = self.manifest.catalog.tables, other.manifest.catalog.tables
        return [table.to_json() for table in mine] == [table.to_json() for table in others]

    def with_tables_of(self, other: "OpenVersion") -> "OpenVersion":
        """This version with another's tables and views; without rights to those that are gone from it."""
        catalog, access = replace(self.manifest.catalog, tables=other.manifest.catalog.tables), self.manifest.access
        for table in self.manifest.catalog.tables:
            if table.id not in catalog.by_id:
                access = access.dropping(table.name)
        access = replace(access, views=other.manifest.access.views)
        changed = replace(self.manifest, catalog=catalog, dummies=other.manifest.dummies, access=access)
        return replace(self, manifest=changed)

    def opened(self) -> Opened:
        """What the session's client gets to know of it."""
        access, grant = self.manifest.access, self.grant
        grants = access.grants if grant is None else ()
        charges, views = access.charges(grant), access.views if grant is None else ()
        seen = self.catalog, self.manifest.hash, access.owner
        return Opened(*seen, grant, grants, self.links, charges, access.policy, views)

    def opened_by_owner(self) -> Opened:
        """What an owner would get to know: nobody gets more, so that all get as much."""
        return replace(self, grant=None).opened()

    def check_signed(self) -> None:
        """Refuse to change a database that nobody has signed. Asked before anything is paid for the change, too."""
        if self.manifest.link is None:
            raise unsigned()

    def __repr__(self) -> str:
        return f"<OpenVersion {self.manifest.catalog.version}>"


@dataclass(frozen=True, eq=False)
class Pending:
    """SECRET: a version that waits for its signature, by the key that signs for `history`."""

    history: "History"
    keys: DataKeys
    catalog: Catalog
    public: bytes
    sealed: bytes
    grant: Grant | None
    known: Unlocked | None
    before: OpenVersion | None

    @property
    def draft(self) -> Draft:
        digest = Envelope(self.public, self.sealed, b"unsigned yet").hash
        return Draft(self.catalog.restores, self.catalog.version, self.catalog.previous, digest)

    def __repr__(self) -> str:
        return f"<Pending {self.catalog.version}>"


@dataclass(frozen=True)
class History:
    """SECRET: the versions of one database, for the signer of a greeting; only an owner brings the data key along."""

    storage: Storage
    vault: Vault
    database: str
    signer: bytes
    data_key: bytes | None = field(repr=False)

    def create(self, request: Create) -> Pending:
        """Draft an empty database: the id has to be that of the signer's key, so that nobody takes another's."""
        title = request.title
        if self.data_key is None or title.owner != self.signer or not is_derived(self.database):
            raise Refused
        self._check_title((), title, self.data_key)
        if self.vault.get(self.database) is not None:
            raise Refused
        keys, catalog = DataKeys(self.data_key, self.database), Catalog(self.database, 1, "", (), (title,))
        access = AccessList(self.signer)
        access = access.under(self.database, request.policy) if request.policy else access
        return self._drafted(keys, catalog, {}, access, None, None)

    def upgrade(self, version: OpenVersion, request: Upgrade) -> Pending:
        """Draft the first signed version of a database of release 0.1."""
        manifest, title = version.manifest, request.title
        if manifest.link is not None:
            raise Exists("the database is signed already", hint="it needs no upgrade")
        if title.owner != self.signer or title.version != manifest.catalog.version + 1 or request.restores < 0:
            raise Refused
        self._check_title((), title, version.keys.data_key)
        access = manifest.access.owned_by(self.database, self.signer, request.grants)
        catalog = Catalog(
            self.database, title.version, manifest.hash, manifest.catalog.tables, (title,), request.restores
        )
        return self._drafted(version.keys, catalog, manifest.dummies, access, version.unlocked, version)

    def open(self, request: Open | Follow, before: OpenVersion | None) -> OpenVersion:
        """The newest version, which has to descend from the anchored one and from the newest that was seen here."""
        with self.vault.holding(self.database):
            name, unlocked, keys, manifest = self._newest(before)
            if request.owner is not None and request.owner not in _owners(manifest):
                raise Refused
            grant = self._grant(manifest, unlocked)
            if unlocked is not None:
                links_since(self.storage, manifest, unlocked.seen)
            links: tuple[Link, ...] = () if manifest.link is None else (manifest.link,)
            if request.anchor is not None:
                links = links_since(self.storage, manifest, request.anchor)
            return self._remembered(name, keys, manifest, grant, links, before)

    def restore(self, request: Restore, before: OpenVersion | None) -> Pending:
        """Draft a version after an older one that the owner takes for the newest: the owner on record, if there is one.

        Nobody gets to see the older version itself: the grants in it may have been revoked, or used, since.
        """
        with self.vault.holding(self.database):
            _, unlocked, keys, manifest = self._newest(before)
            if self._grant(manifest, unlocked) is not None or (unlocked is not None and unlocked.owner != self.signer):
                raise Refused
        if manifest.link is None:
            raise unsigned()
        old = manifest.catalog
        known = max(old.restores, request.restores, 0 if unlocked is None else unlocked.restores)
        catalog = Catalog(self.database, old.version + 1, manifest.hash, old.tables, old.titles, known + 1)
        access = manifest.access.brought_up(request.revoked, request.used)
        if unlocked is not None:
            access = access.brought_up_to(unlocked.access)
        return self._drafted(keys, catalog, manifest.dummies, access, unlocked, None)

    def followed(self, version: OpenVersion | None) -> OpenVersion:
        """The version that is open, if no other has been seen since that may have taken rights away; else Stale."""
        if version is None:
            raise InvalidParameter("no version is open", hint="open the database first")
        newest = self.vault.get(origin(self.database, version.catalog.titles, self.signer))
        if newest is not version.unlocked:
            if version.grant is not None or newest is None or newest.data_key != version.unlocked.data_key:
                raise Stale("the database has changed", hint="ask again")
            version.unlocked = newest
        return version

    def draft(
        self,
        version: OpenVersion,
        tables: tuple[Table, ...],
        dummies: dict[str, Dummies],
        access: AccessList,
        successor: tuple[DataKeys, Title] | None = None,
    ) -> Pending:
        """Draft the version after this one; `successor` has the keys and the title of a new owner, if there is one."""
        version.check_signed()
        manifest, keys, titles = version.manifest, version.keys, version.manifest.catalog.titles
        if version.unlocked.seen != manifest.seen:
            raise Stale("the database has changed", hint="ask again")
        if successor is not None:
            keys, title = successor
            self._check_title(titles, title, keys.data_key)
            titles = (*titles, title)
        old = manifest.catalog
        catalog = Catalog(self.database, old.version + 1, manifest.hash, tables, titles, old.restores)
        return self._drafted(keys, catalog, dummies, access, version.unlocked, version)

    def _drafted(
        self,
        keys: DataKeys,
        catalog: Catalog,
        dummies: dict[str, Dummies],
        access: AccessList,
        known: Unlocked | None,
        before: OpenVersion | None,
    ) -> Pending:
        kept = {run.id for table in catalog.tables for run in table.runs}
        public, sealed = seal_manifest(keys, catalog, {run: dummies[run] for run in kept}, access)
        return Pending(self, keys, catalog, public, sealed, access.grant_of(self.signer), known, before)

    def commit(self, pending: Pending, signature: bytes) -> OpenVersion:
        """Store a drafted version with its signature: on top of the newest, or a front could fork the database."""
        grant = pending.grant
        link = Link(pending.draft, self.signer, signature, None if grant is None else grant.certificate())
        manifest = pack(pending.public, pending.sealed, link.to_bytes())
        opened = open_manifest(pending.keys, manifest)
        name = origin(self.database, opened.catalog.titles, self.signer)
        with self.vault.holding(self.database):
            # Before an upgrade, a database of release 0.1 was remembered for its owner, under the same name.
            if self.vault.get(name) is not pending.known:
                raise Stale("the database has changed", hint="ask again")
            self.storage.commit(opened.catalog.version, manifest)
            return self._remembered(name, pending.keys, opened, grant, (link,), pending.before)

    def _remembered(
        self,
        name: str,
        keys: DataKeys,
        manifest: Manifest,
        grant: Grant | None,
        links: tuple[Link, ...],
        before: OpenVersion | None,
    ) -> OpenVersion:
        unlocked = self.vault.remember(name, keys.data_key, manifest)
        readers = {} if before is None or before.keys is not keys else before.readers
        return OpenVersion(self.storage, keys, unlocked, manifest, grant, links, readers)

    def _check_title(self, titles: tuple[Title, ...], title: Title, data_key: bytes) -> None:
        if title.data_key_hash != data_key_hash(self.database, data_key):
            raise Refused
        try:
            check_titles(self.database, (*titles, title))
        except Tampered:
            raise Refused from None

    def _newest(self, before: OpenVersion | None) -> tuple[str, Unlocked | None, DataKeys, Manifest]:
        """What the database is remembered by, what is remembered, the keys, and the head, which they open."""
        head = read_head(self.storage)
        envelope, known = unpack(head), None if before is None else before.stored
        if known is not None and known.is_in(envelope):
            catalog, link = known.catalog, known.link
        else:
            known, (catalog, link) = None, signed_catalog(envelope)
        if catalog.database != self.database:
            raise Tampered
        name = origin(self.database, catalog.titles, self.signer)
        unlocked = self.vault.get(name)
        data_key = self.data_key
        if data_key is None:
            if unlocked is None:
                raise Locked
            data_key = unlocked.data_key
        if before is not None and before.keys.data_key == data_key:
            keys = before.keys
        else:
            keys, known = DataKeys(data_key, self.database), None
        if link is not None and data_key_hash(self.database, data_key) != catalog.titles[-1].data_key_hash:
            # The owner has changed the key: an analyst waits until this enclave is told the new one.
            raise Locked if self.data_key is None else Refused
        try:
            return name, unlocked, keys, known or open_manifest(keys, head)
        except Tampered:
            if unlocked is not None and unlocked.data_key != data_key:  # the key of somebody else, or an old one
                raise Refused from None
            raise

    def _grant(self, manifest: Manifest, unlocked: Unlocked | None) -> Grant | None:
        """The signer's grant, None for the owner; Refused to everybody else."""
        grant = manifest.access.grant_of(self.signer)
        if grant is None:
            return None
        if self.data_key is not None or manifest.link is None:
            raise Refused
        if unlocked is None or unlocked.owner not in _owners(manifest):
            raise Refused  # the signer of the key says that the database is somebody else's
        if not manifest.access.has_signed(self.database, grant):
            raise Tampered
        return grant


def _owners(manifest: Manifest) -> set[bytes]:
    """Every key that the database has belonged to."""
    return {manifest.access.owner, *(title.owner for title in manifest.catalog.titles)}


def unsigned() -> InvalidParameter:
    """The error for a change to a database of release 0.1, whose versions nobody has signed."""
    return InvalidParameter(
        "the database was made by release 0.1, and its versions are not signed", hint="sign it with `scumble upgrade`"
    )
