"""The kernels that touch secrets, compiled with the extension's own flags and run under valgrind's memcheck.

Secrets are marked undefined; memcheck reports every branch and every address that depends on them. The planted kernels
show that it does.
"""

import importlib.util
import shutil
import subprocess
from pathlib import Path

import pytest

NATIVE = Path(__file__).parents[1] / "native"
COMPILERS = [compiler for compiler in ("gcc", "clang") if shutil.which(compiler)]
CAUGHT = 9

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not shutil.which("valgrind") or not Path("/usr/include/valgrind/memcheck.h").exists(),
        reason="valgrind is missing: apt-get install valgrind",
    ),
]


def shipped_flags() -> list[str]:
    spec = importlib.util.spec_from_file_location("native_build", NATIVE / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return list(module.FLAGS)


@pytest.fixture(
    scope="session", params=[(compiler, level) for compiler in COMPILERS for level in ("-O2", "-O3")], ids=str
)
def harness(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler, level = request.param
    flags = [flag for flag in shipped_flags() if not flag.startswith("-O")]
    program = tmp_path_factory.mktemp("oblivious") / "oblivious"
    sources = [str(NATIVE / name) for name in ("check/oblivious.c", "noise.c", "segments.c")]
    subprocess.run([compiler, *flags, level, "-g", f"-I{NATIVE}", *sources, "-o", str(program)], check=True)
    return program


def memcheck(program: Path, kernel: str) -> int:
    command = ["valgrind", "-q", f"--error-exitcode={CAUGHT}", "--track-origins=no", str(program), kernel]
    return subprocess.run(command, check=False, capture_output=True).returncode


def test_shipped_level_is_among_those_checked() -> None:
    assert "-O3" in shipped_flags()


@pytest.mark.parametrize("kernel", ["noise", "deviation"])
def test_nothing_depends_on_a_secret(harness: Path, kernel: str) -> None:
    assert memcheck(harness, kernel) == 0


@pytest.mark.parametrize("kernel", ["planted-branch", "planted-gather", "planted-early-exit"])
def test_planted_leaks_are_caught(harness: Path, kernel: str) -> None:
    assert memcheck(harness, kernel) == CAUGHT
