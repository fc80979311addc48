/* Columns as pages have them: values of 1, 2, 4 or 8 bytes, read where they lie. Private to native/.
 *
 * In: a column's first value and, public, its type; masks of 0 and 1 and bounds, secret like the values. Out: masks,
 * sums and extremes of a block, or the block's values as words for kernels that need these. */
#ifndef SCUMBLE_NARROW_H
#define SCUMBLE_NARROW_H

#include "rows.h"

/* Rows in a block: their words and masks stay in the first cache. Sums in 32 bits rely on it. */
enum { BLOCK = 1024 };

/* Rows whose comparisons of several words are under way at once. */
enum { PART = 256 };

/* The bytes of a value. */
size_t scumble_value_bytes(int type);

/* Where row `row` begins, of k values each; of no column, nowhere. */
SCUMBLE_INLINE const void *row_at(const void *x, int type, size_t k, size_t row)
{
    return x ? (const uint8_t *)x + row * k * scumble_value_bytes(type) : 0;
}

/* The words of at most BLOCK values: `x` itself if it has words, else they are written to `room`. */
const int64_t *scumble_block_words(const void *x, int type, size_t n, int64_t *room);

/* out |= low <= x <= high. For all types but SCUMBLE_FLOAT32, as are the next two. */
void scumble_narrow_interval(const void *x, int type, size_t n, int64_t low, int64_t high, uint8_t *out);

/* The sum of at most BLOCK values of at most 4 bytes under the mask. */
int64_t scumble_narrow_sum(const void *x, int type, const uint8_t *mask, size_t n);

/* out[0] and out[1], the least and the greatest value so far, with those of at most 4 bytes under the mask. */
void scumble_narrow_extremes(const void *x, int type, const uint8_t *mask, size_t n, int64_t *out);

#endif
