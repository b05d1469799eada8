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
#include "histogram.h"
#include "json.h"
#include "server.h"
#include "slowlog.h"
#include "version.h"

#define COMMANDS_SHOWN 20
#define SLOWLOG_SHOWN  32 /* entries, formatted under a lock that workers want: a third of a millisecond at most */
#define CLIENTS_SHOWN  100
#define DENIALS_SHOWN  64

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

struct command_calls {
    size_t index;
    uint64_t calls;
};

static int by_calls(const void *a, const void *b)
{
    const struct command_calls *x = a, *y = b;
    return (x->calls < y->calls) - (x->calls > y->calls);
}

static void write_command(struct server *server, const struct stats *stats, size_t i, struct buf *out)
{
    struct histogram histogram;
    uint64_t calls = stats_get(&stats->calls[i]);
    json_begin(out, NULL, '{');
    json_str(out, "name", command_row(i)->full_name);
    json_count(out, "calls", calls);
    json_count(out, "failed", stats_get(&stats->failed[i]));
    json_count(out, "rejected", stats_get(&stats->rejected[i]));
    json_real(out, "meanUs", calls ? (double)stats_get(&stats->time_ns[i]) / 1000 / (double)calls : 0);
    if (server_config(server)->process.latency_tracking && counters_histogram(server->stats.counters, i, &histogram)) {
        json_real(out, "p50Us", (double)histogram_percentile(&histogram, 50) / 1000);
        json_real(out, "p99Us", (double)histogram_percentile(&histogram, 99) / 1000);
        json_real(out, "p999Us", (double)histogram_percentile(&histogram, 99.9) / 1000);
    }
    json_end(out, '}');
}

/* The commands that are called most. */
static void commands(struct server *server, const struct stats *stats, struct buf *out)
{
    struct command_calls called[STATS_MAX_COMMANDS];
    size_t n = 0;
    for (size_t i = 0; command_row(i); i++)
        if (stats_get(&stats->calls[i]) + stats_get(&stats->rejected[i]) > 0)
            called[n++] = (struct command_calls){i, stats_get(&stats->calls[i])};
    qsort(called, n, sizeof(called[0]), by_calls);
    json_begin(out, "commands", '[');
    for (size_t i = 0; i < n && i < COMMANDS_SHOWN; i++)
        write_command(server, stats, called[i].index, out);
    json_end(out, ']');
}

static void errors(const struct errorstats *all, struct buf *out)
{
    size_t used = atomic_load_explicit(&all->used, memory_order_relaxed);
    json_begin(out, "errors", '[');
    for (size_t i = 0; i < used; i++) {
        json_begin(out, NULL, '{');
        json_str(out, "code", all->rows[i].code);
        json_count(out, "count", stats_get(&all->rows[i].count));
        json_end(out, '}');
    }
    json_end(out, ']');
}

void api_overview(const struct web *web, struct buf *out)
{
    struct server *server = web->server;
    struct facts *facts = calloc(1, sizeof(*facts)); /* without the totals, which nobody looks at */
    char host[HOST_NAME_MAX + 1] = "";
    if (!facts) {
        out->failed = true;
        return;
    }
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
    commands(server, &facts->stats, out);
    errors(&facts->errors, out);
    json_end(out, '}');
    free(facts);
}

/* ---- slow log ---- */

static void write_slow(void *ctx, const struct slowlog_view *entry)
{
    struct buf *out = ctx;
    json_begin(out, NULL, '{');
    json_count(out, "id", entry->id);
    json_count(out, "unix", (uint64_t)entry->unix_sec);
    json_real(out, "us", (double)entry->usec);
    json_begin(out, "words", '[');
    for (size_t i = 0; i < entry->nargs; i++)
        json_text(out, NULL, entry->args[i]);
    json_end(out, ']');
    json_text(out, "addr", entry->addr);
    json_text(out, "client", entry->name);
    json_end(out, '}');
}

void api_slowlog(const struct web *web, struct buf *out)
{
    json_begin(out, NULL, '{');
    json_count(out, "total", slowlog_len(web->server->stats.slowlog));
    json_begin(out, "entries", '[');
    slowlog_each(web->server->stats.slowlog, SLOWLOG_SHOWN, write_slow, out);
    json_end(out, ']');
    json_end(out, '}');
}

/* ---- refused access ---- */

static void begin_denials(void *ctx, size_t n)
{
    (void)n;
    json_begin(ctx, "entries", '[');
}

static void write_denial(void *ctx, const struct acl_log_entry *entry)
{
    struct buf *out = ctx;
    json_begin(out, NULL, '{');
    json_count(out, "id", entry->id);
    json_count(out, "count", entry->count);
    json_str(out, "reason", entry->reason);
    json_text(out, "object", entry->object);
    json_text(out, "user", entry->user);
    json_text(out, "client", entry->client);
    json_count(out, "unix", (uint64_t)(entry->at_ms / 1000));
    json_end(out, '}');
}

void api_acl_log(const struct web *web, struct buf *out)
{
    json_begin(out, NULL, '{');
    json_count(out, "total", acl_log_size(web->server->acl));
    if (acl_log_each(web->server->acl, DENIALS_SHOWN, begin_denials, write_denial, out))
        json_end(out, ']');
    else
        out->failed = true;
    json_end(out, '}');
}

/* ---- clients ---- */

struct client_row {
    uint64_t id, input, output, commands, memory;
    int64_t age_ms, idle_ms;
    unsigned db;
    bool tls;
    const char *command;
    char addr[64], name[64], user[64], library[96];
};

struct client_rows {
    size_t n;
    int64_t now_ms;
    struct client_row rows[CLIENTS_SHOWN];
};

static uint64_t load(const _Atomic uint64_t *value)
{
    return atomic_load_explicit(value, memory_order_relaxed);
}

static const char *text_of(const struct session *session, enum session_text which)
{
    return session->texts.of[which] ? session->texts.of[which] : "";
}

static void copy_client(const struct session *session, int64_t now_ms, struct client_row *row)
{
    *row = (struct client_row){
        .id = session->id,
        .input = load(&session->meters.input_bytes),
        .output = load(&session->meters.output_bytes),
        .commands = load(&session->meters.commands),
        .db = atomic_load_explicit(&session->db, memory_order_relaxed),
        .tls = session->origin.tls,
        .age_ms = now_ms - session->origin.created_ms,
        .idle_ms = now_ms - atomic_load_explicit(&session->meters.last_ms, memory_order_relaxed),
        .command = atomic_load_explicit(&session->meters.command, memory_order_relaxed),
    };
    row->memory = load(&session->meters.memory);
    memcpy(row->addr, session->origin.addr, sizeof(row->addr));
    snprintf(row->name, sizeof(row->name), "%s", text_of(session, SESSION_NAME));
    snprintf(row->user, sizeof(row->user), "%s", session->acl.user_name ? session->acl.user_name : "default");
    snprintf(row->library, sizeof(row->library), "%s %s", text_of(session, SESSION_LIB_NAME),
             text_of(session, SESSION_LIB_VER));
}

/* Keeps the clients that hold most memory; of equals the oldest. Under a lock: one comparison for most. */
static void keep_client(void *ctx, struct session *session)
{
    struct client_rows *all = ctx;
    struct client_row row;
    copy_client(session, all->now_ms, &row);
    size_t at = all->n;
    if (at == CLIENTS_SHOWN && all->rows[at - 1].memory >= row.memory)
        return;
    at -= at == CLIENTS_SHOWN;
    all->n = at + 1;
    for (; at > 0 && all->rows[at - 1].memory < row.memory; at--)
        all->rows[at] = all->rows[at - 1];
    all->rows[at] = row;
}

void api_clients(const struct web *web, struct buf *out)
{
    struct client_rows *all = calloc(1, sizeof(*all));
    if (!all) {
        out->failed = true;
        return;
    }
    all->now_ms = clock_ms();
    sessions_each(web->server->clients.sessions, keep_client, all);
    json_begin(out, NULL, '{');
    json_count(out, "total", sessions_count(web->server->clients.sessions));
    json_begin(out, "rows", '[');
    for (size_t i = 0; i < all->n; i++) {
        const struct client_row *row = &all->rows[i];
        json_begin(out, NULL, '{');
        json_count(out, "id", row->id);
        json_str(out, "addr", row->addr);
        json_str(out, "name", row->name);
        json_str(out, "user", row->user);
        json_count(out, "db", row->db);
        json_bool(out, "tls", row->tls);
        json_str(out, "library", row->library);
        json_str(out, "command", row->command ? row->command : "");
        json_count(out, "commands", row->commands);
        json_count(out, "input", row->input);
        json_count(out, "output", row->output);
        json_count(out, "memory", row->memory);
        json_real(out, "ageMs", (double)row->age_ms);
        json_real(out, "idleMs", (double)row->idle_ms);
        json_end(out, '}');
    }
    json_end(out, ']');
    json_end(out, '}');
    free(all);
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
