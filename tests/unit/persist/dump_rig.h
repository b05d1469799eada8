/* dump_rig: filters for tests of dumps, in one pool. Thread: one. */
#pragma once

#include <stdbool.h>

#include "filters.h"
#include "rng.h"

extern struct bloom_pool *pool;
extern struct rng rng;

void dump_rig_init(uint64_t seed);
void dump_rig_deinit(void);

/* An empty filter of these layers; `shapes` NULL: one layer, as planned. Freed by filter_free(). */
struct bloom_filter *filter_of(const struct bloom_params *params, const struct bloom_shape *shapes, unsigned nlayers);

/* A filter with this many random items. */
struct bloom_filter *filled(uint64_t capacity, double rate, uint32_t expansion, unsigned items);

/* Whether parameters, layers, counts and bits are equal. */
bool same(const struct bloom_filter *a, const struct bloom_filter *b);
