"""Storage that lies: whatever bytes the files hold, the store gives back bytes or raises Tampered, and nothing else."""

import json
import os
import shutil
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from store_databases import SLOT_BYTES, check_run, database, manifest, read

from scumble.errors import InvalidParameter, NotFound, Tampered
from scumble.store.files import FileStore
from scumble.store.manifests import stated_shapes
from scumble.wire.storage import MAGIC, pack, pack_unsigned, public_part, unpack

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)
in_a_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)


@given(st.binary(), st.binary())
def test_an_envelope_comes_apart_as_it_was_put_together(public: bytes, sealed: bytes) -> None:
    assert unpack(pack(public, sealed, b"signed")) == (public, sealed, b"signed")
    assert public_part(pack(public, sealed, b"signed")) == public


@given(st.binary() | st.binary().map(lambda rest: MAGIC + rest), st.integers(0, 100))
def test_any_bytes_are_an_envelope_or_tampered(content: bytes, cut: int) -> None:
    for manifest_bytes in (content, pack(b"public", b"sealed", b"signed")[:cut]):
        try:
            parts = unpack(manifest_bytes)
        except Tampered:
            continue
        assert (pack(*parts) if parts.signed else pack_unsigned(parts.public, parts.sealed)) == manifest_bytes


def test_a_catalog_beyond_its_length_field_is_refused() -> None:
    class Huge(bytes):
        def __len__(self) -> int:
            return 1 << 32

    with pytest.raises(InvalidParameter):
        pack(Huge(), b"", b"")


@given(JSON)
def test_any_json_is_a_catalog_or_tampered(value: Any) -> None:
    with pytest.raises(Tampered):
        stated_shapes(pack(json.dumps(value).encode(), b"", b"signed"))


def _places(tree: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    return [at, *(place for key, value in inner for place in _places(value, (*at, key)))]


CATALOG = json.loads(public_part(manifest(1, {"ab": 3, "cd": 2})))
ODD: st.SearchStrategy[Any] = st.sampled_from(
    [None, True, -1, 0, 1, 10**12, 2**62, 2**64, 10**400, 1.5, float("nan"), "", "../x", [], {}, [[]]]
)


@given(st.sampled_from(_places(CATALOG)[1:]), ODD | JSON)
@settings(max_examples=500)
def test_a_catalog_altered_anywhere_has_shapes_that_fit_or_is_tampered(place: tuple[Any, ...], value: Any) -> None:
    catalog = json.loads(json.dumps(CATALOG))
    inner = catalog
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    try:
        version, shapes = stated_shapes(pack(json.dumps(catalog).encode(), b"", b"signed"))
    except Tampered:
        return
    assert 0 <= version < 1 << 62
    for run, shape in shapes.items():
        assert run.isalnum()
        assert all(offset + slot * pages <= shape.pages_bytes < 1 << 62 for offset, slot, pages in shape.columns)


def test_a_catalog_that_would_take_forever_is_tampered() -> None:
    for field, value in (("digits", 10**15), ("max_bytes", 10**4000)):
        catalog = json.loads(json.dumps(CATALOG))
        del catalog["tables"][0]["row_bits"]  # as release 0.1 wrote it
        catalog["tables"][0]["schema"][0]["type"] = {"kind": "decimal", "sql": "decimal", field: value, "digits": value}
        with pytest.raises(Tampered):
            stated_shapes(pack(json.dumps(catalog).encode(), b"", b"signed"))
    for deep in (b"[" * 100_000, b'{"a":' * 100_000, b"1" * 5000, b"\xff\xfe", b"\xef\xbb\xbf{}"):
        with pytest.raises(Tampered):
            stated_shapes(pack(deep, b"", b"signed"))


def _put_head(folder: Path, content: bytes, version: int = 1) -> None:
    """Put a manifest in place of the head, under the name that it ought to have."""
    name = f"{version:08d}-{sha256(content).hexdigest()[:16]}.manifest"
    (folder / "manifests" / name).write_bytes(content)
    (folder / "HEAD").write_text(f"{name}\n")


@given(st.binary(max_size=200))
@in_a_folder
def test_any_manifest_under_its_right_name_is_tampered(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    folder = tmp_path_factory.mktemp("db")
    store = database(folder, ("ab", 1))
    _put_head(folder, content)
    _check_refused(store, folder)
    _put_head(folder, pack(content, content, b"signed"))
    _check_refused(store, folder)
    shutil.rmtree(folder)


@given(st.binary(max_size=120) | st.from_regex(r"[0-9]{8}-[0-9a-f]{16}\.manifest\n", fullmatch=True).map(str.encode))
@in_a_folder
def test_any_head_is_tampered(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    folder = tmp_path_factory.mktemp("db")
    store = database(folder, ("ab", 1))
    (folder / "HEAD").write_bytes(content)
    _check_refused(store, folder)
    shutil.rmtree(folder)


def _check_refused(store: FileStore, folder: Path) -> None:
    for one in (store, FileStore(folder)):
        with pytest.raises(Tampered):
            one.head()
        with pytest.raises(Tampered), one.writer():
            pytest.fail("a writer on a database whose head is not whole")
    with pytest.raises(Tampered):
        read(FileStore(folder), "ab", 0, 0, 1)
    with pytest.raises(Tampered):
        FileStore(folder).tags("ab", 0)
    assert (folder / "runs" / "ab.pages").exists()


def test_every_byte_of_head_and_manifest_flipped_and_every_truncation(tmp_path: Path) -> None:
    store = database(tmp_path, ("ab", 1), ("cd", 1))
    old = next(path for path in (tmp_path / "manifests").iterdir() if path.name.startswith("00000001"))
    head = tmp_path / "HEAD"
    for path in (head, tmp_path / "manifests" / head.read_text().strip(), old):
        content = path.read_bytes()
        step = max(1, len(content) // 200)
        flipped = [content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :] for at in range(0, len(content), step)]
        for other in (*flipped, *(content[:at] for at in range(0, len(content), step)), content + b"\n"):
            path.write_bytes(other)
            with pytest.raises(Tampered):
                store.manifest(1) if path == old else store.head()
        path.write_bytes(content)
    check_run(FileStore(tmp_path), "cd", 1)


def test_the_head_put_back_or_deleted_is_no_crash(tmp_path: Path) -> None:
    store = database(tmp_path, ("ab", 1))
    first = (tmp_path / "HEAD").read_text()
    with store.writer():
        store.commit(2, manifest(2, {"ab": 1}))
        store.commit(3, manifest(3, {"ab": 1}))
    (tmp_path / "HEAD").write_text(first)
    with pytest.raises(Tampered), FileStore(tmp_path).writer():
        pass
    assert len(list((tmp_path / "manifests").iterdir())) == 3
    (tmp_path / "HEAD").unlink()
    with pytest.raises(Tampered):
        FileStore(tmp_path).head()


def test_an_old_manifest_under_a_later_name_is_tampered(tmp_path: Path) -> None:
    store = database(tmp_path, ("ab", 1), ("cd", 1))
    _put_head(tmp_path, store.manifest(1), version=3)
    _check_refused(store, tmp_path)


def test_two_manifests_of_one_version(tmp_path: Path) -> None:
    database(tmp_path, ("ab", 1), ("cd", 1))
    other = manifest(1, {})
    (tmp_path / "manifests" / f"00000001-{sha256(other).hexdigest()[:16]}.manifest").write_bytes(other)
    with pytest.raises(Tampered):
        FileStore(tmp_path).manifest(1)
    next((tmp_path / "manifests").glob("00000002*")).unlink()
    with pytest.raises(Tampered):
        FileStore(tmp_path).manifest(2)


def test_an_earlier_manifest_that_is_gone(tmp_path: Path) -> None:
    database(tmp_path, ("ab", 1), ("cd", 1))
    next((tmp_path / "manifests").glob("00000001*")).unlink()
    with pytest.raises(NotFound):
        FileStore(tmp_path).manifest(1)


def test_nothing_is_cleared_that_a_damaged_manifest_may_have_named(tmp_path: Path) -> None:
    store = database(tmp_path, ("ab", 1))
    with store.writer():
        store.commit(2, manifest(2, {}))
    next((tmp_path / "manifests").glob("00000001*")).write_bytes(b"damaged")
    with FileStore(tmp_path).writer():
        pass
    assert (tmp_path / "runs" / "ab.pages").exists()


@pytest.mark.parametrize("suffix", ["pages", "tags"])
@pytest.mark.parametrize("damage", ["shorter", "longer", "empty", "gone", "folder", "pipe", "loop"])
def test_a_run_file_that_is_not_whole(tmp_path: Path, suffix: str, damage: str) -> None:
    database(tmp_path, ("ab", 4))
    path = tmp_path / "runs" / f"ab.{suffix}"
    content = path.read_bytes()
    path.unlink()
    match damage:
        case "shorter":
            path.write_bytes(content[:-1])
        case "longer":
            path.write_bytes(content + b"x")
        case "empty":
            path.write_bytes(b"")
        case "folder":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case "loop":
            path.symlink_to(path.name)
    store = FileStore(tmp_path)
    with pytest.raises(Tampered):
        read(store, "ab", 0, 0, 1) if suffix == "pages" else store.tags("ab", 0)


def test_a_run_that_is_cut_off_while_it_is_open(tmp_path: Path) -> None:
    store = database(tmp_path, ("ab", 4))
    check_run(store, "ab", 4)
    os.truncate(tmp_path / "runs" / "ab.pages", SLOT_BYTES[0] * 2 + 5)
    assert read(store, "ab", 0, 0, 2)
    for first, pages in ((2, 1), (1, 2), (3, 1)):
        with pytest.raises(Tampered):
            read(store, "ab", 0, first, pages)


def test_a_catalog_with_other_widths_is_followed_and_then_forgotten(tmp_path: Path) -> None:
    store = database(tmp_path, ("ab", 4))
    check_run(store, "ab", 4)
    genuine = store.head()
    catalog = json.loads(public_part(genuine))
    catalog["tables"][0]["row_bits"][0] = 32
    _put_head(tmp_path, pack(json.dumps(catalog).encode(), b"", b"signed"))
    store.head()
    with pytest.raises(Tampered):
        read(store, "ab", 0, 0, 1)
    _put_head(tmp_path, genuine)
    assert store.head() == genuine
    check_run(store, "ab", 4)


@pytest.mark.parametrize("part", ["manifests", "runs"])
def test_a_folder_that_is_gone(tmp_path: Path, part: str) -> None:
    database(tmp_path, ("ab", 1))
    shutil.rmtree(tmp_path / part)
    with pytest.raises(Tampered), FileStore(tmp_path).writer():
        pass
