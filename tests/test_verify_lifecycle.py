"""The model of a database's life: every check in it can be taken out and is, and every assertion has a name."""

import re
import shutil

import pytest
from verify.lifecycle import CHECKS, MODEL, PREEMPTION, search

needs_spin = pytest.mark.skipif(not shutil.which("spin"), reason="spin is not installed")


def test_every_check_of_the_model_is_taken_out_once() -> None:
    assert set(re.findall(r"#ifn?def (NO_\w+)", MODEL.read_text())) == {*CHECKS, PREEMPTION}


def test_every_assertion_is_the_one_that_some_check_is_for() -> None:
    asserted = re.findall(r"assert\(.*?\);?\s*/\* ([A-Z' ]+) \*/", MODEL.read_text())
    assert len(asserted) == MODEL.read_text().count("assert(")
    wanted = {name for _, names in CHECKS.values() for name in names.split(", ")}
    assert wanted <= set(asserted)


@needs_spin
def test_a_restore_that_forgets_is_found_and_told() -> None:
    found = search("NO_CARRYING", told=True)
    assert found.broken in CHECKS["NO_CARRYING"][1].split(", ")
    assert any("is restored" in line for line in found.story)
    assert len(found.story) < 8


@needs_spin
def test_a_lease_that_is_never_given_up_is_found() -> None:
    assert search(live=True).broken == ""
    assert search(PREEMPTION, live=True).broken == "ENDLESS WAIT"
