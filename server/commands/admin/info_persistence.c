/* INFO: loading, saves, and the log. */
#include <inttypes.h>
#include <string.h>

#include "clock.h"
#include "info.h"
#include "journal.h"
#include "persistence.h"
#include "saver.h"

#define LEN(array) (sizeof(array) / sizeof((array)[0]))

/* Fields that Redis shows only while it loads are shown only then, here, too. */
static void loading(struct info *info)
{
    const struct load_progress *load = &info->server->persistence->load;
    bool active = server_loading(info->server);
    info_line(info, "loading:%d", active);
    info_line(info, "async_loading:0");
    if (!active)
        return;
    uint64_t total = atomic_load_explicit(&load->total_bytes, memory_order_relaxed);
    uint64_t done = atomic_load_explicit(&load->done_bytes, memory_order_relaxed);
    double seconds = (double)(clock_ms() - load->started_ms) / 1000;
    if (total < done)
        total = done;
    info_line(info, "loading_start_time:%" PRId64, load->started_unix_ms / 1000);
    info_line(info, "loading_total_bytes:%" PRIu64, total);
    info_line(info, "loading_rdb_used_mem:0");
    info_line(info, "loading_loaded_bytes:%" PRIu64, done);
    info_line(info, "loading_loaded_perc:%.2f", total ? 100.0 * (double)done / (double)total : 0.0);
    info_line(info, "loading_eta_seconds:%.0f", done ? seconds * (double)(total - done) / (double)done : 1.0);
}

static void saves(struct info *info, const struct saver_info *saver)
{
    info_line(info, "rdb_changes_since_last_save:%" PRIu64, saver->changes);
    info_line(info, "rdb_bgsave_in_progress:%d", saver->running);
    info_line(info, "rdb_last_save_time:%" PRId64, saver->last_save_unix);
    info_line(info, "rdb_last_bgsave_status:%s", saver->last_ok ? "ok" : "err");
    info_line(info, "rdb_last_bgsave_time_sec:%" PRId64,
              saver->last_duration_ms < 0 ? -1 : saver->last_duration_ms / 1000);
    info_line(info, "rdb_current_bgsave_time_sec:%" PRId64, saver->running_ms < 0 ? -1 : saver->running_ms / 1000);
    info_line(info, "rdb_saves:%" PRIu64, saver->saves);
    info_line(info, "rdb_last_cow_size:0");
    info_line(info, "rdb_last_load_keys_expired:%zu",
              atomic_load_explicit(&info->server->persistence->load_expired, memory_order_relaxed));
    info_line(info, "rdb_last_load_keys_loaded:%zu", atomic_load(&info->server->persistence->loaded_filters));
    if (saver->last_error[0] != '\0')
        info_line(info, "last_save_error:%s", saver->last_error);
}

/* A save takes the place of Redis's rewrite of the log: afterwards the log before it is deleted. */
static void rewrites(struct info *info, const struct saver_info *saver, const struct journal_info *log)
{
    bool runs = saver->running && saver->running_ms >= 0;
    info_line(info, "aof_rewrite_in_progress:%d", info->cfg->log.appendonly && runs);
    info_line(info, "aof_rewrite_scheduled:%d", info->cfg->log.appendonly && (saver->scheduled || log->awaits_save));
    info_line(info, "aof_last_rewrite_time_sec:%" PRId64,
              saver->last_duration_ms < 0 ? -1 : saver->last_duration_ms / 1000);
    info_line(info, "aof_current_rewrite_time_sec:%" PRId64, runs ? saver->running_ms / 1000 : -1);
    info_line(info, "aof_last_bgrewrite_status:%s", saver->last_ok ? "ok" : "err");
    info_line(info, "aof_rewrites:%" PRIu64, saver->rewrites);
    info_line(info, "aof_rewrites_consecutive_failures:%" PRIu64, saver->failures);
}

static void log_state(struct info *info, const struct journal_info *log)
{
    info_line(info, "aof_last_write_status:%s", log->failed ? "err" : "ok");
    info_line(info, "aof_last_cow_size:0");
    info_line(info, "module_fork_in_progress:0");
    info_line(info, "module_fork_last_cow_size:0");
    if (log->failed || log->incomplete)
        info_line(info, "aof_last_write_error:%s", log->failed ? log->reason.text : "out of memory, a save is needed");
    if (!info->cfg->log.appendonly)
        return;
    info_line(info, "aof_current_size:%" PRIu64, log->current_bytes);
    info_line(info, "aof_base_size:%" PRIu64, log->base_bytes);
    info_line(info, "aof_pending_rewrite:0");
    info_line(info, "aof_buffer_length:%" PRIu64, log->queued * sizeof(struct bloom_replay_item));
    info_line(info, "aof_pending_bio_fsync:%d", log->pending_bytes != 0);
    info_line(info, "aof_delayed_fsync:%" PRIu64, log->delayed);
    info_line(info, "aof_pending_bytes:%" PRIu64, log->pending_bytes);
    info_line(info, "aof_written_bytes:%" PRIu64, log->written);
    info_line(info, "aof_frames:%" PRIu64, log->frames);
    info_line(info, "aof_syncs:%" PRIu64, log->syncs);
    info_line(info, "aof_last_sync_usec:%" PRId64, log->last_sync_us);
}

void info_persistence(struct info *info)
{
    static const char *const forks[] = {"current_cow_peak", "current_cow_size", "current_cow_size_age"};
    struct journal *journal = server_journal(info->server);
    struct journal_info log = {.records = false};
    struct saver_info saver;

    saver_info(info->server->persistence->saver, &saver);
    if (journal)
        journal_info(journal, &log);
    loading(info);
    info_zeros(info, forks, LEN(forks));
    info_line(info, "current_fork_perc:0.00");
    saves(info, &saver);
    info_line(info, "aof_enabled:%d", info->cfg->log.appendonly);
    rewrites(info, &saver, &log);
    log_state(info, &log);
}
