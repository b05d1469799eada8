/* One filter's page. */
#include <stdlib.h>

#include "api.h"
#include "bloom_window.h"
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

static void write_window(const struct bloom_params *params, struct buf *out)
{
    bool by_items = params->window_flags & BLOOM_WINDOW_ITEMS;
    if (!bloom_params_is_window(params)) {
        json_null(out, "window");
        return;
    }
    json_begin(out, "window", '{');
    json_count(out, by_items ? "items" : "seconds", by_items ? params->window : params->window / 1000000);
    json_count(out, "parts", params->window_parts);
    json_bool(out, "refresh", params->window_flags & BLOOM_WINDOW_REFRESH);
    json_end(out, '}');
}

/* Of a window's layer: the number of its part, 0 when that is forgotten; its age; the time until it is forgotten, null
 * in a window by items. */
static void write_part(const struct bloom_filter *filter, const struct bloom_layer_view *layer, struct buf *out)
{
    int64_t now_us = bloom_window_now_us(filter);
    int64_t expires_us = bloom_window_expires(bloom_filter_params(filter), layer->started_us);
    bool by_items = bloom_filter_params(filter)->window_flags & BLOOM_WINDOW_ITEMS;
    json_count(out, "part", layer->forgotten ? 0 : layer->turn);
    json_real(out, "ageS", now_us > layer->started_us ? (double)(now_us - layer->started_us) / 1e6 : 0);
    real_unless(by_items, out, "leftS", expires_us > now_us ? (double)(expires_us - now_us) / 1e6 : 0);
}

/* `away`: its bits are not in memory. */
static void write_layer(const struct bloom_filter *filter, const struct bloom_layer_view *layer, bool away,
                        uint64_t sample, struct buf *out)
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
    if (bloom_filter_forgets(filter))
        write_part(filter, layer, out);
    json_end(out, '}');
}

static void write_layers(const struct bloom_filter *filter, unsigned n, bool away, struct buf *out)
{
    json_begin(out, "each", '[');
    for (unsigned i = 0; i < n; i++) {
        struct bloom_layer_view layer;
        bloom_filter_layer(filter, i, &layer);
        write_layer(filter, &layer, away, filter_facts_sample(n), out);
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
    if (facts->quarantined) {
        json_str(out, "reason", entry_quarantine_reason(entry));
        return;
    }
    write_window(bloom_filter_params(entry_shape(entry)), out);
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
