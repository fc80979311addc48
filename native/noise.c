/* Discrete Laplace noise as a fixed number of comparisons of uniform words with fixed thresholds.
 *
 * In: a key stream of (bits + 1) rows of `count` uniform words, and one threshold a row, public.
 * Out: count samples, secret until they are added to something; and whether any word tied with its threshold.
 * Nothing here branches on, or addresses memory by, a word or a sample. docs/privacy.md section 3 is the proof. */
#include "native.h"

/* out[i] gains 2^bit if the word lies among the `threshold` least, loses it if among the `threshold` greatest. */
SCUMBLE_VECTOR static uint64_t add_digit(const uint64_t *restrict words, uint64_t threshold, size_t bit, size_t count,
                                         int64_t *restrict out)
{
    uint64_t ties = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t word = words[i], mirror = ~word;
        int64_t digit = (int64_t)(word < threshold) - (int64_t)(mirror < threshold);
        out[i] += digit * ((int64_t)1 << bit);
        ties |= (uint64_t)(word == threshold) | (uint64_t)(mirror == threshold);
    }
    return ties;
}

/* The last row stands for all that lies beyond the top bit. Its threshold is zero: only a tie can set it. */
int64_t scumble_discrete_laplace(const uint64_t *words, const uint64_t *thresholds, size_t bits, size_t count,
                                 int64_t *out)
{
    uint64_t ties = 0;
    for (size_t i = 0; i < count; i++)
        out[i] = 0;
    for (size_t bit = 0; bit <= bits; bit++)
        ties |= add_digit(words + bit * count, thresholds[bit], bit, count, out);
    return (int64_t)ties;
}
