/* RedisBloom's values: the fields of redisbloom_format.h, read and written by the engine, which compresses strings and
 * makes checksums itself. */
#include "redisbloom_type.h"

#include <string.h>

#include "cuckoo_type.h"
#include "memory.h"
#include "redisbloom_dump.h"
#include "settings.h"

struct engine_type *redisbloom_type;

struct engine_type *value_type_of(const struct value *value)
{
    if (bloom_params_is_cuckoo(bloom_filter_params(value_filter(value))))
        return cuckoo_type_for(bloom_filter_params(value_filter(value)));
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
    redisbloom_put_bits(value_filter(to->value), layer, offset, bytes, len);
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
    errbuf_set(err, "cannot take over the type %s: is RedisBloom, or the engine's own module, also loaded?",
               REDISBLOOM_TYPE_NAME);
    return false;
}
