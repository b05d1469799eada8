#include "bloom_plan.h"

#include <math.h>

#include "bloom_layer.h"
#include "bloom_part.h"
#include "bloom_run.h"
#include "bloom_scaling.h"
#include "bloom_state.h"

/* BLOOM_OK or BLOOM_REFUSED. The layer's capacity and rate are set already. */
static int size_layer(const struct bloom_params *params, struct bloom_plan *plan, unsigned index, struct errbuf *err)
{
    struct bloom_plan_layer *layer = &plan->layers[index];
    struct bloom_shape shape;

    if (bloom_layer_shape(bloom_params_variant(params), params->redisbloom, layer->capacity, layer->error_rate, &shape,
                          err) != BLOOM_OK) {
        errbuf_prefix(err, "layer %u (capacity %llu, error rate %g)", index, (unsigned long long)layer->capacity,
                      layer->error_rate);
        return BLOOM_REFUSED;
    }
    layer->nwords = shape.nwords;
    layer->k = shape.k;
    layer->predicted_rate = bloom_shape_rate(&shape, layer->capacity);
    return BLOOM_OK;
}

/* A layer needs more words than the one below it. So the last layer decides whether all are possible, and a binary
 * search finds the lowest impossible one in a few steps: a client waits for a refusal, too. */
static int size_layers(const struct bloom_params *params, struct bloom_plan *plan, struct errbuf *err)
{
    unsigned low = 0, high = plan->nlayers - 1;

    if (size_layer(params, plan, high, NULL) != BLOOM_OK) {
        while (low < high) {
            unsigned middle = low + (high - low) / 2;

            if (size_layer(params, plan, middle, NULL) == BLOOM_OK)
                low = middle + 1;
            else
                high = middle;
        }
    }
    for (unsigned i = plan->nlayers - 1 == high ? 0 : high; i < plan->nlayers; i++)
        if (size_layer(params, plan, i, err) != BLOOM_OK)
            return BLOOM_REFUSED;
    return BLOOM_OK;
}

/* Capacity and rate of the layer above the existing ones, in a window of a part's. BLOOM_OK or BLOOM_REFUSED. */
static int next_layer(const struct bloom_params *params, const struct bloom_plan *plan,
                      struct bloom_plan_layer *layer_out, struct errbuf *err)
{
    if (plan->nlayers == 0) {
        layer_out->capacity = bloom_first_capacity(params, &layer_out->error_rate);
        return BLOOM_OK;
    }
    const struct bloom_plan_layer *below = &plan->layers[plan->nlayers - 1];
    const struct bloom_geometry newest = {.variant = (uint8_t)bloom_params_variant(params),
                                          .index = (uint16_t)(plan->nlayers - 1),
                                          .capacity = below->capacity,
                                          .error_rate = below->error_rate};
    return bloom_next_capacity(params, &newest, plan->nlayers, &layer_out->capacity, &layer_out->error_rate, err);
}

/* Computes the layers' capacities and rates until they hold `items`. BLOOM_OK, or BLOOM_REFUSED with as many layers as
 * are possible. */
static int lay_out(const struct bloom_params *params, uint64_t items, struct bloom_plan *plan, struct errbuf *err)
{
    const char *whole = bloom_params_is_window(params) ? "a part of a window" : "a filter";

    for (;;) {
        struct bloom_plan_layer *layer = &plan->layers[plan->nlayers];

        if (next_layer(params, plan, layer, err) != BLOOM_OK)
            return BLOOM_REFUSED;
        plan->nlayers++;
        if (__builtin_add_overflow(plan->capacity, layer->capacity, &plan->capacity))
            plan->capacity = UINT64_MAX;
        if (plan->capacity >= items)
            return BLOOM_OK;
        if (params->expansion == 0)
            return errbuf_fail(err, BLOOM_REFUSED, "%s of fixed size holds %llu items", whole,
                               (unsigned long long)plan->capacity);
        if (plan->nlayers == BLOOM_MAX_LAYERS)
            return errbuf_fail(err, BLOOM_REFUSED, "%s has at most %d layers, which here hold %llu items", whole,
                               BLOOM_MAX_LAYERS, (unsigned long long)plan->capacity);
    }
}

static void add_up(const struct bloom_params *params, struct bloom_plan *plan)
{
    bool window = bloom_params_is_window(params);
    uint64_t part_memory = 0;
    double log_absent = 0;

    for (unsigned i = 0; i < plan->nlayers; i++) {
        const struct bloom_plan_layer *layer = &plan->layers[i];
        const struct bloom_geometry geometry = {
            .index = (uint16_t)i, .walk = bloom_layout_of(bloom_params_variant(params))->walk, .window = window};

        log_absent += log1p(-layer->predicted_rate);
        plan->bits += layer->nwords * 64;
        part_memory += bloom_chained_bytes(&geometry) + (window ? sizeof(struct bloom_part) : 0);
        part_memory += layer->nwords * 8 + (layer->nwords <= BLOOM_INLINE_WORDS ? 0 : sizeof(void *));
    }
    plan->part_rate = 0 - expm1(log_absent); /* a difference: of an empty filter it is 0, not -0 */
    plan->predicted_rate = 0 - expm1(plan->parts * log_absent);
    plan->bits *= plan->parts;
    plan->memory = plan->parts * part_memory + sizeof(struct bloom_filter) - sizeof(struct bloom_chained_layer) +
                   (window ? sizeof(struct bloom_window) : 0);
    if (!window)
        return;
    if (plan->nlayers == 1)
        plan->capacity = params->capacity; /* which the parts share with less than an item too many */
    else if (__builtin_mul_overflow(plan->capacity, (uint64_t)params->window_parts, &plan->capacity))
        plan->capacity = UINT64_MAX;
}

int bloom_plan(const struct bloom_params *params, uint64_t items, struct bloom_plan *plan_out, struct errbuf *err)
{
    int rc;

    plan_out->nlayers = 0;
    plan_out->capacity = plan_out->bits = 0;
    plan_out->parts = bloom_params_is_window(params) ? params->window_parts + BLOOM_WINDOW_SPARES : 1;
    if (bloom_params_is_window(params)) /* those of a part */
        items = items / params->window_parts + (items % params->window_parts != 0);
    rc = lay_out(params, items, plan_out, err);
    if (rc == BLOOM_OK)
        rc = size_layers(params, plan_out, err);
    if (rc == BLOOM_OK)
        add_up(params, plan_out);
    return rc;
}
