"""A database whose owner demands cosignatures: what a lying provider can no longer do, and what life may still do."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from witness_setup import Made, copied, demand, make, put_back

import scumble
from scumble.enclave.lines import TrustedEnclave
from scumble.errors import Disputed, Exists, FileError, InvalidParameter, Unavailable, Unwitnessed
from scumble.owner import witnesses
from scumble.owner.database import Database
from scumble.owner.key_file import canonical
from scumble.owner.keys import AnalystKey, Key, OwnerKey
from scumble.owner.witnesses import Listed, OpenedSince, Witnesses, compare
from scumble.provider.front import Provider
from scumble.store.files import FileStore
from scumble.wire.lineage import Draft, Link, sign_draft
from scumble.wire.messages import to_fields
from scumble.wire.requests import Opened
from scumble.witness.cosignatures import Answer, Cosignature, Presentation, from_json_bytes, to_json_bytes
from scumble.witness.log import Witness

INDEX = ["k int:0:99 epsilon=0.5"]
Exchange = Callable[[str, bytes], bytes]


def rows(count: int) -> pa.Table:
    return pa.table({"k": list(range(count)), "v": [place * 3 for place in range(count)]})


def load(db: scumble.Database, count: int) -> None:
    db.load("t", rows(count), indexes=INDEX, capacity=64, page_rows=16)


@contextmanager
def at_one_enclave(home: Path, **terms: Any) -> Iterator[tuple[Database, Database]]:
    """The owner and ada, an analyst."""

    class Shared(Provider):
        def close(self) -> None:
            """Stay until both have gone."""

    with closing(FileStore(home / "db")) as store:
        provider = Shared(store, TrustedEnclave)
        with Database(provider, OwnerKey.open(home / "db.key"), home / "db.key", **terms) as owner:
            ada = AnalystKey.open(home / "ada.key", store.database)
            with Database(provider, ada, home / "ada.key") as analyst:
                yield owner, analyst


def count(db: scumble.Database) -> int:
    return int(db.sql("SELECT count(*) FROM t").fetchall()[0][0])


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A database with five rows, whose owner demands two cosignatures of three."""
    with scumble.create(tmp_path / "db", limit=20, delta_limit="1e-3") as db:
        demand(db, 2, make(tmp_path, "one", "two", "three"))
        load(db, 5)
    return tmp_path


def lying(monkeypatch: pytest.MonkeyPatch, *names: str, how: Callable[[Exchange, str, bytes], bytes]) -> None:
    honest = witnesses.exchange

    def exchange(place: str, body: bytes) -> bytes:
        return how(honest, place, body) if Path(place).name in names else honest(place, body)

    monkeypatch.setattr(witnesses, "exchange", exchange)


def gone(_: Exchange, place: str, __: bytes) -> bytes:
    raise Unavailable(place)


# --- what a provider tries ---------------------------------------------------------------------------


def test_a_rollback_is_shown_to_a_device_without_an_anchor(home: Path) -> None:
    old = copied(home / "db", "old")
    with scumble.open(home / "db") as db:
        load(db, 6)
    put_back(home / "db", old)
    (home / "db.anchor").unlink()
    with pytest.raises(Disputed, match=r"does not follow .* the owner has signed and the witness at .* has seen"):
        scumble.open(home / "db", first_opening=True)
    for path in (home / "db.witnesses", home / "db.anchor"):  # and this is what the witnesses are for
        path.unlink(missing_ok=True)
    scumble.open(home / "db", first_opening=True).close()


def test_two_heads_of_one_number_both_signed_by_the_owner(home: Path) -> None:
    """The provider hides a change from the owner, who makes another in its place; an analyst has seen the first."""
    hidden, anchor = copied(home / "db", "hidden"), (home / "db.anchor").read_bytes()
    with scumble.open(home / "db") as db:
        load(db, 6)
    first = copied(home / "db", "first")
    put_back(home / "db", hidden)
    (home / "db.anchor").write_bytes(anchor)
    (home / "db.cosigned").unlink()
    with pytest.raises(Disputed):  # even what it was before the change no longer passes
        scumble.open(home / "db")
    places = (home / "db.witnesses").read_bytes()
    (home / "db.witnesses").unlink()
    with scumble.open(home / "db") as db:
        load(db, 7)
        (home / "db.witnesses").write_bytes(places)
        with pytest.raises(Disputed, match="is another than") as disputed:
            db._versions.open_newest()
    shown, seen, statement = disputed.value.statements
    assert isinstance(shown, Link)
    assert isinstance(seen, Link)
    assert isinstance(statement, Cosignature)
    assert shown.draft.seen[:2] == seen.draft.seen[:2]
    assert shown.draft.hash != seen.draft.hash
    assert shown.signer == seen.signer
    put_back(home / "db", first)  # the history that the witnesses know goes on, where no other was seen
    (home / "db.anchor").unlink()
    with scumble.open(home / "db", first_opening=True) as db:
        assert count(db) == 11


def test_a_fork_whose_sides_have_a_witness_each_is_found_when_they_meet(home: Path) -> None:
    places = dict(make(home, "left", "right"))
    left, right = ({place: places[place]} for place in places)
    old, anchor = copied(home / "db", "old"), (home / "db.anchor").read_bytes()
    for side, more in ((left, 6), (right, 7)):
        put_back(home / "db", old)
        (home / "db.anchor").write_bytes(anchor)
        (home / "db.witnesses").unlink()
        with scumble.open(home / "db") as db:
            demand(db, 1, side)
            load(db, more)
            key, titles = db._versions.key, db._versions.catalog.titles
            assert list(compare(key, titles, side)) == list(side)
    with pytest.raises(Disputed, match="have seen different versions"):
        compare(key, titles, places)
    with scumble.open(home / "db") as db:
        demand(db, 1, places)
        with pytest.raises(Disputed):  # though one of the two would be enough
            db._versions.open_newest()


def test_a_device_that_is_shown_for_ever_what_it_knows_asks_again(home: Path) -> None:
    """Its own anchor sees nothing wrong: the version is the newest that it knows, and was cosigned once."""
    old, anchor, cosigned = (copied(home / each, f"{each}.old") for each in ("db", "db.anchor", "db.cosigned"))
    with scumble.open(home / "db") as db:
        load(db, 6)
    put_back(home / "db", old)
    for path, kept in ((home / "db.anchor", anchor), (home / "db.cosigned", cosigned)):
        path.write_bytes(kept.read_bytes())
    os.utime(home / "db.cosigned", (0, 0))
    with pytest.raises(Disputed, match="does not follow"):
        scumble.open(home / "db")


def test_an_analyst_shows_a_witness_a_version_that_was_never_made_and_the_owner_goes_on(home: Path) -> None:
    lab = AnalystKey.create(home / "lab.key", None)
    with scumble.open(home / "db") as db:
        db.grant("lab", lab.text, {"t": ["load"]}, epsilon=1)
        (grant,) = db.grants()
        db.revoke("lab")  # which witnesses do not see
        versions = db._versions
        places = versions.witnesses.listed(versions.key).places
        draft = Draft(0, versions.catalog.version + 1, versions.anchor.manifest, "ab" * 32)
        signature = sign_draft(versions.key.database, draft, lab.signing_key())
        link = Link(draft, lab.public_key(), signature, grant.certificate())
        for place, witness in places.items():
            answer = witnesses.ask(place, witness, versions.key.database, versions.catalog.titles, [link])
            assert answer is not None
            assert answer.link == link
        with pytest.raises(Disputed, match=f"the holder of grant {grant.id} has signed"):
            db.drop("t")
    with pytest.raises(Disputed):
        scumble.open(home / "db")
    with scumble.open(home / "db", accept_restored=True) as db:
        load(db, 6)
    with scumble.open(home / "db") as db:
        assert count(db) == 6


def test_a_change_is_stored_although_the_service_is_lost_before_the_witnesses_have_seen_it(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with scumble.open(home / "db") as db:
        before, vouch, there = db._versions.catalog.version, Witnesses.vouch, count(db)

        def lost(self: Witnesses, key: Key, opened: Opened, opened_since: OpenedSince) -> bool:
            if opened.version > before:  # a witness lacks links, and the enclave is asked for them
                raise Unavailable("the session is gone", hint="connect again")
            return vouch(self, key, opened, opened_since)

        with monkeypatch.context() as patch:
            patch.setattr(Witnesses, "vouch", lost)
            with pytest.raises(Unwitnessed, match="the change was stored, but the session is gone") as raised:
                load(db, 6)
        assert raised.value.stored
    with scumble.open(home / "db") as db:
        assert count(db) == there + 6


# --- what life does ----------------------------------------------------------------------------------


def test_an_owner_restores_rekeys_and_goes_on_and_an_analyst_follows(home: Path) -> None:
    identity = AnalystKey.create(home / "ada.key", None).text
    with scumble.open(home / "db") as db:
        db.grant("ada", identity, ["t"])
        listed = db._versions.witnesses.listed(db._versions.key)
    old = copied(home / "db", "old")
    with at_one_enclave(home) as (db, ada):
        demand(ada, listed.need, listed.places)
        load(db, 6)
        assert count(ada) == 11
    put_back(home / "db", old)
    with at_one_enclave(home, accept_restored=True) as (db, ada):
        assert count(db) == count(ada) == 5
        db.rekey()
        load(db, 7)
        assert count(ada) == 12


def test_an_owner_who_has_lost_the_anchor_accepts_a_restored_version_all_the_same(home: Path) -> None:
    old = copied(home / "db", "old")
    for more in (6, 7):
        with scumble.open(home / "db") as db:
            load(db, more)
        put_back(home / "db", old)
        (home / "db.anchor").unlink()  # with it the count of the restores
        with pytest.raises(Disputed):
            scumble.open(home / "db", first_opening=True)
        with scumble.open(home / "db", first_opening=True, accept_restored=True) as db:
            assert count(db) == 5
        with scumble.open(home / "db") as db:
            assert count(db) == 5


def test_who_opens_an_old_version_while_another_writes_gets_the_new_one(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest, writers = witnesses.exchange, [scumble.open(home / "db")]

    def exchange(place: str, body: bytes) -> bytes:
        if writers:  # after the version was opened here, and before the first witness is asked
            with writers.pop() as other:
                load(other, 6)
        return honest(place, body)

    (home / "db.cosigned").unlink()
    monkeypatch.setattr(witnesses, "exchange", exchange)
    with scumble.open(home / "db") as db:
        assert count(db) == 11


def test_a_witness_that_was_away_catches_up_and_one_that_lost_its_memory_starts_again(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(witnesses, "MOST_LINKS", 3)
    with monkeypatch.context() as patched, scumble.open(home / "db") as db:
        lying(patched, "one", how=gone)
        for more in (6, 7, 8):
            load(db, more)
    shutil.rmtree(home / "two" / "log")
    with scumble.open(home / "db") as db:
        load(db, 9)
        versions = db._versions
        listed = versions.witnesses.listed(versions.key)
        statements = compare(versions.key, versions.catalog.titles, listed.places)
        assert {None if each is None else each.seen for each in statements.values()} == {versions.anchor.seen}


# --- k of n ------------------------------------------------------------------------------------------


def test_two_of_three_are_enough_one_is_not_and_what_was_cosigned_needs_nobody(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        lying(patched, "one", how=gone)
        with scumble.open(home / "db") as db:
            load(db, 6)
    with monkeypatch.context() as patched:
        lying(patched, "one", "two", "three", how=gone)
        with scumble.open(home / "db") as db:
            assert count(db) == 11
        (home / "db.cosigned").unlink()
        with pytest.raises(Unwitnessed, match="0 of 3 witnesses have cosigned version 5, and 2 have to"):
            scumble.open(home / "db")
    scumble.open(home / "db").close()


def test_a_change_that_too_few_cosign_is_stored_and_says_so(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with scumble.open(home / "db") as db:
        spent = db.ledger.spent()
        with monkeypatch.context() as patched:
            lying(patched, "one", "two", how=gone)
            with pytest.raises(Unwitnessed, match="the change was stored, but 1 of 3") as error:
                load(db, 6)
            assert error.value.stored
        assert db.ledger.spent() > spent
    with scumble.open(home / "db") as db:  # they are back, and see all of it
        assert count(db) == 11
        with pytest.raises(Exists):
            load(db, 6)
        with monkeypatch.context() as patched:
            lying(patched, "one", "two", how=gone)
            with pytest.raises(Unwitnessed, match="was stored"):
                db.rekey()
    with scumble.open(home / "db") as db:
        assert count(db) == 11


def test_a_list_demands_no_more_than_it_has_and_no_witness_twice(home: Path) -> None:
    with scumble.open(home / "db") as db:
        listed = db._versions.witnesses.listed(db._versions.key)
        one = next(iter(listed.places.values()))
        for wrong in (Listed(4, listed.places), Listed(0, listed.places), Listed(1, {"a": one, "b": one})):
            with pytest.raises(InvalidParameter):
                db._versions.witnesses.put(db._versions.key, wrong)
        for place in ("ftp://host", "http://host/path", "http://"):
            with pytest.raises(InvalidParameter, match="http://HOST:PORT"):
                db.add_witness(place, "scumble1")
        with pytest.raises(InvalidParameter, match="whose witness"):
            db.add_witness("http://127.0.0.1:1")
        with pytest.raises(Unavailable, match="no witness in"):
            db.add_witness(str(home / "nowhere"))
        (home / "db.witnesses").write_bytes(b"{}")
        with pytest.raises(FileError, match="does not read"):  # and not as if there were none
            db._versions.open_newest()


def test_while_a_witness_is_tried_the_others_stay_demanded(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is what another process, or the next one after a crash, goes by."""
    files = [home / "db.witnesses", home / "db.cosigned"]
    with scumble.open(home / "db") as db:
        db._versions.open_newest()
        before = [path.read_bytes() for path in files]

        def gone_meanwhile(honest: Exchange, place: str, body: bytes) -> bytes:
            assert [path.read_bytes() for path in files] == before
            raise Unavailable("it does not answer")

        (place, _), *_ = make(home, "new").items()
        with monkeypatch.context() as patched:
            lying(patched, "new", how=gone_meanwhile)
            with pytest.raises(Unwitnessed) as refused:
                db.add_witness(place)
        assert place in str(refused.value.hint)
        assert [path.read_bytes() for path in files] == before
        assert place in db.add_witness(place).places


# --- witnesses that lie ------------------------------------------------------------------------------


def _of_another_key(honest: Exchange, place: str, body: bytes) -> bytes:
    return honest(str(Path(place).with_name("stranger")), body)


def _stale(honest: Exchange, place: str, body: bytes) -> bytes:
    kept = Path(place) / "kept"
    if not kept.exists():
        kept.write_bytes(honest(place, body))
    return kept.read_bytes()


def _of_another_database(honest: Exchange, place: str, body: bytes) -> bytes:
    shown = from_json_bytes(Presentation, body)
    made = Made()
    other = Presentation(made.database, shown.nonce, made.titles, made.links((0, 1, "a")))
    return honest(place, to_json_bytes(other))


def _altered(honest: Exchange, place: str, body: bytes) -> bytes:
    """The head as it was presented, in a statement that was signed for something else."""
    shown, answer = from_json_bytes(Presentation, body), from_json_bytes(Answer, honest(place, body))
    assert answer.cosignature is not None
    statement = Cosignature(
        answer.cosignature.witness, shown.database, shown.nonce, (0, 99, "0" * 64), answer.cosignature.signature
    )
    return to_json_bytes(Answer(statement, answer.titles, answer.link))


def _made_up(honest: Exchange, place: str, body: bytes) -> bytes:
    """A later version that nobody has signed, in a genuine statement: no proof, and so no dispute."""
    shown, answer = from_json_bytes(Presentation, body), from_json_bytes(Answer, honest(place, body))
    witness = Witness(Path(place))
    statement = Cosignature.signed(witness._key, shown.database, shown.nonce, (0, 99, "0" * 64))
    witness.close()
    return to_json_bytes(Answer(statement, answer.titles, answer.link))


@pytest.mark.parametrize("how", [_of_another_key, _stale, _of_another_database, _altered, _made_up, lambda *_: b"{"])
def test_a_witness_that_lies_does_not_count(
    home: Path, monkeypatch: pytest.MonkeyPatch, how: Callable[[Exchange, str, bytes], bytes]
) -> None:
    make(home, "stranger")
    with scumble.open(home / "db") as db:
        load(db, 6)
        with monkeypatch.context() as patched:
            lying(patched, "one", how=how)
            for _ in range(2):  # an old answer is right once
                (home / "db.cosigned").unlink()
                db._versions.open_newest()
            assert len(db._versions.witnesses.cosigned(db._versions.key, db._versions.anchor.seen)) == 2
            lying(patched, "two", how=gone)
            with pytest.raises(Unwitnessed, match="1 of 3"):
                load(db, 7)


def test_cosignatures_beside_the_key_count_only_as_signed_by_those_listed(home: Path) -> None:
    with scumble.open(home / "db") as db:
        versions = db._versions
        assert len(versions.witnesses.cosigned(versions.key, versions.anchor.seen)) == 3
        path = home / "db.cosigned"
        whole = path.read_bytes()
        path.write_bytes(whole.replace(versions.anchor.manifest.encode(), b"0" * 64))
        assert versions.witnesses.cosigned(versions.key, (0, versions.catalog.version, "0" * 64)) == {}
        seen, ours = versions.anchor.seen, versions.key.database
        with closing(Witness(home / "one")) as one:
            for database, known in (("ab" * 20, 0), (ours, 1)):
                of_it = to_fields(Cosignature.signed(one._key, database, bytes(16), seen))
                path.write_bytes(canonical({"format": 1, "cosignatures": [of_it, of_it]}))
                assert len(versions.witnesses.cosigned(versions.key, seen)) == known
        path.write_bytes(whole)
        stranger = make(home, "stranger")
        demand(db, 1, stranger)
        assert versions.witnesses.cosigned(versions.key, versions.anchor.seen) == {}
