#include "valkey_dump.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "bytes.h"
#include "check.h"
#include "redisbloom_dump.h"

#define HONEST 1.5

bool valkey_is_layout(const struct bloom_filter *filter)
{
    return bloom_params_have_seed(bloom_filter_params(filter));
}

/* ---- numbers ---- */

void valkey_describe(const struct bloom_filter *filter, struct valkey_filter *value_out)
{
    const struct bloom_params *params = bloom_filter_params(filter);

    value_out->expansion = params->expansion;
    value_out->error = params->error_rate;
    value_out->tightening = params->tightening;
    value_out->seed = params->seed;
    value_out->fixed_seed = bloom_seed_equal(&params->seed, &valkey_fixed_seed);
    value_out->nlayers = bloom_filter_nlayers(filter);
    for (unsigned i = 0; i < value_out->nlayers; i++) {
        struct bloom_layer_view view;

        bloom_filter_layer(filter, i, &view);
        value_out->layers[i] = (struct valkey_layer){
            .capacity = view.shape.capacity,
            .items = view.items,
            .bytes = bloom_shape_bytes(&view.shape),
            .hashes = view.shape.k,
        };
    }
}

/* The rate of a full layer. Rounding of bits and hashes makes it at most an eighth higher than the requested one. */
static double full_rate(const struct valkey_layer *layer)
{
    double bits = 8 * (double)layer->bytes;

    return pow(-expm1(-(double)layer->hashes * (double)layer->capacity / bits), layer->hashes);
}

static int plan_layer(const struct valkey_filter *value, unsigned index, struct bloom_shape *shape, struct errbuf *err)
{
    const struct valkey_layer *layer = &value->layers[index];
    double rate = valkey_layer_rate(value->error, value->tightening, index);

    if (valkey_shape(layer->capacity, rate, layer->bytes, layer->hashes, shape, err) != BLOOM_OK)
        return DUMP_BAD;
    if (full_rate(layer) <= HONEST * rate)
        return DUMP_OK;
    return errbuf_fail(
        err, DUMP_BAD, "%llu bytes and %u hashes: they have an error rate of %.3g with %llu items, not %.3g",
        (unsigned long long)layer->bytes, layer->hashes, full_rate(layer), (unsigned long long)layer->capacity, rate);
}

int valkey_plan(const struct valkey_filter *value, unsigned nlayers, struct dump_plan *plan_out, struct errbuf *err)
{
    plan_out->params = (struct bloom_params){
        .capacity = value->layers[0].capacity,
        .error_rate = value->error,
        .expansion = (uint32_t)value->expansion,
        .redisbloom = BLOOM_OPTION_VALKEY,
        .tightening = value->tightening,
        .seed = value->seed,
    };
    plan_out->nlayers = nlayers;
    plan_out->bytes = 0;
    plan_out->items = 0;
    if (!bloom_params_valid(&plan_out->params, err))
        return DUMP_BAD;
    for (unsigned i = 0; i < nlayers; i++) {
        if (plan_layer(value, i, &plan_out->shapes[i], err) != DUMP_OK) {
            errbuf_prefix(err, "layer %u", i);
            return DUMP_BAD;
        }
        plan_out->bytes += plan_out->shapes[i].nwords * 8;
    }
    return DUMP_OK;
}

/* ---- writing ---- */

static unsigned char *put_blob(unsigned char *at, const struct bloom_filter *filter, const struct valkey_filter *value,
                               unsigned layer)
{
    at = valkey_put_blob(at, value, layer);
    bloom_filter_get_bytes(filter, layer, 0, at, (size_t)value->layers[layer].bytes);
    return at + value->layers[layer].bytes;
}

static uint64_t items_now(const struct bloom_filter *filter, unsigned layer)
{
    struct bloom_layer_view view;

    bloom_filter_layer(filter, layer, &view);
    return view.items;
}

/* The number of items stands behind the bits, and is read after them. */
int valkey_dump(const struct bloom_filter *filter, uint64_t max, unsigned char **dump_out, uint64_t *len_out)
{
    struct valkey_filter value;

    valkey_describe(filter, &value);
    *len_out = valkey_dump_max(&value);
    if (*len_out > max)
        return REDISBLOOM_LARGE;
    unsigned char *dump = malloc((size_t)*len_out);
    if (!dump)
        return -ENOMEM;
    unsigned char *at = valkey_put_head(dump, &value);
    for (unsigned i = 0; i < value.nlayers; i++) {
        at = rdb_put_string_head(at, VALKEY_BLOB_HEAD + value.layers[i].bytes);
        at = rdb_put_unsigned(put_blob(at, filter, &value, i), value.layers[i].capacity);
    }
    at = rdb_put_unsigned(at, items_now(filter, (unsigned)value.nlayers - 1));
    *len_out = (uint64_t)(rdb_put_dump_end(at, dump) - dump);
    *dump_out = dump;
    return DUMP_OK;
}

unsigned char *valkey_write_load(const struct bloom_filter *filter, const struct valkey_filter *value,
                                 unsigned char *out)
{
    unsigned char *at = valkey_put_load_head(out, value);

    for (unsigned i = 0; i < value->nlayers; i++) {
        at = put_blob(le64_put(at, VALKEY_BLOB_HEAD + value->layers[i].bytes), filter, value, i);
        at = le64_put(le64_put(at, items_now(filter, i)), value->layers[i].capacity);
    }
    return at;
}

/* ---- reading ---- */

bool valkey_is_dump(const void *data, size_t len)
{
    return rdb_dump_type(data, len) == VALKEY_TYPE_ID;
}

static int read_value(enum valkey_form form, const void *data, size_t len, struct valkey_filter *value,
                      rdb_bits_fn *bits, void *ctx, struct errbuf *err)
{
    struct rdb_reader reader;
    uint64_t id;

    if (form == VALKEY_LOAD)
        return valkey_read_load(data, len, value, bits, ctx, err);
    TRY(rdb_open_dump(&reader, data, len, &id, err));
    TRY(valkey_read(&reader, RDB_MODULE_VERSION(id), value, bits, ctx));
    return rdb_close_dump(&reader);
}

int valkey_restore_plan(enum valkey_form form, const void *data, size_t len, struct dump_plan *plan_out,
                        struct errbuf *err)
{
    struct valkey_filter value;

    if (read_value(form, data, len, &value, NULL, NULL, err) != RDB_OK)
        return DUMP_BAD;
    return valkey_plan(&value, (unsigned)value.nlayers, plan_out, err);
}

void valkey_restore(enum valkey_form form, const void *data, size_t len, struct bloom_filter *filter)
{
    struct valkey_filter value;
    struct errbuf err = {""};

    CHECK(read_value(form, data, len, &value, dump_put_bits, filter, &err) == RDB_OK); /* read before */
    for (unsigned i = 0; i < value.nlayers; i++)
        bloom_filter_set_items(filter, i, value.layers[i].items);
}
