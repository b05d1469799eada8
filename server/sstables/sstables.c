/* Start and stop, look-ups, and the thread that looks at the directories. */
#include "log_text.h"
#include "sstables.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "clock.h"
#include "murmur.h"
#include "sstables_internal.h"
#include "thread.h"
#include "lock.h"

#define POLL_MS 1000

uint64_t sstables_hash(const char *text, size_t len)
{
    return murmur3_hash(text, len).h1;
}

/* ---- the thread ---- */

/* When may a file that was missed be forgotten? When the SSTables are known into which its keys may have gone, and
 * these were whole before it went. If no directory has changed since this round looked at it, the round has met all of
 * them that are still there; and of those that are not, the successors. */
static void look(struct sstables *s)
{
    s->numbers.scans++;
    s->rounds.changed = false;
    sstables_scan_all(s);
    sstables_count_unseen(s);
    sstables_forget_removed(s, !s->rounds.failed && !sstables_have_changed(s) && !atomic_load(&s->watcher.ending));
    if (s->rounds.changed)
        atomic_store(&s->changed_round, s->numbers.scans);
    if (atomic_load(&s->watcher.ending) || atomic_exchange(&s->watcher.scanned, true))
        return;
    log_write(s->log, LOG_LEVEL_NOTICE, "sstable-dir: %s in %zu director%s below %s",
              log_count(s->numbers.filters, "filter").text, s->numbers.directories,
              s->numbers.directories == 1 ? "y" : "ies", s->dirs);
}

static void *watch(void *arg)
{
    struct sstables *s = arg;
    thread_begin_background("sstables");
    lock_take(&s->lock);
    for (int64_t all_ms = 0; !atomic_load(&s->watcher.ending);) {
        int64_t now_ms = clock_ms(), until_ms = now_ms + POLL_MS;
        bool all = now_ms >= all_ms;
        if (all)
            all_ms = now_ms + SSTABLES_RESCAN_MS;
        if (all || s->missing > 0 || sstables_have_changed(s))
            look(s);
        const struct timespec until = {.tv_sec = until_ms / 1000, .tv_nsec = until_ms % 1000 * 1000000};
        while (!atomic_load(&s->watcher.ending) && lock_wait_until(&s->watcher.wake, &s->lock, CLOCK_MONOTONIC, &until))
            continue;
    }
    lock_give(&s->lock);
    return NULL;
}

/* ---- life ---- */

int sstables_create(struct sstables **sstables_out, const char *dirs, const struct registry *own,
                    struct reclaimer *reclaimer, struct log *log, struct errbuf *err)
{
    *sstables_out = NULL;
    if (!*dirs)
        return 0;
    struct sstables *s = calloc(1, sizeof(*s));
    int status = -ENOMEM;
    if (!s)
        goto out;
    s->pool = registry_pool(own);
    s->reclaimer = reclaimer;
    s->log = log;
    lock_init(&s->lock, RANK_SSTABLES);
    pthread_cond_init(&s->read, NULL);
    pthread_cond_init(&s->watcher.wake, NULL);
    if (!(s->dirs = strdup(dirs)) || (status = registry_create(&s->registry, s->pool, reclaimer)) != 0)
        goto out;
    registry_set_next_id(s->registry, SSTABLES_FIRST_ID);
out:
    if (status) {
        errbuf_set(err, "sstable-dir: %s", strerror(-status));
        sstables_destroy(s);
        return status;
    }
    *sstables_out = s;
    return 0;
}

int sstables_start(struct sstables *s)
{
    int status = s ? -pthread_create(&s->watcher.thread, NULL, watch, s) : 0;
    if (s)
        s->watcher.started = status == 0;
    return status;
}

void sstables_stop(struct sstables *s)
{
    if (!s || !s->watcher.started)
        return;
    atomic_store(&s->watcher.ending, true); /* a look ends soon, and gives the lock */
    lock_take(&s->lock);
    pthread_cond_signal(&s->watcher.wake);
    lock_give(&s->lock);
    pthread_join(s->watcher.thread, NULL);
    s->watcher.started = false;
}

void sstables_destroy(struct sstables *s)
{
    if (!s)
        return;
    sstables_stop(s);
    sstables_forget_all(s);
    registry_destroy(s->registry);
    pthread_cond_destroy(&s->watcher.wake);
    pthread_cond_destroy(&s->read);
    lock_deinit(&s->lock);
    free(s->dirs);
    free(s);
}

/* ---- questions ---- */

unsigned sstables_hold(struct sstables *s)
{
    struct sstable_questions *questions = &s->questions;
    for (;;) {
        unsigned generation = atomic_load(&questions->now);
        atomic_fetch_add(&questions->running[generation], 1);
        if (atomic_load(&questions->now) == generation) /* otherwise no thread may have waited for it */
            return generation;
        atomic_fetch_sub(&questions->running[generation], 1);
    }
}

void sstables_release(struct sstables *s, unsigned hold)
{
    atomic_fetch_sub(&s->questions.running[hold], 1);
}

uint64_t sstables_round(const struct sstables *s)
{
    return atomic_load(&s->changed_round);
}

bool sstables_is_scanning(const struct sstables *s)
{
    return s && !atomic_load(&s->watcher.scanned);
}

bool sstables_may_miss(struct sstables *s, struct errbuf *why)
{
    if (sstables_is_scanning(s)) {
        errbuf_set(why, SSTABLES_SCANNING);
        return true;
    }
    if (!s || atomic_load_explicit(&s->unseen.n, memory_order_relaxed) == 0)
        return false;
    lock_take(&s->lock);
    *why = s->unseen.why;
    lock_give(&s->lock);
    return true;
}

bool sstables_could_name(struct slice name)
{
    return name.len > 0 && memchr(name.ptr, '/', name.len);
}

/* ---- look-ups ---- */

struct entry *sstables_pin(struct sstables *s, struct slice name)
{
    return s ? registry_pin(s->registry, name) : NULL;
}

const struct registry *sstables_registry(const struct sstables *s)
{
    return s->registry;
}

struct entry *sstables_find(const struct sstables *s, struct slice name)
{
    return s ? registry_lookup(s->registry, name) : NULL;
}

bool sstables_is_unread(struct entry *entry)
{
    const char *reason = entry_quarantine_reason(entry);
    return reason && strcmp(reason, SSTABLES_UNREAD) == 0;
}

char *sstables_path(struct sstables *s, struct slice name)
{
    lock_take(&s->lock);
    const struct sstable *file = sstables_by_name(s, name);
    char *path = file ? strdup(file->path) : NULL;
    lock_give(&s->lock);
    return path;
}

void sstables_numbers(struct sstables *s, struct sstables_numbers *numbers_out)
{
    lock_take(&s->lock);
    *numbers_out = s->numbers;
    numbers_out->scanning = sstables_is_scanning(s);
    numbers_out->unreachable = atomic_load(&s->unseen.n);
    for (const struct watched_dir *dir = s->first_dir; dir; dir = dir->next) {
        for (const struct sstable *file = dir->files; file; file = file->next) {
            numbers_out->bytes += file->stamp.size;
            numbers_out->read += file->state == SSTABLE_READ;
            numbers_out->read_bytes += file->state == SSTABLE_READ ? file->stamp.size : 0;
            numbers_out->broken += file->state == SSTABLE_BROKEN;
        }
    }
    lock_give(&s->lock);
}
