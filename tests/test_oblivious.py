"""The kernels that touch secrets, run from the installed extension under valgrind's memcheck and lackey.

The checks themselves are in verify/obliviousness.py, and `make verify` runs them for every compiler and level; here
each kernel of the extension is a test. The planted kernels must be caught.
"""

import re

import pytest
from verify import obliviousness
from verify.obliviousness import CAUGHT, KERNELS, NATIVE, PLANTED, PUBLIC_ONLY, Build

NEEDS_VALGRIND = pytest.mark.skipif(obliviousness.missing() is not None, reason=str(obliviousness.missing()))


@pytest.fixture(scope="session")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Build:
    return obliviousness.shipped(tmp_path_factory.mktemp("shipped"))


def test_every_kernel_of_the_interface_is_checked() -> None:
    interface = set(re.findall(r"\bscumble_\w+(?=\()", (NATIVE / "native.h").read_text()))
    checked = set(re.findall(r"\bscumble_\w+(?=\()", obliviousness.HARNESS.read_text()))
    assert interface - checked == PUBLIC_ONLY


def test_every_planted_kernel_is_used() -> None:
    planted = set(re.findall(r'\{"planted-([\w-]+)"', obliviousness.HARNESS.read_text()))
    assert planted == {*PLANTED, obliviousness.DIVISION}


def test_shipped_level_is_among_those_checked() -> None:
    assert "-O3" in obliviousness.build_script().FLAGS
    assert "-O3" in obliviousness.OPTIONS["gcc"]


@NEEDS_VALGRIND
@pytest.mark.slow
@pytest.mark.parametrize("kernel", KERNELS)
def test_nothing_depends_on_a_secret(shipped: Build, kernel: str) -> None:
    assert obliviousness.memcheck(shipped.program, kernel) == 0


@NEEDS_VALGRIND
@pytest.mark.slow
@pytest.mark.parametrize("kernel", PLANTED)
def test_planted_leaks_are_caught(shipped: Build, kernel: str) -> None:
    assert obliviousness.memcheck(shipped.program, f"planted-{kernel}") == CAUGHT


@NEEDS_VALGRIND
@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["mask-intervals", "sort-rows"])
def test_other_secrets_leave_the_same_trace(shipped: Build, kernel: str) -> None:
    first, second = (obliviousness.trace(shipped.program, kernel, seed) for seed in (1, 2))
    assert first == second


@NEEDS_VALGRIND
@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["filter", "compact"])
def test_planted_leaks_leave_another_trace(shipped: Build, kernel: str) -> None:
    first, second = (obliviousness.trace(shipped.program, f"planted-{kernel}", seed) for seed in (1, 2))
    assert first != second


@NEEDS_VALGRIND
def test_divisions_are_found_by_function(shipped: Build) -> None:
    assert "planted_division" in obliviousness.divisions(shipped.program)
    assert set(obliviousness.divisions(shipped.code)) == set(obliviousness.DIVIDES_PUBLIC)


@NEEDS_VALGRIND
def test_memcheck_is_blind_to_a_division(shipped: Build) -> None:
    """Which is why divisions are looked for in the code."""
    assert obliviousness.memcheck(shipped.program, "planted-division") == 0


@NEEDS_VALGRIND
def test_harness_runs_the_installed_extension(shipped: Build) -> None:
    assert obliviousness.memcheck(shipped.program, "mask-rows") == 0
