/* INFO: the state of the server as text, in Redis's sections and under its field names, so that whatever reads Redis's
 * reads this. A field that Redis has for something there is none of here is left out, unless tools are known to look for it;
 * then it has the value that Redis gives it where the thing is not in use.
 *
 * Times per command are not measured (reading the clock twice would cost as much as a query), so usec is 0 in
 * commandstats; the fields are there because programs find the others by counting commas. */
#include <gnu/libc-version.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "bloom_filter.h"
#include "command.h"
#include "handlers.h"
#include "saver.h"
#include "server.h"
#include "worker.h"
#include "version.h"

/* What the sections are written from. */
struct info {
    struct server *server;
    const struct config *cfg;
    struct stats stats;
    struct buf *out;
};

static void line(struct info *info, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Appends a line of up to the length of a path and a few words; more would be a bug, and is cut. */
static void line(struct info *info, const char *fmt, ...)
{
    char text[4352];
    va_list args;
    int len;

    va_start(args, fmt);
    len = vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    if (len >= (int)sizeof(text))
        len = (int)sizeof(text) - 1;
    buf_append(info->out, text, (size_t)len);
    buf_append(info->out, "\r\n", 2);
}

/* A number of bytes, exactly and as people read it: 1536 and 1.50K. */
static void line_bytes(struct info *info, const char *name, uint64_t bytes)
{
    static const char units[] = "BKMGTPE";
    double value = (double)bytes;
    size_t unit = 0;

    while (value >= 1024 && unit < sizeof(units) - 2) {
        value /= 1024;
        unit++;
    }
    line(info, "%s:%" PRIu64, name, bytes);
    line(info, "%s_human:%.*f%c", name, unit == 0 ? 0 : 2, value, units[unit]);
}

/* ---- sections -------------------------------------------------------------------------------------------------------------- */

static void info_server(struct info *info)
{
    struct server *server = info->server;
    int64_t uptime_sec = (server_now_ms() - server->started_ms) / 1000;
    struct utsname os;

    line(info, "redis_version:" REDIS_COMPAT_VERSION);
    line(info, "redis_mode:standalone");
    line(info, "bloomery_version:" BLOOMERY_VERSION);
    if (uname(&os) == 0)
        line(info, "os:%s %s %s", os.sysname, os.release, os.machine);
    line(info, "arch_bits:%zu", sizeof(void *) * 8);
    line(info, "monotonic_clock:POSIX clock_gettime");
    line(info, "multiplexing_api:epoll");
    line(info, "atomicvar_api:c11-builtin");
    line(info, "gcc_version:%d.%d.%d", __GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__);
    line(info, "process_id:%ld", (long)getpid());
    line(info, "process_supervised:no");
    line(info, "run_id:%s", server->run_id);
    line(info, "tcp_port:%d", server->port);
    line(info, "server_time_usec:%" PRId64, server_unix_ms() * 1000);
    line(info, "uptime_in_seconds:%" PRId64, uptime_sec);
    line(info, "uptime_in_days:%" PRId64, uptime_sec / 86400);
    line(info, "executable:%s", server->executable);
    line(info, "config_file:%s", server->config_file);
    line(info, "io_threads_active:%d", server->nworkers > 1);
    line(info, "worker_threads:%u", server->nworkers);
}

/* How evenly connections are spread. */
static void worker_connections(struct info *info)
{
    char text[2048] = "";
    size_t used = 0;
    for (unsigned i = 0; i < info->server->nworkers && used < sizeof(text); i++)
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%u", i ? "," : "",
                                 worker_nconns(info->server->workers[i]));
    line(info, "worker_connections:%s", text);
}

static void info_clients(struct info *info)
{
    line(info, "connected_clients:%" PRIu64, sessions_count(info->server->sessions));
    line(info, "cluster_connections:0");
    line(info, "maxclients:%" PRId64, info->cfg->maxclients);
    line(info, "blocked_clients:0");
    line(info, "tracking_clients:0");
    line(info, "pubsub_clients:0");
    line(info, "watching_clients:0");
    line(info, "clients_in_timeout_table:0");
    line(info, "total_watched_keys:0");
    line(info, "total_blocking_keys:0");
    worker_connections(info);
}

/* Bytes of memory that the process occupies now; 0 if the kernel does not say. */
static uint64_t resident_bytes(void)
{
    FILE *file = fopen("/proc/self/statm", "re");
    unsigned long long total, resident = 0;

    if (file == NULL)
        return 0;
    if (fscanf(file, "%llu %llu", &total, &resident) != 2)
        resident = 0;
    fclose(file);
    return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* used_memory is what maxmemory limits: the bits of all filters. Memory that is reserved but was never written to counts
 * there and not in used_memory_rss, where in turn the names, the tables and the connections count too. The heap is not asked
 * for its size: glibc would walk its free lists with its lock held, and other threads would wait for it. */
static void info_memory(struct info *info)
{
    uint64_t used = bloom_pool_bytes(info->server->pool);

    line_bytes(info, "used_memory", used);
    line_bytes(info, "used_memory_rss", resident_bytes());
    line(info, "used_memory_dataset:%" PRIu64, used);
    line_bytes(info, "total_system_memory", (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE));
    line_bytes(info, "maxmemory", info->cfg->maxmemory);
    line(info, "maxmemory_policy:noeviction");
    line(info, "mem_allocator:glibc-%s", gnu_get_libc_version());
    line(info, "active_defrag_running:0");
}

static void info_persistence(struct info *info)
{
    struct saver_info saver;

    saver_info(info->server->saver, &saver);
    line(info, "loading:0");
    line(info, "async_loading:0");
    line(info, "rdb_changes_since_last_save:%" PRIu64, saver.changes);
    line(info, "rdb_bgsave_in_progress:%d", saver.running);
    line(info, "rdb_last_save_time:%" PRId64, saver.last_save_unix);
    line(info, "rdb_last_bgsave_status:%s", saver.last_ok ? "ok" : "err");
    line(info, "rdb_last_bgsave_time_sec:%" PRId64, saver.last_duration_ms < 0 ? -1 : saver.last_duration_ms / 1000);
    line(info, "rdb_current_bgsave_time_sec:%" PRId64, saver.running_ms < 0 ? -1 : saver.running_ms / 1000);
    line(info, "rdb_saves:%" PRIu64, saver.saves);
    line(info, "rdb_last_cow_size:0");
    if (saver.last_error[0] != '\0')
        line(info, "last_save_error:%s", saver.last_error);
    line(info, "aof_enabled:0");
    line(info, "aof_rewrite_in_progress:0");
    line(info, "aof_rewrite_scheduled:0");
    line(info, "aof_last_rewrite_time_sec:-1");
    line(info, "aof_current_rewrite_time_sec:-1");
    line(info, "aof_last_bgrewrite_status:ok");
    line(info, "aof_last_write_status:ok");
    line(info, "module_fork_in_progress:0");
}

static void info_stats(struct info *info)
{
    const struct stats *stats = &info->stats, *gauges = &info->server->main_stats;

    line(info, "total_connections_received:%" PRIu64, stats_get(&stats->connections_received));
    line(info, "total_commands_processed:%" PRIu64, stats_get(&stats->commands_processed));
    line(info, "instantaneous_ops_per_sec:%" PRIu64, stats_get(&gauges->commands_per_sec));
    line(info, "total_net_input_bytes:%" PRIu64, stats_get(&stats->net_input_bytes));
    line(info, "total_net_output_bytes:%" PRIu64, stats_get(&stats->net_output_bytes));
    line(info, "instantaneous_input_kbps:%.2f", (double)stats_get(&gauges->input_bytes_per_sec) / 1024);
    line(info, "instantaneous_output_kbps:%.2f", (double)stats_get(&gauges->output_bytes_per_sec) / 1024);
    line(info, "rejected_connections:%" PRIu64, stats_get(&stats->connections_rejected));
    line(info, "sync_full:0");
    line(info, "sync_partial_ok:0");
    line(info, "sync_partial_err:0");
    line(info, "expired_keys:0");
    line(info, "evicted_keys:0");
    line(info, "evicted_clients:0");
    line(info, "pubsub_channels:0");
    line(info, "pubsub_patterns:0");
    line(info, "latest_fork_usec:0");
    line(info, "total_forks:0");
    line(info, "total_error_replies:%" PRIu64, stats_get(&stats->error_replies));
    line(info, "unknown_commands:%" PRIu64, stats_get(&stats->unknown_commands));
    line(info, "protocol_errors:%" PRIu64, stats_get(&stats->protocol_errors));
    line(info, "clients_over_limit:%" PRIu64, stats_get(&stats->clients_over_limit));
}

static void info_replication(struct info *info)
{
    line(info, "role:master");
    line(info, "connected_slaves:0");
    line(info, "master_failover_state:no-failover");
    line(info, "master_replid:%s", info->server->run_id);
    line(info, "master_replid2:0000000000000000000000000000000000000000");
    line(info, "master_repl_offset:0");
    line(info, "second_repl_offset:-1");
    line(info, "repl_backlog_active:0");
    line(info, "repl_backlog_size:0");
    line(info, "repl_backlog_first_byte_offset:0");
    line(info, "repl_backlog_histlen:0");
}

static void info_cpu(struct info *info)
{
    struct rusage self = {0}, children = {0};

    getrusage(RUSAGE_SELF, &self);
    getrusage(RUSAGE_CHILDREN, &children);
    line(info, "used_cpu_sys:%ld.%06ld", (long)self.ru_stime.tv_sec, (long)self.ru_stime.tv_usec);
    line(info, "used_cpu_user:%ld.%06ld", (long)self.ru_utime.tv_sec, (long)self.ru_utime.tv_usec);
    line(info, "used_cpu_sys_children:%ld.%06ld", (long)children.ru_stime.tv_sec, (long)children.ru_stime.tv_usec);
    line(info, "used_cpu_user_children:%ld.%06ld", (long)children.ru_utime.tv_sec, (long)children.ru_utime.tv_usec);
}

static void info_modules(struct info *info)
{
    line(info, "module:name=bf,ver=%d,api=1,filters=0,usedby=[],using=[],options=[]", REDISBLOOM_COMPAT_VERSION);
}

static void info_commandstats(struct info *info)
{
    const struct command *row;

    for (size_t i = 0; (row = command_row(i)) != NULL; i++) {
        uint64_t calls = stats_get(&info->stats.calls[i]);
        uint64_t rejected = stats_get(&info->stats.rejected[i]);
        uint64_t failed = stats_get(&info->stats.failed[i]);

        if (calls + rejected + failed > 0)
            line(info, "cmdstat_%s:calls=%" PRIu64 ",usec=0,usec_per_call=0.00,rejected_calls=%" PRIu64 ",failed_calls=%" PRIu64,
                 row->full_name, calls, rejected, failed);
    }
}

static void info_cluster(struct info *info)
{
    line(info, "cluster_enabled:0");
}

static void info_keyspace(struct info *info)
{
    size_t n = registry_count(info->server->registry);

    if (n > 0)
        line(info, "db0:keys=%zu,expires=0,avg_ttl=0,subexpiry=0", n);
}

/* What Redis has no fields for. Only sums that are at hand: fill and rates of single filters are BF.INFO's business. */
static void info_bloom(struct info *info)
{
    const struct stats *stats = &info->stats;

    line(info, "filters:%zu", registry_count(info->server->registry));
    line(info, "quarantined_filters:%zu", registry_quarantined(info->server->registry));
    line(info, "filter_bytes:%" PRIu64, bloom_pool_bytes(info->server->pool));
    line(info, "items_added:%" PRIu64, stats_get(&stats->items_added));
    line(info, "items_present:%" PRIu64, stats_get(&stats->items_present));
    line(info, "query_hits:%" PRIu64, stats_get(&stats->query_hits));
    line(info, "query_misses:%" PRIu64, stats_get(&stats->query_misses));
    line(info, "changes:%" PRIu64, stats_get(&stats->changes));
}

/* ---- the command ----------------------------------------------------------------------------------------------------------- */

#define IN_DEFAULT    1u
#define IN_ALL        2u
#define IN_EVERYTHING 4u

static const struct section {
    const char *name;
    const char *title;
    unsigned in;
    void (*write)(struct info *info);
} sections[] = {
    {"server", "Server", IN_DEFAULT | IN_ALL | IN_EVERYTHING, info_server},
    {"clients", "Clients", IN_DEFAULT | IN_ALL | IN_EVERYTHING, info_clients},
    {"memory", "Memory", IN_DEFAULT | IN_ALL | IN_EVERYTHING, info_memory},
    {"persistence", "Persistence", IN_DEFAULT | IN_ALL | IN_EVERYTHING, info_persistence},
    {"stats", "Stats", IN_DEFAULT | IN_ALL | IN_EVERYTHING, info_stats},
    {"replication", "Replication", IN_DEFAULT | IN_ALL | IN_EVERYTHING, info_replication},
    {"cpu", "CPU", IN_DEFAULT | IN_ALL | IN_EVERYTHING, info_cpu},
    {"modules", "Modules", IN_DEFAULT | IN_EVERYTHING, info_modules},
    {"commandstats", "Commandstats", IN_ALL | IN_EVERYTHING, info_commandstats},
    {"cluster", "Cluster", IN_DEFAULT | IN_ALL | IN_EVERYTHING, info_cluster},
    {"bloom", "Bloom", IN_DEFAULT | IN_ALL | IN_EVERYTHING, info_bloom},
    {"keyspace", "Keyspace", IN_DEFAULT | IN_ALL | IN_EVERYTHING, info_keyspace},
};

#define NSECTIONS (sizeof(sections) / sizeof(sections[0]))

struct info_request {
    bool wanted[NSECTIONS];
};

static void want_section(struct info_request *request, struct slice name)
{
    unsigned in = slice_is(name, "default")      ? IN_DEFAULT
                  : slice_is(name, "all")        ? IN_ALL
                  : slice_is(name, "everything") ? IN_EVERYTHING
                                                 : 0;

    for (size_t i = 0; i < NSECTIONS; i++) {
        if ((sections[i].in & in) != 0 || slice_is(name, sections[i].name))
            request->wanted[i] = true;
    }
}

static void run_info(struct command_job *job)
{
    const struct info_request *request = job->data;
    struct info info = {.server = job->server, .cfg = server_config(job->server)};
    struct buf text;

    buf_init(&text, job->reply.buf->cap);
    info.out = &text;
    server_stats(job->server, &info.stats);
    for (size_t i = 0; i < NSECTIONS; i++) {
        if (!request->wanted[i])
            continue;
        if (buf_len(&text) > 0)
            buf_append(&text, "\r\n", 2);
        line(&info, "# %s", sections[i].title);
        sections[i].write(&info);
    }
    if (buf_failed(&text))
        reply_error(&job->reply, "ERR out of memory");
    else
        reply_verbatim(&job->reply, "txt", buf_head(&text), buf_len(&text));
    buf_deinit(&text);
}

/* Files of the kernel are read and counters of all threads are summed up, so it is not done on the loop. */
void cmd_info(struct command_ctx *ctx)
{
    struct info_request *request = calloc(1, sizeof(*request));

    if (request == NULL) {
        reply_error(ctx->reply, "ERR out of memory");
        return;
    }
    if (command_argc(ctx) == 1)
        want_section(request, (struct slice){"default", strlen("default")});
    for (size_t i = 1; i < command_argc(ctx); i++)
        want_section(request, command_arg(ctx, i));
    command_defer(ctx, run_info, request);
}
