"""A witness by itself: what it cosigns, what it refuses and shows instead, and what it knows after it has died."""

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from witness_setup import Made, digest

from scumble.errors import Busy, Corrupt, FileError, InvalidParameter, Refused, Tampered
from scumble.owner.keys import OwnerKey
from scumble.wire.grants import parse_public_key
from scumble.wire.lineage import Certificate, Draft, Link, sign_draft
from scumble.witness.cosignatures import (
    MOST_BYTES,
    MOST_LINKS,
    Answer,
    Cosignature,
    Presentation,
    from_json_bytes,
    to_json_bytes,
)
from scumble.witness.log import Witness


@pytest.fixture
def witness(tmp_path: Path) -> Iterator[Witness]:
    made = Witness(tmp_path / "witness")
    yield made
    made.close()


def again(witness: Witness) -> Witness:
    """The same witness after a restart."""
    witness.close()
    witness.__init__(witness._folder)  # type: ignore[misc]
    return witness


def seen(answer: Answer) -> tuple[int, int, str] | None:
    return None if answer.cosignature is None else answer.cosignature.seen


def test_it_cosigns_what_follows_and_shows_the_other_version_of_a_fork(witness: Witness) -> None:
    made = Made()
    first, second, third = made.links((0, 1, "a"), (0, 2, "b"), (0, 3, "c"))
    asked = made.shown()
    assert witness.answer(asked) == Answer(None, (), None)
    for links in ((first,), (second, third)):
        shown = made.shown(*links)
        answer = witness.answer(shown)
        assert seen(answer) == links[-1].draft.seen
        assert answer.cosignature is not None
        assert answer.cosignature.is_by(parse_public_key(witness.text))
        assert (answer.cosignature.nonce, answer.cosignature.database) == (shown.nonce, made.database)
        assert answer == from_json_bytes(Answer, to_json_bytes(answer))
    (fork,) = made.links((0, 2, "other"), previous=digest("a"))
    refusal = witness.answer(made.shown(fork))
    assert (seen(refusal), refusal.link) == (third.draft.seen, second)  # both signed by the owner: the proof
    rollback = witness.answer(made.shown(first, second))
    assert (seen(rollback), rollback.link) == (third.draft.seen, second)
    (gap,) = made.links((0, 9, "far"), previous=digest("?"))
    assert seen(witness.answer(made.shown(gap))) == third.draft.seen
    assert seen(witness.answer(made.shown(first, second, third, *made.links((0, 4, "d"), previous=digest("c"))))) == (
        0,
        4,
        digest("d"),
    )


def test_a_restore_that_the_owner_has_signed_passes_and_what_was_before_it_does_not(witness: Witness) -> None:
    made = Made()
    witness.answer(made.shown(*made.links((0, 1, "a"), (0, 2, "b"), (0, 3, "c"))))
    (restored,) = made.links((1, 2, "again"), previous=digest("a"))
    assert seen(witness.answer(made.shown(restored))) == (1, 2, digest("again"))
    (old,) = made.links((0, 4, "d"), previous=digest("c"))
    assert seen(witness.answer(made.shown(old))) == (1, 2, digest("again"))
    writer = OwnerKey.draw()
    public = writer.public_key()
    draft = Draft(2, 3, digest("again"), digest("e"))
    signature = sign_draft(made.database, draft, writer.signing_key())
    owner = made.keys[0].signing_key()
    by_analyst = Link(draft, public, signature, Certificate.signed(made.database, owner, "g", public, b"t"))
    assert seen(witness.answer(made.shown(by_analyst))) == (1, 2, digest("again"))  # only an owner restores


def test_after_a_rekey_the_old_key_signs_nothing_more(witness: Witness) -> None:
    made = Made()
    witness.answer(made.shown(*made.links((0, 1, "a"), (0, 2, "b"))))
    before = made.titles
    made.rekey(3)
    assert seen(witness.answer(made.shown(*made.links((0, 3, "c"), previous=digest("b"))))) == (0, 3, digest("c"))
    for titles in (before, made.titles):  # it takes an older version for the newest, as owners may
        stolen = made.signed(Draft(1, 2, digest("a"), digest("x")), made.keys[0])
        shown = replace(made.shown(stolen), titles=titles)
        if titles is made.titles:
            with pytest.raises(Tampered):
                witness.answer(shown)
        else:
            assert seen(witness.answer(shown)) == (0, 3, digest("c"))
    assert seen(witness.answer(made.shown(*made.links((1, 4, "d"), previous=digest("c"))))) == (1, 4, digest("d"))


def test_it_checks_every_signature_and_serves_whom_it_was_told_to(witness: Witness, tmp_path: Path) -> None:
    made, other = Made(), Made()
    (link,) = made.links((0, 1, "a"))
    for wrong in (
        replace(made.shown(link), database=other.database),
        replace(made.shown(link), titles=other.titles),
        replace(made.shown(link), titles=()),
        made.shown(replace(link, signature=other.links((0, 1, "a"))[0].signature)),
        made.shown(replace(link, draft=replace(link.draft, hash=digest("b")))),
    ):
        with pytest.raises(Tampered):
            witness.answer(wrong)
    assert seen(witness.answer(made.shown())) is None
    for nonce in (b"", bytes(15), bytes(17)):
        with pytest.raises(InvalidParameter):
            replace(made.shown(link), nonce=nonce)
    for database in ("../../etc/passwd", "", "A" * 40):
        with pytest.raises(InvalidParameter):
            replace(made.shown(link), database=database)
    with pytest.raises((InvalidParameter, Tampered)):
        from_json_bytes(Presentation, b'{"database": 7}')
    only = Witness(tmp_path / "only", frozenset([other.database]))
    with pytest.raises(Refused):
        only.answer(made.shown(link))
    assert seen(only.answer(other.shown(*other.links((0, 1, "a"))))) == (0, 1, digest("a"))
    only.close()


def test_an_id_of_release_0_1_is_remembered_for_each_first_owner(witness: Witness) -> None:
    """It is no hash of a key, so that anybody can name it; nobody takes it from another by that."""
    made, thief = Made("ab" * 16, first=3), Made("ab" * 16, first=2)
    assert seen(witness.answer(made.shown(*made.links((0, 3, "a"), previous=digest("unsigned"))))) == (
        0,
        3,
        digest("a"),
    )
    assert seen(witness.answer(thief.shown(*thief.links((0, 9, "x"), previous=digest("y"))))) == (0, 9, digest("x"))
    answer = again(witness).answer(made.shown())
    assert seen(answer) == (0, 3, digest("a"))
    assert answer.cosignature is not None
    assert answer.cosignature.database == f"{'ab' * 16} {made.titles[0].owner.hex()}"


def test_it_keeps_nothing_of_databases_that_are_only_asked_for(witness: Witness) -> None:
    for _ in range(3):
        assert seen(witness.answer(Made().shown())) is None
    assert witness._logs == {}
    assert list((witness._folder / "log").iterdir()) == []


def test_it_remembers_when_it_is_restarted_and_has_its_folder_to_itself(witness: Witness) -> None:
    made = Made()
    text = witness.text
    links = made.links((0, 1, "a"), (0, 2, "b"))
    witness.answer(made.shown(*links))
    with pytest.raises(Busy):
        Witness(witness._folder)
    again(witness)
    assert witness.text == text
    assert (witness._folder / "witness.key").stat().st_mode & 0o077 == 0
    (fork,) = made.links((0, 2, "c"), previous=digest("a"))
    assert witness.answer(made.shown(fork)).link == links[1]


@pytest.mark.parametrize("kept_bytes", [0, 1, 200, None])
def test_killed_while_it_remembers_or_before_it_answers(
    witness: Witness, monkeypatch: pytest.MonkeyPatch, kept_bytes: int | None
) -> None:
    """What it has not answered it may know or not know, but it never cosigns a second version of one number."""
    made = Made()
    (first, second) = made.links((0, 1, "a"), (0, 2, "b"))
    witness.answer(made.shown(first))
    path = witness._path(made.database)
    before = path.stat().st_size

    def killed(_: object) -> None:
        raise OSError(5, "killed")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", killed)
        with pytest.raises(FileError):
            witness.answer(made.shown(second))
    if kept_bytes is not None:
        os.truncate(path, before + kept_bytes)
    again(witness)
    assert seen(witness.answer(made.shown())) == (first if kept_bytes is not None else second).draft.seen
    assert seen(witness.answer(made.shown(second))) == second.draft.seen
    (fork,) = made.links((0, 2, "c"), previous=digest("a"))
    assert seen(witness.answer(made.shown(fork))) == second.draft.seen
    assert seen(again(witness).answer(made.shown())) == second.draft.seen


def test_a_damaged_log_is_refused_and_not_taken_for_an_empty_one(witness: Witness) -> None:
    made = Made()
    witness.answer(made.shown(*made.links((0, 1, "a"))))
    path = witness._path(made.database)
    entry = json.loads(path.read_text())
    entry["links"][0]["draft"]["hash"] = digest("b")
    path.write_text(json.dumps(entry) + "\n")
    again(witness)
    with pytest.raises(Corrupt):
        witness.answer(made.shown())


def test_a_log_that_cannot_be_read_is_no_empty_one_either(witness: Witness) -> None:
    made = Made()
    witness._path(made.database).mkdir()
    with pytest.raises(FileError, match="cannot be read"):
        witness.answer(made.shown(*made.links((0, 1, "a"))))


def test_it_takes_no_more_databases_than_it_has_room_for(witness: Witness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scumble.witness.log.MOST_DATABASES", 1)
    made, other = Made(), Made()
    for _ in range(2):
        assert seen(witness.answer(made.shown(*made.links((0, 1, "a"))))) == (0, 1, digest("a"))
        with pytest.raises(Refused):
            witness.answer(other.shown(*other.links((0, 1, "a"))))
        again(witness)


def test_what_a_cosignature_signs_is_fixed() -> None:
    key = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
    made = Cosignature.signed(key, "ab" * 20, bytes(16), (1, 2, "cd" * 32))
    assert made.signature.hex() == (
        "83a6b876cfb6d9b28c5ac006932819b5bbb1efcd0387046bae989c31d44e5b53"
        "32f9378e265491b0adba5d0b69130947c4500410e9d9f154f7fe1a7788ad4800"
    )
    assert made.is_by(key.public_key().public_bytes_raw())
    for other in ({"database": "ac" * 20}, {"nonce": b"1" * 16}, {"seen": (1, 3, "cd" * 32)}, {"witness": bytes(32)}):
        assert not replace(made, **other).is_by(key.public_key().public_bytes_raw())


def test_a_presentation_may_begin_with_the_newest_version_that_was_seen(witness: Witness) -> None:
    made = Made()
    first, second = made.links((0, 1, "a"), (0, 2, "b"))
    witness.answer(made.shown(first))
    assert seen(witness.answer(made.shown(first, second))) == second.draft.seen
    assert seen(again(witness).answer(made.shown())) == second.draft.seen


def test_a_cosignature_is_by_the_witness_that_it_names() -> None:
    key, other = (Ed25519PrivateKey.from_private_bytes(bytes([place] * 32)) for place in (1, 2))
    named, signer = (each.public_key().public_bytes_raw() for each in (other, key))
    unsigned = Cosignature(named, "ab" * 20, bytes(16), (0, 1, "cd" * 32), b"")
    made = replace(unsigned, signature=key.sign(unsigned._signed()))
    assert not made.is_by(named)
    assert not made.is_by(signer)


def test_a_presentation_has_so_many_links_and_bytes() -> None:
    (link,) = Made().links((0, 1, "a"))
    most = Presentation("ab" * 20, bytes(16), (), (link,) * MOST_LINKS)
    with pytest.raises(InvalidParameter):
        replace(most, links=(*most.links, link))
    for wrong in ({"database": "ab"}, {"database": "AB" * 20}, {"nonce": bytes(15)}, {"nonce": bytes(17)}):
        with pytest.raises(InvalidParameter):
            replace(most, **wrong)
    text = to_json_bytes(replace(most, links=()))
    assert from_json_bytes(Presentation, text.ljust(MOST_BYTES)) == replace(most, links=())
    for data in (text.ljust(MOST_BYTES + 1), b"", b"{", b"[" * 100_000):
        with pytest.raises(InvalidParameter):
            from_json_bytes(Presentation, data)


def test_an_answer_shows_the_newest_version_or_an_older_one() -> None:
    first, second = Made().links((0, 1, "a"), (0, 2, "b"))
    key = Ed25519PrivateKey.generate()
    statement = Cosignature.signed(key, "ab" * 20, bytes(16), second.draft.seen)
    assert not Answer(statement, (), second).shows_older
    for cosignature, link in ((statement, first), (statement, None), (None, second), (None, None)):
        assert Answer(cosignature, (), link).shows_older


def test_a_folder_of_a_witness_is_its_own_and_a_file_is_none(witness: Witness, tmp_path: Path) -> None:
    assert (witness._folder / "log").stat().st_mode & 0o777 == 0o700
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(FileError, match="cannot hold a witness"):
        Witness(tmp_path / "file")


@pytest.mark.parametrize("text", ["", "zz", "00" * 31])
def test_what_is_no_key_of_a_witness_is_not_replaced(tmp_path: Path, text: str) -> None:
    Witness(tmp_path).close()
    (tmp_path / "witness.key").write_text(text)
    with pytest.raises(Corrupt, match="no key of a witness"):
        Witness(tmp_path)
    assert (tmp_path / "witness.key").read_text() == text
