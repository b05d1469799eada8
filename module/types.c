/* Values of the types of RedisBloom and valkey-bloom, and cuckoo filters: the fields of redisbloom_format.h and
 * valkey_format.h, read and written by the engine, which compresses strings and makes checksums itself. */
#include <string.h>

#include "bf_chunks.h"
#include "memory.h"
#include "redisbloom_dump.h"
#include "settings.h"
#include "valkey_dump.h"
#include "value.h"

struct engine_type *value_type, *redisbloom_type, *valkey_type;
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

/* Bits and slots in memory have the bytes of a value (redisbloom.h). */
static struct slice bytes_of(const struct bloom_filter *filter, unsigned layer)
{
    struct bloom_layer_view view;
    bloom_filter_layer(filter, layer, &view);
    return (struct slice){(const char *)(void *)view.words, (size_t)bloom_shape_bytes(&view.shape)};
}

/* Makes room for a layer; the first makes the value. */
static bool make_layer(struct value **value, const struct bloom_params *params, const struct bloom_shape *shapes,
                       unsigned layer, struct errbuf *err)
{
    int status;
    if (layer > 0)
        return bloom_filter_append_layer(value_filter(*value), &shapes[layer], err) == BLOOM_OK;
    *value = value_create_shaped(params, shapes, 1, false, &status, err);
    return *value != NULL;
}

/* ---- of RedisBloom ---- */

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
        engine.SaveStringBuffer(io, bytes_of(filter, i).ptr, (size_t)redisbloom_bytes(layer));
        engine.SaveUnsigned(io, layer->count);
    }
}

struct reading {
    struct redisbloom_filter numbers; /* with the layers that have been read */
    struct bloom_shape shapes[BLOOM_MAX_LAYERS];
    struct value *value;
    struct errbuf err;
};

/* Checks the numbers of the layers up to this one, and makes room for it: nothing is allocated for wrong ones. */
static bool make_checked(struct reading *to, unsigned index)
{
    struct redisbloom_filter *numbers = &to->numbers;
    struct bloom_params params;
    uint64_t nlayers = numbers->nlayers, bytes;
    numbers->nlayers = index + 1;
    bool valid = redisbloom_check(numbers, &params, to->shapes, &bytes, &to->err) == BLOOM_OK &&
                 memory_may_load(bytes, to->shapes[index].nwords * 8, &to->err);
    numbers->nlayers = nlayers;
    return valid && make_layer(&to->value, &params, to->shapes, index, &to->err);
}

static int take_bits(void *ctx, unsigned layer, uint64_t offset, const unsigned char *bytes, size_t len)
{
    struct reading *to = ctx;
    if (offset == 0 && !make_checked(to, layer))
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
        value_emit_bytes(io, names.loadchunk, key, &iterator, bytes_of(filter, i).ptr,
                         redisbloom_bytes(&numbers.layers[i]), DUMP_DATA_BYTES);
}

/* ---- of valkey-bloom ---- */

/* Without memory for a copy the engine ends, as it does for its own of the same bytes; or its child that saves. */
static void valkey_save(struct engine_io *io, void *at)
{
    const struct bloom_filter *filter = value_filter(at);
    static struct valkey_filter numbers; /* 32 KB; there is one saver */
    valkey_describe(filter, &numbers);
    engine.SaveUnsigned(io, numbers.nlayers);
    engine.SaveUnsigned(io, numbers.expansion);
    engine.SaveDouble(io, numbers.error);
    engine.SaveDouble(io, numbers.tightening);
    engine.SaveUnsigned(io, !numbers.fixed_seed);
    for (unsigned i = 0; i < numbers.nlayers; i++) {
        const struct valkey_layer *layer = &numbers.layers[i];
        unsigned char *blob = engine.Calloc(1, (size_t)(VALKEY_BLOB_HEAD + layer->bytes));
        bloom_filter_get_bytes(filter, i, 0, valkey_put_blob(blob, &numbers, i), (size_t)layer->bytes);
        engine.SaveStringBuffer(io, (const char *)blob, (size_t)(VALKEY_BLOB_HEAD + layer->bytes));
        engine.Free(blob);
        engine.SaveUnsigned(io, layer->capacity);
    }
    engine.SaveUnsigned(io, numbers.layers[numbers.nlayers - 1].items);
}

/* In valkey-bloom's form, so that it can read the log. */
static void valkey_rewrite(struct engine_io *io, struct engine_string *key, void *at)
{
    const struct bloom_filter *filter = value_filter(at);
    static struct valkey_filter numbers;
    valkey_describe(filter, &numbers);
    unsigned char *payload = engine.Calloc(1, (size_t)valkey_load_bytes(&numbers));
    size_t len = (size_t)(valkey_write_load(filter, &numbers, payload) - payload);
    engine.EmitAOF(io, names.load, "sb", key, (const char *)payload, len);
    engine.Free(payload);
}

struct valkey_reading {
    struct valkey_filter numbers;
    struct dump_plan plan;
    struct value *value;
    unsigned char *bits; /* of the latest layer, whose capacity comes after them; NULL: none */
    unsigned layer;
    struct errbuf err;
};

/* Makes room for the layer, all numbers of which have come, and takes its bits. */
static bool put_layer(struct valkey_reading *to)
{
    unsigned index = to->layer;
    if (!to->bits)
        return true;
    if (valkey_plan(&to->numbers, index + 1, &to->plan, &to->err) != DUMP_OK)
        return false;
    if (!make_layer(&to->value, &to->plan.params, to->plan.shapes, index, &to->err))
        return false;
    const struct valkey_layer *layer = &to->numbers.layers[index];
    bloom_filter_put_bytes(value_filter(to->value), index, 0, to->bits, (size_t)layer->bytes);
    bloom_filter_set_items(value_filter(to->value), index, layer->items);
    memory_release(to->bits);
    to->bits = NULL;
    return true;
}

/* The engine has the whole string in memory: its announced length is that of bytes that are there. */
static int take_valkey_bits(void *ctx, unsigned layer, uint64_t offset, const unsigned char *bytes, size_t len)
{
    struct valkey_reading *to = ctx;
    uint64_t all = to->numbers.layers[layer].bytes;
    if (offset == 0) {
        if (!put_layer(to) || !memory_may_load(to->plan.bytes + all, 2 * all, &to->err))
            return RDB_BAD;
        to->bits = memory_zeroed((size_t)all);
        to->layer = layer;
    }
    if (to->bits)
        memcpy(to->bits + offset, bytes, len);
    else
        errbuf_set(&to->err, "out of memory");
    return to->bits ? RDB_OK : RDB_BAD;
}

static void *valkey_load(struct engine_io *io, int version)
{
    struct rdb_reader reader;
    struct valkey_reading *to = memory_zeroed(sizeof(*to));
    if (!to)
        return NULL;
    value_reader(&reader, io, &to->err);
    bool whole = valkey_read(&reader, (unsigned)version, &to->numbers, take_valkey_bits, to) == RDB_OK && put_layer(to);
    struct value *value = whole ? to->value : NULL;
    if (!whole)
        value_free(to->value);
    memory_release(to->bits);
    value = value_loaded(io, value, "a filter of valkey-bloom", &to->err);
    memory_release(to);
    return value;
}

/* ---- cuckoo filters ---- */

/* The fields are those of persist/formats/cuckoo_dump.c. The type is RedisBloom's with `take-over yes`, and otherwise,
 * or in our layout, one of the module's own. */

bool cuckoo_type_is(const struct engine_type *type)
{
    return type && (type == cuckoo_own || type == cuckoo_theirs);
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
        struct slice slots = bytes_of(filter, i);
        bloom_filter_layer(filter, i, &view);
        engine.SaveUnsigned(io, cuckoo_shape_buckets(&view.shape));
        engine.SaveStringBuffer(io, slots.ptr, slots.len);
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
        struct slice slots = bytes_of(filter, i);
        value_emit_bytes(io, names.cf_loadchunk, key, &iterator, slots.ptr, slots.len, DUMP_DATA_BYTES);
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
        struct slice slots = bytes_of(filter, i);
        engine.DigestAddStringBuffer(out, slots.ptr, slots.len);
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
    if ((layer == 0 && !memory_may_load(plan->bytes, plan->bytes, &to->err)) ||
        !make_layer(&to->value, &plan->params, plan->shapes, layer, &to->err))
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

/* ---- all of them ---- */

static const struct row {
    struct engine_type **type;
    const char *name;
    int version, place; /* the place that is taken for it; TAKE_NOTHING: none, the type is the module's own */
    void *(*load)(struct engine_io *io, int version); /* NULL: as value_methods */
    void (*save)(struct engine_io *io, void *at);
    void (*rewrite)(struct engine_io *io, struct engine_string *key, void *at);
    void (*digest)(struct engine_digest *out, void *at);
} rows[] = {
    {&value_type, DUMP_TYPE_NAME, DUMP_TYPE_VERSION, TAKE_NOTHING, NULL, NULL, NULL, NULL},
    {&redisbloom_type, REDISBLOOM_TYPE_NAME, REDISBLOOM_ENCVER, TAKE_REDISBLOOM, load, save, rewrite, NULL},
    {&valkey_type, VALKEY_TYPE_NAME, VALKEY_ENCVER, TAKE_VALKEY, valkey_load, valkey_save, valkey_rewrite, NULL},
    {&cuckoo_own, CUCKOO_OWN_TYPE_NAME, CUCKOO_OWN_ENCVER, TAKE_NOTHING, cuckoo_load_own, cuckoo_save_own,
     cuckoo_rewrite, cuckoo_digest},
    {&cuckoo_theirs, CUCKOO_TYPE_NAME, CUCKOO_ENCVER, TAKE_REDISBLOOM, cuckoo_load_theirs, cuckoo_save_theirs,
     cuckoo_rewrite, cuckoo_digest},
};

bool types_init(struct engine_ctx *ctx, struct errbuf *err)
{
    static const char *const rivals[] = {"the module already", "RedisBloom, or the engine's own module, also",
                                         "valkey-bloom also"};
    for (const struct row *row = rows; row < rows + sizeof(rows) / sizeof(rows[0]); row++) {
        struct engine_type_methods methods = value_methods;
        if (row->place != TAKE_NOTHING && row->place != settings.take_over)
            continue;
        if (row->load) {
            methods.rdb_load = row->load;
            methods.rdb_save = row->save;
            methods.aof_rewrite = row->rewrite;
        }
        if (row->digest)
            methods.digest = row->digest;
        *row->type = engine.CreateDataType(ctx, row->name, row->version, &methods);
        if (!*row->type)
            return errbuf_fail(err, false, "cannot %s the type %s: is %s loaded?",
                               row->place == TAKE_NOTHING ? "register" : "take over", row->name, rivals[row->place]);
    }
    return true;
}
