/* registry_rig: a registry for stress programs, with filters of one class. Include it in one file of a program. */
#pragma once

#include <stdatomic.h>

#include "rcu.h"
#include "registry.h"
#include "stress.h"

static struct bloom_pool *pool;
static struct reclaimer *reclaimer;
static struct registry *registry;
static struct bloom_class *class; /* filters of 100 items */
static _Atomic int running_writers;

/* "<kind>:<i>" */
static inline struct slice kind_name(char *text, const char *kind, unsigned i)
{
    int len = sprintf(text, "%s:%u", kind, i);
    return (struct slice){text, (size_t)len};
}

static inline int create(struct slice name, struct entry **entry_out)
{
    return registry_create_filter(registry, name, 0, class, entry_out, NULL);
}

static inline void registry_rig_init(uint32_t expansion)
{
    struct bloom_params params = {.capacity = 100, .error_rate = 0.01, .expansion = expansion};

    EXPECT(bloom_pool_create(&pool) == 0 && reclaimer_create(&reclaimer) == 0, "setup");
    EXPECT(registry_create(&registry, pool, reclaimer) == 0, "setup");
    EXPECT(bloom_class_get(pool, &params, NULL, &class, NULL) == 0, "setup");
}

/* Empties the registry: at least `least` names are in it, and no memory is left. */
static inline void registry_rig_deinit(size_t least)
{
    size_t removed, count = registry_count(registry);

    EXPECT(registry_clear(registry, &removed) == 0 && removed == count, "clear removed %zu of %zu", removed, count);
    EXPECT(removed >= least, "%zu names instead of %zu", removed, least);
    bloom_class_release(class);
    registry_destroy(registry);
    reclaimer_destroy(reclaimer);
    EXPECT(bloom_pool_bytes(pool) == 0, "%llu bytes were not freed", (unsigned long long)bloom_pool_bytes(pool));
    bloom_pool_destroy(pool);
}
