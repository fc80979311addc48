/* Whether the words of a row are ones that its public types have.
 *
 * In: columns of words, ranks and flags, all secret; the numbers of rows and words, and what the types and domains say,
 * are public. Out: bytes of 0 and 1 for the rows, and what they fold into, secret until a batch is refused or taken as
 * a whole. Nothing here branches on, or addresses memory by, a secret: invalid text takes the way of valid text. */
#include "rows.h"

/* Rows whose texts are read at once, byte by byte. */
enum { ABREAST = 256 };

/* The next byte of some texts. `due` is how many bytes of a character are still to come, `low` and `high` what the next
 * of them may be. What follows an error does not matter. (The Unicode Standard, table 3-7.) */
SCUMBLE_VECTOR static void read_bytes(const uint8_t *restrict bytes, size_t n, uint8_t *restrict due,
                                      uint8_t *restrict low, uint8_t *restrict high, uint8_t *restrict bad)
{
    for (size_t i = 0; i < n; i++) {
        uint8_t b = bytes[i], within = (uint8_t) - (due[i] != 0), first = (uint8_t)~within;
        uint8_t stray = (uint8_t)((b < low[i]) | (b > high[i]));
        uint8_t no_lead = (uint8_t)(((b >= 0x80) & (b < 0xc2)) | (b > 0xf4));
        uint8_t more = (uint8_t)((b >= 0xc2) + (b >= 0xe0) + (b >= 0xf0));
        bad[i] |= (uint8_t)((stray & within) | (no_lead & first));
        due[i] = (uint8_t)(((uint8_t)(due[i] - 1) & within) | (more & first));
        low[i] = (uint8_t)(0x80 + (first & ((b == 0xe0) * 0x20 + (b == 0xf0) * 0x10)));
        high[i] = (uint8_t)(0xbf - (first & ((b == 0xed) * 0x20 + (b == 0xf4) * 0x30)));
    }
}

/* One byte of one word of some texts, and whether it stands beyond the text's end without being 0. */
SCUMBLE_VECTOR static void take_bytes(const uint64_t *restrict words, const int64_t *restrict lengths, size_t n,
                                      int shift, int64_t place, uint8_t *restrict bytes, uint8_t *restrict bad)
{
    for (size_t i = 0; i < n; i++) {
        bytes[i] = (uint8_t)(words[i] >> shift);
        bad[i] |= (uint8_t)((bytes[i] != 0) & (lengths[i] <= place));
    }
}

/* x: k words a row, all but the last with eight bytes each, the first byte highest and its top bit flipped, the last the
 * length in bytes. Any bytes will do unless `utf8`, which is public. */
void scumble_check_text(const int64_t *x, size_t k, size_t n, int64_t max_bytes, int utf8, uint8_t *out)
{
    uint64_t words[ABREAST];
    int64_t lengths[ABREAST];
    uint8_t bytes[ABREAST], due[ABREAST], low[ABREAST], high[ABREAST], bad[ABREAST];
    for (size_t at = 0; at < n; at += ABREAST) {
        size_t rows = n - at < ABREAST ? n - at : ABREAST;
        for (size_t i = 0; i < rows; i++) {
            lengths[i] = x[(at + i) * k + k - 1];
            due[i] = 0;
            low[i] = 0x80;
            high[i] = 0xbf;
            bad[i] = (uint8_t)((lengths[i] < 0) | (lengths[i] > max_bytes));
        }
        for (size_t w = 0; w + 1 < k; w++) {
            for (size_t i = 0; i < rows; i++)
                words[i] = (uint64_t)x[(at + i) * k + w] ^ (uint64_t)1 << 63;
            for (int byte = 0; byte < 8; byte++) {
                take_bytes(words, lengths, rows, 56 - 8 * byte, (int64_t)(8 * w) + byte, bytes, bad);
                if (utf8)
                    read_bytes(bytes, rows, due, low, high, bad);
            }
        }
        for (size_t i = 0; i < rows; i++)
            out[at + i] = (uint8_t)((bad[i] | (due[i] != 0)) ^ 1);
    }
}

/* Whether a word's double is one of 32 bits. */
void scumble_check_single(const int64_t *x, size_t n, uint8_t *out)
{
    for (size_t i = 0; i < n; i++) {
        union {
            int64_t bits;
            double value;
        } given = {x[i] ^ (-(int64_t)(x[i] < 0) & INT64_MAX)}, back;
        back.value = (double)(float)given.value;
        out[i] = (uint8_t)(given.bits == back.bits);
    }
}

/* Whether each word has the rank that is claimed for it on a grid: least <= x <= most, and with the steps
 * t = (x - origin) scale + rest, t lies among the `stride` steps of its rank and, where `inverse` belongs to the odd
 * part of a divisor, `limit` to how often that fits in a word, and `low_bits` to its even part, is a multiple of it. No
 * division: a product with the inverse is small just for multiples (Granlund and Montgomery 1994). */
SCUMBLE_VECTOR void scumble_check_grid(const int64_t *x, const int64_t *ranks, size_t n, int64_t least, int64_t most,
                                       int64_t size, const uint64_t *grid, uint8_t *out)
{
    uint64_t origin = grid[0], scale = grid[1], rest = grid[2], stride = grid[3];
    uint64_t inverse = grid[4], limit = grid[5], low_bits = grid[6];
    for (size_t i = 0; i < n; i++) {
        uint64_t steps = ((uint64_t)x[i] - origin) * scale + rest, before = (uint64_t)ranks[i] * stride;
        out[i] = (uint8_t)((x[i] >= least) & (x[i] <= most) & (ranks[i] >= 0) & (ranks[i] < size) & (steps >= before)
                           & (steps - before < stride) & (steps * inverse <= limit) & ((steps & low_bits) == 0));
    }
}

/* The rank of each word on a grid; of one that is not on it, some number that check_grid refuses. `reciprocal` is
 * (2^64 - 1) / stride, so that the product falls short of the quotient by at most 2: no division, whose time would
 * depend on the word. */
void scumble_grid_ranks(const int64_t *x, size_t n, const uint64_t *grid, uint64_t reciprocal, int64_t *ranks)
{
    uint64_t origin = grid[0], scale = grid[1], rest = grid[2], stride = grid[3];
    for (size_t i = 0; i < n; i++) {
        uint64_t steps = ((uint64_t)x[i] - origin) * scale + rest;
        uint64_t rank = (uint64_t)((unsigned __int128)steps * reciprocal >> 64), left = steps - rank * stride;
        for (int step = 0; step < 2; step++) {
            uint64_t more = (uint64_t)opaque(-(int64_t)(left >= stride));
            left -= stride & more;
            rank -= more;
        }
        ranks[i] = (int64_t)rank;
    }
}

/* Takes further rows into account, of which the first has the number `start`: ends[0] is the least number of a row that
 * cannot be a real one, ends[1] the greatest of one that cannot be a dummy. */
void scumble_fold_rows(const uint8_t *real, const uint8_t *dummy, size_t n, int64_t start, int64_t *ends)
{
    int64_t first = ends[0], last = ends[1];
    for (size_t i = 0; i < n; i++) {
        int64_t row = start + (int64_t)i;
        int64_t ends_real = opaque(-(int64_t)(real[i] == 0) & mask_greater(first, row));
        int64_t no_dummy = opaque(-(int64_t)(dummy[i] == 0));
        first = (row & ends_real) | (first & ~ends_real);
        last = (row & no_dummy) | (last & ~no_dummy);
    }
    ends[0] = first;
    ends[1] = last;
}

/* 1 if the rows can be r real ones and then dummies, for some r from least to most; else 0. */
int64_t scumble_rows_agree(const int64_t *ends, int64_t least, int64_t most)
{
    int64_t from = ends[1] + 1, to = ends[0];
    int64_t below = opaque(mask_greater(least, from)), above = opaque(mask_greater(to, most));
    from = (least & below) | (from & ~below);
    to = (most & above) | (to & ~above);
    return (int64_t)(from <= to);
}
