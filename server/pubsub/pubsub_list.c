/* Queries of a hub. A listing copies the names of one shard at a time under the lock, a small part of all, and matches
 * them without the lock. */
#include "pubsub_internal.h"

#include <errno.h>
#include <string.h>

#include "glob_match.h"
#include "lock.h"

void pubsub_totals(struct pubsub *hub, struct pubsub_totals *totals_out)
{
    for (int kind = 0; kind < PUBSUB_KINDS; kind++)
        totals_out->topics[kind] = atomic_load_explicit(&hub->topics[kind], memory_order_relaxed);
    totals_out->clients = atomic_load_explicit(&hub->clients, memory_order_relaxed);
    totals_out->bytes = pubsub_bytes(hub);
    totals_out->lost = atomic_load_explicit(&hub->lost, memory_order_relaxed);
    totals_out->monitors = pubsub_subscribers(hub, PUBSUB_MONITOR, (struct slice){NULL, 0});
}

uint64_t pubsub_bytes(const struct pubsub *hub)
{
    return atomic_load_explicit(&hub->bytes, memory_order_relaxed);
}

uint64_t pubsub_subscribers(struct pubsub *hub, enum pubsub_kind kind, struct slice name)
{
    uint64_t n = 0, hash = hub_hash(hub, kind, name);
    lock_take(&hub->lock);
    const struct topic *topic = hub_find(hub, kind, name, hash);
    for (uint32_t i = 0; topic && i < topic->naudiences; i++)
        n += topic->audiences[i]->count;
    lock_give(&hub->lock);
    return n;
}

/* Copies each name as its length and its bytes. */
static void copy_shard(struct pubsub *hub, const struct hash_table *shard, enum pubsub_kind kind, struct buf *names)
{
    lock_take(&hub->lock);
    for (size_t i = 0; i < shard->nbuckets; i++) {
        for (struct hash_link *link = shard->buckets[i]; link; link = link->next) {
            const struct topic *topic = topic_of(link);
            if (topic->kind != kind)
                continue;
            buf_append(names, &topic->len, sizeof(topic->len));
            buf_append(names, topic->name, topic->len);
        }
    }
    lock_give(&hub->lock);
}

int pubsub_list(struct pubsub *hub, enum pubsub_kind kind, const struct slice *pattern,
                void (*add)(void *ctx, struct slice name), void *ctx)
{
    struct buf names;
    buf_init(&names, SIZE_MAX);
    for (size_t s = 0; s < SHARDS && !buf_failed(&names); s++) {
        buf_truncate(&names, 0);
        copy_shard(hub, &hub->shards[s], kind, &names);
        if (buf_failed(&names))
            break;
        const char *at = buf_head(&names);
        for (size_t left = buf_len(&names); left;) {
            uint32_t len;
            memcpy(&len, at, sizeof(len));
            struct slice name = {at + sizeof(len), len};
            if (!pattern || glob_match(*pattern, name, false))
                add(ctx, name);
            at += sizeof(len) + len;
            left -= sizeof(len) + len;
        }
    }
    int status = buf_failed(&names) ? -ENOMEM : 0;
    buf_deinit(&names);
    return status;
}
