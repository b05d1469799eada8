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
#include "registry_key.h"
#include "registry_walk.h"
#include "persistence.h"
#include "server.h"
#include "store.h"
#include "thread.h"
#include "window_clock.h"
#include "lock.h"

#define RETRY_DELAY_MS 5000 /* between attempts by rules when saving fails, as in Redis */

/* The saves so far. */
struct saver_past {
    uint64_t ended; /* good or not */
    uint64_t good;
    uint64_t rewrites;         /* of the good ones, begun because of the log */
    _Atomic uint64_t failures; /* bad ones in a row */
    int64_t good_ms;           /* monotonic: the end of the last good one, or the start */
    int64_t good_unix;         /* the same in seconds since 1970 */
    int64_t tried_ms;          /* monotonic: the end of the last one */
    int64_t duration_ms;       /* of the last one; -1: there is none */
    uint64_t changes;          /* counters_changes() when the last good one began */
    struct errbuf error;       /* of the last one */
};

/* The running save. */
struct running_save {
    int64_t since_ms;
    struct journal *journal;    /* NULL: none */
    uint64_t begun;             /* journal_save_begins() */
    uint64_t segment;           /* the log's, which began with it; 0: there is no log */
    uint64_t control;           /* control records up to this number are in it */
    struct databases databases; /* at that moment */
    bool windows;               /* it has met a window */
};

/* How fast the running save writes. */
struct save_pace {
    int64_t since_ms; /* monotonic; with the rate that holds now */
    uint64_t rate;    /* bytes per second, 0: any */
    uint64_t bytes;   /* since then */
};

struct saver {
    struct server *server;
    struct store *store;
    pthread_t thread;
    struct lock lock;
    pthread_cond_t wake;     /* of the thread */
    pthread_cond_t finished; /* a save has ended */
    bool asked;              /* a save begins next; one serves all who ask before it begins */
    bool runs;               /* a save runs, without the lock */
    bool ends;               /* the running save is the last one */
    bool for_log;            /* the save that runs, or is requested, was asked for because of the log */
    bool clock_is_due;       /* the note of the clock of windows must be written */
    _Atomic bool hurry;      /* the process ends when the save has ended */
    uint64_t memory;         /* save-memory, of the running save */
    struct saver_past past;
    struct running_save now;
    struct save_pace pace;
};

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
    bool evicted = item->entry && entry_is_evicted(item->entry); /* or it stays until it is released: it is pinned */
    *item_out = (struct store_item){
        .id = item->id,
        .name = item->name.ptr,
        .name_len = item->name.len,
        .filter = item->entry ? entry_shape(item->entry) : NULL,
        .dirty = item->dirty && !evicted, /* it may have another name or time, which need no bits */
        .evicted = evicted,
        .expires_ms = item->expires_ms,
        .quarantined = item->entry && !entry_shape(item->entry),
        .user = item,
    };
    ((struct saver *)ctx)->now.windows |= item_out->filter && bloom_filter_forgets(item_out->filter);
    return 1;
}

static void source_release(void *ctx, struct store_item *item)
{
    (void)ctx;
    registry_walk_release(item->user);
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
    lock_take(&server->settings.lock);
    uint64_t rate = server_config(server)->data.save_rate_limit;
    lock_give(&server->settings.lock);
    return rate;
}

/* After each piece: waits until as much may have been written. None holds while clients change so much of a cuckoo
 * filter, ahead of its being written, that the old slots take more memory than the save may. */
static void source_wrote(void *ctx, uint64_t bytes)
{
    struct saver *saver = ctx;
    struct save_pace *pace = &saver->pace;
    const struct timespec slice = {.tv_nsec = 20 * 1000 * 1000};
    pace->bytes += bytes;
    while (!atomic_load(&saver->hurry) && bloom_pool_still_bytes(saver->server->pool) <= saver->memory) {
        uint64_t rate = rate_limit(saver->server);
        int64_t now = clock_ms();
        if (rate != pace->rate) {
            pace->rate = rate;
            pace->since_ms = now;
            pace->bytes = bytes;
        }
        if (rate == 0 || (double)pace->bytes * 1000 <= (double)rate * (double)(now - pace->since_ms))
            break;
        nanosleep(&slice, NULL);
    }
}

/* Under the registry's mutex: the walk yields all changes up to here, and none later. */
static void on_freeze(void *ctx)
{
    struct saver *saver = ctx;
    saver->now.control = saver->now.journal ? journal_saved_controls(saver->now.journal) : 0;
    for (unsigned i = 0; i < DATABASES_MAX; i++)
        databases_set(&saver->now.databases, i, registry_database(saver->server->registry, i));
}

/* The files have been written. A count in them may include an item whose record is only on its way to the log: it must
 * not be there if the record is not. */
static int source_checkpoint(void *ctx, struct store_checkpoint *checkpoint_out, struct errbuf *err)
{
    struct saver *saver = ctx;
    int status = 0;
    *checkpoint_out =
        (struct store_checkpoint){.log = 0, .control = saver->now.control, .databases = saver->now.databases};
    if (saver->now.segment ||
        (saver->now.journal && journal_records(saver->now.journal))) { /* it may have been switched on meanwhile */
        rcu_wait_for_readers();                                        /* all taken places have been noted */
        status = journal_sync(saver->now.journal, err);
        checkpoint_out->frame = journal_synced_frame(saver->now.journal);
        checkpoint_out->log = journal_first_needed(saver->now.journal, saver->now.segment);
    }
    if (checkpoint_out->log < saver->server->persistence->log_accepted)
        checkpoint_out->accepted =
            saver->server->persistence->log_accepted; /* damaged segments that are still needed */
    saver->now.segment = checkpoint_out->log;
    if (status == 0 && checkpoint_out->log)
        status = journal_look(saver->now.journal, checkpoint_out->log, err);
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
    lock_take(&server->settings.lock); /* the settings hold for one save */
    source.memory = saver->memory = server_config(server)->data.save_memory;
    source.pack_limit = server_config(server)->data.save_pack_limit;
    lock_give(&server->settings.lock);
    saver->now.windows = false;
    saver->pace.rate = 0;
    saver->now.journal = server_journal(saver->server);
    saver->now.segment = saver->now.control = 0;
    saver->now.begun = saver->now.journal ? journal_save_begins(saver->now.journal) : 0;
    int status = saver->now.journal ? journal_rotate(saver->now.journal, &saver->now.segment, err) : 0;
    rcu_wait_for_readers(); /* adds of older segments have set their bits: the files that are written then hold them */
    if (status)
        return status;
    registry_walk_begin(server->registry, on_freeze, saver);
    status = store_save(saver->store, &source, summary, err);
    registry_walk_end(server->registry);
    return status;
}

static int save_once(struct saver *saver, struct errbuf *err)
{
    struct server *server = saver->server;
    struct store_save_summary summary;
    saver->pace = (struct save_pace){0};
    memset(&summary, 0, sizeof(summary));
    if (save_files(saver, &summary, err) != 0) {
        log_warning(&server->log, "saving failed: %s", err->text);
        return -EIO;
    }
    if (saver->now.journal) {
        journal_cut(saver->now.journal, saver->now.segment);
        journal_save_committed(saver->now.journal, saver->now.begun);
    }
    /* The end saves twice, and the second save is usually empty: it needs no line. */
    log_write(&server->log,
              atomic_load(&saver->hurry) && !summary.layers_written ? LOG_LEVEL_VERBOSE : LOG_LEVEL_NOTICE,
              "saved %s (%s, %s written) in %" PRId64 " ms", log_count(summary.filters, "filter").text,
              log_count(summary.layers_written, "layer").text, log_bytes(summary.bytes).text,
              clock_ms() - saver->now.since_ms);
    return 0;
}

/* ---- the thread ---- */

static bool idle(const struct saver *saver)
{
    return !saver->asked && !saver->runs && !saver->ends;
}

/* Under the lock. */
static void ask(struct saver *saver)
{
    saver->asked = true;
    pthread_cond_signal(&saver->wake);
}

static void note_end(struct saver *saver, int status, const struct errbuf *err, uint64_t changes)
{
    struct saver_past *past = &saver->past;
    int64_t now = clock_ms();
    past->ended++;
    past->tried_ms = now;
    past->duration_ms = now - saver->now.since_ms;
    past->failures = status ? past->failures + 1 : 0;
    past->error = status ? *err : (struct errbuf){""};
    if (status == 0) {
        past->good++;
        past->rewrites += saver->for_log;
        past->good_ms = now;
        past->good_unix = clock_unix_ms() / 1000;
        past->changes = changes;
    }
    saver->for_log = false;
    saver->clock_is_due |= saver->now.windows;
    saver->runs = false;
    pthread_cond_broadcast(&saver->finished);
}

/* Under the lock. False: the time is over (`until_ms`, monotonic; 0: there is no end). */
static bool wait_until(struct saver *saver, pthread_cond_t *cond, int64_t until_ms)
{
    struct timespec until = {.tv_sec = until_ms / 1000, .tv_nsec = until_ms % 1000 * 1000000};
    if (until_ms != 0)
        return lock_wait_until(cond, &saver->lock, CLOCK_MONOTONIC, &until);
    lock_wait(cond, &saver->lock);
    return true;
}

/* Under the lock, which is given up meanwhile. */
static void note_clock(struct saver *saver)
{
    struct errbuf err = {""};
    saver->clock_is_due = false;
    lock_give(&saver->lock);
    if (window_clock_save(fsops_posix(), saver->server->process.data_dir, &err) != 0)
        log_warning(&saver->server->log, "%s", err.text);
    lock_take(&saver->lock);
}

/* Under the lock, which is given up meanwhile. */
static void save(struct saver *saver)
{
    struct errbuf err = {""};
    saver->now.since_ms = clock_ms();
    saver->asked = false;
    saver->runs = true;
    lock_give(&saver->lock);
    uint64_t changes = counters_changes(saver->server->stats.counters);
    int status = save_once(saver, &err);
    lock_take(&saver->lock);
    note_end(saver, status, &err, changes);
}

static void *saver_main(void *arg)
{
    struct saver *saver = arg;
    thread_begin_background("saver");
    lock_take(&saver->lock);
    while (!saver->ends) {
        if (saver->clock_is_due)
            note_clock(saver);
        else if (saver->asked)
            save(saver);
        else
            lock_wait(&saver->wake, &saver->lock);
    }
    lock_give(&saver->lock);
    return NULL;
}

int saver_create(struct saver **saver_out, struct server *server, struct store *store)
{
    struct saver *saver = calloc(1, sizeof(*saver));
    if (!saver)
        return -ENOMEM;
    saver->server = server;
    saver->store = store;
    saver->past.duration_ms = -1;
    saver->past.good_ms = clock_ms();
    saver->past.good_unix = clock_unix_ms() / 1000;
    lock_init(&saver->lock, RANK_SAVER);
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
    lock_take(&saver->lock);
    saver->ends = true;
    pthread_cond_signal(&saver->wake);
    pthread_cond_broadcast(&saver->finished);
    lock_give(&saver->lock);
    pthread_join(saver->thread, NULL);
    pthread_cond_destroy(&saver->finished);
    pthread_cond_destroy(&saver->wake);
    lock_deinit(&saver->lock);
    free(saver);
}

/* ---- requests, under the lock ---- */

/* When it is idle. 0, -EIO, or SAVER_BUSY when the time is over before the save has ended. */
static int ask_and_wait(struct saver *saver, int64_t until_ms, struct errbuf *err)
{
    uint64_t mine = saver->past.ended + 1;
    ask(saver);
    while (saver->past.ended < mine)
        if (!wait_until(saver, &saver->finished, until_ms))
            return SAVER_BUSY;
    if (!saver->past.failures)
        return 0;
    if (err)
        *err = saver->past.error;
    return -EIO;
}

enum saver_request saver_start(struct saver *saver, bool schedule)
{
    lock_take(&saver->lock);
    enum saver_request result = idle(saver) ? SAVER_STARTED : schedule ? SAVER_SCHEDULED : SAVER_BUSY;
    if (result != SAVER_BUSY)
        ask(saver);
    lock_give(&saver->lock);
    return result;
}

enum saver_request saver_rewrite(struct saver *saver)
{
    lock_take(&saver->lock);
    enum saver_request result = idle(saver) ? SAVER_STARTED : SAVER_SCHEDULED;
    saver->for_log |= idle(saver);
    ask(saver);
    lock_give(&saver->lock);
    return result;
}

int saver_run(struct saver *saver, struct errbuf *err)
{
    lock_take(&saver->lock);
    int status = idle(saver) ? ask_and_wait(saver, 0, err) : SAVER_BUSY;
    lock_give(&saver->lock);
    return status;
}

int saver_run_next(struct saver *saver, struct errbuf *err)
{
    lock_take(&saver->lock);
    while (!idle(saver) && !saver->ends)
        (void)wait_until(saver, &saver->finished, 0);
    int status = idle(saver) ? ask_and_wait(saver, 0, err) : -ECANCELED;
    lock_give(&saver->lock);
    return status;
}

int saver_run_final(struct saver *saver, int64_t most_ms, struct errbuf *err)
{
    int64_t until_ms = most_ms > 0 ? clock_ms() + most_ms : 0;
    int status = 0;
    atomic_store(&saver->hurry, true);
    lock_take(&saver->lock);
    while (status == 0 && !idle(saver))
        status = wait_until(saver, &saver->finished, until_ms) ? 0 : SAVER_BUSY;
    STEP(status, ask_and_wait(saver, until_ms, err));
    lock_give(&saver->lock);
    if (status != SAVER_BUSY)
        atomic_store(&saver->hurry, false); /* when it failed the process may continue */
    return status;
}

bool saver_has_failed(const struct saver *saver)
{
    return atomic_load_explicit(&saver->past.failures, memory_order_relaxed) > 0;
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
    double limit =
        (double)bloom_pool_bytes(saver->server->pool) * (double)config->log.auto_aof_rewrite_percentage / 100;
    double grown = (double)(info.current_bytes - info.base_bytes);
    return config->log.auto_aof_rewrite_percentage && grown >= limit &&
           grown >= (double)config->log.auto_aof_rewrite_min_size;
}

void saver_tick(struct saver *saver)
{
    const struct config_rules *rules = &server_config(saver->server)->data.save;
    int64_t now = clock_ms();
    bool for_log = log_wants_save(saver);
    lock_take(&saver->lock);
    uint64_t changes = counters_changes(saver->server->stats.counters); /* under the lock: at least those of the past */
    bool ready = idle(saver) && (!saver->past.failures || now - saver->past.tried_ms >= RETRY_DELAY_MS);
    if (for_log && ready) {
        log_notice(&saver->server->log, "the log has grown enough, or needs a save: saving");
        saver->for_log = true;
        ask(saver);
    }
    for (size_t i = 0; i < rules->count && ready && idle(saver); i++) {
        const struct config_rule *rule = &rules->items[i];
        if (changes - saver->past.changes < rule->changes || now - saver->past.good_ms < rule->seconds * 1000)
            continue;
        log_notice(&saver->server->log, "%s in %s: saving", log_count(rule->changes, "change").text,
                   log_count((uint64_t)rule->seconds, "second").text);
        ask(saver);
    }
    lock_give(&saver->lock);
}

void saver_info(struct saver *saver, struct saver_info *info_out)
{
    const struct saver_past *past = &saver->past;
    lock_take(&saver->lock);
    uint64_t changes = counters_changes(saver->server->stats.counters); /* likewise */
    *info_out = (struct saver_info){
        .running = !idle(saver),
        .last_ok = !past->failures,
        .last_save_unix = past->good_unix,
        .last_duration_ms = past->duration_ms,
        .running_ms = saver->runs ? clock_ms() - saver->now.since_ms : -1,
        .changes = changes - past->changes,
        .saves = past->good,
        .rewrites = past->rewrites,
        .failures = past->failures,
        .scheduled = saver->runs && saver->asked,
        .for_log = saver->for_log,
    };
    strcpy(info_out->last_error, past->error.text);
    lock_give(&saver->lock);
}
