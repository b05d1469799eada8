/* redisbloom_type: with `take-over yes` the module has RedisBloom's place: its type of values, in its encoding. Filters
 * in RedisBloom's layout are of this type, all others of the module's own.
 *
 * Thread: as value.h. */
#ifndef BLOOMERY_MODULE_REDISBLOOM_TYPE_H
#define BLOOMERY_MODULE_REDISBLOOM_TYPE_H

#include <stdbool.h>

#include "engine.h"
#include "errbuf.h"
#include "value.h"

#define REDISBLOOM_TYPE_NAME "MBbloom--"

extern struct engine_type *redisbloom_type; /* NULL: not taken over */

/* Registers the type, once values_init() has registered the module's own. False with a text. */
bool redisbloom_type_init(struct engine_ctx *ctx, struct errbuf *err);

/* The type that a value has under its key. */
struct engine_type *value_type_of(const struct value *value);

#endif
