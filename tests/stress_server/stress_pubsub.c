/* The hub under many threads: loops whose clients subscribe, unsubscribe and leave, while others publish to channels
 * that patterns match as well. Run under ThreadSanitizer and AddressSanitizer too: they detect objects freed too
 * early.
 *
 * Claims: a client that stays subscribed gets every message of each publisher, in order, once by its channel and
 * once by its pattern; all clients see the messages of all publishers in the same order; no client gets messages
 * that it has not subscribed to; a woken loop finds all of them, so no wake is lost; in the end no memory is
 * accounted for. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pubsub.h"
#include "loops.h"
#include "stress.h"

#define PUBLISHERS 3
#define MESSAGES   8000
#define CHURN      8

static struct pubsub *hub;
static _Atomic int publishing = PUBLISHERS;
static _Atomic int ready;

struct listener {
    struct pubsub_client *client;
    bool steady;
    unsigned next[PUBLISHERS]; /* the next message by the channel */
    unsigned by_pattern[PUBLISHERS];
    uint64_t order;      /* a digest of the order of all messages by the channel */
    unsigned subscribed; /* churn: which channels, one bit each */
};

static void on_message(void *owner, const struct pubsub_delivery *d)
{
    struct listener *listener = owner;
    unsigned publisher, n;
    char copy[64];
    snprintf(copy, sizeof(copy), "%.*s", (int)d->payload.len, d->payload.ptr);
    if (!listener->steady) {
        EXPECT(d->channel.len == 6 && memcmp(d->channel.ptr, "churn", 5) == 0, "somebody else's message: %s", copy);
        EXPECT(listener->subscribed & (1u << (d->channel.ptr[5] - '0')), "a message for a channel that was left");
        return;
    }
    if (sscanf(copy, "%u %u", &publisher, &n) != 2) {
        EXPECT(false, "payload '%s'", copy);
        return;
    }
    unsigned *next = d->kind == PUBSUB_PATTERN ? &listener->by_pattern[publisher] : &listener->next[publisher];
    EXPECT(n == *next, "message %u of publisher %u instead of %u", n, publisher, *next);
    *next = n + 1;
    if (d->kind == PUBSUB_CHANNEL)
        listener->order = listener->order * 31 + publisher + 1;
}

static bool complete(const struct listener *listener)
{
    for (unsigned i = 0; i < PUBLISHERS; i++) {
        if (listener->next[i] != MESSAGES || listener->by_pattern[i] != MESSAGES)
            return false;
    }
    return true;
}

/* Subscribes, unsubscribes, or leaves and comes back. */
static void churn(struct listener *listener, unsigned loop, unsigned *state)
{
    char name[8];
    unsigned n = (unsigned)rand_r(state) % CHURN;
    snprintf(name, sizeof(name), "churn%u", n);
    switch (rand_r(state) % 4) {
    case 0:
    case 1:
        EXPECT(pubsub_subscribe(listener->client, PUBSUB_CHANNEL, slice_of(name), SIZE_MAX) ==
                   (listener->subscribed & (1u << n) ? PUBSUB_SAME : PUBSUB_OK),
               "subscribe");
        listener->subscribed |= 1u << n;
        break;
    case 2:
        EXPECT(pubsub_unsubscribe(listener->client, PUBSUB_CHANNEL, slice_of(name)) ==
                   (listener->subscribed & (1u << n) ? PUBSUB_OK : PUBSUB_SAME),
               "unsubscribe");
        listener->subscribed &= ~(1u << n);
        break;
    default:
        pubsub_client_destroy(listener->client);
        listener->subscribed = 0;
        EXPECT(pubsub_client_create(&listener->client, hub, loop, listener) == 0, "create");
        break;
    }
}

static uint64_t order_of[LOOPS];

static void *loop_main(void *arg)
{
    unsigned i = (unsigned)(uintptr_t)arg, state = i + 1;
    struct listener steady = {.steady = true}, restless = {.steady = false};
    if (pubsub_client_create(&steady.client, hub, i, &steady) ||
        pubsub_client_create(&restless.client, hub, i, &restless))
        abort();
    pubsub_subscribe(steady.client, PUBSUB_CHANNEL, slice_of("steady"), SIZE_MAX);
    pubsub_subscribe(steady.client, PUBSUB_PATTERN, slice_of("ste?d*y"), SIZE_MAX);
    atomic_fetch_add(&ready, 1);
    while (!complete(&steady)) {
        loop_sleep(i);
        pubsub_woken(hub, i);
        while (pubsub_deliver(hub, i, 4096, on_message))
            churn(&restless, i, &state);
        churn(&restless, i, &state);
        EXPECT(pubsub_take_lost(hub, i) == 0, "messages were lost");
    }
    order_of[i] = steady.order;
    pubsub_client_destroy(steady.client);
    pubsub_client_destroy(restless.client);
    return NULL;
}

static void *publisher_main(void *arg)
{
    unsigned me = (unsigned)(uintptr_t)arg;
    char payload[64], name[8];
    struct pubsub_receipt receipt;
    while (atomic_load(&ready) < LOOPS)
        ;
    for (unsigned n = 0; n < MESSAGES; n++) {
        snprintf(payload, sizeof(payload), "%u %u", me, n);
        EXPECT(pubsub_publish(hub, PUBSUB_CHANNEL, slice_of("steady"), slice_of(payload), &receipt) == 0, "publish");
        EXPECT(receipt.receivers == 2 * LOOPS, "%lu receivers", (unsigned long)receipt.receivers);
        snprintf(name, sizeof(name), "churn%u", n % CHURN);
        EXPECT(pubsub_publish(hub, PUBSUB_CHANNEL, slice_of(name), slice_of("x"), &receipt) == 0, "publish");
    }
    atomic_fetch_sub(&publishing, 1);
    return NULL;
}

static void count_name(void *ctx, struct slice name)
{
    (void)name;
    ++*(unsigned *)ctx;
}

/* The queries of PUBSUB and INFO, meanwhile; and patterns that are matched off the lock, created and removed in a
 * separate loop. */
static void *asker_main(void *arg)
{
    (void)arg;
    struct pubsub_client *client;
    struct pubsub_totals totals;
    struct listener nobody = {.steady = false};
    char hard[2048];
    memset(hard, '?', sizeof(hard));
    hard[0] = '*';
    while (atomic_load(&publishing)) {
        unsigned names = 0;
        if (pubsub_client_create(&client, hub, LOOPS, &nobody))
            abort();
        for (size_t len = 1000; len < 1010; len++)
            pubsub_subscribe(client, PUBSUB_PATTERN, (struct slice){hard, len}, SIZE_MAX);
        pubsub_totals(hub, &totals);
        pubsub_list(hub, PUBSUB_CHANNEL, NULL, count_name, &names);
        EXPECT(names <= 1 + CHURN, "%u names", names);
        (void)pubsub_is_costly(hub, slice_of("steady"));
        (void)pubsub_slow(hub);
        (void)pubsub_subscribers(hub, PUBSUB_CHANNEL, slice_of("steady"));
        pubsub_client_destroy(client);
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[LOOPS + PUBLISHERS + 1];
    unsigned n = 0;
    loops_init();
    if (pubsub_create(&hub, LOOPS + 1, loop_wake, NULL))
        return 1;
    for (unsigned i = 0; i < LOOPS; i++)
        pthread_create(&threads[n++], NULL, loop_main, (void *)(uintptr_t)i);
    for (unsigned i = 0; i < PUBLISHERS; i++)
        pthread_create(&threads[n++], NULL, publisher_main, (void *)(uintptr_t)i);
    pthread_create(&threads[n++], NULL, asker_main, NULL);
    for (unsigned i = LOOPS; i < n; i++)
        pthread_join(threads[i], NULL);
    for (unsigned i = 0; i < LOOPS; i++)
        pthread_join(threads[i], NULL);
    for (unsigned i = 1; i < LOOPS; i++)
        EXPECT(order_of[i] == order_of[0], "loops saw different orders");

    struct pubsub_totals totals;
    pubsub_totals(hub, &totals);
    for (unsigned i = 0; i < LOOPS; i++) {
        while (pubsub_deliver(hub, i, SIZE_MAX, on_message))
            ;
    }
    pubsub_totals(hub, &totals);
    EXPECT(totals.bytes == 0, "%lu bytes are still accounted for", (unsigned long)totals.bytes);
    EXPECT(totals.clients == 0, "clients are left");
    pubsub_destroy(hub);
    puts("ok");
    return 0;
}
