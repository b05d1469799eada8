/* Shared between pubsub.c (topics, clients), pubsub_publish.c (messages) and pubsub_list.c only. */
#ifndef BLOOMERY_PUBSUB_INTERNAL_H
#define BLOOMERY_PUBSUB_INTERNAL_H

#include <pthread.h>

#include "pubsub.h"

#define SHARDS 256 /* of the table of topics: growing one moves a few thousand topics at a million channels */

struct topic;

/* A place in the list of patterns. Whoever lets go of the lock while walking it keeps its place with a link of its own
 * that has no topic; others step over it. */
struct pattern_link {
    struct pattern_link *prev, *next;
    struct topic *topic;
};

/* The clients of one loop that subscribe to one topic. Referenced by the topic while there are any, and by messages
 * that are on their way to them. */
struct audience {
    _Atomic uint32_t refs;
    uint32_t loop;
    struct topic *topic;         /* holds a reference */
    uint64_t count;              /* under the hub's lock */
    struct subscription *first;  /* the loop's own: read and changed by its thread only */
};

struct topic {
    _Atomic uint32_t refs;       /* of audiences, and of a publisher that matches outside the lock */
    uint32_t naudiences, size;   /* this and the following under the hub's lock */
    struct audience **audiences;
    struct audience *inline_audience[1]; /* most have listeners on one loop */
    struct topic *next;          /* in its bucket */
    struct pattern_link link;    /* of a pattern */
    uint64_t hash;
    uint32_t len, literal;       /* constant: of the name; of what comes before a pattern's first special byte */
    enum pubsub_kind kind;
    bool rest_is_star;           /* what follows the literal is "*" */
    char name[];
};

struct subscription {
    struct pubsub_client *client;
    struct audience *audience;
    struct subscription *prev, *next;         /* of the audience */
    struct subscription *next_in_bucket;      /* of the client's table */
    struct subscription *older, *newer;       /* of the client, of its kind */
    uint64_t since;                           /* messages up to this number came before it */
};

struct pubsub_client {
    struct pubsub *hub;
    void *owner;
    unsigned loop;
    size_t nsubs, nbuckets;
    struct subscription **buckets;
    size_t count[PUBSUB_KINDS];
    struct subscription *oldest[PUBSUB_KINDS], *newest[PUBSUB_KINDS];
    size_t bytes;
};

struct message;

struct message_node {
    struct message_node *next;
    struct message *message;
};

struct inbox {
    pthread_mutex_t lock;
    struct message_node *first, **last;
    bool scheduled;                      /* wake() has been called and pubsub_woken() has not */
    _Alignas(64) _Atomic size_t bytes;   /* of messages not delivered yet */
    _Atomic unsigned lost;
    struct message_node *taken;          /* the loop's own: what it has begun to deliver */
    uint64_t stamp;                      /* under the hub's lock: the last message that went here */
};

struct shard {
    struct topic **buckets;
    size_t nbuckets, ntopics;
};

struct pubsub {
    pthread_mutex_t lock;
    struct shard shards[SHARDS];
    struct pattern_link patterns;        /* head of the list, without a topic */
    uint64_t seed;
    uint64_t sequence;                   /* of the last message */
    unsigned nloops;
    struct inbox *inboxes;
    void (*wake)(void *ctx, unsigned loop);
    void *ctx;

    /* Read for each piece of input of every client, written when subscriptions come and go; so not in one cache line
     * with what every message writes. */
    _Alignas(64) _Atomic uint64_t topics[PUBSUB_KINDS];
    _Atomic uint64_t pattern_bytes;      /* of what has to be matched byte by byte */
    _Atomic uint64_t clients;
    _Alignas(64) _Atomic uint64_t bytes;
    _Atomic uint64_t lost;
};

struct topic *hub_find(struct pubsub *hub, enum pubsub_kind kind, struct slice name, uint64_t hash);
uint64_t hub_hash(const struct pubsub *hub, enum pubsub_kind kind, struct slice name);
void hub_account(struct pubsub *hub, size_t bytes, bool more);

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

void link_insert(struct pattern_link *before, struct pattern_link *link);
void link_remove(struct pattern_link *link);

void inbox_drop(struct pubsub *hub, struct inbox *inbox);

#endif
