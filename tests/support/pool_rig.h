/* pool_rig: a pool for each test of a suite that has .init = setup and .fini = teardown. */
#pragma once

#include "filters.h"

static struct bloom_pool *pool;

static inline void setup(void)
{
    cr_assert_eq(bloom_pool_create(&pool), 0);
}

static inline void teardown(void)
{
    bloom_pool_destroy(pool);
}
