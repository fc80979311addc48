"""Analysts at a service: what a grant gives, the one refusal that everybody else gets, and how a grant ends."""

import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from meddling import Meddling, Request, meddling
from sample_rows import OPTIONS, QUERIES, answer, answers_right, batch, loaded

import scumble
from scumble.cli import main
from scumble.errors import KeyRefused, NotFound, Overdraft, Refused, ScumbleError, Stale, Tampered
from scumble.owner.indexes import IndexSpec
from scumble.owner.keys import AnalystKey, OwnerKey
from scumble.owner.remote.address import Address
from scumble.owner.remote.service import RemoteService, Transport
from scumble.owner.session import Session
from scumble.wire import requests
from scumble.wire.grants import Grant
from scumble.wire.lineage import Title
from scumble.wire.plan import Plan
from scumble.wire.requests import (
    AddGrant,
    BeginLoad,
    CheckChain,
    CheckPages,
    DropTable,
    ForgetPlans,
    ListGrants,
    Open,
    Prepare,
    Reseal,
    RevokeGrant,
)
from serving import SIMULATED, Serving

FLAG = "--insecure-simulated-enclave"
SECRET = "Tuples"  # noqa: S105  a table
"""A table that nobody was granted; its name stands in the same place, and is as long, as that of none."""


def _count(table: str) -> str:
    return f"SELECT count(*) FROM {table}"  # noqa: S608  our own names


@dataclass
class Clinic:
    """Two tenants' databases, analysts with all sorts of keys, and the proxy through which they come."""

    proxy: Meddling
    keys: Path
    owner: scumble.Database

    def open(self, key: str) -> scumble.Database:
        return scumble.open(self.proxy.url("clinic"), key=self.keys / f"{key}.key", **SIMULATED)


@pytest.fixture(scope="module")
def clinic(service: Serving, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clinic]:
    keys = tmp_path_factory.mktemp("access")
    public = {name: AnalystKey.create(keys / f"{name}.key", None).text for name in ("ada", "bob", "rita", "tom", "lab")}
    with meddling(service.port) as proxy, proxy.create("clinic", keys, limit=50) as owner:
        loaded(owner)
        owner.load(SECRET, batch(7), **OPTIONS)
        owner.grant("ada", public["ada"], ["t"])
        owner.grant("rita", public["rita"], ["t"])
        owner.grant("lab", public["lab"], {"t": ["read", "load"]}, epsilon="0.025", delta="1e-9")
        owner.revoke("rita")
        with scumble.create(proxy.url("other/clinic"), key=keys / "other.key", **SIMULATED) as other:
            loaded(other, 1)
            other.grant("tom", public["tom"], ["t"])
        yield Clinic(proxy, keys, owner)


def test_a_grant_gives_the_table_and_its_exact_answers(clinic: Clinic) -> None:
    with clinic.open("ada") as ada:
        assert [table.name for table in ada.tables] == ["t"]
        assert answers_right(ada, queries=QUERIES)


STRANGERS = ("bob", "rita", "tom")


def test_everybody_without_a_grant_gets_the_same_refusal(clinic: Clinic) -> None:
    texts, shapes = set(), set()
    for name in STRANGERS:
        clinic.proxy.forget()
        with pytest.raises(Refused) as refused:
            clinic.open(name)
        texts.add(str(refused.value))
        shapes.add(tuple(clinic.proxy.shape()))
    assert len(texts) == len(shapes) == 1
    assert "t" not in texts.pop().split()


def test_the_refusal_is_the_same_on_the_command_line(clinic: Clinic, capsys: pytest.CaptureFixture[str]) -> None:
    said = set()
    for name in STRANGERS:
        for query in (_count("t"), _count(SECRET), _count("nowhere")):
            command = ["query", clinic.proxy.url("clinic"), query, "--key", str(clinic.keys / f"{name}.key")]
            assert main([*command, FLAG]) == 2
            shown = capsys.readouterr()
            assert shown.out == ""
            said.add(shown.err)
    assert len(said) == 1
    assert "the enclave refuses this to your key\nhint: ask the database's owner for a grant" in said.pop()


@contextmanager
def _session(clinic: Clinic, signer: str, *, data_key: bytes | None = None) -> Iterator[Session]:
    """A session with the enclave by hand, for the first tenant's database, with any keys."""
    address = Address.parse(clinic.proxy.url("clinic"))
    service = RemoteService(address, Transport(address), lambda evidence, stated: None)  # type: ignore[arg-type, return-value]
    database, path = service.describe(), clinic.keys / f"{signer}.key"
    if signer == "other":
        key = OwnerKey.open(path)
        signing, data_key = key.signing_key(), key.data_key()
    else:
        opener = AnalystKey.open(path, database)
        signing = opener.signing_key()
    with closing(service):
        yield Session(service, database, signing, data_key)


def test_a_key_to_other_data_gets_the_same_refusal(clinic: Clinic) -> None:
    """The owner of another database, and strangers who bring a key of their own making, who keep to no rule."""
    shapes = set()
    for signer, data_key in (("bob", None), ("bob", bytes(32)), ("other", None), ("ada", bytes(32))):
        clinic.proxy.forget()
        with _session(clinic, signer, data_key=data_key) as session:
            with pytest.raises(Refused):
                session.ask(Open(None))
            shapes.add(tuple(clinic.proxy.shape()))
            owners: list[requests.Request[Any]] = [ListGrants(), CheckChain(), ForgetPlans()]
            for request in owners:
                with pytest.raises(ScumbleError):
                    session.ask(request)
    assert len(shapes) == 1


def test_an_owners_key_of_another_database_is_not_even_sent(clinic: Clinic) -> None:
    clinic.proxy.forget()
    with pytest.raises(KeyRefused):
        clinic.open("other")
    assert {request.kind for request, _ in clinic.proxy.seen} == {"describe"}


# --- what tells nothing ----------------------------------------------------------------------------


def _asked(clinic: Clinic, session: Session, request: requests.Request[Any]) -> tuple[str, object]:
    """What somebody without a right is told, and what the wire shows of it."""
    clinic.proxy.forget()
    try:
        told = repr(session.ask(request))
    except ScumbleError as error:
        told = f"{type(error).__name__}: {error}"
    return told, clinic.proxy.shape()


def test_a_table_that_was_not_granted_looks_like_none(clinic: Clinic) -> None:
    told = []
    with clinic.open("ada") as ada:
        for table in (SECRET, "Absent"):
            clinic.proxy.forget()
            with pytest.raises(ScumbleError) as refused:
                ada.sql(_count(table))
            told.append((str(refused.value).replace(table, "?"), clinic.proxy.shape()))
    assert told[0] == told[1]


def test_a_table_that_was_not_granted_looks_like_none_even_to_who_knows_its_ids(
    clinic: Clinic, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = clinic.owner.table(SECRET)
    plans: list[Plan] = []
    prepare = Session.prepare

    def noted(self: Session, plan: Plan) -> int:
        plans.append(plan)
        return prepare(self, plan)

    monkeypatch.setattr(Session, "prepare", noted)
    clinic.owner.sql(_count(SECRET) + " WHERE k < 7")
    monkeypatch.undo()
    orders = (IndexSpec.parse("k int:0:99 epsilon=1").order(),)
    load = BeginLoad("0" * 32, (Fraction(0), Fraction(0)), SECRET, "ab" * 16, secret.schema, orders, 16, 1 << 20)
    cases: list[tuple[requests.Request[Any], requests.Request[Any]]] = [
        (Prepare(plans[0]), Prepare(replace(plans[0], table="cd" * 16))),
        (CheckPages(secret.runs[0].id, 0, 0, 1), CheckPages("cd" * 16, 0, 0, 1)),
        (load, replace(load, table="Absent")),
    ]
    with clinic.open("ada") as ada:
        for real, made_up in cases:
            one, other = (_asked(clinic, ada._versions.session, request) for request in (real, made_up))
            assert one[0].replace(SECRET, "?") == other[0].replace("Absent", "?"), real.task
            assert one[1] == other[1], real.task
        assert _asked(clinic, ada._versions.session, Prepare(plans[0]))[0].startswith(Stale.__name__)


# --- what an analyst may not do --------------------------------------------------------------------


def test_an_analyst_cannot_do_what_is_the_owners(clinic: Clinic) -> None:
    with clinic.open("ada") as ada:
        for call in (
            lambda: ada.drop("t"), ada.rekey, lambda: ada.revoke("ada"), ada.grants,
            lambda: ada.grant("bob", AnalystKey.create(clinic.keys / "eve.key", None).text, ["t"]),
        ):  # fmt: skip
            with pytest.raises(Refused):
                call()
        grant = Grant("0" * 16, "x", bytes(32), {"t": frozenset(["read"])})
        owners: list[requests.Request[Any]] = [
            DropTable("t"), DropTable("absent"), RevokeGrant("lab"), ListGrants(), RevokeGrant("nobody"),
            AddGrant(grant, rehearsed=False), CheckChain(),
            Reseal(bytes(32), Title(2, bytes(32), bytes(32), b"", ()), ()),
        ]  # fmt: skip
        shapes = set()
        for request in owners:
            told, shape = _asked(clinic, ada._versions.session, request)
            assert told.startswith("Refused"), request.task
            shapes.add(str([sizes[2:] for sizes in shape]))  # type: ignore[attr-defined]
        assert len(shapes) == 1
        assert answers_right(ada)


def _may_hold(clinic: Clinic, key: str) -> int:
    with clinic.open(key) as somebody:
        path = f"/v1/default/clinic/sessions/{somebody._versions.session._number}/writer"
        held = clinic.proxy.forward(Request("PUT", path, {}, b"")).status
        clinic.proxy.forward(Request("DELETE", path, {}, b""))
        return held


def test_only_who_may_load_keeps_others_from_writing(clinic: Clinic) -> None:
    assert _may_hold(clinic, "ada") == 404
    assert _may_hold(clinic, "lab") == 204
    for signer, data_key in (("bob", None), ("bob", bytes(32)), ("other", None)):
        with _session(clinic, signer, data_key=data_key) as session:
            path = f"/v1/default/clinic/sessions/{session._number}/writer"
            assert clinic.proxy.forward(Request("PUT", path, {}, b"")).status == 404
            with pytest.raises(Refused):
                session.ask(Open(None))
            assert clinic.proxy.forward(Request("PUT", path, {}, b"")).status == 404
    with clinic.open("ada") as ada, pytest.raises((NotFound, Refused)):
        loaded(ada, 5)


def test_an_analyst_loads_what_was_allotted_and_no_more(clinic: Clinic) -> None:
    there = [0]
    with clinic.open("lab") as lab:
        for number in (11, 12):  # 0.01 each, of 0.025
            loaded(lab, number)
            there.append(number)
            assert answers_right(lab, there)
        with pytest.raises(Overdraft):
            loaded(lab, 13)
    for ledger in clinic.keys.glob("lab.*.ledger*"):
        ledger.unlink()
    with clinic.open("lab") as lab, pytest.raises(Overdraft):  # the enclave counts too
        loaded(lab, 13)
    clinic.owner.sql(QUERIES[0])
    assert answers_right(clinic.owner, there)
    clinic.owner.revoke("lab")
    clinic.owner.drop("t")
    loaded(clinic.owner)
    with pytest.raises(Refused):  # the right was to the table that is gone
        clinic.open("ada")


# --- from a grant to its end -------------------------------------------------------------------------

PROBE = "SELECT count(*) AS visits FROM t WHERE k < 50"


def test_a_grants_life_on_the_command_line(
    service: Serving, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    url = service.url("cli")
    with service.create("cli", tmp_path) as owner:
        loaded(owner)

    def said(*words: str, code: int = 0) -> str:
        assert main([*words]) == code
        told = capsys.readouterr()
        return told.out if not code else told.err

    public = said("identity", "ada.key", "--no-passphrase").strip()
    probe = ("query", url, PROBE, "--key", "ada.key", FLAG)
    assert "refuses" in said(*probe, code=2)
    assert "ada" in said("grant", url, "ada", public, "--table", "t", FLAG)
    assert str(answer(PROBE, [0])[0][0]) in said(*probe)
    assert "refuses" in said("drop", url, "t", "--yes", "--key", "ada.key", FLAG, code=2)
    assert "refuses" in said("grants", url, "--key", "ada.key", FLAG, code=2)
    assert "ada" in said("grants", url, FLAG)
    assert "revoked" in said("revoke", url, "ada", FLAG)
    assert "refuses" in said(*probe, code=2)


def test_a_folder_put_back_under_the_running_service_brings_no_grant_back(service: Serving, tmp_path: Path) -> None:
    folder, kept = service.folder / "default" / "putback", tmp_path / "kept"
    with meddling(service.port) as proxy, proxy.create("putback", tmp_path) as owner:
        loaded(owner)
        owner.grant("ada", AnalystKey.create(tmp_path / "ada.key", None).text, ["t"])
        with proxy.open("putback", tmp_path, "ada.key") as ada:
            assert answers_right(ada)
            shutil.copytree(folder, kept / "granted")
            owner.revoke("ada")
            shutil.copytree(folder, kept / "revoked")
            _put(kept / "granted", folder)
            for _ in range(2):
                with pytest.raises((Tampered, Refused)):
                    ada.sql(QUERIES[0])
            for path in tmp_path.glob("ada.*.anchor"):
                path.unlink()
            for _ in range(3):  # whichever enclave it is
                with pytest.raises((Tampered, Refused)):
                    proxy.open("putback", tmp_path, "ada.key")
            with pytest.raises(ScumbleError):
                loaded(owner, 1)
            _put(kept / "revoked", folder)
            with pytest.raises(Refused):
                ada.sql(QUERIES[0])
        with scumble.open(service.url("putback"), key=tmp_path / "putback.key", **SIMULATED) as again:
            assert answers_right(again)


def _put(content: Path, folder: Path) -> None:
    """Make a folder's files those of another, under whoever has it open."""
    wanted = {path.relative_to(content) for path in content.rglob("*") if path.is_file()}
    for path in [path for path in folder.rglob("*") if path.is_file()]:
        if path.relative_to(folder) not in wanted:
            path.unlink()
    shutil.copytree(content, folder, dirs_exist_ok=True)
