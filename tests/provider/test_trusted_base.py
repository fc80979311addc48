"""What is in an enclave process is what its measurement covers; what is in the front has no key to anything."""

import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from fronts import provider
from sample_rows import answers_right, loaded

from scumble.attestation.evidence import PACKAGE, code_files
from scumble.provider.fleet import Fleet

LISTED = """
import sys
for name, module in list(sys.modules.items()):
    if getattr(module, "__file__", None):
        print(name, module.__file__, file=to)
"""

# Python imports a module of this name when it starts: here, to have an enclave process list its modules as it ends.
AT_THE_END = f"""
import os
import sys

def listing(code, leave=os._exit):
    if sys.argv[0].endswith("process.py"):
        with open(os.path.join(os.environ["LISTED_IN"], str(os.getpid())), "w") as to:
            exec({LISTED!r})
    leave(code)

os._exit = listing
"""


def parsed(listed: str) -> dict[str, str]:
    """Modules by name, and their files."""
    return dict(line.split(" ", 1) for line in listed.splitlines())


def test_an_enclave_process_imports_nothing_that_is_not_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes of a provider's, after greetings, a load, a query, and what the one hands to the other."""
    listed, hook = tmp_path / "listed", tmp_path / "hook"
    for folder in (listed, hook):
        folder.mkdir()
    (hook / "sitecustomize.py").write_text(AT_THE_END)
    monkeypatch.setenv("LISTED_IN", str(listed))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(hook), *filter(None, sys.path)]))
    fleet = Fleet(2, "simulated")
    with closing(fleet), provider(tmp_path, fleet) as made, made.begin("db") as owner:
        loaded(owner)
        owner.grant("ada", made.identity("ada"), ["t"])
        made.fleet.share()
        with made.analyst("ada", "db", 1) as ada:
            assert answers_right(ada)
    processes = [parsed(path.read_text()) for path in listed.iterdir()]
    assert len(processes) == 2
    measured = {str(path) for path in code_files(PACKAGE)}
    for modules in processes:
        ours = {name: file for name, file in modules.items() if Path(file).is_relative_to(PACKAGE)}
        assert {"scumble.enclave.sessions", "scumble.enclave.queries", "scumble.wire.requests"} <= ours.keys()
        assert not {name for name, file in ours.items() if file not in measured}
        assert not {"duckdb", "pyarrow", "sqlglot", "starlette", "uvicorn", "pandas"} & modules.keys()


def test_pictures_of_an_index_are_not_measured() -> None:
    names = {path.relative_to(PACKAGE).as_posix() for path in code_files(PACKAGE)}
    assert {"__init__.py", "errors.py", "index/file.py", "wire/requests.py", "enclave/process.py"} <= names
    assert not {"index/plot.py", "index/summary.py"} & names
    outside = "owner", "sql", "store", "provider", "cli", "gateway", "lab"
    assert not {name for name in names if name.startswith(outside)}


def test_the_front_has_nothing_of_the_enclave_the_owner_or_the_indexes() -> None:
    script = "import scumble.provider.server, sys\nto = sys.stdout" + LISTED
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, text=True)
    loaded = parsed(found.stdout)
    foreign = {"attestation", "enclave", "index", "lab", "owner", "privacy", "sql", "types"}
    assert "scumble.provider.server" in loaded
    assert not {name.partition(".")[0] for name in loaded} & {"duckdb", "numpy", "pyarrow", "sqlglot"}
    assert not {".".join(name.split(".")[:2]) for name in loaded} & {f"scumble.{room}" for room in foreign}
    assert "scumble.wire.catalog" not in loaded
