/* The kernels' whole interface. Plain C11: no Python header, no allocation unless said. */
#ifndef SCUMBLE_NATIVE_H
#define SCUMBLE_NATIVE_H

#include <stddef.h>
#include <stdint.h>

/* A loop so marked is compiled twice, for AVX2 and for any x86-64, and the machine picks at load time. AVX-512 is
 * left out on purpose: valgrind, which proves the kernels oblivious, cannot follow it. */
#if defined(SCUMBLE_VECTOR) /* given on the command line, empty, to check the loops for any x86-64 */
#elif defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && defined(__gnu_linux__)
#define SCUMBLE_VECTOR __attribute__((target_clones("avx2", "default")))
#else
#define SCUMBLE_VECTOR
#endif

/* cffi: begin */
int64_t scumble_discrete_laplace(const uint64_t *words, const uint64_t *thresholds, size_t bits, size_t count,
                                 int64_t *out);
int64_t scumble_segments(const int64_t *curve, size_t n, int64_t tolerance, int64_t quantum, size_t limit,
                         int64_t *start, int64_t *first, int64_t *last);
void scumble_evaluate(const int64_t *start, const int64_t *first, const int64_t *last, const int64_t *floor_rows,
                      size_t count, const int64_t *ranks, size_t queries, int64_t *out);
void scumble_deviation(const int64_t *start, const int64_t *first, const int64_t *last, const int64_t *floor_rows,
                       size_t count, const int64_t *counts, int64_t *over, int64_t *under);

/* Words are int64; a row has k of them, compared first word first. A column of one word a row may be narrower: its type
 * says what it holds, and its words are the same numbers in 64 bits; those of floats, as types/float.py has them. Masks
 * and validities are bytes of 0 and 1; a null `valid` means that no row is null. What each kernel takes for secret is
 * said in its file. */
enum {
    SCUMBLE_INT8,
    SCUMBLE_INT16,
    SCUMBLE_INT32,
    SCUMBLE_INT64,
    SCUMBLE_UINT8,
    SCUMBLE_UINT16,
    SCUMBLE_UINT32,
    SCUMBLE_FLOAT32
};
enum { SCUMBLE_EQ, SCUMBLE_LT, SCUMBLE_LE };
void scumble_mask_rows(int64_t start, size_t n, const int64_t *dummies, uint8_t *out);
void scumble_mask_intervals(const void *x, int type, size_t k, size_t n, const uint8_t *valid, const int64_t *bounds,
                            size_t m, int negated, int null_matches, uint8_t *out);
void scumble_mask_compare(const void *a, int type_a, const void *b, int type_b, size_t k, size_t n,
                          const uint8_t *valid_a, const uint8_t *valid_b, int op, int negated, uint8_t *out);

/* split: each page has values, then a bit a row; the values move together to the front, the bits become bytes. append:
 * codes = codes * size + x, or size - 1 where x is null. */
void scumble_split_pages(uint8_t *pages, size_t count, size_t page_bytes, size_t value_bytes, uint8_t *valid);
void scumble_append_codes(const void *x, int type, const uint8_t *valid, size_t n, int64_t size, int32_t *codes);

/* Results are added to `out`, [groups] times `scumble_aggregate_writes` words: integers least word first, extremes k
 * words of the least and k of the greatest, sums of doubles as 2 doubles. */
enum {
    SCUMBLE_COUNT,
    SCUMBLE_SUM,
    SCUMBLE_SQUARES,
    SCUMBLE_EXTREMES,
    SCUMBLE_DOUBLES,
    SCUMBLE_DOUBLE_SQUARES,
    SCUMBLE_WIDE_SUM
};
/* The words that an aggregate reads of a row, 0 for any number, and those that it writes for a group of rows of k words;
 * scumble/wire/plan.py states the same, and must agree. Public. */
size_t scumble_aggregate_reads(int what);
size_t scumble_aggregate_writes(int what, size_t k);
void scumble_aggregate(int what, const void *x, int type, size_t k, const uint8_t *mask, const uint8_t *valid, size_t n,
                       void *out);
void scumble_aggregate_groups(int what, const void *x, int type, size_t k, const void *codes, int code_type,
                              size_t groups, const uint8_t *mask, const uint8_t *valid, size_t n, void *out);

void scumble_wide_load(const void *x, int type, size_t n, int64_t *out);
void scumble_wide_fill(int64_t low, int64_t high, size_t n, int64_t *out);
void scumble_wide_add(const int64_t *a, const int64_t *b, const uint8_t *mask, size_t n, int64_t *out,
                      uint8_t *overflow);
void scumble_wide_subtract(const int64_t *a, const int64_t *b, const uint8_t *mask, size_t n, int64_t *out,
                           uint8_t *overflow);
void scumble_wide_multiply(const int64_t *a, const int64_t *b, const uint8_t *mask, size_t n, int64_t *out,
                           uint8_t *overflow);

/* merge: the first `first` rows ascend, and so do the others. curve: scratch of 9 (n + ranks) bytes, rounded up to
 * whole words. */
void scumble_sort_rows(int64_t *rows, size_t n, size_t words, size_t key_word);
void scumble_merge_rows(int64_t *rows, size_t first, size_t n, size_t words, size_t key_word);
void scumble_compact(int64_t *rows, uint8_t *flags, size_t n, size_t words);
void scumble_block_dummies(const int64_t *stops, const int64_t *halves, int64_t most, int64_t *first, int64_t *last,
                           int64_t *filled, size_t blocks);
void scumble_place_rows(int64_t *rows, size_t n, size_t words, size_t key_word, int64_t ranks, const int64_t *filled,
                        const int64_t *sorted_as, size_t blocks, int64_t *seen);
void scumble_curve(const int64_t *keys, size_t n, size_t ranks, int64_t *scratch, int64_t *out);

/* Validation. text: k words a row, the last its length. grid: origin, scale, rest, stride, inverse, limit, low bits.
 * ends: 2 words, INT64_MAX and -1 at first. */
void scumble_check_text(const int64_t *x, size_t k, size_t n, int64_t max_bytes, int utf8, uint8_t *out);
void scumble_check_single(const int64_t *x, size_t n, uint8_t *out);
void scumble_check_grid(const int64_t *x, const int64_t *ranks, size_t n, int64_t least, int64_t most, int64_t size,
                        const uint64_t *grid, uint8_t *out);
void scumble_grid_ranks(const int64_t *x, size_t n, const uint64_t *grid, uint64_t reciprocal, int64_t *ranks);
void scumble_fold_rows(const uint8_t *real, const uint8_t *dummy, size_t n, int64_t start, int64_t *ends);
int64_t scumble_rows_agree(const int64_t *ends, int64_t least, int64_t most);
/* cffi: end */

#endif
