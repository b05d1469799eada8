/* Shared between pubsub.c (topics, clients), pubsub_publish.c (messages) and pubsub.c only. */
#pragma once

#include <sys/queue.h>

#include "hash_table.h"
#include "inlet.h"
#include "pubsub.h"
#include "lock.h"

#define SHARDS 256 /* of the table of topics: with a million channels, growing a shard moves a few thousand topics */

struct topic;

/* A link of the list of patterns. A walk that releases the lock leaves a link without a topic, which others skip. */
struct pattern_link {
    TAILQ_ENTRY(pattern_link) link;
    struct topic *topic;
};

/* The clients of one loop that subscribe to one topic. Referenced by the topic while it has clients, and by messages on
 * their way to them. */
struct audience {
    _Atomic uint32_t refs;
    uint32_t loop;
    struct topic *topic;                     /* holds a reference */
    uint64_t count;                          /* under the hub's lock */
    LIST_HEAD(, subscription) subscriptions; /* the loop's own: read and changed by its thread only */
};

struct topic {
    _Atomic uint32_t refs;     /* by audiences, and by a publisher that matches without the lock */
    uint32_t naudiences, size; /* this and the next two: under the hub's lock */
    struct audience **audiences;
    struct audience *inline_audience[1]; /* most topics have subscribers on one loop */
    struct hash_link hashed;             /* in its shard */
    struct pattern_link link;            /* of a pattern */
    uint32_t len, literal;               /* constant: length of the name; bytes before a pattern's first special byte */
    enum pubsub_kind kind;
    bool rest_is_star; /* the pattern is the literal and "*" */
    char name[];
};

struct subscription {
    struct pubsub_client *client;
    struct audience *audience;
    LIST_ENTRY(subscription) of_audience;
    TAILQ_ENTRY(subscription) by_age; /* of the client, of its kind */
    struct hash_link hashed;          /* in the client's table */
    uint64_t since;                   /* number of the last message before it */
};

struct pubsub_client {
    struct pubsub *hub;
    void *owner;
    unsigned loop;
    struct hash_table subs;
    size_t count[PUBSUB_KINDS];
    TAILQ_HEAD(, subscription) by_age[PUBSUB_KINDS]; /* the oldest first */
    size_t bytes;
};

struct message;

struct message_node {
    struct inlet_link link; /* the first member */
    struct message *message;
};

struct inbox {
    struct inlet nodes;
    atomic_bool scheduled;             /* wake() has been called and pubsub_woken() has not */
    _Alignas(64) _Atomic size_t bytes; /* of messages not delivered yet */
    _Atomic unsigned lost;
    _Atomic unsigned clients; /* of the loop; without any it need not have started */
    struct inlet_link *taken; /* the loop's own: nodes of messages that it has begun to deliver */
    uint64_t stamp;           /* under the hub's lock: the last message put here */
};

struct pubsub {
    struct lock lock;
    struct hash_table shards[SHARDS]; /* of topics, by the top bits of their hash */
    TAILQ_HEAD(, pattern_link) patterns;
    uint64_t seed;
    uint64_t sequence; /* of the last message */
    unsigned nloops;
    struct inbox *inboxes;
    void (*wake)(void *ctx, unsigned loop);
    void *ctx;

    /* Read at every read from a client, written when subscriptions come and go: not in a line that messages write. */
    _Alignas(64) _Atomic uint64_t topics[PUBSUB_KINDS];
    _Atomic uint64_t pattern_bytes; /* of patterns that are matched byte by byte */
    _Atomic uint64_t clients;
    _Alignas(64) _Atomic uint64_t bytes;
    _Atomic uint64_t lost;
};

struct topic *hub_find(struct pubsub *hub, enum pubsub_kind kind, struct slice name, uint64_t hash);
uint64_t hub_hash(const struct pubsub *hub, enum pubsub_kind kind, struct slice name);
void hub_account(struct pubsub *hub, size_t bytes, bool more);

static inline struct topic *topic_of(struct hash_link *link)
{
    return HASH_OBJECT(link, struct topic, hashed);
}

static inline struct slice topic_name(const struct topic *topic)
{
    return (struct slice){topic->name, topic->len};
}

void topic_unref(struct pubsub *hub, struct topic *topic);
void audience_unref(struct pubsub *hub, struct audience *audience);

static inline void topic_ref(struct topic *topic)
{
    atomic_fetch_add_explicit(&topic->refs, 1, memory_order_relaxed);
}

static inline void audience_ref(struct audience *audience)
{
    atomic_fetch_add_explicit(&audience->refs, 1, memory_order_relaxed);
}

void inbox_drop(struct pubsub *hub, struct inbox *inbox);
