/* items: chooses the items of requests and writes their bytes. Item i of a size always has the same bytes, so one run
 * finds the items that another has added. A loaded filter holds items 0 .. n-1; absent items have far larger numbers.
 *
 * Thread: each thread has its own. */
#ifndef BLOOMERY_BENCH_ITEMS_H
#define BLOOMERY_BENCH_ITEMS_H

#include <stddef.h>
#include <stdint.h>

#define ITEM_MAX_SIZE 4096

enum items_order { ITEMS_UNIFORM, ITEMS_ZIPF, ITEMS_SEQUENTIAL };

struct items_options {
    uint64_t count;              /* items to choose from, >= 1 */
    uint64_t start;              /* number of the first one */
    unsigned min_size, max_size; /* bytes, 1..ITEM_MAX_SIZE; an item's own size follows from its number */
    enum items_order order;
    double skew; /* of ZIPF: exponent, > 0, not 1 */
    double hits; /* share of items among the loaded ones, 0..1; the others are absent */
    uint64_t seed;
};

struct items {
    struct items_options options;
    uint64_t state; /* of the random numbers */
    uint64_t next;  /* of SEQUENTIAL */
    uint64_t stride;
    uint64_t hit_threshold;
    /* of ZIPF: constants of the rejection-inversion method */
    double h_first, h_last, shift;
};

/* For thread `index` of `stride` threads; SEQUENTIAL threads divide the numbers among themselves. */
void items_init(struct items *items, const struct items_options *options, unsigned index, unsigned stride);

/* The number of the next item. */
uint64_t items_next(struct items *items);

/* The number of bytes of an item. */
size_t items_size(const struct items *items, uint64_t number);

/* Writes the bytes of an item to `out`, which has room for max_size; returns their number. */
size_t items_bytes(const struct items *items, uint64_t number, char *out);

uint64_t items_random(struct items *items);

#endif
