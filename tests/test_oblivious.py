"""The harness that runs the kernels under valgrind: it covers the whole interface, and catches what is planted.

`make verify` runs every kernel and every planted leak, in the extension and for every compiler and level
(verify/obliviousness.py); here are one of each, in the extension.
"""

import re

import pytest
from verify import obliviousness
from verify.obliviousness import CAUGHT, NATIVE, PLANTED, PUBLIC_ONLY, Build

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
def test_divisions_are_found_by_function(shipped: Build) -> None:
    assert "planted_division" in obliviousness.divisions(shipped.program)
    assert set(obliviousness.divisions(shipped.code)) == set(obliviousness.DIVIDES_PUBLIC)


@NEEDS_VALGRIND
def test_memcheck_is_blind_to_a_division(shipped: Build) -> None:
    """Which is why divisions are looked for in the code."""
    assert obliviousness.memcheck(shipped.program, "planted-division") == 0


@NEEDS_VALGRIND
def test_a_kernel_of_the_extension_passes_and_planted_leaks_are_caught(shipped: Build) -> None:
    assert obliviousness.memcheck(shipped.program, "mask-rows") == 0
    assert obliviousness.memcheck(shipped.program, "planted-branch") == CAUGHT
    for kernel, same in (("mask-rows", True), ("planted-filter", False)):
        first, second = (obliviousness.trace(shipped.program, kernel, seed) for seed in (1, 2))
        assert (first == second) is same
