/* Piecewise linear functions over the ranks 0..n-1: fit the fewest segments, evaluate them, measure them.
 *
 * In: a curve of whole rows, public (fit, evaluate); counts, secret (deviation only). Out: segments, positions, and
 * one number. The fit and the evaluation see public values only and branch freely; `scumble_deviation` reads secret
 * counts and neither branches on them nor addresses memory by them.
 *
 * The fit is O'Rourke's (1981): a line is feasible while it passes through every vertical segment [y - t, y + t]; the
 * feasible lines are kept as the steepest and the flattest of them and two convex hulls that they touch; greedy
 * maximal segments give the fewest. All in integers: ranks below 2^26 and rows below 2^36 keep every cross product
 * inside 63 bits. */
#include <stdlib.h>

#include "native.h"

typedef struct {
    int64_t x, y;
} point;

/* Corners that an extreme line may touch next, oldest first; `from` is the one it touches now. */
typedef struct {
    point *at;
    size_t from, end, room;
} hull;

/* An extreme feasible line through `left`, of slope rise / run; `ahead` is rise * (x - left.x) at the current x. */
typedef struct {
    point left;
    int64_t rise, run, ahead;
} line;

static int push(hull *h, point p)
{
    if (h->end == h->room) {
        size_t room = h->room ? 2 * h->room : 256;
        point *at = realloc(h->at, room * sizeof *at);
        if (!at)
            return 0;
        h->at = at;
        h->room = room;
    }
    h->at[h->end++] = p;
    return 1;
}

/* Twice the area of the triangle abc, positive when it turns left. */
static int64_t turn(point a, point b, point c)
{
    return (b.x - a.x) * (c.y - a.y) - (b.y - a.y) * (c.x - a.x);
}

static line through(point a, point b)
{
    line l = {a, b.y - a.y, b.x - a.x, (b.y - a.y) * (b.x - a.x)};
    return l;
}

/* The line from hull `h` to `p` that is extreme: `sign` +1 looks for the flattest towards p (hull of lower corners,
 * bounding the steepest line), -1 for the steepest (hull of upper corners). Moves h->from to where it touches. */
static line tangent(hull *h, point p, int sign)
{
    size_t i = h->from;
    while (i + 1 < h->end && sign * turn(h->at[i], h->at[i + 1], p) <= 0)
        i++;
    h->from = i;
    return through(h->at[i], p);
}

/* Adds p to hull `h`, dropping the corners that it hides. */
static int extend(hull *h, point p, int sign)
{
    while (h->end >= h->from + 2 && sign * turn(h->at[h->end - 2], h->at[h->end - 1], p) >= 0)
        h->end--;
    return push(h, p);
}

static int64_t floor_divide(__int128 a, __int128 b)
{
    __int128 q = a / b;
    return (int64_t)(q - (a % b != 0 && (a < 0) != (b < 0)));
}

/* Half way between two lines at x, rounded to the nearest multiple of `quantum`. */
static int64_t between(line u, line v, int64_t x, int64_t quantum)
{
    __int128 du = u.run, dv = v.run;
    __int128 top = (__int128)(u.left.y + v.left.y) * du * dv + (__int128)u.rise * (x - u.left.x) * dv +
                   (__int128)v.rise * (x - v.left.x) * du;
    __int128 whole = 2 * du * dv * quantum;
    return quantum * floor_divide(2 * top + whole, 2 * whole);
}

typedef struct {
    int64_t *start, *first, *last;
    size_t count;
} output;

/* Ends the segment [from, to]: the line half way between the extremes, never falling. */
static void emit(output *out, int64_t from, int64_t to, line steep, line flat, int64_t only, int64_t quantum)
{
    int64_t first, last;
    if (from == to) {
        first = last = quantum * floor_divide(2 * (__int128)only + quantum, 2 * (__int128)quantum);
    } else {
        first = between(steep, flat, from, quantum);
        last = between(steep, flat, to, quantum);
        if (last < first) /* the curve does not fall, so any level between the two is feasible too */
            first = last;
    }
    out->start[out->count] = from;
    out->first[out->count] = first;
    out->last[out->count] = last;
    out->count++;
}

int64_t scumble_segments(const int64_t *curve, size_t n, int64_t tolerance, int64_t quantum, size_t limit,
                         int64_t *start, int64_t *first, int64_t *last)
{
    output out = {start, first, last, 0};
    hull lower = {0}, upper = {0};
    int64_t result = -1;
    size_t x = 0;
    while (x < n) {
        if (out.count == limit) {
            result = (int64_t)limit + 1;
            goto done;
        }
        size_t from = x;
        point low = {(int64_t)x, curve[x] - tolerance}, high = {(int64_t)x, curve[x] + tolerance};
        line steep = {0}, flat = {0};
        lower.from = lower.end = upper.from = upper.end = 0;
        if (!push(&lower, low) || !push(&upper, high))
            goto done;
        if (++x < n) {
            point l = {(int64_t)x, curve[x] - tolerance}, h = {(int64_t)x, curve[x] + tolerance};
            steep = through(low, h);
            flat = through(high, l);
            if (!push(&lower, l) || !push(&upper, h))
                goto done;
            for (x++; x < n; x++) {
                int64_t y = curve[x];
                steep.ahead += steep.rise;
                flat.ahead += flat.rise;
                /* Heights above the two lines at x, times their runs. */
                int64_t over_steep = (y - steep.left.y) * steep.run - steep.ahead;
                int64_t over_flat = (y - flat.left.y) * flat.run - flat.ahead;
                int64_t reach_steep = tolerance * steep.run, reach_flat = tolerance * flat.run;
                if (over_steep > reach_steep || over_flat < -reach_flat)
                    break;
                if (over_steep < -reach_steep) {
                    point p = {(int64_t)x, y + tolerance};
                    steep = tangent(&lower, p, 1);
                    if (!extend(&upper, p, -1))
                        goto done;
                }
                if (over_flat > reach_flat) {
                    point p = {(int64_t)x, y - tolerance};
                    flat = tangent(&upper, p, -1);
                    if (!extend(&lower, p, 1))
                        goto done;
                }
            }
        }
        emit(&out, (int64_t)from, (int64_t)x - 1, steep, flat, curve[from], quantum);
    }
    result = (int64_t)out.count;
done:
    free(lower.at);
    free(upper.at);
    return result;
}

/* The segment that holds rank x: the last one that starts at or before it. A fixed number of steps, no branch on x. */
static size_t locate(const int64_t *start, size_t count, int64_t x)
{
    size_t base = 0;
    for (size_t span = count; span > 1;) {
        size_t half = span / 2;
        base += (start[base + half] <= x) ? half : 0;
        span -= half;
    }
    return base;
}

/* start has count + 1 entries, the last one n. floor_rows[j] is the greatest value before segment j. */
void scumble_evaluate(const int64_t *start, const int64_t *first, const int64_t *last, const int64_t *floor_rows,
                      size_t count, const int64_t *ranks, size_t queries, int64_t *out)
{
    for (size_t i = 0; i < queries; i++) {
        int64_t x = ranks[i];
        size_t j = locate(start, count, x);
        int64_t run = start[j + 1] - 1 - start[j];
        int64_t value = first[j] + (last[j] - first[j]) * (x - start[j]) / (run + (run == 0));
        out[i] = value > floor_rows[j] ? value : floor_rows[j];
    }
}

/* The largest heights of the true curve (the running sum of `counts`) over the segments and under them.
 * `counts` is secret: every rank takes the same steps. */
void scumble_deviation(const int64_t *start, const int64_t *first, const int64_t *last, const int64_t *floor_rows,
                       size_t count, const int64_t *counts, int64_t *over, int64_t *under)
{
    int64_t truth = 0, most = 0, least = 0;
    for (size_t j = 0; j < count; j++) {
        int64_t run = start[j + 1] - 1 - start[j], rise = last[j] - first[j];
        int64_t step = run ? rise / run : 0, rest = run ? rise % run : 0, carry = 0, value = first[j];
        for (int64_t x = start[j]; x < start[j + 1]; x++) {
            int64_t level = value > floor_rows[j] ? value : floor_rows[j];
            truth += counts[x];
            int64_t height = truth - level;
            int64_t higher = -(int64_t)(height > most), lower = -(int64_t)(height < least);
            most = (height & higher) | (most & ~higher);
            least = (height & lower) | (least & ~lower);
            value += step;
            carry += rest;
            if (carry >= run) {
                value++;
                carry -= run;
            }
        }
    }
    *over = most;
    *under = -least;
}
