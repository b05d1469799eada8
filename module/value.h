/* value: a filter as the engine keeps it under a key, complete or half loaded.
 *
 * A half-loaded filter (BF.LOADCHUNK) is a key like any other: it is saved, replicated and migrated with the chunks
 * that it has, but answers no question.
 *
 * Lifetime: value_create() to value_free(), which the engine may call in its own thread. Thread: the engine's main
 * thread, unless said otherwise. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "bf_chunks.h"
#include "bf_info.h"
#include "bloom_filter.h"
#include "bloom_params.h"
#include "bloom_window.h"
#include "engine.h"
#include "errbuf.h"
#include "rdb_reader.h"

struct value {
    uint64_t id;           /* unique in this process */
    struct bf_usage usage; /* counts of this process */
    struct bf_load *load;  /* state of the load; NULL: it is complete */
};

/* Takes the place of a value that has been taken out of a key: it has nothing to free. */
extern struct value value_husk;

extern struct engine_type *value_type; /* the module's own; redisbloom_type the other one */
extern const struct engine_type_methods value_methods;

/* Whether the loaded value needs a missing key, other than the last one; then the text is for the operator. */
bool value_key_is_new(const struct value *value, struct errbuf *text_out);

/* The pool of all filters, and a number that distinguishes dumps of this process from all others. */
bool values_init(struct errbuf *err);

struct bloom_pool *values_pool(void);

uint64_t value_dump_identity(const struct value *value); /* in the form for bf_scandump() */

static inline struct bloom_filter *value_filter(const struct value *value)
{
    return (struct bloom_filter *)(void *)((char *)(uintptr_t)value + sizeof(struct value));
}

/* The pool has no limits: the limit of one filter holds for clients alone, so each function that makes one is told
 * whether it counts (`limited`). */

/* An empty filter of this class, which the caller may release afterwards. NULL without memory or past the limit, with
 * the numbers in `err`; then *status_out (bloom_filter_init()) tells which. */
struct value *value_create(struct bloom_class *class, bool limited, int *status_out, struct errbuf *err);

/* An empty filter with these layers. Likewise; *status_out BLOOM_REFUSED: there can be no such filter. */
struct value *value_create_shaped(const struct bloom_params *params, const struct bloom_shape *shapes, unsigned nlayers,
                                  bool limited, int *status_out, struct errbuf *err);

/* Whether it is in its state after value_create(): an empty filter of one layer. */
bool value_is_blank(const struct value *value);

void value_free(void *value); /* any thread; NULL is fine */

/* Begins a load, which passes to the value, or is ended. As value_create_shaped(). */
struct value *value_begin_load(struct bf_load *load, bool limited, int *status_out, struct errbuf *err);
void value_end_load(struct value *value); /* it is complete */

struct value *value_copy(const struct value *value); /* NULL without memory */
size_t value_memory(const struct value *value);      /* bytes */

/* A reader of the fields of a value that the engine reads. */
void value_reader(struct rdb_reader *reader, struct engine_io *io, struct errbuf *err);

/* Returns the loaded value, or reports to the engine's log why there is none; `kind` is "a filter" or a longer name. */
void *value_loaded(struct engine_io *io, struct value *value, const char *kind, struct errbuf *err);

/* Emits bytes to the log of the engine as commands with at most `most` bytes each. The iterator of a command is that of
 * the one before, plus its length. */
void value_emit_bytes(struct engine_io *io, const char *command, struct engine_string *key, long long *iterator,
                      const char *bytes, uint64_t len, size_t most);

/* ---- windows ---- */

/* Filters that forget (bloom_window.h), in an engine with replicas.
 *
 * Exact: the layers of a replica have the same parts, bits and counts as its primary's. The primary alone decides when
 * a part begins and when the memory of an old one is given to a new one, and tells both (effects.h). The time of a part
 * counts from the moment at which a node receives it, by that node's own clock. This is never before the part began, so
 * no node forgets an item within its window, independent of the machines' clocks. A replica that becomes the primary
 * keeps its ages. */

/* Unix time in microseconds at which a part began, whose beginning by the clock of windows is `started_us`. */
int64_t window_unix_us(int64_t started_us);

/* Whether the engine reads the values of its primary, which are as old as they state, whatever the two clocks show. */
bool window_is_synced(void);

/* Whether a window of this first layer has room for all of its parts below bf-max-filter-bytes: refused when it is
 * made, not in the middle of its first window. False with a text. */
bool window_fits(const struct bloom_filter *filter, struct errbuf *err);

/* Empties the dropped parts of a window, piece by piece between commands. */
void window_empty_later(struct engine_ctx *ctx, struct bloom_filter *filter);

/* A window is freed: it will not be emptied any more. Thread: any. */
void window_freed(const struct bloom_filter *filter);

/* The beginning, by this node's clock, of a part that another node began at `unix_us`. An engine that reads its own log
 * uses the time of day, as the log may be old; a replica uses the current time. */
int64_t window_started_here(const struct bloom_filter *filter, uint64_t number, uint64_t unix_us);

/* ---- types ---- */

/* With `take-over yes` the module has RedisBloom's place: its types of values, in its encoding. Filters in RedisBloom's
 * layout are of these types, all others of the module's own. With `take-over valkey` it is so with valkey-bloom's. */

extern struct engine_type *redisbloom_type, *valkey_type; /* NULL: not taken over */

/* Registers all types, once values_init() has been called. False with a text. */
bool types_init(struct engine_ctx *ctx, struct errbuf *err);

/* The type that a value has under its key. */
struct engine_type *value_type_of(const struct value *value);

/* Whether values of this type are cuckoo filters: a file written without `take-over` has the other type. */
bool cuckoo_type_is(const struct engine_type *type);
