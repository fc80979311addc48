"""What is in an enclave process is what its measurement covers; what is in the front has no key to anything."""

import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from fronts import provider
from installed import python_with
from sample_rows import answers_right, loaded

from scumble.attestation.evidence import PACKAGE, code_files
from scumble.provider.fleet import Fleet
from scumble.wire.pipe import Attest

LISTED = """
import sys
for name, module in list(sys.modules.items()):
    if getattr(module, "__file__", None):
        print(name, module.__file__, file=to)
"""

# Python imports an installed module of this name when it starts: here, to list an enclave's modules as it ends.
AT_THE_END = f"""
import os
import sys

def listing(code, leave=os._exit):
    if sys.argv[0].endswith("process.py"):
        with open(os.path.join(LISTED_IN, str(os.getpid())), "w") as to:
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
    (hook / "sitecustomize.py").write_text(f"LISTED_IN = {str(listed)!r}\n{AT_THE_END}")
    monkeypatch.setattr(sys, "executable", python_with(tmp_path / "venv", hook))
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


PLANTED = """
import os
with open({seen!r}, "a") as to:
    to.write(__name__)
os._exit(7)
"""


def test_no_file_of_the_working_directory_and_no_variable_runs_in_an_enclave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `python -m` a file json.py where the provider was started runs inside, before anything is measured."""
    seen, here, named = tmp_path / "seen", tmp_path / "here", tmp_path / "named"
    for folder in (here, named):
        folder.mkdir()
        for name in ("json", "scumble", "sitecustomize", "usercustomize", "argparse"):
            (folder / f"{name}.py").write_text(PLANTED.format(seen=str(seen)))
    monkeypatch.chdir(here)
    for variable in ("PYTHONPATH", "PYTHONUSERBASE", "PYTHONSTARTUP", "PYTHONHOME"):
        monkeypatch.setenv(variable, str(named))
    monkeypatch.setenv("PYTHONINSPECT", "1")
    with closing(Fleet(1, "simulated")) as fleet:
        (member,) = fleet.members
        assert len(bytes(member.job(Attest(), bytes(32))[1])) > 32
        with suppress(PermissionError):  # only root may look
            assert Path(f"/proc/{member.pid}/environ").read_bytes() == b"LC_ALL=C.UTF-8\0"
            assert str(Path(f"/proc/{member.pid}/cwd").readlink()) == "/"
    assert not seen.exists()


def test_endorsements_may_be_named_from_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An enclave does not work there: a relative path is made absolute before it starts."""
    commands: list[list[str]] = []
    started = subprocess.Popen

    def noted(command: list[str], **options: Any) -> Any:
        commands.append(command)
        return started(command, **options)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(subprocess, "Popen", noted)
    Fleet(1, "simulated", endorsements=Path("endorsed")).close()
    ((*_, option, place),) = [command[: command.index("--endorsements") + 2] for command in commands]
    assert (option, place) == ("--endorsements", str(tmp_path / "endorsed"))


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
