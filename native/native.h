/* The kernels' whole interface. Plain C11: no Python header, no allocation unless said. */
#ifndef SCUMBLE_NATIVE_H
#define SCUMBLE_NATIVE_H

#include <stddef.h>
#include <stdint.h>

/* A loop so marked is compiled twice, for AVX2 and for any x86-64, and the machine picks at load time. AVX-512 is
 * left out on purpose: valgrind, which proves the kernels oblivious, cannot follow it. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && defined(__gnu_linux__)
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
/* cffi: end */

#endif
