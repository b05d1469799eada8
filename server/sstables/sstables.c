/* Life, look-ups, and the thread that watches. */
#include "sstables.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "clock.h"
#include "murmur3.h"
#include "sstables_internal.h"
#include "thread.h"

/* Events come in bursts while a database writes: one look at the directory serves all of them. */
#define SETTLE_MS 50

/* Counters of filters go by their ids: these are none of the data directory's. */
#define FIRST_ID (UINT64_C(1) << 62)

uint64_t sstables_hash(const char *text, size_t len)
{
    return murmur3_hash(text, len).h1;
}

/* ---- the thread ---- */

/* Whether the event may concern a filter: databases write other files all the time. */
static bool concerns_filters(const struct inotify_event *event)
{
    return event->len == 0 || (event->mask & IN_ISDIR) || strstr(event->name, "Filter.db") ||
           strstr(event->name, "TOC.txt");
}

static void note_event(struct sstables *s, const struct inotify_event *event)
{
    if (!concerns_filters(event))
        return;
    for (struct watched_dir *dir = s->first_dir; dir; dir = dir->next) {
        if (dir->watch != event->wd)
            continue;
        dir->changed = true;
        if (event->mask & IN_IGNORED)
            dir->watch = -1;
    }
}

/* Takes the events that have come. False: some were lost, or directories have come or gone: all must be looked at. */
static bool take_events(struct sstables *s)
{
    _Alignas(struct inotify_event) char events[16384];
    bool complete = true;
    for (ssize_t n; (n = read(s->inotify, events, sizeof(events))) > 0;) {
        for (ssize_t at = 0; at < n;) {
            const struct inotify_event *event = (const void *)(events + at);
            complete &= !(event->mask & (IN_Q_OVERFLOW | IN_ISDIR | IN_DELETE_SELF | IN_MOVE_SELF));
            note_event(s, event);
            at += (ssize_t)(sizeof(*event) + event->len);
        }
    }
    return complete;
}

/* Waits for events or the time of the next scan. False: the end. */
static bool wait_for_events(struct sstables *s, int64_t until_ms)
{
    struct pollfd fds[] = {{.fd = s->wake, .events = POLLIN}, {.fd = s->inotify, .events = POLLIN}};
    int64_t left = until_ms - clock_ms();
    (void)poll(fds, 2, left > 0 ? (int)left : 0);
    if (!fds[0].revents && fds[1].revents) /* the rest of the burst */
        (void)poll(fds, 1, SETTLE_MS);
    return !fds[0].revents;
}

static void *watch(void *arg)
{
    struct sstables *s = arg;
    int64_t next_ms = clock_ms() + SSTABLES_RESCAN_MS;
    thread_begin_background(THREAD_BACKGROUND, "sstables");
    while (wait_for_events(s, next_ms)) {
        pthread_mutex_lock(&s->lock);
        bool complete = s->inotify < 0 || take_events(s);
        if (!complete || clock_ms() >= next_ms) {
            sstables_scan_all(s);
            next_ms = clock_ms() + SSTABLES_RESCAN_MS;
        } else {
            sstables_scan_changed(s);
        }
        pthread_mutex_unlock(&s->lock);
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
    int status = -pthread_create(&s->thread, NULL, watch, s);
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
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->read, NULL);
    s->inotify = inotify_init1(IN_NONBLOCK | IN_CLOEXEC); /* without it there are the regular scans */
    s->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (!(s->dirs = strdup(dirs)) || (status = registry_create(&s->registry, s->pool, reclaimer)) != 0)
        goto out;
    status = s->wake < 0 ? -errno : 0;
    if (status)
        goto out;
    registry_set_next_id(s->registry, FIRST_ID);
    registry_share_hashes(s->registry, own);
    pthread_mutex_lock(&s->lock);
    sstables_scan_all(s);
    pthread_mutex_unlock(&s->lock);
    log_write(log, LOG_LEVEL_NOTICE, "sstable-dir: %zu filters in %zu directories below %s", s->numbers.filters,
              s->numbers.directories, dirs);
    status = start_thread(s);
    s->started = status == 0;
out:
    if (status) {
        errbuf_set(err, "sstable-dir: %s", strerror(-status));
        sstables_destroy(s);
        return status;
    }
    *sstables_out = s;
    return 0;
}

void sstables_destroy(struct sstables *s)
{
    if (!s)
        return;
    if (s->started) {
        uint64_t one = 1;
        (void)!write(s->wake, &one, sizeof(one));
        pthread_join(s->thread, NULL);
    }
    sstables_forget_all(s);
    registry_destroy(s->registry);
    if (s->inotify >= 0)
        close(s->inotify);
    if (s->wake >= 0)
        close(s->wake);
    pthread_cond_destroy(&s->read);
    pthread_mutex_destroy(&s->lock);
    free(s->dirs);
    free(s);
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

struct sstable *sstables_by_name(struct sstables *s, struct slice name)
{
    struct hash_link *link = hash_table_first(&s->files_by_name, sstables_hash(name.ptr, name.len));
    for (; link; link = hash_table_next(link)) {
        struct sstable *file = HASH_OBJECT(link, struct sstable, by_name);
        if (strlen(file->name) == name.len && memcmp(file->name, name.ptr, name.len) == 0)
            return file;
    }
    return NULL;
}

char *sstables_path(struct sstables *s, struct slice name)
{
    pthread_mutex_lock(&s->lock);
    const struct sstable *file = sstables_by_name(s, name);
    char *path = file ? strdup(file->path) : NULL;
    pthread_mutex_unlock(&s->lock);
    return path;
}

void sstables_numbers(struct sstables *s, struct sstables_numbers *numbers_out)
{
    pthread_mutex_lock(&s->lock);
    *numbers_out = s->numbers;
    numbers_out->read = numbers_out->broken = 0;
    numbers_out->bytes = numbers_out->read_bytes = 0;
    for (const struct watched_dir *dir = s->first_dir; dir; dir = dir->next) {
        for (const struct sstable *file = dir->files; file; file = file->next) {
            numbers_out->bytes += file->stamp.size;
            numbers_out->read += file->state == SSTABLE_READ;
            numbers_out->read_bytes += file->state == SSTABLE_READ ? file->stamp.size : 0;
            numbers_out->broken += file->state == SSTABLE_BROKEN;
        }
    }
    pthread_mutex_unlock(&s->lock);
}
