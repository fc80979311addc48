"""Simulated evidence, what binds it to a connection, and the one function that judges all kinds."""

import hashlib
import shutil
import struct
import subprocess
import sys
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scumble.attestation import Evidence, Policy, Producer, code_measurement, producer, report_data, verify
from scumble.attestation.evidence import CODE, PACKAGE, code_files
from scumble.errors import AttestationRefused, InvalidParameter

KEY, NONCE = b"a public key", bytes(range(32))
ALLOWED = Policy(allow_simulated=True)


@pytest.fixture(scope="module")
def made() -> Producer:
    return producer("simulated")


def test_simulated_evidence_is_refused_unless_allowed_in_so_many_words(made: Producer) -> None:
    evidence = made.evidence(report_data(KEY, NONCE))
    pinned = Policy(measurements=frozenset({made.measurement}), maximum_vmpl=3, allow_migration_agent=True)
    for policy in (Policy(), pinned):
        with pytest.raises(AttestationRefused, match="simulated") as caught:
            verify(evidence, report_data=report_data(KEY, NONCE), policy=policy)
        assert "--insecure-simulated-enclave" in str(caught.value.hint)
    verdict = verify(evidence, report_data=report_data(KEY, NONCE), policy=ALLOWED)
    assert (verdict.kind, verdict.measurement) == ("simulated", code_measurement())
    assert "proves nothing" in verdict.details["status"]
    assert b"PROVES NOTHING" in evidence.report


def test_simulated_evidence_is_compared_like_any_other(made: Producer) -> None:
    evidence = made.evidence(report_data(KEY, NONCE))
    asked = report_data(KEY, NONCE)
    assert verify(evidence, report_data=asked, policy=replace(ALLOWED, measurements=frozenset({made.measurement})))
    with pytest.raises(AttestationRefused, match="other code than was pinned"):
        verify(evidence, report_data=asked, policy=replace(ALLOWED, measurements=frozenset({"00" * 32})))
    for other in (report_data(KEY, bytes(32)), report_data(b"another key", NONCE)):
        with pytest.raises(AttestationRefused, match="another key or another nonce"):
            verify(evidence, report_data=other, policy=ALLOWED)


@given(st.binary(max_size=200))
def test_simulated_evidence_in_another_form_is_refused(data: bytes) -> None:
    with pytest.raises(AttestationRefused, match="cannot be read"):
        verify(Evidence("simulated", data), report_data=bytes(64), policy=ALLOWED)


def test_report_data_is_the_hash_that_is_written_down() -> None:
    parts = (b"scumble attestation: enclave key and client nonce, 1", KEY, NONCE)
    encoded = b"".join(struct.pack("<Q", len(part)) + part for part in parts)
    assert report_data(KEY, NONCE) == hashlib.sha512(encoded).digest()


@given(st.binary(min_size=1, max_size=80), st.binary(min_size=1, max_size=80))
def test_other_keys_have_other_report_data(one: bytes, other: bytes) -> None:
    assert (report_data(one, NONCE) == report_data(other, NONCE)) is (one == other)
    assert report_data(one, NONCE) != report_data(one, bytes(32))


@pytest.mark.parametrize(("key", "nonce"), [(KEY, b""), (KEY, bytes(31)), (KEY, bytes(33)), (b"", NONCE)])
def test_a_nonce_or_key_of_another_size_is_refused(key: bytes, nonce: bytes) -> None:
    with pytest.raises(InvalidParameter):
        report_data(key, nonce)


def test_a_call_with_a_wrong_size_or_a_time_without_zone_is_refused(made: Producer) -> None:
    evidence = made.evidence(bytes(64))
    with pytest.raises(InvalidParameter, match="64 bytes"):
        verify(evidence, report_data=bytes(63), policy=ALLOWED)
    with pytest.raises(InvalidParameter, match="time zone"):
        verify(evidence, report_data=bytes(64), policy=ALLOWED, now=datetime(2026, 1, 1))
    for wrong in ("", "0", "AB", "zz", "00 11"):
        with pytest.raises(InvalidParameter, match="lower-case hex"):
            Policy(measurements=frozenset({wrong}))


def test_the_code_measurement_follows_every_file_of_the_enclave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "scumble"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
    original = code_measurement()
    monkeypatch.setattr("scumble.attestation.evidence.PACKAGE", package)
    assert code_measurement() == original
    parts = {path.relative_to(package).parts[0] for path in code_files(package)}
    assert {part for part in parts if not part.startswith("_native")} == set(CODE)
    assert any(part.startswith("_native") for part in parts)
    seen = {original}
    for path in code_files(package)[::7]:
        path.write_bytes(path.read_bytes() + b"\n")
        assert code_measurement() not in seen
        seen.add(code_measurement())
    (package / "enclave" / "added.py").write_text("")
    assert code_measurement() not in seen
    (package / "enclave" / "__pycache__").mkdir()
    before = code_measurement()
    (package / "enclave" / "__pycache__" / "pages.cpython-311.pyc").write_bytes(b"x")
    (package / "cli" / "added.py").write_text("")
    assert code_measurement() == before


def test_the_code_measurement_is_the_hash_that_is_written_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"_native.so": b"kernels", "enclave/pages.py": b"", "errors.py": b"text", "index/file.py": b"more"}
    for name, data in {**files, "index/plot.py": b"a picture", "cli/run.py": b"not the enclave's"}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data)
    monkeypatch.setattr("scumble.attestation.evidence.PACKAGE", tmp_path)
    parts = [b"scumble attestation: code of the enclave, 1"]
    for name, data in files.items():
        parts += [name.encode(), data]
    encoded = b"".join(struct.pack("<Q", len(part)) + part for part in parts)
    assert code_measurement() == hashlib.sha256(encoded).hexdigest()


def test_the_code_for_hardware_is_not_loaded_without_it() -> None:
    script = """
import sys
from scumble.attestation import Policy, producer, report_data, verify
data = report_data(b"a public key", bytes(32))
verify(producer("simulated").evidence(data), report_data=data, policy=Policy(allow_simulated=True))
print(*(name for name in sys.modules if name.startswith("scumble.attestation.")))
"""
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, text=True).stdout.split()
    assert sorted(name.rpartition(".")[2] for name in loaded) == ["evidence", "policy", "verification"]
