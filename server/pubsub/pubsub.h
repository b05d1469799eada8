/* pubsub: subscriptions, and the way of a message from a publisher to the loops of its subscribers.
 *
 * A hub holds topics: channels, patterns, shard channels, and one topic for monitors. One loop (a number) serves a
 * client for its whole life. Under the hub's lock, a publisher finds the subscribers' loops, makes one message with a
 * shared, counted copy of the payload, puts it into the inbox of each loop and wakes them. A loop delivers to its own
 * clients with pubsub_deliver(). So each loop sees all messages in one order, the order of publication, and a client
 * never gets a message that was published before it subscribed.
 *
 * Bounds: an inbox counts its pending bytes. Past PUBSUB_INBOX_HIGH publishers are asked to wait. Past PUBSUB_INBOX_MAX
 * messages are dropped, and the loop disconnects the clients that lost some, so that a loss is never silent. A memory
 * limit bounds the subscriptions of a client.
 *
 * The hub knows neither connection nor loop nor protocol state. Thread rule: a client, and deliveries to a loop, belong
 * to that loop's thread; all else: any. Under the hub's lock only `wake` is called; no other lock is taken. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "resp_parse.h"

/* Pending bytes of a loop past which publishers should wait: a few milliseconds of its work. */
#define PUBSUB_INBOX_HIGH ((size_t)4 * 1024 * 1024)

/* Pending bytes of a loop past which messages are dropped. */
#define PUBSUB_INBOX_MAX ((size_t)64 * 1024 * 1024)

/* Bytes of a channel: the longest filter name and its prefix fit; a longer one is a mistake, and expensive to match.
 * And bytes of a pattern, as for KEYS. */
#define PUBSUB_MAX_NAME    (128 * 1024)
#define PUBSUB_MAX_PATTERN 4096

struct pubsub;
struct pubsub_client;

enum pubsub_kind { PUBSUB_CHANNEL, PUBSUB_PATTERN, PUBSUB_SHARD, PUBSUB_MONITOR, PUBSUB_KINDS };

/* Creates a hub for loops 0..nloops-1. The hub calls `wake(ctx, loop)`, under its locks, when the loop must call
 * pubsub_woken(); `wake` must be quick, must not fail and must not call the hub. 0 or -ENOMEM. */
int pubsub_create(struct pubsub **hub_out, unsigned nloops, void (*wake)(void *ctx, unsigned loop), void *ctx);

/* All clients must be gone; undelivered messages are dropped. NULL is fine. */
void pubsub_destroy(struct pubsub *hub);

/* ---- clients: the thread of their loop ---- */

/* pubsub_deliver() hands `owner` back. 0 or -ENOMEM. */
int pubsub_client_create(struct pubsub_client **client_out, struct pubsub *hub, unsigned loop, void *owner);

/* Ends all subscriptions of the client; nothing is delivered to it any more. NULL is fine. Not within a delivery. */
void pubsub_client_destroy(struct pubsub_client *client);

enum pubsub_status {
    PUBSUB_OK = 0,
    PUBSUB_SAME = 1,  /* already (un)subscribed: nothing has changed */
    PUBSUB_LIMIT = 2, /* the client's subscriptions would take more than `max_bytes` */
};

/* PUBSUB_OK, _SAME, _LIMIT or -ENOMEM. */
int pubsub_subscribe(struct pubsub_client *client, enum pubsub_kind kind, struct slice name, size_t max_bytes);

/* PUBSUB_OK or _SAME. */
int pubsub_unsubscribe(struct pubsub_client *client, enum pubsub_kind kind, struct slice name);

/* Ends the oldest subscription of the kind and calls `ended(ctx, name)`, a name for the call only. False: none. */
bool pubsub_unsubscribe_next(struct pubsub_client *client, enum pubsub_kind kind,
                             void (*ended)(void *ctx, struct slice name), void *ctx);

/* Calls fn(ctx, name) for the client's subscriptions of the kind, the oldest first; fn must not change any. */
void pubsub_client_each(const struct pubsub_client *client, enum pubsub_kind kind,
                        void (*fn)(void *ctx, struct slice name), void *ctx);

size_t pubsub_client_count(const struct pubsub_client *client, enum pubsub_kind kind);

/* Memory of the client's subscriptions, shared parts counted in full. */
size_t pubsub_client_bytes(const struct pubsub_client *client);

/* ---- publishing: any thread ---- */

struct pubsub_receipt {
    uint64_t receivers; /* subscriptions that get it */
    bool slow;          /* the inbox of one of its loops is above PUBSUB_INBOX_HIGH */
};

/* Publishes to the channel (kind PUBSUB_CHANNEL: to matching patterns too), to the shard channel, or to all monitors
 * (without a channel, and the payload is sent as it is). 0, or -ENOMEM with nothing sent.
 *
 * Without subscriptions this costs one load. It holds the hub's lock for short times only, but matching many or long
 * patterns may take long in all: see pubsub_is_costly(). */
int pubsub_publish(struct pubsub *hub, enum pubsub_kind kind, struct slice channel, struct slice payload,
                   struct pubsub_receipt *receipt_out);

/* Whether publishing to this channel may take more than about a millisecond, so that a loop should not do it. */
bool pubsub_is_costly(const struct pubsub *hub, struct slice channel);

/* Whether the kind has subscribers (for channels, those of patterns count too). One or two loads. */
bool pubsub_has_listeners(const struct pubsub *hub, enum pubsub_kind kind);

/* For a message that cannot be published: notes a loss for all subscribers of the kind. Loops without clients are not
 * woken: they need not have started. */
void pubsub_lose(struct pubsub *hub, enum pubsub_kind kind);

/* ---- delivery: the loop's thread ---- */

/* One message for one client. */
struct pubsub_delivery {
    enum pubsub_kind kind; /* of the subscription */
    struct slice pattern;  /* PUBSUB_PATTERN: the one that matched */
    struct slice channel;
    struct slice payload;
    struct slice tail; /* channel and payload as two consecutive RESP bulk strings; not for monitors */
};

/* Delivers the loop's pending messages: calls `deliver` for each client in the order of publication, with its owner.
 * `deliver` must not subscribe, unsubscribe or destroy clients. Stops after about `max_bytes` of messages times
 * receivers. True: more are pending. */
bool pubsub_deliver(struct pubsub *hub, unsigned loop, size_t max_bytes,
                    void (*deliver)(void *owner, const struct pubsub_delivery *delivery));

/* Called after a `wake`, before pubsub_deliver(): the next message wakes again. */
void pubsub_woken(struct pubsub *hub, unsigned loop);

/* Wakes the loop as a new message would, for a loop that stopped delivering before the end. */
void pubsub_wake(struct pubsub *hub, unsigned loop);

/* Whether messages are pending for the loop. One load. */
bool pubsub_pending(const struct pubsub *hub, unsigned loop);

/* Whether any loop's inbox is above PUBSUB_INBOX_HIGH. */
bool pubsub_slow(const struct pubsub *hub);

/* The kinds (bit 1 << kind) of which clients of this loop have lost messages since the last call; PUBSUB_CHANNEL
 * represents all except monitors. Called after pubsub_deliver(). */
unsigned pubsub_take_lost(struct pubsub *hub, unsigned loop);

/* ---- queries of PUBSUB and INFO: any thread ---- */

struct pubsub_totals {
    uint64_t topics[PUBSUB_KINDS]; /* channels, patterns, shard channels with a subscriber */
    uint64_t clients;              /* with a subscription other than MONITOR */
    uint64_t monitors;
    uint64_t bytes; /* memory of topics, subscriptions and undelivered messages */
    uint64_t lost;  /* messages dropped since the start, per loop */
};
void pubsub_totals(struct pubsub *hub, struct pubsub_totals *totals_out);

uint64_t pubsub_bytes(const struct pubsub *hub); /* `bytes` of pubsub_totals alone, at no cost */

/* Subscribers of a channel or shard channel. */
uint64_t pubsub_subscribers(struct pubsub *hub, enum pubsub_kind kind, struct slice name);

/* Calls `add(ctx, name)` for the channels or shard channels that match the pattern (NULL: all). A channel that has a
 * subscriber throughout the call is among them. Not on a loop. 0 or -ENOMEM. */
int pubsub_list(struct pubsub *hub, enum pubsub_kind kind, const struct slice *pattern,
                void (*add)(void *ctx, struct slice name), void *ctx);
