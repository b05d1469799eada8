#include "notify.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "buf.h"
#include "inlet.h"
#include "pubsub.h"
#include "thread.h"
#include "registry_key.h"

struct record {
    struct inlet_link link; /* the first member */
    const char *event;
    uint32_t len;   /* of the name */
    uint32_t flags; /* NOTIFY_KEYSPACE, NOTIFY_KEYEVENT: as the setting was then */
    uint32_t db;    /* the number that its database had then */
    char name[];
};

static size_t record_bytes(size_t len)
{
    return sizeof(struct record) + len;
}

struct notify_queue {
    _Atomic size_t backlog; /* bytes of the records that are not published yet */
    pthread_t thread;
    struct work_inlet records;
    atomic_bool lost; /* a record did not fit */
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

static void publish_record(struct notify *notify, const struct record *record, struct buf *channel)
{
    struct slice name = {record->name, record->len};
    struct slice event = slice_of(record->event);
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

static void *notify_main(void *arg)
{
    struct notify *notify = arg;
    struct notify_queue *queue = notify->queue;
    struct buf channel;
    thread_begin("notifier");
    buf_init(&channel, SIZE_MAX);
    for (;;) {
        bool ended;
        struct inlet_link *next, *link = work_inlet_take(&queue->records, &ended);
        if (!link && ended)
            break;
        if (!link && !atomic_load(&queue->lost))
            work_inlet_wait(&queue->records);
        for (; link; link = next) {
            struct record *record = (struct record *)(void *)link;
            next = link->next;
            publish_record(notify, record, &channel);
            atomic_fetch_sub_explicit(&queue->backlog, record_bytes(record->len), memory_order_relaxed);
            free(record);
        }
        if (atomic_exchange(&queue->lost, false))
            pubsub_lose(notify->hub, PUBSUB_CHANNEL);
    }
    buf_deinit(&channel);
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
        work_inlet_init(&queue->records);
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
    work_inlet_end(&queue->records);
    pthread_join(queue->thread, NULL);
}

void notify_destroy(struct notify *notify)
{
    if (!notify)
        return;
    if (!atomic_load(&notify->queue->records.ended)) /* the start has failed */
        notify_stop(notify);
    for (struct inlet_link *link = inlet_take(&notify->queue->records.inlet), *next; link; link = next) {
        next = link->next;
        free(link); /* the first member of its record */
    }
    work_inlet_deinit(&notify->queue->records);
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

/* NULL: it does not fit. */
static struct record *make_record(struct notify_queue *queue, size_t len)
{
    size_t before = atomic_fetch_add_explicit(&queue->backlog, record_bytes(len), memory_order_relaxed);
    struct record *record = before + record_bytes(len) <= NOTIFY_QUEUE_MAX ? malloc(record_bytes(len)) : NULL;
    if (!record)
        atomic_fetch_sub_explicit(&queue->backlog, record_bytes(len), memory_order_relaxed);
    return record;
}

void notify_event(struct notify *notify, unsigned class, const char *event, struct slice key)
{
    struct notify_queue *queue = notify->queue;
    unsigned flags = atomic_load_explicit(&notify->flags, memory_order_relaxed);
    if (!(flags & class) || !pubsub_has_listeners(notify->hub, PUBSUB_CHANNEL) || atomic_load(&queue->records.ended))
        return;
    struct slice name = key_name(key);
    struct record *record = make_record(queue, name.len);
    if (!record) {
        if (!atomic_exchange(&queue->lost, true))
            work_inlet_wake(&queue->records);
        return;
    }
    *record = (struct record){.event = event,
                              .len = (uint32_t)name.len,
                              .flags = flags & (NOTIFY_KEYSPACE | NOTIFY_KEYEVENT),
                              .db = notify->registry ? registry_number(notify->registry, key_database(key)) : 0};
    if (name.len)
        memcpy(record->name, name.ptr, name.len);
    work_inlet_put(&queue->records, &record->link);
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
