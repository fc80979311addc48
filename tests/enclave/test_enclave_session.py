"""One session of the enclave without its channel: what each signer may ask for, in which order, and how much."""

from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from enclave_tables import DATA_KEY, DATABASE, OWNER, OWNER_KEY, TITLE, MemoryStorage, table_of

from scumble.attestation import Policy
from scumble.attestation.policy_document import SignedPolicy
from scumble.enclave import quotas
from scumble.enclave.lines import TrustedEnclave
from scumble.enclave.quotas import NODE_BYTES, Signers
from scumble.enclave.sessions import EnclaveSession
from scumble.enclave.vault import Vault
from scumble.errors import BadRows, InvalidParameter, NotFound, Refused, Stale, Tampered
from scumble.types import parse_domain
from scumble.wire.channel import (
    MOST_BYTES,
    QUERY_BYTES,
    SMALL_BYTES,
    Channel,
    Greeting,
    opened_answer,
    seal_greeting,
)
from scumble.wire.charges import CAPACITY, Charge
from scumble.wire.grants import Grant
from scumble.wire.lineage import Draft, next_title, sign_draft
from scumble.wire.plan import Aggregate, Aggregates, Constant, Plan
from scumble.wire.requests import (
    JSON,
    ROWS,
    Abandon,
    AddGrant,
    BeginLoad,
    Build,
    CheckPages,
    Commit,
    Create,
    CreateTable,
    DropTable,
    Follow,
    ForgetPlans,
    ListGrants,
    LoadBegun,
    Look,
    Open,
    Pay,
    Prepare,
    Request,
    Reseal,
    Reserve,
    Restore,
    RevokeGrant,
    RowLayout,
    Scan,
    SetPolicy,
    Settle,
    SetView,
    pack_execution,
    pack_request,
    unpack_answer,
)
from scumble.wire.requests import IndexOrder as Order

ADA, EVE = (Ed25519PrivateKey.from_private_bytes(bytes([place] * 32)) for place in (7, 9))
SCHEMA = table_of("integer not null").schema
ORDER = Order("c0", parse_domain("int:0:9"), Fraction(1), Fraction(0), Fraction(1, 10**6), 1, 4096, "measured")
BATCH = "ba" * 16
LOAD = BeginLoad(BATCH, (Fraction(0), Fraction(0)), "t", "ab" * 16, SCHEMA, (ORDER,), 16, 1 << 20)
BOUNDS = np.zeros(0, np.int64)
NEW_KEY = b"d" * 32


class Place:
    """A database in memory, the vault of the enclave that holds it, and sessions with that."""

    def __init__(self) -> None:
        self.storage, self.vault, self.signers = MemoryStorage(), Vault(), Signers()
        self.owner = self.session(OWNER, DATA_KEY)
        self.commit(self.owner, ask(self.owner, Create(TITLE)))

    def session(self, who: Ed25519PrivateKey, data_key: bytes | None = None) -> EnclaveSession:
        greeting = Greeting(DATABASE, bytes(32), bytes(32), data_key, who.public_key().public_bytes_raw())
        return EnclaveSession(self.storage, self.vault, greeting, self.signers)

    def opened(self, who: Ed25519PrivateKey) -> EnclaveSession:
        session = self.session(who)
        ask(session, Open(None))
        return session

    def commit(self, session: EnclaveSession, draft: Draft | None, key: Ed25519PrivateKey = OWNER) -> None:
        assert draft is not None
        ask(session, Commit(sign_draft(DATABASE, draft, key)))

    def grant(self, grant: Grant) -> None:
        self.commit(self.owner, ask(self.owner, AddGrant(grant.signed(DATABASE, OWNER), rehearsed=False)))

    def load(self, request: BeginLoad = LOAD) -> None:
        """Load three rows, as the owner."""
        session = self.owner
        assert ask(session, request) == LoadBegun(done=False)
        send(session, len(request.orders))
        if request.orders:
            self.commit(session, ask(session, Pay(request.batch, charges(request))))
        ask(session, Reserve(16))
        self.commit(session, ask(session, Build(3, request.batch)))


def ask(session: EnclaveSession, request: Request[Any]) -> Any:
    return unpack_answer(request, opened_answer(session.answer(memoryview(pack_request(request)))))


def send(session: EnclaveSession, orders: int = 1) -> None:
    layout = RowLayout(SCHEMA, (10,) * orders)
    rows = np.zeros((16, layout.words), np.int64)
    rows[:3, layout.column_offsets[0]] = range(3)
    rows[:3, layout.validity_offset : layout.key_offset] = 1
    if orders:
        rows[:3, layout.key_offset], rows[3:, layout.key_offset] = range(3), 11
    session.answer(memoryview(ROWS + rows.tobytes()))


def charges(request: BeginLoad, grant: str | None = None) -> tuple[Charge, ...]:
    costs = [("c0", order.epsilon, order.delta) for order in request.orders]
    return tuple(
        Charge(request.batch, request.table_id, what, epsilon, delta, 1, new_rows=True, grant=grant)
        for what, epsilon, delta in (*costs, (CAPACITY, *request.capacity_cost))
    )


def grant_of(**rights: str) -> Grant:
    tables: Any = {table: frozenset(given.split()) for table, given in rights.items()}
    return Grant("a" * 16, "ada", ADA.public_key().public_bytes_raw(), tables, Fraction(9))


def plan() -> Plan:
    return Plan("ab" * 16, (Constant(True),), Aggregates((Aggregate("count", None),)))


@pytest.fixture
def place() -> Place:
    return Place()


# --- who may do what ---------------------------------------------------------------------------------


def test_the_rank_and_the_largest_request_of_each_signer(place: Place) -> None:
    place.load()
    place.load(replace(LOAD, batch="bb" * 16, table="u", table_id="cd" * 16))
    stranger = place.session(EVE)
    assert (stranger.rank, stranger.most_bytes, stranger.plan_bytes) == (0, SMALL_BYTES, 0)
    assert (place.owner.rank, place.owner.most_bytes) == (2, MOST_BYTES)
    place.grant(grant_of(t="load", u="read"))
    loader = place.opened(ADA)
    assert (loader.rank, loader.most_bytes) == (1, MOST_BYTES)
    place.commit(place.owner, ask(place.owner, RevokeGrant("ada")))
    place.grant(grant_of(t="read", u="read"))
    reader = place.opened(ADA)
    assert (reader.rank, reader.most_bytes) == (0, QUERY_BYTES)
    with pytest.raises(Refused):
        ask(reader, LOAD)
    ask(place.owner, Restore(0, (), ()))
    assert (place.owner.rank, place.owner.most_bytes) == (2, SMALL_BYTES)


def test_a_large_request_is_of_a_kind_that_may_be_large(place: Place) -> None:
    def asked(task: bytes, size: int) -> None:
        start = b'{"task": "' + task + b'"' if task else b"{"
        place.owner.answer(memoryview(JSON + start + b" " * (size - len(start) - 1) + b"}"))

    asked(b"grants", SMALL_BYTES)
    with pytest.raises(InvalidParameter, match="fewer bytes"):
        asked(b"grants", SMALL_BYTES + 1)
    with pytest.raises(InvalidParameter, match="fewer bytes"):
        asked(b"", SMALL_BYTES + 1)
    for size in (Prepare.most_bytes, BeginLoad.most_bytes):
        task = b"prepare" if size == Prepare.most_bytes else b"load"
        with pytest.raises(InvalidParameter) as caught:
            asked(task, size)
        assert "fewer bytes" not in caught.value.message
        with pytest.raises(InvalidParameter, match="fewer bytes"):
            asked(task, size + 1)


def test_a_small_request_may_name_its_kind_anywhere(place: Place) -> None:
    start = b'J{"anchor": null, "task": "open"'
    place.owner.answer(memoryview(start + b" " * (SMALL_BYTES - len(start)) + b"}"))
    with pytest.raises(InvalidParameter, match="fewer bytes"):
        place.owner.answer(memoryview(start + b" " * (SMALL_BYTES + 1 - len(start)) + b"}"))


def test_a_request_that_names_two_kinds_needs_the_right_to_both(place: Place) -> None:
    """The first is what it announces, the last what would be done."""
    place.load()
    place.grant(grant_of(t="read"))
    analyst, both = place.opened(ADA), b'J{"task": "open", "task": "grants"}'
    with pytest.raises(Refused):
        analyst.answer(memoryview(both))
    with pytest.raises(InvalidParameter, match="no version is open"):
        place.session(OWNER, DATA_KEY).answer(memoryview(both))
    place.owner.answer(memoryview(both))


@pytest.mark.parametrize("form", [b"", b"Q", b"j", b" ", b"{"])
def test_a_request_has_one_of_three_forms(place: Place, form: bytes) -> None:
    with pytest.raises(InvalidParameter, match="begins with J, X or R"):
        place.owner.answer(memoryview(form + b'{"task": "grants"}' if form else b""))


def test_only_columns_that_there_are_can_be_checked(place: Place) -> None:
    place.load()
    run = ask(place.owner, Open(None)).catalog.tables[0].runs[0].id
    ask(place.owner, CheckPages(run, 0, 0, 1))
    for column in (-1, 1, 2):
        with pytest.raises(InvalidParameter, match="no column of this number"):
            ask(place.owner, CheckPages(run, column, 0, 1))
    with pytest.raises(Stale):
        ask(place.owner, CheckPages("00" * 16, 0, 0, 1))


def test_an_opening_is_answered_at_one_length_whatever_is_visible(place: Place) -> None:
    place.load()
    for number in range(20):
        table = f"secret{number}"
        place.load(replace(LOAD, batch=f"{number:032x}", table=table, table_id=f"{number:032x}", orders=()))
    place.grant(grant_of(t="read"))
    lengths = {len(each.answer(memoryview(pack_request(Open(None))))) for each in (place.owner, place.session(ADA))}
    assert len(lengths) == 1


def test_a_reader_reads_and_a_loader_does_not(place: Place) -> None:
    place.load()
    place.grant(grant_of(t="read"))
    assert ask(place.opened(ADA), Prepare(plan())).plan == 0
    assert ask(place.owner, Prepare(plan())).plan == 0
    place.commit(place.owner, ask(place.owner, RevokeGrant("ada")))
    place.grant(grant_of(t="load"))
    with pytest.raises(Refused):
        ask(place.opened(ADA), Prepare(plan()))
    with pytest.raises(Stale):
        ask(place.owner, Prepare(replace(plan(), table="00" * 16)))


def test_who_loses_its_rights_keeps_nothing_open(place: Place) -> None:
    place.load()
    place.grant(grant_of(t="read load"))
    session = place.opened(ADA)
    ask(session, Prepare(plan()))
    ask(session, replace(LOAD, batch="bb" * 16))
    place.commit(place.owner, ask(place.owner, RevokeGrant("ada")))
    with pytest.raises(Refused):
        ask(session, Open(None))
    assert (session.rank, session.plan_bytes) == (0, 0)
    for request in (Prepare(plan()), Abandon(), Build(3, "bb" * 16)):
        with pytest.raises(InvalidParameter, match="no version is open"):
            ask(session, request)


def test_who_follows_is_told_of_another_version_only_and_keeps_its_plans(place: Place) -> None:
    place.load()
    place.grant(grant_of(t="read"))
    session = place.session(ADA)
    seen = ask(session, Open(None)).seen
    ask(session, Prepare(plan()))
    assert ask(session, Follow(seen)) is None
    assert session.plan_bytes > 0
    assert ask(place.session(ADA), Follow(seen)).seen == seen  # nothing was open
    place.load(replace(LOAD, batch="bc" * 16, table="u", table_id="bc" * 16, orders=()))
    newer = ask(session, Follow(seen))
    assert (newer.version, session.plan_bytes) == (seen[1] + 1, 0)
    assert ask(session, Follow(seen)).seen == newer.seen  # the client has not remembered it
    place.commit(place.owner, ask(place.owner, RevokeGrant("ada")))
    with pytest.raises(Refused):
        ask(session, Follow(newer.seen))
    assert session.rank == 0


def test_who_follows_an_older_head_finds_out(place: Place) -> None:
    place.load()
    seen = ask(place.owner, Open(None)).seen
    assert ask(place.owner, Follow(seen)) is None
    del place.storage.manifests[seen[1]]
    with pytest.raises(Tampered):
        ask(place.owner, Follow(seen))


# --- grants and keys ---------------------------------------------------------------------------------


def test_a_new_grant_is_signed_and_has_used_nothing(place: Place) -> None:
    place.load()
    used = replace(grant_of(t="load"), used_epsilon=Fraction(1), used_delta=Fraction(1, 9), gone=frozenset(["t"]))
    for wrong in (used, used.signed(DATABASE, EVE), used.signed("0b" * 20, OWNER)):
        with pytest.raises(InvalidParameter, match="not signed"):
            ask(place.owner, AddGrant(wrong, rehearsed=False))
    signed = used.signed(DATABASE, OWNER)
    assert ask(place.owner, AddGrant(signed, rehearsed=True)) is None
    assert ask(place.owner, ListGrants()).grants == ()
    place.commit(place.owner, ask(place.owner, AddGrant(signed, rehearsed=False)))
    (there,) = ask(place.owner, ListGrants()).grants
    assert (there.used_epsilon, there.used_delta, there.gone) == (0, 0, frozenset())


def _policy(serial: int, key: Ed25519PrivateKey) -> bytes:
    return SignedPolicy.sign(Policy(), DATABASE, serial, datetime(2026, 1, 1, tzinfo=UTC), key).to_bytes()


def test_a_new_key_is_new_and_its_title_of_the_next_version(place: Place) -> None:
    place.load()
    number = ask(place.owner, Open(None)).version + 1
    title = next_title(DATABASE, number, OWNER, EVE, NEW_KEY)
    for data_key in (DATA_KEY, b"", bytes(31), bytes(33), NEW_KEY + b"d"):
        with pytest.raises(InvalidParameter, match="no new key"):
            ask(place.owner, Reseal(data_key, next_title(DATABASE, number, OWNER, EVE, data_key), ()))
    for other in (number - 1, number + 1):
        with pytest.raises(Stale):
            ask(place.owner, Reseal(NEW_KEY, next_title(DATABASE, other, OWNER, EVE, NEW_KEY), ()))
    runs = set(place.storage.shapes)
    place.commit(place.owner, ask(place.owner, Reseal(NEW_KEY, title, ())), EVE)
    assert _count(place.owner) == 3
    (run,) = ask(place.owner, Open(None)).catalog.tables[0].runs
    assert run.id not in runs
    with pytest.raises(Refused):
        ask(place.session(OWNER, DATA_KEY), Open(None))
    assert _count(_opened(place.session(EVE, NEW_KEY))) == 3


@pytest.mark.parametrize(("before", "brought"), [(False, False), (False, True), (True, False), (True, True)])
def test_a_policy_goes_on_under_the_new_key_or_the_key_does_not_change(
    place: Place, before: bool, brought: bool
) -> None:
    if before:
        place.commit(place.owner, ask(place.owner, SetPolicy(_policy(1, OWNER))))
    number = ask(place.owner, Open(None)).version + 1
    policy = _policy(2, EVE) if brought else b""
    request = Reseal(NEW_KEY, next_title(DATABASE, number, OWNER, EVE, NEW_KEY), (), policy)
    if before and not brought:
        with pytest.raises(Tampered):
            ask(place.owner, request)
        return
    place.commit(place.owner, ask(place.owner, request), EVE)
    assert ask(place.owner, Open(None)).policy == policy


def _opened(session: EnclaveSession) -> EnclaveSession:
    ask(session, Open(None))
    return session


def _count(session: EnclaveSession) -> int:
    number = ask(session, Prepare(plan())).plan
    answer = opened_answer(session.answer(memoryview(pack_execution(number, [Scan(0, 0, [(0, 1)])], BOUNDS))))
    return int(np.frombuffer(answer, np.int64)[1])


# --- plans -------------------------------------------------------------------------------------------


def test_plans_are_numbered_counted_and_forgotten(place: Place) -> None:
    place.load()
    assert [ask(place.owner, Prepare(plan())).plan for _ in range(3)] == [0, 1, 2]
    one = place.owner.plan_bytes // 3
    assert one >= NODE_BYTES * plan().nodes
    for number in (-1, 3, 4):
        with pytest.raises(InvalidParameter, match="no plan of this number"):
            place.owner.answer(memoryview(pack_execution(number, [Scan(0, 0, [(0, 1)])], BOUNDS)))
    ask(place.owner, ForgetPlans())
    assert place.owner.plan_bytes == 0
    with pytest.raises(InvalidParameter, match="no plan of this number"):
        place.owner.answer(memoryview(pack_execution(0, [Scan(0, 0, [(0, 1)])], BOUNDS)))


# --- loads -------------------------------------------------------------------------------------------


def test_nothing_is_built_before_it_is_paid_for(place: Place) -> None:
    session = place.owner
    for request in (Reserve(16), Build(3, BATCH), Pay(BATCH, charges(LOAD))):
        with pytest.raises(InvalidParameter, match="no load is under way"):
            ask(session, request)
    ask(session, LOAD)
    send(session)
    with pytest.raises(InvalidParameter, match="not paid for"):
        ask(session, Build(3, BATCH))
    draft = ask(session, Pay(BATCH, charges(LOAD)))
    with pytest.raises(InvalidParameter, match="not paid for"):  # the version that says so is not there yet
        ask(session, Build(3, BATCH))
    draft = ask(session, Pay(BATCH, charges(LOAD)))
    place.commit(session, draft)
    assert ask(session, Pay(BATCH, charges(LOAD))) is None
    ask(session, Reserve(16))
    place.commit(session, ask(session, Build(3, BATCH)))
    assert _count(session) == 3
    assert ask(session, LOAD) == LoadBegun(done=True)
    assert ask(session, Build(3, BATCH)) is None
    with pytest.raises(InvalidParameter, match="no load is under way"):
        ask(session, Reserve(16))


def test_a_wrong_number_of_rows_ends_the_load_and_is_answered_at_one_length(place: Place) -> None:
    session = place.owner
    ask(session, LOAD)
    send(session)
    place.commit(session, ask(session, Pay(BATCH, charges(LOAD))))
    ask(session, Reserve(16))
    drafted = len(session.answer(memoryview(pack_request(Build(3, BATCH)))))
    refused = session.answer(memoryview(pack_request(Build(4, BATCH))))
    with pytest.raises(BadRows):
        opened_answer(refused)
    assert len(refused) == drafted
    with pytest.raises(InvalidParameter, match="no load is under way"):
        ask(session, Reserve(16))


def test_a_load_is_kept_until_its_batch_is_there(place: Place) -> None:
    session = place.owner
    ask(session, LOAD)
    send(session)
    draft = ask(session, SetPolicy(_policy(1, OWNER)))
    place.commit(session, draft)
    place.commit(session, ask(session, Pay(BATCH, charges(LOAD))))
    ask(session, Reserve(16))
    place.storage.write_scratch("chunk-0", b"sealed")
    ask(session, Abandon())
    assert place.storage.scratch == {}
    place.storage.write_scratch("chunk-0", b"another's")
    ask(session, Abandon())
    assert place.storage.scratch != {}


def test_rights_are_asked_for_again_when_a_load_is_built(place: Place) -> None:
    """Ada may no longer load when she has sent her rows; whatever they cost."""
    place.load(replace(LOAD, orders=()))
    request = replace(LOAD, batch="bb" * 16, orders=())
    place.grant(grant_of(t="load"))
    session = place.opened(ADA)
    for rights, allowed in (("load", True), ("read", False)):
        ask(session, request)
        send(session, 0)
        ask(session, Reserve(16))
        place.commit(place.owner, ask(place.owner, RevokeGrant("ada")))
        place.grant(grant_of(t=rights))
        ask(session, Open(None))
        if allowed:
            assert ask(session, Build(3, request.batch)) is not None
        else:
            with pytest.raises(Refused):
                ask(session, Build(3, request.batch))


def test_a_draft_is_committed_once(place: Place) -> None:
    with pytest.raises(InvalidParameter, match="waits for a signature"):
        ask(place.owner, Commit(bytes(64)))
    draft = ask(place.owner, SetPolicy(_policy(1, OWNER)))
    ask(place.owner, Open(None))  # and an opening ends it
    with pytest.raises(InvalidParameter, match="waits for a signature"):
        ask(place.owner, Commit(sign_draft(DATABASE, draft, OWNER)))


def test_a_dropped_table_is_gone_and_the_others_stay(place: Place) -> None:
    place.load()
    place.load(replace(LOAD, batch="bb" * 16, table="u", table_id="cd" * 16))
    place.commit(place.owner, ask(place.owner, DropTable("u")))
    assert [table.name for table in ask(place.owner, Open(None)).catalog.tables] == ["t"]
    with pytest.raises(NotFound):
        ask(place.owner, DropTable("u"))


# --- the enclave around the sessions -----------------------------------------------------------------


def _greeted(enclave: TrustedEnclave) -> tuple[int, bytes]:
    key = enclave.fresh_key()
    greeting = Greeting(DATABASE, *Channel.fresh_keys(), DATA_KEY, OWNER_KEY)
    return enclave.greet(key + seal_greeting(key, greeting, OWNER))


def test_a_session_has_a_number_and_a_refused_one_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    enclave = TrustedEnclave(MemoryStorage())
    assert [_greeted(enclave)[0] for _ in range(3)] == [1, 2, 3]
    monkeypatch.setattr(quotas, "MOST_SESSIONS", 3)
    assert _greeted(enclave)[0] == 0
    enclave.leave(2)
    assert _greeted(enclave)[0] == 4
    for number in (0, 2, 5):
        assert (enclave.rank(number), enclave.most_bytes(number)) == (0, SMALL_BYTES)
        enclave.leave(number)
        with pytest.raises(InvalidParameter, match="no such session"):
            enclave.request(number, b"")


def test_a_request_is_opened_only_if_its_signer_may_send_so_much() -> None:
    enclave = TrustedEnclave(MemoryStorage())
    number, _ = _greeted(enclave)
    with pytest.raises(Tampered):
        enclave.request(number, bytes(SMALL_BYTES))
    with pytest.raises(InvalidParameter, match="larger than its signer may send"):
        enclave.request(number, bytes(SMALL_BYTES + 1))


# --- definitions -------------------------------------------------------------------------------------


def test_what_was_defined_is_kept_when_only_rights_change_meanwhile(place: Place) -> None:
    """A grant that is revoked while a table is dropped does not bring back the rights to that table."""
    place.load()
    place.grant(grant_of(t="read"))
    other = place.session(OWNER, DATA_KEY)
    ask(other, Open(None))
    eve = Ed25519PrivateKey.generate().public_key().public_bytes_raw()
    place.grant(replace(grant_of(t="read"), id="b" * 16, name="eve", public_key=eve))
    ask(place.owner, DropTable("t", within=True))
    ask(place.owner, CreateTable("t", "cd" * 16, SCHEMA))
    ask(place.owner, SetView("v", '"v" AS (SELECT 1)'))
    ask(other, Open(None))
    place.commit(other, ask(other, RevokeGrant("eve")))
    ask(place.owner, Open(None))
    looked = ask(place.owner, Look())
    assert [table.id for table in looked.catalog.tables] == ["cd" * 16]
    assert looked.views == (("v", '"v" AS (SELECT 1)'),)
    place.commit(place.owner, ask(place.owner, Settle(3)))
    assert ask(place.owner, ListGrants()).grants == ()
    with pytest.raises(Refused):
        place.opened(ADA)
