/* Values of valkey-bloom's type: the fields of valkey_format.h, read and written by the engine, which compresses
 * strings and makes checksums itself. */
#include <string.h>

#include "memory.h"
#include "settings.h"
#include "valkey_dump.h"
#include "value.h"

struct engine_type *valkey_type;

/* ---- saving ---- */

/* Without memory for a copy the engine ends, as it does for its own of the same bytes; or its child that saves. */
static void save(struct engine_io *io, void *at)
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
static void rewrite(struct engine_io *io, struct engine_string *key, void *at)
{
    const struct bloom_filter *filter = value_filter(at);
    static struct valkey_filter numbers;
    valkey_describe(filter, &numbers);
    unsigned char *payload = engine.Calloc(1, (size_t)valkey_load_bytes(&numbers));
    size_t len = (size_t)(valkey_write_load(filter, &numbers, payload) - payload);
    engine.EmitAOF(io, names.load, "sb", key, (const char *)payload, len);
    engine.Free(payload);
}

/* ---- loading ---- */

struct reading {
    struct valkey_filter numbers;
    struct dump_plan plan;
    struct value *value;
    unsigned char *bits; /* of the latest layer, whose capacity comes after them; NULL: none */
    unsigned layer;
    struct errbuf err;
};

/* Makes room for the layer, all numbers of which have come, and takes its bits. */
static bool put_layer(struct reading *to)
{
    int status;
    unsigned index = to->layer;
    if (!to->bits)
        return true;
    if (valkey_plan(&to->numbers, index + 1, &to->plan, &to->err) != DUMP_OK)
        return false;
    if (index > 0 && bloom_filter_append_layer(value_filter(to->value), &to->plan.shapes[index], &to->err) != BLOOM_OK)
        return false;
    if (index == 0)
        to->value = value_create_shaped(&to->plan.params, to->plan.shapes, 1, false, &status, &to->err);
    if (!to->value)
        return false;
    const struct valkey_layer *layer = &to->numbers.layers[index];
    bloom_filter_put_bytes(value_filter(to->value), index, 0, to->bits, (size_t)layer->bytes);
    bloom_filter_set_items(value_filter(to->value), index, layer->items);
    memory_release(to->bits);
    to->bits = NULL;
    return true;
}

/* The engine has the whole string in memory: its announced length is that of bytes that are there. */
static int take_bits(void *ctx, unsigned layer, uint64_t offset, const unsigned char *bytes, size_t len)
{
    struct reading *to = ctx;
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

static void *load(struct engine_io *io, int version)
{
    struct rdb_reader reader;
    struct reading *to = memory_zeroed(sizeof(*to));
    if (!to)
        return NULL;
    value_reader(&reader, io, &to->err);
    bool whole = valkey_read(&reader, (unsigned)version, &to->numbers, take_bits, to) == RDB_OK && put_layer(to);
    struct value *value = whole ? to->value : NULL;
    if (!whole)
        value_free(to->value);
    memory_release(to->bits);
    value = value_loaded(io, value, "a filter of valkey-bloom", &to->err);
    memory_release(to);
    return value;
}

bool valkey_type_init(struct engine_ctx *ctx, struct errbuf *err)
{
    struct engine_type_methods methods = value_methods;
    methods.rdb_load = load;
    methods.rdb_save = save;
    methods.aof_rewrite = rewrite;
    valkey_type = engine.CreateDataType(ctx, VALKEY_TYPE_NAME, VALKEY_ENCVER, &methods);
    if (valkey_type)
        return true;
    return errbuf_fail(err, false, "cannot take over the type %s: is valkey-bloom also loaded?", VALKEY_TYPE_NAME);
}
