"""The kernels that touch secrets, compiled with the extension's own flags and run under valgrind's memcheck.

Secrets are marked undefined; memcheck reports every branch and every address that depends on them. The planted kernels
show that it does. Loops compiled for AVX2 and for any x86-64 are different code: both are checked. Apart from that,
lackey records every instruction and address of a run: the records for different secrets must be the same.
"""

import hashlib
import importlib.util
import re
import shutil
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

NATIVE = Path(__file__).parents[1] / "native"
COMPILERS = [compiler for compiler in ("gcc", "clang") if shutil.which(compiler)]
CAUGHT = 9
# The shipped level, also position-independent as the extension is; the same without AVX2; and the next lower level.
OPTIONS = [("-O3",), ("-O3", "-fPIC", "-fwrapv"), ("-O3", "-DSCUMBLE_VECTOR="), ("-O2",), ("-O2", "-DSCUMBLE_VECTOR=")]
KERNELS = [
    "noise",
    "deviation",
    "mask-rows",
    "mask-intervals",
    "mask-compare",
    "count",
    "sum",
    "sum-squares",
    "min-max",
    "sum-floats",
    "sum-squares-floats",
    "wide-sum",
    "wide",
    "sort-rows",
    "merge-rows",
    "compact",
    "curve",
]
# The fit and the evaluation of segments see public values alone.
PUBLIC_ONLY = {"scumble_segments", "scumble_evaluate"}
PLANTED = ["branch", "gather", "early-exit", "filter", "group", "compact", "sort", "real-rows"]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not shutil.which("valgrind") or not Path("/usr/include/valgrind/memcheck.h").exists(),
        reason="valgrind is missing: apt-get install valgrind",
    ),
]


def build_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("native_build", NATIVE / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(
    scope="session",
    params=[(compiler, *options) for compiler in COMPILERS for options in OPTIONS],
    ids=" ".join,
)
def harness(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(*request.param, folder=tmp_path_factory.mktemp("oblivious"))


@pytest.fixture(scope="session")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(COMPILERS[0], *OPTIONS[0], folder=tmp_path_factory.mktemp("shipped"))


def compiled(compiler: str, *options: str, folder: Path) -> Path:
    script = build_script()
    flags = [flag for flag in script.FLAGS if not flag.startswith("-O")]
    program = folder / "oblivious"
    sources = [str(NATIVE / name) for name in ("check/oblivious.c", *script.SOURCES)]
    subprocess.run([compiler, *flags, *options, "-g", f"-I{NATIVE}", *sources, "-o", str(program)], check=True)
    return program


def memcheck(program: Path, kernel: str) -> int:
    command = ["valgrind", "-q", f"--error-exitcode={CAUGHT}", "--track-origins=no", str(program), kernel]
    return subprocess.run(command, check=False, capture_output=True).returncode


def trace(program: Path, kernel: str, seed: int) -> str:
    """A digest of every instruction and every address between the harness's two marks."""
    command = ["valgrind", "--tool=lackey", "--trace-mem=yes", str(program), kernel, str(seed)]
    log = subprocess.run(command, check=True, capture_output=True).stderr
    start, stop = log.index(b"begin\n"), log.index(b"end\n")
    lines = [line for line in log[start:stop].splitlines() if not line.startswith((b"=", b"*", b"begin"))]
    assert len(lines) > 1000
    return hashlib.sha256(b"\n".join(lines)).hexdigest()


def test_every_kernel_of_the_interface_is_checked() -> None:
    interface = set(re.findall(r"\bscumble_\w+(?=\()", (NATIVE / "native.h").read_text()))
    checked = set(re.findall(r"\bscumble_\w+(?=\()", (NATIVE / "check" / "oblivious.c").read_text()))
    assert interface - checked == PUBLIC_ONLY


def test_shipped_level_is_among_those_checked() -> None:
    assert "-O3" in build_script().FLAGS


@pytest.mark.parametrize("kernel", KERNELS)
def test_nothing_depends_on_a_secret(harness: Path, kernel: str) -> None:
    assert memcheck(harness, kernel) == 0


@pytest.mark.parametrize("kernel", PLANTED)
def test_planted_leaks_are_caught(harness: Path, kernel: str) -> None:
    assert memcheck(harness, f"planted-{kernel}") == CAUGHT


@pytest.mark.parametrize("kernel", KERNELS)
def test_other_secrets_leave_the_same_trace(shipped: Path, kernel: str) -> None:
    assert trace(shipped, kernel, 1) == trace(shipped, kernel, 2)


@pytest.mark.parametrize("kernel", PLANTED)
def test_planted_leaks_leave_another_trace(shipped: Path, kernel: str) -> None:
    assert trace(shipped, f"planted-{kernel}", 1) != trace(shipped, f"planted-{kernel}", 2)
