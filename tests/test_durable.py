"""Durable files: the old content or the new one, in its mode, with nothing left beside it."""

import os
import stat
from pathlib import Path

import pytest

from scumble.durable import Draft, clear_drafts, create, replace


@pytest.mark.parametrize("mode", [0o600, 0o666])
def test_a_file_has_its_content_and_mode_and_nothing_is_left_beside_it(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "file"
    before = os.umask(0o022)
    try:
        for content in (b"", b"first", b"x" * 100_000):
            replace(path, content, mode)
            assert path.read_bytes() == content
            assert stat.S_IMODE(path.stat().st_mode) == mode & ~0o022
    finally:
        os.umask(before)
    assert list(tmp_path.iterdir()) == [path]


def test_a_new_file_never_takes_the_place_of_another(tmp_path: Path) -> None:
    path = tmp_path / "file"
    create(path, b"mine")
    (tmp_path / "link").symlink_to("nowhere")
    for there in (path, tmp_path / "link"):
        with pytest.raises(FileExistsError):
            create(there, b"another")
    assert path.read_bytes() == b"mine"
    assert sorted(name.name for name in tmp_path.iterdir()) == ["file", "link"]


def test_a_draft_that_is_given_up_leaves_nothing(tmp_path: Path) -> None:
    with Draft(tmp_path / "file") as draft, draft.stream() as stream:
        stream.write(b"half")
    assert list(tmp_path.iterdir()) == []


def test_only_the_drafts_of_the_dead_are_cleared(tmp_path: Path) -> None:
    for name in (".file.0a1b2c3d.new", ".file.0a1b2c3d.new-journal", ".other.0a1b2c3d.new", ".file.txt", "file.new"):
        (tmp_path / name).write_bytes(b"x")
    with Draft(tmp_path / "file") as draft:
        clear_drafts(tmp_path, "file")
        kept = {path.name for path in tmp_path.iterdir()}
        assert kept == {".other.0a1b2c3d.new", ".file.txt", "file.new", draft.path.name}
        clear_drafts(tmp_path)
        draft.write(b"alive")
        draft.replace()
    assert {path.name for path in tmp_path.iterdir()} == {".file.txt", "file.new", "file"}
    assert (tmp_path / "file").read_bytes() == b"alive"
