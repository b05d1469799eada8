#include <errno.h>
#include <inttypes.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "registry.h"
#include "log_reader.h"
#include "log_text.h"
#include "persistence.h"
#include "rcu.h"
#include "registry_key.h"
#include "replay.h"
#include "residency.h"
#include "saver.h"
#include "server.h"
#include "thread.h"
#include "errbuf.h"
#include "window_clock.h"

struct load {
    struct server *server;
    pthread_t thread;
    void (*done)(struct server *server);
    unsigned nthreads;
    bool accept_damage, lazy;
    uint64_t high_water; /* residency_high_water() */
    struct replay *replay;
    struct log_reader *log;
    struct log_reader_summary log_summary;
    struct replay_summary replay_summary;
    struct store_checkpoint checkpoint;
    _Atomic int failed; /* -errno of a callback */
    int status;
    struct errbuf err;
};

static struct slice name_of(const struct store_filter *info)
{
    return (struct slice){info->name, info->name_len};
}

static void progress(void *ctx, uint64_t bytes)
{
    struct load *load = ctx;
    atomic_fetch_add_explicit(&load->server->persistence->load.done_bytes, bytes, memory_order_relaxed);
}

/* ---- filters of the save ---- */

/* Filters that expired while no daemon ran are not loaded; the next save removes their files. */
static bool on_resolve(void *ctx, struct store_filter *info)
{
    struct load *load = ctx;
    bool there = log_history_resolve(replay_history(load->replay), info);
    if (!there || info->expires_ms == 0 || info->expires_ms > clock_unix_ms())
        return there;
    atomic_fetch_add_explicit(&load->server->persistence->load_expired, 1, memory_order_relaxed);
    if (replay_expired(load->replay, info->id) != 0)
        atomic_store(&load->failed, -ENOMEM);
    return false;
}

/* With lazy-load all bits stay on the disk until a command needs them; with a policy, those for which there is no
 * memory. A filter with adds in the log is read when these are brought back. */
static bool on_leaves(void *ctx, const struct store_filter *info, uint64_t bytes)
{
    struct load *load = ctx;
    (void)info;
    return load->lazy || (load->high_water && memory_limited(load->server) + bytes > load->high_water);
}

/* Gives a filter that has just come under its name the time that was saved. */
static void let_expire(struct server *server, const struct store_filter *info)
{
    if (info->expires_ms != 0 && registry_expire(server->registry, name_of(info), info->expires_ms, 0) == -ENOMEM)
        log_warning(&server->log, "filter %" PRIu64 " will not expire: out of memory", info->id);
}

static struct bloom_filter *on_alloc(void *ctx, const struct store_filter *info, struct bloom_class *class,
                                     void **user_out, struct errbuf *err)
{
    struct load *load = ctx;
    struct entry *entry;
    int status = (info->leave ? registry_create_evicted : registry_create_filter)(load->server->registry, name_of(info),
                                                                                  info->id, class, &entry, err);
    if (status == REGISTRY_EXISTS)
        errbuf_set(err, "another filter has the same name");
    else if (status < 0)
        errbuf_set(err, "%s", strerror(-status));
    if (status != REGISTRY_OK)
        return NULL;
    *user_out = entry;
    return entry_shape(entry);
}

static void note_loaded(struct load *load, const struct store_filter *info, struct entry *entry)
{
    int status = 0;
    if (load->log_summary.adds || load->log_summary.controls)
        status = replay_loaded(load->replay, info->id, entry, log_reader_counted_before(load->log, info->newest));
    if (status)
        atomic_store(&load->failed, status);
}

static void on_loaded(void *ctx, const struct store_filter *info, struct bloom_filter *filter, void *user)
{
    struct load *load = ctx;
    struct entry *entry = user;
    for (unsigned i = 0, n = bloom_filter_nlayers(filter); i < n; i++) {
        struct bloom_layer_view view;
        bloom_filter_layer(filter, i, &view);
        progress(load, view.shape.nwords * 8);
    }
    if (entry_is_evicted(entry) && !bloom_filter_is_dropped(filter))
        entry_come_back(entry); /* there was nothing to leave on the disk */
    window_clock_pass(filter);
    entry_mark_clean(entry);
    let_expire(load->server, info);
    note_loaded(load, info, entry);
}

static void on_discard(void *ctx, struct bloom_filter *filter, void *user)
{
    struct load *load = ctx;
    (void)filter;
    registry_delete(load->server->registry, entry_name(user));
}

static void on_quarantined(void *ctx, const struct store_filter *info, const char *reason)
{
    struct load *load = ctx;
    struct server *server = load->server;
    if (registry_create_quarantined(server->registry, name_of(info), info->id, reason) == REGISTRY_OK) {
        let_expire(server, info);
        note_loaded(load, info, NULL);
        return;
    }
    log_warning(&server->log, "filter %" PRIu64 " cannot be put into quarantine", info->id);
    atomic_store(&load->failed, -ENOMEM); /* without its entry the next save would remove its files */
}

void load_report(void *ctx, enum store_severity severity, const char *text)
{
    struct server *server = ctx;
    log_write(&server->log, severity == STORE_WARNING ? LOG_LEVEL_WARNING : LOG_LEVEL_NOTICE, "%s", text);
}

static int load_files(struct load *load)
{
    struct server *server = load->server;
    struct store_loader loader = {
        .resolve = on_resolve,
        .leaves = load->lazy || load->high_water ? on_leaves : NULL,
        .alloc = on_alloc,
        .loaded = on_loaded,
        .discard = on_discard,
        .quarantined = on_quarantined,
        .ctx = load,
    };
    struct store_load_summary summary;
    int64_t start = clock_ms();
    TRY(store_load(server->persistence->store, server->pool, load->nthreads, &loader, &summary, &load->err));
    if (atomic_load(&load->failed)) {
        errbuf_set(&load->err, "%s", strerror(-atomic_load(&load->failed)));
        return atomic_load(&load->failed);
    }
    registry_set_next_id(server->registry, store_next_id(server->persistence->store));
    log_notice(&server->log,
               "loaded %s of the last save (%s, %s) in %" PRId64 " ms; %" PRIu64 " quarantined, %zu had expired",
               log_count(summary.filters, "filter").text, log_count(summary.layers, "layer").text,
               log_bytes(summary.bytes).text, clock_ms() - start, summary.quarantined,
               atomic_load_explicit(&server->persistence->load_expired, memory_order_relaxed));
    if (summary.left)
        log_notice(&server->log, "the bits of %s will be read at their first use",
                   log_count(summary.left, "filter").text);
    if (summary.leftovers)
        log_notice(&server->log, "removed %s of an unfinished save", log_count(summary.leftovers, "file").text);
    return 0;
}

/* ---- the log ---- */

static int read_log(struct load *load)
{
    struct server *server = load->server;
    struct log_reader_options options = {
        .dir = server->process.data_dir,
        .from = load->checkpoint.log,
        .reached = load->checkpoint.frame,
        .accepted = load->checkpoint.accepted,
        .on_damage = load->accept_damage ? LOG_ACCEPT : LOG_REFUSE,
        .report = load_report,
        .report_ctx = server,
        .progress = progress,
        .progress_ctx = load,
        .on_control = log_history_control,
        .on_process = log_history_process,
        .ctx = replay_history(load->replay),
    };
    int status = log_reader_open(&options, &load->log, &load->log_summary, &load->err);
    if (status == LOG_DAMAGED)
        errbuf_prefix(&load->err,
                      "'bloomery check' shows how much of the log is readable, and --aof-load-damaged yes starts the "
                      "daemon without the rest; if the directory is a copy of a directory in use, copy it again");
    return status;
}

static int replay_log(struct load *load)
{
    struct server *server = load->server;
    const struct log_reader_summary *read = &load->log_summary;
    struct replay_summary *sum = &load->replay_summary;
    int64_t start = clock_ms();
    if (read->frames)
        log_notice(&server->log, "replaying the log: %s, %s", log_count(read->segments, "segment").text,
                   log_bytes(read->bytes).text);
    int status = replay_filters(load->replay, &load->err);
    STEP(status, replay_adds(load->replay, load->log, load->nthreads, sum, &load->err));
    if (sum->highest_id >= registry_next_id(server->registry))
        registry_set_next_id(server->registry, sum->highest_id + 1);
    if (status == 0 && read->frames)
        log_notice(&server->log,
                   "replayed the log (%s): %s created, %s brought back in %" PRId64
                   " ms, of which the save had not counted %" PRIu64 "; %" PRIu64 " to filters that are gone, %" PRIu64
                   " to filters in quarantine",
                   log_count(read->frames, "frame").text, log_count(sum->created, "filter").text,
                   log_count(sum->adds, "add").text, clock_ms() - start, sum->counted, sum->ignored, sum->quarantined);
    if (status == 0 && sum->unjoined)
        log_notice(&server->log,
                   "log: %" PRIu64
                   " changes of filters are left out: they hold only with a save, and that save was not made (the log "
                   "had been switched on at run time, or a change before them could not be recorded)",
                   sum->unjoined);
    return status;
}

/* 0: there has been no log, and a save without one records that. A log without remaining segments is another case: the
 * save that accepts the loss must begin a segment, or the next start misses the same ones again. */
static uint64_t oldest_segment(const struct load *load)
{
    const struct log_reader_summary *read = &load->log_summary;
    if (load->checkpoint.log)
        return load->checkpoint.log;
    return read->first_segment ? read->first_segment : read->next_segment - 1;
}

static int start_log(struct load *load)
{
    const struct log_reader_summary *read = &load->log_summary;
    struct journal_start start = {
        .dir = load->server->process.data_dir,
        .next_segment = read->next_segment,
        .last_segment = read->last_segment,
        .next_sequence = read->next_sequence,
        .next_control =
            read->next_control > load->checkpoint.control ? read->next_control : load->checkpoint.control + 1,
        .oldest_segment = oldest_segment(load),
        .log_bytes = read->bytes,
        .log = read->unsettled ? load->log : NULL,
        .generation = store_number(load->server->persistence->store),
    };
    int status = persistence_start(load->server, &start, &load->err);
    if (start.log)
        load->log = NULL;
    if (status) {
        errbuf_prefix(&load->err, "cannot start the log");
        return status;
    }
    /* A save that has all readable data, and keeps the log all the same, records that the rest is not needed again. */
    bool loss = read->damages || load->replay_summary.left_out;
    load->server->persistence->log_accepted = loss ? read->next_segment : load->checkpoint.accepted;
    replay_note_expired(load->replay, server_journal(load->server));
    /* An operator who repairs a damaged file gets back the adds that came after its save. */
    if (load->replay_summary.quarantined) {
        journal_keep_begin(server_journal(load->server), &load->server->persistence->log_kept);
        log_warning(&load->server->log,
                    "the log has adds to quarantined filters: it is kept until a start without such filters");
    }
    return 0;
}

/* ---- the whole ---- */

/* Filters that no client could reach are an error. */
static int check_databases(struct load *load)
{
    const struct config *config = server_config(load->server);
    unsigned highest = registry_highest_number(load->server->registry);
    if (config->cluster.emulation && highest > 0)
        return errbuf_fail(
            &load->err, -EINVAL,
            "the data directory has filters in database %u, but cluster-emulation allows database 0 only: "
            "start without it, and move or delete them",
            highest);
    if (highest < (unsigned)config->data.databases)
        return 0;
    return errbuf_fail(&load->err, -EINVAL,
                       "the data directory has filters in database %u, and `databases` is %" PRId64
                       ": set it to at least %u",
                       highest, (int64_t)config->data.databases, highest + 1);
}

/* Two numbers for one database would leave another one without any. */
static int take_databases(struct load *load)
{
    struct databases databases = load->checkpoint.databases;
    log_history_databases(replay_history(load->replay), &databases);
    if (!databases_are_valid(&databases))
        return errbuf_fail(&load->err, -EINVAL, "the log is damaged: two database numbers stand for the same database");
    for (unsigned i = 0; i < DATABASES_MAX; i++)
        registry_set_database(load->server->registry, i, databases_get(&databases, i));
    return 0;
}

static int load_all(struct load *load)
{
    struct server *server = load->server;
    load->checkpoint = store_checkpoint(server->persistence->store);
    TRY(window_clock_start(fsops_posix(), server->process.data_dir, &load->err));
    if (load->err.text[0])
        log_warning(&server->log, "the clock of windows goes on by the time of day: %s", load->err.text);
    load->err.text[0] = '\0';
    int status = replay_create(&load->replay, server, server->persistence->store, load->accept_damage);
    if (status)
        return errbuf_fail(&load->err, status, "%s", strerror(-status));
    registry_leave_order(server->registry);
    status = read_log(load);
    STEP(status, load_files(load));
    STEP(status, replay_log(load));
    STEP(status, registry_put_in_order(server->registry));
    STEP(status, take_databases(load));
    STEP(status, check_databases(load));
    if (status == 0 && window_clock_is_lost())
        log_warning(&server->log,
                    "there are windows, and the file " WINDOW_CLOCK_NAME
                    " is missing or invalid: if the time of day was set, their items expire early or late");
    return status == 0 ? start_log(load) : status;
}

static int open_for_clients(struct load *load)
{
    struct server *server = load->server;
    if (window_clock_save(fsops_posix(), server->process.data_dir, &load->err) != 0)
        log_warning(&server->log, "%s", load->err.text);
    load->err.text[0] = '\0';
    effects_attach(server);
    registry_release_clock(server->registry);
    int status = expirer_create(&server->persistence->expirer, server->registry, effects_pace, server);
    if (status)
        return errbuf_fail(&load->err, status, "cannot start threads: %s", strerror(-status));
    server->persistence->loaded_filters = registry_count(server->registry);
    rcu_reader_begin();
    /* Only from here on: the limits do not refuse filters that are older than them. */
    const struct config *config = server_config(server);
    bloom_pool_set_limits(server->pool, config->filters.max_filter_bytes, config->memory.maxmemory);
    bloom_pool_set_evicts(server->pool, config->memory.maxmemory_policy != MEMORY_NOEVICTION);
    rcu_reader_end();
    /* A loss is accepted once a save counts: until then no client shall believe it, or the next start would ask again.
     * The reason of a save that fails is in the log already, and the saver tries again. */
    if (load->log_summary.damages || load->replay_summary.left_out)
        (void)!saver_run_next(server->persistence->saver, NULL);
    else if (server_journal(server) && atomic_load(&server->persistence->load_expired))
        saver_start(server->persistence->saver, true); /* the next start need not check them again */
    atomic_store_explicit(&server->persistence->load.active, false, memory_order_release);
    return 0;
}

static void *load_main(void *arg)
{
    struct load *load = arg;
    thread_begin("loader");
    registry_hold_clock(load->server->registry); /* expiries from now on wait until they can be reported */
    load->status = load_all(load);
    log_reader_close(load->log);
    replay_destroy(load->replay);
    malloc_trim(0); /* the log of a million filters takes some hundred MB until here */
    if (load->status == 0)
        load->status = open_for_clients(load);
    if (load->status < 0 && !load->err.text[0]) /* otherwise the text has it */
        errbuf_set(&load->err, "%s", strerror(-load->status));
    load->done(load->server);
    return NULL;
}

int load_start(struct server *server, void (*done)(struct server *server))
{
    const struct config *config = server_config(server);
    struct load *load = calloc(1, sizeof(*load));
    uint64_t log_bytes = 0;
    if (!load)
        return -ENOMEM;
    load->server = server;
    load->done = done;
    load->accept_damage = config->log.aof_load_damaged;
    load->lazy = config->data.lazy_load;
    load->high_water = residency_high_water(config);
    load->nthreads = config->data.load_threads ? (unsigned)config->data.load_threads : thread_processors();
    if (log_bytes_on_disk(fsops_posix(), server->process.data_dir, store_checkpoint(server->persistence->store).log,
                          &log_bytes) != 0)
        log_bytes = 0; /* the estimate leaves it out; the reader will report the fault */
    atomic_store(&server->persistence->load.total_bytes,
                 store_opened_bytes(server->persistence->store) + 2 * log_bytes); /* it is read twice */
    server->persistence->load.started_ms = clock_ms();
    server->persistence->load.started_unix_ms = clock_unix_ms();
    atomic_store(&server->persistence->load.active, true);
    int status = pthread_create(&load->thread, NULL, load_main, load);
    if (status) {
        free(load);
        return -status;
    }
    server->persistence->load.load = load;
    return 0;
}

void load_leave(struct server *server)
{
    struct load *load = server->persistence->load.load;
    pthread_detach(load->thread);
}

int load_join(struct server *server, struct errbuf *err)
{
    struct load *load = server->persistence->load.load;
    pthread_join(load->thread, NULL);
    int status = load->status;
    *err = load->err;
    server->persistence->load.load = NULL;
    free(load);
    return status ? -1 : 0;
}
