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
    struct engine_io *io;
    unsigned version;
    struct redisbloom_filter numbers; /* with the layers that have been read */
    struct bloom_shape shapes[BLOOM_MAX_LAYERS];
    struct value *value;
    struct errbuf err;
};

static double read_double(struct reading *from)
{
    return engine.IsIOError(from->io) ? 0 : engine.LoadDouble(from->io);
}

static bool read_head(struct reading *from, uint64_t *items_out)
{
    struct redisbloom_filter *numbers = &from->numbers;
    *items_out = value_load_unsigned(from->io);
    numbers->nlayers = value_load_unsigned(from->io);
    numbers->options = from->version >= REDISBLOOM_ENCVER_OPTIONS ? value_load_unsigned(from->io) : 0;
    numbers->growth =
        from->version >= REDISBLOOM_ENCVER_GROWTH ? value_load_unsigned(from->io) : REDISBLOOM_DEFAULT_GROWTH;
    if (engine.IsIOError(from->io)) {
        errbuf_set(&from->err, "its first fields are missing");
        return false;
    }
    if (numbers->nlayers >= 1 && numbers->nlayers <= BLOOM_MAX_LAYERS)
        return true;
    errbuf_set(&from->err, "invalid number of layers: %llu, not 1 to %d", (unsigned long long)numbers->nlayers,
               BLOOM_MAX_LAYERS);
    return false;
}

static bool read_fields(struct reading *from, struct redisbloom_layer *layer)
{
    *layer = (struct redisbloom_layer){0};
    layer->entries = value_load_unsigned(from->io);
    layer->error = read_double(from);
    layer->hashes = value_load_unsigned(from->io);
    layer->bpe = read_double(from);
    if (from->version >= REDISBLOOM_ENCVER_BITS) {
        layer->bits = value_load_unsigned(from->io);
        layer->n2 = value_load_unsigned(from->io);
    } else {
        layer->bits = redisbloom_old_bits(layer);
    }
    if (!engine.IsIOError(from->io))
        return true;
    errbuf_set(&from->err, "its fields are missing");
    return false;
}

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
    if (index == 0) {
        to->value = value_create_shaped(&params, to->shapes, 1, false, &status, &to->err);
        return to->value != NULL;
    }
    return bloom_filter_append_layer(value_filter(to->value), &to->shapes[index], &to->err) == BLOOM_OK;
}

static bool read_bits(struct reading *from, unsigned index)
{
    const struct redisbloom_layer *layer = &from->numbers.layers[index];
    size_t len;
    char *bits = value_load_string(from->io, &len);
    bool right = bits && len == redisbloom_bytes(layer);
    if (right)
        redisbloom_put_bits(value_filter(from->value), index, 0, bits, len);
    else if (bits)
        errbuf_set(&from->err, "%zu bytes of bits, where it has %llu bits", len, (unsigned long long)layer->bits);
    else
        errbuf_set(&from->err, "its bits are missing");
    if (bits)
        engine.Free(bits);
    return right;
}

static bool read_layer(struct reading *from, unsigned index)
{
    struct redisbloom_layer *layer = &from->numbers.layers[index];
    if (!read_fields(from, layer) || !make_layer(from, index) || !read_bits(from, index)) {
        errbuf_prefix(&from->err, "layer %u", index);
        return false;
    }
    layer->count = value_load_unsigned(from->io);
    bloom_filter_set_items(value_filter(from->value), index, layer->count);
    if (!engine.IsIOError(from->io))
        return true;
    errbuf_set(&from->err, "layer %u: its count is missing", index);
    return false;
}

static bool read_filter(struct reading *from)
{
    uint64_t items, bytes;
    struct bloom_params params;
    if (!read_head(from, &items))
        return false;
    for (unsigned i = 0; i < from->numbers.nlayers; i++)
        if (!read_layer(from, i))
            return false;
    if (redisbloom_check(&from->numbers, &params, from->shapes, &bytes, &from->err) != BLOOM_OK)
        return false; /* now with the counts */
    if (bloom_filter_items(value_filter(from->value)) == items)
        return true;
    errbuf_set(&from->err, "size: %llu items, but those of the layers add up to %llu", (unsigned long long)items,
               (unsigned long long)bloom_filter_items(value_filter(from->value)));
    return false;
}

static void *load(struct engine_io *io, int version)
{
    struct reading *from = memory_zeroed(sizeof(*from));
    struct value *value = NULL;
    if (!from)
        return NULL;
    from->io = io;
    from->version = (unsigned)version;
    if (version < 0 || version > REDISBLOOM_ENCVER)
        errbuf_set(&from->err, "unknown encoding version %d of a RedisBloom filter", version);
    else if (read_filter(from))
        value = from->value;
    if (!value && from->value)
        value_free(from->value);
    value = value_loaded(io, value, "a RedisBloom filter", &from->err);
    memory_release(from);
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
