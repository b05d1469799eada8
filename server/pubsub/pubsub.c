/* Topics, clients and their subscriptions.
 *
 * A subscription is in three lists: its audience (for delivery), its client's table (to find it by name) and its
 * client's list by age (to end them all). All three belong to the client's loop. The hub's lock guards only the
 * publishers' view: the table of topics and, per topic, the audiences and their numbers of clients. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "glob_match.h"
#include "lock.h"
#include "pubsub_internal.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

/* ---- the table of topics ---- */

uint64_t hub_hash(const struct pubsub *hub, enum pubsub_kind kind, struct slice name)
{
    return XXH3_64bits_withSeed(name.ptr, name.len, hub->seed + (uint64_t)kind);
}

void hub_account(struct pubsub *hub, size_t bytes, bool more)
{
    if (more)
        atomic_fetch_add_explicit(&hub->bytes, bytes, memory_order_relaxed);
    else
        atomic_fetch_sub_explicit(&hub->bytes, bytes, memory_order_relaxed);
}

/* A table's buckets are in the hub's account, too. 0 or -ENOMEM. */
static int table_insert(struct pubsub *hub, struct hash_table *table, struct hash_link *link)
{
    size_t before = hash_table_bytes(table);
    int status = hash_table_insert(table, link);
    hub_account(hub, hash_table_bytes(table) - before, true);
    return status;
}

static void table_remove(struct pubsub *hub, struct hash_table *table, struct hash_link *link)
{
    size_t before = hash_table_bytes(table);
    hash_table_remove(table, link);
    hub_account(hub, before - hash_table_bytes(table), false);
}

static struct hash_table *shard_of(struct pubsub *hub, uint64_t hash)
{
    return &hub->shards[hash >> 56];
}

/* For a topic whose hash is that of the kind and the name. */
static bool topic_is(const struct topic *topic, enum pubsub_kind kind, struct slice name)
{
    return topic->kind == kind && topic->len == name.len &&
           (name.len == 0 || memcmp(topic->name, name.ptr, name.len) == 0);
}

struct topic *hub_find(struct pubsub *hub, enum pubsub_kind kind, struct slice name, uint64_t hash)
{
    struct hash_link *link = hash_table_first(shard_of(hub, hash), hash);
    while (link && !topic_is(topic_of(link), kind, name))
        link = hash_table_next(link);
    return link ? topic_of(link) : NULL;
}

static bool hub_insert(struct pubsub *hub, struct topic *topic)
{
    if (table_insert(hub, shard_of(hub, topic->hashed.hash), &topic->hashed) != 0)
        return false;
    atomic_fetch_add(&hub->topics[topic->kind], 1);
    if (topic->kind == PUBSUB_PATTERN) {
        TAILQ_INSERT_TAIL(&hub->patterns, &topic->link, link);
        atomic_fetch_add(&hub->pattern_bytes, topic->rest_is_star ? 0 : topic->len - topic->literal);
    }
    return true;
}

static void hub_remove(struct pubsub *hub, struct topic *topic)
{
    table_remove(hub, shard_of(hub, topic->hashed.hash), &topic->hashed);
    atomic_fetch_sub(&hub->topics[topic->kind], 1);
    if (topic->kind == PUBSUB_PATTERN) {
        TAILQ_REMOVE(&hub->patterns, &topic->link, link);
        atomic_fetch_sub(&hub->pattern_bytes, topic->rest_is_star ? 0 : topic->len - topic->literal);
    }
}

/* ---- topics and audiences ---- */

static size_t topic_bytes(size_t len)
{
    return sizeof(struct topic) + len;
}

static struct topic *topic_create(struct pubsub *hub, enum pubsub_kind kind, struct slice name, uint64_t hash)
{
    struct topic *topic = malloc(topic_bytes(name.len));
    if (!topic)
        return NULL;
    *topic = (struct topic){.kind = kind, .hashed = {.hash = hash}, .len = (uint32_t)name.len, .size = 1};
    topic->audiences = topic->inline_audience;
    topic->link.topic = topic;
    if (name.len)
        memcpy(topic->name, name.ptr, name.len);
    if (kind == PUBSUB_PATTERN) {
        while (topic->literal < topic->len && !strchr("*?[\\", topic->name[topic->literal]))
            topic->literal++; /* a NUL byte counts as special: a little slower, no less right */
        topic->rest_is_star = topic->len - topic->literal == 1 && topic->name[topic->literal] == '*';
    }
    hub_account(hub, topic_bytes(name.len), true);
    return topic;
}

static void topic_free(struct pubsub *hub, struct topic *topic)
{
    hub_account(hub, topic_bytes(topic->len) + (topic->size > 1 ? topic->size * sizeof(*topic->audiences) : 0), false);
    if (topic->audiences != topic->inline_audience)
        free(topic->audiences);
    free(topic);
}

void topic_unref(struct pubsub *hub, struct topic *topic)
{
    if (atomic_fetch_sub_explicit(&topic->refs, 1, memory_order_acq_rel) == 1)
        topic_free(hub, topic);
}

void audience_unref(struct pubsub *hub, struct audience *audience)
{
    if (atomic_fetch_sub_explicit(&audience->refs, 1, memory_order_acq_rel) != 1)
        return;
    topic_unref(hub, audience->topic);
    hub_account(hub, sizeof(*audience), false);
    free(audience);
}

/* Room for one more audience. */
static bool topic_grow(struct pubsub *hub, struct topic *topic)
{
    if (topic->naudiences < topic->size)
        return true;
    uint32_t size = topic->size * 2;
    bool inlined = topic->audiences == topic->inline_audience;
    struct audience **audiences = realloc(inlined ? NULL : topic->audiences, size * sizeof(*audiences));
    if (!audiences)
        return false;
    if (inlined)
        audiences[0] = topic->inline_audience[0];
    hub_account(hub, (inlined ? size : size - topic->size) * sizeof(*audiences), true);
    topic->audiences = audiences;
    topic->size = size;
    return true;
}

/* Finds or creates the loop's audience; NULL without memory. */
static struct audience *topic_audience(struct pubsub *hub, struct topic *topic, unsigned loop)
{
    for (uint32_t i = 0; i < topic->naudiences; i++)
        if (topic->audiences[i]->loop == loop)
            return topic->audiences[i];
    struct audience *audience = topic_grow(hub, topic) ? malloc(sizeof(*audience)) : NULL;
    if (!audience)
        return NULL;
    *audience = (struct audience){.refs = 1, .loop = loop, .topic = topic};
    topic_ref(topic);
    topic->audiences[topic->naudiences++] = audience;
    hub_account(hub, sizeof(*audience), true);
    return audience;
}

static void topic_remove_audience(struct topic *topic, const struct audience *audience)
{
    uint32_t i = 0;
    while (topic->audiences[i] != audience)
        i++;
    topic->audiences[i] = topic->audiences[--topic->naudiences];
}

/* Counts one more client of the loop. NULL without memory. */
static struct audience *hub_join(struct pubsub *hub, enum pubsub_kind kind, struct slice name, uint64_t hash,
                                 unsigned loop, uint64_t *since_out)
{
    lock_take(&hub->lock);
    struct topic *topic = hub_find(hub, kind, name, hash), *made = NULL;
    struct audience *audience = NULL;
    if (!topic)
        topic = made = topic_create(hub, kind, name, hash);
    if (topic)
        audience = topic_audience(hub, topic, loop);
    if (made && !audience) {
        topic_free(hub, made);
    } else if (made && !hub_insert(hub, made)) {
        topic_remove_audience(made, audience);
        audience_unref(hub, audience); /* and with it the topic */
        audience = NULL;
    }
    if (audience) {
        audience->count++;
        *since_out = hub->sequence;
    }
    lock_give(&hub->lock);
    return audience;
}

static void hub_leave(struct pubsub *hub, struct audience *audience)
{
    bool last = false;
    lock_take(&hub->lock);
    if (--audience->count == 0) {
        last = true;
        topic_remove_audience(audience->topic, audience);
        if (audience->topic->naudiences == 0)
            hub_remove(hub, audience->topic);
    }
    lock_give(&hub->lock);
    if (last)
        audience_unref(hub, audience);
}

/* ---- the subscriptions of a client ---- */

static size_t subscription_bytes(size_t len)
{
    return sizeof(struct subscription) + sizeof(struct audience) + topic_bytes(len) + 2 * sizeof(void *);
}

static struct subscription *subscription_of(struct hash_link *link)
{
    return HASH_OBJECT(link, struct subscription, hashed);
}

static struct subscription *client_find(const struct pubsub_client *client, enum pubsub_kind kind, struct slice name,
                                        uint64_t hash)
{
    struct hash_link *link = hash_table_first(&client->subs, hash);
    while (link && !topic_is(subscription_of(link)->audience->topic, kind, name))
        link = hash_table_next(link);
    return link ? subscription_of(link) : NULL;
}

/* The subscription is in the client's table. */
static void client_add(struct pubsub_client *client, enum pubsub_kind kind, struct subscription *sub)
{
    struct audience *audience = sub->audience;
    TAILQ_INSERT_TAIL(&client->by_age[kind], sub, by_age);
    LIST_INSERT_HEAD(&audience->subscriptions, sub, of_audience);
    client->count[kind]++;
    if (kind != PUBSUB_MONITOR && client->subs.count == client->count[PUBSUB_MONITOR] + 1)
        atomic_fetch_add(&client->hub->clients, 1);
    client->bytes += subscription_bytes(audience->topic->len);
    hub_account(client->hub, sizeof(*sub), true);
}

/* Removes the subscription from the table and all lists, and frees it. */
static void client_remove(struct pubsub_client *client, struct subscription *sub)
{
    struct audience *audience = sub->audience;
    enum pubsub_kind kind = audience->topic->kind;
    table_remove(client->hub, &client->subs, &sub->hashed);
    TAILQ_REMOVE(&client->by_age[kind], sub, by_age);
    LIST_REMOVE(sub, of_audience);
    client->count[kind]--;
    if (kind != PUBSUB_MONITOR && client->subs.count == client->count[PUBSUB_MONITOR])
        atomic_fetch_sub(&client->hub->clients, 1);
    client->bytes -= subscription_bytes(audience->topic->len);
    hub_account(client->hub, sizeof(*sub), false);
    free(sub);
    hub_leave(client->hub, audience);
}

int pubsub_subscribe(struct pubsub_client *client, enum pubsub_kind kind, struct slice name, size_t max_bytes)
{
    uint64_t hash = hub_hash(client->hub, kind, name);
    if (client_find(client, kind, name, hash))
        return PUBSUB_SAME;
    if (client->bytes + subscription_bytes(name.len) > max_bytes)
        return PUBSUB_LIMIT;

    struct subscription *sub = malloc(sizeof(*sub));
    if (!sub)
        return -ENOMEM;
    *sub = (struct subscription){.client = client, .hashed = {.hash = hash}};
    if (table_insert(client->hub, &client->subs, &sub->hashed) != 0) {
        free(sub);
        return -ENOMEM;
    }
    sub->audience = hub_join(client->hub, kind, name, hash, client->loop, &sub->since);
    if (!sub->audience) {
        table_remove(client->hub, &client->subs, &sub->hashed);
        free(sub);
        return -ENOMEM;
    }
    client_add(client, kind, sub);
    return PUBSUB_OK;
}

int pubsub_unsubscribe(struct pubsub_client *client, enum pubsub_kind kind, struct slice name)
{
    struct subscription *sub = client_find(client, kind, name, hub_hash(client->hub, kind, name));
    if (!sub)
        return PUBSUB_SAME;
    client_remove(client, sub);
    return PUBSUB_OK;
}

bool pubsub_unsubscribe_next(struct pubsub_client *client, enum pubsub_kind kind,
                             void (*ended)(void *ctx, struct slice name), void *ctx)
{
    struct subscription *sub = TAILQ_FIRST(&client->by_age[kind]);
    if (!sub)
        return false;
    struct topic *topic = sub->audience->topic;
    topic_ref(topic); /* the name is still needed */
    client_remove(client, sub);
    if (ended)
        ended(ctx, topic_name(topic));
    topic_unref(client->hub, topic);
    return true;
}

void pubsub_client_each(const struct pubsub_client *client, enum pubsub_kind kind,
                        void (*fn)(void *ctx, struct slice name), void *ctx)
{
    const struct subscription *sub;
    TAILQ_FOREACH(sub, &client->by_age[kind], by_age)
    fn(ctx, topic_name(sub->audience->topic));
}

size_t pubsub_client_count(const struct pubsub_client *client, enum pubsub_kind kind)
{
    return client->count[kind];
}

size_t pubsub_client_bytes(const struct pubsub_client *client)
{
    return client->bytes;
}

int pubsub_client_create(struct pubsub_client **client_out, struct pubsub *hub, unsigned loop, void *owner)
{
    struct pubsub_client *client = calloc(1, sizeof(*client));
    if (!client)
        return -ENOMEM;
    client->hub = hub;
    client->loop = loop;
    client->owner = owner;
    for (int kind = 0; kind < PUBSUB_KINDS; kind++)
        TAILQ_INIT(&client->by_age[kind]);
    atomic_fetch_add(&hub->inboxes[loop].clients, 1);
    hub_account(hub, sizeof(*client), true);
    *client_out = client;
    return 0;
}

void pubsub_client_destroy(struct pubsub_client *client)
{
    if (!client)
        return;
    for (int kind = 0; kind < PUBSUB_KINDS; kind++)
        while (pubsub_unsubscribe_next(client, (enum pubsub_kind)kind, NULL, NULL))
            ;
    atomic_fetch_sub(&client->hub->inboxes[client->loop].clients, 1);
    hub_account(client->hub, sizeof(*client), false);
    free(client);
}

/* ---- the hub ---- */

int pubsub_create(struct pubsub **hub_out, unsigned nloops, void (*wake)(void *ctx, unsigned loop), void *ctx)
{
    void *memory = NULL, *inboxes = NULL;
    if (posix_memalign(&memory, _Alignof(struct pubsub), sizeof(struct pubsub)) != 0 ||
        posix_memalign(&inboxes, _Alignof(struct inbox), nloops * sizeof(struct inbox)) != 0) {
        free(memory);
        return -ENOMEM;
    }
    struct pubsub *hub = memset(memory, 0, sizeof(*hub));
    if (getrandom(&hub->seed, sizeof(hub->seed), 0) != (ssize_t)sizeof(hub->seed))
        hub->seed = (uintptr_t)hub; /* early in a boot: the address is random as well */
    lock_init(&hub->lock, RANK_PUBSUB);
    TAILQ_INIT(&hub->patterns);
    hub->nloops = nloops;
    hub->inboxes = inboxes;
    hub->wake = wake;
    hub->ctx = ctx;
    memset(inboxes, 0, nloops * sizeof(struct inbox));
    *hub_out = hub;
    return 0;
}

void pubsub_destroy(struct pubsub *hub)
{
    if (!hub)
        return;
    for (unsigned i = 0; i < hub->nloops; i++)
        inbox_drop(hub, &hub->inboxes[i]);
    lock_deinit(&hub->lock);
    free(hub->inboxes);
    free(hub);
}

/* ---- lists ---- */

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
