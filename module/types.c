/* Values of RedisBloom's types, and cuckoo filters: the fields of redisbloom_format.h, read and written by the engine,
 * which compresses strings and makes checksums itself. */
#include <string.h>

#include "bf_chunks.h"
#include "memory.h"
#include "redisbloom_dump.h"
#include "settings.h"
#include "valkey_dump.h"
#include "value.h"

struct engine_type *redisbloom_type;
static struct engine_type *cuckoo_own, *cuckoo_theirs; /* the second is NULL: not taken over */

struct engine_type *value_type_of(const struct value *value)
{
    const struct bloom_params *params = bloom_filter_params(value_filter(value));
    if (bloom_params_is_cuckoo(params))
        return cuckoo_theirs && !bloom_params_keep_rate(params) ? cuckoo_theirs : cuckoo_own;
    if (valkey_type && !value->load && valkey_is_layout(value_filter(value)))
        return valkey_type;
    bool theirs = redisbloom_type && !value->load && redisbloom_is_layout(value_filter(value));
    return theirs ? redisbloom_type : value_type;
}

/* ---- saving ---- */

/* Bits in memory have the bytes of RedisBloom (redisbloom.h). */
static const char *bits_of(const struct bloom_filter *filter, unsigned layer)
{
    struct bloom_layer_view view;
    bloom_filter_layer(filter, layer, &view);
    return (const char *)(void *)view.words;
}

static void save(struct engine_io *io, void *at)
{
    const struct bloom_filter *filter = value_filter(at);
    static struct redisbloom_filter numbers; /* 57 KB; there is one saver */
    redisbloom_describe(filter, bloom_filter_nlayers(filter), &numbers);
    engine.SaveUnsigned(io, bloom_filter_items(filter));
    engine.SaveUnsigned(io, numbers.nlayers);
    engine.SaveUnsigned(io, numbers.options);
    engine.SaveUnsigned(io, numbers.growth);
    for (unsigned i = 0; i < numbers.nlayers; i++) {
        const struct redisbloom_layer *layer = &numbers.layers[i];
        engine.SaveUnsigned(io, layer->entries);
        engine.SaveDouble(io, layer->error);
        engine.SaveUnsigned(io, layer->hashes);
        engine.SaveDouble(io, layer->bpe);
        engine.SaveUnsigned(io, layer->bits);
        engine.SaveUnsigned(io, layer->n2);
        engine.SaveStringBuffer(io, bits_of(filter, i), (size_t)redisbloom_bytes(layer));
        engine.SaveUnsigned(io, layer->count);
    }
}

/* ---- loading ---- */

struct reading {
    struct redisbloom_filter numbers; /* with the layers that have been read */
    struct bloom_shape shapes[BLOOM_MAX_LAYERS];
    struct value *value;
    struct errbuf err;
};

/* Checks the numbers of the layers up to this one, and makes room for it: nothing is allocated for wrong ones. */
static bool make_layer(struct reading *to, unsigned index)
{
    struct redisbloom_filter *numbers = &to->numbers;
    struct bloom_params params;
    uint64_t nlayers = numbers->nlayers, bytes;
    int status;
    numbers->nlayers = index + 1;
    bool valid = redisbloom_check(numbers, &params, to->shapes, &bytes, &to->err) == BLOOM_OK &&
                 memory_may_load(bytes, to->shapes[index].nwords * 8, &to->err);
    numbers->nlayers = nlayers;
    if (!valid)
        return false;
    if (index > 0)
        return bloom_filter_append_layer(value_filter(to->value), &to->shapes[index], &to->err) == BLOOM_OK;
    to->value = value_create_shaped(&params, to->shapes, 1, false, &status, &to->err);
    return to->value != NULL;
}

static int take_bits(void *ctx, unsigned layer, uint64_t offset, const unsigned char *bytes, size_t len)
{
    struct reading *to = ctx;
    if (offset == 0 && !make_layer(to, layer))
        return RDB_BAD;
    bloom_filter_put_bytes(value_filter(to->value), layer, offset, bytes, len);
    return RDB_OK;
}

static bool read_filter(struct engine_io *io, unsigned version, struct reading *to)
{
    struct bloom_params params;
    struct rdb_reader reader;
    uint64_t bytes;
    value_reader(&reader, io, &to->err);
    if (redisbloom_read(&reader, version, &to->numbers, take_bits, to) != RDB_OK ||
        redisbloom_check(&to->numbers, &params, to->shapes, &bytes, &to->err) != BLOOM_OK) /* now with the counts */
        return false;
    for (unsigned i = 0; i < to->numbers.nlayers; i++)
        bloom_filter_set_items(value_filter(to->value), i, to->numbers.layers[i].count);
    return true;
}

static void *load(struct engine_io *io, int version)
{
    struct reading *to = memory_zeroed(sizeof(*to));
    if (!to)
        return NULL;
    struct value *value = read_filter(io, (unsigned)version, to) ? to->value : NULL;
    if (!value)
        value_free(to->value);
    value = value_loaded(io, value, "a RedisBloom filter", &to->err);
    memory_release(to);
    return value;
}

/* ---- the engine's log ---- */

/* In RedisBloom's form, so that RedisBloom can read it: the header, and the bits of each layer. */
static void rewrite(struct engine_io *io, struct engine_string *key, void *at)
{
    const struct bloom_filter *filter = value_filter(at);
    static struct redisbloom_filter numbers;
    static unsigned char header[20 + 53 * BLOOM_MAX_LAYERS];
    long long iterator = REDISBLOOM_HEADER_ITERATOR;
    redisbloom_describe(filter, bloom_filter_nlayers(filter), &numbers);
    redisbloom_write_header(&numbers, header);
    engine.EmitAOF(io, names.loadchunk, "slb", key, iterator, (const char *)header,
                   redisbloom_header_bytes(numbers.nlayers));
    for (unsigned i = 0; i < numbers.nlayers; i++)
        value_emit_bytes(io, names.loadchunk, key, &iterator, bits_of(filter, i), redisbloom_bytes(&numbers.layers[i]),
                         DUMP_DATA_BYTES);
}

bool redisbloom_type_init(struct engine_ctx *ctx, struct errbuf *err)
{
    struct engine_type_methods methods = value_methods;
    methods.rdb_load = load;
    methods.rdb_save = save;
    methods.aof_rewrite = rewrite;
    redisbloom_type = engine.CreateDataType(ctx, REDISBLOOM_TYPE_NAME, REDISBLOOM_ENCVER, &methods);
    if (redisbloom_type)
        return true;
    return errbuf_fail(err, false,
                       "cannot take over the type %s: is RedisBloom, or the engine's own module, also loaded?",
                       REDISBLOOM_TYPE_NAME);
}

/* ---- cuckoo filters ---- */

/* The fields are those of persist/formats/cuckoo_dump.c. The type is RedisBloom's with `take-over yes`, and otherwise,
 * or in our layout, one of the module's own. */

bool cuckoo_type_is(const struct engine_type *type)
{
    return type && (type == cuckoo_own || type == cuckoo_theirs);
}

/* Slots in memory are the bytes of a value. */
static const char *slots_of(const struct bloom_layer_view *view)
{
    return (const char *)(void *)view->words;
}

static void save_rate(struct engine_io *io, const struct cuckoo_head *head)
{
    uint64_t rate;
    memcpy(&rate, &head->error_rate, sizeof(rate));
    engine.SaveUnsigned(io, head->bits);
    engine.SaveUnsigned(io, head->capacity);
    engine.SaveUnsigned(io, rate);
    engine.SaveUnsigned(io, head->key);
}

static void cuckoo_save(struct engine_io *io, void *at, bool as_own)
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
        engine.SaveStringBuffer(io, slots_of(&view), (size_t)bloom_shape_bytes(&view.shape));
    }
}

static void cuckoo_save_own(struct engine_io *io, void *at)
{
    cuckoo_save(io, at, true);
}

static void cuckoo_save_theirs(struct engine_io *io, void *at)
{
    cuckoo_save(io, at, false);
}

/* RedisBloom's form, or ours, also for an empty filter. */
static void cuckoo_rewrite(struct engine_io *io, struct engine_string *key, void *at)
{
    const struct bloom_filter *filter = value_filter(at);
    unsigned char header[CUCKOO_HEADER_MAX];
    long long iterator = REDISBLOOM_HEADER_ITERATOR;
    struct cuckoo_head head;
    cuckoo_head_of(filter, &head);
    engine.EmitAOF(io, names.cf_loadchunk, "slb", key, iterator, (const char *)header, cuckoo_head_put(&head, header));
    for (unsigned i = 0; i < head.nlayers; i++) {
        struct bloom_layer_view view;
        bloom_filter_layer(filter, i, &view);
        value_emit_bytes(io, names.cf_loadchunk, key, &iterator, slots_of(&view), bloom_shape_bytes(&view.shape),
                         DUMP_DATA_BYTES);
    }
}

/* Two filters are equal if their numbers and all slots are. */
static void cuckoo_digest(struct engine_digest *out, void *at)
{
    const struct bloom_filter *filter = value_filter(at);
    unsigned char header[CUCKOO_HEADER_MAX];
    struct cuckoo_head head;
    cuckoo_head_of(filter, &head);
    engine.DigestAddStringBuffer(out, (const char *)header, cuckoo_head_put(&head, header));
    for (unsigned i = 0; i < head.nlayers; i++) {
        struct bloom_layer_view view;
        bloom_filter_layer(filter, i, &view);
        engine.DigestAddStringBuffer(out, slots_of(&view), (size_t)bloom_shape_bytes(&view.shape));
    }
    engine.DigestEndSequence(out);
}

struct cuckoo_reading {
    struct value *value;
    struct errbuf err;
};

static int make_cuckoo_layer(void *ctx, const struct dump_plan *plan, unsigned layer, struct bloom_filter **filter_out)
{
    struct cuckoo_reading *to = ctx;
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
static void *cuckoo_load_as(struct engine_io *io, uint64_t type, int version)
{
    struct cuckoo_reading to = {.value = NULL};
    struct rdb_reader reader;
    struct dump_plan *plan = memory_zeroed(sizeof(*plan));
    if (!plan)
        return NULL;
    value_reader(&reader, io, &to.err);
    if (cuckoo_read_value(&reader, type | (unsigned)version, make_cuckoo_layer, &to, plan) != RDB_OK) {
        value_free(to.value);
        to.value = NULL;
    }
    memory_release(plan);
    return value_loaded(io, to.value, "a cuckoo filter", &to.err);
}

static void *cuckoo_load_own(struct engine_io *io, int version)
{
    return cuckoo_load_as(io, CUCKOO_OWN_TYPE_ID, version);
}

static void *cuckoo_load_theirs(struct engine_io *io, int version)
{
    return cuckoo_load_as(io, CUCKOO_TYPE_ID, version);
}

bool cuckoo_type_init(struct engine_ctx *ctx, bool take_over, struct errbuf *err)
{
    struct engine_type_methods methods = value_methods;
    methods.rdb_load = cuckoo_load_own;
    methods.rdb_save = cuckoo_save_own;
    methods.aof_rewrite = cuckoo_rewrite;
    methods.digest = cuckoo_digest;
    cuckoo_own = engine.CreateDataType(ctx, CUCKOO_OWN_TYPE_NAME, CUCKOO_OWN_ENCVER, &methods);
    methods.rdb_load = cuckoo_load_theirs;
    methods.rdb_save = cuckoo_save_theirs;
    cuckoo_theirs =
        cuckoo_own && take_over ? engine.CreateDataType(ctx, CUCKOO_TYPE_NAME, CUCKOO_ENCVER, &methods) : NULL;
    if (cuckoo_own && (cuckoo_theirs || !take_over))
        return true;
    return errbuf_fail(err, false,
                       cuckoo_own
                           ? "cannot take over the type %s: is RedisBloom, or the engine's own module, also loaded?"
                           : "cannot register the type %s: is the module already loaded?",
                       cuckoo_own ? CUCKOO_TYPE_NAME : CUCKOO_OWN_TYPE_NAME);
}
