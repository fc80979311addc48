"""Packing: a non-decreasing sequence of integers comes in, few bits go out, and back.

Elias-Fano: the low bits of every number side by side, the high parts as a bit string with a one for each number.
About 2 + log2(greatest / count) bits a number, and the length is known from count and greatest alone. All of it is
public: it holds an index's segments.
"""

import numpy as np
from numpy.typing import NDArray

__all__ = ["pack", "packed_bytes", "unpack"]


def packed_bytes(count: int, greatest: int) -> int:
    """How many bytes `pack` needs."""
    low_bits = _low_bits(count, greatest)
    return (count * low_bits + 7) // 8 + (count + (greatest >> low_bits) + 7) // 8


def pack(values: NDArray[np.int64], greatest: int) -> bytes:
    """Pack non-decreasing values from 0 to `greatest`."""
    low_bits = _low_bits(len(values), greatest)
    high = np.zeros(len(values) + (greatest >> low_bits), dtype=np.uint8)
    high[(values >> low_bits) + np.arange(len(values))] = 1
    low = (values[:, None] >> np.arange(low_bits)) & 1
    return np.packbits(low.astype(np.uint8).ravel()).tobytes() + np.packbits(high).tobytes()


def unpack(data: bytes, count: int, greatest: int) -> NDArray[np.int64]:
    """Unpack what `pack` made; ValueError if it never made such bytes."""
    if len(data) != packed_bytes(count, greatest):
        raise ValueError("wrong length")
    low_bits = _low_bits(count, greatest)
    cut = (count * low_bits + 7) // 8
    bits = np.unpackbits(np.frombuffer(data, dtype=np.uint8))
    low = bits[: count * low_bits].reshape(count, low_bits).astype(np.int64) @ (
        1 << np.arange(low_bits, dtype=np.int64)
    )
    places = np.flatnonzero(bits[8 * cut :])
    if len(places) != count:
        raise ValueError("wrong number of values")
    values: NDArray[np.int64] = ((places - np.arange(count)) << low_bits) + low
    if values[-1] > greatest or np.any(np.diff(values) < 0) or pack(values, greatest) != data:
        raise ValueError("values out of order")
    return values


def _low_bits(count: int, greatest: int) -> int:
    return max(0, (greatest // count).bit_length() - 1)
