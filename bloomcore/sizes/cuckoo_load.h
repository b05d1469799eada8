/* cuckoo_load: how full a cuckoo filter is when an add first finds no place. There is no formula for RedisBloom's order
 * of evictions, which is fixed; so a filter is filled. Pure functions. Thread: any. */
#ifndef BLOOMERY_CUCKOO_LOAD_H
#define BLOOMERY_CUCKOO_LOAD_H

#include <stdint.h>

/* The share of slots, 0..1, that are taken when the first add of a random item fails. The filter has some 65,536 slots,
 * buckets of 1..255 slots, and adds of 1..65535 evictions. Takes milliseconds: not on a loop. 0: no memory. Larger
 * filters fail a little earlier, smaller ones sometimes much later. */
double cuckoo_load(unsigned bucket_size, unsigned iterations);

#endif
