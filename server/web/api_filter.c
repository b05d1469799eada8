/* One filter's page. */
#include <stdlib.h>

#include "api.h"
#include "bloom_filter.h"
#include "filter_table.h"
#include "json.h"
#include "server.h"

static int digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The bytes of a name, malloc'ed; NULL: these are no digits, or there is no memory. */
static char *decode(struct slice key)
{
    char *name = malloc(key.len / 2 + 1);
    for (size_t i = 0; name && i < key.len; i += 2) {
        int high = digit(key.ptr[i]), low = i + 1 < key.len ? digit(key.ptr[i + 1]) : -1;
        if (high < 0 || low < 0) {
            free(name);
            return NULL;
        }
        name[i / 2] = (char)(high << 4 | low);
    }
    return name;
}

static void real_unless(bool unknown, struct buf *out, const char *name, double number)
{
    if (unknown)
        json_null(out, name);
    else
        json_real(out, name, number);
}

/* `away`: its bits are not in memory. */
static void write_layer(const struct bloom_layer_view *layer, bool away, uint64_t sample, struct buf *out)
{
    struct bloom_state state = {0};
    if (!away)
        bloom_layer_state_sampled(layer, sample, &state);
    json_begin(out, NULL, '{');
    json_count(out, "items", layer->items);
    json_count(out, "capacity", layer->capacity);
    json_count(out, "bits", bloom_shape_bits(&layer->shape));
    json_count(out, "k", layer->shape.k);
    json_real(out, "asked", layer->error_rate);
    real_unless(away, out, "rate", state.rate);
    real_unless(away, out, "bitsSet", state.fill_ratio);
    real_unless(away, out, "estimated", state.estimated_items);
    json_end(out, '}');
}

static void write_layers(const struct bloom_filter *filter, unsigned n, bool away, struct buf *out)
{
    json_begin(out, "each", '[');
    for (unsigned i = 0; i < n; i++) {
        struct bloom_layer_view layer;
        bloom_filter_layer(filter, i, &layer);
        write_layer(&layer, away, filter_facts_sample(n), out);
    }
    json_end(out, ']');
}

static void write_filter(struct server *server, struct entry *entry, struct filter_facts *facts, struct buf *out)
{
    double observed;
    filter_facts_measure(server, entry, facts);
    json_begin(out, NULL, '{');
    filter_facts_json(facts, out);
    json_bool(out, "away", facts->away);
    real_unless(facts->away, out, "bitsSet", facts->bits_set);
    real_unless(facts->away, out, "measured", facts->measured_rate);
    if (filter_facts_observed(facts, &observed))
        json_real(out, "observed", observed);
    else
        json_null(out, "observed");
    json_count(out, "hits", facts->usage.hits);
    json_count(out, "misses", facts->usage.misses);
    json_count(out, "wrong", facts->usage.wrong);
    json_count(out, "sinceUnix", (uint64_t)facts->usage.since_s);
    if (facts->quarantined)
        json_str(out, "reason", entry_quarantine_reason(entry));
    else
        write_layers(entry_shape(entry), facts->layers, facts->away, out);
}

bool api_filter(struct server *server, struct slice key, struct buf *out)
{
    struct filter_facts facts;
    int64_t expires_ms = 0;
    char *bytes = decode(key);
    if (!bytes)
        return false;
    struct slice name = {bytes, key.len / 2};
    struct entry *entry =
        registry_find_expiry(server->registry, registry_hash(server->registry, name), name, &expires_ms);
    if (entry) {
        filter_facts(server->registry, name, entry, &facts);
        write_filter(server, entry, &facts, out);
        json_count(out, "expiresMs", (uint64_t)expires_ms);
        json_end(out, '}');
    }
    free(bytes);
    return entry != NULL;
}
