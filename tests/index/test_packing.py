"""Packing: the bytes of small lists by hand, any list there and back, and bytes that no list has."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scumble.index.packing import PACKED, pack, packed_bytes, unpack


@pytest.mark.parametrize(
    ("values", "greatest", "low", "high"),
    [
        ([0], 0, "", "1"),
        ([0, 0, 1], 1, "", "1101"),
        ([0, 2, 3], 3, "", "100101"),  # no low bits: a number may rise by one for each that there is
        ([1, 3], 5, "11", "1010"),  # one low bit each; then a zero for every step of two, and a one for a number
        ([2, 13], 15, "0110", "10001"),  # two low bits, the lowest first
        ([5, 6, 7, 100, 127], 127, "1010" + "0110" + "1110" + "0010" + "1111", "111" + "0" * 6 + "1" + "0" + "1"),
    ],
)
def test_low_bits_come_first_and_the_others_as_steps(values: list[int], greatest: int, low: str, high: str) -> None:
    packed = pack(np.array(values), greatest)
    bits = "".join(f"{byte:08b}" for byte in packed)
    cut = -(-len(low) // 8) * 8
    assert (bits[:cut].rstrip("0"), bits[cut:].rstrip("0")) == (low.rstrip("0"), high.rstrip("0"))
    assert len(packed) == packed_bytes(len(values), greatest) == cut // 8 + -(-len(high) // 8)
    assert unpack(packed, len(values), greatest).tolist() == values


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=60), st.integers(0, 10**9))
def test_any_list_comes_back(values: list[int], above: int) -> None:
    values.sort()
    greatest = values[-1] + above
    packed = pack(np.array(values), greatest)
    assert len(packed) == packed_bytes(len(values), greatest)
    assert unpack(packed, len(values), greatest).tolist() == values


def test_a_list_that_is_packed_in_parts_comes_back() -> None:
    values = np.arange(PACKED + 9) * 7
    assert unpack(pack(values, 8 * len(values)), len(values), 8 * len(values)).tolist() == values.tolist()


@pytest.mark.parametrize(
    ("bits", "count", "greatest"),
    [
        ("10100000", 3, 1),  # a number too few
        ("11110000", 3, 1),  # one too many
        ("10100000 00000000", 2, 1),  # a byte too many
        ("", 1, 0),
        ("10010000", 2, 1),  # beyond the greatest
        ("11000001", 2, 1),  # a bit behind the last
        ("10000000 11000000", 2, 5),  # falling: the same step, and a smaller low bit after a larger
        ("11001000 10100000", 2, 5),  # a bit behind the low ones
    ],
)
def test_bytes_that_no_list_has_are_refused(bits: str, count: int, greatest: int) -> None:
    data = bytes(int(byte, 2) for byte in bits.split())
    with pytest.raises(ValueError, match=r"wrong|out of order"):
        unpack(data, count, greatest)
