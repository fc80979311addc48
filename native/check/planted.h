/* Planted leaks, each as somebody might write it who does not think of who is watching: checks that miss one of them
 * prove nothing. */
#ifndef SCUMBLE_CHECK_PLANTED_H
#define SCUMBLE_CHECK_PLANTED_H

#include "secrets.h"

/* A branch on a secret. */
static void planted_branch(void)
{
    int64_t *counts = secret(COUNT * sizeof *counts);
    volatile int64_t found = 0;
    for (size_t i = 0; i < COUNT; i++)
        if (counts[i] > 7)
            found++;
}

/* An address that depends on a secret. */
static void planted_gather(void)
{
    unsigned char *ranks = secret(COUNT);
    volatile int64_t histogram[256] = {0};
    for (size_t i = 0; i < COUNT; i++)
        histogram[ranks[i]]++;
}

/* A loop that ends early. */
static void planted_early_exit(void)
{
    int64_t *counts = secret(COUNT * sizeof *counts);
    volatile size_t i = 0;
    while (i < COUNT && (counts[i] & 127) != 45)
        i++;
}

/* A filter that adds only the rows that match. */
static void planted_filter(void)
{
    int64_t *x = secret_words(COUNT), low = secret_word(-5), high = secret_word((int64_t)1 << 61);
    volatile int64_t sum = 0;
    for (size_t i = 0; i < COUNT; i++)
        if (x[i] >= low && x[i] <= high)
            sum += x[i];
}

/* A group's sum found by its code. */
static void planted_group(void)
{
    uint8_t *codes = secret_mask(COUNT);
    int64_t *x = secret_words(COUNT);
    volatile int64_t sums[2] = {0};
    for (size_t i = 0; i < COUNT; i++)
        sums[codes[i]] += x[i];
}

/* A compaction that writes every row, but to a place that tells how many were kept before it. */
static void planted_compact(void)
{
    int64_t *rows = secret_words(COUNT);
    uint8_t *flags = secret_mask(COUNT);
    volatile int64_t *out = malloc((COUNT + 1) * sizeof *out);
    size_t kept = 0;
    for (size_t i = 0; i < COUNT; i++) {
        out[kept] = rows[i];
        kept += flags[i];
    }
}

/* A sort that swaps only what is out of order. */
static void planted_sort(void)
{
    volatile int64_t *keys = secret_words(64);
    for (size_t end = 63; end > 0; end--)
        for (size_t i = 0; i < end; i++) {
            int64_t a = keys[i], b = keys[i + 1];
            if (a > b) {
                keys[i] = b;
                keys[i + 1] = a;
            }
        }
}

/* A loop over the real rows alone. */
static void planted_real_rows(void)
{
    int64_t real_rows = secret_word(500);
    volatile int64_t sum = 0;
    for (int64_t i = 0; i < real_rows; i++)
        sum += i;
}

/* A division by a secret. Its time depends on it; memcheck sees neither a branch nor an address, so that it is
 * looked for in the code (`divisions` in verify/obliviousness.py), and needs a function of its own there. */
__attribute__((noinline)) static void planted_division(void)
{
    uint64_t *x = (uint64_t *)secret_words(COUNT);
    volatile uint64_t sum = 0;
    for (size_t i = 0; i < COUNT; i++)
        sum += UINT64_MAX / (x[i] | 1);
}

#endif
