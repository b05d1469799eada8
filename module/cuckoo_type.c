/* The fields are those of persist/formats/cuckoo_dump.c; here the engine reads and writes them, and compresses. */
#include "cuckoo_type.h"

#include <string.h>

#include "cf_chunks.h"
#include "memory.h"
#include "settings.h"
#include "value.h"

static struct engine_type *own, *theirs; /* `theirs` NULL: not taken over */

struct engine_type *cuckoo_type_for(const struct bloom_params *params)
{
    return theirs && !bloom_params_keep_rate(params) ? theirs : own;
}

bool cuckoo_type_is(const struct engine_type *type)
{
    return type && (type == own || type == theirs);
}

/* Slots in memory are the bytes of a value. */
static const char *slots_of(const struct bloom_layer_view *view)
{
    return (const char *)(void *)view->words;
}

/* ---- out ---- */

static void save_rate(struct engine_io *io, const struct cuckoo_head *head)
{
    uint64_t rate;
    memcpy(&rate, &head->error_rate, sizeof(rate));
    engine.SaveUnsigned(io, head->bits);
    engine.SaveUnsigned(io, head->capacity);
    engine.SaveUnsigned(io, rate);
    engine.SaveUnsigned(io, head->key);
}

static void save_as(struct engine_io *io, void *at, bool as_own)
{
    const struct bloom_filter *filter = value_filter(at);
    struct cuckoo_head head;
    cuckoo_head_of(filter, &head);
    engine.SaveUnsigned(io, head.nlayers);
    engine.SaveUnsigned(io, head.buckets);
    engine.SaveUnsigned(io, head.items);
    engine.SaveUnsigned(io, head.deletes);
    engine.SaveUnsigned(io, head.bucket_size);
    engine.SaveUnsigned(io, head.iterations);
    engine.SaveUnsigned(io, head.expansion);
    if (as_own)
        save_rate(io, &head);
    for (unsigned i = 0; i < head.nlayers; i++) {
        struct bloom_layer_view view;
        bloom_filter_layer(filter, i, &view);
        engine.SaveUnsigned(io, cuckoo_shape_buckets(&view.shape));
        engine.SaveStringBuffer(io, slots_of(&view), (size_t)cuckoo_shape_bytes(&view.shape));
    }
}

static void save(struct engine_io *io, void *at)
{
    save_as(io, at, true);
}

static void save_theirs(struct engine_io *io, void *at)
{
    save_as(io, at, false);
}

/* RedisBloom's form, or ours, also for an empty filter. */
static void rewrite(struct engine_io *io, struct engine_string *key, void *at)
{
    const struct bloom_filter *filter = value_filter(at);
    unsigned char header[CUCKOO_HEADER_MAX];
    long long iterator = CF_FIRST_ITERATOR;
    struct cuckoo_head head;
    cuckoo_head_of(filter, &head);
    engine.EmitAOF(io, names.cf_loadchunk, "slb", key, iterator, (const char *)header, cuckoo_head_put(&head, header));
    for (unsigned i = 0; i < head.nlayers; i++) {
        struct bloom_layer_view view;
        bloom_filter_layer(filter, i, &view);
        value_emit_bytes(io, names.cf_loadchunk, key, &iterator, slots_of(&view), cuckoo_shape_bytes(&view.shape),
                         CF_CHUNK_BYTES);
    }
}

/* Two filters are equal if their numbers and all slots are. */
static void digest(struct engine_digest *out, void *at)
{
    const struct bloom_filter *filter = value_filter(at);
    unsigned char header[CUCKOO_HEADER_MAX];
    struct cuckoo_head head;
    cuckoo_head_of(filter, &head);
    engine.DigestAddStringBuffer(out, (const char *)header, cuckoo_head_put(&head, header));
    for (unsigned i = 0; i < head.nlayers; i++) {
        struct bloom_layer_view view;
        bloom_filter_layer(filter, i, &view);
        engine.DigestAddStringBuffer(out, slots_of(&view), (size_t)cuckoo_shape_bytes(&view.shape));
    }
    engine.DigestEndSequence(out);
}

/* ---- in ---- */

struct reading {
    struct value *value;
    struct errbuf err;
};

static int make_layer(void *ctx, const struct dump_plan *plan, unsigned layer, struct bloom_filter **filter_out)
{
    struct reading *to = ctx;
    int status = RDB_BAD;
    if (layer > 0)
        return bloom_filter_append_layer(*filter_out, &plan->shapes[layer], &to->err) == BLOOM_OK ? RDB_OK : RDB_BAD;
    if (memory_may_load(plan->bytes, plan->bytes, &to->err))
        to->value = value_create_shaped(&plan->params, plan->shapes, 1, false, &status, &to->err);
    if (!to->value)
        return RDB_BAD;
    *filter_out = value_filter(to->value);
    return RDB_OK;
}

/* `type`: without the version. */
static void *load_as(struct engine_io *io, uint64_t type, int version)
{
    struct reading to = {.value = NULL};
    struct rdb_reader reader;
    struct dump_plan *plan = memory_zeroed(sizeof(*plan));
    if (!plan)
        return NULL;
    value_reader(&reader, io, &to.err);
    if (cuckoo_read_value(&reader, type | (unsigned)version, make_layer, &to, plan) != RDB_OK) {
        value_free(to.value);
        to.value = NULL;
    }
    memory_release(plan);
    return value_loaded(io, to.value, "a cuckoo filter", &to.err);
}

static void *load(struct engine_io *io, int version)
{
    return load_as(io, CUCKOO_OWN_TYPE_ID, version);
}

static void *load_theirs(struct engine_io *io, int version)
{
    return load_as(io, CUCKOO_TYPE_ID, version);
}

/* ---- registering ---- */

bool cuckoo_type_init(struct engine_ctx *ctx, bool take_over, struct errbuf *err)
{
    struct engine_type_methods methods = value_methods;
    methods.rdb_load = load;
    methods.rdb_save = save;
    methods.aof_rewrite = rewrite;
    methods.digest = digest;
    own = engine.CreateDataType(ctx, CUCKOO_OWN_TYPE_NAME, CUCKOO_OWN_ENCVER, &methods);
    methods.rdb_load = load_theirs;
    methods.rdb_save = save_theirs;
    theirs = own && take_over ? engine.CreateDataType(ctx, CUCKOO_TYPE_NAME, CUCKOO_ENCVER, &methods) : NULL;
    if (own && (theirs || !take_over))
        return true;
    errbuf_set(err,
               own ? "cannot take over the type %s: is RedisBloom, or the engine's own module, also loaded?"
                   : "cannot register the type %s: is the module already loaded?",
               own ? CUCKOO_TYPE_NAME : CUCKOO_OWN_TYPE_NAME);
    return false;
}
