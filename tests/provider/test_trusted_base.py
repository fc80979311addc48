"""What is in an enclave process is what its measurement covers; what is in the front has no key to anything."""

import subprocess
import sys

from scumble.attestation.measurement import PACKAGE, code_files

LISTED = """
import sys
import {module}
for name, module in list(sys.modules.items()):
    if getattr(module, "__file__", None):
        print(name, module.__file__)
"""


def modules(module: str) -> dict[str, str]:
    """The modules that a process has once it has this one, and their files."""
    found = subprocess.run([sys.executable, "-c", LISTED.format(module=module)], capture_output=True, check=True)
    return dict(line.split(" ", 1) for line in found.stdout.decode().splitlines())


def test_every_module_of_an_enclave_process_is_measured() -> None:
    measured = {str(path) for path in code_files(PACKAGE)}
    loaded = modules("scumble.enclave.process")
    ours = {file for name, file in loaded.items() if name.partition(".")[0] == "scumble"}
    assert len(ours) > 50
    assert ours <= measured
    assert not {"duckdb", "pyarrow", "sqlglot", "starlette", "uvicorn", "pandas"} & loaded.keys()


def test_the_front_has_nothing_of_the_enclave_the_owner_or_the_indexes() -> None:
    loaded = modules("scumble.provider.server")
    foreign = {"attestation", "enclave", "index", "lab", "owner", "privacy", "sql", "types"}
    assert "scumble.provider.server" in loaded
    assert not {name.partition(".")[0] for name in loaded} & {"duckdb", "numpy", "pyarrow", "sqlglot"}
    assert not {".".join(name.split(".")[:2]) for name in loaded} & {f"scumble.{room}" for room in foreign}
    assert "scumble.wire.catalog" not in loaded
