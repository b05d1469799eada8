#include "redisbloom.h"

#include <math.h>

#include "bloom_layout.h"
#include "bloom_size.h"
#include "check.h"

#define MAX_BITS (BLOOM_MAX_WORDS * 64)

/* ---- numbers from outside ---- */

static int check_layer(const struct redisbloom_layer *from, unsigned options, struct bloom_shape *shape,
                       struct errbuf *err)
{
    if (from->bits < 8 || from->bits % 8 != 0 || from->bits > MAX_BITS)
        return errbuf_fail(err, BLOOM_REFUSED, "%llu bits: must be whole bytes, and in the range [8, %llu]",
                           (unsigned long long)from->bits, (unsigned long long)MAX_BITS);
    if (from->hashes > BLOOM_MAX_HASHES || from->n2 > 63)
        return errbuf_fail(err, BLOOM_REFUSED, "%llu hashes, n2 %llu: must be at most %d and 63",
                           (unsigned long long)from->hashes, (unsigned long long)from->n2, BLOOM_MAX_HASHES);
    if (from->count > from->entries)
        return errbuf_fail(err, BLOOM_REFUSED, "%llu items in a layer for %llu", (unsigned long long)from->count,
                           (unsigned long long)from->entries);
    uint64_t nwords = (from->bits - 1) / 64 + 1;
    *shape = (struct bloom_shape){
        .nwords = nwords,
        .k = (uint8_t)from->hashes,
        .variant = options & REDISBLOOM_FORCE64 ? BLOOM_REDISBLOOM : BLOOM_REDISBLOOM32,
        .n2 = (uint8_t)from->n2,
        .spare_bytes = (uint8_t)((nwords * 64 - from->bits) / 8),
        .capacity = from->entries,
        .error_rate = from->error,
        .bpe = from->bpe,
    };
    return bloom_shape_valid(shape, err) ? BLOOM_OK : BLOOM_REFUSED;
}

static int check_head(uint64_t options, uint64_t growth, uint64_t nlayers, struct errbuf *err)
{
    bool fixed = options & REDISBLOOM_NO_SCALING;

    if (options & ~(uint64_t)REDISBLOOM_OPTIONS)
        errbuf_set(err, "unknown options %llu", (unsigned long long)options);
    else if (nlayers < 1 || nlayers > BLOOM_MAX_LAYERS)
        errbuf_set(err, "%llu layers: must be in the range [1, %d]", (unsigned long long)nlayers, BLOOM_MAX_LAYERS);
    else if (fixed && nlayers > 1)
        errbuf_set(err, "a filter of fixed size has one layer, not %llu", (unsigned long long)nlayers);
    else if (!fixed && (growth < 1 || growth > BLOOM_MAX_EXPANSION))
        errbuf_set(err, "growth %llu: must be in the range [1, %d]", (unsigned long long)growth, BLOOM_MAX_EXPANSION);
    else
        return BLOOM_OK;
    return BLOOM_REFUSED;
}

/* The first layer of a filter that scales has half of the requested rate. Very old versions gave it all of the rate:
 * then twice that may be no valid rate. */
static struct bloom_params params_of(uint64_t options, uint64_t growth, const struct bloom_shape *first)
{
    bool fixed = options & REDISBLOOM_NO_SCALING;

    return (struct bloom_params){
        .capacity = first->capacity,
        .error_rate = fixed ? first->error_rate : fmin(2 * first->error_rate, nextafter(1, 0)),
        .expansion = fixed ? 0 : (uint32_t)growth,
        .redisbloom = (uint8_t)options,
    };
}

int redisbloom_check_first(uint64_t options, uint64_t growth, const struct redisbloom_layer *layer,
                           struct bloom_params *params_out, struct bloom_shape *shape_out, struct errbuf *err)
{
    if (check_head(options, growth, 1, err) != BLOOM_OK ||
        check_layer(layer, (unsigned)options, shape_out, err) != BLOOM_OK)
        return BLOOM_REFUSED;
    *params_out = params_of(options, growth, shape_out);
    return BLOOM_OK;
}

int redisbloom_check(const struct redisbloom_filter *from, struct bloom_params *params_out,
                     struct bloom_shape shapes_out[BLOOM_MAX_LAYERS], uint64_t *bytes_out, struct errbuf *err)
{
    uint64_t bytes = 0;
    int rc = check_head(from->options, from->growth, from->nlayers, err);

    for (unsigned i = 0; rc == BLOOM_OK && i < from->nlayers; i++) {
        rc = check_layer(&from->layers[i], (unsigned)from->options, &shapes_out[i], err);
        if (rc != BLOOM_OK)
            errbuf_prefix(err, "layer %u", i);
        else
            bytes += shapes_out[i].nwords * 8;
    }
    if (rc != BLOOM_OK)
        return rc;
    *params_out = params_of(from->options, from->growth, &shapes_out[0]);
    *bytes_out = bytes;
    return BLOOM_OK;
}

void redisbloom_describe(const struct bloom_filter *filter, unsigned nlayers, struct redisbloom_filter *out)
{
    const struct bloom_params *params = bloom_filter_params(filter);

    CHECK(nlayers >= 1 && nlayers <= bloom_filter_nlayers(filter));
    out->options = params->redisbloom;
    out->growth = params->expansion ? params->expansion : REDISBLOOM_DEFAULT_GROWTH;
    out->nlayers = nlayers;
    for (unsigned i = 0; i < nlayers; i++) {
        struct bloom_layer_view view;

        bloom_filter_layer(filter, i, &view);
        CHECK(bloom_layout_of(view.shape.variant)->own_numbers);
        out->layers[i] = (struct redisbloom_layer){
            .entries = view.shape.capacity,
            .error = view.shape.error_rate,
            .hashes = view.shape.k,
            .bpe = view.shape.bpe,
            .bits = bloom_shape_bytes(&view.shape) * 8,
            .n2 = view.shape.n2,
            .count = view.items,
        };
    }
}
