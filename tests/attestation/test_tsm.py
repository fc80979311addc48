"""Evidence from configfs-tsm: asked for once, in a fresh entry that is removed, and again if somebody interfered."""

import errno
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import amd_pki
import intel_pki
import pytest
from cryptography.hazmat.primitives.serialization import Encoding
from fake_configfs import FakeConfigfs, mounted

from scumble.attestation import Policy, dcap, producer, snp, tsm
from scumble.attestation.certificates import fingerprint
from scumble.errors import AttestationRefused, InvalidParameter

MAKER = amd_pki.Maker("Milan")
DATA = bytes(reversed(range(64)))


def snp_answer(request: bytes) -> tuple[bytes, bytes]:
    """A report on what was asked, and a table with nothing in it."""
    return amd_pki.report(changes={0x50: request}), bytes(24)


@pytest.fixture
def amd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeConfigfs]:
    root = tmp_path / "report"
    root.mkdir()
    with mounted(FakeConfigfs(root, "sev_guest", snp_answer), monkeypatch) as fake:
        yield fake


@pytest.fixture
def endorsements(tmp_path: Path) -> Path:
    folder = tmp_path / "endorsements"
    folder.mkdir()
    (folder / "vcek.der").write_bytes(MAKER.vcek().public_bytes(Encoding.DER))
    chain = (MAKER.ask, MAKER.ark)
    (folder / "certificates.pem").write_bytes(b"".join(each.public_bytes(Encoding.PEM) for each in chain))
    (folder / "crl.der").write_bytes(MAKER.crl())
    (folder / "notes.txt").write_text("not evidence")
    return folder


def test_sev_snp_evidence_states_what_was_asked_and_verifies(amd: FakeConfigfs, endorsements: Path) -> None:
    made = producer("tsm", root=amd.root, endorsements=endorsements)
    assert made.kind == "sev-snp"
    evidence = made.evidence(DATA)
    assert amd.asked == [DATA]
    assert set(evidence.extras) == {"auxblob", "vcek", "certificates", "crl"}
    verdict = snp.verify(evidence, report_data=DATA, policy=Policy(), now=amd_pki.NOW, roots=MAKER.roots)
    assert verdict.measurement == made.measurement == amd_pki.MEASUREMENT.hex()


def test_every_entry_is_removed_again(amd: FakeConfigfs) -> None:
    made = producer("auto", root=amd.root)
    made.evidence(DATA)
    assert amd.made == 2
    assert list(amd.root.iterdir()) == []


def test_tdx_evidence_comes_with_the_collateral_of_the_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "report"
    root.mkdir()
    (tmp_path / "collateral.json").write_bytes(b"of yesterday")
    fake = FakeConfigfs(root, "tdx_guest", lambda _: (intel_pki.quote("tdx"), b""), auxiliary=False)
    monkeypatch.setattr(dcap, "INTEL_ROOT", fingerprint(intel_pki.root()))
    with mounted(fake, monkeypatch):
        made = producer("tsm", root=root, endorsements=tmp_path)
        (tmp_path / "collateral.json").write_bytes(intel_pki.collateral("tdx"))
        evidence = made.evidence(intel_pki.REPORT_DATA)
        assert fake.asked == [intel_pki.REPORT_DATA]
        verdict = dcap.verify(
            evidence, report_data=intel_pki.REPORT_DATA, policy=Policy(), now=intel_pki.NOW, root=intel_pki.root()
        )
        assert (made.kind, made.measurement) == ("tdx", verdict.measurement)


def test_a_certificate_table_counts_only_with_amds_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeConfigfs(tmp_path, "tdx_guest", lambda _: (b"quote", b"table"))
    with mounted(fake, monkeypatch):
        assert producer("tsm", root=tmp_path).evidence(DATA).extras == {}


def test_a_host_that_hands_out_no_certificates_adds_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with mounted(FakeConfigfs(tmp_path, "sev_guest", snp_answer, auxiliary=False), monkeypatch):
        assert producer("tsm", root=tmp_path).evidence(DATA).extras == {}


def test_a_failure_of_the_interface_is_named_by_its_code_if_it_has_one() -> None:
    for error, said in (
        (PermissionError(errno.EPERM, ""), r"cannot be used \(EPERM\)\n"),
        (OSError("no code"), r"cannot be used\n"),
        (ValueError("no number"), r"cannot be used\n"),
    ):
        with pytest.raises(AttestationRefused, match=said), tsm.usable():
            raise error


def test_a_report_that_somebody_interfered_with_is_asked_for_again(amd: FakeConfigfs) -> None:
    made = producer("tsm", root=amd.root)
    amd.intrusions = 2
    assert made.evidence(DATA).report[0x50:0x90] == DATA
    assert amd.asked == [DATA] * 3


def test_constant_interference_is_an_error_and_not_an_endless_loop(amd: FakeConfigfs) -> None:
    made = producer("tsm", root=amd.root)
    amd.intrusions = 1000
    with pytest.raises(AttestationRefused, match="in use by something else"):
        made.evidence(DATA)
    assert list(amd.root.iterdir()) == []


def test_a_read_that_the_kernel_puts_off_is_done_again(amd: FakeConfigfs, monkeypatch: pytest.MonkeyPatch) -> None:
    made = producer("tsm", root=amd.root)
    read, refusals = Path.read_bytes, iter([True])

    def blocked(path: Path) -> bytes:
        if path.name == "outblob" and next(refusals, False):
            raise BlockingIOError
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", blocked)
    assert made.evidence(DATA).report[0x50:0x90] == DATA
    assert amd.made == 3


def test_requests_at_the_same_time_get_their_own_answers(amd: FakeConfigfs) -> None:
    made = producer("tsm", root=amd.root)
    requests = [bytes([number]) * 64 for number in range(16)]
    with ThreadPoolExecutor(4) as pool:
        answers = [evidence.report[0x50:0x90] for evidence in pool.map(made.evidence, requests)]
    assert answers == requests
    assert list(amd.root.iterdir()) == []


def test_a_platform_that_is_not_known_is_refused(amd: FakeConfigfs) -> None:
    amd.provider = "arm_cca_guest"
    with pytest.raises(AttestationRefused, match="provider is none that Scumble knows"):
        producer("tsm", root=amd.root)
    assert list(amd.root.iterdir()) == []


def test_a_machine_without_the_interface_simulates_unless_told_not_to(tmp_path: Path) -> None:
    absent = tmp_path / "absent"
    assert producer("auto", root=absent).kind == "simulated"
    assert producer("simulated", root=tmp_path).kind == "simulated"
    with pytest.raises(AttestationRefused, match=r"cannot be used \(ENOENT\)"):
        producer("tsm", root=absent)
    with pytest.raises(AttestationRefused, match=r"cannot be used \(ENOENT\)"):
        producer("auto", root=tmp_path)
    with pytest.raises(InvalidParameter):
        producer("nitro")  # type: ignore[arg-type]


def test_an_interface_that_is_damaged_is_an_error_with_a_hint(
    amd: FakeConfigfs, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = producer("tsm", root=amd.root)
    fill = amd.fill

    def damaged(entry: Path) -> None:
        fill(entry)
        (entry / "generation").write_text("many\n")

    monkeypatch.setattr(amd, "fill", damaged)
    with pytest.raises(AttestationRefused, match="interface cannot be used\n") as caught:
        made.evidence(DATA)
    assert "Linux 6.7" in str(caught.value.hint)


def test_endorsements_that_cannot_be_read_are_an_error(amd: FakeConfigfs, tmp_path: Path) -> None:
    (tmp_path / "vcek.der").mkdir()
    with pytest.raises(AttestationRefused, match="endorsements cannot be read"):
        producer("tsm", root=amd.root, endorsements=tmp_path).evidence(DATA)
