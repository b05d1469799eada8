/* value: a filter as the engine keeps it under a key, complete or half loaded.
 *
 * A half-loaded filter (BF.LOADCHUNK) is a key like any other: it is saved, replicated and migrated with the chunks
 * that it has, but answers no question.
 *
 * Lifetime: value_create() to value_free(), which the engine may call in a thread of its own. Thread: the engine's main
 * thread, unless said otherwise. */
#ifndef BLOOMERY_MODULE_VALUE_H
#define BLOOMERY_MODULE_VALUE_H

#include <stdbool.h>
#include <stdint.h>

#include "bf_info.h"
#include "bloom_filter.h"
#include "dump.h"
#include "engine.h"

struct redisbloom_half;

struct value {
    uint64_t id;           /* unique in this process */
    struct bf_usage usage; /* counts of this process */
    /* What is loading it, at the most one of these: a dump of ours, or RedisBloom's chunks. Both NULL: complete. */
    struct dump_load *load;
    struct redisbloom_half *half;
};

static inline bool value_is_half(const struct value *value)
{
    return value->load || value->half;
}

extern struct engine_type *value_type; /* the module's own; redisbloom_type.h has the other one */

/* The pool of all filters, the types, and the numbers that make dumps of this process different from all others. */
bool values_init(struct engine_ctx *ctx, struct errbuf *err);

struct bloom_pool *values_pool(void);

/* The first part of the identity of a filter's dumps. */
uint64_t value_dump_identity(const struct value *value, unsigned nlayers);
uint64_t value_random(void);

static inline struct bloom_filter *value_filter(const struct value *value)
{
    return (struct bloom_filter *)(void *)((char *)(uintptr_t)value + sizeof(struct value));
}

/* An empty filter of this class, which the caller may release afterwards. NULL without memory or past a limit, with the
 * numbers in `err`; then *status_out (bloom_filter_init()) tells which. */
struct value *value_create(struct bloom_class *class, int *status_out, struct errbuf *err);

/* An empty filter with these layers. Likewise; *status_out BLOOM_REFUSED: there can be no such filter. */
struct value *value_create_shaped(const struct bloom_params *params, const struct bloom_shape *shapes, unsigned nlayers,
                                  int *status_out, struct errbuf *err);

/* Whether it is as value_create() has made it: an empty filter of one layer. */
bool value_is_blank(const struct value *value);

void value_free(void *value); /* any thread; NULL is fine */

/* Begins to load a filter from the header in `load`. As value_create_shaped(). */
struct value *value_begin_load(const struct dump_load *load, int *status_out, struct errbuf *err);

/* The same from RedisBloom's header, which passes to the value, or is released. */
struct value *value_begin_redisbloom(struct redisbloom_half *half, int *status_out, struct errbuf *err);

/* The next string of a value that the engine reads, for Free(); NULL when there is none. */
char *value_load_string(struct engine_io *io, size_t *len_out);

#endif
