"""deploy/: what can be read without the hardware reads as it should, and names only commands that there are."""

import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.main import get_command

from scumble.attestation import dcap
from scumble.attestation.dcap import TDX
from scumble.cli import app

DEPLOY = Path(__file__).parents[1] / "deploy"
UNIT = DEPLOY / "systemd/scumble.service"
DROP_IN = DEPLOY / "confidential-vm/tsm.conf"
TEMPLATE = DEPLOY / "gramine/scumble-enclave.manifest.template"
SCRIPTS = sorted(DEPLOY.rglob("*.sh"))
PAGES = sorted(DEPLOY.rglob("README.md"))
COMMANDS: dict[str, Any] = get_command(app).commands  # type: ignore[attr-defined]


def options(command: str) -> set[str]:
    return {name for parameter in COMMANDS[command].params for name in parameter.opts}


def settings(path: Path) -> dict[str, list[str]]:
    """The settings of a unit, each with all its values, in their order."""
    found: dict[str, list[str]] = {}
    for line in path.read_text().splitlines():
        if line and line[0] not in "#[":
            name, _, value = line.partition("=")
            found.setdefault(name, []).append(value)
    return found


# systemd.


def test_the_unit_serves_with_options_that_there_are() -> None:
    (line,) = settings(UNIT)["ExecStart"]
    program, isolated, _, module, command, folder, *rest = shlex.split(line)
    assert (program, isolated, module) == ("/opt/scumble/bin/python", "-I", "scumble.cli")
    assert (command, folder) == ("serve", "%S/scumble")
    given = dict(zip(rest[::2], rest[1::2], strict=True))
    assert given.keys() == {"--host", "--port", "--enclaves", "--attestation"}
    assert given.keys() <= options("serve")
    defaults = dict(word.split("=") for word in settings(UNIT)["Environment"][0].split())
    assert {f"${{{name}}}" for name in defaults} == set(given.values())


def test_the_unit_runs_without_rights_and_leaves_no_memory_on_a_disk() -> None:
    unit = {name: values[0] for name, values in settings(UNIT).items()}
    assert (unit["DynamicUser"], unit["NoNewPrivileges"], unit["CapabilityBoundingSet"]) == ("yes", "yes", "")
    assert (unit["LimitCORE"], unit["MemorySwapMax"]) == ("0", "0")
    assert unit["StateDirectory"] == "scumble"  # the folder that it serves, and the only one that it may write to
    assert unit["ProtectSystem"] == "strict"
    assert {"AF_INET", "AF_INET6", "AF_UNIX"} == set(unit["RestrictAddressFamilies"].split())  # the enclaves' pipes


def test_the_unit_runs_no_file_of_a_working_directory_and_nothing_that_a_variable_names() -> None:
    unit = {name: values[0] for name, values in settings(UNIT).items()}
    assert unit["WorkingDirectory"] == "/"
    assert {"PYTHONPATH", "PYTHONHOME", "LD_PRELOAD", "LD_LIBRARY_PATH"} <= set(unit["UnsetEnvironment"].split())


def test_the_unit_lets_the_service_drain() -> None:
    from scumble.provider.server import DRAIN_SECONDS

    unit = {name: values[0] for name, values in settings(UNIT).items()}
    assert (unit["KillSignal"], unit["KillMode"]) == ("SIGTERM", "mixed")  # to the front alone, not to its enclaves
    assert int(unit["TimeoutStopSec"]) > DRAIN_SECONDS


def test_the_drop_in_takes_back_no_more_than_evidence_needs() -> None:
    drop_in = settings(DROP_IN)
    assert drop_in.keys() - settings(UNIT).keys() <= {"AmbientCapabilities", "ReadWritePaths"}
    assert drop_in["ReadWritePaths"] == ["/sys/kernel/config/tsm/report"]
    assert drop_in["CapabilityBoundingSet"] == drop_in["AmbientCapabilities"] == ["CAP_DAC_OVERRIDE"]


def test_systemd_finds_no_fault_with_the_unit_where_it_is_installed(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        return
    unit = tmp_path / "scumble.service"
    unit.write_text(UNIT.read_text().replace("/opt/scumble/bin/python", sys.executable))
    for with_drop_in in (False, True):
        if with_drop_in:
            (tmp_path / "scumble.service.d").mkdir()
            shutil.copy(DROP_IN, tmp_path / "scumble.service.d")
        verified = subprocess.run([analyze, "verify", unit], capture_output=True, text=True, check=False)
        assert (verified.returncode, verified.stderr) == (0, "")
    rated = subprocess.run(
        [analyze, "security", "--offline=true", "--threshold=20", UNIT], capture_output=True, text=True, check=False
    )
    assert rated.returncode == 0, rated.stdout


# Gramine.


def manifest() -> dict[str, Any]:
    """The manifest, with values for what stands in braces."""
    values = {
        "python": "/usr/bin/python3.11",
        "python_lib": "/usr/lib/python3.11",
        "venv": "/opt/scumble",
        "site_packages": "/opt/scumble/lib/python3.11/site-packages",
        "arch_libdir": "/lib/x86_64-linux-gnu",
        "gramine.runtimedir()": "/usr/lib/gramine",
    }
    text = TEMPLATE.read_text()
    assert "{%" not in text
    return tomllib.loads(re.sub(r"{{ (.+?) }}", lambda match: values[match[1]], text))


def test_the_manifest_lets_nothing_in_unmeasured() -> None:
    read = manifest()
    sgx = read["sgx"]
    assert (sgx["debug"], sgx["remote_attestation"], sgx["file_check_policy"]) == (False, "dcap", "strict")
    assert "allowed_files" not in sgx
    assert read["sys"]["disallow_subprocesses"] is True
    assert [name for name in read["loader"] if name.startswith("insecure")] == []
    assert all(isinstance(value, str) for value in read["loader"]["env"].values())  # a table would pass the host's on
    trusted = [uri.rstrip("/") for uri in sgx["trusted_files"]]
    assert [mount["uri"] for mount in read["fs"]["mounts"] if "uri" in mount and mount["uri"] not in trusted] == []
    assert read["loader"]["env"]["PYTHONPATH"].startswith("/opt/scumble/")


def test_the_manifest_starts_the_enclave_process() -> None:
    name, flag, module, option, how, *pipes = manifest()["loader"]["argv"]
    assert (name, flag, module, option, how) == ("python3", "-m", "scumble.enclave.process", "--attestation", "auto")
    assert all(number.isdigit() for number in pipes)
    shown = subprocess.run([sys.executable, "-m", module, "--help"], capture_output=True, text=True, check=True)
    assert option in shown.stdout


def test_the_build_script_gives_every_value_that_the_template_asks_for() -> None:
    asked = set(re.findall(r"{{ (\w+) }}", TEMPLATE.read_text()))
    assert set(re.findall(r"-D(\w+)=", (DEPLOY / "gramine/build.sh").read_text())) == asked


# Scripts and pages.


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_a_script_can_be_read_and_says_how_it_is_used(script: Path) -> None:
    bash = shutil.which("bash") or "bash"
    assert script.stat().st_mode & 0o111
    assert "\nset -euo pipefail\n" in script.read_text()
    subprocess.run([bash, "-n", script], check=True)
    used = subprocess.run([bash, script], capture_output=True, text=True, check=False)
    assert (used.returncode, used.stdout) == (2, "")
    assert used.stderr.startswith("usage: ")


def test_the_pin_of_a_tdx_machine_is_the_measurement_that_clients_compute() -> None:
    registers = [bytes([number * 40 + 7]) * 48 for number in range(5)]
    body = bytearray(1024)
    body[dcap.MRTD], body[dcap.RTMRS] = registers[0], b"".join(registers[1:])
    quote: Any = SimpleNamespace(tee=TDX, body=bytes(body))
    script = DEPLOY / "confidential-vm/pin-tdx.sh"

    def pinned(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([script, *arguments], capture_output=True, text=True, check=False)

    assert pinned(*(register.hex() for register in registers)).stdout == dcap.measurement_of(quote).hex() + "\n"
    zero = [*(register.hex() for register in registers[:4]), "0" * 96]
    assert pinned(*zero[:4]).stdout == pinned(*zero).stdout != ""
    assert pinned(*zero[:3], "x" * 96).returncode == 2


def test_every_command_on_the_pages_is_there() -> None:
    found = 0
    for page in PAGES:
        text = page.read_text()
        for line in re.findall(r"^    scumble (.+)$", text, re.MULTILINE):
            command, *words = shlex.split(line)
            assert {word for word in words if word.startswith("--")} <= options(command), line
            found += 1
        for command in re.findall(r"`scumble ([a-z]+)", text):
            assert command in COMMANDS
            found += 1
    assert found >= 10


def test_every_file_on_the_pages_is_there() -> None:
    for page in PAGES:
        for name in re.findall(r"\./([\w-]+\.sh)|\]\((?!http)([^)#]+)\)", page.read_text()):
            assert (page.parent / (name[0] or name[1])).exists(), name


def test_every_page_says_what_was_not_run() -> None:
    assert [page.parent.name for page in PAGES] == ["confidential-vm", "gramine", "systemd"]
    for page in PAGES:
        assert "## What was and was not run" in page.read_text()
