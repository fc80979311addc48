"""Every fuzz target on inputs that once failed, on valid ones, and on a few random changes of those.

`make verify` fuzzes the same targets, and adds to verify/corpus/ what it finds.
"""

from pathlib import Path
from random import Random

import pytest
from verify.fuzz import CORPUS, Hang, kept, limited
from verify.fuzz_targets import PLANTED, TARGETS

HANG_SECONDS = 10
MUTATIONS = 20


def test_every_folder_of_the_corpus_belongs_to_a_target() -> None:
    assert {path.name for path in CORPUS.iterdir() if path.is_dir()} <= set(TARGETS)


@pytest.mark.parametrize("name", TARGETS)
def test_kept_inputs_true_ones_and_changed_ones_end_in_an_answer_or_a_refusal(name: str, tmp_path: Path) -> None:
    ready, rng = TARGETS[name](tmp_path), Random(5)  # noqa: S311  no secret
    for data in [*ready.seeds, *kept(name)]:
        limited(ready, data, HANG_SECONDS)
    if ready.mutate is not None:  # else only the fuzzer changes its inputs, byte by byte
        for _ in range(MUTATIONS):
            limited(ready, ready.mutate(rng.choice(list(ready.seeds)), rng), HANG_SECONDS)


def test_a_planted_exception_gets_out(tmp_path: Path) -> None:
    ready = PLANTED["planted-length"](tmp_path)
    seed = bytearray(ready.seeds[0])
    limited(ready, bytes(seed))
    seed[52:56] = b"\xff" * 4  # 8 of the magic, then the header of 44: the length of the domain's text
    seed[48:52] = b"\xff" * 4
    with pytest.raises(Exception, match="unpack_from"):
        limited(ready, bytes(seed))


def test_a_planted_hang_is_ended(tmp_path: Path) -> None:
    ready = PLANTED["planted-loop"](tmp_path)
    with pytest.raises(Hang):
        limited(ready, b"int:0:  9", 0.2)
