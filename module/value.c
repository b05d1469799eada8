#include "value.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "bloom_merge.h"
#include "bloom_window.h"
#include "effects.h"
#include "memory.h"
#include "redisbloom_half.h"
#include "redisbloom_type.h"
#include "settings.h"
#include "value_window.h"

_Static_assert(sizeof(struct value) % 8 == 0, "the filter lies behind it, aligned to 8");

#define BACKGROUND_BYTES (64 * 1024) /* what takes longer to free than to hand over */

static struct bloom_pool *pool;
static uint64_t last_id, process_seed;

struct engine_type *value_type;

struct bloom_pool *values_pool(void)
{
    return pool;
}

/* ---- identity ---- */

uint64_t value_random(void)
{
    uint64_t number;
    if (getrandom(&number, sizeof(number), 0) != (ssize_t)sizeof(number))
        number = (uint64_t)time(NULL) ^ (uintptr_t)&number;
    return number;
}

static uint64_t mixed(uint64_t x)
{
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

uint64_t value_dump_identity(const struct value *value, unsigned nlayers)
{
    return mixed(process_seed + mixed(value->id * BLOOM_MAX_LAYERS + nlayers));
}

/* ---- life ---- */

struct value *value_create(struct bloom_class *class, int *status_out, struct errbuf *err)
{
    struct value *value = memory_zeroed(sizeof(*value) + bloom_filter_bytes(class));
    if (!value) {
        *status_out = -1;
        errbuf_set(err, "out of memory");
        return NULL;
    }
    *status_out = bloom_filter_init(value_filter(value), class, err);
    if (*status_out != 0) {
        memory_release(value);
        return NULL;
    }
    value->id = ++last_id;
    value->usage.since_s = (int64_t)time(NULL);
    return value;
}

struct value *value_create_shaped(const struct bloom_params *params, const struct bloom_shape *shapes, unsigned nlayers,
                                  int *status_out, struct errbuf *err)
{
    struct bloom_class *class;
    *status_out = bloom_class_get(pool, params, &shapes[0], &class, err);
    if (*status_out != 0)
        return NULL;
    struct value *value = value_create(class, status_out, err);
    bloom_class_release(class);
    for (unsigned i = 1; value && i < nlayers; i++) {
        *status_out = bloom_filter_append_layer(value_filter(value), &shapes[i], err);
        if (*status_out == 0)
            continue;
        value_free(value);
        value = NULL;
    }
    return value;
}

struct value *value_begin_load(const struct dump_load *load, int *status_out, struct errbuf *err)
{
    const struct dump_plan *plan = &load->plan;
    struct dump_load *own = memory_zeroed(sizeof(*own));
    struct value *value = own ? value_create_shaped(&plan->params, plan->shapes, plan->nlayers, status_out, err) : NULL;
    if (!value) {
        if (!own)
            *status_out = -1;
        memory_release(own);
        return NULL;
    }
    *own = *load;
    value->load = own;
    return value;
}

struct value *value_begin_redisbloom(struct redisbloom_half *half, int *status_out, struct errbuf *err)
{
    const struct dump_plan *plan = &half->load.plan;
    struct value *value = value_create_shaped(&plan->params, plan->shapes, plan->nlayers, status_out, err);
    if (value)
        value->half = half;
    else
        half_release(half);
    return value;
}

void value_free(void *at)
{
    struct value *value = at;
    if (!value)
        return;
    if (bloom_filter_forgets(value_filter(value)))
        window_freed(value);
    bloom_filter_deinit(value_filter(value));
    half_release(value->half);
    memory_release(value->load);
    memory_release(value);
}

bool value_is_blank(const struct value *value)
{
    return !value_is_half(value) && bloom_filter_is_blank(value_filter(value));
}

/* NULL without memory. */
static struct value *value_copy(const struct value *value)
{
    const struct bloom_filter *filter = value_filter(value);
    struct bloom_union counts = {{0}, {0}};
    struct errbuf err = {""};
    struct dump_plan plan;
    int status;
    bloom_pool_set_limits(pool, 0, 0); /* the engine copies what is there, for clients and for primaries */
    dump_plan_of(filter, bloom_filter_nlayers(filter), &plan);
    struct value *copy = value_create_shaped(&plan.params, plan.shapes, plan.nlayers, &status, &err);
    if (!copy)
        return NULL;
    if (bloom_filter_forgets(filter))
        window_copy(value_filter(copy), filter, value->load != NULL);
    else
        bloom_filter_or(value_filter(copy), filter, plan.nlayers, &counts);
    for (unsigned i = 0; i < plan.nlayers && !bloom_filter_forgets(filter); i++)
        bloom_filter_set_items(value_filter(copy), i, counts.most[i]);
    if (value->load && (copy->load = memory_zeroed(sizeof(*copy->load))))
        *copy->load = *value->load;
    if (value->half)
        copy->half = half_copy(value->half);
    if (value_is_half(copy) == value_is_half(value))
        return copy;
    value_free(copy);
    return NULL;
}

/* ---- the engine's callbacks ---- */

/* The chunks of a value: those that have come, or all of a dump whose identity and nonce are 0, so that equal filters
 * have equal bytes. */
struct chunks {
    struct dump_plan plan;
    uint64_t identity, nonce;
    uint32_t n;
    struct dump_place place; /* of the next */
};

static unsigned char scratch[DUMP_CHUNK_MAX]; /* the longest, whatever the number of layers */

_Static_assert(DUMP_CHUNK_MAX > DUMP_HEADER_MAX, "a header fits, and so do the counts");

static void chunks_of(const struct value *value, struct chunks *chunks)
{
    const struct bloom_filter *filter = value_filter(value);
    *chunks = (struct chunks){.place = {.nlayers = bloom_filter_nlayers(filter)}};
    if (value->load)
        chunks->plan = value->load->plan;
    else
        dump_plan_of(filter, chunks->place.nlayers, &chunks->plan);
    chunks->n = dump_chunks(&chunks->plan);
    if (value->load) {
        chunks->identity = value->load->identity;
        chunks->nonce = value->load->nonce;
        chunks->n = value->load->place.next;
    }
}

static size_t next_chunk(const struct value *value, struct chunks *chunks)
{
    size_t len = dump_chunk_bytes(&chunks->plan, chunks->place.next);
    dump_write_chunk(&chunks->plan, value_filter(value), chunks->identity, chunks->nonce, &chunks->place, scratch);
    return len;
}

/* In the place of the number of chunks: what has come of RedisBloom's chunks. */
#define REDISBLOOM_HALF 0

static void save(struct engine_io *io, void *at)
{
    const struct value *value = at;
    struct chunks chunks;
    if (value->half) {
        engine.SaveUnsigned(io, REDISBLOOM_HALF);
        half_save(io, value);
        return;
    }
    chunks_of(value, &chunks);
    engine.SaveUnsigned(io, chunks.n);
    while (chunks.place.next < chunks.n)
        engine.SaveStringBuffer(io, (const char *)scratch, next_chunk(value, &chunks));
}

char *value_load_string(struct engine_io *io, size_t *len_out)
{
    char *chunk = engine.LoadStringBuffer(io, len_out);
    if (chunk && engine.IsIOError(io)) {
        engine.Free(chunk);
        return NULL;
    }
    return chunk;
}

/* Takes chunks 1 to n - 1 of a value that has begun. */
static bool load_rest(struct engine_io *io, struct value *value, uint64_t n, struct errbuf *err)
{
    bool complete = false;
    for (uint64_t i = 1; i < n; i++) {
        size_t len;
        char *chunk = value_load_string(io, &len);
        if (!chunk) {
            errbuf_set(err, "chunk %llu of %llu is missing", (unsigned long long)i, (unsigned long long)n);
            return false;
        }
        int status = dump_replay_chunk(value->load, value_filter(value), chunk, len, &complete, err);
        engine.Free(chunk);
        if (status != DUMP_OK)
            return false;
    }
    if (!complete)
        return true;
    memory_release(value->load);
    value->load = NULL;
    return true;
}

/* Whatever a file or a primary has is taken, whatever the limits for clients, if this machine can hold it. */
static struct value *load_header(struct engine_io *io, uint64_t n, struct errbuf *err)
{
    struct dump_load load;
    int status;
    size_t len;
    char *chunk = value_load_string(io, &len);
    if (!chunk) {
        errbuf_set(err, "the header is missing");
        return NULL;
    }
    status = dump_replay_begin(&load, chunk, len, err);
    engine.Free(chunk);
    if (status != DUMP_OK || !memory_possible(load.plan.bytes, err))
        return NULL;
    if (n < 1 || n > dump_chunks(&load.plan)) {
        errbuf_set(err, "%llu chunks, where its layers need %u", (unsigned long long)n, dump_chunks(&load.plan));
        return NULL;
    }
    if (n == dump_chunks(&load.plan) && window_is_synced())
        load.plan.taken_ms = INT64_MAX; /* now, as all of the future (docs/DUMP.md) */
    return value_begin_load(&load, &status, err);
}

static void *load(struct engine_io *io, int version)
{
    struct errbuf err = {""};
    struct value *value = NULL;
    bloom_pool_set_limits(pool, 0, 0);
    if (version != DUMP_TYPE_VERSION) {
        errbuf_set(&err, "version %d of the encoding is not known here", version);
    } else {
        uint64_t n = engine.LoadUnsigned(io);
        if (engine.IsIOError(io))
            errbuf_set(&err, "its first field is missing");
        else
            value = n == REDISBLOOM_HALF ? half_load(io, &err) : load_header(io, n, &err);
        if (value && value->load && !load_rest(io, value, n, &err)) {
            value_free(value);
            value = NULL;
        }
    }
    if (!value && engine.LogIOError)
        engine.LogIOError(io, "warning", "bloomery: a filter cannot be read: %s", err.text);
    return value;
}

static void rewrite(struct engine_io *io, struct engine_string *key, void *at)
{
    const struct value *value = at;
    struct chunks chunks;
    if (value->half) {
        half_rewrite(io, key, value);
        return;
    }
    chunks_of(value, &chunks);
    while (chunks.place.next < chunks.n) {
        size_t len = next_chunk(value, &chunks);
        engine.EmitAOF(io, names.loadchunk, "slb", key, (long long)dump_iterator(&chunks.place), (const char *)scratch,
                       len);
    }
}

static size_t memory_of(const struct value *value)
{
    if (!value)
        return 0;
    return sizeof(*value) + bloom_filter_memory(value_filter(value)) + (value->load ? sizeof(*value->load) : 0) +
           (value->half ? half_memory(value->half) : 0);
}

static size_t mem_usage(const void *value)
{
    return memory_of(value);
}

static size_t mem_usage2(void *key, const void *value, size_t samples)
{
    (void)key;
    (void)samples;
    return memory_of(value);
}

/* 0: to be freed in the background. */
static size_t free_effort2(void *key, const void *value)
{
    (void)key;
    return memory_of(value) >= BACKGROUND_BYTES ? 0 : 1;
}

/* What makes two filters equal: parameters, shapes, bits and counts, in a window the numbers of the parts, but not
 * their ages; of half-loaded ones also what has come. */
static void digest(struct engine_digest *digest_out, void *at)
{
    const struct value *value = at;
    struct chunks chunks;
    if (value->half) {
        half_digest(digest_out, value);
        return;
    }
    chunks_of(value, &chunks);
    if (!value->load) {
        chunks.plan.taken_ms = 0;
        for (unsigned i = 0; i < chunks.plan.nlayers; i++)
            chunks.plan.turns[i].age_us = 0;
    }
    engine.DigestAddLongLong(digest_out, chunks.n);
    while (chunks.place.next < chunks.n)
        engine.DigestAddStringBuffer(digest_out, (const char *)scratch, next_chunk(value, &chunks));
    engine.DigestEndSequence(digest_out);
}

static void *copy2(void *keys, const void *value)
{
    (void)keys;
    return value_copy(value);
}

bool values_init(struct engine_ctx *ctx, struct errbuf *err)
{
    struct engine_type_methods methods = {
        .version = ENGINE_TYPE_VERSION,
        .rdb_load = load,
        .rdb_save = save,
        .aof_rewrite = rewrite,
        .mem_usage = mem_usage,
        .digest = digest,
        .free = value_free,
        .mem_usage2 = mem_usage2,
        .free_effort2 = free_effort2,
        .copy2 = copy2,
    };
    if (bloom_pool_create_in(&engine_memory, &pool) != 0) {
        errbuf_set(err, "out of memory");
        return false;
    }
    window_clock_init(pool);
    process_seed = value_random();
    value_type = engine.CreateDataType(ctx, DUMP_TYPE_NAME, DUMP_TYPE_VERSION, &methods);
    if (value_type)
        return !settings.take_over || redisbloom_type_init(ctx, &methods, err);
    errbuf_set(err, "the type %s cannot be registered: is the module loaded already?", DUMP_TYPE_NAME);
    return false;
}
