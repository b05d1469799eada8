/* The hub without threads: receivers, order, counts and bounds of messages, and the state after a failed allocation.
 * Loops are numbers here; a wake is noted, and deliveries are written down as text. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "alloc_countdown.h"
#include "ended_test.h"
#include "pubsub.h"

#define LOOPS     3
#define UNBOUNDED SIZE_MAX

static struct pubsub *hub;
static unsigned wakes[LOOPS];
static char got[4096];

static void wake(void *ctx, unsigned loop)
{
    cr_assert_eq(ctx, &hub);
    wakes[loop]++;
}

static void set_up(void)
{
    cr_assert_eq(pubsub_create(&hub, LOOPS, wake, &hub), 0);
}

TestSuite(pubsub, .init = set_up);

/* Called at the end of each test: nothing may be left. */
static void tear_down(void)
{
    struct pubsub_totals totals;
    pubsub_totals(hub, &totals);
    cr_assert_eq(totals.bytes, 0, "%lu bytes are still accounted for", (unsigned long)totals.bytes);
    cr_assert_eq(totals.clients + totals.monitors, 0);
    for (int kind = 0; kind < PUBSUB_KINDS; kind++)
        cr_assert_eq(totals.topics[kind], 0);
    pubsub_destroy(hub);
}

#define HUB_TEST(name) ENDED_TEST(pubsub, name, tear_down())

static struct pubsub_client *client(unsigned loop, const char *name)
{
    struct pubsub_client *c;
    cr_assert_eq(pubsub_client_create(&c, hub, loop, (void *)(uintptr_t)name), 0);
    return c;
}

static int subscribe(struct pubsub_client *c, enum pubsub_kind kind, const char *name)
{
    return pubsub_subscribe(c, kind, slice_of(name), UNBOUNDED);
}

static uint64_t publish(enum pubsub_kind kind, const char *channel, const char *payload)
{
    struct pubsub_receipt receipt;
    cr_assert_eq(pubsub_publish(hub, kind, slice_of(channel), slice_of(payload), &receipt), 0);
    return receipt.receivers;
}

static void note(void *owner, const struct pubsub_delivery *d)
{
    static const char kinds[] = "cpsm";
    size_t used = strlen(got);
    snprintf(got + used, sizeof(got) - used, "%s:%c:%.*s:%.*s:%.*s ", (const char *)owner, kinds[d->kind],
             (int)d->pattern.len, d->pattern.len ? d->pattern.ptr : "", (int)d->channel.len,
             d->channel.len ? d->channel.ptr : "", (int)d->payload.len, d->payload.ptr);
}

static const char *deliver(unsigned loop)
{
    got[0] = '\0';
    pubsub_woken(hub, loop);
    cr_assert_not(pubsub_deliver(hub, loop, SIZE_MAX, note));
    return got;
}

/* A message lost for lack of memory, as at a start without workers, wakes only loops with clients. */
HUB_TEST(a_lost_message_wakes_no_loop_without_clients)
{
    pubsub_lose(hub, PUBSUB_CHANNEL);
    for (unsigned i = 0; i < LOOPS; i++)
        cr_assert_eq(wakes[i], 0, "loop %u", i);
    struct pubsub_client *c = client(1, "a");
    cr_assert_eq(subscribe(c, PUBSUB_CHANNEL, "x"), PUBSUB_OK);
    pubsub_lose(hub, PUBSUB_CHANNEL);
    cr_assert_eq(wakes[0], 0);
    cr_assert_eq(wakes[1], 1);
    cr_assert_eq(wakes[2], 0);
    pubsub_woken(hub, 1);
    cr_assert_neq(pubsub_take_lost(hub, 1), 0);
    pubsub_client_destroy(c);
}

/* Without subscribers no loop is woken, and nothing is kept. */
HUB_TEST(publishing_to_nobody_does_nothing)
{
    cr_assert_eq(publish(PUBSUB_CHANNEL, "a", "x"), 0);
    cr_assert_eq(publish(PUBSUB_MONITOR, "", "x"), 0);
    cr_assert_eq(wakes[0] + wakes[1] + wakes[2], 0);
}

/* A message goes to the subscribers of its channel on all loops; each loop is woken once until it reports the wake. */
HUB_TEST(a_message_goes_to_all_loops_that_listen)
{
    struct pubsub_client *a = client(0, "A"), *b = client(2, "B"), *c = client(2, "C");
    cr_assert_eq(subscribe(a, PUBSUB_CHANNEL, "news"), PUBSUB_OK);
    cr_assert_eq(subscribe(a, PUBSUB_CHANNEL, "news"), PUBSUB_SAME);
    cr_assert_eq(subscribe(b, PUBSUB_CHANNEL, "news"), PUBSUB_OK);
    cr_assert_eq(subscribe(c, PUBSUB_CHANNEL, "other"), PUBSUB_OK);
    cr_assert_eq(publish(PUBSUB_CHANNEL, "news", "1"), 2);
    cr_assert_eq(publish(PUBSUB_CHANNEL, "news", "2"), 2);
    cr_assert_eq(publish(PUBSUB_CHANNEL, "other", "3"), 1);
    cr_assert_eq(publish(PUBSUB_SHARD, "news", "4"), 0, "a shard channel is not the channel of the same name");
    cr_assert(wakes[0] == 1 && wakes[1] == 0 && wakes[2] == 1);
    cr_assert_str_eq(deliver(0), "A:c::news:1 A:c::news:2 ");
    cr_assert_str_eq(deliver(1), "");
    cr_assert_str_eq(deliver(2), "B:c::news:1 B:c::news:2 C:c::other:3 ");
    cr_assert_eq(publish(PUBSUB_CHANNEL, "news", "5"), 2);
    cr_assert(wakes[0] == 2);
    pubsub_client_destroy(a);
    pubsub_client_destroy(b);
    pubsub_client_destroy(c);
    cr_assert_str_eq(deliver(0), "");
    cr_assert_str_eq(deliver(2), "");
}

/* A client with the channel and two matching patterns gets the message three times, as in Redis. */
HUB_TEST(patterns_and_channels_count_each)
{
    struct pubsub_client *a = client(1, "A");
    cr_assert_eq(subscribe(a, PUBSUB_PATTERN, "n*s"), PUBSUB_OK);
    cr_assert_eq(subscribe(a, PUBSUB_PATTERN, "n*"), PUBSUB_OK);
    cr_assert_eq(subscribe(a, PUBSUB_PATTERN, "x*"), PUBSUB_OK);
    cr_assert_eq(subscribe(a, PUBSUB_PATTERN, "news"), PUBSUB_OK);
    cr_assert_eq(subscribe(a, PUBSUB_PATTERN, "new\\s"), PUBSUB_OK);
    cr_assert_eq(subscribe(a, PUBSUB_CHANNEL, "news"), PUBSUB_OK);
    cr_assert_eq(publish(PUBSUB_CHANNEL, "news", "1"), 5);
    cr_assert_str_eq(deliver(1), "A:c::news:1 A:p:n*s:news:1 A:p:n*:news:1 A:p:news:news:1 A:p:new\\s:news:1 ");
    cr_assert_eq(publish(PUBSUB_CHANNEL, "n", "2"), 1);
    cr_assert_str_eq(deliver(1), "A:p:n*:n:2 ");
    cr_assert_eq(publish(PUBSUB_SHARD, "news", "3"), 0, "patterns do not match shard channels");
    pubsub_client_destroy(a);
}

/* A subscription gets no earlier message, even one still on its way to the loop. A message on its way to a client that
 * has unsubscribed is dropped. */
HUB_TEST(a_subscription_begins_where_it_begins)
{
    struct pubsub_client *a = client(0, "A"), *b = client(0, "B");
    subscribe(a, PUBSUB_CHANNEL, "ch");
    publish(PUBSUB_CHANNEL, "ch", "1");
    subscribe(b, PUBSUB_CHANNEL, "ch");
    publish(PUBSUB_CHANNEL, "ch", "2");
    cr_assert_eq(pubsub_unsubscribe(a, PUBSUB_CHANNEL, slice_of("ch")), PUBSUB_OK);
    cr_assert_eq(pubsub_unsubscribe(a, PUBSUB_CHANNEL, slice_of("ch")), PUBSUB_SAME);
    cr_assert_eq(publish(PUBSUB_CHANNEL, "ch", "3"), 1);
    subscribe(a, PUBSUB_CHANNEL, "ch");
    publish(PUBSUB_CHANNEL, "ch", "4");
    cr_assert_str_eq(deliver(0), "B:c::ch:2 B:c::ch:3 A:c::ch:4 B:c::ch:4 ");
    pubsub_client_destroy(a);
    pubsub_client_destroy(b);
}

/* The tail is the common part of both protocols: channel and payload as bulk strings, any byte. */
static void check_tail(void *owner, const struct pubsub_delivery *d)
{
    (void)owner;
    cr_assert_eq(d->tail.len, 7 + 9);
    cr_assert_arr_eq(d->tail.ptr, "$1\r\nc\r\n$3\r\na\0\n\r\n", 16);
}

HUB_TEST(the_tail_is_encoded_once)
{
    struct pubsub_client *a = client(0, "A");
    struct pubsub_receipt receipt;
    subscribe(a, PUBSUB_CHANNEL, "c");
    cr_assert_eq(pubsub_publish(hub, PUBSUB_CHANNEL, slice_of("c"), (struct slice){"a\0\n", 3}, &receipt), 0);
    pubsub_deliver(hub, 0, SIZE_MAX, check_tail);
    pubsub_client_destroy(a);
}

static void append_name(void *ctx, struct slice name)
{
    char *out = ctx;
    size_t used = strlen(out);
    snprintf(out + used, 256 - used, "%.*s ", (int)name.len, name.ptr);
}

/* Ends all by age, and returns their names meanwhile. */
HUB_TEST(unsubscribe_next_goes_from_the_oldest)
{
    struct pubsub_client *a = client(0, "A");
    char names[256] = "";
    subscribe(a, PUBSUB_CHANNEL, "x");
    subscribe(a, PUBSUB_PATTERN, "p");
    subscribe(a, PUBSUB_CHANNEL, "y");
    subscribe(a, PUBSUB_CHANNEL, "z");
    pubsub_unsubscribe(a, PUBSUB_CHANNEL, slice_of("y"));
    while (pubsub_unsubscribe_next(a, PUBSUB_CHANNEL, append_name, names))
        ;
    cr_assert_str_eq(names, "x z ");
    cr_assert_eq(pubsub_client_count(a, PUBSUB_CHANNEL), 0);
    cr_assert_eq(pubsub_client_count(a, PUBSUB_PATTERN), 1);
    pubsub_client_destroy(a);
}

/* A thousand channels on one client, half of them ended again: each is found, listed and counted correctly. */
HUB_TEST(many_channels)
{
    struct pubsub_client *a = client(0, "A"), *b = client(1, "B");
    char name[32];
    for (int i = 0; i < 1000; i++) {
        snprintf(name, sizeof(name), "ch:%d", i);
        cr_assert_eq(subscribe(a, PUBSUB_CHANNEL, name), PUBSUB_OK);
        cr_assert_eq(subscribe(b, PUBSUB_CHANNEL, name), PUBSUB_OK);
    }
    for (int i = 0; i < 1000; i += 2) {
        snprintf(name, sizeof(name), "ch:%d", i);
        cr_assert_eq(pubsub_unsubscribe(a, PUBSUB_CHANNEL, slice_of(name)), PUBSUB_OK);
    }
    for (int i = 0; i < 1000; i++) {
        snprintf(name, sizeof(name), "ch:%d", i);
        cr_assert_eq(pubsub_subscribers(hub, PUBSUB_CHANNEL, slice_of(name)), i % 2 ? 2 : 1);
        cr_assert_eq(publish(PUBSUB_CHANNEL, name, ""), i % 2 ? 2 : 1);
    }
    pubsub_client_destroy(b);
    struct pubsub_totals totals;
    pubsub_totals(hub, &totals);
    cr_assert_eq(totals.topics[PUBSUB_CHANNEL], 500);
    cr_assert_eq(totals.clients, 1);
    char names[256] = "";
    struct slice pattern = slice_of("ch:99?");
    cr_assert_eq(pubsub_list(hub, PUBSUB_CHANNEL, &pattern, append_name, names), 0);
    cr_assert_eq(strlen(names), 5 * strlen("ch:990 "), "%s", names);
    names[0] = '\0';
    cr_assert_eq(pubsub_list(hub, PUBSUB_SHARD, NULL, append_name, names), 0);
    cr_assert_str_eq(names, "");
    pubsub_client_destroy(a);
    deliver(0);
    deliver(1);
}

/* Monitors are a separate kind: not clients of pub/sub, not reached by patterns, with the payload unchanged. */
HUB_TEST(monitors_are_apart)
{
    struct pubsub_client *m = client(0, "M"), *a = client(0, "A");
    struct pubsub_totals totals;
    subscribe(m, PUBSUB_MONITOR, "");
    pubsub_totals(hub, &totals);
    cr_assert(totals.monitors == 1 && totals.clients == 0);
    subscribe(m, PUBSUB_CHANNEL, "c");
    subscribe(a, PUBSUB_PATTERN, "*");
    pubsub_totals(hub, &totals);
    cr_assert(totals.monitors == 1 && totals.clients == 2);
    cr_assert_eq(publish(PUBSUB_MONITOR, "", "+line\r\n"), 1);
    cr_assert_str_eq(deliver(0), "M:m:::+line\r\n ");
    pubsub_unsubscribe(m, PUBSUB_CHANNEL, slice_of("c"));
    pubsub_totals(hub, &totals);
    cr_assert(totals.monitors == 1 && totals.clients == 1);
    pubsub_client_destroy(m);
    pubsub_client_destroy(a);
}

/* A client's subscriptions are refused past its limit; ending one makes room again. */
HUB_TEST(memory_of_a_client_is_bounded)
{
    struct pubsub_client *a = client(0, "A");
    cr_assert_eq(pubsub_subscribe(a, PUBSUB_CHANNEL, slice_of("one"), UNBOUNDED), PUBSUB_OK);
    size_t each = pubsub_client_bytes(a);
    cr_assert_gt(each, 3);
    cr_assert_eq(pubsub_subscribe(a, PUBSUB_CHANNEL, slice_of("two"), 2 * each - 1), PUBSUB_LIMIT);
    cr_assert_eq(pubsub_subscribers(hub, PUBSUB_CHANNEL, slice_of("two")), 0);
    cr_assert_eq(pubsub_subscribe(a, PUBSUB_CHANNEL, slice_of("two"), 2 * each), PUBSUB_OK);
    cr_assert_eq(pubsub_subscribe(a, PUBSUB_CHANNEL, slice_of("two"), 2 * each), PUBSUB_SAME);
    cr_assert_eq(pubsub_subscribe(a, PUBSUB_CHANNEL, slice_of("six"), 2 * each), PUBSUB_LIMIT);
    pubsub_unsubscribe(a, PUBSUB_CHANNEL, slice_of("one"));
    cr_assert_eq(pubsub_subscribe(a, PUBSUB_CHANNEL, slice_of("six"), 2 * each), PUBSUB_OK);
    pubsub_client_destroy(a);
}

/* A loop that does not deliver: publishers are told past PUBSUB_INBOX_HIGH, messages are dropped past
 * PUBSUB_INBOX_MAX, and the loop is told once. Other loops are not affected. */
HUB_TEST(an_inbox_is_bounded)
{
    struct pubsub_client *a = client(0, "A"), *b = client(1, "B");
    subscribe(a, PUBSUB_CHANNEL, "c");
    subscribe(b, PUBSUB_CHANNEL, "other");
    size_t piece = 1024 * 1024, n = 0;
    char *payload = calloc(1, piece);
    struct pubsub_receipt receipt;
    bool was_slow = false;
    while (pubsub_take_lost(hub, 0) == 0 && n < 1000) {
        cr_assert_eq(pubsub_publish(hub, PUBSUB_CHANNEL, slice_of("c"), (struct slice){payload, piece}, &receipt), 0);
        n++;
        cr_assert(!was_slow || receipt.slow);
        was_slow = receipt.slow;
        cr_assert_eq(receipt.slow, n > PUBSUB_INBOX_HIGH / piece, "at %zu", n);
    }
    cr_assert_lt(n * piece, PUBSUB_INBOX_MAX + 3 * piece);
    cr_assert_geq(n * piece, PUBSUB_INBOX_MAX);
    cr_assert(pubsub_slow(hub));
    struct pubsub_totals totals;
    pubsub_totals(hub, &totals);
    cr_assert_leq(totals.bytes, PUBSUB_INBOX_MAX + 3 * piece);
    cr_assert_eq(totals.lost, 1);
    cr_assert_eq(pubsub_take_lost(hub, 1), 0);
    deliver(0);
    cr_assert_not(pubsub_slow(hub));
    cr_assert_not(pubsub_pending(hub, 0));
    cr_assert_eq(publish(PUBSUB_CHANNEL, "c", "again"), 1);
    cr_assert_str_eq(deliver(0), "A:c::c:again ");
    free(payload);
    pubsub_client_destroy(a);
    pubsub_client_destroy(b);
}

/* Delivery in pieces loses nothing and keeps the order. */
HUB_TEST(delivery_may_stop_and_go_on)
{
    struct pubsub_client *a = client(0, "A");
    subscribe(a, PUBSUB_CHANNEL, "c");
    for (int i = 0; i < 9; i++)
        publish(PUBSUB_CHANNEL, "c", (char[]){(char)('0' + i), '\0'});
    got[0] = '\0';
    cr_assert(pubsub_deliver(hub, 0, 1, note));
    cr_assert_str_eq(got, "A:c::c:0 ");
    publish(PUBSUB_CHANNEL, "c", "9");
    while (pubsub_deliver(hub, 0, 200, note))
        ;
    cr_assert_str_eq(got, "A:c::c:0 A:c::c:1 A:c::c:2 A:c::c:3 A:c::c:4 A:c::c:5 A:c::c:6 A:c::c:7 A:c::c:8 A:c::c:9 ");
    pubsub_client_destroy(a);
}

/* Slow patterns are matched as well, with any others between them in the list; and the caller can know. */
HUB_TEST(hostile_patterns_match_off_the_lock)
{
    struct pubsub_client *a = client(0, "A");
    size_t len = 60000;
    char *channel = malloc(len + 1), pattern[PUBSUB_MAX_PATTERN + 1];
    memset(channel, 'a', len);
    channel[len] = '\0';
    cr_assert_not(pubsub_is_costly(hub, slice_of(channel)));
    for (unsigned i = 0; i < 3; i++) {
        snprintf(pattern, sizeof(pattern), "*%u", i);
        subscribe(a, PUBSUB_PATTERN, pattern);
        memset(pattern, '?', 300);
        snprintf(pattern + 300, sizeof(pattern) - 300, "*?b%u", i);
        pattern[0] = '*';
        subscribe(a, PUBSUB_PATTERN, pattern);
        snprintf(pattern + 300, sizeof(pattern) - 300, "*%.*s", (int)i + 1, "aaa");
        subscribe(a, PUBSUB_PATTERN, pattern);
    }
    cr_assert(pubsub_is_costly(hub, slice_of(channel)));
    cr_assert_not(pubsub_is_costly(hub, slice_of("a short one")));
    cr_assert_eq(publish(PUBSUB_CHANNEL, channel, "x"), 3);
    free(channel);
    pubsub_client_destroy(a);
    deliver(0);
}

/* Every allocation of a hub's life fails in turn: the call returns the error, nothing is left half done, and
 * afterwards everything works. */
static int life(void)
{
    struct pubsub_client *a = NULL, *b = NULL;
    struct pubsub_receipt receipt;
    int status = pubsub_client_create(&a, hub, 0, (void *)(uintptr_t) "A");
    if (!status)
        status = pubsub_client_create(&b, hub, 1, (void *)(uintptr_t) "B");
    for (unsigned i = 0; !status && i < 40; i++) {
        char name[16];
        snprintf(name, sizeof(name), "%c%02u*", i % 2 ? 'x' : 'y', i);
        status = subscribe(a, i % 2 ? PUBSUB_PATTERN : PUBSUB_CHANNEL, name);
        if (!status)
            status = subscribe(b, i % 2 ? PUBSUB_PATTERN : PUBSUB_CHANNEL, name);
        if (!status)
            status = subscribe(a, PUBSUB_PATTERN, i % 2 ? "x*" : "*");
        if (status == PUBSUB_SAME)
            status = 0;
        if (!status)
            status = pubsub_publish(hub, PUBSUB_CHANNEL, slice_of(name), slice_of("payload"), &receipt);
        if (!status)
            cr_assert_eq(receipt.receivers, i % 2 ? 4 : 3, "%u: %lu", i, (unsigned long)receipt.receivers);
    }
    alloc_countdown_stop();
    pubsub_client_destroy(a);
    pubsub_client_destroy(b);
    deliver(0);
    deliver(1);
    return status;
}

HUB_TEST(allocations_that_fail)
{
    struct pubsub_totals totals;
    size_t n = 0;
    int status;
    do {
        alloc_countdown_start(n++);
        status = life();
        cr_assert(status == 0 || status == -ENOMEM, "%d", status);
        pubsub_totals(hub, &totals);
        cr_assert_eq(totals.bytes, 0, "allocation %zu leaves %lu bytes", n, (unsigned long)totals.bytes);
        cr_assert_eq(totals.clients, 0);
        cr_assert_eq(totals.topics[PUBSUB_CHANNEL] + totals.topics[PUBSUB_PATTERN], 0);
    } while (n < 400);
    cr_assert_eq(life(), 0);
}
