"""Packs of links: what goes in comes out, and nothing else is taken for one."""

from dataclasses import replace
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scumble.errors import InvalidParameter, Tampered
from scumble.wire.lineage import Certificate, Draft, Link
from scumble.wire.links import MOST_LINKS, MOST_PACK_BYTES, in_packs, last_stated, link_of, pack_links, unpack_links
from scumble.wire.storage import Envelope, pack, pack_unsigned

OWNER, ADA = b"o" * 32, b"a" * 32
GRANT = Certificate("0123456789abcdef", ADA, b"t" * 32, b"c" * 64)


def chain(count: int, first: int = 1, makers: tuple[Certificate | None, ...] = (None,)) -> list[Link]:
    """Links of versions in a row; the makers take turns."""
    links, previous = [], "" if first == 1 else _digest(first - 1)
    for version in range(first, first + count):
        certificate = makers[version % len(makers)]
        signer = OWNER if certificate is None else certificate.public_key
        draft = Draft(version // 7, version, previous, _digest(version))
        links.append(Link(draft, signer, sha256(b"%d" % version).digest() * 2, certificate))
        previous = draft.hash
    return links


def _digest(version: int) -> str:
    return sha256(f"manifest {version}".encode()).hexdigest()


@pytest.mark.parametrize("count", [1, 2, 500, MOST_LINKS])
@pytest.mark.parametrize("first", [1, 2, 10**9])
@pytest.mark.parametrize("makers", [(None,), (GRANT,), (None, GRANT, replace(GRANT, grant="é", public_key=OWNER))])
def test_links_come_back(count: int, first: int, makers: tuple[Certificate | None, ...]) -> None:
    links = chain(count, first, makers)
    packed = pack_links(links)
    assert unpack_links(packed) == tuple(links)
    assert last_stated(packed) == first + count - 1
    assert len(packed) <= 104 * count + 92 + 400
    assert len(packed) <= MOST_PACK_BYTES


def test_every_byte_of_a_pack_counts() -> None:
    packed = pack_links(chain(3, makers=(None, GRANT)))
    for at in range(len(packed)):
        with pytest.raises(Tampered):
            unpack_links(packed[:at] + bytes([packed[at] ^ 1 << at % 8]) + packed[at + 1 :])
        with pytest.raises(Tampered):
            unpack_links(packed[:at])
    for more in (b"\0", b"x" * 104):
        with pytest.raises(Tampered):
            unpack_links(packed + more)


def _rehashed(packed: bytes) -> bytes:
    return packed[:-32] + sha256(packed[:-32]).digest()


def test_whatever_is_unpacked_would_be_packed_into_the_same_bytes() -> None:
    """Also with a hash that fits: a second form of the same links could hide something in it."""
    packed = pack_links(chain(3, makers=(None, GRANT)))
    taken = 0
    for at in range(len(packed) - 32):
        for bit in range(8):
            spoiled = _rehashed(packed[:at] + bytes([packed[at] ^ 1 << bit]) + packed[at + 1 :])
            try:
                links = unpack_links(spoiled)
            except Tampered:
                continue
            taken += 1
            assert pack_links(links) == spoiled
    assert taken > 1000  # other hashes and signatures, which only a key can refute


@given(st.binary(max_size=400))
def test_no_bytes_make_anything_but_links_or_tampered(content: bytes) -> None:
    start = pack_links(chain(2))[:60]
    for packed in (content, start[:16] + content, start + content):
        for spoiled in (packed, _rehashed(packed + bytes(32))):
            try:
                assert pack_links(unpack_links(spoiled)) == spoiled
            except Tampered:
                continue


@pytest.mark.parametrize(
    "links",
    [
        [],
        chain(MOST_LINKS + 1),
        [*chain(2), *chain(1, first=4)],
        [*chain(2)[::-1]],
        [replace(link, signer=b"o" * 31) for link in chain(1)],
        [replace(link, signature=b"s" * 65) for link in chain(1)],
        [replace(link, signature=b"s" * 63) for link in chain(1)],
        [replace(link, draft=replace(link.draft, hash="0" * 63)) for link in chain(1)],
        [replace(link, draft=replace(link.draft, hash="G" * 64)) for link in chain(1)],
        [replace(link, draft=replace(link.draft, hash="A" * 64)) for link in chain(1)],
        [replace(link, draft=replace(link.draft, previous="0" * 64)) for link in chain(1)],
        [replace(link, draft=replace(link.draft, previous="")) for link in chain(1, first=2)],
        [replace(link, draft=replace(link.draft, restores=-1)) for link in chain(1)],
        [replace(link, draft=replace(link.draft, restores=1 << 32)) for link in chain(1)],
        [replace(link, draft=replace(link.draft, version=0)) for link in chain(1)],
        [replace(link, certificate=replace(GRANT, public_key=OWNER)) for link in chain(1, makers=(GRANT,))],
        [replace(link, certificate=replace(GRANT, terms=b"")) for link in chain(1, makers=(GRANT,))],
        [replace(link, certificate=replace(GRANT, signature=b"c")) for link in chain(1, makers=(GRANT,))],
        [replace(link, certificate=replace(GRANT, grant="")) for link in chain(1, makers=(GRANT,))],
        [replace(link, certificate=replace(GRANT, grant="g" * 256)) for link in chain(1, makers=(GRANT,))],
        [replace(link, certificate=replace(GRANT, grant="\ud800")) for link in chain(1, makers=(GRANT,))],
    ],
)
def test_what_would_not_come_back_as_it_is_goes_into_no_pack(links: list[Link]) -> None:
    with pytest.raises(InvalidParameter):
        pack_links(links)


def test_pieces_are_full_unless_the_chain_is_broken() -> None:
    links = chain(2 * MOST_LINKS + 5)
    packs = list(in_packs(links))
    assert [first for first, _ in packs] == [1, MOST_LINKS + 1, 2 * MOST_LINKS + 1]
    assert [link for _, pack in packs for link in unpack_links(pack)] == links
    gap = [*links[:3], *links[4:6], replace(links[6], draft=replace(links[6].draft, previous="0" * 64))]
    assert [(first, len(unpack_links(pack))) for first, pack in in_packs(gap)] == [(1, 3), (5, 2), (7, 1)]
    assert list(in_packs([])) == []


@pytest.mark.parametrize("makers", [(None,), (None, GRANT)])
def test_links_are_added_to_a_pack_that_has_room_and_that_they_follow(makers: tuple[Certificate | None, ...]) -> None:
    links = chain(MOST_LINKS + 9, makers=makers)
    for have in (1, 2, 700, MOST_LINKS - 1, MOST_LINKS):
        before = pack_links(links[:have])
        for upto in (have + 1, have + 5):
            grown = dict(in_packs(links[have:upto], before))
            whole = dict(in_packs(links[:upto]))
            assert grown == {first: pack for first, pack in whole.items() if pack != before}
        assert list(in_packs([], before)) == []
        assert [first for first, _ in in_packs(links[have + 1 : have + 3], before)] == [have + 2]
    with pytest.raises(Tampered):
        list(in_packs(links[3:5], pack_links(links[:3])[:-1]))


def test_a_manifest_s_link_is_the_one_that_belongs_to_it() -> None:
    digest = Envelope(b"public", b"sealed", b"-").hash
    link = Link(Draft(0, 5, _digest(4), digest), OWNER, b"s" * 64)

    def manifest(link: Link) -> bytes:
        return pack(b"public", b"sealed", link.to_bytes())

    assert link_of(5, manifest(link)) == link
    for version, content in (
        (4, manifest(link)),
        (5, pack(b"public", b"Sealed", link.to_bytes())),
        (5, manifest(replace(link, signature=b"s"))),
        (5, pack(b"public", b"sealed", b"{}")),
        (5, pack(b"public", b"sealed", link.to_bytes() + b" ")),
        (5, pack_unsigned(b"public", b"sealed")),
        (5, b""),
    ):
        assert link_of(version, content) is None


@pytest.mark.parametrize("packed", [b"", b"SCUMBLE-LINKS-1\n", b"SCUMBLE-LINKS-2\n" + bytes(100)])
def test_no_pack_has_no_last_version(packed: bytes) -> None:
    with pytest.raises(Tampered):
        last_stated(packed)
