/* Masks: which rows of some pages match.
 *
 * In: columns of words or narrower values, validity bytes and bounds, all secret; how many rows, words and intervals
 * there are is public, and so are a column's type and whether it has a validity at all. Out: masks of 0 and 1, secret.
 * Values in one word are compared as narrow as they are. Nothing here branches on, or addresses memory by, a secret. */
#include "narrow.h"

SCUMBLE_VECTOR void scumble_mask_rows(int64_t start, size_t n, const int64_t *dummies, uint8_t *out)
{
    int64_t before = dummies[0] - start, after = dummies[1] - start;
    for (size_t i = 0; i < n; i++)
        out[i] = (uint8_t)(((int64_t)i < before) | ((int64_t)i >= after));
}

/* a < b and a == b of k words each, the first word first. */
SCUMBLE_INLINE void compare_words(const int64_t *a, const int64_t *b, size_t k, int64_t *less, int64_t *equal)
{
    int64_t below = 0, same = 1;
    for (size_t w = 0; w < k; w++) {
        below |= same & (int64_t)(a[w] < b[w]);
        same &= (int64_t)(a[w] == b[w]);
    }
    *less = below;
    *equal = same;
}

/* The same for rows of k words. Last word first, so that an earlier one overrules: then each step is one comparison
 * for many rows. */
SCUMBLE_VECTOR static void add_interval_words(const int64_t *restrict x, size_t k, size_t n,
                                              const int64_t *restrict bounds, uint8_t *restrict out)
{
    int64_t outside_low[PART], outside_high[PART];
    for (size_t at = 0; at < n; at += PART) {
        size_t rows = n - at < PART ? n - at : PART;
        for (size_t i = 0; i < rows; i++)
            outside_low[i] = outside_high[i] = 0;
        for (size_t w = k; w-- > 0;) {
            int64_t low = bounds[w], high = bounds[k + w];
            for (size_t i = 0; i < rows; i++) {
                int64_t word = x[(at + i) * k + w];
                outside_low[i] = -(int64_t)(word < low) | (-(int64_t)(word == low) & outside_low[i]);
                outside_high[i] = -(int64_t)(word > high) | (-(int64_t)(word == high) & outside_high[i]);
            }
        }
        for (size_t i = 0; i < rows; i++)
            out[at + i] |= (uint8_t)(1 + (outside_low[i] | outside_high[i]));
    }
}

/* out ^= flip, then where the row is null: out = null_matches. */
SCUMBLE_VECTOR static void finish_mask(const uint8_t *restrict valid, size_t n, uint8_t flip, uint8_t null_matches,
                                       uint8_t *restrict out)
{
    if (!valid)
        for (size_t i = 0; i < n; i++)
            out[i] ^= flip;
    else
        for (size_t i = 0; i < n; i++)
            out[i] = (uint8_t)(((out[i] ^ flip) & valid[i]) | (null_matches & (valid[i] ^ 1)));
}

void scumble_mask_intervals(const void *x, int type, size_t k, size_t n, const uint8_t *valid, const int64_t *bounds,
                            size_t m, int negated, int null_matches, uint8_t *out)
{
    int64_t room[BLOCK];
    for (size_t at = 0; at < n; at += BLOCK) {
        size_t rows = n - at < BLOCK ? n - at : BLOCK;
        const void *from = row_at(x, type, k, at);
        int read_as = type;
        if (type == SCUMBLE_FLOAT32) {
            from = scumble_block_words(from, type, rows, room);
            read_as = SCUMBLE_INT64;
        }
        for (size_t i = 0; i < rows; i++)
            out[at + i] = 0;
        for (size_t j = 0; j < m; j++)
            if (k == 1)
                scumble_narrow_interval(from, read_as, rows, bounds[2 * j], bounds[2 * j + 1], out + at);
            else
                add_interval_words(from, k, rows, bounds + 2 * j * k, out + at);
        finish_mask(valid ? valid + at : 0, rows, negated != 0, null_matches != 0, out + at);
    }
}

SCUMBLE_VECTOR static void compare_columns(const int64_t *restrict a, const int64_t *restrict b, size_t n, uint8_t less,
                                           uint8_t equal, uint8_t *restrict out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = (uint8_t)(((a[i] < b[i]) & less) | ((a[i] == b[i]) & equal));
}

void scumble_mask_compare(const void *a, int type_a, const void *b, int type_b, size_t k, size_t n,
                          const uint8_t *valid_a, const uint8_t *valid_b, int op, int negated, uint8_t *out)
{
    uint8_t less = op != SCUMBLE_EQ, equal = op != SCUMBLE_LT;
    int64_t room_a[BLOCK], room_b[BLOCK];
    for (size_t at = 0; at < n; at += BLOCK) {
        size_t rows = n - at < BLOCK ? n - at : BLOCK;
        const int64_t *from_a = scumble_block_words(row_at(a, type_a, k, at), type_a, rows, room_a);
        const int64_t *from_b = scumble_block_words(row_at(b, type_b, k, at), type_b, rows, room_b);
        if (k == 1)
            compare_columns(from_a, from_b, rows, less, equal, out + at);
        else
            for (size_t i = 0; i < rows; i++) {
                int64_t below, same;
                compare_words(from_a + i * k, from_b + i * k, k, &below, &same);
                out[at + i] = (uint8_t)((below & less) | (same & equal));
            }
        finish_mask(valid_a ? valid_a + at : 0, rows, negated != 0, 0, out + at);
        if (valid_b)
            finish_mask(valid_b + at, rows, 0, 0, out + at);
    }
}
