#include "saver.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bloom_window.h"
#include "clock.h"
#include "journal.h"
#include "log_text.h"
#include "rcu.h"
#include "registry_databases.h"
#include "registry_walk.h"
#include "server.h"
#include "store.h"
#include "thread.h"
#include "window_clock.h"

#define RETRY_DELAY_MS 5000 /* between attempts by rules when saving fails, as in Redis */

struct saver {
    struct server *server;
    struct store *store;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;     /* something is requested, or stop */
    pthread_cond_t finished; /* a save has ended */
    bool stop;
    bool requested;    /* a save is to begin */
    bool again;        /* and another one after it */
    bool clock_is_due; /* the note of the clock of windows is to be written */
    bool running;
    uint64_t ended; /* saves that have ended, good or not */
    uint64_t good;
    int64_t running_since_ms;
    int64_t last_end_ms; /* monotonic; of the last good save, or of the start */
    int64_t last_try_ms;
    int64_t last_save_unix;
    int64_t last_duration_ms;
    uint64_t saved_changes; /* counters_changes() when the last good save began */
    _Atomic bool last_ok;
    bool for_log; /* the save that runs, or is requested, was asked for because of the log */
    uint64_t rewrites;
    uint64_t failures;

    /* of the running save */
    bool windows;                 /* it has met a window */
    struct journal *journal;      /* NULL: none */
    uint64_t begun;               /* journal_save_begins() */
    uint64_t segment;             /* the log's, which began with it; 0: there is no log */
    uint64_t control;             /* control records up to this number are in it */
    struct databases databases;   /* at that moment */
    int64_t paced_since_ms;       /* monotonic; with the rate that holds now */
    uint64_t paced_rate;          /* bytes per second, 0: not paced */
    uint64_t paced_bytes;         /* since then */
    int64_t started_ms, shown_ms; /* monotonic: the save, and its last status on a terminal */
    uint64_t written_bytes;
    _Atomic bool hurry; /* somebody waits for the end of the process */
    struct errbuf last_error;
};

#define STATUS_AFTER_MS 500
#define STATUS_MS       100

/* ---- one save ---- */

static int source_next(void *ctx, struct store_item *item_out)
{
    struct server *server = ((struct saver *)ctx)->server;
    struct registry_item *item = malloc(sizeof(*item));
    if (!item)
        return -ENOMEM;
    int status = registry_walk_next(server->registry, item);
    if (status != 1) {
        free(item);
        return status;
    }
    bool away = item->entry && entry_is_away(item->entry); /* or it stays until it is released: it is pinned */
    *item_out = (struct store_item){
        .id = item->id,
        .name = item->name.ptr,
        .name_len = item->name.len,
        .filter = item->entry ? entry_shape(item->entry) : NULL,
        .dirty = item->dirty && !away, /* it may have another name or time, which need no bits */
        .away = away,
        .expires_ms = item->expires_ms,
        .quarantined = item->entry && !entry_shape(item->entry),
        .user = item,
    };
    ((struct saver *)ctx)->windows |= item_out->filter && bloom_filter_forgets(item_out->filter);
    return 1;
}

static void source_release(void *ctx, struct store_item *item)
{
    struct server *server = ((struct saver *)ctx)->server;
    registry_walk_release(server->registry, item->user);
    free(item->user);
}

static uint64_t source_next_id(void *ctx)
{
    struct server *server = ((struct saver *)ctx)->server;
    return registry_next_id(server->registry);
}

/* This thread is no reader of settings otherwise. */
static uint64_t rate_limit(struct server *server)
{
    server_config_lock(server);
    uint64_t rate = server_config(server)->save_rate_limit;
    server_config_unlock(server);
    return rate;
}

/* Settings that hold for one save. */
static void take_settings(struct server *server, struct store_source *source)
{
    server_config_lock(server);
    source->memory = server_config(server)->save_memory;
    source->pack_limit = server_config(server)->save_pack_limit;
    server_config_unlock(server);
}

/* On a terminal a save that takes longer says how far it is. */
static void show_written(struct saver *saver, uint64_t bytes)
{
    int64_t now = clock_ms();
    saver->written_bytes += bytes;
    if (now - saver->started_ms < STATUS_AFTER_MS || now - saver->shown_ms < STATUS_MS)
        return;
    saver->shown_ms = now;
    (void)log_status(&saver->server->log, "saving: %s written, after %" PRId64 " s",
                     log_bytes(saver->written_bytes).text, (now - saver->started_ms) / 1000);
}

/* After each piece: waits until as much may have been written. A new rate holds from the next look on. */
static void source_wrote(void *ctx, uint64_t bytes)
{
    struct saver *saver = ctx;
    const struct timespec slice = {.tv_nsec = 20 * 1000 * 1000};
    show_written(saver, bytes);
    saver->paced_bytes += bytes;
    while (!atomic_load(&saver->hurry)) {
        uint64_t rate = rate_limit(saver->server);
        int64_t now = clock_ms();
        if (rate != saver->paced_rate) {
            saver->paced_rate = rate;
            saver->paced_since_ms = now;
            saver->paced_bytes = bytes;
        }
        if (rate == 0 || (double)saver->paced_bytes * 1000 <= (double)rate * (double)(now - saver->paced_since_ms))
            break;
        nanosleep(&slice, NULL);
    }
}

/* Under the registry's mutex: what the walk yields has all changes up to here, and none later. */
static void on_freeze(void *ctx)
{
    struct saver *saver = ctx;
    saver->control = saver->journal ? journal_saved_controls(saver->journal) : 0;
    for (unsigned i = 0; i < DATABASES_MAX; i++)
        databases_set(&saver->databases, i, registry_database(saver->server->registry, i));
}

/* The files have been written. A count in them may include an item whose record is only on its way to the log: it must
 * not be there if the record is not. */
static int source_checkpoint(void *ctx, struct store_checkpoint *checkpoint_out, struct errbuf *err)
{
    struct saver *saver = ctx;
    int status = 0;
    *checkpoint_out = (struct store_checkpoint){.log = 0, .control = saver->control, .databases = saver->databases};
    if (saver->segment ||
        (saver->journal && journal_records(saver->journal))) { /* it may have been switched on meanwhile */
        rcu_wait_for_readers();                                /* who has taken a place has noted it */
        status = journal_sync(saver->journal, err);
        checkpoint_out->frame = journal_synced_frame(saver->journal);
        checkpoint_out->log = journal_first_needed(saver->journal, saver->segment);
    }
    if (checkpoint_out->log < saver->server->log_accepted)
        checkpoint_out->accepted = saver->server->log_accepted; /* damaged segments that are still needed */
    saver->segment = checkpoint_out->log;
    return status;
}

/* Adds that are in an older segment than the one that begins here have set their bits when the second call returns: the
 * files that are written then hold them. */
static int begin_segment(struct saver *saver, struct errbuf *err)
{
    saver->journal = server_journal(saver->server);
    saver->segment = saver->control = 0;
    saver->begun = saver->journal ? journal_save_begins(saver->journal) : 0;
    int status = saver->journal ? journal_rotate(saver->journal, &saver->segment, err) : 0;
    rcu_wait_for_readers();
    return status;
}

static int save_files(struct saver *saver, struct store_save_summary *summary, struct errbuf *err)
{
    struct server *server = saver->server;
    struct store_source source = {
        .next = source_next,
        .release = source_release,
        .next_id = source_next_id,
        .checkpoint = source_checkpoint,
        .wrote = source_wrote,
        .ctx = saver,
    };
    take_settings(server, &source);
    saver->windows = false;
    saver->paced_rate = 0;
    int status = begin_segment(saver, err);
    if (status)
        return status;
    registry_walk_begin(server->registry);
    registry_walk_on_freeze(server->registry, on_freeze, saver);
    status = store_save(saver->store, &source, summary, err);
    registry_walk_end(server->registry);
    return status;
}

static int save_once(struct saver *saver, struct errbuf *err)
{
    struct server *server = saver->server;
    struct store_save_summary summary;
    int64_t start = clock_ms();
    saver->started_ms = saver->shown_ms = start;
    saver->written_bytes = 0;
    memset(&summary, 0, sizeof(summary));
    if (save_files(saver, &summary, err) != 0) {
        log_warning(&server->log, "saving failed: %s", err->text);
        return -EIO;
    }
    if (saver->journal)
        journal_save_committed(saver->journal, saver->begun);
    if (saver->segment)
        journal_cut(saver->journal, saver->segment);
    /* The end saves twice, the second time nothing as a rule: that needs no line. */
    log_write(&server->log,
              atomic_load(&saver->hurry) && !summary.layers_written ? LOG_LEVEL_VERBOSE : LOG_LEVEL_NOTICE,
              "saved %s (%s, %s written) in %" PRId64 " ms", log_count(summary.filters, "filter").text,
              log_count(summary.layers_written, "layer").text, log_bytes(summary.bytes).text, clock_ms() - start);
    return 0;
}

/* ---- the thread ---- */

static void note_end(struct saver *saver, int status, const struct errbuf *err, uint64_t changes)
{
    int64_t now = clock_ms();
    saver->running = false;
    saver->ended++;
    saver->last_try_ms = now;
    saver->last_duration_ms = now - saver->running_since_ms;
    saver->last_ok = status == 0;
    saver->last_error = *err;
    saver->failures = status ? saver->failures + 1 : 0;
    if (status == 0) {
        saver->good++;
        saver->rewrites += saver->for_log;
        saver->last_end_ms = now;
        saver->last_save_unix = clock_unix_ms() / 1000;
        saver->saved_changes = changes;
        saver->last_error.text[0] = '\0';
    }
    saver->for_log = false;
    if (saver->again) {
        saver->again = false;
        saver->requested = true;
    }
    pthread_cond_broadcast(&saver->finished);
}

/* Under the lock, which is given up meanwhile. */
static void note_clock(struct saver *saver)
{
    struct errbuf err = {""};
    saver->clock_is_due = false;
    pthread_mutex_unlock(&saver->lock);
    if (window_clock_save(fsops_posix(), saver->server->process.data_dir, &err) != 0)
        log_warning(&saver->server->log, "%s", err.text);
    pthread_mutex_lock(&saver->lock);
}

static void *saver_main(void *arg)
{
    struct saver *saver = arg;
    thread_begin_background(THREAD_SAVER, "saver");
    pthread_mutex_lock(&saver->lock);
    while (!saver->stop) {
        if (saver->clock_is_due) {
            note_clock(saver);
            continue;
        }
        if (!saver->requested) {
            pthread_cond_wait(&saver->wake, &saver->lock);
            continue;
        }
        struct errbuf err = {""};
        saver->requested = false;
        saver->running = true;
        saver->running_since_ms = clock_ms();
        pthread_mutex_unlock(&saver->lock);

        uint64_t changes = counters_changes(saver->server->counters);
        int status = save_once(saver, &err);

        pthread_mutex_lock(&saver->lock);
        note_end(saver, status, &err, changes);
        saver->clock_is_due = saver->windows;
    }
    pthread_mutex_unlock(&saver->lock);
    return NULL;
}

int saver_create(struct saver **saver_out, struct server *server, struct store *store)
{
    struct saver *saver = calloc(1, sizeof(*saver));
    if (!saver)
        return -ENOMEM;
    saver->server = server;
    saver->store = store;
    saver->last_ok = true;
    saver->last_duration_ms = -1;
    saver->last_end_ms = clock_ms();
    saver->last_try_ms = saver->last_end_ms - RETRY_DELAY_MS;
    saver->last_save_unix = clock_unix_ms() / 1000;
    pthread_mutex_init(&saver->lock, NULL);
    pthread_cond_init(&saver->wake, NULL);
    pthread_cond_init(&saver->finished, NULL);
    int err = pthread_create(&saver->thread, NULL, saver_main, saver);
    if (err) {
        free(saver);
        return -err;
    }
    *saver_out = saver;
    return 0;
}

void saver_destroy(struct saver *saver)
{
    if (!saver)
        return;
    atomic_store(&saver->hurry, true);
    pthread_mutex_lock(&saver->lock);
    saver->stop = true;
    pthread_cond_signal(&saver->wake);
    pthread_mutex_unlock(&saver->lock);
    pthread_join(saver->thread, NULL);
    pthread_cond_destroy(&saver->finished);
    pthread_cond_destroy(&saver->wake);
    pthread_mutex_destroy(&saver->lock);
    free(saver);
}

/* ---- requests, under the lock ---- */

static bool busy(const struct saver *saver)
{
    return saver->running || saver->requested;
}

static void request(struct saver *saver)
{
    saver->requested = true;
    pthread_cond_signal(&saver->wake);
}

/* False: the time is over (`until_ms`, monotonic; 0: there is no end). */
static bool wait_finished(struct saver *saver, int64_t until_ms)
{
    struct timespec until = {.tv_sec = until_ms / 1000, .tv_nsec = until_ms % 1000 * 1000000};
    if (until_ms == 0)
        return pthread_cond_wait(&saver->finished, &saver->lock) == 0;
    return pthread_cond_clockwait(&saver->finished, &saver->lock, CLOCK_MONOTONIC, &until) == 0;
}

/* 0, -EIO, or SAVER_BUSY when the time is over before the save has ended. */
static int request_and_wait(struct saver *saver, int64_t until_ms, struct errbuf *err)
{
    uint64_t mine = saver->ended + 1;
    request(saver);
    while (saver->ended < mine)
        if (!wait_finished(saver, until_ms))
            return SAVER_BUSY;
    if (saver->last_ok)
        return 0;
    if (err)
        *err = saver->last_error;
    return -EIO;
}

enum saver_request saver_start(struct saver *saver, bool schedule)
{
    enum saver_request result = SAVER_STARTED;
    pthread_mutex_lock(&saver->lock);
    if (!busy(saver)) {
        request(saver);
    } else if (schedule) {
        saver->again = true;
        result = SAVER_SCHEDULED;
    } else {
        result = SAVER_BUSY;
    }
    pthread_mutex_unlock(&saver->lock);
    return result;
}

void saver_note_clock(struct saver *saver)
{
    pthread_mutex_lock(&saver->lock);
    saver->clock_is_due = true;
    pthread_cond_signal(&saver->wake);
    pthread_mutex_unlock(&saver->lock);
}

enum saver_request saver_rewrite(struct saver *saver)
{
    pthread_mutex_lock(&saver->lock);
    bool waits = busy(saver);
    saver->again |= waits;
    if (!waits) {
        saver->for_log = true;
        request(saver);
    }
    pthread_mutex_unlock(&saver->lock);
    return waits ? SAVER_SCHEDULED : SAVER_STARTED;
}

int saver_run(struct saver *saver, struct errbuf *err)
{
    pthread_mutex_lock(&saver->lock);
    int status = busy(saver) ? SAVER_BUSY : request_and_wait(saver, 0, err);
    pthread_mutex_unlock(&saver->lock);
    return status;
}

int saver_run_next(struct saver *saver, struct errbuf *err)
{
    pthread_mutex_lock(&saver->lock);
    while (busy(saver) && !saver->stop)
        (void)wait_finished(saver, 0);
    int status = saver->stop ? -ECANCELED : request_and_wait(saver, 0, err);
    pthread_mutex_unlock(&saver->lock);
    return status;
}

int saver_run_final(struct saver *saver, int64_t most_ms, struct errbuf *err)
{
    int64_t until_ms = most_ms > 0 ? clock_ms() + most_ms : 0;
    int status = 0;
    atomic_store(&saver->hurry, true);
    pthread_mutex_lock(&saver->lock);
    while (status == 0 && busy(saver))
        status = wait_finished(saver, until_ms) ? 0 : SAVER_BUSY;
    if (status == 0)
        status = request_and_wait(saver, until_ms, err);
    pthread_mutex_unlock(&saver->lock);
    if (status != SAVER_BUSY)
        atomic_store(&saver->hurry, false); /* when it failed the process may go on */
    return status;
}

bool saver_has_failed(const struct saver *saver)
{
    return !atomic_load_explicit(&saver->last_ok, memory_order_relaxed);
}

/* Whether the log has grown so far that a save should let it be cut, or needs one for another reason. */
static bool log_wants_save(struct saver *saver)
{
    const struct config *config = server_config(saver->server);
    struct journal *journal = server_journal(saver->server);
    struct journal_info info;
    if (!journal)
        return false;
    journal_info(journal, &info);
    if (info.incomplete || info.awaits_save)
        return true;
    double limit = (double)bloom_pool_bytes(saver->server->pool) * (double)config->auto_aof_rewrite_percentage / 100;
    double grown = (double)(info.current_bytes - info.base_bytes);
    return config->auto_aof_rewrite_percentage && grown >= limit && grown >= (double)config->auto_aof_rewrite_min_size;
}

void saver_tick(struct saver *saver)
{
    const struct config_rules *rules = &server_config(saver->server)->save;
    int64_t now = clock_ms();
    uint64_t changes = counters_changes(saver->server->counters);
    bool for_log = log_wants_save(saver);
    pthread_mutex_lock(&saver->lock);
    bool wait = busy(saver) || (!saver->last_ok && now - saver->last_try_ms < RETRY_DELAY_MS);
    if (for_log && !wait) {
        log_notice(&saver->server->log, "the log has grown enough, or needs a save: saving");
        saver->for_log = true;
        request(saver);
        wait = true;
    }
    for (size_t i = 0; i < rules->count && !wait; i++) {
        const struct config_rule *rule = &rules->items[i];
        if (changes - saver->saved_changes < rule->changes || now - saver->last_end_ms < rule->seconds * 1000)
            continue;
        log_notice(&saver->server->log, "%" PRIu64 " changes in %" PRId64 " seconds: saving", rule->changes,
                   rule->seconds);
        request(saver);
        wait = true;
    }
    pthread_mutex_unlock(&saver->lock);
}

void saver_info(struct saver *saver, struct saver_info *info_out)
{
    uint64_t changes = counters_changes(saver->server->counters);
    pthread_mutex_lock(&saver->lock);
    *info_out = (struct saver_info){
        .running = busy(saver),
        .last_ok = saver->last_ok,
        .last_save_unix = saver->last_save_unix,
        .last_duration_ms = saver->last_duration_ms,
        .running_ms = saver->running ? clock_ms() - saver->running_since_ms : -1,
        .changes = changes - saver->saved_changes,
        .saves = saver->good,
        .rewrites = saver->rewrites,
        .failures = saver->failures,
        .scheduled = saver->again,
        .for_log = saver->for_log,
    };
    strcpy(info_out->last_error, saver->last_error.text);
    pthread_mutex_unlock(&saver->lock);
}
