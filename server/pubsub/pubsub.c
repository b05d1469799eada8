/* Topics, clients and their subscriptions.
 *
 * A subscription is in three lists: its audience (for delivery), its client's table (to find it by name) and its
 * client's list by age (to end them all). All three belong to the client's loop. Under the hub's lock is only what
 * publishers look at: the table of topics and, per topic, the audiences and how many clients each has. */
#include "pubsub_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#define BUCKETS_MIN 8

/* ---- the table of topics ----------------------------------------------------------------------------------------- */

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

static struct shard *shard_of(struct pubsub *hub, uint64_t hash)
{
    return &hub->shards[hash >> 56];
}

struct topic *hub_find(struct pubsub *hub, enum pubsub_kind kind, struct slice name, uint64_t hash)
{
    struct shard *shard = shard_of(hub, hash);
    if (!shard->nbuckets)
        return NULL;
    struct topic *topic = shard->buckets[hash & (shard->nbuckets - 1)];
    while (topic && !(topic->hash == hash && topic->kind == kind && topic->len == name.len &&
                      (name.len == 0 || memcmp(topic->name, name.ptr, name.len) == 0)))
        topic = topic->next;
    return topic;
}

static bool shard_resize(struct pubsub *hub, struct shard *shard, size_t nbuckets)
{
    struct topic **buckets = calloc(nbuckets, sizeof(*buckets));
    if (!buckets)
        return false;
    for (size_t i = 0; i < shard->nbuckets; i++) {
        for (struct topic *topic = shard->buckets[i], *next; topic; topic = next) {
            next = topic->next;
            topic->next = buckets[topic->hash & (nbuckets - 1)];
            buckets[topic->hash & (nbuckets - 1)] = topic;
        }
    }
    hub_account(hub, nbuckets * sizeof(*buckets), true);
    hub_account(hub, shard->nbuckets * sizeof(*buckets), false);
    free(shard->buckets);
    shard->buckets = buckets;
    shard->nbuckets = nbuckets;
    return true;
}

static bool hub_insert(struct pubsub *hub, struct topic *topic)
{
    struct shard *shard = shard_of(hub, topic->hash);
    if (shard->ntopics == shard->nbuckets &&
        !shard_resize(hub, shard, shard->nbuckets ? shard->nbuckets * 2 : BUCKETS_MIN) && !shard->nbuckets)
        return false; /* a table that could not grow serves as well */
    struct topic **bucket = &shard->buckets[topic->hash & (shard->nbuckets - 1)];
    topic->next = *bucket;
    *bucket = topic;
    shard->ntopics++;
    atomic_fetch_add(&hub->topics[topic->kind], 1);
    if (topic->kind == PUBSUB_PATTERN) {
        link_insert(&hub->patterns, &topic->link);
        atomic_fetch_add(&hub->pattern_bytes, topic->rest_is_star ? 0 : topic->len - topic->literal);
    }
    return true;
}

static void hub_remove(struct pubsub *hub, struct topic *topic)
{
    struct shard *shard = shard_of(hub, topic->hash);
    struct topic **at = &shard->buckets[topic->hash & (shard->nbuckets - 1)];
    while (*at != topic)
        at = &(*at)->next;
    *at = topic->next;
    atomic_fetch_sub(&hub->topics[topic->kind], 1);
    if (topic->kind == PUBSUB_PATTERN) {
        link_remove(&topic->link);
        atomic_fetch_sub(&hub->pattern_bytes, topic->rest_is_star ? 0 : topic->len - topic->literal);
    }
    if (--shard->ntopics == 0) {
        hub_account(hub, shard->nbuckets * sizeof(*shard->buckets), false);
        free(shard->buckets);
        shard->buckets = NULL;
        shard->nbuckets = 0;
    } else if (shard->nbuckets > BUCKETS_MIN && shard->ntopics < shard->nbuckets / 8) {
        shard_resize(hub, shard, shard->nbuckets / 2); /* if there is no memory for less, it stays */
    }
}

void link_insert(struct pattern_link *before, struct pattern_link *link)
{
    link->next = before;
    link->prev = before->prev;
    before->prev->next = link;
    before->prev = link;
}

void link_remove(struct pattern_link *link)
{
    link->prev->next = link->next;
    link->next->prev = link->prev;
}

/* ---- topics and audiences ---------------------------------------------------------------------------------------- */

static size_t topic_bytes(size_t len)
{
    return sizeof(struct topic) + len;
}

static struct topic *topic_create(struct pubsub *hub, enum pubsub_kind kind, struct slice name, uint64_t hash)
{
    struct topic *topic = malloc(topic_bytes(name.len));
    if (!topic)
        return NULL;
    *topic = (struct topic){.kind = kind, .hash = hash, .len = (uint32_t)name.len, .size = 1};
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

/* The audience of the loop, made if there is none; NULL without memory. */
static struct audience *topic_audience(struct pubsub *hub, struct topic *topic, unsigned loop)
{
    for (uint32_t i = 0; i < topic->naudiences; i++) {
        if (topic->audiences[i]->loop == loop)
            return topic->audiences[i];
    }
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
    pthread_mutex_lock(&hub->lock);
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
    pthread_mutex_unlock(&hub->lock);
    return audience;
}

static void hub_leave(struct pubsub *hub, struct audience *audience)
{
    bool last = false;
    pthread_mutex_lock(&hub->lock);
    if (--audience->count == 0) {
        last = true;
        topic_remove_audience(audience->topic, audience);
        if (audience->topic->naudiences == 0)
            hub_remove(hub, audience->topic);
    }
    pthread_mutex_unlock(&hub->lock);
    if (last)
        audience_unref(hub, audience);
}

/* ---- the subscriptions of a client ------------------------------------------------------------------------------- */

static size_t subscription_bytes(size_t len)
{
    return sizeof(struct subscription) + sizeof(struct audience) + topic_bytes(len) + 2 * sizeof(void *);
}

static struct subscription **client_place(struct pubsub_client *client, enum pubsub_kind kind, struct slice name,
                                          uint64_t hash)
{
    struct subscription **at = &client->buckets[hash & (client->nbuckets - 1)];
    for (; *at; at = &(*at)->next_in_bucket) {
        const struct topic *topic = (*at)->audience->topic;
        if (topic->hash == hash && topic->kind == kind && topic->len == name.len &&
            (name.len == 0 || memcmp(topic->name, name.ptr, name.len) == 0))
            break;
    }
    return at;
}

static bool client_resize(struct pubsub_client *client, size_t nbuckets)
{
    struct subscription **buckets = calloc(nbuckets, sizeof(*buckets));
    if (!buckets)
        return false;
    for (size_t i = 0; i < client->nbuckets; i++) {
        for (struct subscription *sub = client->buckets[i], *next; sub; sub = next) {
            next = sub->next_in_bucket;
            struct subscription **bucket = &buckets[sub->audience->topic->hash & (nbuckets - 1)];
            sub->next_in_bucket = *bucket;
            *bucket = sub;
        }
    }
    hub_account(client->hub, nbuckets * sizeof(*buckets), true);
    hub_account(client->hub, client->nbuckets * sizeof(*buckets), false);
    free(client->buckets);
    client->buckets = buckets;
    client->nbuckets = nbuckets;
    return true;
}

static void client_add(struct pubsub_client *client, enum pubsub_kind kind, struct subscription *sub,
                       struct subscription **place)
{
    struct audience *audience = sub->audience;
    sub->next_in_bucket = *place;
    *place = sub;
    sub->older = client->newest[kind];
    if (sub->older)
        sub->older->newer = sub;
    else
        client->oldest[kind] = sub;
    client->newest[kind] = sub;
    sub->next = audience->first;
    if (sub->next)
        sub->next->prev = sub;
    audience->first = sub;
    client->count[kind]++;
    if (client->nsubs++ == client->count[PUBSUB_MONITOR] && kind != PUBSUB_MONITOR)
        atomic_fetch_add(&client->hub->clients, 1);
    client->bytes += subscription_bytes(audience->topic->len);
    hub_account(client->hub, sizeof(*sub), true);
}

/* Takes the subscription that is at `place` out of everything and frees it. */
static void client_remove(struct pubsub_client *client, struct subscription **place)
{
    struct subscription *sub = *place;
    struct audience *audience = sub->audience;
    enum pubsub_kind kind = audience->topic->kind;
    *place = sub->next_in_bucket;
    *(sub->older ? &sub->older->newer : &client->oldest[kind]) = sub->newer;
    *(sub->newer ? &sub->newer->older : &client->newest[kind]) = sub->older;
    *(sub->prev ? &sub->prev->next : &audience->first) = sub->next;
    if (sub->next)
        sub->next->prev = sub->prev;
    client->count[kind]--;
    client->nsubs--;
    if (kind != PUBSUB_MONITOR && client->nsubs == client->count[PUBSUB_MONITOR])
        atomic_fetch_sub(&client->hub->clients, 1);
    client->bytes -= subscription_bytes(audience->topic->len);
    hub_account(client->hub, sizeof(*sub), false);
    free(sub);
    hub_leave(client->hub, audience);
}

int pubsub_subscribe(struct pubsub_client *client, enum pubsub_kind kind, struct slice name, size_t max_bytes)
{
    uint64_t hash = hub_hash(client->hub, kind, name);
    if (client->nbuckets && *client_place(client, kind, name, hash))
        return PUBSUB_SAME;
    if (client->bytes + subscription_bytes(name.len) > max_bytes)
        return PUBSUB_LIMIT;
    if (client->nsubs == client->nbuckets &&
        !client_resize(client, client->nbuckets ? client->nbuckets * 2 : BUCKETS_MIN) && !client->nbuckets)
        return -ENOMEM;

    struct subscription *sub = malloc(sizeof(*sub));
    if (!sub)
        return -ENOMEM;
    *sub = (struct subscription){.client = client};
    sub->audience = hub_join(client->hub, kind, name, hash, client->loop, &sub->since);
    if (!sub->audience) {
        free(sub);
        return -ENOMEM;
    }
    client_add(client, kind, sub, &client->buckets[hash & (client->nbuckets - 1)]);
    return PUBSUB_OK;
}

int pubsub_unsubscribe(struct pubsub_client *client, enum pubsub_kind kind, struct slice name)
{
    if (!client->nbuckets)
        return PUBSUB_SAME;
    struct subscription **place = client_place(client, kind, name, hub_hash(client->hub, kind, name));
    if (!*place)
        return PUBSUB_SAME;
    client_remove(client, place);
    return PUBSUB_OK;
}

bool pubsub_unsubscribe_next(struct pubsub_client *client, enum pubsub_kind kind,
                             void (*ended)(void *ctx, struct slice name), void *ctx)
{
    struct subscription *sub = client->oldest[kind];
    if (!sub)
        return false;
    struct topic *topic = sub->audience->topic;
    topic_ref(topic); /* the name is still needed */
    client_remove(client, client_place(client, kind, topic_name(topic), topic->hash));
    if (ended)
        ended(ctx, topic_name(topic));
    topic_unref(client->hub, topic);
    return true;
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
    hub_account(hub, sizeof(*client), true);
    *client_out = client;
    return 0;
}

void pubsub_client_destroy(struct pubsub_client *client)
{
    if (!client)
        return;
    for (int kind = 0; kind < PUBSUB_KINDS; kind++) {
        while (pubsub_unsubscribe_next(client, (enum pubsub_kind)kind, NULL, NULL))
            ;
    }
    hub_account(client->hub, sizeof(*client) + client->nbuckets * sizeof(*client->buckets), false);
    free(client->buckets);
    free(client);
}

/* ---- the hub ----------------------------------------------------------------------------------------------------- */

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
    pthread_mutex_init(&hub->lock, NULL);
    hub->patterns.prev = hub->patterns.next = &hub->patterns;
    hub->nloops = nloops;
    hub->inboxes = inboxes;
    hub->wake = wake;
    hub->ctx = ctx;
    memset(inboxes, 0, nloops * sizeof(struct inbox));
    for (unsigned i = 0; i < nloops; i++) {
        pthread_mutex_init(&hub->inboxes[i].lock, NULL);
        hub->inboxes[i].last = &hub->inboxes[i].first;
    }
    *hub_out = hub;
    return 0;
}

void pubsub_destroy(struct pubsub *hub)
{
    if (!hub)
        return;
    for (unsigned i = 0; i < hub->nloops; i++) {
        inbox_drop(hub, &hub->inboxes[i]);
        pthread_mutex_destroy(&hub->inboxes[i].lock);
    }
    pthread_mutex_destroy(&hub->lock);
    free(hub->inboxes);
    free(hub);
}
