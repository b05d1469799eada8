/* registry_version: the version of the filter under a name: three numbers that differ after every change. WATCH
 * compares two versions.
 *
 * Thread: any, in an RCU read section. */
#ifndef BLOOMERY_REGISTRY_VERSION_H
#define BLOOMERY_REGISTRY_VERSION_H

#include <stdbool.h>
#include <stdint.h>

#include "slice.h"

struct registry;

/* All zero: there is no such filter. */
struct registry_version {
    uint64_t id;    /* changes when the filter is replaced */
    uint64_t items; /* changes with each add that has changed bits */
    int64_t expires_ms;
};

struct registry_version registry_version(const struct registry *registry, uint64_t hash, struct slice name);

static inline bool registry_version_same(const struct registry_version *a, const struct registry_version *b)
{
    return a->id == b->id && a->items == b->items && a->expires_ms == b->expires_ms;
}

#endif
