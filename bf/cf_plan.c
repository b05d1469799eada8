/* CF.PLAN: how many items a cuckoo filter holds before it grows, its error rate then, and both for a number of items.
 */
#include <math.h>

#include "cf_request.h"
#include "cuckoo_load.h"

/* A filter with this many items. */
struct outlook {
    unsigned nlayers; /* 0: it does not take them */
    uint64_t bytes;
    double rate;
};

static struct outlook look_ahead(const struct bloom_params *params, const struct bloom_shape *first, double load,
                                 double items, unsigned most_layers)
{
    double slots = (double)first->capacity, absent = 1;
    struct outlook outlook = {0};
    unsigned most = cuckoo_most_layers(params, first);
    double size = (double)cuckoo_shape_bytes(first) / slots;
    for (unsigned i = 0; i < most_layers && i < most; i++) {
        double here = items < slots * load ? items : slots * load;
        items -= here;
        absent *= 1 - cuckoo_rate((unsigned)first->bpe, first->k, here / slots);
        outlook.bytes += slots < 0x1p62 ? (uint64_t)(slots * size) : UINT64_MAX >> 2;
        if (items < 1) {
            outlook.nlayers = i + 1;
            outlook.rate = 1 - absent;
            return outlook;
        }
        if (params->expansion == 0)
            break;
        slots *= params->expansion;
    }
    return (struct outlook){0};
}

static void reply_fields(const struct bf_out *out, const struct bloom_shape *first, double load)
{
    uint64_t items = (uint64_t)floor((double)first->capacity * load);
    bf_out_named_count(out, "Slots", first->capacity);
    bf_out_named_count(out, "Size", cuckoo_shape_bytes(first));
    bf_out_named_count(out, "Items before growth", items);
    bf_out_named_real(out, "Error rate then", cuckoo_rate((unsigned)first->bpe, first->k, load));
    bf_out_named_real(out, "Bytes per item then", (double)cuckoo_shape_bytes(first) / ((double)first->capacity * load));
}

void cf_reply_plan(const struct bf_out *out, const struct cf_plan *requested, unsigned most_layers)
{
    struct bloom_params params;
    struct bloom_shape first;
    struct errbuf err = {""};
    struct outlook outlook = {0};
    bool rate = requested->numbers.error_rate > 0;
    double load = rate ? 0.95 : cuckoo_load(requested->numbers.bucket_size, requested->numbers.iterations);
    if (load <= 0 || cuckoo_plan(&requested->numbers, &params, &first, &err) != BLOOM_OK) {
        bf_out_errorf(out, CF_NO_MEMORY, err.text);
        return;
    }
    if (requested->items)
        outlook = look_ahead(&params, &first, load, (double)requested->items, most_layers);
    if (requested->items && outlook.nlayers == 0) {
        unsigned most = cuckoo_most_layers(&params, &first);
        most = most < most_layers ? most : most_layers;
        bf_out_errorf(out, "ERR %llu items do not fit into %u sub-filter%s: a larger capacity or %s is needed",
                      (unsigned long long)requested->items, most, most == 1 ? "" : "s", rate ? "ERROR" : "EXPANSION");
        return;
    }
    out->ops->map(out->ctx, (requested->items ? 8u : 5u) + (rate ? 2u : 0u));
    reply_fields(out, &first, load);
    if (rate) {
        bf_out_named_count(out, "Fingerprint bits", (uint64_t)first.bpe);
        bf_out_named_count(out, "Most sub-filters", cuckoo_most_layers(&params, &first));
    }
    if (requested->items) {
        bf_out_named_count(out, "Sub-filters", outlook.nlayers);
        bf_out_named_count(out, "Total size", outlook.bytes);
        bf_out_named_real(out, "Error rate", outlook.rate);
    }
}
