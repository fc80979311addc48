"""Rights: the owner may do everything, an analyst what was granted, everybody else gets one and the same refusal."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from enclave_tables import DATABASE, OWNER, OWNER_KEY, TITLE, table_of
from enclave_visitors import ADA, BOB, Clinic, clinic, load_request, text_of

from scumble.attestation import Policy
from scumble.attestation.policy_document import SignedPolicy
from scumble.enclave.grants import BLOCK_BYTES, AccessList, Cost, Payment, visible
from scumble.enclave.lines import TrustedEnclave
from scumble.enclave.vault import Vault
from scumble.errors import Exists, InvalidParameter, Locked, NotFound, Overdraft, Refused, ScumbleError, Stale, Tampered
from scumble.owner.database import Database
from scumble.owner.keys import OwnerKey
from scumble.owner.session import Session
from scumble.store.files import FileStore
from scumble.types import parse_domain
from scumble.wire.catalog import Catalog
from scumble.wire.charges import CAPACITY, Charge
from scumble.wire.grants import Grant
from scumble.wire.plan import Aggregate, Aggregates, Constant, Plan
from scumble.wire.requests import (
    Abandon,
    BeginLoad,
    Build,
    CheckChain,
    CheckPages,
    Create,
    DropTable,
    IndexOrder,
    ListGrants,
    LoadBegun,
    Open,
    Opened,
    Pay,
    Prepare,
    Request,
    Reseal,
    Reserve,
    Restore,
    RevokeGrant,
    Scan,
    SetPolicy,
    Upgrade,
    Vacuum,
    pack_request,
)

NO_BOUNDS = np.zeros(0, np.int64)
Both = tuple[Clinic, Database]


@pytest.fixture
def both(tmp_path: Path) -> Iterator[Both]:
    with clinic(tmp_path) as made:
        made[1].grant("ada", text_of(ADA), ["visits"])
        yield made


def _plan(table: str) -> Plan:
    return Plan(table, (Constant(True),), Aggregates((Aggregate("count", None),)))


def _count(session: Session, owner: Database, table: str) -> int:
    number = session.prepare(_plan(owner.table(table).id))
    return int(np.frombuffer(session.execute(number, [Scan(0, 0, [(0, 4)])], NO_BOUNDS), np.int64)[1])


def _refusal(session: Session, request: Request[Any] | bytes) -> tuple[ScumbleError, str, int]:
    """How a request is refused: the error, its text, and the length of the sealed answer."""
    lengths: list[int] = []
    ask = session._service.request

    def watched(number: int, sealed: bytes | memoryview) -> bytes:
        answer = ask(number, sealed)
        lengths.append(len(answer))
        return answer

    session._service.request = watched  # type: ignore[method-assign, assignment]
    try:
        with pytest.raises(ScumbleError) as caught:
            session._exchange(request if isinstance(request, bytes) else pack_request(request))
    finally:
        session._service.request = ask  # type: ignore[method-assign]
    return caught.value, str(caught.value), lengths[-1]


def test_an_analyst_reads_what_was_granted_and_sees_nothing_else(both: Both) -> None:
    made, owner = both
    session = made.session(ADA)
    opened = session.ask(Open(None))
    assert [table.name for table in opened.catalog.tables] == ["visits"]
    assert opened.grant is not None
    assert opened.grant.name == "ada"
    assert _count(session, owner, "visits") == 40
    run = owner.table("visits").runs[0].id
    session.ask(CheckPages(run, column=0, first_page=0, pages=1))
    for column in (-1, 99):
        with pytest.raises(InvalidParameter, match="no column of this number"):
            session.ask(CheckPages(run, column, first_page=0, pages=1))


def test_an_ungranted_table_is_refused_exactly_as_one_that_is_not_there(both: Both) -> None:
    made, owner = both
    session = made.opened(ADA)
    staff = owner.table("staff")
    cases: list[tuple[Request[Any], Request[Any]]] = [
        (Prepare(_plan(staff.id)), Prepare(_plan("00" * 16))),
        (CheckPages(staff.runs[0].id, 0, 0, 1), CheckPages("00" * 16, 0, 0, 1)),
        (load_request(owner, "staff"), load_request(owner, "staff", table="stuff")),
    ]
    for there, absent in cases:
        one, other = _refusal(session, there), _refusal(session, absent)
        assert type(one[0]) is type(other[0])
        assert one[1].replace("staff", "stuff") == other[1]
        assert one[2] == other[2]


OWNERS_REQUESTS: list[Request[Any] | bytes] = [
    CheckChain(),
    DropTable("visits"),
    DropTable("nothing"),
    Vacuum("visits"),
    Reseal(bytes(32), TITLE, ()),
    Upgrade(TITLE, (), 0),
    Restore(0, (), ()),
    b'J{"task": "grant", "grant": {}, "rehearsed": false}',
    b'J{"task": "grant", "grant": {}, "rehearsed": true}',
    RevokeGrant("ada"),
    RevokeGrant("nobody"),
    ListGrants(),
    SetPolicy(b"policy"),
    Create(TITLE),
    b'J{"task": "none"}',
]


def test_every_request_but_those_above_may_come_from_an_analyst() -> None:
    refused = {"chain", "drop", "reseal", "grant", "revoke", "grants", "policy", "create", "upgrade", "restore"}
    refused |= {"vacuum", "define", "truncate", "rename", "rename_column", "add_column", "drop_column", "drop_index"}
    refused |= {"terms", "view"}
    assert {task for task, kind in Request.kinds.items() if not kind.by_analyst} == refused
    assert {task for task, kind in Request.kinds.items() if not kind.needs_version} == {
        "create",
        "open",
        "follow",
        "restore",
        "commit",
    }


@pytest.mark.parametrize("request_", OWNERS_REQUESTS)
def test_no_request_of_the_owner_s_is_done_for_an_analyst(both: Both, request_: Request[Any] | bytes) -> None:
    made, owner = both
    version, session = owner.version, made.opened(ADA)
    with made.store.writer():
        assert isinstance(_refusal(session, request_)[0], Refused)
    assert owner.sql("SELECT count(*) FROM visits").fetchone() == (40,)
    assert owner.version == version


def test_a_reader_cannot_load_and_cannot_hold_the_database(both: Both) -> None:
    made, owner = both
    session = made.opened(ADA)
    assert isinstance(_refusal(session, load_request(owner, "visits"))[0], Refused)
    for request in (Reserve(16), Build(1, "00" * 16)):
        _refusal(session, request)
    with made.store.writer():
        made.store.write_scratch("chunk-0", b"of the owner's load")
        session.ask(Abandon())
        assert made.store.read_scratch("chunk-0") == b"of the owner's load"
    for session, rank in ((made.opened(ADA), 0), (made.session(BOB), 0), (owner._versions.session, 2)):
        assert made.enclave.rank(session._number) == rank


def test_strangers_the_revoked_and_other_tenants_get_one_refusal(both: Both, tmp_path: Path) -> None:
    made, owner = both
    owner.grant("bob", text_of(BOB), ["staff"])
    owner.revoke("bob")
    other = OwnerKey.create(tmp_path / "other.key", None)
    theirs = other.signing_key()
    our_data_key = made.key.data_key()
    sessions = [
        made.session(Ed25519PrivateKey.generate()),  # unknown
        made.session(BOB),  # revoked
        made.session(theirs),  # another tenant's, without a key
        made.session(theirs, other.data_key()),  # and with its own
        made.session(theirs, our_data_key),  # a wrong signer with the right data key
        made.session(ADA, our_data_key),  # an analyst with a data key that it cannot have honestly
    ]
    refusals = [_refusal(session, Open(None)) for session in sessions]
    assert {type(error) for error, _, _ in refusals} == {Refused}
    assert len({text for _, text, _ in refusals}) == len({length for _, _, length in refusals}) == 1
    for word in ("visits", "staff", "ada", "bob"):
        assert word not in refusals[0][1]
    for session in sessions:
        assert not isinstance(_refusal(session, Prepare(_plan(owner.table("visits").id)))[0], Stale)


def test_without_the_owner_the_database_is_locked_for_everybody(both: Both) -> None:
    made, _ = both
    enclave = TrustedEnclave(made.store)
    refusals = [_refusal(Session(enclave, made.store.database, who), Open(None)) for who in (ADA, BOB)]
    assert {type(error) for error, _, _ in refusals} == {Locked}
    assert len({length for _, _, length in refusals}) == 1


def test_a_grant_for_one_database_is_worth_nothing_at_another(both: Both, tmp_path: Path) -> None:
    """Even in one enclave with one vault: a session is for the database in its greeting."""
    made, _ = both
    key = OwnerKey.create(tmp_path / "second.key", None)
    store = FileStore.create(tmp_path / "second", key.database)
    enclave = TrustedEnclave(store, vault=made.vault)
    second = Session(enclave, key.database, key.signing_key(), key.data_key())
    with store.writer():
        second.commit(second.ask(Create(key.title())), key.signing_key())
    assert isinstance(_refusal(Session(enclave, key.database, ADA), Open(None))[0], Refused)
    assert isinstance(_refusal(Session(enclave, made.store.database, ADA), Open(None))[0], Tampered)
    store.close()


def test_a_revocation_bites_a_running_session_at_once(both: Both) -> None:
    made, owner = both
    session = made.opened(ADA)
    number = session.prepare(_plan(owner.table("visits").id))
    scans = [Scan(0, 0, [(0, 4)])]
    session.execute(number, scans, NO_BOUNDS)
    owner.revoke("ada")
    with pytest.raises(Stale):
        session.execute(number, scans, NO_BOUNDS)
    assert isinstance(_refusal(session, Prepare(_plan(owner.table("visits").id)))[0], Stale)
    assert isinstance(_refusal(session, Open(None))[0], Refused)
    with pytest.raises(ScumbleError):
        session.execute(number, scans, NO_BOUNDS)


def test_a_table_that_is_dropped_takes_its_grants_along(both: Both) -> None:
    made, owner = both
    owner.drop("visits")
    assert owner.grants() == ()
    assert isinstance(_refusal(made.session(ADA), Open(None))[0], Refused)


def test_a_rolled_back_manifest_does_not_bring_a_revoked_grant_back(both: Both) -> None:
    made, owner = both
    head = made.home / "db" / "HEAD"
    granted = head.read_bytes()
    assert made.opened(ADA)
    owner.revoke("ada")
    head.write_bytes(granted)
    for session in (made.session(ADA), made.session(ADA)):
        assert isinstance(_refusal(session, Open(None))[0], Tampered)


def test_the_owner_alone_may_say_that_an_older_version_was_restored(both: Both) -> None:
    made, owner = both
    head = made.home / "db" / "HEAD"
    older = head.read_bytes()
    owner.grant("bob", text_of(BOB), ["staff"])
    head.write_bytes(older)
    key, restore = made.key, Restore(0, (), ())
    for session in (
        made.session(ADA),
        made.session(BOB),
        made.session(BOB, bytes(32)),
        made.session(BOB, key.data_key()),
    ):
        assert isinstance(_refusal(session, restore)[0], Refused)
        assert made.enclave.rank(session._number) == 0
    again = made.session(key.signing_key(), key.data_key())
    assert isinstance(_refusal(again, Open(None))[0], Tampered)
    draft = again.ask(restore)
    assert made.enclave.rank(again._number) == 2
    for session in (made.session(ADA), again):  # what was restored is not to be seen before it was brought up
        assert isinstance(_refusal(session, Open(None))[0], Tampered)
    draft = again.ask(restore)
    with made.store.writer():
        opened = again.commit(draft, key.signing_key())
    assert (opened.version, opened.catalog.restores) == (owner.version, 1)
    assert made.opened(ADA)


def test_another_enclave_learns_of_a_revocation_through_the_vault(both: Both) -> None:
    made, owner = both
    vault = Vault()
    vault.adopt(made.vault.export())
    session = Session(TrustedEnclave(made.store, vault=vault), made.store.database, ADA)
    session.ask(Open(None))
    number = session.prepare(_plan(owner.table("visits").id))
    owner.revoke("ada")
    session.execute(number, [Scan(0, 0, [(0, 4)])], NO_BOUNDS)  # it knows nothing of it yet
    vault.adopt(made.vault.export())
    with pytest.raises(Stale):
        session.execute(number, [Scan(0, 0, [(0, 4)])], NO_BOUNDS)
    assert isinstance(_refusal(session, Open(None))[0], Refused)


def test_a_wrong_owner_is_refused_and_a_successor_is_not(both: Both) -> None:
    made, owner = both
    first = owner._versions.owner
    owner.rekey()
    assert owner._versions.owner != first
    for expected in (first, owner._versions.owner):
        assert made.session(ADA).ask(Open(None, owner=bytes.fromhex(expected))).owner.hex() == owner._versions.owner
    assert isinstance(_refusal(made.session(ADA), Open(None, owner=bytes(32)))[0], Refused)


def test_a_loader_is_held_to_its_allotment(both: Both) -> None:
    made, owner = both
    bobs = owner.grant("bob", text_of(BOB), {"visits": ["load"]}, epsilon="1.5", delta="1e-6")
    session = made.opened(BOB)
    for more in (
        {"capacity_cost": (Fraction("0.6"), Fraction(0))},
        {"capacity_cost": (Fraction(0), Fraction("1e-5"))},
        {"orders": load_request(owner, "visits").orders * 2},
    ):
        assert isinstance(_refusal(session, load_request(owner, "visits", **more))[0], Overdraft)
    for epsilon in (Fraction("-0.9"), Fraction(-5)):  # the first would leave a cost above 0
        with pytest.raises(InvalidParameter):
            Cost.of(load_request(owner, "visits").orders, (epsilon, Fraction(0)))
    with pytest.raises(InvalidParameter):
        Cost.of(load_request(owner, "visits").orders, (Fraction(1), Fraction(-1, 9)))
    negative = load_request(owner, "visits", capacity_cost=(Fraction(-5), Fraction(0)))
    assert isinstance(_refusal(session, negative)[0], InvalidParameter)
    assert isinstance(_refusal(session, Prepare(_plan(owner.table("visits").id)))[0], Refused)
    with made.store.writer():
        _load(session, load_request(owner, "visits", capacity_cost=(Fraction("0.5"), Fraction(0))), BOB, bobs.id)
    (grant,) = (grant for grant in owner.grants() if grant.name == "bob")
    assert (grant.used_epsilon, grant.used_delta) == (Fraction(3, 2), Fraction(0))
    assert owner.sql("SELECT count(*) FROM visits").fetchone() == (43,)
    again = load_request(owner, "visits", batch="bb" * 16)
    assert isinstance(_refusal(session, again)[0], Overdraft)


def _load(session: Session, request: BeginLoad, key: Ed25519PrivateKey, grant: str | None = None) -> Opened:
    """Load three rows and thirteen dummies."""
    assert session.ask(request) == LoadBegun(done=False)
    rows = np.zeros((16, 4), np.int64)
    rows[:3] = [(place, place, 3, place) for place in range(3)]
    rows[3:, 3] = 101
    session.send_rows(rows)
    if (draft := session.ask(Pay(request.batch, _charges(request, grant)))) is not None:
        session.commit(draft, key)
    session.ask(Reserve(16))
    built = session.ask(Build(3, request.batch))
    assert built is not None
    return session.commit(built, key)


def _charges(request: BeginLoad, grant: str | None = None) -> tuple[Charge, ...]:
    orders = [(order.attribute, order.epsilon, order.delta) for order in request.orders]
    return tuple(
        Charge(request.batch, request.table_id, what, epsilon, delta, 1, new_rows=False, grant=grant)
        for what, epsilon, delta in (*orders, (CAPACITY, *request.capacity_cost))
    )


def test_a_batch_is_never_built_twice(both: Both) -> None:
    made, owner = both
    key = made.key
    request = load_request(owner, "visits")
    sessions = [made.session(key.signing_key(), key.data_key()) for _ in range(2)]
    with made.store.writer():
        sessions[0].ask(Open(None))
        _load(sessions[0], request, key.signing_key())
        sessions[1].ask(Open(None))
        assert sessions[1].ask(request) == LoadBegun(done=True)
        assert sessions[1].ask(Build(3, request.batch)) is None
        assert sessions[0].ask(Build(3, request.batch)) is None
        for batch in ("", "b", "BA" * 16, "ba" * 17, "../" * 8):
            with pytest.raises(ScumbleError):
                sessions[0].ask(replace(request, batch=batch))
    assert owner.sql("SELECT count(*) FROM visits").fetchone() == (43,)


def test_a_grant_names_what_is_there_and_whom_nobody_else_is(both: Both) -> None:
    _, owner = both
    with pytest.raises(NotFound):
        owner.grant("bob", text_of(BOB), ["nothing"])
    for name, key in (("ada", BOB), ("bob", ADA)):
        with pytest.raises(ScumbleError):
            owner.grant(name, text_of(key), ["staff"])
    with pytest.raises(NotFound):
        owner.revoke("bob")
    assert [grant.name for grant in owner.grants()] == ["ada"]


# --- the access list by itself -----------------------------------------------------------------------

HALF, SMALL = Fraction(1, 2), Fraction(1, 10**6)
BATCH, OTHER_BATCH = "ba" * 16, "bb" * 16
ADAS = Grant("a" * 16, "ada", ADA.public_key().public_bytes_raw(), {"t": frozenset(["load"])}, Fraction(1), SMALL)
BOBS = Grant("b" * 16, "bob", BOB.public_key().public_bytes_raw(), {"t": frozenset(["read"]), "u": frozenset(["read"])})
LIST = AccessList(OWNER_KEY, (ADAS, BOBS))


def _order(epsilon: Fraction | int = 1, delta: Fraction | int = 0) -> IndexOrder:
    domain = parse_domain("int:0:9")
    return IndexOrder("k", domain, Fraction(epsilon), Fraction(delta), SMALL, 1, None, "measured")


def _payment(
    batch: str, *amounts: tuple[Fraction, Fraction], grant: str | None = None, digest: bytes = b"d"
) -> Payment:
    charges = (Charge(batch, "ab" * 16, "k", *each, 1, new_rows=True, grant=grant) for each in amounts)
    return Payment(batch, digest, tuple(charges))


def _policy(serial: int, key: Ed25519PrivateKey = OWNER, database: str = DATABASE) -> bytes:
    return SignedPolicy.sign(Policy(), database, serial, datetime(2026, 1, 1, tzinfo=UTC), key).to_bytes()


def test_a_load_costs_the_sum_of_its_indexes_and_its_capacity() -> None:
    none = Fraction(0)
    assert Cost.of((), (none, none)) == Cost(none, none)
    assert Cost.of((_order(HALF),), (none, none)) == Cost(HALF, none)
    assert Cost.of((_order(HALF, SMALL), _order()), (HALF, SMALL)) == Cost(Fraction(2), 2 * SMALL)


@pytest.mark.parametrize(
    ("orders", "capacity"),
    [
        ((_order(0),), (1, 0)),
        ((_order(), _order(0)), (1, 1)),
        ((_order(), _order(-HALF)), (1, 1)),
        ((_order(1, -SMALL),), (1, 1)),
        ((_order(1, -SMALL),), (0, 0)),
        ((_order(),), (-HALF, 1)),
        ((_order(),), (1, -SMALL)),
    ],
)
def test_no_part_of_a_load_is_free_or_pays_for_another(
    orders: tuple[IndexOrder, ...], capacity: tuple[int, int]
) -> None:
    with pytest.raises(InvalidParameter, match="costs epsilon"):
        Cost.of(orders, (Fraction(capacity[0]), Fraction(capacity[1])))


def test_a_payment_covers_no_more_than_was_paid_of_either() -> None:
    paid = _payment(BATCH, (HALF, SMALL), (HALF, SMALL))
    assert paid.cost == Cost(Fraction(1), 2 * SMALL)
    assert paid.covers(Cost(Fraction(1), 2 * SMALL))
    assert paid.covers(Cost(HALF, SMALL))
    assert not paid.covers(Cost(Fraction(1) + SMALL, 2 * SMALL))
    assert not paid.covers(Cost(Fraction(1), 3 * SMALL))


def test_a_new_owner_has_signed_all_grants_that_there_are_and_no_others() -> None:
    eve = Ed25519PrivateKey.from_private_bytes(bytes([9] * 32))
    owner = eve.public_key().public_bytes_raw()
    signed = [grant.signed(DATABASE, eve) for grant in (ADAS, BOBS)]
    another = replace(BOBS, id="c" * 16, name="eve").signed(DATABASE, eve)
    taken = LIST.owned_by(DATABASE, owner, signed)
    assert (taken.owner, taken.grants) == (owner, tuple(signed))
    for grants in (
        signed[:1],
        signed[1:],
        [],
        [*signed, another],
        [signed[0], BOBS],
        [replace(signed[0], epsilon=HALF)],
    ):
        with pytest.raises(InvalidParameter, match="not just the grants"):
            LIST.owned_by(DATABASE, owner, grants)
    by_another = [signed[0], BOBS.signed(DATABASE, OWNER)]
    elsewhere = [signed[0], BOBS.signed("0b" * 20, eve)]
    for grants in (by_another, elsewhere):
        with pytest.raises(InvalidParameter, match="not just the grants"):
            LIST.owned_by(DATABASE, owner, grants)


def test_a_new_owner_s_signature_changes_no_terms_and_no_use() -> None:
    used = replace(ADAS, used_epsilon=HALF)
    access = AccessList(OWNER_KEY, (used,))
    given = replace(ADAS, used_epsilon=Fraction(0)).signed(DATABASE, OWNER)
    assert access.owned_by(DATABASE, OWNER_KEY, [given]).grants[0].used_epsilon == HALF
    more = replace(ADAS, epsilon=Fraction(9)).signed(DATABASE, OWNER)
    with pytest.raises(InvalidParameter):
        access.owned_by(DATABASE, OWNER_KEY, [more])


def test_a_policy_makes_way_for_a_newer_one_of_the_owner_s_only() -> None:
    first, third, again = _policy(1), _policy(3), SignedPolicy.parse(_policy(3))
    later = SignedPolicy.sign(again.terms, DATABASE, 3, datetime(2027, 1, 1, tzinfo=UTC), OWNER).to_bytes()
    under = LIST.under(DATABASE, third)
    assert under.policy == third
    assert under.under(DATABASE, _policy(4)).policy == _policy(4)
    for older in (first, _policy(2), third, later):
        with pytest.raises(Stale):
            under.under(DATABASE, older)
        assert not under.is_before(older)
        assert under.brought_up_to(replace(LIST, policy=older)).policy == third
    for strange in (_policy(4, ADA), _policy(4, database="0b" * 20)):
        with pytest.raises(Tampered):
            under.under(DATABASE, strange)
    assert LIST.is_before(first)
    assert not LIST.is_before(b"")
    assert not under.is_before(b"")
    assert LIST.brought_up_to(under).policy == third
    assert under.brought_up_to(LIST).policy == third
    assert LIST.under(DATABASE, first).brought_up_to(under).policy == third


def test_rights_are_their_signer_s() -> None:
    assert LIST.grant_of(OWNER_KEY) is None
    assert LIST.grant_of(ADAS.public_key) is ADAS
    assert LIST.grant_of(BOBS.public_key) is BOBS
    with pytest.raises(Refused):
        LIST.grant_of(bytes(32))


def test_a_name_and_a_key_have_one_grant(monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = Catalog(DATABASE, 1, "", (table_of("integer"),), (TITLE,))
    new = replace(ADAS, id="c" * 16, name="eve", public_key=b"e" * 32)
    assert LIST.granting(new, catalog).grants == (ADAS, BOBS, new)
    for taken in (replace(new, name="ada"), replace(new, name="bob")):
        with pytest.raises(Exists, match="a grant to"):
            LIST.granting(taken, catalog)
    for key in (OWNER_KEY, ADAS.public_key, BOBS.public_key):
        with pytest.raises(Exists, match="has rights already"):
            LIST.granting(replace(new, public_key=key), catalog)
    monkeypatch.setattr("scumble.enclave.grants.MOST_GRANTS", 3)
    full = LIST.granting(new, catalog)
    with pytest.raises(InvalidParameter, match="there are 3 grants"):
        full.granting(replace(new, id="d" * 16, name="mallory", public_key=b"m" * 32), catalog)


def test_a_revocation_takes_one_grant() -> None:
    assert LIST.revoking("ada").grants == (BOBS,)
    with pytest.raises(NotFound):
        LIST.revoking("eve")


def test_a_grant_ends_with_the_last_of_its_tables() -> None:
    left = LIST.dropping("T")
    assert left.grants == (replace(BOBS, gone=frozenset(["t"])),)
    assert LIST.dropping("nothing") == LIST
    assert left.dropping("u").grants == ()
    tables = (table_of("integer"), replace(table_of("integer"), id="cd" * 16, name="u"))
    catalog = Catalog(DATABASE, 1, "", tables, (TITLE,))
    assert visible(catalog, None) is catalog
    assert [table.name for table in visible(catalog, ADAS).tables] == ["t"]
    assert [table.name for table in visible(catalog, left.grants[0]).tables] == ["u"]


def test_what_is_paid_is_taken_from_one_grant_once() -> None:
    payment = _payment(BATCH, (HALF, SMALL / 2), (HALF / 2, SMALL / 4), grant=ADAS.id)
    paid = LIST.paying(payment, ADAS)
    charged = paid.grants[0]
    assert (charged.used_epsilon, charged.used_delta) == (Fraction(3, 4), SMALL * 3 / 4)
    assert (paid.grants[1], paid.payments) == (BOBS, (payment,))
    assert paid.paying(payment, charged) is paid
    for changed in (replace(payment, digest=b"e"), replace(payment, charges=payment.charges[:1])):
        with pytest.raises(Exists):
            paid.paying(changed, charged)
    own = _payment(OTHER_BATCH, (Fraction(9), Fraction(0)))
    both = paid.paying(own, None)
    assert both.grants == paid.grants
    assert (both.payment(BATCH), both.payment(OTHER_BATCH), both.payment("bc" * 16)) == (payment, own, None)
    assert both.charges(None) == (*payment.charges, *own.charges)
    assert both.charges(charged) == payment.charges
    assert both.charges(BOBS) == ()


@pytest.mark.parametrize(
    ("payer", "named"), [(None, ("a" * 16,)), (ADAS, (None,)), (ADAS, ("b" * 16,)), (ADAS, ("a" * 16, None))]
)
def test_nobody_pays_in_another_s_name(payer: Grant | None, named: tuple[str | None, ...]) -> None:
    charges = tuple(_payment(BATCH, (SMALL, SMALL), grant=grant).charges[0] for grant in named)
    with pytest.raises(Refused):
        LIST.paying(Payment(BATCH, b"d", charges), payer)


def test_an_allotment_is_used_to_the_end_and_not_beyond() -> None:
    used = replace(ADAS, used_epsilon=HALF, used_delta=SMALL / 2)
    access = replace(LIST, grants=(used,))
    access.check_left(used, Cost(HALF, SMALL / 2), BATCH)
    access.check_left(used, Cost(HALF, Fraction(0)), BATCH)
    access.check_left(used, Cost(Fraction(0), SMALL / 2), BATCH)
    for epsilon, delta in ((HALF + SMALL, Fraction(0)), (Fraction(0), SMALL)):
        with pytest.raises(Overdraft):
            access.check_left(used, Cost(epsilon, delta), BATCH)
        with pytest.raises(Overdraft):
            access.paying(_payment(BATCH, (epsilon, delta), grant=ADAS.id), used)
    known = replace(access, payments=(_payment(BATCH, (HALF, SMALL / 2), grant=ADAS.id),))
    known.check_left(used, Cost(Fraction(1), SMALL), BATCH)
    with pytest.raises(Overdraft):
        known.check_left(used, Cost(Fraction(1), SMALL), OTHER_BATCH)


def test_a_restore_gives_nothing_back_that_was_revoked_used_or_paid() -> None:
    first, second = (_payment(batch, (HALF, SMALL)) for batch in (BATCH, OTHER_BATCH))
    restored = AccessList(OWNER_KEY, (ADAS, BOBS), (first,))
    newest = AccessList(OWNER_KEY, (replace(ADAS, used_epsilon=HALF, used_delta=SMALL / 2),), (first, second))
    assert restored.brought_up_to(newest) == newest
    assert newest.brought_up_to(restored) == newest  # what was seen less of stays as it is
    assert restored.brought_up([BOBS.id], [(ADAS.id, HALF, SMALL / 2)]).grants == newest.grants
    assert newest.brought_up((), [(ADAS.id, Fraction(0), Fraction(0))]).grants == newest.grants
    assert restored.brought_up((), ()) == restored


def test_an_access_list_comes_back_from_its_block() -> None:
    for access in (LIST, replace(LIST, policy=_policy(2), payments=(_payment(BATCH, (HALF, SMALL)),))):
        block = access.to_bytes()
        assert AccessList.from_bytes(block) == access
        assert len(block) % BLOCK_BYTES == 0
    assert BLOCK_BYTES == 512
    assert len(AccessList(OWNER_KEY).to_bytes()) == BLOCK_BYTES
    assert b"policy" not in AccessList(OWNER_KEY).to_bytes()
    for block in (b"", b"[]", b"{}", b'{"owner": "", "grants": [{}]}', b'{"owner": 1, "grants": []}'):
        with pytest.raises(Tampered):
            AccessList.from_bytes(block)
