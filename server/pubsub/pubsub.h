/* pubsub: who listens to what, and the way of a message from a publisher to the loops that serve its listeners.
 *
 * A hub holds topics: channels, patterns, shard channels, and one topic for monitors. A client is served by one loop
 * (a number) for its whole life. Publishing finds the listeners' loops under the hub's lock, makes one message with
 * one copy of the payload, shared and counted, and puts it into the inbox of each loop concerned; the loop is woken
 * and delivers it to its own clients with pubsub_deliver(). So each loop sees all messages in one order, the order of
 * publication, and a client never gets a message that was published before it subscribed.
 *
 * Bounds: what waits in an inbox is counted; publishers are told when it is much (they should slow down), and past
 * PUBSUB_INBOX_MAX messages are dropped and the loop is told that its clients have lost some (it disconnects them, so
 * that a loss is never silent). The subscriptions of a client are bounded by its memory limit.
 *
 * The hub knows neither connection nor loop nor protocol state. Thread rule: a client, and deliveries to a loop,
 * belong to that loop's thread; everything else: any. The hub's lock is a leaf but for `wake`. */
#ifndef BLOOMERY_PUBSUB_H
#define BLOOMERY_PUBSUB_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "resp_parse.h"

/* Bytes waiting for a loop, past which publishers should wait: a few milliseconds of its work. */
#define PUBSUB_INBOX_HIGH ((size_t)4 * 1024 * 1024)

/* Bytes waiting for a loop, past which messages are dropped. */
#define PUBSUB_INBOX_MAX ((size_t)64 * 1024 * 1024)

/* Bytes of a channel: the longest filter name and its prefix fit; more is a mistake, and expensive to match. And of a
 * pattern, as for KEYS. */
#define PUBSUB_MAX_NAME    (128 * 1024)
#define PUBSUB_MAX_PATTERN 4096

struct pubsub;
struct pubsub_client;

enum pubsub_kind { PUBSUB_CHANNEL, PUBSUB_PATTERN, PUBSUB_SHARD, PUBSUB_MONITOR, PUBSUB_KINDS };

/* A hub for loops 0..nloops-1. `wake(ctx, loop)` is called, under locks of the hub, when the loop has to call
 * pubsub_woken(); it must be quick, must not fail and must not call the hub. 0 or -ENOMEM. */
int pubsub_create(struct pubsub **hub_out, unsigned nloops, void (*wake)(void *ctx, unsigned loop), void *ctx);

/* No client may be left; messages that were not delivered are dropped. NULL is fine. */
void pubsub_destroy(struct pubsub *hub);

/* ---- clients: the thread of their loop --------------------------------------------------------------------------- */

/* `owner` is what pubsub_deliver() hands back. 0 or -ENOMEM. */
int pubsub_client_create(struct pubsub_client **client_out, struct pubsub *hub, unsigned loop, void *owner);

/* Ends all its subscriptions. Nothing is delivered to it any more. NULL is fine. Not from within a delivery. */
void pubsub_client_destroy(struct pubsub_client *client);

enum pubsub_status {
    PUBSUB_OK = 0,
    PUBSUB_SAME = 1,  /* already subscribed, or not subscribed: nothing has changed */
    PUBSUB_LIMIT = 2, /* the client's subscriptions would take more than `max_bytes` */
};

/* PUBSUB_OK, _SAME, _LIMIT or -ENOMEM. */
int pubsub_subscribe(struct pubsub_client *client, enum pubsub_kind kind, struct slice name, size_t max_bytes);

/* PUBSUB_OK or _SAME. */
int pubsub_unsubscribe(struct pubsub_client *client, enum pubsub_kind kind, struct slice name);

/* Ends one subscription of the kind, the oldest; `ended(ctx, name)` is called with its name, valid during the call,
 * when it has ended. False: there is none. */
bool pubsub_unsubscribe_next(struct pubsub_client *client, enum pubsub_kind kind,
                             void (*ended)(void *ctx, struct slice name), void *ctx);

size_t pubsub_client_count(const struct pubsub_client *client, enum pubsub_kind kind);

/* Memory that the client's subscriptions take, the shared parts counted in full. */
size_t pubsub_client_bytes(const struct pubsub_client *client);

/* ---- publishing: any thread -------------------------------------------------------------------------------------- */

struct pubsub_receipt {
    uint64_t receivers; /* subscriptions that it was sent to */
    bool slow;          /* more than PUBSUB_INBOX_HIGH waits for a loop that it went to */
};

/* Publishes to the channel (kind PUBSUB_CHANNEL: to matching patterns too), to the shard channel, or to all monitors
 * (the channel is nothing then, the payload is sent as it is). 0, or -ENOMEM: nobody was sent it.
 *
 * With no subscription at all this costs one load. It takes the hub's lock for short times only, but the matching of
 * many or long patterns may take long in all: see pubsub_is_costly(). */
int pubsub_publish(struct pubsub *hub, enum pubsub_kind kind, struct slice channel, struct slice payload,
                   struct pubsub_receipt *receipt_out);

/* Whether publishing to this channel may take more than a millisecond or so and should not be done on a loop. */
bool pubsub_is_costly(const struct pubsub *hub, struct slice channel);

/* Whether anybody listens to anything of the kind (for channels: patterns count too). One or two loads. */
bool pubsub_has_listeners(const struct pubsub *hub, enum pubsub_kind kind);

/* For a message that should have been published but cannot be: all listeners of the kind are told that they have lost
 * one. */
void pubsub_lose(struct pubsub *hub, enum pubsub_kind kind);

/* ---- delivery: the loop's thread --------------------------------------------------------------------------------- */

/* What one client gets of one message. */
struct pubsub_delivery {
    enum pubsub_kind kind;  /* of the subscription */
    struct slice pattern;   /* PUBSUB_PATTERN: which one */
    struct slice channel;
    struct slice payload;
    struct slice tail;      /* channel and payload as two RESP bulk strings, one behind the other; not for monitors */
};

/* Delivers what has arrived for the loop: `deliver` is called for each client in the order of publication, with its
 * owner; it must not subscribe, unsubscribe or destroy clients. Stops after about `max_bytes` of messages times
 * receivers. True: there is more. */
bool pubsub_deliver(struct pubsub *hub, unsigned loop, size_t max_bytes,
                    void (*deliver)(void *owner, const struct pubsub_delivery *delivery));

/* To be called after a `wake`, before pubsub_deliver(): the next message wakes again. */
void pubsub_woken(struct pubsub *hub, unsigned loop);

/* Wakes the loop as a new message would: when it has stopped delivering before the end. */
void pubsub_wake(struct pubsub *hub, unsigned loop);

/* Whether there is something to deliver. One load. */
bool pubsub_pending(const struct pubsub *hub, unsigned loop);

/* Whether more than PUBSUB_INBOX_HIGH waits for any loop. */
bool pubsub_slow(const struct pubsub *hub);

/* The kinds (bit 1 << kind) of which clients of this loop have lost messages since the last call: PUBSUB_CHANNEL
 * stands for all but monitors. To be asked after pubsub_deliver(). */
unsigned pubsub_take_lost(struct pubsub *hub, unsigned loop);

/* ---- what PUBSUB and INFO ask: any thread ------------------------------------------------------------------------ */

struct pubsub_totals {
    uint64_t topics[PUBSUB_KINDS];        /* channels, patterns, shard channels that have a subscriber */
    uint64_t clients;                     /* with a subscription other than MONITOR */
    uint64_t monitors;
    uint64_t bytes;                       /* memory of topics, subscriptions and undelivered messages */
    uint64_t lost;                        /* messages dropped since the start, per loop */
};
void pubsub_totals(struct pubsub *hub, struct pubsub_totals *totals_out);

/* Subscribers of a channel or shard channel. */
uint64_t pubsub_subscribers(struct pubsub *hub, enum pubsub_kind kind, struct slice name);

/* Appends the names of channels or shard channels that match the pattern (NULL: all) to `out` by `add(ctx, name)`. A
 * channel that has a subscriber throughout is among them. Not on a loop. 0 or -ENOMEM. */
int pubsub_list(struct pubsub *hub, enum pubsub_kind kind, const struct slice *pattern,
                void (*add)(void *ctx, struct slice name), void *ctx);

#endif
