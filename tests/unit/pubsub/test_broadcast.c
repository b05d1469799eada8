/* The hub of changes without threads: its notices, against a model that compares every name with every prefix;
 * authors, bounds, and the state after a failed allocation. Loops are numbers here. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "alloc_countdown.h"
#include "ended_test.h"
#include "broadcast.h"
#include "rng.h"

#define LOOPS 3

static struct broadcast *hub;
static unsigned wakes[LOOPS];

static void wake(void *ctx, unsigned loop)
{
    cr_assert_eq(ctx, &hub);
    wakes[loop]++;
}

static void set_up(void)
{
    cr_assert_eq(broadcast_create(&hub, LOOPS, wake, &hub), 0);
}

TestSuite(broadcast, .init = set_up);

/* Called at the end of each test: nothing may be left. */
static void tear_down(void)
{
    cr_assert_eq(broadcast_bytes(hub), 0u);
    cr_assert_eq(broadcast_prefixes(hub), 0u);
    cr_assert_not(broadcast_has_clients(hub));
    broadcast_destroy(hub);
}

#define HUB_TEST(name) ENDED_TEST(broadcast, name, tear_down())

/* ---- against the model ---- */

#define CLIENTS  6
#define NAMES    12
#define PREFIXES 8

static const char *const some_names[NAMES] = {"",   "a",   "ab", "abc", "abd",    "b",
                                              "ba", "bab", "c",  "ca",  "user:1", "user:22"};
static const char *const some_prefixes[PREFIXES] = {"", "a", "ab", "abc", "b", "user:", "user:2", "x"};

static struct model {
    struct broadcast_client *client;
    uint64_t id; /* its author, if it leaves its own changes out */
    bool has[PREFIXES];
    unsigned due[NAMES], told[NAMES]; /* number of times in the lists */
} models[CLIENTS];

/* The changes of one delivery by name, and their authors. */
static bool changed[NAMES];
static uint64_t authors[NAMES];

static void tell(void *owner, struct slice names)
{
    struct model *model = owner;
    char *end, *copy = malloc(names.len + 1);
    memcpy(copy, names.ptr, names.len);
    copy[names.len] = '\0';
    cr_assert_eq(copy[0], '*');
    unsigned long n = strtoul(copy + 1, &end, 10);
    for (end += 2; n > 0; n--) {
        cr_assert_eq(*end, '$');
        size_t len = strtoul(end + 1, &end, 10), i = 0;
        end += 2;
        while (i < NAMES && !(strlen(some_names[i]) == len && memcmp(some_names[i], end, len) == 0))
            i++;
        cr_assert_lt(i, (size_t)NAMES);
        model->told[i]++;
        end += len + 2;
    }
    cr_assert_eq(end, copy + names.len);
    free(copy);
}

static bool begins_with(const char *name, const char *prefix)
{
    return strncmp(name, prefix, strlen(prefix)) == 0;
}

static void note_due(struct model *model, unsigned loop)
{
    if ((unsigned)(model - models) % LOOPS != loop)
        return;
    for (size_t i = 0; i < NAMES; i++) {
        for (size_t j = 0; j < PREFIXES; j++)
            model->due[i] += changed[i] && model->has[j] && begins_with(some_names[i], some_prefixes[j]) &&
                             !(model->id && authors[i] == model->id);
    }
}

/* All loops deliver the changes since the last time. */
static void deliver_all(void)
{
    for (unsigned loop = 0; loop < LOOPS; loop++) {
        unsigned woken = wakes[loop];
        for (size_t i = 0; i < CLIENTS; i++)
            note_due(&models[i], loop);
        broadcast_deliver(hub, loop, tell);
        cr_assert_leq(woken, 1u);
        for (size_t i = loop; i < CLIENTS; i += LOOPS) {
            cr_assert_arr_eq(models[i].told, models[i].due, sizeof(models[i].due));
            cr_assert(woken || !memchr(models[i].due, 1, sizeof(models[i].due)));
            memset(models[i].told, 0, sizeof(models[i].told));
            memset(models[i].due, 0, sizeof(models[i].due));
        }
        wakes[loop] = 0;
    }
    memset(changed, 0, sizeof(changed));
}

static void change(struct rng *rng)
{
    size_t i = rng_below(rng, NAMES);
    uint64_t author = rng_below(rng, CLIENTS + 1);
    authors[i] = !changed[i] || authors[i] == author ? author : 0;
    changed[i] = true;
    broadcast_change(hub, slice_of(some_names[i]), author);
}

static void change_client(struct rng *rng, size_t i)
{
    struct model *model = &models[i];
    size_t j = rng_below(rng, PREFIXES);
    if (!model->client)
        cr_assert_eq(broadcast_client_create(&model->client, hub, (unsigned)i % LOOPS, model), 0);
    if (rng_below(rng, 20) == 0) {
        broadcast_client_destroy(model->client);
        *model = (struct model){.client = NULL};
    } else if (rng_below(rng, 4) == 0) {
        model->id = model->id ? 0 : i + 1;
        broadcast_client_leave_out(model->client, model->id);
    } else if (model->has[j] && rng_below(rng, 2) == 0) {
        broadcast_unsubscribe(model->client, slice_of(some_prefixes[j]));
        model->has[j] = false;
    } else {
        cr_assert_eq(broadcast_subscribe(model->client, slice_of(some_prefixes[j])),
                     model->has[j] ? BROADCAST_SAME : BROADCAST_OK);
        model->has[j] = true;
    }
}

static void expect_descriptions(void)
{
    bool used[PREFIXES] = {false};
    size_t different = 0;
    for (size_t i = 0; i < CLIENTS; i++) {
        size_t n = 0;
        for (size_t j = 0; j < PREFIXES; j++) {
            n += models[i].has[j];
            used[j] |= models[i].has[j];
        }
        cr_assert(!models[i].client || broadcast_client_count(models[i].client) == n);
    }
    for (size_t j = 0; j < PREFIXES; j++)
        different += used[j];
    cr_assert_eq(broadcast_prefixes(hub), different);
}

HUB_TEST(tells_each_client_of_the_names_with_its_prefixes)
{
    struct rng rng;
    rng_init(&rng, 7);
    for (int round = 0; round < 3000; round++) {
        change_client(&rng, rng_below(&rng, CLIENTS));
        expect_descriptions();
        for (uint64_t n = rng_below(&rng, 6); n > 0; n--)
            change(&rng);
        deliver_all();
    }
    for (size_t i = 0; i < CLIENTS; i++)
        broadcast_client_destroy(models[i].client);
}

/* ---- one claim at a time ---- */

static char got[4096];
static unsigned told_all;

static void write_down(void *owner, struct slice names)
{
    (void)owner;
    told_all += names.ptr == NULL;
    if (names.len < sizeof(got))
        snprintf(got + strlen(got), sizeof(got) - strlen(got), "%.*s;", (int)names.len, names.ptr ? names.ptr : "");
}

static struct broadcast_client *client_of(unsigned loop, const char *prefix)
{
    struct broadcast_client *client;
    cr_assert_eq(broadcast_client_create(&client, hub, loop, NULL), 0);
    cr_assert_eq(broadcast_subscribe(client, slice_of(prefix)), BROADCAST_OK);
    return client;
}

HUB_TEST(a_round_has_each_name_once_in_the_order_of_the_first_changes)
{
    struct broadcast_client *client = client_of(1, "k");
    const char *const names[] = {"k2", "k1", "k2", "other", "k3", "k1"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        broadcast_change(hub, slice_of(names[i]), 0);
    cr_assert_eq(wakes[1], 1u);
    cr_assert_eq(wakes[0] + wakes[2], 0u);
    broadcast_deliver(hub, 1, write_down);
    cr_assert_str_eq(got, "*3\r\n$2\r\nk2\r\n$2\r\nk1\r\n$2\r\nk3\r\n;");
    broadcast_deliver(hub, 1, write_down);
    broadcast_change(hub, slice_of("k1"), 0);
    cr_assert_eq(wakes[1], 2u);
    broadcast_client_destroy(client); /* with a notice that it did not get */
}

HUB_TEST(overlaps_are_named_in_the_order_of_bytes)
{
    struct broadcast_client *client = client_of(0, "bc");
    struct slice with = {NULL, 0};
    cr_assert_eq(broadcast_subscribe(client, slice_of("ba")), BROADCAST_OK);
    cr_assert_not(broadcast_overlaps(client, slice_of("c"), &with));
    cr_assert_not(broadcast_overlaps(client, slice_of("bb"), &with));
    cr_assert(broadcast_overlaps(client, slice_of("b"), &with));
    cr_assert(with.len == 2 && memcmp(with.ptr, "ba", 2) == 0);
    cr_assert(broadcast_overlaps(client, slice_of("bcd"), &with));
    cr_assert(with.len == 2 && memcmp(with.ptr, "bc", 2) == 0);
    cr_assert(broadcast_overlaps(client, slice_of(""), &with));
    cr_assert_eq(memcmp(broadcast_client_prefix(client, 0).ptr, "ba", 2), 0);
    broadcast_client_destroy(client);
}

HUB_TEST(more_changes_than_a_loop_can_write_become_one_message)
{
    struct broadcast_client *one = client_of(0, ""), *two = client_of(0, ""), *elsewhere = client_of(1, "a");
    static char name[60000];
    memset(name, 'n', sizeof(name));
    for (unsigned i = 0; i < 2 * BROADCAST_MAX_BYTES / sizeof(name); i++) {
        memcpy(name + 1, &i, sizeof(i));
        broadcast_change(hub, (struct slice){name, sizeof(name)}, 0);
        cr_assert_lt(broadcast_bytes(hub), BROADCAST_MAX_BYTES);
    }
    broadcast_change(hub, slice_of("a"), 0);
    broadcast_deliver(hub, 0, write_down);
    cr_assert_eq(told_all, 2u);
    broadcast_deliver(hub, 1, write_down);
    cr_assert_not_null(strstr(got, "$1\r\na\r\n"));
    cr_assert_eq(told_all, 2u);
    broadcast_change(hub, slice_of("b"), 0);
    got[0] = '\0';
    broadcast_deliver(hub, 0, write_down);
    cr_assert_str_eq(got, "*1\r\n$1\r\nb\r\n;*1\r\n$1\r\nb\r\n;");
    broadcast_client_destroy(one);
    broadcast_client_destroy(two);
    broadcast_client_destroy(elsewhere);
}

HUB_TEST(prefixes_are_bounded)
{
    struct broadcast_client *client = client_of(0, "first"), *other;
    char prefix[16];
    cr_assert_eq(broadcast_client_create(&other, hub, 1, NULL), 0);
    for (size_t i = 1; i < BROADCAST_MAX_PREFIXES; i++) {
        snprintf(prefix, sizeof(prefix), "p%zu:", i);
        cr_assert_eq(broadcast_subscribe(client, slice_of(prefix)), BROADCAST_OK);
    }
    cr_assert_eq(broadcast_subscribe(client, slice_of("more")), BROADCAST_LIMIT);
    cr_assert_eq(broadcast_subscribe(other, slice_of("more")), BROADCAST_LIMIT);
    cr_assert_eq(broadcast_subscribe(other, slice_of("first")), BROADCAST_OK);
    broadcast_change(hub, slice_of("p77:x"), 0);
    broadcast_deliver(hub, 0, write_down);
    cr_assert_str_eq(got, "*1\r\n$5\r\np77:x\r\n;");
    broadcast_client_destroy(client);
    broadcast_client_destroy(other);
}

/* Each allocation in turn fails: a subscription is unchanged, and a change that was not collected is reported as a
 * change of all names. */
HUB_TEST(without_memory_no_change_is_lost)
{
    bool failed = true;
    for (size_t n = 0; failed; n++) {
        struct broadcast_client *client = client_of(0, "a");
        alloc_countdown_start(n);
        int status = broadcast_subscribe(client, slice_of("b"));
        broadcast_change(hub, slice_of("abc"), 0);
        broadcast_change(hub, slice_of("b"), 0);
        got[0] = '\0';
        told_all = 0;
        broadcast_deliver(hub, 0, write_down);
        failed = alloc_countdown_stop();
        cr_assert(status == BROADCAST_OK || status == -ENOMEM);
        cr_assert_eq(broadcast_client_count(client), status == BROADCAST_OK ? 2u : 1u);
        cr_assert(told_all || strstr(got, "abc"), "allocation %zu", n);
        cr_assert(told_all || status != BROADCAST_OK || strstr(got, "$1\r\nb"), "allocation %zu", n);
        broadcast_client_destroy(client);
    }
}
