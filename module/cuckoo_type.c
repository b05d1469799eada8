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
    struct engine_io *io;
    struct dump_plan plan;
    struct value *value;
    struct errbuf err;
};

static bool read_head(struct reading *from, bool as_own, struct cuckoo_head *head)
{
    *head = (struct cuckoo_head){0};
    head->nlayers = value_load_unsigned(from->io);
    head->buckets = value_load_unsigned(from->io);
    head->items = value_load_unsigned(from->io);
    head->deletes = value_load_unsigned(from->io);
    head->bucket_size = value_load_unsigned(from->io);
    head->iterations = value_load_unsigned(from->io);
    head->expansion = value_load_unsigned(from->io);
    if (as_own) {
        head->bits = value_load_unsigned(from->io);
        head->capacity = value_load_unsigned(from->io);
        uint64_t rate = value_load_unsigned(from->io);
        memcpy(&head->error_rate, &rate, sizeof(rate));
        head->key = value_load_unsigned(from->io);
    }
    if (!engine.IsIOError(from->io))
        return cuckoo_head_plan(head, &from->plan, &from->err) == DUMP_OK &&
               memory_may_load(from->plan.bytes, from->plan.bytes, &from->err);
    errbuf_set(&from->err, "its first fields are missing");
    return false;
}

/* Called when the slots are there: numbers alone take no memory. */
static bool make_layer(struct reading *to, unsigned index)
{
    const struct dump_plan *plan = &to->plan;
    int status;
    if (index > 0)
        return bloom_filter_append_layer(value_filter(to->value), &plan->shapes[index], &to->err) == BLOOM_OK;
    to->value = value_create_shaped(&plan->params, plan->shapes, 1, false, &status, &to->err);
    return to->value != NULL;
}

static bool read_layer(struct reading *from, unsigned index)
{
    const struct bloom_shape *shape = &from->plan.shapes[index];
    uint64_t buckets = value_load_unsigned(from->io);
    if (engine.IsIOError(from->io) || buckets != cuckoo_shape_buckets(shape)) {
        errbuf_set(&from->err, "sub-filter %u has %llu buckets, which do not follow from the first", index,
                   (unsigned long long)buckets);
        return false;
    }
    size_t len;
    char *slots = value_load_string(from->io, &len);
    bool right = slots && len == cuckoo_shape_bytes(shape), made = right && make_layer(from, index);
    if (made)
        cuckoo_fill(value_filter(from->value), index, 0, slots, len);
    else if (!slots)
        errbuf_set(&from->err, "the slots of sub-filter %u are missing", index);
    else if (!right)
        errbuf_set(&from->err, "%zu bytes of sub-filter %u, which has %llu", len, index,
                   (unsigned long long)cuckoo_shape_bytes(shape));
    if (slots)
        engine.Free(slots);
    return made;
}

static bool read_filter(struct reading *from, bool as_own)
{
    struct cuckoo_head head;
    if (!read_head(from, as_own, &head))
        return false;
    for (unsigned i = 0; i < from->plan.nlayers; i++)
        if (!read_layer(from, i))
            return false;
    cuckoo_recount(value_filter(from->value));
    cuckoo_set_counts(value_filter(from->value), 0, head.deletes);
    return true;
}

/* `newest`: version of the type. */
static void *load_up_to(struct engine_io *io, int version, int newest)
{
    struct reading *from = memory_zeroed(sizeof(*from));
    struct value *value = NULL;
    if (!from)
        return NULL;
    from->io = io;
    if (version < CUCKOO_ENCVER)
        errbuf_set(&from->err,
                   "it is from RedisBloom before 2.2 (encoding %d), with hashes that later versions do not use: "
                   "create it again from its items",
                   version);
    else if (version > newest)
        errbuf_set(&from->err, "unknown encoding version %d", version);
    else if (read_filter(from, version == CUCKOO_OWN_ENCVER))
        value = from->value;
    if (!value && from->value)
        value_free(from->value);
    value = value_loaded(io, value, "a cuckoo filter", &from->err);
    memory_release(from);
    return value;
}

static void *load(struct engine_io *io, int version)
{
    return load_up_to(io, version, CUCKOO_OWN_ENCVER);
}

static void *load_theirs(struct engine_io *io, int version)
{
    return load_up_to(io, version, CUCKOO_ENCVER);
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
