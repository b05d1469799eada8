#include "routes.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "acl.h"
#include "bloom_layout.h"
#include "bloom_window.h"
#include "bytes.h"
#include "clock.h"
#include "command.h"
#include "filter_table.h"
#include "history.h"
#include "facts.h"
#include "json.h"
#include "server.h"
#include "slowlog.h"
#include "version.h"

#define SLOWLOG_SHOWN 32 /* entries, written under a lock that workers want: a third of a millisecond at most */
#define DENIALS_SHOWN 64
#define CLIENTS_BYTES ((size_t)1 << 20) /* some 3,000 clients, the oldest */

/* ---- overview ---- */

static void number(struct buf *out, const char *name, double value)
{
    if (value >= 0 && value < 1e15 && value == floor(value))
        json_count(out, name, (uint64_t)value); /* with all its digits */
    else
        json_real(out, name, value);
}

/* The numbers of facts.def, by their names in /metrics, or in INFO where they are in INFO alone. */
static void numbers(const struct facts *f, struct buf *out)
{
    json_begin(out, "facts", '{');
#define METRIC(type, name, help, value)                      number(out, name, (double)(value));
#define FACT(section, info, format, type, name, help, value) number(out, name, (double)(value));
#define NUMBER(section, name, format, value)                 number(out, name, (double)(value));
#include "facts.def"
    json_end(out, '}');
}

void api_overview(const struct web *web, struct buf *out)
{
    struct server *server = web->server;
    struct facts *facts = calloc(1, sizeof(*facts)); /* without the totals, which nobody looks at */
    char host[HOST_NAME_MAX + 1] = "";
    struct buf lines;
    if (!facts) {
        out->failed = true;
        return;
    }
    buf_init(&lines, SIZE_MAX);
    gethostname(host, sizeof(host) - 1);
    facts_gather(server, facts);
    json_begin(out, NULL, '{');
    json_str(out, "host", host);
    json_str(out, "version", BLOOMERY_VERSION);
    json_real(out, "uptimeMs", (double)(clock_ms() - server->process.started_ms));
    json_count(out, "nowMs", (uint64_t)clock_unix_ms());
    json_count(out, "port", (uint64_t)server->process.port);
    json_real(out, "cpu", history_cpu(web->history));
    json_str(out, "state", facts->readiness.reason);
    json_str(out, "saveError", facts->saves.last_error);
    json_str(out, "logError", facts->log.failed ? facts->log.reason.text : "");
    numbers(facts, out);
    facts_of_commands(facts, &lines);
    json_text(out, "commands", (struct slice){buf_head(&lines), buf_len(&lines)});
    json_end(out, '}');
    out->failed |= buf_failed(&lines);
    buf_deinit(&lines);
    free(facts);
}

/* ---- replies of commands ---- */

void api_slowlog(const struct web *web, struct buf *out)
{
    struct reply reply = {.buf = out, .version = 3};
    slowlog_reply(web->server->stats.slowlog, SLOWLOG_SHOWN, &reply);
}

void api_acl_log(const struct web *web, struct buf *out)
{
    struct reply reply = {.buf = out, .version = 3};
    acl_log_reply(web->server->acl, DENIALS_SHOWN, &reply);
}

/* Under a lock of the workers, for some clients at a time. */
static void list_client(void *ctx, struct session *session)
{
    struct buf *out = ctx;
    if (buf_len(out) > CLIENTS_BYTES)
        return;
    session_format(session, clock_ms(), out);
    buf_append(out, "\n", 1);
}

void api_clients(const struct web *web, struct buf *out)
{
    sessions_each(web->server->clients.sessions, list_client, out);
}

/* ---- one filter ---- */

/* The bytes of a name, malloc'ed; NULL: these are no digits, or there is no memory. */
static char *decode(struct slice key)
{
    char *name = malloc(key.len / 2 + 1);
    for (size_t i = 0; name && i < key.len; i += 2) {
        int byte = i + 1 < key.len ? hex_byte(key.ptr + i) : -1;
        if (byte < 0) {
            free(name);
            return NULL;
        }
        name[i / 2] = (char)byte;
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

static void write_key(uint64_t key, struct buf *out)
{
    char text[17];
    snprintf(text, sizeof(text), "%016llx", (unsigned long long)key);
    if (key)
        json_str(out, "key", text);
    else
        json_null(out, "key");
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

/* Of a cuckoo filter, those of its slots. */
static uint64_t bits_of(const struct bloom_shape *shape)
{
    return bloom_layout_of(shape->variant)->slots ? shape->capacity * (uint64_t)shape->bpe : bloom_shape_bits(shape);
}

/* `away`: its bits are not in memory. In a cuckoo filter the slots of a bucket represent the hash functions, and the
 * share of slots that are taken for that of bits that are set. */
static void write_layer(const struct bloom_filter *filter, const struct bloom_layer_view *layer, bool evicted,
                        uint64_t sample, struct buf *out)
{
    struct bloom_state state = {0};
    if (!evicted)
        bloom_layer_state_sampled(layer, sample, &state);
    json_begin(out, NULL, '{');
    json_count(out, "items", layer->items);
    json_count(out, "capacity", layer->capacity);
    json_count(out, "bits", bits_of(&layer->shape));
    json_count(out, "k", layer->shape.k);
    json_real(out, "asked", layer->error_rate);
    real_unless(evicted, out, "rate", state.rate);
    real_unless(evicted, out, "bitsSet", state.fill_ratio);
    real_unless(evicted, out, "estimated", state.estimated_items);
    if (bloom_filter_forgets(filter))
        write_part(filter, layer, out);
    json_end(out, '}');
}

static void write_layers(const struct bloom_filter *filter, unsigned n, bool evicted, struct buf *out)
{
    json_begin(out, "each", '[');
    for (unsigned i = 0; i < n; i++) {
        struct bloom_layer_view layer;
        bloom_filter_layer(filter, i, &layer);
        write_layer(filter, &layer, evicted, filter_facts_sample(n), out);
    }
    json_end(out, ']');
}

static void write_filter(struct server *server, struct slice key, struct entry *entry, struct buf *out)
{
    struct filter_facts all, *facts = &all;
    double observed;
    filter_facts(server, key, entry, facts);
    filter_facts_measure(server, entry, facts);
    json_begin(out, NULL, '{');
    filter_facts_json(facts, out);
    json_bool(out, "away", facts->evicted);
    real_unless(facts->evicted, out, "bitsSet", facts->bits_set);
    real_unless(facts->evicted, out, "measured", facts->measured_rate);
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
    if (facts->quarantined || facts->unread) {
        json_end(out, '}');
        return;
    }
    write_window(bloom_filter_params(entry_shape(entry)), out);
    write_key(facts->kind.key, out);
    write_layers(entry_shape(entry), facts->layers, facts->evicted, out);
    json_end(out, '}');
}

enum api_result api_filter(struct server *server, const struct acl_user *user, struct slice key, struct buf *out)
{
    enum api_result result = API_NO_FILTER;
    char *bytes = decode(key);
    struct slice name = {bytes, key.len / 2};
    struct entry *entry = bytes ? filter_facts_find(server, name) : NULL;
    if (bytes && !filter_facts_allowed(server->registry, user, name, entry)) {
        result = API_DENIED;
    } else if (entry) {
        write_filter(server, name, entry, out);
        result = API_DONE;
    }
    free(bytes);
    return result;
}
