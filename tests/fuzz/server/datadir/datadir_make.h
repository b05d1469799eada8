/* datadir_make: a data directory as a daemon leaves it, made by the store and the log's own code from a recipe:
 * filters are created, grow, are renamed, written alone, deleted; saves, with packs and without; frames, segments,
 * processes.
 *
 * Thread: one. */
#pragma once

#include "bloom_filter.h"
#include "recipe.h"

struct made {
    uint64_t digest; /* of the filters that a start must find: the sum of datadir_digest() over them */
    size_t filters;
    bool wild; /* the log has records that no daemon would have written: the right result is unknown */
};

void datadir_make(const char *dir, struct recipe *recipe, struct made *made_out);

/* Of all visible properties of a filter. `filter` NULL: it is in quarantine. */
uint64_t datadir_digest(uint64_t id, const char *name, size_t name_len, int64_t expires_ms,
                        const struct bloom_filter *filter);
