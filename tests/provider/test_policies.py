"""The owner's policy at a service: made with the database, changed by the owner alone, followed by every client."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from meddling import Meddling, meddling
from sample_rows import answers_right, loaded

import scumble
from scumble.attestation import Policy, code_measurement
from scumble.attestation.policy import HIDING
from scumble.attestation.policy_document import SignedPolicy
from scumble.cli import main
from scumble.errors import AttestationRefused, InvalidParameter, Refused, Stale, Tampered
from scumble.owner.key_file import canonical
from scumble.owner.keys import AnalystKey, OwnerKey
from scumble.wire.requests import Opened, SetPolicy
from serving import SIMULATED, Serving, serving

FLAG = "--insecure-simulated-enclave"
MEASUREMENT = code_measurement()


def _now() -> datetime:
    return datetime.now(UTC)


def _committed(owner: scumble.Database, policy: SignedPolicy) -> Opened:
    """The version under a policy, which the owner's client is not told of."""
    session, key = owner._versions.session, owner._versions.key
    return session.commit(session.ask(SetPolicy(policy.to_bytes())), key.signing_key())


@pytest.fixture(name="keys", scope="module")
def a_folder_of_keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("policies")


@pytest.fixture(name="proxy", scope="module")
def a_proxy(service: Serving) -> Iterator[Meddling]:
    with meddling(service.port) as proxy:
        yield proxy


def test_a_new_database_has_the_policy_that_the_enclave_shows(proxy: Meddling, keys: Path) -> None:
    with proxy.create("first", keys) as owner:
        assert owner.version == 1
        signed = owner.policy
        assert signed is not None
        assert (signed.serial, signed.terms.kinds) == (1, frozenset({"simulated"}))
        assert (signed.terms.allow_simulated, signed.terms.ciphertext_hiding) == (True, HIDING[1])
    assert (keys / "first.policy").stat().st_mode & 0o777 == 0o600
    with proxy.open("first", keys) as again:
        assert again.policy == signed


def test_the_policy_is_in_every_later_version_and_enclaves_know_it(proxy: Meddling, keys: Path) -> None:
    with proxy.create("kept", keys) as owner:
        signed = owner.policy
        loaded(owner)
        owner.grant("ada", AnalystKey.create(keys / "kept-ada.key", None).text, ["t"])
        assert owner._versions.policy == (signed.to_bytes() if signed else b"")
        with proxy.open("kept", keys, "kept-ada.key") as ada:
            assert answers_right(ada)
            assert ada.policy == signed
            with pytest.raises(Refused):
                ada.set_policy(Policy(allow_simulated=True))
        owner.rekey()
        after = owner.policy
        assert signed is not None
        assert after is not None
        assert (after.serial, after.terms) == (signed.serial + 1, signed.terms)
        with proxy.open("kept", keys, "kept-ada.key") as ada:
            assert ada.policy == after
    with proxy.open("kept", keys) as owner:
        assert owner.policy == after


def test_a_policy_that_was_stated_is_the_first(proxy: Meddling, keys: Path) -> None:
    (keys / "stated.toml").write_text(f'measurements = ["{MEASUREMENT}"]\nmaximum_age_days = 30\n')
    with proxy.create("stated", keys, policy=keys / "stated.toml") as owner:
        assert owner.policy is not None
        assert owner.policy.terms.measurements == frozenset({MEASUREMENT})
        assert owner.policy.terms.maximum_age_days == 30


def test_no_database_is_made_where_the_enclave_does_not_meet_the_policy(proxy: Meddling, tmp_path: Path) -> None:
    proxy.forget()
    for terms in (Policy(measurements=frozenset({"ab" * 32})), Policy(kinds=frozenset({"sev-snp"}))):
        with pytest.raises(AttestationRefused):
            proxy.create("never", tmp_path, policy=terms)
    assert {request.kind for request, _ in proxy.seen} == {"attest"}
    assert list(tmp_path.iterdir()) == []


def test_a_client_refuses_an_enclave_that_does_not_meet_the_known_policy(proxy: Meddling, keys: Path) -> None:
    """The policy is for real hardware: nobody can send the client to a simulated enclave afterwards."""
    with proxy.create("real", keys) as owner:
        known = owner.policy
        assert known is not None
        signing_key = OwnerKey.open(keys / "real.key").signing_key()
        real = Policy(kinds=frozenset({"sev-snp"}))
        signed = SignedPolicy.sign(real, known.database, 2, _now(), signing_key)
        with pytest.raises(AttestationRefused):  # the owner does not lock itself out
            owner.set_policy(real, lower=True)
        assert owner.policy == known
        with owner._versions.writing():
            _committed(owner, signed)
        with pytest.raises(AttestationRefused):  # and learns of it with the version
            owner.policy  # noqa: B018  to look is to ask
    with pytest.raises(AttestationRefused):
        proxy.open("real", keys)


def test_a_policy_that_lowers_anything_has_to_be_meant(proxy: Meddling, keys: Path) -> None:
    with proxy.create("lowered", keys, policy=Policy(measurements=frozenset({MEASUREMENT}))) as owner:
        before = owner.policy
        assert before is not None
        lower = replace(before.terms, measurements=None, maximum_vmpl=2)
        with pytest.raises(InvalidParameter, match=r"measurements: any; maximum_vmpl: 2 instead of 0") as caught:
            owner.set_policy(lower)
        assert caught.value.hint is not None
        assert "--lower" in caught.value.hint
        assert owner.policy == before
        after = owner.set_policy(lower, lower=True)
        assert (after.serial, after.terms) == (2, lower)
        assert owner.set_policy(before.terms).serial == 3


def test_an_enclave_takes_no_policy_but_the_owners_own_and_newer_one(proxy: Meddling, keys: Path) -> None:
    with proxy.create("own", keys) as owner, owner._versions.writing():
        known = owner.policy
        assert known is not None
        own, other = OwnerKey.open(keys / "own.key").signing_key(), OwnerKey(known.database, bytes(32)).signing_key()
        ask = owner._versions.session.ask
        for policy in (
            SignedPolicy.sign(known.terms, known.database, 2, _now(), other),
            SignedPolicy.sign(known.terms, "ab" * 16, 2, _now(), own),
        ):
            with pytest.raises(Tampered):
                ask(SetPolicy(policy.to_bytes()))
        for serial in (1, 3):
            policy = SignedPolicy.sign(known.terms, known.database, serial, _now(), own)
            if serial == 3:
                assert _committed(owner, policy).policy == policy.to_bytes()
            with pytest.raises(Stale):
                ask(SetPolicy(policy.to_bytes()))
        with pytest.raises(Tampered):
            ask(SetPolicy(b""))


def test_a_policy_file_of_somebody_elses_is_not_believed(proxy: Meddling, keys: Path) -> None:
    proxy.create("file", keys).close()
    path = keys / "file.policy"
    content: dict[str, str] = json.loads(path.read_text())
    short = content["policy"][:-2]
    changes: tuple[dict[str, str], ...] = (content | {"mac": "00" * 32}, content | {"policy": short}, {})
    for changed in changes:
        path.write_bytes(canonical(changed))
        with pytest.raises(Tampered):
            proxy.open("file", keys)


def test_a_given_policy_is_asked_for_besides_the_owners(proxy: Meddling, keys: Path) -> None:
    proxy.create("given", keys).close()
    proxy.open("given", keys, policy=Policy(measurements=frozenset({MEASUREMENT}))).close()
    with pytest.raises(AttestationRefused, match="other code"):
        proxy.open("given", keys, policy=Policy(measurements=frozenset({"ab" * 32})))
    with pytest.raises(InvalidParameter):
        proxy.open("given", keys, policy=7)


def test_an_analyst_takes_a_signed_policy_from_the_owners_hand_and_never_goes_back(proxy: Meddling, keys: Path) -> None:
    with proxy.create("hand", keys) as owner:
        loaded(owner)
        owner.grant("bob", AnalystKey.create(keys / "hand-bob.key", None).text, ["t"])
        old, public_key = owner.policy, owner.owner
        new = owner.set_policy(replace(owner.policy.terms, maximum_age_days=9))  # type: ignore[union-attr]
    assert old is not None
    (keys / "old.policy").write_bytes(old.to_bytes())
    (keys / "new.policy").write_bytes(new.to_bytes())
    with pytest.raises(InvalidParameter, match="whose policy"):
        proxy.open("hand", keys, "hand-bob.key", policy=keys / "new.policy")
    for name in ("new.policy", "old.policy"):
        with proxy.open("hand", keys, "hand-bob.key", policy=keys / name, owner=public_key) as bob:
            assert bob.policy == new
            assert answers_right(bob)
    mallory = SignedPolicy.sign(Policy(), old.database, 9, _now(), OwnerKey(old.database, bytes(32)).signing_key())
    (keys / "mallory.policy").write_bytes(mallory.to_bytes())
    with pytest.raises(Tampered):
        proxy.open("hand", keys, "hand-bob.key", policy=keys / "mallory.policy")


def test_a_restored_database_gets_its_newest_policy_again(tmp_path: Path) -> None:
    with serving(tmp_path / "served", "--enclaves", "1") as service:
        with service.create("back", tmp_path) as owner:
            shutil.copytree(service.folder / "default" / "back", tmp_path / "copy")
            new = owner.set_policy(replace(owner.policy.terms, maximum_age_days=9))  # type: ignore[union-attr]
        service.stop()
    shutil.rmtree(tmp_path / "served" / "default" / "back")
    shutil.copytree(tmp_path / "copy", tmp_path / "served" / "default" / "back")
    with serving(tmp_path / "served", "--enclaves", "1") as service:
        (tmp_path / "back.pins").unlink()
        with service.open("back", tmp_path, accept_restored=True) as owner:
            assert owner.policy is not None
            assert (owner.policy.terms, owner.policy.serial) == (new.terms, new.serial + 1)
            assert owner._versions.policy == owner.policy.to_bytes()


def test_a_folder_needs_no_policy_and_may_have_one(tmp_path: Path) -> None:
    with scumble.create(tmp_path / "db") as owner:
        before = owner.policy
        assert before is None
        assert owner.set_policy(Policy(kinds=frozenset({"sev-snp"}))).serial == 1
        owner.rekey()
        assert owner.policy is not None
        assert owner.policy.serial == 2
    with pytest.raises(InvalidParameter, match="only for a database at a service"):
        scumble.open(tmp_path / "db", policy=Policy())


# --- the command line --------------------------------------------------------------------------------


def test_the_command_line_shows_sets_and_signs(
    proxy: Meddling, keys: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(keys)
    url = proxy.url("told")
    assert main(["init", url, "--no-passphrase", FLAG]) == 0
    assert "policy  told.policy" in capsys.readouterr().out
    assert main(["policy", "show", url, FLAG, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["serial"], shown["terms"]["kinds"]) == (1, ["simulated"])
    Path("told.toml").write_text('kinds = ["simulated"]\nallow_simulated = true\nmaximum_vmpl = 1\n')
    assert main(["policy", "set", url, "told.toml", FLAG]) == 2
    error = capsys.readouterr().err
    assert "maximum_vmpl: 1 instead of 0" in error
    assert "--lower" in error
    assert main(["policy", "set", url, "told.toml", "--lower", FLAG]) == 0
    assert "policy 2" in capsys.readouterr().out
    assert main(["policy", "show", url, "--signed", "told.signed", FLAG]) == 0
    out = capsys.readouterr().out
    assert "maximum_vmpl = 1" in out
    assert SignedPolicy.parse(Path("told.signed").read_bytes()).serial == 2
    assert main(["tables", url, "--policy", "told.signed", FLAG]) == 0
    Path("other.toml").write_text('measurements = ["abab"]\n')
    assert main(["tables", url, "--policy", "other.toml", FLAG]) == 2
    assert main(["attest", url, "--policy", "other.toml", FLAG]) == 2
    assert "other code" in capsys.readouterr().err
    assert main(["policy", "set", url, "other.toml", FLAG, "--lower"]) == 2  # this enclave would be locked out


def test_a_policy_that_no_enclave_of_now_meets_can_be_replaced(
    proxy: Meddling, keys: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The provider moves to other hardware: the owner connects under the new terms, having said that it lowers them."""
    monkeypatch.chdir(keys)
    url = proxy.url("moved")
    with proxy.create("moved", keys) as owner:
        known = owner.policy
        assert known is not None
        key = OwnerKey.open(keys / "moved.key")
        other = SignedPolicy.sign(Policy(kinds=frozenset({"tdx"})), known.database, 2, _now(), key.signing_key())
        with owner._versions.writing():
            _committed(owner, other)
    with pytest.raises(AttestationRefused):
        proxy.open("moved", keys)
    Path("moved.toml").write_text('kinds = ["simulated"]\nallow_simulated = true\n')
    with pytest.raises(AttestationRefused):
        proxy.open("moved", keys)
    assert main(["policy", "set", url, "moved.toml", "--lower", FLAG]) == 0, capsys.readouterr().err
    proxy.open("moved", keys).close()


def test_no_key_leaves_under_lower_terms_that_nobody_has_agreed_to(
    proxy: Meddling, keys: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(keys)
    proxy.create("agreed", keys, policy=Policy(measurements=frozenset({MEASUREMENT}))).close()
    Path("agreed.toml").write_text('kinds = ["simulated"]\nallow_simulated = true\n')
    proxy.forget()
    assert main(["policy", "set", proxy.url("agreed"), "agreed.toml", FLAG]) == 2
    assert "measurements: any" in capsys.readouterr().err
    assert {request.kind for request, _ in proxy.seen} == {"describe"}


def test_the_options_reach_a_gateway(keys: Path, proxy: Meddling, tmp_path: Path) -> None:
    from scumble.gateway.config import read_config

    assert SIMULATED
    (tmp_path / "p.toml").write_text("maximum_vmpl = 1\n")
    text = f"""
[tokens]
ada = "sha256:{"0" * 64}"
[databases.clinic]
target = "{proxy.url("x")}"
policy = "p.toml"
"""
    (tmp_path / "gateway.toml").write_text(text)
    options = read_config(tmp_path / "gateway.toml").databases["clinic"].service_options
    assert options == {"policy": str(tmp_path / "p.toml")}
