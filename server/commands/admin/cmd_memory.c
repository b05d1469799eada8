/* MEMORY: the use of memory, with the numbers of INFO memory; info_server.c explains them. */
#include <inttypes.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bloom_filter.h"
#include "command.h"
#include "handlers.h"
#include "info.h"
#include "log_text.h"
#include "memory_use.h"

#define MB (UINT64_C(1) << 20)

/* ---- USAGE ---- */

void cmd_memory_usage(struct command_ctx *ctx)
{
    struct slice name = command_arg(ctx, 2);
    int64_t samples;

    for (size_t i = 3; i < command_argc(ctx); i += 2) { /* accepted without effect: no samples are taken */
        if (!slice_is(command_arg(ctx, i), "SAMPLES") || i + 1 == command_argc(ctx)) {
            reply_error(ctx->reply, "ERR syntax error");
            return;
        }
        if (!slice_to_int64(command_arg(ctx, i + 1), &samples)) {
            reply_error(ctx->reply, "ERR value is not an integer or out of range");
            return;
        }
        if (samples < 0) {
            reply_error(ctx->reply, "ERR syntax error");
            return;
        }
    }
    struct entry *entry = registry_lookup(ctx->server->registry, name);
    if (entry == NULL) {
        reply_null(ctx->reply);
        return;
    }
    const struct bloom_filter *filter = entry_shape(entry);
    uint64_t bytes = sizeof(*entry) + ((name.len + 7) & ~(uint64_t)7) + sizeof(uint64_t) +
                     REGISTRY_NAME_BYTES; /* its slot in the table and its node in the index */
    reply_integer(ctx->reply, (int64_t)(bytes + (filter == NULL ? 0 : bloom_filter_memory(filter))));
}

/* ---- STATS ---- */

struct memory {
    struct memory_use use;
    uint64_t used, dataset, overhead, peak, rss;
    size_t filters;
};

static void measure(struct server *server, struct memory *memory)
{
    memory_use(server, &memory->use);
    memory->used = memory_use_total(&memory->use);
    memory->dataset = memory_use_dataset(&memory->use);
    memory->overhead = memory->used - memory->dataset;
    memory->peak = server_peak_bytes(server);
    if (memory->peak < memory->used)
        memory->peak = memory->used;
    memory->rss = info_resident_bytes();
    memory->filters = registry_count(server->registry);
}

static void pair(struct reply *reply, const char *name, uint64_t value)
{
    reply_bulk_str(reply, name);
    reply_integer(reply, (int64_t)value);
}

static void pair_double(struct reply *reply, const char *name, double value)
{
    reply_bulk_str(reply, name);
    reply_double(reply, value);
}

static double ratio(uint64_t a, uint64_t b)
{
    return b == 0 ? 0 : (double)a / (double)b;
}

/* As in a Redis whose allocator has no statistics: its memory is that of the process. */
static void stats_of_allocator(struct reply *reply, const struct memory *memory)
{
    pair(reply, "allocator.allocated", memory->used);
    pair(reply, "allocator.active", memory->rss);
    pair(reply, "allocator.resident", memory->rss);
    pair(reply, "allocator.muzzy", 0);
    pair_double(reply, "allocator-fragmentation.ratio", ratio(memory->rss, memory->used));
    pair(reply, "allocator-fragmentation.bytes", memory->rss - memory->used);
    pair_double(reply, "allocator-rss.ratio", 1);
    pair(reply, "allocator-rss.bytes", 0);
    pair_double(reply, "rss-overhead.ratio", 1);
    pair(reply, "rss-overhead.bytes", 0);
}

static void run_stats(struct command_job *job)
{
    struct reply *reply = &job->reply;
    struct memory memory;

    measure(job->server, &memory);
    reply_map(reply, 31);
    pair(reply, "peak.allocated", memory.peak);
    pair(reply, "total.allocated", memory.used);
    pair(reply, "startup.allocated", job->server->memory.startup_bytes);
    pair(reply, "replication.backlog", 0);
    pair(reply, "clients.slaves", 0);
    pair(reply, "clients.normal", memory.use.clients);
    pair(reply, "cluster.links", 0);
    pair(reply, "aof.buffer", memory.use.log);
    pair(reply, "lua.caches", 0);
    pair(reply, "functions.caches", 0);
    pair(reply, "pubsub", memory.use.pubsub);
    pair(reply, "users", memory.use.users);
    reply_bulk_str(reply, "db.0");
    reply_map(reply, 2);
    pair(reply, "overhead.hashtable.main", memory.use.index);
    pair(reply, "overhead.hashtable.expires", memory.use.expiry);
    pair(reply, "overhead.total", memory.overhead);
    pair(reply, "keys.count", memory.filters);
    pair(reply, "keys.bytes-per-key", memory.filters == 0 ? 0 : memory.used / memory.filters);
    pair(reply, "dataset.bytes", memory.dataset);
    pair_double(reply, "dataset.percentage", 100 * ratio(memory.dataset, memory.used));
    pair_double(reply, "peak.percentage", 100 * ratio(memory.used, memory.peak));
    stats_of_allocator(reply, &memory);
    pair_double(reply, "fragmentation", info_fragmentation(job->server, memory.rss, memory.used));
    pair(reply, "fragmentation.bytes", memory.rss - memory.used);
}

void cmd_memory_stats(struct command_ctx *ctx)
{
    command_defer(ctx, run_stats, NULL);
}

/* ---- DOCTOR ---- */

static void diagnose(struct server *server, const struct memory *memory, struct buf *out)
{
    const struct config *cfg = server_config(server);
    size_t found = buf_len(out);

    uint64_t limited = memory_use_limited(&memory->use), most = memory_clients_limit(server, cfg);
    if (cfg->memory.maxmemory != 0 && limited >= cfg->memory.maxmemory / 10 * 9)
        buf_appendf(out,
                    "- %" PRIu64 " bytes are in use of the %" PRIu64 " that maxmemory allows: above it new filters, "
                    "growth and adds are refused.\n",
                    limited, cfg->memory.maxmemory);
    if (memory->rss < memory->use.bits / 2)
        buf_appendf(out,
                    "- %" PRIu64 " bytes are reserved for bits, but the process occupies %" PRIu64
                    " so far: unused filters will need the memory when they fill up.\n",
                    memory->use.bits, memory->rss);
    if (memory->rss > memory->used + memory->used / 2 && memory->rss - memory->used > 256 * MB)
        buf_appendf(out,
                    "- The process occupies %" PRIu64 " bytes, %" PRIu64
                    " more than used_memory. MEMORY PURGE returns unused heap.\n",
                    memory->rss, memory->rss - memory->used);
    if (most != 0 && memory_of_clients(server) >= most / 10 * 9)
        buf_appendf(out,
                    "- Clients hold %" PRIu64 " bytes of the %" PRIu64 " that maxmemory-clients allows: above it the "
                    "largest is disconnected. CLIENT LIST shows the memory of each (tot-mem).\n",
                    memory_of_clients(server), most);
    if (buf_len(out) == found)
        buf_appendf(out, "Nothing is wrong: %s, %" PRIu64 " bytes in total; the process occupies %" PRIu64 ".\n",
                    log_count(memory->filters, "filter").text, memory->used, memory->rss);
}

static void run_doctor(struct command_job *job)
{
    struct memory memory;
    struct buf text;

    measure(job->server, &memory);
    buf_init(&text, SIZE_MAX);
    diagnose(job->server, &memory, &text);
    reply_text(&job->reply, &text);
}

void cmd_memory_doctor(struct command_ctx *ctx)
{
    command_defer(ctx, run_doctor, NULL);
}

/* ---- the heap ---- */

static void run_purge(struct command_job *job)
{
    malloc_trim(0);
    reply_status(&job->reply, "OK");
}

void cmd_memory_purge(struct command_ctx *ctx)
{
    command_defer(ctx, run_purge, NULL);
}

/* Locks one arena after the other while it reads: for people, not for programs. */
static void run_malloc_stats(struct command_job *job)
{
    char *text = NULL;
    size_t len = 0;
    FILE *file = open_memstream(&text, &len);
    bool good = file != NULL && malloc_info(0, file) == 0;

    if (file != NULL && fclose(file) != 0)
        good = false;
    if (good)
        reply_verbatim(&job->reply, "txt", text, len);
    else
        reply_error(&job->reply, "ERR out of memory");
    free(text);
}

void cmd_memory_malloc_stats(struct command_ctx *ctx)
{
    command_defer(ctx, run_malloc_stats, NULL);
}
