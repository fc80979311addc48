"""What one signer may have in the enclave, and how much of a request is read before its right to ask is known."""

import gc
import tracemalloc
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import scumble
from scumble.enclave import quotas, sessions
from scumble.enclave.lines import TrustedEnclave
from scumble.enclave.quotas import NODE_BYTES, SignerQuota, Signers
from scumble.errors import Busy, InvalidParameter, TooManyPlans
from scumble.owner.session import Session
from scumble.store.memory import MemoryStore
from scumble.wire.channel import SMALL_BYTES
from scumble.wire.messages import read_fraction
from scumble.wire.plan import (
    MOST_DEPTH,
    MOST_INTERVALS_TESTED,
    MOST_NODES,
    And,
    Constant,
    In,
    Or,
    Plan,
    Predicate,
    RowColumns,
)
from scumble.wire.requests import JSON, Open, Prepare, announced_kind

DATABASE = "0123456789abcdef"


@pytest.fixture
def db(tmp_path: Path) -> Any:
    with scumble.create(tmp_path / "d", limit=1) as made:
        made.load("t", pa.table({"k": pa.array(range(100), pa.int64())}), capacity=1024, types={"k": "bigint"})
        yield made


def stranger(enclave: TrustedEnclave, key: Ed25519PrivateKey | None = None) -> Session:
    return Session(enclave, DATABASE, key or Ed25519PrivateKey.generate())


# --- what is read ------------------------------------------------------------------------------------


def test_nothing_is_parsed_for_who_has_no_right_to_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(_: object) -> None:
        raise AssertionError("it was read")

    monkeypatch.setattr(sessions, "request_kind", read)
    session = stranger(TrustedEnclave(MemoryStore(DATABASE)))
    for task in (b"prepare", b"load", b"grant", b"nothing"):
        with pytest.raises(InvalidParameter, match="no version is open"):
            session._exchange(JSON + b'{"task": "' + task + b'"}')
    with pytest.raises(InvalidParameter, match="larger than its signer may send"):
        session._exchange(JSON + b'{"task": "open", "anchor": ' + b"[" * SMALL_BYTES)


def test_a_request_is_what_it_begins_with(db: scumble.Database) -> None:
    session = db._versions.session
    assert announced_kind(memoryview(b'{"task": "open", "anchor": null}')) is Open
    assert announced_kind(memoryview(b'{"anchor": null, "task": "open"}')) is None
    session._exchange(JSON + b'{"anchor": null, "task": "open"}')  # small, so it may come in any order
    with pytest.raises(InvalidParameter, match="fewer bytes"):
        session._exchange(JSON + b'{"task": "grants", "task": "load"' + b" " * SMALL_BYTES + b"}")
    with pytest.raises(InvalidParameter, match="no such request"):
        session._exchange(JSON + b'{"task": "load", "task": "prepare"' + b" " * (1 << 20) + b"}")


@pytest.mark.parametrize(
    "text", ["1e999999999", "0.5", "1_000", "1/0", "1" * 4001, "1/" + "1" * 4001, " 1", "", 5, None]
)
def test_an_amount_that_would_take_all_memory_is_not_read(text: object) -> None:
    with pytest.raises((ValueError, ZeroDivisionError)):
        read_fraction(text)


def test_numbers_of_too_many_digits_and_nesting_are_refused(db: scumble.Database) -> None:
    session = db._versions.session
    for value in (b"9" * 5000, b"[" * 5000, b'{"a":' * 5000):
        with pytest.raises(InvalidParameter):
            session._exchange(JSON + b'{"task": "open", "anchor": ' + value + b"}")


# --- plans -------------------------------------------------------------------------------------------


def test_a_plan_has_so_many_nodes_intervals_and_levels() -> None:
    leaf, columns = In(0, 0, 1), RowColumns((0,))
    Plan("t", (Or((leaf,) * (MOST_NODES - 2)),), columns)
    for predicate in (Or((leaf,) * MOST_NODES), In(0, 0, MOST_INTERVALS_TESTED + 1)):
        with pytest.raises(InvalidParameter, match="more than an enclave takes"):
            Plan("t", (predicate,), columns)
    nested: list[Any] = ["constant", True]
    for _ in range(MOST_DEPTH):
        nested = ["and", nested]
    with pytest.raises(InvalidParameter, match="more than an enclave takes"):
        Plan.from_json({"table": "t", "predicates": [nested], "columns": [0]})


def test_a_kept_plan_takes_no_more_than_is_counted_for_it(db: scumble.Database) -> None:
    table, session = db.table("t").id, db._versions.session
    predicates: list[Predicate] = [
        Or(tuple(In(0, 2 * n, 1) for n in range(2000))),
        And(tuple(Or((In(0, 2 * n, 1), Constant(value=True))) for n in range(600))),
    ]
    for predicate in predicates:
        plan = Plan(table, (predicate,), RowColumns((0,)))
        gc.collect()
        tracemalloc.start()
        session.ask(Prepare(plan))
        gc.collect()
        kept, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert kept < NODE_BYTES * plan.nodes


def test_a_client_goes_on_when_the_enclave_keeps_no_more_plans(
    db: scumble.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quotas, "MOST_PLANS", 3)
    for _ in range(2):
        for count in range(1, 8):
            tests = " OR ".join(f"(k = {n} AND k + 0 = {n})" for n in range(count))
            query = "SELECT count(*) FROM t WHERE ?".replace("?", tests)
            assert db.sql(query).fetchall() == [(count,)]
        joined = "SELECT count(*) FROM t a JOIN t b ON a.k = b.k WHERE a.k < 50 AND b.k > 10"
        assert db.sql(joined).fetchall() == [(39,)]


def test_all_plans_of_a_signer_are_counted_together(db: scumble.Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quotas, "SIGNER_PLAN_BYTES", 3 * NODE_BYTES * 100)
    plan = Plan(db.table("t").id, (Or(tuple(In(0, 2 * n, 1) for n in range(80))),), RowColumns((0,)))
    versions = db._versions
    others = [Session(versions.service, versions.key.database, *secrets(versions.key)) for _ in range(4)]
    for each in others[:3]:
        each.ask(Open(None))
        each.ask(Prepare(plan))
    others[3].ask(Open(None))
    with pytest.raises(TooManyPlans):
        others[3].ask(Prepare(plan))
    others[0].close()
    others[3].ask(Prepare(plan))


class Kept:
    """A session, as far as it is counted."""

    def __init__(self, plan_bytes: int = 0, signer: bytes = b"k") -> None:
        self.signed_for = DATABASE, signer
        self.plan_bytes = plan_bytes
        self.loads_dropped = 0

    def drop_load(self) -> None:
        self.loads_dropped += 1


def test_a_plan_is_kept_up_to_each_limit_and_not_beyond(monkeypatch: pytest.MonkeyPatch) -> None:
    """So many of them, so many bytes of one session, and so many bytes of all the signer's sessions."""
    for name, limit in (("MOST_PLANS", 3), ("SESSION_PLAN_BYTES", 100), ("SIGNER_PLAN_BYTES", 150)):
        monkeypatch.setattr(quotas, name, limit)
    quota, session, other = SignerQuota(), Kept(60), Kept()
    for each in (session, other):
        quota.enter(each)
    quota.check_plan(session, 2, 40)
    for plans, size_bytes in ((3, 0), (4, 0), (0, 41)):
        with pytest.raises(TooManyPlans):
            quota.check_plan(session, plans, size_bytes)
    quota.check_plan(other, 0, 90)
    with pytest.raises(TooManyPlans):
        quota.check_plan(other, 0, 91)
    other.plan_bytes = 60
    quota.check_plan(session, 2, 30)
    with pytest.raises(TooManyPlans):
        quota.check_plan(session, 2, 31)


def test_a_load_ends_those_of_the_signer_s_other_sessions() -> None:
    signers, own, other, stranger = Signers(), Kept(), Kept(), Kept(signer=b"s")
    quota, *_ = [signers.entered(each) for each in (own, other, stranger)]
    quota.begin_load(own)
    assert [each.loads_dropped for each in (own, other, stranger)] == [0, 1, 0]


def test_a_quota_is_forgotten_with_its_last_session() -> None:
    signers, own, other = Signers(), Kept(), Kept()
    quota = signers.entered(own)
    assert signers.entered(other) is quota
    signers.left(own)
    assert signers.entered(own) is quota
    for each in (own, other):
        signers.left(each)
    assert signers.entered(own) is not quota


def test_the_limits_are_those_that_the_documents_state() -> None:
    text = (Path(__file__).parents[2] / "docs" / "service.md").read_text()
    session, signer = (size / 2**20 for size in (quotas.SESSION_PLAN_BYTES, quotas.SIGNER_PLAN_BYTES))
    assert f"| plans that are kept for a session | {quotas.MOST_PLANS:,}, of {session:g} MiB |" in text
    assert f"| plans that are kept for all sessions of one key with a database | {signer:g} MiB |" in text
    assert f"| sessions of one key with a database, in one enclave | {quotas.MOST_SESSIONS} |" in text


def secrets(key: Any) -> tuple[Ed25519PrivateKey, bytes]:
    return key.signing_key(), key.data_key()


# --- sessions and loads ------------------------------------------------------------------------------


def test_a_signer_has_so_many_sessions_and_others_have_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quotas, "MOST_SESSIONS", 3)
    enclave, key = TrustedEnclave(MemoryStore(DATABASE)), Ed25519PrivateKey.generate()
    first, *_ = [stranger(enclave, key) for _ in range(3)]
    with pytest.raises(Busy, match="too many sessions"):
        stranger(enclave, key)
    stranger(enclave)
    first.close()
    stranger(enclave, key)


def test_a_signer_keeps_the_rows_of_one_load(db: scumble.Database) -> None:
    versions = db._versions
    enclave = versions.service._enclave  # type: ignore[attr-defined]
    first, second = (Session(versions.service, versions.key.database, *secrets(versions.key)) for _ in range(2))
    inside = [enclave._lines[each._number].session for each in (first, second)]
    inside[0]._load = object()
    inside[1]._signer.begin_load(inside[1])
    assert inside[0]._load is None
