"""Titles and links: which version follows which, by signatures alone."""

import json
import secrets
from dataclasses import replace
from hashlib import sha256
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from scumble.errors import Tampered
from scumble.owner.keys import OwnerKey
from scumble.wire.lineage import (
    Certificate,
    Draft,
    Link,
    Seen,
    Title,
    check_follows,
    check_link,
    check_titles,
    data_key_hash,
    database_id,
    first_title,
    next_title,
    origin,
    sign_draft,
    title_at,
)

FIRST = OwnerKey.draw()
DATABASE = FIRST.database
NEXT, OTHER = (OwnerKey(DATABASE, bytes([place]) * 32) for place in (1, 2))
TITLES = FIRST.title(), next_title(DATABASE, 3, FIRST.signing_key(), NEXT.signing_key(), NEXT.data_key())
OLD_DATABASE = "0a" * 16
OLD = OwnerKey(OLD_DATABASE, bytes([3]) * 32)
"""The key of a database of release 0.1, whose id is no hash of it."""


def _link(key: OwnerKey, draft: Draft, certificate: Certificate | None = None) -> Link:
    return Link(draft, key.public_key(), sign_draft(key.database, draft, key.signing_key()), certificate)


def _certificate(owner: OwnerKey, analyst: OwnerKey, database: str = DATABASE) -> Certificate:
    return Certificate.signed(database, owner.signing_key(), "0" * 16, analyst.public_key(), b"terms")


def _hash(version: int) -> str:
    return sha256(bytes([version])).hexdigest()


def _draft(version: int, restores: int = 0) -> Draft:
    return Draft(restores, version, _hash(version - 1), _hash(version))


def _signed_by(title: Title, database: str, before: bytes, *keys: OwnerKey) -> Title:
    signed = title._signed(database, before)
    return replace(title, signatures=tuple(key.signing_key().sign(signed) for key in keys))


def test_a_key_that_was_replaced_takes_nothing_older_for_the_newest() -> None:
    """Its thief signs a version below the title that ended it, as owners do after a restore."""
    old = OwnerKey.draw()
    new = OwnerKey(old.database, secrets.token_bytes(32))
    titles = old.title(), next_title(old.database, 3, old.signing_key(), new.signing_key(), new.data_key())
    seen = (0, 3, "cc" * 32)
    stolen = _link(old, Draft(1, 2, "aa" * 32, "ee" * 32))
    with pytest.raises(Tampered):
        check_follows(old.database, titles, [stolen], seen, stolen.draft.seen)
    restored = _link(new, Draft(1, 4, "cc" * 32, "ee" * 32))
    check_follows(old.database, titles, [restored], seen, restored.draft.seen)
    with pytest.raises(Tampered):  # nor with the new owner's version on top, unless that follows it
        check_follows(old.database, titles, [stolen, restored], seen, restored.draft.seen)


# --- titles ------------------------------------------------------------------------------------------


def test_what_is_hashed_and_signed_stays_the_same() -> None:
    """Databases there are were named and signed so."""
    key = Ed25519PrivateKey.from_private_bytes(bytes(32))
    database = database_id(key.public_key().public_bytes_raw(), b"nonce")
    title = first_title(database, key, b"nonce", b"data key")
    certificate = Certificate.signed(database, key, "grant", b"analyst", b"terms")
    signatures = title.signatures[0], certificate.signature, sign_draft(database, Draft(1, 2, "aa", "bb"), key)
    assert database == "0cf09c52a0f32dcb6527102d4929c98ab769cfeb"
    assert data_key_hash(database, b"data key").hex()[:16] == "e2e4b28bc662d0b5"
    assert [signature.hex()[:16] for signature in signatures] == [
        "d7bd7c81bdcbf73a",
        "a6a2e6a28db8dfb8",
        "ece00a81e95a5a10",
    ]


def test_titles_lead_from_the_id_to_the_owner() -> None:
    check_titles(DATABASE, TITLES[:1])
    check_titles(DATABASE, TITLES)


@pytest.mark.parametrize("version", [1, 3])
def test_the_first_title_of_release_0_1_may_come_later(version: int) -> None:
    check_titles(OLD_DATABASE, [first_title(OLD_DATABASE, OLD.signing_key(), b"", OLD.data_key(), version)])


FIRST_TITLES = [
    (FIRST, replace(TITLES[0], version=2)),
    (FIRST, replace(TITLES[0], version=0)),
    (FIRST, replace(TITLES[0], nonce=b"n" * 16)),
    (OTHER, replace(TITLES[0], owner=OTHER.public_key())),
    (OLD, Title(1, OLD.public_key(), bytes(32), b"n" * 16, ())),
    (OLD, Title(0, OLD.public_key(), bytes(32), b"", ())),
]


@pytest.mark.parametrize(("key", "title"), FIRST_TITLES)
def test_a_first_title_that_does_not_belong_to_the_id_is_refused(key: OwnerKey, title: Title) -> None:
    """Though whoever it names has signed it."""
    with pytest.raises(Tampered):
        check_titles(key.database, [_signed_by(title, key.database, b"", key)])


NEXT_TITLE = replace(TITLES[1], signatures=())
NEXT_TITLES = [
    (replace(NEXT_TITLE, version=1), NEXT),
    (replace(NEXT_TITLE, version=0), NEXT),
    (replace(NEXT_TITLE, nonce=b"n"), NEXT),
    (replace(NEXT_TITLE, owner=FIRST.public_key()), FIRST),
]


@pytest.mark.parametrize(("title", "new"), NEXT_TITLES)
def test_a_later_title_is_of_a_later_version_and_another_key(title: Title, new: OwnerKey) -> None:
    with pytest.raises(Tampered):
        check_titles(DATABASE, [TITLES[0], _signed_by(title, DATABASE, FIRST.public_key(), FIRST, new)])


@pytest.mark.parametrize(
    "signers", [(), (FIRST,), (NEXT,), (NEXT, FIRST), (FIRST, FIRST), (NEXT, NEXT), (FIRST, NEXT, NEXT)]
)
def test_the_old_and_the_new_key_both_sign_a_later_title(signers: tuple[OwnerKey, ...]) -> None:
    with pytest.raises(Tampered):
        check_titles(DATABASE, [TITLES[0], _signed_by(NEXT_TITLE, DATABASE, FIRST.public_key(), *signers)])


def test_a_title_is_signed_for_the_one_before_it() -> None:
    with pytest.raises(Tampered):
        check_titles(DATABASE, [TITLES[0], _signed_by(NEXT_TITLE, DATABASE, b"", FIRST, NEXT)])
    with pytest.raises(Tampered):
        check_titles(DATABASE, [_signed_by(TITLES[0], DATABASE, FIRST.public_key(), FIRST)])
    with pytest.raises(Tampered):
        check_titles(DATABASE, [replace(TITLES[0], signatures=())])


def test_no_titles_lead_nowhere() -> None:
    with pytest.raises(Tampered):
        check_titles(DATABASE, [])


def test_the_title_in_force_is_the_last_that_has_begun() -> None:
    assert [title_at(TITLES, version) for version in (1, 2, 3, 4)] == [TITLES[0], TITLES[0], TITLES[1], TITLES[1]]
    with pytest.raises(Tampered):
        title_at(TITLES, 0)


@pytest.mark.parametrize("title", TITLES)
def test_a_title_is_read_as_it_was_written(title: Title) -> None:
    assert Title.from_json(json.loads(json.dumps(title.to_json()))) == title


@pytest.mark.parametrize(
    "change",
    [
        {"version": True},
        {"version": "1"},
        {"version": 1.0},
        {"signatures": "00"},
        {"signatures": {}},
        {"signatures": ["00"] * 3},
        {"signatures": [5]},
        {"owner": "no hex"},
        {"nonce": None},
    ],
)
def test_a_title_of_another_shape_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(Tampered):
        Title.from_json(TITLES[1].to_json() | change)


def test_a_database_is_remembered_by_its_first_owner() -> None:
    signer = OTHER.public_key()
    assert origin(DATABASE, TITLES, signer) == DATABASE
    titles = (
        first_title(OLD_DATABASE, OLD.signing_key(), b"", OLD.data_key()),
        next_title(OLD_DATABASE, 2, OLD.signing_key(), NEXT.signing_key(), NEXT.data_key()),
    )
    assert origin(OLD_DATABASE, titles, signer) == f"{OLD_DATABASE} {OLD.public_key().hex()}"
    assert origin(OLD_DATABASE, (), signer) == f"{OLD_DATABASE} {signer.hex()}"


# --- versions ----------------------------------------------------------------------------------------


def test_the_owner_in_force_makes_versions_and_who_it_has_certified() -> None:
    for link in (
        _link(FIRST, _draft(2)),
        _link(NEXT, _draft(3)),
        _link(OTHER, _draft(2), _certificate(FIRST, OTHER)),
        _link(OTHER, _draft(3), _certificate(NEXT, OTHER)),
    ):
        check_link(DATABASE, TITLES, link)


MADE_BY_OTHERS = [
    _link(FIRST, _draft(3)),
    _link(NEXT, _draft(2)),
    _link(OTHER, _draft(2)),
    _link(FIRST, _draft(2), _certificate(FIRST, FIRST)),
    _link(OTHER, _draft(2), _certificate(FIRST, NEXT)),
    _link(OTHER, _draft(2), _certificate(OTHER, OTHER)),
    _link(OTHER, _draft(2), _certificate(NEXT, OTHER)),
    _link(OTHER, _draft(3), _certificate(FIRST, OTHER)),
    _link(OTHER, _draft(2), _certificate(FIRST, OTHER, OLD_DATABASE)),
    _link(OTHER, _draft(2), replace(_certificate(FIRST, OTHER), terms=b"others")),
    replace(_link(FIRST, _draft(2)), draft=_draft(1)),
    replace(_link(FIRST, _draft(2)), signature=bytes(64)),
    replace(_link(FIRST, _draft(2)), draft=replace(_draft(2), previous="\ud800")),  # as JSON can have it
    replace(_link(FIRST, _draft(2)), draft=replace(_draft(2), hash="\udfff")),
    replace(_link(OTHER, _draft(2)), signer=FIRST.public_key()),
    replace(_link(FIRST, _draft(2), _certificate(FIRST, OTHER)), signer=OTHER.public_key()),
]


@pytest.mark.parametrize("link", MADE_BY_OTHERS)
def test_nobody_else_makes_a_version(link: Link) -> None:
    with pytest.raises(Tampered):
        check_link(DATABASE, TITLES, link)


def test_a_version_follows_the_one_before() -> None:
    analyst = _certificate(FIRST, OTHER)
    before = _draft(1, restores=1)
    check_link(DATABASE, TITLES, _link(FIRST, _draft(2, restores=1)), before)
    check_link(DATABASE, TITLES, _link(FIRST, _draft(2, restores=2)), before)
    check_link(DATABASE, TITLES, _link(OTHER, _draft(2, restores=1), analyst), before)
    for link in (
        _link(FIRST, _draft(2, restores=0)),
        _link(OTHER, _draft(2, restores=2), analyst),
        _link(FIRST, replace(_draft(2, restores=1), previous=_hash(0))),
        _link(FIRST, replace(_draft(1, restores=1), previous=before.hash)),
        _link(FIRST, replace(_draft(2, restores=1), version=0, previous=before.hash)),
        _link(NEXT, replace(_draft(3, restores=1), previous=before.hash)),
    ):
        with pytest.raises(Tampered):
            check_link(DATABASE, TITLES, link, before)


def _follows(seen: Seen | None, *links: Link, head: Seen | None = None, titles: tuple[Title, ...] = TITLES) -> None:
    check_follows(DATABASE, titles, links, seen, links[-1].draft.seen if head is None else head)


def test_links_lead_from_the_version_that_was_seen_to_the_head() -> None:
    fourth, fifth = _link(NEXT, _draft(4)), _link(OTHER, _draft(5), _certificate(NEXT, OTHER))
    _follows(_draft(3).seen, fourth, fifth)
    _follows(_draft(4).seen, fifth)
    _follows(_draft(5).seen, head=_draft(5).seen)
    _follows(None, fifth)
    _follows(None, _link(NEXT, _draft(3)))
    _follows(_draft(5).seen, _link(NEXT, _draft(4, restores=1)), _link(NEXT, _draft(5, restores=1)))
    _follows(_draft(2, restores=1).seen, _link(NEXT, _draft(3, restores=1)))


FOURTH, FIFTH = _link(NEXT, _draft(4)), _link(NEXT, _draft(5))
BY_ANALYST = _link(OTHER, _draft(4, restores=1), _certificate(NEXT, OTHER))
ASTRAY: list[tuple[Seen | None, list[Link], Seen]] = [
    (None, [], _draft(4).seen),
    (_draft(3).seen, [], _draft(4).seen),
    (_draft(4).seen, [FOURTH], _draft(4).seen),  # one that was seen is not shown again
    (_draft(3).seen, [FOURTH], _draft(5).seen),
    (_draft(3).seen, [FOURTH], (1, 4, _hash(4))),
    (_draft(3).seen, [FIFTH], _draft(5).seen),
    (_draft(3).seen, [FIFTH, FOURTH], _draft(4).seen),
    (_draft(4).seen, [FOURTH, FIFTH], _draft(5).seen),
    (_draft(5).seen, [FOURTH], _draft(4).seen),
    ((0, 3, _hash(7)), [FOURTH], _draft(4).seen),
    (_draft(3, restores=1).seen, [FOURTH], _draft(4).seen),
    (_draft(3).seen, [BY_ANALYST], BY_ANALYST.draft.seen),
    (_draft(5).seen, [BY_ANALYST], BY_ANALYST.draft.seen),
    (_draft(3).seen, [_link(OTHER, _draft(4))], _draft(4).seen),
    (None, [_link(OTHER, _draft(4))], _draft(4).seen),
    (None, [FOURTH, replace(FIFTH, signature=bytes(64))], _draft(5).seen),
]


@pytest.mark.parametrize(("seen", "links", "head"), ASTRAY)
def test_links_that_leave_one_out_or_lead_elsewhere_are_refused(seen: Seen, links: list[Link], head: Seen) -> None:
    with pytest.raises(Tampered):
        check_follows(DATABASE, TITLES, links, seen, head)


def test_the_titles_are_checked_even_if_nothing_is_new() -> None:
    with pytest.raises(Tampered):
        _follows(_draft(4).seen, head=_draft(4).seen, titles=(replace(TITLES[0], signatures=(bytes(64),)),))
    with pytest.raises(Tampered):
        _follows(_draft(2).seen, head=_draft(2).seen)


def test_only_the_first_signed_version_of_release_0_1_follows_any_before_it() -> None:
    """Those before it nobody has signed. A database whose id is a hash was signed from its first version on."""
    first = first_title(OLD_DATABASE, OLD.signing_key(), b"", OLD.data_key(), 3)
    new = OwnerKey(OLD_DATABASE, bytes([4]) * 32)
    second = next_title(OLD_DATABASE, 5, OLD.signing_key(), new.signing_key(), new.data_key())
    third, fourth, fifth = _link(OLD, _draft(3)), _link(OLD, _draft(4)), _link(new, _draft(5))
    unsigned = 0, 1, _hash(9)
    check_follows(OLD_DATABASE, [first], [third], unsigned, _draft(3).seen)
    check_follows(OLD_DATABASE, [first, second], [third, fourth, fifth], unsigned, _draft(5).seen)
    by_analyst = _link(OwnerKey(OLD_DATABASE, bytes(32)), _draft(3))
    by_analyst = replace(by_analyst, certificate=_certificate(OLD, OwnerKey(OLD_DATABASE, bytes(32)), OLD_DATABASE))
    for titles, links, seen in (
        ([first], [fourth], unsigned),
        ([first], [third], (0, 3, _hash(9))),
        ([first], [third], (0, 4, _hash(9))),
        ([first], [by_analyst], unsigned),
        ([first, second], [fifth], unsigned),
    ):
        with pytest.raises(Tampered):
            check_follows(OLD_DATABASE, titles, links, seen, links[-1].draft.seen)
    begun = _link(FIRST, Draft(0, 1, "", _hash(1)))
    with pytest.raises(Tampered):
        check_follows(DATABASE, TITLES[:1], [begun], (0, 0, _hash(9)), begun.draft.seen)


def test_a_link_is_read_only_as_it_was_written() -> None:
    for link in (FOURTH, BY_ANALYST):
        assert Link.from_bytes(link.to_bytes()) == link
    text = FOURTH.to_bytes()
    for changed in (text + b" ", json.dumps(json.loads(text)).encode(), b"{}", b"", b"[" * 100_000, b"\xff"):
        with pytest.raises(Tampered):
            Link.from_bytes(changed)
