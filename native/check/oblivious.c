/* Runs a kernel with its secrets marked undefined: under valgrind's memcheck, every branch and every address that
 * depends on a secret is an error. `tests/test_oblivious.py` compiles it with the flags of the extension and runs it;
 * the planted kernels below must be caught, or the check proves nothing. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <valgrind/memcheck.h>

#include "native.h"

enum { COUNT = 1000, BITS = 9, PIECES = 3 };

static void *secret(size_t bytes)
{
    unsigned char *memory = malloc(bytes);
    for (size_t i = 0; i < bytes; i++)
        memory[i] = (unsigned char)(i * 2654435761u >> 13);
    VALGRIND_MAKE_MEM_UNDEFINED(memory, bytes);
    return memory;
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

/* Planted: a branch on a secret. */
static void planted_branch(void)
{
    int64_t *counts = secret(COUNT * sizeof *counts);
    volatile int64_t found = 0;
    for (size_t i = 0; i < COUNT; i++)
        if (counts[i] > 7)
            found++;
}

/* Planted: an address that depends on a secret. */
static void planted_gather(void)
{
    unsigned char *ranks = secret(COUNT);
    volatile int64_t histogram[256] = {0};
    for (size_t i = 0; i < COUNT; i++)
        histogram[ranks[i]]++;
}

/* Planted: a loop that ends early. */
static void planted_early_exit(void)
{
    int64_t *counts = secret(COUNT * sizeof *counts);
    volatile size_t i = 0;
    while (i < COUNT && counts[i] != 12345)
        i++;
}

int main(int argc, char **argv)
{
    const struct {
        const char *name;
        void (*run)(void);
    } kernels[] = {{"noise", noise},
                   {"deviation", deviation},
                   {"planted-branch", planted_branch},
                   {"planted-gather", planted_gather},
                   {"planted-early-exit", planted_early_exit}};
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
        if (argc == 2 && !strcmp(argv[1], kernels[i].name)) {
            kernels[i].run();
            return 0;
        }
    fprintf(stderr, "usage: oblivious KERNEL\n");
    return 2;
}
