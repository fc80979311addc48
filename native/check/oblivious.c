/* Runs a kernel with its secrets marked undefined: under valgrind's memcheck, every branch and every address that
 * depends on a secret is an error. Given a seed, it runs small sizes only, with other secrets for every seed: under
 * valgrind's lackey, the traces of two seeds must be equal. `verify/obliviousness.py` compiles it with the flags of the
 * extension, or links it with the extension, and runs it; the leaks of planted.h must be caught both ways, or the
 * checks prove nothing. Kernels over rows run at several sizes, for a vector loop, its remainder and the shapes of a
 * network are different code. */
#include <stdio.h>
#include <string.h>

#include "native.h"
#include "planted.h"
#include "secrets.h"

enum { BITS = 9, PIECES = 3 };

static size_t most_rows = SIZE_MAX;

/* Calls run(n) for no rows, few, more than a block and numbers that are no power of two. */
static void at_sizes(void (*run)(size_t))
{
    static const size_t sizes[] = {0, 1, 2, 3, 5, 8, 13, 31, 32, 64, 67, 129, 1000, 1024, 2100};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i] <= most_rows)
            run(sizes[i]);
}

static void noise(void)
{
    uint64_t *words = secret((BITS + 1) * COUNT * sizeof *words), thresholds[BITS + 1];
    int64_t *out = malloc(COUNT * sizeof *out);
    for (size_t bit = 0; bit <= BITS; bit++)
        thresholds[bit] = bit < BITS ? UINT64_MAX >> (bit + 2) : 0;
    volatile int64_t ties = scumble_discrete_laplace(words, thresholds, BITS, COUNT, out);
    (void)ties;
}

static void deviation(void)
{
    int64_t start[] = {0, 10, 400, COUNT}, first[] = {0, 50, 90}, last[] = {40, 95, 3000}, floor_rows[] = {0, 40, 95};
    int64_t *counts = secret(COUNT * sizeof *counts), over, under;
    scumble_deviation(start, first, last, floor_rows, PIECES, counts, &over, &under);
}

static void mask_rows_of(size_t n)
{
    int64_t dummies[] = {secret_word(30), secret_word(40)};
    scumble_mask_rows(5, n, dummies, malloc(n + 1));
}

static void split_pages_of(size_t n)
{
    for (size_t count = 0; count < 3; count++)
        scumble_split_pages(secret_mask(count * (n + 5) + 1), count, n + 5, 5, malloc(8 * count * n + 1));
}

/* Calls run for every type that a column of k values a row may have: several are words. */
#define EACH_TYPE(k, run) \
    for (int type = SCUMBLE_INT8; type <= SCUMBLE_FLOAT32; type++) \
        if (k == 1 || type == SCUMBLE_INT64) \
    run

static void append_codes_of(size_t n)
{
    EACH_TYPE(1, for (int flag = 0; flag < 2; flag++) {
        scumble_append_codes(secret_words(n), type, flag ? secret_mask(n) : 0, n, 7, secret(n * sizeof(int32_t)));
    })
}

static void mask_intervals_of(size_t n)
{
    for (size_t k = 1; k <= 4; k++)
        for (size_t m = 0; m <= 3; m++)
            EACH_TYPE(k, for (int flag = 0; flag < 2; flag++) {
                scumble_mask_intervals(secret_words(n * k), type, k, n, flag ? secret_mask(n) : 0,
                                       secret_words(2 * m * k), m, flag, flag, malloc(n + 1));
            })
}

static void mask_compare_of(size_t n)
{
    for (size_t k = 1; k <= 3; k++)
        for (int op = SCUMBLE_EQ; op <= SCUMBLE_LE; op++)
            EACH_TYPE(k, for (int flag = 0; flag < 2; flag++) {
                scumble_mask_compare(secret_words(n * k), type, secret_words(n * k), SCUMBLE_INT64, k, n,
                                     flag ? secret_mask(n) : 0, flag ? secret_mask(n) : 0, op, flag, malloc(n + 1));
            })
}

/* The results that a kernel adds to are secret from the start, as they are after a first page. */
static void aggregate_of(int what, size_t n, size_t k)
{
    EACH_TYPE(k, for (int flag = 0; flag < 2; flag++) {
        scumble_aggregate(what, secret_words(n * k), type, k, secret_mask(n), flag ? secret_mask(n) : 0, n,
                          secret_words(2 * k + 3));
    })
}

/* The codes are words, or bytes as those of a column of categories. */
static void aggregate_groups_of(int what, size_t n, size_t k)
{
    static const size_t groups[] = {0, 1, 7};
    static const int code_types[] = {SCUMBLE_INT64, SCUMBLE_INT64, SCUMBLE_UINT8};
    EACH_TYPE(k, for (size_t i = 0; i < 3; i++) {
        scumble_aggregate_groups(what, secret_words(n * k), type, k, secret_codes(n), code_types[i], groups[i],
                                 secret_mask(n), i ? secret_mask(n) : 0, n, secret_words(groups[i] * (2 * k + 3)));
    })
}

/* Alone and by groups, for columns of `least` to `most` words. */
#define AGGREGATE(name, what, least, most) \
    static void name##_of(size_t n) \
    { \
        for (size_t k = least; k <= most; k++) { \
            aggregate_of(what, n, k); \
            aggregate_groups_of(what, n, k); \
        } \
    } \
    static void name(void) \
    { \
        at_sizes(name##_of); \
    }
AGGREGATE(count, SCUMBLE_COUNT, 1, 1)
AGGREGATE(sum, SCUMBLE_SUM, 1, 1)
AGGREGATE(sum_squares, SCUMBLE_SQUARES, 1, 1)
AGGREGATE(min_max, SCUMBLE_EXTREMES, 1, 3)
AGGREGATE(sum_floats, SCUMBLE_DOUBLES, 1, 1)
AGGREGATE(sum_squares_floats, SCUMBLE_DOUBLE_SQUARES, 1, 1)
AGGREGATE(wide_sum, SCUMBLE_WIDE_SUM, 2, 2)

static void wide_of(size_t n)
{
    int64_t *a = secret_words(2 * n), *b = secret_words(2 * n), *out = secret_words(2 * n);
    uint8_t *mask = secret_mask(n), *overflow = secret_mask(1);
    EACH_TYPE(1, scumble_wide_load(a, type, n, out);)
    scumble_wide_fill(secret_word(3), secret_word(-1), n, out);
    scumble_wide_add(a, b, mask, n, out, overflow);
    scumble_wide_subtract(a, b, mask, n, out, overflow);
    scumble_wide_multiply(a, b, mask, n, out, overflow);
}

static void sort_rows_of(size_t n)
{
    static const size_t widths[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 23};
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
        scumble_sort_rows(secret_words(n * widths[i]), n, widths[i], widths[i] / 2);
}

static void merge_rows_of(size_t n)
{
    for (size_t words = 1; words <= 11; words += 5)
        scumble_merge_rows(secret_words(n * words), n / 3, n, words, words / 2);
}

static void compact_of(size_t n)
{
    for (size_t words = 1; words <= 10; words++)
        scumble_compact(secret_words(n * words), secret_mask(n), n, words);
}

static void place_rows_of(size_t n)
{
    int64_t stops[] = {20, 50, 90}, sorted_as[] = {9, 19, 29}, first[3], last[3], filled[3], seen = secret_word(0);
    scumble_block_dummies(stops, secret_words(6), secret_word(60), first, last, filled, 3);
    scumble_place_rows(secret_words(n * 3), n, 3, 1, 40, filled, sorted_as, 3, &seen);
}

static void curve_of(size_t n)
{
    static const size_t ranks[] = {0, 1, 7, 64, 1000};
    for (size_t i = 0; i < 5 && ranks[i] <= most_rows; i++)
        scumble_curve(secret_codes(n), n, ranks[i], malloc(9 * (n + ranks[i]) + 8), malloc(ranks[i] * 8 + 1));
}

static void check_text_of(size_t n)
{
    for (size_t k = 2; k <= 4; k++)
        for (int utf8 = 0; utf8 < 2; utf8++)
            scumble_check_text(secret_words(n * k), k, n, (int64_t)(8 * (k - 1)), utf8, malloc(n + 1));
}

static void check_single_of(size_t n)
{
    scumble_check_single(secret_words(n), n, malloc(n + 1));
}

static void check_grid_of(size_t n)
{
    static const uint64_t grid[] = {3, 5, 1, 12, 0xaaaaaaaaaaaaaaab, UINT64_MAX / 3, 3};
    scumble_check_grid(secret_words(n), secret_codes(n), n, -1000, (int64_t)1 << 61, 9, grid, malloc(n + 1));
}

static void grid_ranks_of(size_t n)
{
    static const uint64_t grid[] = {3, 5, 1, 12};
    scumble_grid_ranks(secret_words(n), n, grid, UINT64_MAX / 12, malloc(8 * n + 1));
}

static void fold_rows_of(size_t n)
{
    int64_t *ends = secret_words(2);
    scumble_fold_rows(secret_mask(n), secret_mask(n), n, 7, ends);
    volatile int64_t agree = scumble_rows_agree(ends, 0, secret_word(5));
    (void)agree;
}

#define AT_SIZES(name) \
    static void name(void) \
    { \
        at_sizes(name##_of); \
    }
AT_SIZES(mask_rows)
AT_SIZES(split_pages)
AT_SIZES(append_codes)
AT_SIZES(mask_intervals)
AT_SIZES(mask_compare)
AT_SIZES(wide)
AT_SIZES(sort_rows)
AT_SIZES(merge_rows)
AT_SIZES(compact)
AT_SIZES(place_rows)
AT_SIZES(curve)
AT_SIZES(check_text)
AT_SIZES(check_single)
AT_SIZES(check_grid)
AT_SIZES(grid_ranks)
AT_SIZES(fold_rows)

int main(int argc, char **argv)
{
    if (argc == 3) {
        seed = (uint32_t)atoi(argv[2]);
        most_rows = 67;
    }
    const struct {
        const char *name;
        void (*run)(void);
    } kernels[] = {{"noise", noise},
                   {"deviation", deviation},
                   {"mask-rows", mask_rows},
                   {"split-pages", split_pages},
                   {"append-codes", append_codes},
                   {"mask-intervals", mask_intervals},
                   {"mask-compare", mask_compare},
                   {"count", count},
                   {"sum", sum},
                   {"sum-squares", sum_squares},
                   {"min-max", min_max},
                   {"sum-floats", sum_floats},
                   {"sum-squares-floats", sum_squares_floats},
                   {"wide-sum", wide_sum},
                   {"wide", wide},
                   {"sort-rows", sort_rows},
                   {"merge-rows", merge_rows},
                   {"compact", compact},
                   {"place-rows", place_rows},
                   {"curve", curve},
                   {"check-text", check_text},
                   {"check-single", check_single},
                   {"check-grid", check_grid},
                   {"grid-ranks", grid_ranks},
                   {"fold-rows", fold_rows},
                   {"planted-branch", planted_branch},
                   {"planted-gather", planted_gather},
                   {"planted-early-exit", planted_early_exit},
                   {"planted-filter", planted_filter},
                   {"planted-group", planted_group},
                   {"planted-compact", planted_compact},
                   {"planted-sort", planted_sort},
                   {"planted-real-rows", planted_real_rows},
                   {"planted-division", planted_division}};
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
        if (argc >= 2 && !strcmp(argv[1], kernels[i].name)) {
            /* What comes before and after, such as reading the seed, is not to be compared. */
            VALGRIND_PRINTF("begin\n");
            kernels[i].run();
            VALGRIND_PRINTF("end\n");
            return 0;
        }
    fprintf(stderr, "usage: oblivious KERNEL [SEED]\n");
    return 2;
}
