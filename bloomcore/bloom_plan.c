#include "bloom_plan.h"

#include <math.h>

#include "bloom_layer.h"

/* One layer more on top. BLOOM_OK or BLOOM_REFUSED. */
static int plan_layer(const struct bloom_params *params, struct bloom_plan *plan, struct errbuf *err)
{
    struct bloom_plan_layer *layer = &plan->layers[plan->nlayers];
    const struct bloom_plan_layer *below = plan->nlayers > 0 ? layer - 1 : NULL;
    struct bloom_size size;

    layer->capacity = params->capacity;
    layer->error_rate = params->expansion == 0 ? params->error_rate : params->error_rate * 0.5;
    if (below) {
        if (__builtin_mul_overflow(below->capacity, (uint64_t)params->expansion, &layer->capacity)) {
            errbuf_set(err, "layer %u would have a capacity of more than 64 bits", plan->nlayers);
            return BLOOM_REFUSED;
        }
        layer->error_rate = below->error_rate * 0.5;
    }
    if (bloom_size_plan(layer->capacity, layer->error_rate, &size, err) != BLOOM_SIZE_OK) {
        errbuf_prefix(err, "layer %u (capacity %llu, error rate %g)", plan->nlayers,
                      (unsigned long long)layer->capacity, layer->error_rate);
        return BLOOM_REFUSED;
    }
    layer->nwords = size.nwords;
    layer->k = size.k;
    layer->predicted_rate = bloom_size_rate(layer->capacity, size.k, size.nwords * 64);
    plan->nlayers++;
    return BLOOM_OK;
}

static void add_up(struct bloom_plan *plan)
{
    double log_absent = 0;

    plan->memory = sizeof(struct bloom_filter) - sizeof(struct bloom_layer);
    for (unsigned i = 0; i < plan->nlayers; i++) {
        const struct bloom_plan_layer *layer = &plan->layers[i];

        log_absent += log1p(-layer->predicted_rate);
        plan->bits += layer->nwords * 64;
        plan->memory += i == 0 ? sizeof(struct bloom_layer) : sizeof(struct bloom_grown_layer);
        plan->memory += layer->nwords * 8 + (layer->nwords <= BLOOM_INLINE_WORDS ? 0 : sizeof(void *));
    }
    plan->predicted_rate = 0 - expm1(log_absent); /* a difference: of an empty filter it is 0, not -0 */
}

int bloom_plan(const struct bloom_params *params, uint64_t items, struct bloom_plan *plan_out, struct errbuf *err)
{
    *plan_out = (struct bloom_plan){0};
    do {
        if (plan_out->nlayers == BLOOM_MAX_LAYERS) {
            errbuf_set(err, "a filter has at most %d layers, which here hold %llu items", BLOOM_MAX_LAYERS,
                       (unsigned long long)plan_out->capacity);
            return BLOOM_REFUSED;
        }
        if (plan_out->nlayers == 1 && params->expansion == 0) {
            errbuf_set(err, "a filter of fixed size holds %llu items", (unsigned long long)plan_out->capacity);
            return BLOOM_REFUSED;
        }
        if (plan_layer(params, plan_out, err) != BLOOM_OK)
            return BLOOM_REFUSED;
        if (__builtin_add_overflow(plan_out->capacity, plan_out->layers[plan_out->nlayers - 1].capacity,
                                   &plan_out->capacity))
            plan_out->capacity = UINT64_MAX;
    } while (plan_out->capacity < items);
    add_up(plan_out);
    return BLOOM_OK;
}
