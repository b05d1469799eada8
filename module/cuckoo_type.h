/* cuckoo_type: cuckoo filters as values of the engine: saved, loaded, and rewritten as CF.LOADCHUNK. The type is
 * RedisBloom's with `take-over yes`, and otherwise, or in our layout, one of the module's own.
 *
 * Thread: as value.h. */
#ifndef BLOOMERY_MODULE_CUCKOO_TYPE_H
#define BLOOMERY_MODULE_CUCKOO_TYPE_H

#include <stdbool.h>

#include "bloom_params.h"
#include "engine.h"
#include "errbuf.h"

/* Registers the types, once values_init() has been called. False with a text. */
bool cuckoo_type_init(struct engine_ctx *ctx, bool take_over, struct errbuf *err);

/* The type of new values with these parameters. */
struct engine_type *cuckoo_type_for(const struct bloom_params *params);

/* Whether values of this type are cuckoo filters: a file written without `take-over` has the other type. */
bool cuckoo_type_is(const struct engine_type *type);

#endif
