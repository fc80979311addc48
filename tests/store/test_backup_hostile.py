"""Archives that nobody made with `backup`: each is refused, and nothing is written, in its place or anywhere else."""

import gzip
import io
import json
import tarfile
from collections.abc import Callable, Iterator
from contextlib import closing
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from store_databases import database

from scumble.errors import Corrupt, FileError, NewerVersion
from scumble.store.backup import backup, restore
from scumble.store.files import FileStore

Member = tuple[tarfile.TarInfo, bytes]


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    sink = io.BytesIO()
    with closing(database(tmp_path_factory.mktemp("origin") / "db", ("r1", 2), ("r2", 3))) as store:
        backup(sink, store)
    return sink.getvalue()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """Where to restore to; at the end there is nothing in it, and nothing beside it."""
    inner = tmp_path / "a/b/c"
    inner.mkdir(parents=True)
    yield inner / "db"
    assert [path for path in tmp_path.rglob("*") if not path.is_dir() or path.parent == inner] == []


def members(archive: bytes) -> list[Member]:
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        return [(info, tar.extractfile(info).read()) for info in tar.getmembers()]  # type: ignore[union-attr]


def packed(parts: list[Member], *, pax: bool = False) -> bytes:
    sink = io.BytesIO()
    for info, content in parts:
        sink.write(info.tobuf(tarfile.PAX_FORMAT if pax else tarfile.GNU_FORMAT) + content + bytes(-len(content) % 512))
    return sink.getvalue() + bytes(1024)


def listing(parts: list[Member]) -> list[Member]:
    """The members with a list of contents that agrees with them, as whoever forges an archive would write it."""
    *rest, (info, content) = parts
    fields = json.loads(content)
    fields["members"] = {i.name: {"bytes": len(c), "sha256": sha256(c).hexdigest()} for i, c in rest}
    new = json.dumps(fields, indent=1).encode() + b"\n"
    info.size = len(new)
    return [*rest, (info, new)]


def refused(archive: bytes, place: Path, error: type[FileError] = Corrupt) -> None:
    with pytest.raises(error) as caught:
        restore(io.BytesIO(archive), FileStore.restoring(place))
    assert caught.value.hint


def test_the_tools_of_these_tests_change_nothing(archive: bytes, tmp_path: Path) -> None:
    assert packed(listing(members(archive))) == archive
    restore(io.BytesIO(archive + bytes(9216)), FileStore.restoring(tmp_path / "db"))  # as other programs fill up
    assert FileStore(tmp_path / "db").head()


def test_every_truncation_is_refused(archive: bytes, place: Path) -> None:
    for length in {*range(0, len(archive), 512), len(archive) - 1, len(archive) - 512}:
        refused(archive[:length], place)
    assert not place.exists()


def test_every_changed_byte_is_refused(archive: bytes, place: Path) -> None:
    for at in range(0, len(archive), 43):
        changed = bytearray(archive)
        changed[at] ^= 0x11
        with pytest.raises(FileError):
            restore(io.BytesIO(changed), FileStore.restoring(place))


def renamed(name: str) -> Callable[[list[Member], int], None]:
    def change(parts: list[Member], at: int) -> None:
        parts[at][0].name = name

    return change


def typed(kind: bytes, target: str = "") -> Callable[[list[Member], int], None]:
    def change(parts: list[Member], at: int) -> None:
        parts[at][0].type, parts[at][0].linkname = kind, target

    return change


def field(name: str, value: object) -> Callable[[list[Member], int], None]:
    def change(parts: list[Member], at: int) -> None:
        setattr(parts[at][0], name, value)

    return change


CHANGES: dict[str, Callable[[list[Member], int], None]] = {
    "up": renamed("../escaped"),
    "up and down": renamed("runs/../../escaped"),
    "absolute": renamed("/tmp/escaped"),  # noqa: S108
    "dots": renamed("manifests/.."),
    "another run": renamed("runs/r9.pages"),
    "another place": renamed("scratch/r1.pages"),
    "lock": renamed("lock"),
    "symbolic link": typed(tarfile.SYMTYPE, "/etc/passwd"),
    "hard link": typed(tarfile.LNKTYPE, "database.json"),
    "device": typed(tarfile.CHRTYPE),
    "pipe": typed(tarfile.FIFOTYPE),
    "folder": typed(tarfile.DIRTYPE),
    "sparse": typed(tarfile.GNUTYPE_SPARSE),
    "long name": typed(tarfile.GNUTYPE_LONGNAME),
    "extended header": typed(tarfile.XHDTYPE),
    "global header": typed(tarfile.XGLTYPE),
    "larger than there can be": field("size", 1 << 40),
    "larger than any file": field("size", 1 << 62),
    "negative": field("size", -512),
    "set-uid": field("mode", 0o4755),
    "somebody's": field("uid", 1000),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_member_that_is_not_as_it_has_to_be_is_refused(archive: bytes, place: Path, change: str) -> None:
    for at in range(len(members(archive))):
        parts = members(archive)
        CHANGES[change](parts, at)
        refused(packed(parts), place)
        if at < len(parts) - 1:
            refused(packed(listing(parts)), place)
    assert not place.exists()


def test_members_twice_missing_swapped_or_added_are_refused(archive: bytes, place: Path) -> None:
    count = len(members(archive))
    for at in range(count):
        parts = members(archive)
        refused(packed([*parts[:at], *parts[at + 1 :]]), place)
        if at < count - 1:
            refused(packed(listing([*parts[:at], *parts[at + 1 :]])), place)
            refused(packed(listing([*parts[: at + 1], parts[at], *parts[at + 1 :]])), place)
            refused(packed(listing([*parts[:at], (tarfile.TarInfo("more"), b""), *parts[at:]])), place)
        if at < count - 2:
            parts[at], parts[at + 1] = parts[at + 1], parts[at]
            refused(packed(listing(parts)), place)
    refused(archive + b"x", place)
    refused(archive + archive, place)
    assert not place.exists()


def test_other_formats_are_refused(archive: bytes, place: Path) -> None:
    other = members(archive)
    for info, _ in other:
        info.mtime = 1.5
    for content in (b"", bytes(1024), bytes(100_000), gzip.compress(archive), packed(other, pax=True)):
        refused(content, place)


def test_a_wrong_list_of_contents_is_refused(archive: bytes, place: Path) -> None:
    def with_contents(content: bytes) -> bytes:
        parts = members(archive)
        parts[-1][0].size = len(content)
        return packed([*parts[:-1], (parts[-1][0], content)])

    good = json.loads(members(archive)[-1][1])
    some = next(iter(good["members"]))
    for fields in (
        good | {"version": 1},
        good | {"database": "d1"},
        good | {"format": 0},
        good | {"format": 2},  # only if there is a pack of links
        good | {"more": 1},
        good | {"members": {}},
        good | {"members": good["members"] | {some: {"bytes": 1, "sha256": "0" * 64}}},
    ):
        refused(with_contents(json.dumps(fields).encode()), place)
    refused(with_contents(json.dumps(good | {"format": 3}).encode()), place, NewerVersion)
    for content in (b"", b"[]", b"null", b"\xff", b"[" * 100_000, b'{"format": []}'):
        refused(with_contents(content), place)


def test_a_head_that_names_another_manifest_is_refused(archive: bytes, place: Path) -> None:
    for name in ("00000002-0000000000000000.manifest", "../../x", "", "x" * 90):
        parts = members(archive)
        info, _ = parts[1]
        content = f"{name}\n".encode()
        info.size = len(content)
        refused(packed(listing([parts[0], (info, content), *parts[2:]])), place)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_blocks_in_any_order_are_refused_in_our_words(archive: bytes, tmp_path: Path, data: st.DataObject) -> None:
    blocks = [archive[at : at + 512] for at in range(0, len(archive), 512)]
    some = data.draw(st.lists(st.sampled_from(blocks) | st.binary(min_size=512, max_size=512), max_size=12))
    keep = data.draw(st.integers(0, len(blocks) - 1)) * 512
    mixed = archive[:keep] + b"".join(some)
    if mixed.rstrip(b"\0") != archive.rstrip(b"\0"):
        with pytest.raises(FileError):
            restore(io.BytesIO(mixed), FileStore.restoring(tmp_path / "db"))
    assert list(tmp_path.iterdir()) == []
