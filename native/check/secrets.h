/* Secrets for kernels under valgrind: memory that is undefined to memcheck, with bytes that depend on the seed alone. */
#ifndef SCUMBLE_CHECK_SECRETS_H
#define SCUMBLE_CHECK_SECRETS_H

#include <stdint.h>
#include <stdlib.h>
#include <valgrind/memcheck.h>

enum { COUNT = 1000 };

static uint32_t seed = 0;

/* Some 32 bits that depend on the seed. */
static uint32_t scramble(size_t i)
{
    uint32_t bits = ((uint32_t)i + 1) * 2654435761u + seed * 2246822519u;
    bits = (bits ^ bits >> 15) * 2654435761u;
    return bits ^ bits >> 13;
}

static void hide(void *memory, size_t bytes)
{
    VALGRIND_MAKE_MEM_UNDEFINED(memory, bytes);
}

static void *secret(size_t bytes)
{
    unsigned char *memory = malloc(bytes + 1);
    for (size_t i = 0; i < bytes; i++)
        memory[i] = (unsigned char)scramble(i);
    hide(memory, bytes);
    return memory;
}

/* Secret bytes of 0 and 1. */
static uint8_t *secret_mask(size_t n)
{
    uint8_t *mask = malloc(n + 1);
    for (size_t i = 0; i < n; i++)
        mask[i] = (uint8_t)(scramble(i) & 1);
    hide(mask, n);
    return mask;
}

/* Secret words from 0 to 15: group codes and ranks, some of which are none. */
static int64_t *secret_codes(size_t n)
{
    int64_t *codes = malloc(n * sizeof *codes + 1);
    for (size_t i = 0; i < n; i++)
        codes[i] = scramble(i) & 15;
    hide(codes, n * sizeof *codes);
    return codes;
}

static int64_t *secret_words(size_t n)
{
    return secret(n * sizeof(int64_t));
}

/* A secret somewhat above `value`. */
static int64_t secret_word(int64_t value)
{
    value += scramble(0) & 15;
    hide(&value, sizeof value);
    return value;
}

#endif
