/* Planted faults, which the sanitizers must catch: that they do shows that the kernels ran under them.
 *
 * In: arrays and words as the kernels take them. Out: nothing of use. Built by verify/sanitizers.py with the same flags
 * as the kernels; never part of the extension. */
#include <stddef.h>
#include <stdint.h>

/* Planted: a row too many is written. */
void planted_write(int64_t *out, size_t n)
{
    for (size_t i = 0; i <= n; i++)
        out[i] = (int64_t)i;
}

/* Planted: a row before the first is read. */
int64_t planted_read(const int64_t *x, size_t n)
{
    int64_t sum = 0;
    for (size_t i = n + 1; i-- > 0;)
        sum ^= x[(ptrdiff_t)i - 1];
    return sum;
}

/* Planted: a sum of two words that leaves 64 bits. */
int64_t planted_overflow(int64_t a, int64_t b)
{
    return a + b;
}

/* Planted: a shift by as many bits as the word has. */
int64_t planted_shift(int64_t a, int bits)
{
    return a << bits;
}
