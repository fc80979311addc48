/* Oblivious compaction, and the true curve that is made with it.
 *
 * In: rows and their flags, or sorted keys, all secret. Out: the flagged rows at the front in their order, or the
 * number of keys at or below every rank; secret too. What is done depends on the numbers of rows and ranks alone.
 *
 * The compaction is ORCompact of Sasy, Johnson and Goldberg, "Fast Fully Oblivious Compaction and Shuffling" (2022):
 * both halves are compacted, cyclically shifted so that the flagged rows of the second follow those of the first, and
 * one layer of swaps joins them. n log n / 2 swaps, no scratch. */
#include "rows.h"

/* How a layer joins two halves of `half` rows: all ones in `crossed` swaps before `turn` and leaves after it, zero the
 * other way round. */
typedef struct {
    int64_t crossed, turn;
} seam;

/* All ones if row i of the first half changes places with row i of the second. A comparison, not the sign of i - turn:
 * of that gcc makes the loop's counter, and so a secret that ends the loop. */
SCUMBLE_INLINE int64_t swapped(seam s, int64_t i)
{
    return ~(s.crossed ^ mask_greater(s.turn, i));
}

/* The seam of 2 * half rows whose flagged ones shall start at `offset`, `flagged` of them from the first half. `half`,
 * a power of two, is public: it alone decides the shift. */
SCUMBLE_INLINE seam join(int64_t half, int64_t offset, int64_t flagged)
{
    int shift = __builtin_ctzll((unsigned long long)half);
    int64_t wraps = (((offset & (half - 1)) + flagged) ^ offset) >> shift & 1;
    return (seam){-wraps, (offset + flagged) & (half - 1)};
}

SCUMBLE_VECTOR static int64_t count_flags(const uint8_t *flags, size_t n)
{
    int64_t total = 0;
    size_t i = 0;
    /* Sums of up to 128 flags fit a byte: 32 of them side by side. */
    while (n - i >= 32) {
        size_t rounds = (n - i) / 32 < 128 ? (n - i) / 32 : 128;
        uint8_t sums[32] = {0};
        for (size_t round = 0; round < rounds; round++, i += 32)
            for (size_t lane = 0; lane < 32; lane++)
                sums[lane] = (uint8_t)(sums[lane] + flags[i + lane]);
        for (size_t lane = 0; lane < 32; lane++)
            total += sums[lane];
    }
    for (; i < n; i++)
        total += flags[i];
    return total;
}

SCUMBLE_INLINE void join_rows(int64_t *rows, int64_t count, size_t words, int64_t apart, seam s)
{
    for (int64_t i = 0; i < count; i++, rows += words)
        swap_two(rows, rows + (size_t)apart * words, words, swapped(s, i));
}

/* Two layers at once over four quarters: `left` and `right` join two each, `whole` joins the halves. */
SCUMBLE_INLINE void join_quarters(int64_t *rows, int64_t quarter, size_t words, seam left, seam right, seam whole)
{
    size_t step = (size_t)quarter * words;
    int64_t *a = rows, *b = a + step, *c = b + step, *d = c + step;
    for (int64_t i = 0; i < quarter; i++, a += words, b += words, c += words, d += words)
        swap_four(a, c, b, d, words, swapped(left, i), swapped(right, i), swapped(whole, i),
                  swapped(whole, i + quarter));
}

SCUMBLE_INLINE void join_words(int64_t *rows, int64_t quarter, seam left, seam right, seam whole)
{
    int64_t *a = rows, *b = a + quarter, *c = b + quarter, *d = c + quarter;
#pragma GCC ivdep
    for (int64_t i = 0; i < quarter; i++) {
        int64_t p = a[i], q = b[i], r = c[i], s = d[i];
        int64_t pq = (p ^ q) & swapped(left, i), rs = (r ^ s) & swapped(right, i);
        p ^= pq;
        q ^= pq;
        r ^= rs;
        s ^= rs;
        int64_t pr = (p ^ r) & swapped(whole, i), qs = (q ^ s) & swapped(whole, i + quarter);
        a[i] = p ^ pr;
        b[i] = q ^ qs;
        c[i] = r ^ pr;
        d[i] = s ^ qs;
    }
}

SCUMBLE_VECTOR static void join_two(int64_t *rows, int64_t half, size_t words, int64_t count, seam s)
{
    join_rows(rows, count, words, half, s);
}

SCUMBLE_VECTOR static void join_four(int64_t *rows, int64_t quarter, size_t words, seam left, seam right, seam whole)
{
    switch (words) {
    case 1: join_words(rows, quarter, left, right, whole); break;
    case 9: join_quarters(rows, quarter, 9, left, right, whole); break;
    default: join_quarters(rows, quarter, words, left, right, whole);
    }
}

/* Compacts n rows, a power of two, so that the flagged ones start at `offset` and, past the end, go on at the front. */
static void compact_power(int64_t *rows, const uint8_t *flags, int64_t n, size_t words, int64_t offset)
{
    int64_t half = n / 2, quarter = n / 4;
    if (n < 2)
        return;
    if (n == 2) {
        join_two(rows, 1, words, 1, join(1, offset, flags[0]));
        return;
    }
    int64_t counts[3];
    for (int part = 0; part < 3; part++)
        counts[part] = count_flags(flags + part * quarter, (size_t)quarter);
    int64_t flagged = counts[0] + counts[1], second = (offset + flagged) & (half - 1), first = offset & (half - 1);
    int64_t offsets[4] = {first, first + counts[0], second, second + counts[2]};
    for (int64_t part = 0; part < 4; part++)
        compact_power(rows + (size_t)(part * quarter) * words, flags + part * quarter, quarter, words,
                      offsets[part] & (quarter - 1));
    join_four(rows, quarter, words, join(quarter, first, counts[0]), join(quarter, second, counts[2]),
              join(half, offset, flagged));
}

/* Any n: the last power of two of them are compacted to where the rest, compacted first, leave room. */
static void compact_any(int64_t *rows, const uint8_t *flags, int64_t n, size_t words)
{
    int64_t power = 1;
    while (2 * power <= n)
        power *= 2;
    int64_t rest = n - power;
    if (rest == 0) {
        compact_power(rows, flags, n, words, 0);
        return;
    }
    int64_t flagged = count_flags(flags, (size_t)rest);
    compact_any(rows, flags, rest, words);
    compact_power(rows + (size_t)rest * words, flags + rest, power, words, (power - rest + flagged) & (power - 1));
    join_two(rows, power, words, rest, (seam){0, flagged});
}

void scumble_compact(int64_t *rows, uint8_t *flags, size_t n, size_t words)
{
    if (n == 0)
        return;
    int64_t flagged = count_flags(flags, n);
    compact_any(rows, flags, (int64_t)n, words);
    for (int64_t i = 0; i < (int64_t)n; i++)
        flags[i] = (uint8_t)(i < flagged);
}

/* Marker r stands for rank r: the keys before it in the merged order are those at or below r. Keys become even words,
 * markers odd ones; a key that counts nowhere lies beyond the last marker. The markers fall and the keys rise, which
 * is what a merge wants. */
void scumble_curve(const int64_t *keys, size_t n, size_t ranks, int64_t *scratch, int64_t *out)
{
    size_t both = n + ranks;
    uint8_t *flags = (uint8_t *)(scratch + both);
    int64_t least = -1, most = (int64_t)ranks, seen = 0;
    for (size_t r = 0; r < ranks; r++)
        scratch[r] = 2 * (int64_t)(ranks - 1 - r) + 1;
    for (size_t i = 0; i < n; i++) {
        int64_t key = keys[i], above = mask_greater(key, most), below = mask_greater(least, key);
        scratch[ranks + i] = 2 * ((key & ~above & ~below) | (most & above) | (least & below));
    }
    scumble_merge_falling(scratch, both);
    for (size_t i = 0; i < both; i++) {
        flags[i] = (uint8_t)(scratch[i] & 1);
        seen += 1 - flags[i];
        scratch[i] = seen;
    }
    scumble_compact(scratch, flags, both, 1);
    for (size_t r = 0; r < ranks; r++)
        out[r] = scratch[r];
}
