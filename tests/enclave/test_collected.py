"""Versions of which the store has kept no more than the links: they chain as whole manifests do, and lies show."""

from dataclasses import replace
from fractions import Fraction

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from enclave_tables import DATA_KEY, DATABASE, KEYS, OWNER, OWNER_KEY, TITLE, MemoryStorage, signed_manifest, table_of

from scumble.enclave.dummies import Dummies
from scumble.enclave.grants import AccessList
from scumble.enclave.manifests import Manifest, check_chain, links_since, open_head, seal_manifest
from scumble.enclave.pages import DataKeys
from scumble.errors import Tampered
from scumble.wire.catalog import Catalog, Run
from scumble.wire.grants import Grant
from scumble.wire.lineage import Draft, Link, Seen, check_follows, first_title, next_title, sign_draft
from scumble.wire.links import link_of, pack_links, unpack_links
from scumble.wire.storage import pack_unsigned, unpack

RUN = "cd" * 16
ACCESS = AccessList(OWNER_KEY)
TABLE = table_of("integer", runs=(Run(RUN, "b", None, 32, 16, None, ("00" * 32,)),))
ADA, EVE = (Ed25519PrivateKey.from_private_bytes(bytes([place] * 32)) for place in (7, 9))
GRANT = Grant("0" * 16, "ada", ADA.public_key().public_bytes_raw(), {"t": frozenset(["load"])}, Fraction(1))
CERTIFICATE = GRANT.signed(DATABASE, OWNER).certificate()
OLD = "0a" * 16
"""The id of a database of release 0.1."""


def _catalog(version: int, previous: str, /, **more: object) -> Catalog:
    return replace(Catalog(DATABASE, version, previous, (TABLE,), (TITLE,)), **more)  # type: ignore[arg-type]


def _chain(storage: MemoryStorage, versions: int, by_ada: tuple[int, ...] = ()) -> list[Seen]:
    """Versions in a row, as they are remembered."""
    seen, previous = [], ""
    for version in range(1, versions + 1):
        signing = (ADA, CERTIFICATE) if version in by_ada else (OWNER, None)
        storage.commit(version, signed_manifest(KEYS, _catalog(version, previous), {RUN: version}, ACCESS, *signing))
        previous = unpack(storage.manifest(version)).hash
        seen.append((0, version, previous))
    return seen


def _links(storage: MemoryStorage, *versions: int) -> list[Link]:
    links = [link_of(version, storage.manifests[version]) for version in versions]
    assert None not in links
    return links  # type: ignore[return-value]


def _keep(storage: MemoryStorage, links: list[Link]) -> None:
    """One pack of links, in the place of their manifests."""
    packed = pack_links(links)
    for link in links:
        storage.manifests.pop(link.draft.version, None)
        storage.packs[link.draft.version] = packed


def _collect(storage: MemoryStorage, *versions: int) -> None:
    _keep(storage, _links(storage, *versions))


def _head(storage: MemoryStorage) -> Manifest:
    return open_head(storage, KEYS, DATABASE)


@pytest.mark.parametrize(
    "packs",
    [
        [(1, 2, 3, 4, 5, 6, 7)],
        [(1,), (2,), (3,), (4,), (5,), (6,), (7,)],
        [(1, 2), (3, 4, 5), (6, 7)],
        [(1, 2), (5, 6)],
        [(3, 4)],
        [(7,)],
        [(1,)],
    ],
)
def test_a_chain_is_the_same_whichever_versions_are_collected(packs: list[tuple[int, ...]]) -> None:
    storage = MemoryStorage()
    seen = _chain(storage, 8, by_ada=(3, 5, 6))
    head = _head(storage)
    whole = [links_since(storage, head, each) for each in seen]
    for pack in packs:
        _collect(storage, *pack)
    check_chain(storage, head)
    for each, links in zip(seen, whole, strict=True):
        assert links_since(storage, head, each) == links
        check_follows(DATABASE, (TITLE,), links, each, head.seen)


def test_a_pack_may_have_links_of_later_versions_too() -> None:
    """As one does that has grown since, or if the store has put the newest in it already."""
    storage = MemoryStorage()
    seen = _chain(storage, 6)
    every = pack_links(_links(storage, *range(1, 7)))
    for version in (2, 3):
        del storage.manifests[version]
    storage.packs = dict.fromkeys(range(1, 7), every)
    assert [link.draft.version for link in links_since(storage, _head(storage), seen[0])] == [2, 3, 4, 5, 6]


def test_a_fork_a_rollback_and_a_gap() -> None:
    storage, other = MemoryStorage(), MemoryStorage()
    seen, forked = _chain(storage, 6), _chain(other, 6)
    head = _head(storage)
    _collect(storage, 1, 2, 3, 4)
    strange = [(0, 7, "00" * 32), (0, 6, "00" * 32), (0, 3, seen[3][2]), (1, *seen[3][1:])]
    for each in (*strange, *forked):
        with pytest.raises(Tampered):
            links_since(storage, head, each)
    packs, honest = dict(storage.packs), list(unpack_links(storage.packs[1]))
    theirs = _links(other, 1, 2, 3, 4)
    for spoil in (
        {version: packs[version] for version in (1, 2, 3)},  # collected, and forgotten
        {version: pack_links(honest[:3]) for version in packs},
        {version: pack_links(honest[:2]) for version in (1, 2)} | {4: pack_links(honest[3:])},
        {version: pack_links(theirs) for version in packs},
        {version: pack_links(theirs[:3]) for version in (1, 2, 3)} | {4: pack_links(honest[3:])},
        dict.fromkeys(packs, b""),
        {version: packs[version][:-1] for version in packs},
    ):
        storage.packs = spoil
        assert links_since(storage, head, seen[4])  # which needs none of them
        for walk in (lambda: links_since(storage, head, seen[0]), lambda: check_chain(storage, head)):
            with pytest.raises(Tampered):
                walk()
    storage.packs = packs
    assert len(links_since(storage, head, seen[0])) == 5


def test_every_signature_in_a_pack_counts() -> None:
    storage = MemoryStorage()
    seen = _chain(storage, 6, by_ada=(3,))
    head = _head(storage)
    _collect(storage, 1, 2, 3, 4)
    honest = list(unpack_links(storage.packs[1]))

    def resigned(link: Link, key: Ed25519PrivateKey, database: str = DATABASE, **changed: object) -> Link:
        draft = replace(link.draft, **changed)  # type: ignore[arg-type]
        return Link(draft, key.public_key().public_bytes_raw(), sign_draft(database, draft, key), link.certificate)

    for place, link in (
        (1, replace(honest[1], signature=bytes(64))),
        (1, replace(honest[1], signature=honest[0].signature)),
        (1, resigned(honest[1], EVE)),
        (1, resigned(honest[1], ADA)),
        (1, resigned(honest[1], OWNER, "0b" * 20)),
        (2, replace(honest[2], certificate=None)),
        (2, replace(honest[2], certificate=GRANT.signed(DATABASE, EVE).certificate())),
        (2, replace(resigned(honest[2], EVE), certificate=replace(CERTIFICATE, public_key=_public(EVE)))),
        (1, replace(honest[1], draft=replace(honest[1].draft, restores=1))),
        (1, resigned(honest[1], OWNER, restores=1)),  # and none in those that follow
        (2, resigned(honest[2], ADA, restores=1)),
    ):
        _keep(storage, [*honest[:place], link, *honest[place + 1 :]])
        with pytest.raises(Tampered):
            check_chain(storage, head)
        with pytest.raises(Tampered):
            links_since(storage, head, seen[0])
    _keep(storage, honest)
    check_chain(storage, head)


def _public(key: Ed25519PrivateKey) -> bytes:
    return key.public_key().public_bytes_raw()


def test_the_owner_alone_goes_back_to_an_older_version() -> None:
    storage = MemoryStorage()
    seen = _chain(storage, 6)
    for version in (5, 6):
        del storage.manifests[version]
    storage.commit(5, signed_manifest(KEYS, _catalog(5, seen[3][2], restores=1), {RUN: 1}, ACCESS))
    previous = unpack(storage.manifests[5]).hash
    for restores, signing in ((1, (OWNER, None)), (2, (OWNER, None)), (2, (ADA, CERTIFICATE))):
        storage.commit(6, signed_manifest(KEYS, _catalog(6, previous, restores=restores), {RUN: 1}, ACCESS, *signing))
        following = _catalog(7, unpack(storage.manifests[6]).hash, restores=restores)
        storage.commit(7, signed_manifest(KEYS, following, {RUN: 1}, ACCESS))
        head, whole = _head(storage), dict(storage.manifests)
        _collect(storage, 3, 4, 5, 6)
        if signing == (OWNER, None):
            for each in seen:
                assert links_since(storage, head, each)[-1].draft.seen == head.seen
        else:
            for each in (*seen, (1, 5, previous)):
                with pytest.raises(Tampered):
                    links_since(storage, head, each)
        storage.manifests, storage.packs = whole, {}


def test_links_are_checked_under_the_title_of_their_time() -> None:
    """After a rekey the old owner's links below it are good, and its links above it are not."""
    storage, new = MemoryStorage(), DataKeys(bytes(32), DATABASE)
    seen = _chain(storage, 3)
    title = next_title(DATABASE, 4, OWNER, ADA, bytes(32))
    titles, owned = (TITLE, title), AccessList(_public(ADA))
    previous = seen[-1][2]
    for version in (4, 5, 6):
        catalog = _catalog(version, previous, titles=titles)
        storage.commit(version, signed_manifest(new, catalog, {RUN: 1}, owned, ADA))
        previous = unpack(storage.manifest(version)).hash
    head = open_head(storage, new, DATABASE)
    _collect(storage, 2, 3, 4, 5)
    check_chain(storage, head)
    for each in seen:
        check_follows(DATABASE, titles, links_since(storage, head, each), each, head.seen)
    honest = list(unpack_links(storage.packs[2]))
    for place, key in ((3, OWNER), (1, ADA)):
        draft = honest[place].draft
        by_other = Link(draft, _public(key), sign_draft(DATABASE, draft, key))
        _keep(storage, [*honest[:place], by_other, *honest[place + 1 :]])
        with pytest.raises(Tampered):
            check_chain(storage, head)


def test_no_link_stands_for_a_version_of_release_0_1() -> None:
    storage, keys = MemoryStorage(), DataKeys(DATA_KEY, OLD)

    def unsigned(version: int, previous: str) -> str:
        catalog = Catalog(OLD, version, previous, (TABLE,))
        storage.commit(version, pack_unsigned(*seal_manifest(keys, catalog, {RUN: Dummies.after(1)}, ACCESS)))
        return unpack(storage.manifests[version]).hash

    first = unsigned(1, "")
    second = unsigned(2, first)
    title, previous = first_title(OLD, OWNER, b"", DATA_KEY, version=3), second
    for version in (3, 4, 5):
        catalog = Catalog(OLD, version, previous, (TABLE,), (title,))
        storage.commit(version, signed_manifest(keys, catalog, {RUN: 1}, ACCESS))
        previous = unpack(storage.manifests[version]).hash
    head = open_head(storage, keys, OLD)
    _collect(storage, 3, 4)
    check_chain(storage, head)
    assert [link.draft.version for link in links_since(storage, head, (0, 1, first))] == [3, 4, 5]
    whole = dict(storage.manifests)
    for version, before, digest in ((1, "", first), (2, first, second)):
        draft = Draft(0, version, before, digest)
        storage.manifests = dict(whole)
        _keep(storage, [Link(draft, OWNER_KEY, sign_draft(OLD, draft, OWNER))])  # by the owner itself
        with pytest.raises(Tampered):
            check_chain(storage, head)


def test_a_whole_version_below_links_has_the_titles_of_the_head() -> None:
    """The links between them do not hide that the database was given to somebody else meanwhile."""
    storage = MemoryStorage()
    seen = _chain(storage, 1)
    given = next_title(DATABASE, 2, OWNER, EVE, DATA_KEY)
    eves = AccessList(_public(EVE))
    storage.commit(2, signed_manifest(KEYS, _catalog(2, seen[0][2], titles=(TITLE, given)), {RUN: 1}, eves, EVE))
    previous = unpack(storage.manifests[2]).hash
    for version in (3, 4):  # the former owner goes on as if nothing had happened
        storage.commit(version, signed_manifest(KEYS, _catalog(version, previous), {RUN: 1}, ACCESS))
        previous = unpack(storage.manifests[version]).hash
    _collect(storage, 3)
    with pytest.raises(Tampered):
        links_since(storage, _head(storage), seen[0])
    _collect(storage, 2)
    with pytest.raises(Tampered):
        links_since(storage, _head(storage), seen[0])
