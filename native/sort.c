/* Bitonic sort and merge of whole rows.
 *
 * In: rows of `words` int64 each, secret, one of which, at `key_word`, is the key. Out: the same rows, ascending by
 * key. The network depends on the number of rows alone; every comparison reads and writes both rows. Rows with equal
 * keys come out in no particular order.
 *
 * The network is Batcher's with Lang's rule for any number of rows: halves are sorted in opposite directions, and a
 * merge of n rows compares rows i and i + m, m the greatest power of two below n, then merges both parts. Appending
 * rows that are greater than all others turns that into the merge of a power of two, in which those never move; so it
 * is right for every sequence that falls, then rises, wherever it turns. Depth first, so that all parts small enough
 * for a cache are done while they are in it. */
#include "rows.h"

/* A merge of so many bytes runs layer by layer: it fits the first cache, where recursion costs more than it saves. */
enum { NEAR_BYTES = 16384 };

typedef struct {
    int64_t *rows;
    size_t words, key_word;
} table;

/* The layers of distances 2 * apart and apart, over `count` (a multiple of 4 * apart) rows. `flip` is 0 to ascend, -1
 * to descend: complementing keys reverses their order. */
SCUMBLE_INLINE void two_layers(int64_t *rows, size_t words, size_t key_word, size_t count, size_t apart, int64_t flip)
{
    size_t step = apart * words;
    for (size_t base = 0; base < count; base += 4 * apart) {
        int64_t *a = rows + base * words;
        for (size_t i = 0; i < apart; i++, a += words) {
            int64_t *b = a + step, *c = b + step, *d = c + step;
            int64_t p = a[key_word] ^ flip, q = b[key_word] ^ flip, r = c[key_word] ^ flip, s = d[key_word] ^ flip;
            int64_t ac = mask_greater(p, r), bd = mask_greater(q, s);
            int64_t pr = (p ^ r) & ac, qs = (q ^ s) & bd;
            p ^= pr;
            r ^= pr;
            q ^= qs;
            s ^= qs;
            swap_four(a, b, c, d, words, ac, bd, mask_greater(p, q), mask_greater(r, s));
        }
    }
}

/* The layer that compares rows i and i + apart for the first `count` rows. */
SCUMBLE_INLINE void one_layer(int64_t *rows, size_t words, size_t key_word, size_t count, size_t apart, int64_t flip)
{
    int64_t *a = rows, *b = rows + apart * words;
    for (size_t i = 0; i < count; i++, a += words, b += words)
        swap_two(a, b, words, mask_greater(a[key_word] ^ flip, b[key_word] ^ flip));
}

/* Widths that are compiled on their own: a loop over so few words costs more than its body. */
#define FOR_WIDTH(words, call) \
    switch (words) { \
    case 2: call(2); break; \
    case 3: call(3); break; \
    case 4: call(4); break; \
    case 5: call(5); break; \
    case 6: call(6); break; \
    case 7: call(7); break; \
    case 8: call(8); break; \
    case 9: call(9); break; \
    default: call(words); \
    }

SCUMBLE_VECTOR static void pass_two(table t, size_t count, size_t apart, int64_t flip)
{
#define CALL(width) two_layers(t.rows, width, t.key_word, count, apart, flip)
    FOR_WIDTH(t.words, CALL)
#undef CALL
}

SCUMBLE_VECTOR static void pass_one(table t, size_t count, size_t apart, int64_t flip)
{
#define CALL(width) one_layer(t.rows, width, t.key_word, count, apart, flip)
    FOR_WIDTH(t.words, CALL)
#undef CALL
}

/* Rows of one word are keys alone: neighbouring comparisons fill a vector. */
SCUMBLE_VECTOR static void keys_two(int64_t *restrict keys, size_t count, size_t apart, int64_t flip)
{
    for (size_t base = 0; base < count; base += 4 * apart) {
        int64_t *a = keys + base, *b = a + apart, *c = b + apart, *d = c + apart;
#pragma GCC ivdep
        for (size_t i = 0; i < apart; i++) {
            int64_t p = a[i] ^ flip, q = b[i] ^ flip, r = c[i] ^ flip, s = d[i] ^ flip;
            int64_t pr = (p ^ r) & mask_greater(p, r), qs = (q ^ s) & mask_greater(q, s);
            p ^= pr;
            r ^= pr;
            q ^= qs;
            s ^= qs;
            int64_t pq = (p ^ q) & mask_greater(p, q), rs = (r ^ s) & mask_greater(r, s);
            a[i] = p ^ pq ^ flip;
            b[i] = q ^ pq ^ flip;
            c[i] = r ^ rs ^ flip;
            d[i] = s ^ rs ^ flip;
        }
    }
}

SCUMBLE_VECTOR static void keys_one(int64_t *keys, size_t count, size_t apart, int64_t flip)
{
    int64_t *a = keys, *b = keys + apart;
#pragma GCC ivdep
    for (size_t i = 0; i < count; i++) {
        int64_t p = a[i], q = b[i], t = (p ^ q) & mask_greater(p ^ flip, q ^ flip);
        a[i] = p ^ t;
        b[i] = q ^ t;
    }
}

static void layers_two(table t, size_t count, size_t apart, int64_t flip)
{
    if (t.words == 1)
        keys_two(t.rows, count, apart, flip);
    else
        pass_two(t, count, apart, flip);
}

static void layer_one(table t, size_t count, size_t apart, int64_t flip)
{
    if (t.words == 1)
        keys_one(t.rows, count, apart, flip);
    else
        pass_one(t, count, apart, flip);
}

/* All layers over `count` rows, in groups of `size`, a power of two, layer by layer. */
static void merge_near(table t, size_t size, size_t count, int64_t flip)
{
    for (; size >= 4; size /= 4)
        layers_two(t, count, size / 4, flip);
    if (size == 2)
        for (size_t i = 0; i < count; i += 2)
            layer_one((table){t.rows + i * t.words, t.words, t.key_word}, 1, 1, flip);
}

static void merge_power(table t, size_t n, int64_t flip)
{
    if (n * t.words * sizeof *t.rows <= NEAR_BYTES || n < 4) {
        merge_near(t, n, n, flip);
        return;
    }
    layers_two(t, n, n / 4, flip);
    for (size_t part = 0; part < 4; part++)
        merge_power((table){t.rows + part * (n / 4) * t.words, t.words, t.key_word}, n / 4, flip);
}

static size_t greatest_power_below(size_t n)
{
    size_t power = 1;
    while (2 * power < n)
        power *= 2;
    return power;
}

static void merge(table t, size_t n, int64_t flip)
{
    while (n > 1) {
        if ((n & (n - 1)) == 0) {
            merge_power(t, n, flip);
            return;
        }
        size_t m = greatest_power_below(n);
        layer_one(t, n - m, m, flip);
        merge_power(t, m, flip);
        t.rows += m * t.words;
        n -= m;
    }
}

static void sort(table t, size_t n, int64_t flip)
{
    if (n < 2)
        return;
    size_t half = n / 2;
    sort(t, half, ~flip);
    sort((table){t.rows + half * t.words, t.words, t.key_word}, n - half, flip);
    merge(t, n, flip);
}

void scumble_sort_rows(int64_t *rows, size_t n, size_t words, size_t key_word)
{
    sort((table){rows, words, key_word}, n, 0);
}

static void reverse(int64_t *rows, size_t n, size_t words)
{
    for (size_t i = 0; i < n / 2; i++)
        swap_two(rows + i * words, rows + (n - 1 - i) * words, words, -1);
}

void scumble_merge_rows(int64_t *rows, size_t first, size_t n, size_t words, size_t key_word)
{
    reverse(rows, first, words);
    merge((table){rows, words, key_word}, n, 0);
}

void scumble_merge_falling(int64_t *keys, size_t n)
{
    merge((table){keys, 1, 0}, n, 0);
}
