#include "api.h"

#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "command.h"
#include "info.h"
#include "json.h"
#include "server.h"
#include "server_facts.h"
#include "slowlog.h"
#include "version.h"

#define COMMANDS_SHOWN 20
#define SLOWLOG_SHOWN  32 /* entries, formatted under a lock that workers want: a third of a millisecond at most */
#define CLIENTS_SHOWN  100

/* ---- overview ---- */

static void traffic(struct server *server, const struct server_facts *facts, struct buf *out)
{
    const struct stats *gauges = counters_main(server->counters), *stats = &facts->stats;
    json_begin(out, "traffic", '{');
    json_count(out, "commandsPerSec", stats_get(&gauges->commands_per_sec));
    json_count(out, "inputPerSec", stats_get(&gauges->input_bytes_per_sec));
    json_count(out, "outputPerSec", stats_get(&gauges->output_bytes_per_sec));
    json_count(out, "commands", stats_get(&stats->commands_processed));
    json_count(out, "errors", stats_get(&stats->error_replies));
    json_count(out, "added", stats_get(&stats->items_added));
    json_count(out, "present", stats_get(&stats->items_present));
    json_count(out, "hits", stats_get(&stats->query_hits));
    json_count(out, "misses", stats_get(&stats->query_misses));
    json_count(out, "refused", stats_get(&stats->adds_full) + stats_get(&stats->adds_no_room));
    json_end(out, '}');
}

static void clients_and_memory(struct server *server, const struct server_facts *facts, struct buf *out)
{
    const struct memory_use *use = &facts->memory;
    json_begin(out, "clients", '{');
    json_count(out, "connected", sessions_count(server->sessions));
    json_count(out, "max", (uint64_t)atomic_load(&server->clients_max));
    json_count(out, "blocked", facts->blocked);
    json_count(out, "pubsub", facts->pubsub.clients);
    json_count(out, "rejected", stats_get(&facts->stats.connections_rejected));
    json_end(out, '}');
    json_begin(out, "memory", '{');
    json_count(out, "bits", use->bits);
    json_count(out, "entries", use->entries);
    json_count(out, "index", use->index);
    json_count(out, "expiry", use->expiry);
    json_count(out, "clients", use->clients);
    json_count(out, "pubsub", use->pubsub);
    json_count(out, "users", use->users);
    json_count(out, "log", use->log);
    json_count(out, "total", memory_use_total(use));
    json_count(out, "max", server_config(server)->maxmemory);
    json_count(out, "peak", server_peak_bytes(server));
    json_count(out, "resident", info_resident_bytes());
    json_end(out, '}');
}

static void persistence(struct server *server, const struct server_facts *facts, struct buf *out)
{
    const struct saver_info *saves = &facts->saves;
    const struct journal_info *log = &facts->log;
    json_begin(out, "save", '{');
    json_count(out, "lastUnix", (uint64_t)saves->last_save_unix);
    json_bool(out, "ok", saves->last_ok);
    json_str(out, "error", saves->last_error);
    json_bool(out, "running", saves->running);
    json_count(out, "changes", saves->changes);
    json_real(out, "lastMs", (double)saves->last_duration_ms);
    json_end(out, '}');
    json_begin(out, "log", '{');
    json_bool(out, "enabled", server_config(server)->appendonly);
    json_bool(out, "writable", !log->failed);
    json_str(out, "error", log->failed ? log->reason.text : "");
    json_count(out, "bytes", log->current_bytes);
    json_count(out, "unsynced", log->pending_bytes);
    json_count(out, "queued", log->queued);
    json_real(out, "lastSyncMs", (double)log->last_sync_us / 1000);
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
    if (server_config(server)->latency_tracking && counters_histogram(server->counters, i, &histogram)) {
        json_real(out, "p50Us", (double)histogram_percentile(&histogram, 50) / 1000);
        json_real(out, "p99Us", (double)histogram_percentile(&histogram, 99) / 1000);
        json_real(out, "p999Us", (double)histogram_percentile(&histogram, 99.9) / 1000);
    }
    json_end(out, '}');
}

/* Those that are called most. */
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

void api_overview(struct server *server, struct buf *out)
{
    struct server_facts *facts = malloc(sizeof(*facts));
    if (!facts) {
        out->failed = true;
        return;
    }
    server_facts(server, facts);
    json_begin(out, NULL, '{');
    json_str(out, "version", BLOOMERY_VERSION);
    json_real(out, "uptimeMs", (double)(clock_ms() - server->process.started_ms));
    json_count(out, "nowMs", (uint64_t)clock_unix_ms());
    json_count(out, "port", (uint64_t)server->process.port);
    json_bool(out, "ready", facts->readiness.ready);
    json_str(out, "state", facts->readiness.reason);
    traffic(server, facts, out);
    clients_and_memory(server, facts, out);
    persistence(server, facts, out);
    json_begin(out, "filters", '{');
    json_count(out, "count", registry_count(server->registry));
    json_count(out, "quarantined", registry_quarantined(server->registry));
    json_count(out, "expiring", facts->expiry.count);
    json_end(out, '}');
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

void api_slowlog(struct server *server, struct buf *out)
{
    json_begin(out, NULL, '{');
    json_count(out, "total", slowlog_len(server->slowlog));
    json_begin(out, "entries", '[');
    slowlog_each(server->slowlog, SLOWLOG_SHOWN, write_slow, out);
    json_end(out, ']');
    json_end(out, '}');
}

/* ---- clients ---- */

struct client_row {
    uint64_t id, input, output, commands, memory;
    int64_t age_ms, idle_ms;
    const char *command;
    char addr[64], name[64];
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

static void copy_client(const struct session *session, int64_t now_ms, struct client_row *row)
{
    *row = (struct client_row){
        .id = session->id,
        .input = load(&session->input_bytes),
        .output = load(&session->output_bytes),
        .commands = load(&session->commands),
        .age_ms = now_ms - session->created_ms,
        .idle_ms = now_ms - atomic_load_explicit(&session->last_ms, memory_order_relaxed),
        .command = atomic_load_explicit(&session->command, memory_order_relaxed),
    };
    row->memory = row->input + row->output + load(&session->multi_bytes) + load(&session->pubsub_bytes) +
                  load(&session->tracking_bytes);
    memcpy(row->addr, session->addr, sizeof(row->addr));
    if (session->name)
        strncpy(row->name, session->name, sizeof(row->name) - 1);
}

/* Keeps those that hold most memory; of equals the oldest. Under a lock: one comparison for most. */
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

void api_clients(struct server *server, struct buf *out)
{
    struct client_rows *all = calloc(1, sizeof(*all));
    if (!all) {
        out->failed = true;
        return;
    }
    all->now_ms = clock_ms();
    sessions_each(server->sessions, keep_client, all);
    json_begin(out, NULL, '{');
    json_count(out, "total", sessions_count(server->sessions));
    json_begin(out, "rows", '[');
    for (size_t i = 0; i < all->n; i++) {
        const struct client_row *row = &all->rows[i];
        json_begin(out, NULL, '{');
        json_count(out, "id", row->id);
        json_str(out, "addr", row->addr);
        json_str(out, "name", row->name);
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
