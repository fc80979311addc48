/* Padded blocks: where a run's dummies go, and what its rows are sorted by to get there.
 *
 * In: the number of rows in each half of a block, and rows with their keys, all secret; the blocks' places, public. Out:
 * secret too. What is done depends on the numbers of rows and blocks alone. */
#include "rows.h"

SCUMBLE_INLINE int64_t chosen(int64_t mask, int64_t a, int64_t b)
{
    return b ^ ((a ^ b) & opaque(mask));
}

/* Block k ends at stops[k], and has halves[2k] and halves[2k + 1] rows. Its dummies lie from first[k] to before last[k],
 * between its halves; filled[k] is how many there are up to its end, and never more than `most`. A block without room
 * for its rows has none, and the next one fewer. */
void scumble_block_dummies(const int64_t *stops, const int64_t *halves, int64_t most, int64_t *first, int64_t *last,
                           int64_t *filled, size_t blocks)
{
    int64_t rows = 0, dummies = 0;
    for (size_t k = 0; k < blocks; k++) {
        int64_t between = rows + halves[2 * k];
        rows = between + halves[2 * k + 1];
        int64_t wanted = stops[k] - rows;
        wanted = chosen(mask_greater(wanted, most), most, wanted);
        first[k] = between + dummies;
        dummies = chosen(mask_greater(wanted, dummies), wanted, dummies);
        last[k] = between + dummies;
        filled[k] = dummies;
    }
}

/* Replaces the key of every row by what it is sorted by: twice its rank; for a dummy, whose key is above `ranks`, the
 * word of the first block that still wants one, `sorted_as` of that block, or one after all others. `seen` is how many
 * dummies came before, in earlier calls too. */
void scumble_place_rows(int64_t *rows, size_t n, size_t words, size_t key_word, int64_t ranks, const int64_t *filled,
                        const int64_t *sorted_as, size_t blocks, int64_t *seen)
{
    int64_t count = *seen;
    for (size_t i = 0; i < n; i++) {
        int64_t *key = rows + i * words + key_word;
        int64_t dummy = mask_greater(*key, ranks), place = 2 * ranks + 1;
        for (size_t k = blocks; k-- > 0;)
            place = chosen(mask_greater(filled[k], count), sorted_as[k], place);
        *key = chosen(dummy, place, 2 * *key);
        count -= dummy;
    }
    *seen = count;
}
