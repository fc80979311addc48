/* Masked swaps of whole rows, shared by the sort and the compaction.
 *
 * In: rows of `words` int64, and masks that are all ones (swap) or zero (leave), both secret. Out: the same rows. Both
 * rows are read and written whatever the mask says. Private to native/. */
#ifndef SCUMBLE_ROWS_H
#define SCUMBLE_ROWS_H

#include "native.h"

#define SCUMBLE_INLINE static inline __attribute__((always_inline))

/* All ones if a > b, else zero. */
SCUMBLE_INLINE int64_t mask_greater(int64_t a, int64_t b)
{
    return -(int64_t)(a > b);
}

/* The same mask, of which clang no longer knows that it is all ones or zero: where that would leave all as it is, it
 * jumps over the work. gcc does not, as `make verify` shows on its code, and computes masks of many rows at once if it
 * is left to see what they are. */
SCUMBLE_INLINE int64_t opaque(int64_t mask)
{
#if defined(__clang__)
    __asm__("" : "+r"(mask));
#endif
    return mask;
}

SCUMBLE_INLINE void swap_two(int64_t *a, int64_t *b, size_t words, int64_t mask)
{
    mask = opaque(mask);
#pragma GCC ivdep
    for (size_t w = 0; w < words; w++) {
        int64_t p = a[w], q = b[w], t = (p ^ q) & mask;
        a[w] = p ^ t;
        b[w] = q ^ t;
    }
}

/* Two layers of a network at once, which halves the loads and stores: (a, c) and (b, d), then (a, b) and (c, d). */
SCUMBLE_INLINE void swap_four(int64_t *a, int64_t *b, int64_t *c, int64_t *d, size_t words, int64_t ac, int64_t bd,
                              int64_t ab, int64_t cd)
{
    ac = opaque(ac), bd = opaque(bd), ab = opaque(ab), cd = opaque(cd);
#pragma GCC ivdep
    for (size_t w = 0; w < words; w++) {
        int64_t p = a[w], q = b[w], r = c[w], s = d[w];
        int64_t pr = (p ^ r) & ac, qs = (q ^ s) & bd;
        p ^= pr;
        r ^= pr;
        q ^= qs;
        s ^= qs;
        int64_t pq = (p ^ q) & ab, rs = (r ^ s) & cd;
        a[w] = p ^ pq;
        b[w] = q ^ pq;
        c[w] = r ^ rs;
        d[w] = s ^ rs;
    }
}

/* Sorts keys that fall, then rise. */
void scumble_merge_falling(int64_t *keys, size_t n);

#endif
