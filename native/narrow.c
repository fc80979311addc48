/* Narrow columns: masks, sums and extremes of values of 1, 2, 4 or 8 bytes, with a sign or without.
 *
 * In: values as pages have them, their masks, null bits and bounds, all secret; how many there are, their type and a
 * page's shape are public. Out: what narrow.h says, pages taken apart into values and validities, and group codes. A
 * vector holds eight times as many bytes as words, so that each loop is written once and made for every width. Nothing
 * here branches on, or addresses memory by, a secret. */
#include "narrow.h"

#include <string.h>

static const uint8_t VALUE_BYTES[] = {
    [SCUMBLE_INT8] = 1,  [SCUMBLE_INT16] = 2,  [SCUMBLE_INT32] = 4,  [SCUMBLE_INT64] = 8,
    [SCUMBLE_UINT8] = 1, [SCUMBLE_UINT16] = 2, [SCUMBLE_UINT32] = 4, [SCUMBLE_FLOAT32] = 4,
};

size_t scumble_value_bytes(int type)
{
    return VALUE_BYTES[type];
}

/* a where the mask is all ones, b where it is zero. */
SCUMBLE_INLINE int64_t chosen(int64_t mask, int64_t a, int64_t b)
{
    return (a & mask) | (b & ~mask);
}

SCUMBLE_INLINE int64_t least_of(int64_t a, int64_t b)
{
    return chosen(opaque(-(int64_t)(a < b)), a, b);
}

SCUMBLE_INLINE int64_t most_of(int64_t a, int64_t b)
{
    return chosen(opaque(-(int64_t)(a > b)), a, b);
}

/* The bounds are clamped to those of the type before they are narrowed; an interval that lies outside it holds
 * nothing. */
#define INTERVAL(name, value, least, most) \
    SCUMBLE_VECTOR static void interval_##name(const value *restrict x, size_t n, int64_t from, int64_t to, \
                                               uint8_t *restrict out) \
    { \
        uint8_t meets = (uint8_t)((from <= (int64_t)(most)) & (to >= (int64_t)(least))); \
        value low = (value)least_of(most_of(from, least), most), high = (value)most_of(least_of(to, most), least); \
        for (size_t i = 0; i < n; i++) \
            out[i] |= (uint8_t)((x[i] >= low) & (x[i] <= high) & meets); \
    }

#define WORDS(name, value) \
    SCUMBLE_VECTOR static void words_##name(const value *restrict x, size_t n, int64_t *restrict out) \
    { \
        for (size_t i = 0; i < n; i++) \
            out[i] = (int64_t)x[i]; \
    }

/* A block's sum fits `total`: 32 bits for values of at most 16, 64 for those of 32. */
#define SUM(name, value, total) \
    SCUMBLE_VECTOR static int64_t sum_##name(const value *restrict x, const uint8_t *restrict mask, size_t n) \
    { \
        total sum = 0; \
        for (size_t i = 0; i < n; i++) \
            sum += (total)(value)(x[i] & (value)(-mask[i])); \
        return (int64_t)sum; \
    }

/* A row outside the mask is as if it had the type's greatest value for the least, and the least for the greatest; if no
 * row is within, `out` stays as it is. */
#define EXTREMES(name, value, least, most) \
    SCUMBLE_VECTOR static void extremes_##name(const value *restrict x, const uint8_t *restrict mask, size_t n, \
                                               int64_t *restrict out) \
    { \
        value low = (value)(most), high = (value)(least); \
        uint8_t any = 0; \
        for (size_t i = 0; i < n; i++) { \
            value live = (value)(-mask[i]), hidden = (value)~live; \
            value below = (value)((x[i] & live) | ((value)(most) & hidden)); \
            value above = (value)((x[i] & live) | ((value)(least) & hidden)); \
            low = below < low ? below : low; \
            high = above > high ? above : high; \
            any |= mask[i]; \
        } \
        int64_t some = opaque(-(int64_t)any); \
        out[0] = least_of(out[0], chosen(some, (int64_t)low, INT64_MAX)); \
        out[1] = most_of(out[1], chosen(some, (int64_t)high, INT64_MIN)); \
    }

#define NARROW(name, value, total, least, most) \
    INTERVAL(name, value, least, most) \
    WORDS(name, value) \
    SUM(name, value, total) \
    EXTREMES(name, value, least, most)
NARROW(int8, int8_t, int32_t, INT8_MIN, INT8_MAX)
NARROW(int16, int16_t, int32_t, INT16_MIN, INT16_MAX)
NARROW(int32, int32_t, int64_t, INT32_MIN, INT32_MAX)
NARROW(uint8, uint8_t, int32_t, 0, UINT8_MAX)
NARROW(uint16, uint16_t, int32_t, 0, UINT16_MAX)
NARROW(uint32, uint32_t, int64_t, 0, (int64_t)UINT32_MAX)
INTERVAL(int64, int64_t, INT64_MIN, INT64_MAX)

/* The word of the float as a double, in the order of the floats (types/float.py). The processor may take longer over
 * subnormal numbers; it shows in no address and no branch. */
SCUMBLE_VECTOR static void words_float32(const float *restrict x, size_t n, int64_t *restrict out)
{
    for (size_t i = 0; i < n; i++) {
        union {
            double value;
            int64_t word;
        } both = {x[i]};
        out[i] = both.word ^ (-(int64_t)(both.word < 0) & INT64_MAX);
    }
}

const int64_t *scumble_block_words(const void *x, int type, size_t n, int64_t *room)
{
    switch (type) {
    case SCUMBLE_INT8: words_int8(x, n, room); break;
    case SCUMBLE_INT16: words_int16(x, n, room); break;
    case SCUMBLE_INT32: words_int32(x, n, room); break;
    case SCUMBLE_UINT8: words_uint8(x, n, room); break;
    case SCUMBLE_UINT16: words_uint16(x, n, room); break;
    case SCUMBLE_UINT32: words_uint32(x, n, room); break;
    case SCUMBLE_FLOAT32: words_float32(x, n, room); break;
    default: return x;
    }
    return room;
}

void scumble_narrow_interval(const void *x, int type, size_t n, int64_t low, int64_t high, uint8_t *out)
{
    switch (type) {
    case SCUMBLE_INT8: interval_int8(x, n, low, high, out); break;
    case SCUMBLE_INT16: interval_int16(x, n, low, high, out); break;
    case SCUMBLE_INT32: interval_int32(x, n, low, high, out); break;
    case SCUMBLE_UINT8: interval_uint8(x, n, low, high, out); break;
    case SCUMBLE_UINT16: interval_uint16(x, n, low, high, out); break;
    case SCUMBLE_UINT32: interval_uint32(x, n, low, high, out); break;
    default: interval_int64(x, n, low, high, out);
    }
}

int64_t scumble_narrow_sum(const void *x, int type, const uint8_t *mask, size_t n)
{
    switch (type) {
    case SCUMBLE_INT8: return sum_int8(x, mask, n);
    case SCUMBLE_INT16: return sum_int16(x, mask, n);
    case SCUMBLE_INT32: return sum_int32(x, mask, n);
    case SCUMBLE_UINT8: return sum_uint8(x, mask, n);
    case SCUMBLE_UINT16: return sum_uint16(x, mask, n);
    default: return sum_uint32(x, mask, n);
    }
}

void scumble_narrow_extremes(const void *x, int type, const uint8_t *mask, size_t n, int64_t *out)
{
    switch (type) {
    case SCUMBLE_INT8: extremes_int8(x, mask, n, out); break;
    case SCUMBLE_INT16: extremes_int16(x, mask, n, out); break;
    case SCUMBLE_INT32: extremes_int32(x, mask, n, out); break;
    case SCUMBLE_UINT8: extremes_uint8(x, mask, n, out); break;
    case SCUMBLE_UINT16: extremes_uint16(x, mask, n, out); break;
    default: extremes_uint32(x, mask, n, out);
    }
}

/* Byte b of the `eighth` bytes has in bit j that of row j eighth + b. A table of bits, as numpy's, would be read at
 * secret addresses. */
SCUMBLE_VECTOR static void unpack_bits(const uint8_t *restrict bits, size_t eighth, uint8_t *restrict out)
{
    for (int j = 0; j < 8; j++, out += eighth)
        for (size_t b = 0; b < eighth; b++)
            out[b] = (uint8_t)(bits[b] >> j & 1);
}

void scumble_split_pages(uint8_t *pages, size_t count, size_t page_bytes, size_t value_bytes, uint8_t *valid)
{
    size_t eighth = page_bytes - value_bytes;
    for (size_t page = 0; page < count; page++) {
        const uint8_t *from = pages + page * page_bytes;
        unpack_bits(from + value_bytes, eighth, valid + page * 8 * eighth);
        memmove(pages + page * value_bytes, from, value_bytes); /* leaves what comes after this page as it is */
    }
}

SCUMBLE_VECTOR static void append_digit(const int64_t *restrict digits, const uint8_t *restrict valid, size_t n,
                                        int64_t size, int32_t *restrict codes)
{
    for (size_t i = 0; i < n; i++) {
        int64_t live = valid ? -(int64_t)valid[i] : -1;
        uint32_t digit = (uint32_t)chosen(live, digits[i], size - 1);
        codes[i] = (int32_t)((uint32_t)codes[i] * (uint32_t)size + digit);
    }
}

void scumble_append_codes(const void *x, int type, const uint8_t *valid, size_t n, int64_t size, int32_t *codes)
{
    int64_t room[BLOCK];
    for (size_t at = 0; at < n; at += BLOCK) {
        size_t rows = n - at < BLOCK ? n - at : BLOCK;
        const int64_t *digits = scumble_block_words(row_at(x, type, 1, at), type, rows, room);
        append_digit(digits, valid ? valid + at : 0, rows, size, codes + at);
    }
}
