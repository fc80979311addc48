"""The enclave for research at a service: another measurement, and comparators; the ordinary one has neither."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import scumble
from scumble.attestation import code_measurement
from scumble.attestation.evidence import PACKAGE, code_files
from scumble.cli import main
from scumble.errors import AttestationRefused, InvalidParameter
from scumble.lab import research
from scumble.lab.enclave import MORE_CODE
from serving import Serving, launch

INDEX = "k int:0:99 epsilon=1 delta=1e-7 beta=1e-8 mechanism=special"
KEYS = np.arange(500) ** 2 % 100
ROWS = pa.table({"k": pa.array(KEYS, pa.int64())})
LISTED = """
import sys, scumble.lab.enclave
scumble.lab.research.enable()
for module in list(sys.modules.values()):
    print(getattr(module, "__file__", None))
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A service that was started with `scumble --research serve`."""
    folder = tmp_path_factory.mktemp("research") / "served"
    options = ["--port", "0", "--enclaves", "1", "--open", "--attestation", "simulated"]
    running = launch(folder, "-m", "scumble.cli", "--research", "serve", str(folder), *options)
    try:
        yield running
    finally:
        assert running.stop() == 0


def test_its_measurement_is_another_and_covers_all_that_it_imports() -> None:
    assert code_measurement(MORE_CODE) != code_measurement()
    found = subprocess.run([sys.executable, "-c", LISTED], capture_output=True, check=True, text=True)
    ours = {file for file in found.stdout.split() if Path(file).is_relative_to(PACKAGE)}
    assert str(PACKAGE / "lab" / "research.py") in ours
    assert ours <= {str(path) for path in code_files(PACKAGE, MORE_CODE)}


def test_comparators_are_built_at_a_service_for_research(served: Serving, tmp_path: Path) -> None:
    with research.enabled(), served.create("lab", tmp_path, delta_limit="1e-5") as db:
        db.load("t", ROWS, indexes=[INDEX], capacity=512, page_rows=16)
        assert db.sql("SELECT count(*) FROM t WHERE k = 25").fetchall() == [((KEYS == 25).sum(),)]
        assert db.explain("SELECT count(*) FROM t WHERE k = 25").beta == 0


def test_a_client_that_expects_the_ordinary_enclave_refuses_it(
    served: Serving, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(AttestationRefused, match="other code than was pinned"):
        served.create("never", tmp_path, measurement=code_measurement())
    assert list(tmp_path.iterdir()) == []
    assert main(["attest", served.url("lab"), "--insecure-simulated-enclave"]) == 0
    assert code_measurement(MORE_CODE) in capsys.readouterr().out


def test_the_ordinary_service_refuses_a_comparator_before_it_is_paid(service: Serving, tmp_path: Path) -> None:
    with research.enabled(), service.create("no-comparators", tmp_path, delta_limit="1e-5") as db:
        with pytest.raises(InvalidParameter, match="no such mechanism") as refused:
            db.load("t", ROWS, indexes=[INDEX], capacity=512)
        assert "--research" in str(refused.value.hint)
        assert db.ledger.spent() == db.ledger.spent_delta() == 0
        assert not db.tables


def test_a_client_without_research_cannot_query_the_table(served: Serving, tmp_path: Path) -> None:
    with research.enabled(), served.create("read", tmp_path, delta_limit="1e-5") as db:
        db.load("t", ROWS, indexes=[INDEX], capacity=512)
    with served.open("read", tmp_path) as db, pytest.raises(scumble.ScumbleError, match="does not know"):
        db.sql("SELECT count(*) FROM t WHERE k = 25")
