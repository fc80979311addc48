/* Aggregates of columns, alone and by groups.
 *
 * In: columns of words or narrower values, masks, validity bytes and group codes, all secret; how many rows, words and
 * groups there are is public, and so are a column's type and whether it has a validity at all. Out: counts, sums and
 * extremes, secret until the enclave answers with them. Nothing here branches on, or addresses memory by, a secret.
 *
 * What is asked most of narrow values, narrow.c reads as they are; the rest has them widened a block at a time. Every
 * aggregate is one function over a block of rows under a mask. Over a table it runs block by block; over groups
 * it runs for each block and each group, under the mask of that group's rows, so that every row meets every group. */
#include "narrow.h"

/* An aggregate of a block. x has k words a row, out is added to. */
typedef void aggregate(const int64_t *x, size_t k, const uint8_t *mask, size_t n, void *out);

/* out += value, both of `words` words, least first, two's complement. */
SCUMBLE_INLINE void add_words(int64_t *out, const uint64_t *value, size_t words)
{
    unsigned __int128 carry = 0;
    for (size_t w = 0; w < words; w++) {
        carry += (unsigned __int128)(uint64_t)out[w] + value[w];
        out[w] = (int64_t)(uint64_t)carry;
        carry >>= 64;
    }
}

/* A block's flags are at most BLOCK / 32 to a lane, which fits a byte. */
SCUMBLE_INLINE int64_t count_block(const uint8_t *mask, size_t n)
{
    uint8_t sums[32] = {0};
    int64_t total = 0;
    size_t i = 0;
    for (; n - i >= 32; i += 32)
        for (size_t lane = 0; lane < 32; lane++)
            sums[lane] = (uint8_t)(sums[lane] + mask[i + lane]);
    for (size_t lane = 0; lane < 32; lane++)
        total += sums[lane];
    for (; i < n; i++)
        total += mask[i];
    return total;
}

SCUMBLE_VECTOR static void add_count(const int64_t *x, size_t k, const uint8_t *mask, size_t n, void *out)
{
    (void)x;
    (void)k;
    *(int64_t *)out += count_block(mask, n);
}

SCUMBLE_INLINE void add_signed(int64_t *out, int64_t value)
{
    uint64_t words[2] = {(uint64_t)value, -((uint64_t)value >> 63)};
    add_words(out, words, 2);
}

/* The words are taken as unsigned ones 2^63 too great, in two halves that cannot overflow; the excess of all of them
 * is subtracted once. */
SCUMBLE_VECTOR static void add_sum(const int64_t *x, size_t k, const uint8_t *mask, size_t n, void *out)
{
    uint64_t low = 0, high = 0;
    (void)k;
    for (size_t i = 0; i < n; i++) {
        uint64_t word = ((uint64_t)x[i] ^ (uint64_t)1 << 63) & -(uint64_t)mask[i];
        low += word & UINT32_MAX;
        high += word >> 32;
    }
    __int128 excess = (__int128)count_block(mask, n) << 63;
    unsigned __int128 sum = ((unsigned __int128)high << 32) + low - (unsigned __int128)excess;
    uint64_t words[2] = {(uint64_t)sum, (uint64_t)(sum >> 64)};
    add_words(out, words, 2);
}

/* |x| = a 2^32 + b, and x^2 = a^2 2^64 + 2 a b 2^32 + b^2: the sums of the halves of the three products. */
SCUMBLE_VECTOR static void add_squares(const int64_t *x, size_t k, const uint8_t *mask, size_t n, void *out)
{
    uint64_t aa_low = 0, aa_high = 0, ab_low = 0, ab_high = 0, bb_low = 0, bb_high = 0;
    (void)k;
    for (size_t i = 0; i < n; i++) {
        uint64_t word = (uint64_t)x[i] & -(uint64_t)mask[i], sign = -(word >> 63);
        word = (word ^ sign) - sign;
        uint32_t a = (uint32_t)(word >> 32), b = (uint32_t)word;
        uint64_t aa = (uint64_t)a * a, ab = (uint64_t)a * b, bb = (uint64_t)b * b;
        aa_low += (uint32_t)aa;
        aa_high += aa >> 32;
        ab_low += (uint32_t)ab;
        ab_high += ab >> 32;
        bb_low += (uint32_t)bb;
        bb_high += bb >> 32;
    }
    unsigned __int128 aa = ((unsigned __int128)aa_high << 32) + aa_low;
    unsigned __int128 ab = ((unsigned __int128)ab_high << 32) + ab_low;
    unsigned __int128 bb = ((unsigned __int128)bb_high << 32) + bb_low;
    /* A block's sums are below 2^74: shifted by 33 bits they still fit. */
    unsigned __int128 rest = bb + (ab << 33), top = aa + (rest >> 64);
    uint64_t words[3] = {(uint64_t)rest, (uint64_t)top, (uint64_t)(top >> 64)};
    add_words(out, words, 3);
}

/* A word, or the greatest of all words if its row is hidden. */
SCUMBLE_INLINE int64_t unless_hidden(int64_t word, int64_t hidden)
{
    return (word | hidden) ^ (hidden & INT64_MIN);
}

/* As a minimum, which gcc keeps side by side in a vector, or moves conditionally; it makes no jump of it. */
SCUMBLE_INLINE int64_t lesser(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* out: k words of the least row, k words of the greatest. Word by word: rows that have not the least, or greatest, word
 * of those not yet hidden are hidden from then on. What `out` holds already competes as one more row. */
SCUMBLE_INLINE void narrow_extremes(const int64_t *restrict x, size_t k, const uint8_t *restrict mask, size_t n,
                                    int64_t *restrict out)
{
    int64_t low_hidden[PART], high_hidden[PART], low_out = 0, high_out = 0;
    for (size_t i = 0; i < n; i++)
        low_hidden[i] = high_hidden[i] = (int64_t)mask[i] - 1;
    for (size_t w = 0; w < k; w++) {
        /* The greatest is the complement of the least complement. */
        int64_t low = unless_hidden(out[w], low_out), high = unless_hidden(~out[k + w], high_out);
        for (size_t i = 0; i < n; i++) {
            low = lesser(low, unless_hidden(x[i * k + w], low_hidden[i]));
            high = lesser(high, unless_hidden(~x[i * k + w], high_hidden[i]));
        }
        for (size_t i = 0; w + 1 < k && i < n; i++) {
            low_hidden[i] |= opaque(-(int64_t)(x[i * k + w] != low));
            high_hidden[i] |= opaque(-(int64_t)(x[i * k + w] != ~high));
        }
        low_out |= opaque(-(int64_t)(out[w] != low));
        high_out |= opaque(-(int64_t)(out[k + w] != ~high));
        out[w] = low;
        out[k + w] = ~high;
    }
}

SCUMBLE_VECTOR static void add_extremes(const int64_t *x, size_t k, const uint8_t *mask, size_t n, void *out)
{
    for (size_t at = 0; at < n; at += PART) {
        size_t rows = n - at < PART ? n - at : PART;
        switch (k) {
        case 1: narrow_extremes(x + at, 1, mask + at, rows, out); break;
        case 2: narrow_extremes(x + at * 2, 2, mask + at, rows, out); break;
        default: narrow_extremes(x + at * k, k, mask + at, rows, out);
        }
    }
}

/* Sums of doubles are kept as two doubles: `high` is what plain addition gives, infinities and NaN included, `low` what
 * it rounds away. LANES sums run side by side, which fixes the order of addition on every machine. The processor may
 * take longer over subnormal numbers; it shows in no address and no branch. */
enum { LANES = 16 };

typedef struct {
    double high[LANES], low[LANES];
} double_sums;

SCUMBLE_INLINE void two_sum(double *high, double *low, double value)
{
    double sum = *high + value, part = sum - *high;
    *low += (*high - (sum - part)) + (value - part);
    *high = sum;
}

/* The word's double, +0.0 outside the mask: the bits are masked, for a product with zero would keep a NaN. */
SCUMBLE_INLINE double unmask_double(int64_t word, uint8_t mask)
{
    union {
        int64_t word;
        double value;
    } both = {(word ^ (-(int64_t)(word < 0) & INT64_MAX)) & -(int64_t)mask};
    return both.value;
}

/* x^2 = square + error, exactly, unless it overflows or underflows; Dekker's product, for machines without fma. */
SCUMBLE_INLINE void two_square(double x, double *square, double *error)
{
    double scaled = 134217729.0 * x, head = scaled - (scaled - x), tail = x - head;
    *square = x * x;
    *error = ((head * head - *square) + 2 * head * tail) + tail * tail;
}

SCUMBLE_INLINE void close_sums(const double_sums *sums, double *out)
{
    union {
        double value;
        uint64_t bits;
    } high = {out[0]}, low = {out[1]};
    for (size_t lane = 0; lane < LANES; lane++) {
        low.value += sums->low[lane];
        two_sum(&high.value, &low.value, sums->high[lane]);
    }
    /* Infinity minus infinity made `low` a NaN, which says nothing: it is dropped where `high` is not finite. */
    uint64_t exponent = high.bits >> 52 & 0x7ff;
    low.bits &= -((exponent - 0x7ff) >> 63);
    out[0] = high.value;
    out[1] = low.value;
}

SCUMBLE_VECTOR static void add_doubles(const int64_t *x, size_t k, const uint8_t *mask, size_t n, void *out)
{
    double_sums sums = {{0}, {0}};
    size_t i = 0;
    (void)k;
    for (; n - i >= LANES; i += LANES)
        for (size_t lane = 0; lane < LANES; lane++)
            two_sum(&sums.high[lane], &sums.low[lane], unmask_double(x[i + lane], mask[i + lane]));
    for (size_t lane = 0; i + lane < n; lane++)
        two_sum(&sums.high[lane], &sums.low[lane], unmask_double(x[i + lane], mask[i + lane]));
    close_sums(&sums, out);
}

SCUMBLE_VECTOR static void add_double_squares(const int64_t *x, size_t k, const uint8_t *mask, size_t n, void *out)
{
    double_sums sums = {{0}, {0}};
    double square, error;
    size_t i = 0;
    (void)k;
    for (; n - i >= LANES; i += LANES)
        for (size_t lane = 0; lane < LANES; lane++) {
            two_square(unmask_double(x[i + lane], mask[i + lane]), &square, &error);
            two_sum(&sums.high[lane], &sums.low[lane], square);
            sums.low[lane] += error;
        }
    for (size_t lane = 0; i + lane < n; lane++) {
        two_square(unmask_double(x[i + lane], mask[i + lane]), &square, &error);
        two_sum(&sums.high[lane], &sums.low[lane], square);
        sums.low[lane] += error;
    }
    close_sums(&sums, out);
}

/* 128-bit values, least word first; their sum takes 192 bits. */
SCUMBLE_VECTOR static void add_wide_sum(const int64_t *x, size_t k, const uint8_t *mask, size_t n, void *out)
{
    unsigned __int128 low = 0;
    __int128 high = 0;
    (void)k;
    for (size_t i = 0; i < n; i++) {
        int64_t live = -(int64_t)mask[i];
        low += (uint64_t)(x[2 * i] & live);
        high += x[2 * i + 1] & live;
    }
    unsigned __int128 top = (unsigned __int128)high + (low >> 64);
    uint64_t words[3] = {(uint64_t)low, (uint64_t)top, (uint64_t)(top >> 64)};
    add_words(out, words, 3);
}

/* A block's aggregate of values that are narrower than words. */
typedef void narrow_aggregate(const void *x, int type, const uint8_t *mask, size_t n, int64_t *out);

static void add_narrow_sum(const void *x, int type, const uint8_t *mask, size_t n, int64_t *out)
{
    add_signed(out, scumble_narrow_sum(x, type, mask, n));
}

/* Each aggregate's function, that for integers narrower than words if there is one, the words that it reads of a row, 0
 * for any number, and those of its result, 0 for twice the row's. */
static const struct {
    aggregate *run;
    narrow_aggregate *narrow;
    size_t reads, writes;
} AGGREGATES[] = {
    [SCUMBLE_COUNT] = {add_count, 0, 0, 1},
    [SCUMBLE_SUM] = {add_sum, add_narrow_sum, 1, 2},
    [SCUMBLE_SQUARES] = {add_squares, 0, 1, 3},
    [SCUMBLE_EXTREMES] = {add_extremes, scumble_narrow_extremes, 0, 0},
    [SCUMBLE_DOUBLES] = {add_doubles, 0, 1, 2},
    [SCUMBLE_DOUBLE_SQUARES] = {add_double_squares, 0, 1, 2},
    [SCUMBLE_WIDE_SUM] = {add_wide_sum, 0, 2, 3},
};

/* The function for narrow values if these are such and there is one, else none. */
SCUMBLE_INLINE narrow_aggregate *narrow_one(int what, int type)
{
    return type == SCUMBLE_INT64 || type == SCUMBLE_FLOAT32 ? 0 : AGGREGATES[what].narrow;
}

size_t scumble_aggregate_reads(int what)
{
    return AGGREGATES[what].reads;
}

size_t scumble_aggregate_writes(int what, size_t k)
{
    return AGGREGATES[what].writes ? AGGREGATES[what].writes : 2 * k;
}

SCUMBLE_VECTOR static void both_masks(const uint8_t *restrict a, const uint8_t *restrict b, size_t n,
                                      uint8_t *restrict out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = a[i] & b[i];
}

void scumble_aggregate(int what, const void *x, int type, size_t k, const uint8_t *mask, const uint8_t *valid, size_t n,
                       void *out)
{
    narrow_aggregate *narrow = narrow_one(what, type);
    uint8_t both[BLOCK];
    int64_t room[BLOCK];
    for (size_t at = 0; at < n; at += BLOCK) {
        size_t rows = n - at < BLOCK ? n - at : BLOCK;
        const uint8_t *live = valid ? both : mask + at;
        const void *from = row_at(x, type, k, at);
        if (valid)
            both_masks(mask + at, valid + at, rows, both);
        if (narrow)
            narrow(from, type, live, rows, out);
        else
            AGGREGATES[what].run(scumble_block_words(from, type, rows, room), k, live, rows, out);
    }
}

/* Group codes in 8 bits, of which a vector holds many: NO_GROUP for rows that are masked or of no group in the batch
 * [base, base + groups). */
enum { NO_GROUP = UINT8_MAX };

SCUMBLE_VECTOR static void near_codes(const int64_t *restrict codes, const uint8_t *restrict mask, size_t n,
                                        int64_t base, int64_t groups, uint8_t *restrict out)
{
    for (size_t i = 0; i < n; i++) {
        int64_t here = (int64_t)(codes[i] >= base) & (int64_t)(codes[i] < base + groups) & (int64_t)mask[i];
        out[i] = (uint8_t)(((uint64_t)codes[i] - (uint64_t)base) | (uint64_t)(here - 1));
    }
}

SCUMBLE_VECTOR static void mask_group(const uint8_t *restrict codes, size_t n, uint8_t group, uint8_t *restrict out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = (uint8_t)(codes[i] == group);
}

void scumble_aggregate_groups(int what, const void *x, int type, size_t k, const void *codes, int code_type,
                              size_t groups, const uint8_t *mask, const uint8_t *valid, size_t n, void *out)
{
    narrow_aggregate *narrow = narrow_one(what, type);
    size_t words = scumble_aggregate_writes(what, k);
    uint8_t both[BLOCK], near[BLOCK], of_group[BLOCK];
    int64_t room[BLOCK], code_room[BLOCK];
    for (size_t at = 0; at < n; at += BLOCK) {
        size_t rows = n - at < BLOCK ? n - at : BLOCK;
        const void *from = row_at(x, type, k, at);
        const int64_t *wide = narrow ? 0 : scumble_block_words(from, type, rows, room);
        const int64_t *code = scumble_block_words(row_at(codes, code_type, 1, at), code_type, rows, code_room);
        if (valid)
            both_masks(mask + at, valid + at, rows, both);
        for (size_t base = 0; base < groups; base += NO_GROUP) {
            size_t batch = groups - base < NO_GROUP ? groups - base : NO_GROUP;
            near_codes(code, valid ? both : mask + at, rows, (int64_t)base, (int64_t)batch, near);
            for (size_t group = 0; group < batch; group++) {
                int64_t *to = (int64_t *)out + (base + group) * words;
                mask_group(near, rows, (uint8_t)group, of_group);
                if (narrow)
                    narrow(from, type, of_group, rows, to);
                else
                    AGGREGATES[what].run(wide, k, of_group, rows, to);
            }
        }
    }
}
