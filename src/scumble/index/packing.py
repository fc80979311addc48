"""Packing: numbers that never fall, such as where segments begin, in about two bits more than each step needs.

All of it is public. A number's low bits are written as they are, and the others as the ones among the bits of a string
in which a zero stands for a step up: Elias-Fano coding.
"""

import numpy as np
from numpy.typing import NDArray

__all__ = ["pack", "packed_bytes", "unpack"]

PACKED = 1 << 16  # numbers at a time: a multiple of eight, so that each time ends with a whole byte


def packed_bytes(count: int, greatest: int) -> int:
    """How many bytes `pack` needs."""
    low_bits = _low_bits(count, greatest)
    return (count * low_bits + 7) // 8 + (count + (greatest >> low_bits) + 7) // 8


def pack(values: NDArray[np.int64], greatest: int) -> bytes:
    """Pack non-decreasing values from 0 to `greatest`."""
    low_bits = _low_bits(len(values), greatest)
    high = np.zeros(len(values) + (greatest >> low_bits), dtype=np.uint8)
    high[(values >> low_bits) + np.arange(len(values))] = 1
    low = b"".join(
        np.packbits(((values[at : at + PACKED, None] >> np.arange(low_bits)) & 1).astype(np.uint8).ravel()).tobytes()
        for at in range(0, len(values), PACKED)
    )
    return low + np.packbits(high).tobytes()


def unpack(data: bytes, count: int, greatest: int) -> NDArray[np.int64]:
    """Unpack what `pack` made; ValueError if it never made such bytes."""
    if len(data) != packed_bytes(count, greatest):
        raise ValueError("wrong length")
    low_bits = _low_bits(count, greatest)
    cut = (count * low_bits + 7) // 8
    bits = np.unpackbits(np.frombuffer(data, dtype=np.uint8))
    low = np.zeros(count, np.int64)
    for bit in range(low_bits):
        low |= bits[bit : count * low_bits : low_bits].astype(np.int64) << bit
    places = np.flatnonzero(bits[8 * cut :])
    if len(places) != count:
        raise ValueError("wrong number of values")
    values: NDArray[np.int64] = ((places - np.arange(count)) << low_bits) + low
    if values[-1] > greatest or np.any(np.diff(values) < 0) or pack(values, greatest) != data:
        raise ValueError("values out of order")
    return values


def _low_bits(count: int, greatest: int) -> int:
    return max(0, (greatest // count).bit_length() - 1)
