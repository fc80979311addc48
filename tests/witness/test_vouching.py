"""What a client makes of witnesses' answers: of real witnesses in folders, on versions without a database."""

import json
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from witness_setup import Made, digest, make

from scumble.errors import Disputed, FileError, InvalidParameter, NotFound, Tampered, Unavailable, Unwitnessed
from scumble.owner import witnesses
from scumble.owner.key_file import canonical
from scumble.owner.keys import AnalystKey
from scumble.owner.witnesses import ASK_AGAIN_SECONDS, Listed, Witnesses, ask, check_place, compare, lists_beside
from scumble.wire.catalog import Catalog
from scumble.wire.lineage import Link, Seen
from scumble.wire.requests import Opened
from scumble.witness.cosignatures import (
    Answer,
    Cosignature,
    Presentation,
    from_json_bytes,
    to_json_bytes,
)

MADE = Made()
KEY = MADE.keys[0]
FIRST, SECOND, THIRD = MADE.links((0, 1, "a"), (0, 2, "b"), (0, 3, "c"))
FORK = MADE.links((0, 2, "fork"), previous=digest("a"))[0]


def opened(*links: Link) -> Opened:
    head = links[-1].draft
    catalog = Catalog(MADE.database, head.version, head.previous, (), MADE.titles, head.restores)
    return Opened(catalog, head.hash, KEY.public_key(), None, (), links, ())


def since(*links: Link) -> Callable[[Seen | None], Opened]:
    """An enclave whose newest version is the last of these: Tampered if it has not seen what is asked for."""

    def shows(seen: Seen | None) -> Opened:
        if seen is None:
            return opened(links[-1])
        at = [place for place, link in enumerate(links, 1) if link.draft.seen == seen]
        if not at:
            raise Tampered
        return replace(opened(*links), links=links[at[0] :])

    return shows


def never(_: Seen | None) -> Opened:
    raise AssertionError


@pytest.fixture
def places(tmp_path: Path) -> dict[str, bytes]:
    return make(tmp_path, "one", "two")


@pytest.fixture
def chosen(tmp_path: Path, places: dict[str, bytes]) -> Witnesses:
    """One who demands both witnesses."""
    found = Witnesses(tmp_path / "clinic.key")
    found.put(KEY, Listed(2, places))
    return found


def present(place: str, *links: Link) -> None:
    assert ask(place, _of(place), MADE.database, MADE.titles, links) is not None


def _of(place: str) -> bytes:
    return make(Path(place).parent, Path(place).name)[place]


def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Where witnesses are asked from now on."""
    found: list[str] = []
    honest = witnesses.exchange

    def exchange(place: str, body: bytes) -> bytes:
        found.append(place)
        return honest(place, body)

    monkeypatch.setattr(witnesses, "exchange", exchange)
    return found


def answering(monkeypatch: pytest.MonkeyPatch, change: Callable[[Presentation, Answer], Answer]) -> None:
    """Have every witness's answer changed on its way."""
    honest = witnesses.exchange

    def exchange(place: str, body: bytes) -> bytes:
        answer = from_json_bytes(Answer, honest(place, body))
        return to_json_bytes(change(from_json_bytes(Presentation, body), answer))

    monkeypatch.setattr(witnesses, "exchange", exchange)


# --- vouching ----------------------------------------------------------------------------------------


def test_without_a_list_nobody_is_asked(tmp_path: Path) -> None:
    alone = Witnesses(tmp_path / "clinic.key")
    assert alone.vouch(KEY, opened(FIRST), never)
    assert list(tmp_path.iterdir()) == []


def test_what_nobody_has_signed_nobody_can_witness(chosen: Witnesses) -> None:
    unsigned = opened(FIRST)
    with pytest.raises(Unwitnessed, match="nobody has signed"):
        chosen.vouch(KEY, replace(unsigned, catalog=replace(unsigned.catalog, titles=())), never)


def test_cosignatures_are_enough_for_a_while(
    chosen: Witnesses, places: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = asked(monkeypatch)
    assert chosen.vouch(KEY, opened(FIRST), never)
    assert chosen.cosigned(KEY, FIRST.draft.seen).keys() == set(places.values())
    assert chosen.vouch(KEY, opened(FIRST), never)
    assert found == list(places)
    for seconds in (ASK_AGAIN_SECONDS + 9, -99.0):  # too long ago, or by a clock that was wrong
        found.clear()
        os.utime(tmp_path / "clinic.cosigned", (time.time() - seconds,) * 2)
        assert chosen.vouch(KEY, opened(FIRST), never)
        assert found == list(places)
    assert chosen.vouch(KEY, opened(FIRST, SECOND), never)
    assert chosen.cosigned(KEY, FIRST.draft.seen) == {}


def test_cosignatures_of_another_version_or_database_or_witness_do_not_count(
    chosen: Witnesses, places: dict[str, bytes], tmp_path: Path
) -> None:
    chosen.vouch(KEY, opened(FIRST), never)
    assert json.loads((tmp_path / "clinic.cosigned").read_bytes())["format"] == 1
    assert chosen.cosigned(KEY, (0, 2, FIRST.draft.hash)) == {}
    one = dict([*places.items()][:1])
    Listed(1, one).save(chosen.path(KEY))
    assert chosen.cosigned(KEY, FIRST.draft.seen).keys() == set(one.values())
    other = Made().keys[0]
    chosen_elsewhere = Witnesses(tmp_path / "clinic.key")
    assert chosen_elsewhere.cosigned(other, FIRST.draft.seen) == {}
    path = tmp_path / "clinic.cosigned"
    path.write_bytes(path.read_bytes().replace(MADE.database.encode(), other.database.encode()))
    assert chosen.cosigned(other, FIRST.draft.seen) == {}  # signed for another
    assert chosen.cosigned(KEY, FIRST.draft.seen) == {}


def test_fewer_than_are_demanded_are_not_enough(chosen: Witnesses, places: dict[str, bytes], tmp_path: Path) -> None:
    one, two = places
    Path(two).rename(tmp_path / "away")
    with pytest.raises(Unwitnessed, match="1 of 2"):
        chosen.vouch(KEY, opened(FIRST), never)
    (tmp_path / "away").rename(two)
    Path(one).rename(tmp_path / "away")
    assert chosen.vouch(KEY, opened(FIRST), never)  # what the other has cosigned before counts still


def test_the_links_of_a_version_that_was_seen_before_are_asked_for(chosen: Witnesses) -> None:
    known = replace(opened(FIRST), links=())
    assert not chosen.vouch(KEY, known, since(FIRST, SECOND))
    assert chosen.vouch(KEY, known, since(FIRST))


def test_a_fork_is_disputed_however_many_agree(chosen: Witnesses, places: dict[str, bytes]) -> None:
    present([*places][1], FIRST, SECOND)
    with pytest.raises(Disputed, match="is another than version 2") as told:
        chosen.vouch(KEY, opened(FIRST, FORK), never)
    assert told.value.restores == 0
    assert told.value.statements[:2] == (FORK, SECOND)


def test_a_rollback_is_disputed_and_a_version_that_was_overtaken_is_not(
    chosen: Witnesses, places: dict[str, bytes]
) -> None:
    present(next(iter(places)), FIRST, SECOND, THIRD)
    with pytest.raises(Disputed, match="does not follow version 3"):
        chosen.vouch(KEY, opened(SECOND), since(FIRST, SECOND))
    assert not chosen.vouch(KEY, opened(SECOND), since(FIRST, SECOND, THIRD))


def test_a_witness_that_is_behind_is_shown_what_it_has_missed(chosen: Witnesses, places: dict[str, bytes]) -> None:
    for place in places:
        present(place, FIRST)
    assert chosen.vouch(KEY, opened(THIRD), since(FIRST, SECOND, THIRD))
    assert len(chosen.cosigned(KEY, THIRD.draft.seen)) == 2


# --- one answer --------------------------------------------------------------------------------------


def _by_a_stranger(_: Presentation, answer: Answer) -> Answer:
    made, key = answer.cosignature, Ed25519PrivateKey.from_private_bytes(bytes(32))
    assert made is not None
    return replace(answer, cosignature=Cosignature.signed(key, made.database, made.nonce, made.seen))


def _of_another_nonce(_: Presentation, answer: Answer) -> Answer:
    assert answer.cosignature is not None
    return replace(answer, cosignature=replace(answer.cosignature, nonce=b"n" * 16))


def _of_an_unsigned_link(_: Presentation, answer: Answer) -> Answer:
    assert answer.link is not None
    return replace(answer, link=replace(answer.link, signature=bytes(64)))


CHANGES: list[Callable[[Presentation, Answer], Answer]] = [
    lambda _, answer: replace(answer, cosignature=None),
    lambda _, answer: replace(answer, link=None),
    lambda _, answer: replace(answer, titles=()),
    _by_a_stranger,
    _of_another_nonce,
    _of_an_unsigned_link,
]


@pytest.mark.parametrize("change", CHANGES)
def test_an_answer_that_is_not_signed_as_it_must_be_is_none(
    places: dict[str, bytes], monkeypatch: pytest.MonkeyPatch, change: Callable[[Presentation, Answer], Answer]
) -> None:
    place, witness = next(iter(places.items()))
    found = ask(place, witness, MADE.database, MADE.titles, (FIRST,))
    assert found is not None
    assert found.link == FIRST
    answering(monkeypatch, change)
    assert ask(place, witness, MADE.database, MADE.titles, (FIRST,)) is None


def _genuine(place: str, nonce: bytes | None, database: str | None) -> Callable[[Presentation, Answer], Answer]:
    """Signed by the witness itself, for another question or database."""

    def change(shown: Presentation, answer: Answer) -> Answer:
        witness = witnesses._opened(Path(place))
        signed = Cosignature.signed(
            witness._key, database or shown.database, shown.nonce if nonce is None else nonce, FIRST.draft.seen
        )
        witness.close()
        return replace(answer, cosignature=signed)

    return change


def test_an_answer_to_another_question_is_none(places: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    place, witness = next(iter(places.items()))
    for nonce, database, counts in ((None, None, True), (b"n" * 16, None, False), (None, "0b" * 20, False)):
        with monkeypatch.context() as patched:
            answering(patched, _genuine(place, nonce, database))
            assert (ask(place, witness, MADE.database, MADE.titles, (FIRST,)) is not None) is counts


def test_a_witness_that_has_seen_nothing_says_so(places: dict[str, bytes]) -> None:
    place, witness = next(iter(places.items()))
    found = ask(place, witness, MADE.database, MADE.titles, ())
    assert found is not None
    assert (found.cosignature, found.link) == (None, None)
    assert ask(f"{place}-none", witness, MADE.database, MADE.titles, ()) is None


def test_a_long_history_is_shown_in_pieces(places: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    place, witness = next(iter(places.items()))
    found = asked(monkeypatch)
    monkeypatch.setattr(witnesses, "MOST_LINKS", 3)
    many = MADE.links(*((0, number, f"v{number}") for number in range(1, 5)))
    answer = ask(place, witness, MADE.database, MADE.titles, many)
    assert answer is not None
    assert answer.link == many[-1]
    assert len(found) == 2
    ask(place, witness, MADE.database, MADE.titles, many[1:])
    assert len(found) == 3


# --- lists -------------------------------------------------------------------------------------------


def test_a_list_is_read_as_it_was_written(tmp_path: Path, places: dict[str, bytes]) -> None:
    path = tmp_path / "clinic.witnesses"
    assert Listed.load(path) == Listed(0, {})
    for need in (1, 2):
        Listed(need, places).save(path)
        assert Listed.load(path) == Listed(need, places)
    Listed(0, {}).save(path)
    assert Listed.load(path) == Listed(0, {})
    twice = dict.fromkeys(places, next(iter(places.values())))
    for wrong in (Listed(0, places), Listed(3, places), Listed(-1, {}), Listed(1, {}), Listed(1, twice)):
        with pytest.raises(InvalidParameter):
            wrong.save(path)
    for content in ({"format": 2, "need": 0, "witnesses": {}}, {"format": 1, "need": 1, "witnesses": {"a": "b"}}):
        path.write_bytes(canonical(content))
        with pytest.raises(FileError):
            Listed.load(path)


def test_an_analyst_has_a_list_for_each_database(tmp_path: Path, places: dict[str, bytes]) -> None:
    found, analyst = Witnesses(tmp_path / "clinic.key"), AnalystKey(MADE.database, bytes(32))
    for key in (KEY, analyst):
        found.put(key, Listed(1, places))
    names = ["clinic.witnesses", f"clinic.{MADE.database}.witnesses"]
    assert [path.name for path in lists_beside(tmp_path / "clinic.key")] == sorted(names)


@pytest.mark.parametrize("place", ["http://host:1", "https://host:1", "http://host:1/"])
def test_an_address_is_listed_without_a_path(place: str) -> None:
    assert check_place(place) == place.removesuffix("/")


@pytest.mark.parametrize("place", ["ftp://host", "http://", "http://host/path", "https:///path"])
def test_any_other_address_is_refused(place: str) -> None:
    with pytest.raises(InvalidParameter):
        check_place(place)


def test_a_folder_is_listed_by_its_absolute_path() -> None:
    assert check_place("one") == str(Path("one").absolute())
    with pytest.raises(InvalidParameter):
        witnesses.witness_in("http://host:1")
    with pytest.raises(Unavailable):
        witnesses.witness_in("nowhere")


def test_witnesses_are_compared(places: dict[str, bytes]) -> None:
    one, two = places
    assert compare(KEY, MADE.titles, places) == {one: None, two: None}
    present(one, FIRST, SECOND)
    present(two, FIRST)
    seen = {place: found.seen for place, found in compare(KEY, MADE.titles, places).items() if found is not None}
    assert seen.keys() == {one, two}
    assert seen[one] == SECOND.draft.seen
    with pytest.raises(NotFound):
        compare(KEY, (), places)


def test_witnesses_of_two_sides_of_a_fork_are_found_out(places: dict[str, bytes]) -> None:
    one, two = places
    present(one, FIRST, SECOND)
    present(two, FIRST, FORK)
    with pytest.raises(Disputed, match="different versions 2") as told:
        compare(KEY, MADE.titles, places)
    assert told.value.statements == (SECOND, FORK)
