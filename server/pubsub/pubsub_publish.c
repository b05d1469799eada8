/* Messages: from a publisher to the inboxes of loops, and from there to clients.
 *
 * A publisher collects the audiences of the message, then puts it into the inbox of each of their loops, all under the
 * hub's lock. So all inboxes have one order of messages. Matching a pattern can take long (up to the product of two
 * lengths), and there can be many patterns; the publisher releases the lock while it matches long ones. A subscription
 * that begins or ends meanwhile may or may not count, as if it had come a moment later or earlier. */
#include "pubsub_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "glob_match.h"
#include "lock.h"

#define STEPS_LOCKED  (64 * 1024)   /* of matching, some 100 us, without releasing the lock */
#define STEPS_PATTERN 32            /* cost in steps of a pattern that its literal does not decide */
#define STEPS_ON_LOOP (1024 * 1024) /* that a loop may take for one message */
#define HITS_INLINE   32

struct message {
    _Atomic uint32_t refs; /* one for each inbox */
    enum pubsub_kind kind; /* PUBSUB_CHANNEL, PUBSUB_SHARD or PUBSUB_MONITOR */
    uint64_t sequence;
    size_t bytes; /* its size in the count of an inbox */
    struct slice channel, payload, tail;
    struct audience **hits; /* with a reference each */
    size_t nhits;
    struct message_node nodes[];
};

/* The audiences found for a message. */
struct hits {
    struct audience **items;
    size_t count, size;
    struct audience *place[HITS_INLINE];
};

/* ---- collecting ---- */

static bool hits_add(struct hits *hits, const struct topic *topic)
{
    if (hits->count + topic->naudiences > hits->size) {
        size_t size = (hits->count + topic->naudiences) * 2;
        bool inlined = hits->items == hits->place;
        struct audience **items = realloc(inlined ? NULL : hits->items, size * sizeof(*items));
        if (!items)
            return false;
        if (inlined)
            memcpy(items, hits->place, hits->count * sizeof(*items));
        hits->items = items;
        hits->size = size;
    }
    for (uint32_t i = 0; i < topic->naudiences; i++) {
        audience_ref(topic->audiences[i]);
        hits->items[hits->count++] = topic->audiences[i];
    }
    return true;
}

/* Whether the channel begins with the pattern's literal part. This alone refuses most patterns and accepts those that
 * end in their only star. */
static bool prefix_matches(const struct topic *topic, struct slice channel)
{
    return channel.len >= topic->literal &&
           (topic->literal == 0 || memcmp(channel.ptr, topic->name, topic->literal) == 0);
}

/* Adds the audiences of all patterns that match. Called under the lock, which it releases for long ones: `place` keeps
 * the place behind the topic in the list meanwhile. */
static bool match_patterns(struct pubsub *hub, struct slice channel, struct hits *hits)
{
    size_t steps = 0;
    bool ok = true;
    for (struct pattern_link *at = TAILQ_FIRST(&hub->patterns), *next; ok && at; at = next) {
        struct topic *topic = at->topic;
        struct pattern_link place = {.topic = NULL};
        next = TAILQ_NEXT(at, link);
        if (!topic)
            continue; /* the place of another publisher */
        bool matches = prefix_matches(topic, channel), decided = !matches || topic->rest_is_star;
        steps += STEPS_PATTERN;
        steps += decided ? 0 : (size_t)(topic->len - topic->literal) * (channel.len - topic->literal);
        bool unlocks = steps > STEPS_LOCKED;
        if (unlocks) {
            TAILQ_INSERT_AFTER(&hub->patterns, at, &place, link);
            topic_ref(topic);
            lock_give(&hub->lock);
        }
        struct slice pattern = {topic->name + topic->literal, topic->len - topic->literal};
        if (!decided)
            matches =
                glob_match(pattern, (struct slice){channel.ptr + topic->literal, channel.len - topic->literal}, false);
        if (unlocks)
            lock_take(&hub->lock);
        ok = !matches || hits_add(hits, topic); /* a topic without subscriptions has no audience any more */
        if (unlocks) {
            next = TAILQ_NEXT(&place, link);
            TAILQ_REMOVE(&hub->patterns, &place, link);
            topic_unref(hub, topic);
            steps = 0;
        }
    }
    return ok;
}

/* ---- the message ---- */

/* Writes "$<len>\r\n<data>\r\n"; returns the end, and the place of the data in `copy_out`. */
static char *put_bulk(char *out, struct slice data, struct slice *copy_out)
{
    out += sprintf(out, "$%zu\r\n", data.len);
    if (data.len)
        memcpy(out, data.ptr, data.len);
    *copy_out = (struct slice){out, data.len};
    out += data.len;
    memcpy(out, "\r\n", 2);
    return out + 2;
}

static struct message *message_create(enum pubsub_kind kind, struct slice channel, struct slice payload, size_t nhits,
                                      size_t nloops)
{
    size_t fixed = sizeof(struct message) + nloops * sizeof(struct message_node) + nhits * sizeof(struct audience *);
    size_t size = fixed + channel.len + payload.len + 64; /* the headers of two bulk strings are shorter */
    struct message *message = malloc(size);
    if (!message)
        return NULL;
    *message = (struct message){.kind = kind, .bytes = size, .nhits = nhits};
    message->hits = (struct audience **)(void *)(message->nodes + nloops);
    char *start = (char *)message + fixed;
    if (kind == PUBSUB_MONITOR) {
        if (payload.len)
            memcpy(start, payload.ptr, payload.len);
        message->payload = (struct slice){start, payload.len};
    } else {
        char *end = put_bulk(put_bulk(start, channel, &message->channel), payload, &message->payload);
        message->tail = (struct slice){start, (size_t)(end - start)};
    }
    return message;
}

static void message_unref(struct pubsub *hub, struct message *message)
{
    if (atomic_fetch_sub_explicit(&message->refs, 1, memory_order_acq_rel) != 1)
        return;
    for (size_t i = 0; i < message->nhits; i++)
        audience_unref(hub, message->hits[i]);
    hub_account(hub, message->bytes, false);
    free(message);
}

void pubsub_wake(struct pubsub *hub, unsigned loop)
{
    if (!atomic_exchange(&hub->inboxes[loop].scheduled, true))
        hub->wake(hub->ctx, loop);
}

static void inbox_lose(struct pubsub *hub, unsigned loop, enum pubsub_kind kind)
{
    struct inbox *inbox = &hub->inboxes[loop];
    atomic_fetch_or(&inbox->lost, 1u << (kind == PUBSUB_MONITOR ? PUBSUB_MONITOR : PUBSUB_CHANNEL));
    atomic_fetch_add_explicit(&hub->lost, 1, memory_order_relaxed);
    pubsub_wake(hub, loop);
}

/* Puts the message into the inboxes, and notes a loss for those that are full. Under the lock. */
static void distribute(struct pubsub *hub, struct message *message, struct pubsub_receipt *receipt)
{
    uint64_t stamp = ++hub->sequence;
    struct message_node *node = message->nodes;
    message->sequence = stamp;
    atomic_store_explicit(&message->refs, 1, memory_order_relaxed); /* ours, until all inboxes have theirs */
    for (size_t i = 0; i < message->nhits; i++) {
        struct audience *audience = message->hits[i];
        struct inbox *inbox = &hub->inboxes[audience->loop];
        receipt->receivers += audience->count;
        if (inbox->stamp == stamp)
            continue;
        inbox->stamp = stamp;
        size_t waiting = atomic_load(&inbox->bytes);
        receipt->slow |= waiting > PUBSUB_INBOX_HIGH;
        if (waiting > PUBSUB_INBOX_MAX) {
            inbox_lose(hub, audience->loop, message->kind);
            continue;
        }
        node->message = message;
        atomic_fetch_add_explicit(&message->refs, 1, memory_order_relaxed);
        atomic_fetch_add(&inbox->bytes, message->bytes); /* before a delivery can subtract it */
        inlet_put(&inbox->nodes, &node++->link);
        pubsub_wake(hub, audience->loop);
    }
}

bool pubsub_has_listeners(const struct pubsub *hub, enum pubsub_kind kind)
{
    return atomic_load(&hub->topics[kind]) || (kind == PUBSUB_CHANNEL && atomic_load(&hub->topics[PUBSUB_PATTERN]));
}

bool pubsub_is_costly(const struct pubsub *hub, struct slice channel)
{
    uint64_t patterns = atomic_load_explicit(&hub->topics[PUBSUB_PATTERN], memory_order_relaxed);
    uint64_t bytes = atomic_load_explicit(&hub->pattern_bytes, memory_order_relaxed);
    return patterns * STEPS_PATTERN + bytes * channel.len > STEPS_ON_LOOP;
}

int pubsub_publish(struct pubsub *hub, enum pubsub_kind kind, struct slice channel, struct slice payload,
                   struct pubsub_receipt *receipt_out)
{
    *receipt_out = (struct pubsub_receipt){0, false};
    if (!pubsub_has_listeners(hub, kind))
        return 0;
    struct hits hits;
    hits.items = hits.place;
    hits.count = 0;
    hits.size = HITS_INLINE;
    struct message *message = NULL;

    lock_take(&hub->lock);
    struct topic *topic = hub_find(hub, kind, channel, hub_hash(hub, kind, channel));
    bool ok = !topic || hits_add(&hits, topic);
    if (ok && kind == PUBSUB_CHANNEL)
        ok = match_patterns(hub, channel, &hits);
    if (ok && hits.count) {
        size_t nloops = hits.count < hub->nloops ? hits.count : hub->nloops;
        message = message_create(kind, channel, payload, hits.count, nloops);
        ok = message != NULL;
    }
    if (message) {
        memcpy(message->hits, hits.items, hits.count * sizeof(*hits.items));
        hits.count = 0; /* the message owns the references now */
        hub_account(hub, message->bytes, true);
        distribute(hub, message, receipt_out);
    }
    lock_give(&hub->lock);
    if (message)
        message_unref(hub, message);
    for (size_t i = 0; i < hits.count; i++)
        audience_unref(hub, hits.items[i]);
    if (hits.items != hits.place)
        free(hits.items);
    return ok ? 0 : -ENOMEM;
}

void pubsub_lose(struct pubsub *hub, enum pubsub_kind kind)
{
    lock_take(&hub->lock);
    for (unsigned i = 0; i < hub->nloops; i++)
        if (atomic_load(&hub->inboxes[i].clients))
            inbox_lose(hub, i, kind);
    lock_give(&hub->lock);
}

/* ---- delivery ---- */

static struct message *message_of(struct inlet_link *link)
{
    return ((struct message_node *)(void *)link)->message;
}

static size_t deliver_message(unsigned loop, struct message *message,
                              void (*deliver)(void *owner, const struct pubsub_delivery *delivery))
{
    size_t receivers = 1; /* a message without subscribers left has a cost, too */
    struct pubsub_delivery delivery = {.channel = message->channel, .payload = message->payload, .tail = message->tail};
    for (size_t i = 0; i < message->nhits; i++) {
        struct audience *audience = message->hits[i];
        if (audience->loop != loop)
            continue;
        delivery.kind = audience->topic->kind;
        delivery.pattern = delivery.kind == PUBSUB_PATTERN ? topic_name(audience->topic) : (struct slice){NULL, 0};
        struct subscription *sub;
        LIST_FOREACH(sub, &audience->subscriptions, of_audience)
        {
            if (message->sequence <= sub->since)
                continue;
            deliver(sub->client->owner, &delivery);
            receivers++;
        }
    }
    return receivers;
}

bool pubsub_deliver(struct pubsub *hub, unsigned loop, size_t max_bytes,
                    void (*deliver)(void *owner, const struct pubsub_delivery *delivery))
{
    struct inbox *inbox = &hub->inboxes[loop];
    size_t bytes = 0;
    while (bytes < max_bytes) {
        if (!inbox->taken && !(inbox->taken = inlet_take(&inbox->nodes)))
            return false;
        struct message *message = message_of(inbox->taken);
        inbox->taken = inbox->taken->next;
        bytes += deliver_message(loop, message, deliver) * (message->channel.len + message->payload.len + 64);
        atomic_fetch_sub(&inbox->bytes, message->bytes);
        message_unref(hub, message);
    }
    return pubsub_pending(hub, loop);
}

void pubsub_woken(struct pubsub *hub, unsigned loop)
{
    (void)atomic_exchange(&hub->inboxes[loop].scheduled, false); /* a put before it is seen by the next take */
}

bool pubsub_pending(const struct pubsub *hub, unsigned loop)
{
    return atomic_load(&hub->inboxes[loop].bytes) != 0;
}

bool pubsub_slow(const struct pubsub *hub)
{
    for (unsigned i = 0; i < hub->nloops; i++)
        if (atomic_load(&hub->inboxes[i].bytes) > PUBSUB_INBOX_HIGH)
            return true;
    return false;
}

unsigned pubsub_take_lost(struct pubsub *hub, unsigned loop)
{
    struct inbox *inbox = &hub->inboxes[loop];
    return atomic_load_explicit(&inbox->lost, memory_order_relaxed) ? atomic_exchange(&inbox->lost, 0) : 0;
}

static void drop_nodes(struct pubsub *hub, struct inlet_link *link)
{
    while (link) {
        struct message *message = message_of(link);
        link = link->next; /* of the message's memory */
        message_unref(hub, message);
    }
}

void inbox_drop(struct pubsub *hub, struct inbox *inbox)
{
    drop_nodes(hub, inbox->taken);
    drop_nodes(hub, inlet_take(&inbox->nodes));
    inbox->taken = NULL;
    atomic_store(&inbox->bytes, 0);
}
