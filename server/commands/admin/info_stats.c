/* INFO: statistics of the work so far. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "acl.h"
#include "all_names.h"
#include "command.h"
#include "histogram.h"
#include "info.h"
#include "registry_databases.h"

#define LEN(array) (sizeof(array) / sizeof((array)[0]))

/* ---- stats ---- */

static void traffic(struct info *info)
{
    static const char *const replication[] = {"total_net_repl_input_bytes", "total_net_repl_output_bytes"};
    const struct stats *stats = &info->stats, *gauges = counters_main(info->server->stats.counters);

    info_line(info, "total_connections_received:%" PRIu64, stats_get(&stats->connections_received));
    info_line(info, "total_commands_processed:%" PRIu64, stats_get(&stats->commands_processed));
    info_line(info, "instantaneous_ops_per_sec:%" PRIu64, stats_get(&gauges->commands_per_sec));
    info_line(info, "total_net_input_bytes:%" PRIu64, stats_get(&stats->net_input_bytes));
    info_line(info, "total_net_output_bytes:%" PRIu64, stats_get(&stats->net_output_bytes));
    info_zeros(info, replication, LEN(replication));
    info_line(info, "instantaneous_input_kbps:%.2f", (double)stats_get(&gauges->input_bytes_per_sec) / 1024);
    info_line(info, "instantaneous_output_kbps:%.2f", (double)stats_get(&gauges->output_bytes_per_sec) / 1024);
    info_line(info, "instantaneous_input_repl_kbps:0.00");
    info_line(info, "instantaneous_output_repl_kbps:0.00");
    info_line(info, "rejected_connections:%" PRIu64, stats_get(&stats->connections_rejected));
    info_line(info, "tls_handshakes:%" PRIu64, stats_get(&stats->tls_handshakes));
    info_line(info, "tls_resumed_handshakes:%" PRIu64, stats_get(&stats->tls_resumed));
    info_line(info, "tls_failed_connections:%" PRIu64, stats_get(&stats->tls_failed));
}

/* Of the event loops of all workers together. */
static void loops(struct info *info)
{
    const struct stats *stats = &info->stats, *gauges = counters_main(info->server->stats.counters);
    uint64_t cycles = stats_get(&gauges->loop_cycles_per_sec), ns = stats_get(&gauges->loop_ns_per_sec);

    info_line(info, "eventloop_cycles:%" PRIu64, stats_get(&stats->loop_cycles));
    info_line(info, "eventloop_duration_sum:%" PRIu64, stats_get(&stats->loop_ns) / 1000);
    info_line(info, "eventloop_duration_cmd_sum:%" PRIu64, stats_get(&stats->loop_command_ns) / 1000);
    info_line(info, "instantaneous_eventloop_cycles_per_sec:%" PRIu64, cycles);
    info_line(info, "instantaneous_eventloop_duration_usec:%" PRIu64, cycles ? ns / cycles / 1000 : 0);
}

void info_stats(struct info *info)
{
    static const char *const replicas[] = {"sync_full", "sync_partial_ok", "sync_partial_err", "expired_subkeys"};
    static const char *const before_hits[] = {"expired_time_cap_reached_count", "expire_cycle_cpu_milliseconds",
                                              "evicted_keys"};
    static const char *const after_evicted[] = {"evicted_scripts", "total_eviction_exceeded_time",
                                                "current_eviction_exceeded_time"};
    static const char *const after_hits[] = {
        "latest_fork_usec",         "total_forks",
        "migrate_cached_sockets",   "slave_expires_tracked_keys",
        "active_defrag_hits",       "active_defrag_misses",
        "active_defrag_key_hits",   "active_defrag_key_misses",
        "total_active_defrag_time", "current_active_defrag_time",
        "tracking_total_keys",      "tracking_total_items",
        "tracking_total_prefixes",  "unexpected_error_replies",
    };
    const struct stats *stats = &info->stats;

    traffic(info);
    info_zeros(info, replicas, LEN(replicas));
    info_line(info, "expired_keys:%" PRIu64, stats_get(&stats->expired));
    info_zeros(info, before_hits, LEN(before_hits));
    info_line(info, "evicted_clients:%" PRIu64, stats_get(&stats->evicted_clients));
    info_zeros(info, after_evicted, LEN(after_evicted));
    info_line(info, "expired_stale_perc:0.00");
    info_line(info, "keyspace_hits:%" PRIu64, stats_get(&stats->keyspace_hits));
    info_line(info, "keyspace_misses:%" PRIu64, stats_get(&stats->keyspace_misses));
    info_line(info, "pubsub_channels:%" PRIu64, info->pubsub.topics[PUBSUB_CHANNEL]);
    info_line(info, "pubsub_patterns:%" PRIu64, info->pubsub.topics[PUBSUB_PATTERN]);
    info_line(info, "pubsubshard_channels:%" PRIu64, info->pubsub.topics[PUBSUB_SHARD]);
    info_line(info, "pubsub_messages_lost:%" PRIu64, info->pubsub.lost);
    info_zeros(info, after_hits, LEN(after_hits));
    info_line(info, "total_error_replies:%" PRIu64, stats_get(&stats->error_replies));
    info_line(info, "total_reads_processed:%" PRIu64, stats_get(&stats->reads_processed));
    info_line(info, "total_writes_processed:%" PRIu64, stats_get(&stats->writes_processed));
    info_line(info, "client_query_buffer_limit_disconnections:%" PRIu64, stats_get(&stats->over_query_buffer));
    info_line(info, "client_output_buffer_limit_disconnections:%" PRIu64, stats_get(&stats->over_output_buffer));
    loops(info);
    info_line(info, "acl_access_denied_auth:%" PRIu64, acl_log_count(info->server->acl, ACL_DENIED_AUTH));
    info_line(info, "acl_access_denied_cmd:%" PRIu64, acl_log_count(info->server->acl, ACL_DENIED_COMMAND));
    info_line(info, "acl_access_denied_key:%" PRIu64, acl_log_count(info->server->acl, ACL_DENIED_KEY));
    info_line(info, "acl_access_denied_channel:%" PRIu64, acl_log_count(info->server->acl, ACL_DENIED_CHANNEL));
    info_line(info, "unknown_commands:%" PRIu64, stats_get(&stats->unknown_commands));
    info_line(info, "protocol_errors:%" PRIu64, stats_get(&stats->protocol_errors));
}

/* ---- by command, by error ---- */

void info_commandstats(struct info *info)
{
    const struct command *row;

    for (size_t i = 0; (row = command_row(i)) != NULL; i++) {
        uint64_t calls = stats_get(&info->stats.calls[i]), ns = stats_get(&info->stats.time_ns[i]);
        uint64_t rejected = stats_get(&info->stats.rejected[i]), failed = stats_get(&info->stats.failed[i]);

        if (calls + rejected + failed > 0)
            info_line(info,
                      "cmdstat_%s:calls=%" PRIu64 ",usec=%" PRIu64 ",usec_per_call=%.2f,rejected_calls=%" PRIu64
                      ",failed_calls=%" PRIu64,
                      row->full_name, calls, ns / 1000, calls == 0 ? 0 : (double)ns / 1000 / (double)calls, rejected,
                      failed);
    }
}

void info_errorstats(struct info *info)
{
    size_t used = atomic_load_explicit(&info->errors.used, memory_order_relaxed);

    for (size_t i = 0; i < used; i++) {
        const struct errorstats_row *row = &info->errors.rows[i];
        uint64_t count = atomic_load_explicit(&row->count, memory_order_relaxed);
        if (count > 0)
            info_line(info, "errorstat_%s:count=%" PRIu64, row->code, count);
    }
}

void info_latencystats(struct info *info)
{
    double percentiles[CONFIG_MAX_PERCENTILES];
    int n = config_percentiles(info->cfg->process.latency_tracking_info_percentiles, percentiles);
    const struct command *row;
    struct histogram histogram;

    for (size_t i = 0; (row = command_row(i)) != NULL; i++) {
        char text[CONFIG_MAX_PERCENTILES * 48] = "";
        size_t used = 0;

        if (!info->cfg->process.latency_tracking || !counters_histogram(info->server->stats.counters, i, &histogram))
            continue;
        for (int p = 0; p < n && used < sizeof(text); p++)
            used += (size_t)snprintf(text + used, sizeof(text) - used, "%sp%g=%.3f", p > 0 ? "," : "", percentiles[p],
                                     (double)histogram_percentile(&histogram, percentiles[p]) / 1000);
        info_line(info, "latency_percentiles_usec_%s:%s", row->full_name, text);
    }
}

void info_keyspace(struct info *info)
{
    struct registry *registry = info->server->registry;
    for (unsigned number = 0; number < (unsigned)info->cfg->data.databases; number++) {
        unsigned database = registry_database(registry, number);
        size_t n = all_names_count(registry, info->server->sstables, database); /* as DBSIZE */
        struct registry_expiry expiry;
        if (n == 0)
            continue;
        registry_database_expiry(registry, database, &expiry);
        info_line(info, "db%u:keys=%zu,expires=%zu,avg_ttl=%" PRId64 ",subexpiry=0", number, n, expiry.count,
                  expiry.avg_ttl_ms);
    }
}
