/* Start and stop, look-ups, and the thread that watches. */
#include "log_text.h"
#include "sstables.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "clock.h"
#include "murmur.h"
#include "sstables_internal.h"
#include "thread.h"
#include "lock.h"

/* Events come in bursts while a database writes: the thread waits this long, so that one look serves several. */
#define SETTLE_MS 10

#define MAX_ROUNDS 16 /* without a pause */

uint64_t sstables_hash(const char *text, size_t len)
{
    return murmur3_hash(text, len).h1;
}

/* ---- events ---- */

/* False: the event is about a directory, or a watch has ended. */
static bool take_event(struct sstables *s, const struct inotify_event *event)
{
    const uint32_t created = IN_CREATE | IN_MOVED_TO | IN_CLOSE_WRITE;
    bool known = true;
    for (struct watched_dir *dir = s->first_dir; dir; dir = dir->next) {
        if (dir->watch != event->wd)
            continue;
        if (event->mask & IN_IGNORED) {
            dir->watch = -1;
            known = false;
        } else if (event->len > 0) {
            sstables_look_at(s, dir, event->name, event->mask & created);
        }
    }
    return known && !(event->mask & (IN_Q_OVERFLOW | IN_ISDIR | IN_DELETE_SELF | IN_MOVE_SELF));
}

/* Looks at the files of the events that had come when it began: others come as fast. False: some events were lost, or
 * directories have come or gone: all must be checked. */
static bool take_events(struct sstables *s)
{
    _Alignas(struct inotify_event) char events[16384];
    bool complete = true;
    int left = 0;
    if (s->watcher.inotify < 0 || ioctl(s->watcher.inotify, FIONREAD, &left) != 0)
        return true;
    while (left > 0) {
        ssize_t n = read(s->watcher.inotify, events, sizeof(events));
        if (n <= 0)
            break;
        for (ssize_t at = 0; at < n;) {
            const struct inotify_event *event = (const void *)(events + at);
            complete &= take_event(s, event);
            at += (ssize_t)(sizeof(*event) + event->len);
        }
        left -= (int)n;
    }
    return complete;
}

/* ---- rounds ---- */

/* Looks at the files of the events that have come; where these do not say all, or if it is time, at all directories.
 *
 * When may a file that was missed in an earlier round be forgotten? When the SSTables are known into which its keys may
 * have gone, and these were whole before it went. So their events arrived before this round took the events, and each
 * of them is known by now: it was found in this round or earlier, unless it disappeared before. In that case its own
 * successors are in question, whose events come in the next round. In directories without events a round is proof in
 * which nothing has changed.
 *
 * True: another round now may forget more, or find more. */
static bool look(struct sstables *s, bool all)
{
    s->numbers.scans++;
    s->rounds.changed = s->rounds.noticed = s->rounds.missed = false;
    all |= !take_events(s);
    all |= sstables_root_moved(s);
    if (all)
        sstables_scan_all(s);
    sstables_count_unseen(s);
    bool proved = !all && !s->rounds.missed && !s->rounds.failed;
    sstables_forget_removed(s, !proved ? 0 : s->unwatched ? s->rounds.proof : s->numbers.scans);
    if (s->rounds.changed)
        atomic_store(&s->changed_round, s->numbers.scans);
    return s->rounds.missed || s->rounds.noticed || (all && s->missing > 0);
}

/* The rounds that follow from one another. False: there are more to come soon. */
static bool look_around(struct sstables *s, bool all)
{
    bool more = true;
    for (int i = 0; i < MAX_ROUNDS && more; i++) {
        lock_take(&s->lock);
        more = look(s, all && i == 0);
        lock_give(&s->lock);
    }
    return !more && !s->retiring;
}

/* ---- the thread ---- */

/* All that is there. False: there is more to come soon. */
static bool look_first(struct sstables *s)
{
    bool done = look_around(s, true);
    if (atomic_load(&s->watcher.ending))
        return done;
    atomic_store(&s->watcher.scanned, true);
    log_write(s->log, LOG_LEVEL_NOTICE, "sstable-dir: %s in %zu director%s below %s",
              log_count(s->numbers.filters, "filter").text, s->numbers.directories,
              s->numbers.directories == 1 ? "y" : "ies", s->dirs);
    return done;
}

/* Waits for events or until that time. False: the end. */
static bool wait_for_events(struct sstables *s, int64_t until_ms)
{
    struct pollfd fds[] = {{.fd = s->watcher.wake, .events = POLLIN}, {.fd = s->watcher.inotify, .events = POLLIN}};
    int64_t left = until_ms - clock_ms();
    (void)poll(fds, 2, left > 0 ? (int)left : 0);
    if (!fds[0].revents && fds[1].revents) /* the rest of the burst */
        (void)poll(fds, 1, SETTLE_MS);
    return !fds[0].revents;
}

static void *watch(void *arg)
{
    struct sstables *s = arg;
    thread_begin_background("sstables");
    bool complete = look_first(s);
    int64_t all_ms = clock_ms() + SSTABLES_RESCAN_MS, next_ms = complete ? all_ms : clock_ms() + SETTLE_MS;
    while (wait_for_events(s, next_ms)) {
        bool all = clock_ms() >= all_ms;
        bool done = look_around(s, all);
        if (all)
            all_ms = clock_ms() + SSTABLES_RESCAN_MS;
        next_ms = done ? all_ms : clock_ms() + SETTLE_MS;
    }
    return NULL;
}

/* ---- life ---- */

/* Signals are for the main thread. */
static int start_thread(struct sstables *s)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    int status = -pthread_create(&s->watcher.thread, NULL, watch, s);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return status;
}

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
    s->watcher.inotify = inotify_init1(IN_NONBLOCK | IN_CLOEXEC); /* without it there are the regular scans */
    s->watcher.wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (!(s->dirs = strdup(dirs)) || (status = registry_create(&s->registry, s->pool, reclaimer)) != 0)
        goto out;
    status = s->watcher.wake < 0 ? -errno : 0;
    if (status)
        goto out;
    registry_set_next_id(s->registry, SSTABLES_FIRST_ID);
    registry_share_hashes(s->registry, own);
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
    int status = s ? start_thread(s) : 0;
    if (s)
        s->watcher.started = status == 0;
    return status;
}

void sstables_stop(struct sstables *s)
{
    uint64_t one = 1;
    if (!s || !s->watcher.started)
        return;
    atomic_store(&s->watcher.ending, true);
    (void)!write(s->watcher.wake, &one, sizeof(one));
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
    if (s->watcher.inotify >= 0)
        close(s->watcher.inotify);
    if (s->watcher.wake >= 0)
        close(s->watcher.wake);
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
