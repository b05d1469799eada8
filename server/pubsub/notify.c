/* The queue is a buffer of records, each a header and a name. The thread swaps the full buffer for its own empty one;
 * so there are two, and in the long run none is allocated. */
#include "notify.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "buf.h"
#include "pubsub.h"
#include "registry_databases.h"
#include "thread.h"

#define KEEP_SIZE ((size_t)256 * 1024) /* a larger buffer is freed */

struct record {
    const char *event;
    uint32_t len;   /* of the name that follows */
    uint32_t flags; /* NOTIFY_KEYSPACE, NOTIFY_KEYEVENT: as the setting was then */
    uint32_t db;    /* the number that its database had then */
};

struct notify_queue {
    _Atomic size_t backlog;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t more;
    struct buf records; /* under the lock, and the following */
    bool sleeping, stop;
};

static bool append(struct buf *out, const void *data, size_t len)
{
    buf_append(out, data, len);
    return !buf_failed(out);
}

static void pause_a_millisecond(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

/* Publishes, and waits while the loops' inboxes are above their high mark (but not at the end of the daemon). Without
 * memory the message counts as lost. */
static void publish(struct notify *notify, struct slice channel, struct slice message)
{
    struct pubsub *hub = notify->hub;
    struct pubsub_receipt receipt;
    if (pubsub_publish(hub, PUBSUB_CHANNEL, channel, message, &receipt) != 0)
        pubsub_lose(hub, PUBSUB_CHANNEL);
    for (unsigned i = 0; receipt.slow && i < 1000 && pubsub_slow(hub) && notify_wants(notify, ~0u); i++)
        pause_a_millisecond();
}

static bool append_head(struct buf *channel, const char *kind, uint32_t db)
{
    char text[32];
    int len = snprintf(text, sizeof(text), "__%s@%u__:", kind, db);
    buf_truncate(channel, 0);
    return append(channel, text, (size_t)len);
}

static void publish_record(struct notify *notify, const struct record *record, struct slice name, struct buf *channel)
{
    struct slice event = {record->event, strlen(record->event)};
    if (record->flags & NOTIFY_KEYSPACE) {
        if (append_head(channel, "keyspace", record->db) && append(channel, name.ptr, name.len))
            publish(notify, (struct slice){buf_head(channel), buf_len(channel)}, event);
    }
    if (record->flags & NOTIFY_KEYEVENT) {
        if (append_head(channel, "keyevent", record->db) && append(channel, event.ptr, event.len))
            publish(notify, (struct slice){buf_head(channel), buf_len(channel)}, name);
    }
    if (buf_failed(channel)) {
        buf_deinit(channel);
        pubsub_lose(notify->hub, PUBSUB_CHANNEL);
    }
}

static void publish_all(struct notify *notify, const struct buf *records)
{
    struct notify_queue *queue = notify->queue;
    struct buf channel;
    buf_init(&channel, SIZE_MAX);
    const char *at = buf_head(records);
    for (size_t left = buf_len(records); left;) {
        struct record record;
        memcpy(&record, at, sizeof(record));
        publish_record(notify, &record, (struct slice){at + sizeof(record), record.len}, &channel);
        size_t size = sizeof(record) + record.len;
        atomic_fetch_sub_explicit(&queue->backlog, size, memory_order_relaxed);
        at += size;
        left -= size;
    }
    buf_deinit(&channel);
}

static void *notify_main(void *arg)
{
    struct notify *notify = arg;
    struct notify_queue *queue = notify->queue;
    struct buf records;
    thread_begin(THREAD_BACKGROUND, "notifier");
    buf_init(&records, NOTIFY_QUEUE_MAX);
    pthread_mutex_lock(&queue->lock);
    for (;;) {
        while (buf_len(&queue->records) == 0 && !buf_failed(&queue->records) && !queue->stop) {
            queue->sleeping = true;
            pthread_cond_wait(&queue->more, &queue->lock);
        }
        queue->sleeping = false;
        if (buf_len(&queue->records) == 0 && !buf_failed(&queue->records))
            break;
        struct buf empty = records;
        records = queue->records;
        queue->records = empty;
        pthread_mutex_unlock(&queue->lock);

        publish_all(notify, &records);
        if (buf_failed(&records)) /* later events did not fit */
            pubsub_lose(notify->hub, PUBSUB_CHANNEL);
        if (buf_failed(&records) || records.size > KEEP_SIZE)
            buf_deinit(&records);
        else
            buf_truncate(&records, 0);
        pthread_mutex_lock(&queue->lock);
    }
    pthread_mutex_unlock(&queue->lock);
    buf_deinit(&records);
    return NULL;
}

/* ---- interface ---- */

int notify_create(struct notify **notify_out, struct pubsub *hub)
{
    struct notify *notify = calloc(1, sizeof(*notify));
    struct notify_queue *queue = calloc(1, sizeof(*queue));
    int err = notify && queue ? 0 : ENOMEM;
    if (!err) {
        notify->hub = hub;
        notify->queue = queue;
        pthread_mutex_init(&queue->lock, NULL);
        pthread_cond_init(&queue->more, NULL);
        buf_init(&queue->records, NOTIFY_QUEUE_MAX);
        err = pthread_create(&queue->thread, NULL, notify_main, notify);
    }
    if (err) {
        free(queue);
        free(notify);
        return -err;
    }
    *notify_out = notify;
    return 0;
}

void notify_stop(struct notify *notify)
{
    if (!notify)
        return;
    struct notify_queue *queue = notify->queue;
    notify_set_flags(notify, 0);
    pthread_mutex_lock(&queue->lock);
    queue->stop = true;
    pthread_cond_signal(&queue->more);
    pthread_mutex_unlock(&queue->lock);
    pthread_join(queue->thread, NULL);
}

void notify_destroy(struct notify *notify)
{
    if (!notify)
        return;
    pthread_cond_destroy(&notify->queue->more);
    pthread_mutex_destroy(&notify->queue->lock);
    buf_deinit(&notify->queue->records);
    free(notify->queue);
    free(notify);
}

void notify_set_flags(struct notify *notify, unsigned flags)
{
    if (!notify)
        return;
    if (!(flags & (NOTIFY_KEYSPACE | NOTIFY_KEYEVENT)))
        flags = 0; /* neither K nor E: no channel to publish to */
    atomic_store_explicit(&notify->flags, flags, memory_order_relaxed);
}

void notify_set_registry(struct notify *notify, const struct registry *registry)
{
    notify->registry = registry;
}

void notify_event(struct notify *notify, unsigned class, const char *event, struct slice key)
{
    unsigned flags = atomic_load_explicit(&notify->flags, memory_order_relaxed);
    if (!(flags & class) || !pubsub_has_listeners(notify->hub, PUBSUB_CHANNEL))
        return;
    struct notify_queue *queue = notify->queue;
    struct slice name = key_name(key);
    struct record record = {event, (uint32_t)name.len, flags & (NOTIFY_KEYSPACE | NOTIFY_KEYEVENT),
                            notify->registry ? registry_number(notify->registry, key_database(key)) : 0};
    size_t size = sizeof(record) + name.len;

    pthread_mutex_lock(&queue->lock);
    char *room = queue->stop ? NULL : buf_reserve(&queue->records, size);
    if (room) {
        memcpy(room, &record, sizeof(record));
        if (name.len)
            memcpy(room + sizeof(record), name.ptr, name.len);
        buf_commit(&queue->records, size);
        atomic_fetch_add_explicit(&queue->backlog, size, memory_order_relaxed);
    }
    if (queue->sleeping) {
        queue->sleeping = false;
        pthread_cond_signal(&queue->more);
    }
    pthread_mutex_unlock(&queue->lock);
}

size_t notify_bytes(const struct notify *notify)
{
    return atomic_load_explicit(&notify->queue->backlog, memory_order_relaxed);
}

void notify_let_catch_up(const struct notify *notify)
{
    const _Atomic size_t *backlog = &notify->queue->backlog;
    for (unsigned i = 0; i < 1000 && atomic_load_explicit(backlog, memory_order_relaxed) > NOTIFY_QUEUE_MAX / 8; i++)
        pause_a_millisecond();
}
