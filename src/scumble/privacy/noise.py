"""Discrete Laplace and Gaussian noise: exact integer samples for a rational scale or variance.

Samples are secret until they have been added to a secret and the sum is released; nobody may see a sample alone.
This is the only module that draws noise: from AES-256-CTR, without floating point, in constant time. docs/privacy.md
section 3 proves the distribution, and section 3.1 that a `Noise` may be derived instead of drawn: a key comes from the
operating system, or from a secret, what is released and a digest of the rows, so that the same release repeated is
the same bytes.

A geometric variable with P(G = k) = (1 - p) p^k, p = exp(-1/scale), has independent bits, bit j being one with
probability 1 / (1 + exp(2^j / scale)); the difference of two such variables is discrete Laplace: P(X = x) is
proportional to p^|x|. So X is a sum of independent digits, 2^j times -1, 0 or 1, and each digit is one uniform 64-bit
word compared with a threshold from below and from above: a fixed number of comparisons a sample. A word that equals
the leading word of its threshold (once in 2^63) draws further words until it differs.

Discrete Gaussian noise, for the trained comparators only, is made of it by rejection: as exact, but not constant time.
"""

import hashlib
import os
from collections.abc import Callable
from decimal import Context, Decimal
from fractions import Fraction
from functools import lru_cache
from math import isqrt
from typing import Self

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF, HKDFExpand
from numpy.typing import NDArray

from scumble._native import ffi, lib
from scumble.errors import InvalidParameter

__all__ = ["Fact", "Noise", "add_discrete_laplace", "discrete_gaussian", "discrete_laplace", "encode_facts"]

KEY_BYTES = 32
WORD_BITS = 64
MIN_SCALE, MAX_SCALE = Fraction(1, 2**16), Fraction(2**40)
CHUNK = 4096  # samples a kernel call: the words of one call stay in the second-level cache

GAUSSIAN_CHUNK = 1 << 17  # candidates a round, at most
FAST_DIGITS = 40
NEARLY = Decimal("1e-8")

Words = Callable[[int], NDArray[np.uint64]]
Probability = Callable[[Fraction, int, Context], Decimal]
Fact = bytes | str | int | Fraction | NDArray[np.int64] | tuple["Fact", ...] | None
"""What names a release or a question: public, but for the digest of the rows."""


class Noise:
    """SECRET: the noise of one release. Each question of it gets a stream under a key of its own.

    A question states everything public that it depends on, so that one asked differently, by another version of a
    mechanism or after another rounding, never meets the same noise: docs/privacy.md section 3.1.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._asked: set[bytes] = set()

    @classmethod
    def fresh(cls) -> Self:
        """Noise that never comes again."""
        return cls(os.urandom(KEY_BYTES))

    @classmethod
    def derived(cls, secret: bytes, purpose: str, *, batch: str, terms: Fact, digest: bytes) -> Self:
        """The noise of the release that `terms` ask of a batch of rows: the same for the same rows, and for no others.

        `digest`, of all rows, has to be there: under one key, the releases of two tables that differ in a row would
        differ by that row alone.
        """
        if len(secret) != KEY_BYTES:
            raise ValueError("noise is derived from 32 secret bytes")
        named = encode_facts(("scumble noise v1", purpose, batch, terms, digest))
        return cls(HKDF(SHA256(), KEY_BYTES, None, named).derive(secret))

    def stream(self, *question: Fact) -> Words:
        """The stream for a question of the release, which may be asked once."""
        named = encode_facts(question)
        if named in self._asked:
            raise ValueError("a question of a release was asked twice")
        self._asked.add(named)
        return _key_stream(HKDFExpand(SHA256(), KEY_BYTES, named).derive(self._key))

    def __repr__(self) -> str:
        return "Noise(<secret>)"


def encode_facts(fact: Fact) -> bytes:
    """Facts as bytes, each after its kind and its length, so that no two are alike; arrays as their hash."""
    match fact:
        case None:
            kind, body = b"n", b""
        case bytes():
            kind, body = b"b", fact
        case str():
            kind, body = b"s", fact.encode()
        case int():
            kind, body = b"i", str(int(fact)).encode()
        case Fraction():
            kind, body = b"f", f"{fact.numerator}/{fact.denominator}".encode()
        case tuple():
            kind, body = b"t", b"".join(map(encode_facts, fact))
        case _:
            kind, body = b"a", hashlib.sha256(np.ascontiguousarray(fact, "<i8").data).digest()
    return kind + len(body).to_bytes(8, "little") + body


def discrete_laplace(scale: Fraction, count: int, words: Words | None = None) -> NDArray[np.int64]:
    """Draw `count` independent samples with P(X = x) proportional to exp(-|x| / scale)."""
    out = np.zeros(count, dtype=np.int64)
    add_discrete_laplace(out, scale, words)
    return out


def add_discrete_laplace(values: NDArray[np.int64], scale: Fraction, words: Words | None = None) -> None:
    """Add an independent sample of discrete Laplace noise to each value, in place, from a fresh stream or `words`."""
    _add_from_stream(values, scale, _fresh_stream() if words is None else words)


def _fresh_stream() -> Words:
    return _key_stream(os.urandom(KEY_BYTES))


def _key_stream(key: bytes) -> Words:
    """A stream of uniform words: AES-256 in counter mode, from 0, under a key that serves no other stream."""
    encryptor = Cipher(algorithms.AES256(key), modes.CTR(bytes(16))).encryptor()
    zeros = np.zeros(0, dtype=np.uint64)
    out = zeros

    def words(count: int) -> NDArray[np.uint64]:
        # One buffer for all calls: fresh pages for each would cost as much as the cipher.
        nonlocal zeros, out
        if len(zeros) < count:
            zeros, out = np.zeros(count, dtype=np.uint64), np.empty(count, dtype=np.uint64)
        encryptor.update_into(zeros[:count].view(np.uint8).data, out[:count].view(np.uint8).data)
        return out[:count]

    return words


def _add_from_stream(values: NDArray[np.int64], scale: Fraction, words: Words) -> None:
    """The sampler proper; `words` is a parameter so that test vectors can fix it."""
    bits = _low_bits(scale)
    thresholds = np.array([_leading_word(_digit_probability, scale, bit) for bit in range(bits)] + [0], dtype=np.uint64)
    samples = np.empty(min(CHUNK, len(values)), dtype=np.int64)
    for start in range(0, len(values), CHUNK):
        chunk = values[start : start + CHUNK]
        stream = words((bits + 1) * len(chunk)).reshape(bits + 1, len(chunk))
        sample = samples[: len(chunk)]
        tied = lib.scumble_discrete_laplace(
            ffi.from_buffer("uint64_t[]", stream),
            ffi.from_buffer("uint64_t[]", thresholds),
            bits,
            len(chunk),
            ffi.from_buffer("int64_t[]", sample, require_writable=True),
        )
        if tied:
            _settle_ties(sample, stream.copy(), thresholds, scale, words)
        chunk += sample


def _settle_ties(
    sample: NDArray[np.int64],
    stream: NDArray[np.uint64],
    thresholds: NDArray[np.uint64],
    scale: Fraction,
    words: Words,
) -> None:
    """Decide the digits whose word equals its threshold's leading word, which the kernel took for zero."""
    bits = len(thresholds) - 1
    for sign, side in ((1, stream), (-1, ~stream)):
        for bit, column in np.argwhere(side == thresholds[:, None]).tolist():
            if bit < bits:
                sample[column] += sign * (_lies_below(_digit_probability, scale, bit, words, agreed=1) << bit)
            elif _lies_below(_bit_probability, scale, bits, words, agreed=1):
                sample[column] += sign * (_beyond(scale, bits, words) << bits)


def _beyond(scale: Fraction, bits: int, words: Words) -> int:
    """How many times 2^bits lies in |X|, given that it does once: what remains each time is geometric again."""
    times = 1
    while _lies_below(_tail_probability, scale, bits, words, agreed=0):
        times += 1
    return times


def _lies_below(probability: Probability, scale: Fraction, bit: int, words: Words, *, agreed: int) -> bool:
    """Whether a uniform number lies below a probability with which its first `agreed` words agree."""
    while True:
        word = int(words(1)[0])
        threshold = _expansion(probability, scale, bit, agreed + 1)[agreed]
        if word != threshold:
            return word < threshold
        agreed += 1


@lru_cache(maxsize=256)
def _low_bits(scale: Fraction) -> int:
    """The number J of bits drawn each time: the least with exp(-2^J / scale) < 2^-64."""
    if not MIN_SCALE <= scale <= MAX_SCALE:
        raise InvalidParameter(
            "the scale of the noise must lie between 2^-16 and 2^40",
            hint="choose an epsilon between 2^-30 and 2^15, and fewer rows_per_user if there are many",
        )
    bits = 0
    while _leading_word(_bit_probability, scale, bits) > 0:
        bits += 1
    return bits


def _digit_probability(scale: Fraction, bit: int, context: Context) -> Decimal:
    """P(bit j of one geometric variable is one and of the other zero) = 1 / (2 + exp(2^j/scale) + exp(-2^j/scale))."""
    growth = _exponential(scale, bit, context)
    return context.divide(growth, context.power(context.add(1, growth), 2))


def _bit_probability(scale: Fraction, bit: int, context: Context) -> Decimal:
    """P(bit j of a geometric variable is one), and P(X >= 2^j when all lower digits are left out).

    Both are 1 / (1 + exp(2^j / scale)).
    """
    return context.divide(Decimal(1), context.add(1, _exponential(scale, bit, context)))


def _tail_probability(scale: Fraction, bit: int, context: Context) -> Decimal:
    """P(a geometric variable is at least 2^j) = exp(-2^j / scale)."""
    return context.divide(Decimal(1), _exponential(scale, bit, context))


def _exponential(scale: Fraction, bit: int, context: Context) -> Decimal:
    return context.exp(context.divide(Decimal(scale.denominator << bit), Decimal(scale.numerator)))


def _leading_word(probability: Probability, scale: Fraction, bit: int) -> int:
    return _expansion(probability, scale, bit, 1)[0]


@lru_cache(maxsize=4096)
def _expansion(probability: Probability, scale: Fraction, bit: int, count: int) -> tuple[int, ...]:
    """The first `count` 64-bit words of a probability's binary expansion, each of them exact.

    The decimal value is good to all but its last few digits; it is computed anew with more until the interval around
    it agrees on every word.
    """
    digits = 20 * count + 40
    while True:
        # exp turns an absolute error of its argument, below 10^4, into a relative error: ten digits are ample.
        value = Fraction(probability(scale, bit, Context(prec=digits)))
        margin = value / 10 ** (digits - 10)
        low, high = ((v.numerator << WORD_BITS * count) // v.denominator for v in (value - margin, value + margin))
        if low == high:
            return tuple(low >> (WORD_BITS * (count - 1 - i)) & (2**WORD_BITS - 1) for i in range(count))
        digits *= 2


# --- discrete Gaussian -----------------------------------------------------------------------------


def discrete_gaussian(sigma_squared: Fraction, count: int, words: Words | None = None) -> NDArray[np.int64]:
    """Draw `count` independent samples with P(X = x) proportional to exp(-x^2 / (2 sigma^2)), for every integer x.

    Exact, by rejection from discrete Laplace noise of scale t = floor(sigma) + 1 (Canonne, Kamath, Steinke 2020): a
    candidate Y is kept with probability exp(-(|Y| - sigma^2/t)^2 / (2 sigma^2)). NOT constant time: how many candidates
    are turned down, and the time that each one's probability takes, depend on the noise; only the trained comparators
    use it. docs/privacy.md section 9.
    """
    return _gaussian_from_stream(sigma_squared, count, _fresh_stream() if words is None else words)


def _gaussian_from_stream(sigma_squared: Fraction, count: int, words: Words) -> NDArray[np.int64]:
    """The sampler proper; `words` is a parameter so that test vectors can fix it.

    A round draws half as many candidates again as are missing, then one word for each; the first that pass are taken.
    """
    scale = _proposal_scale(sigma_squared)
    samples = np.empty(count, dtype=np.int64)
    filled = 0
    while filled < count:
        missing = count - filled
        candidates = np.zeros(min(GAUSSIAN_CHUNK, missing + missing // 2 + 1), dtype=np.int64)
        _add_from_stream(candidates, Fraction(scale), words)
        kept = candidates[_accepted(np.abs(candidates), sigma_squared, words)][:missing]
        samples[filled : filled + len(kept)] = kept
        filled += len(kept)
    return samples


def _proposal_scale(sigma_squared: Fraction) -> int:
    """The scale t = floor(sigma) + 1 of the candidates, a whole number."""
    if not MIN_SCALE**2 <= sigma_squared < MAX_SCALE**2:
        raise InvalidParameter(
            "the standard deviation of the noise must lie between 2^-16 and 2^40",
            hint="choose a larger epsilon, or fewer rows_per_user if there are many",
        )
    return isqrt(sigma_squared.numerator // sigma_squared.denominator) + 1


def _accepted(sizes: NDArray[np.int64], sigma_squared: Fraction, words: Words) -> NDArray[np.bool_]:
    """Which candidates to keep, decided exactly: a uniform number lies below the probability of keeping |Y|."""
    stream = words(len(sizes)).copy()
    distinct, where = np.unique(sizes, return_inverse=True)
    thresholds = np.array(_acceptance_words(sigma_squared, distinct.tolist()), dtype=np.uint64)[where]
    accepted: NDArray[np.bool_] = stream < thresholds
    for i in np.flatnonzero(stream == thresholds).tolist():
        size = int(sizes[i])
        certain = _acceptance_exponent(sigma_squared, size) == 0
        accepted[i] = certain or _lies_below(_acceptance_probability, sigma_squared, size, words, agreed=1)
    return accepted


def _acceptance_words(sigma_squared: Fraction, sizes: list[int]) -> list[int]:
    """The leading words of the probabilities of keeping; for probability 1, all bits set.

    Forty digits settle almost every one, with an error below 10^-11 of the last bit as long as the exponent is below
    10^9. What lies near a whole number is left to `_expansion`, and so is every larger exponent, whose word is 0.
    """
    scale, (top, bottom) = _proposal_scale(sigma_squared), sigma_squared.as_integer_ratio()
    context, whole, divisor = Context(prec=FAST_DIGITS), Decimal(2**WORD_BITS), Decimal(-2 * top * bottom * scale**2)
    leading = []
    for size in sizes:
        exponent = context.divide(Decimal((size * bottom * scale - top) ** 2), divisor)
        value = context.multiply(context.exp(exponent), whole)
        word = int(value)
        if exponent == 0:
            word = 2**WORD_BITS - 1
        elif not NEARLY < context.subtract(value, word) < 1 - NEARLY:
            word = _leading_word(_acceptance_probability, sigma_squared, size)
        leading.append(word)
    return leading


def _acceptance_exponent(sigma_squared: Fraction, size: int) -> Fraction:
    """(|Y| - sigma^2/t)^2 / (2 sigma^2), exactly."""
    return (size - sigma_squared / _proposal_scale(sigma_squared)) ** 2 / (2 * sigma_squared)


def _acceptance_probability(sigma_squared: Fraction, size: int, context: Context) -> Decimal:
    """P(a candidate of a given size is kept), with digits to spare for the size of the exponent."""
    exponent = _acceptance_exponent(sigma_squared, size)
    wide = Context(prec=context.prec + len(str(int(exponent))))
    return wide.exp(wide.divide(Decimal(-exponent.numerator), Decimal(exponent.denominator)))
