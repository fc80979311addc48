/* Exact 128-bit arithmetic over columns, for expressions such as price * (100 - discount).
 *
 * In: columns of 128-bit values as pairs of words, least first, or of narrower ones to be loaded, and a mask, all
 * secret. Out: such columns, and whether any row under the mask left 128 bits: one byte, only ever set, secret until
 * the enclave says so. Carries and signs are spelt out in arithmetic; nothing branches on a value. */
#include "narrow.h"

typedef unsigned __int128 wide;

SCUMBLE_INLINE wide get(const int64_t *at)
{
    return (wide)(uint64_t)at[1] << 64 | (uint64_t)at[0];
}

SCUMBLE_INLINE void put(int64_t *at, wide value)
{
    at[0] = (int64_t)(uint64_t)value;
    at[1] = (int64_t)(uint64_t)(value >> 64);
}

/* 1 if the value is negative as a signed one. */
SCUMBLE_INLINE uint64_t sign(wide value)
{
    return (uint64_t)(value >> 127);
}

/* 1 if any bit is set. */
SCUMBLE_INLINE uint64_t any(uint64_t bits)
{
    return (bits | -bits) >> 63;
}

SCUMBLE_VECTOR static void load_words(const int64_t *restrict x, size_t n, int64_t *restrict out)
{
    for (size_t i = 0; i < n; i++) {
        out[2 * i] = x[i];
        out[2 * i + 1] = -(int64_t)(x[i] < 0);
    }
}

void scumble_wide_load(const void *x, int type, size_t n, int64_t *out)
{
    int64_t room[BLOCK];
    for (size_t at = 0; at < n; at += BLOCK) {
        size_t rows = n - at < BLOCK ? n - at : BLOCK;
        load_words(scumble_block_words(row_at(x, type, 1, at), type, rows, room), rows, out + 2 * at);
    }
}

SCUMBLE_VECTOR void scumble_wide_fill(int64_t low, int64_t high, size_t n, int64_t *out)
{
    for (size_t i = 0; i < n; i++) {
        out[2 * i] = low;
        out[2 * i + 1] = high;
    }
}

void scumble_wide_add(const int64_t *a, const int64_t *b, const uint8_t *mask, size_t n, int64_t *out,
                      uint8_t *overflow)
{
    uint64_t left = 0;
    for (size_t i = 0; i < n; i++) {
        wide p = get(a + 2 * i), q = get(b + 2 * i), sum = p + q;
        left |= sign((p ^ sum) & (q ^ sum)) & mask[i];
        put(out + 2 * i, sum);
    }
    *overflow |= (uint8_t)left;
}

void scumble_wide_subtract(const int64_t *a, const int64_t *b, const uint8_t *mask, size_t n, int64_t *out,
                           uint8_t *overflow)
{
    uint64_t left = 0;
    for (size_t i = 0; i < n; i++) {
        wide p = get(a + 2 * i), q = get(b + 2 * i), rest = p - q;
        left |= sign((p ^ q) & (p ^ rest)) & mask[i];
        put(out + 2 * i, rest);
    }
    *overflow |= (uint8_t)left;
}

/* Magnitudes are multiplied as four products of words; all that lies above 128 bits, and a magnitude that its sign
 * cannot hold, is overflow. */
void scumble_wide_multiply(const int64_t *a, const int64_t *b, const uint8_t *mask, size_t n, int64_t *out,
                           uint8_t *overflow)
{
    uint64_t left = 0;
    for (size_t i = 0; i < n; i++) {
        wide p = get(a + 2 * i), q = get(b + 2 * i);
        wide minus_p = -(wide)sign(p), minus_q = -(wide)sign(q), minus = minus_p ^ minus_q;
        p = (p ^ minus_p) - minus_p;
        q = (q ^ minus_q) - minus_q;
        uint64_t p0 = (uint64_t)p, p1 = (uint64_t)(p >> 64), q0 = (uint64_t)q, q1 = (uint64_t)(q >> 64);
        wide low = (wide)p0 * q0, cross = (wide)p0 * q1, cross_back = (wide)p1 * q0, top = (wide)p1 * q1;
        wide middle = (low >> 64) + (uint64_t)cross + (uint64_t)cross_back;
        uint64_t beyond = (uint64_t)(middle >> 64) | (uint64_t)(cross >> 64) | (uint64_t)(cross_back >> 64) |
                          (uint64_t)top | (uint64_t)(top >> 64);
        wide size = middle << 64 | (uint64_t)low, product = (size ^ minus) - minus;
        /* -2^127 fits, 2^127 does not: the product's sign must be the one asked for, or the product zero. */
        uint64_t wrong = (sign(product) ^ (uint64_t)(minus & 1)) & any((uint64_t)size | (uint64_t)(size >> 64));
        left |= (any(beyond) | wrong) & mask[i];
        put(out + 2 * i, product);
    }
    *overflow |= (uint8_t)left;
}
