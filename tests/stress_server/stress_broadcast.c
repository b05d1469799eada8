/* The hub of changes under many threads: loops whose clients connect, change their prefixes and leave, while others
 * change names. Run under ThreadSanitizer and AddressSanitizer too.
 *
 * Claims: a steady client is informed of a name after each change of it (the last counter that it has read after a
 * message is the counter at the end), so no wake and no change is lost; a client is informed of its prefixes' names
 * only; in the end no memory is accounted for. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "broadcast.h"
#include "loops.h"
#include "rng.h"
#include "stress.h"

#define CHANGERS 3
#define NAMES    16
#define CHANGES  20000
#define CHURN    6

static struct broadcast *hub;
static _Atomic int ready, changing = CHANGERS;
static _Atomic unsigned counters[NAMES]; /* represent the filters */

struct listener {
    struct broadcast_client *client;
    bool steady;
    unsigned prefix; /* churn: the name's first letter is 'a' + prefix */
    unsigned read[NAMES];
};

static size_t name_of(unsigned i, char out[16])
{
    return (size_t)snprintf(out, 16, "%c:%02u", 'a' + (int)(i % 4), i);
}

static void tell(void *owner, struct slice names)
{
    struct listener *listener = owner;
    EXPECT(names.ptr != NULL, "all names, although few have changed");
    if (!names.ptr)
        return;
    const char *end = names.ptr + names.len;
    for (const char *at = memchr(names.ptr, ':', names.len); at; at = memchr(at + 1, ':', (size_t)(end - at - 1))) {
        unsigned i = (unsigned)(at[1] - '0') * 10 + (unsigned)(at[2] - '0');
        EXPECT(i < NAMES, "the list has no such name");
        EXPECT(listener->steady || i % 4 == listener->prefix, "name %u is not with prefix %u", i, listener->prefix);
        listener->read[i] = atomic_load_explicit(&counters[i], memory_order_relaxed);
    }
}

static void *change(void *arg)
{
    struct rng rng;
    char name[16];
    rng_init(&rng, (uint64_t)(uintptr_t)arg);
    while (atomic_load(&ready) < LOOPS)
        ;
    for (int n = 0; n < CHANGES; n++) {
        unsigned i = (unsigned)rng_below(&rng, NAMES);
        atomic_fetch_add_explicit(&counters[i], 1, memory_order_relaxed);
        broadcast_change(hub, (struct slice){name, name_of(i, name)}, rng_below(&rng, 3));
    }
    atomic_fetch_sub(&changing, 1);
    for (unsigned i = 0; i < LOOPS; i++)
        loop_wake(NULL, i);
    return NULL;
}

static void subscribe(struct listener *listener, unsigned loop, const char *prefix)
{
    EXPECT(broadcast_client_create(&listener->client, hub, loop, listener) == 0, "a client");
    EXPECT(broadcast_subscribe(listener->client, slice_of(prefix)) == 0, "a prefix");
}

static void churn(struct listener *listener, unsigned loop, struct rng *rng)
{
    char prefix[] = "a:";
    broadcast_client_destroy(listener->client);
    listener->prefix = (unsigned)rng_below(rng, 4);
    prefix[0] = (char)('a' + listener->prefix);
    subscribe(listener, loop, prefix);
    broadcast_client_leave_out(listener->client, rng_below(rng, 3));
}

static void *loop_main(void *arg)
{
    unsigned index = (unsigned)(uintptr_t)arg;
    struct listener steady = {.steady = true}, others[CHURN] = {{.client = NULL}};
    struct rng rng;
    rng_init(&rng, index);
    subscribe(&steady, index, "");
    for (int i = 0; i < CHURN; i++)
        churn(&others[i], index, &rng);
    atomic_fetch_add(&ready, 1);
    for (bool last = false; !last;) {
        loop_sleep(index);
        last = atomic_load(&changing) == 0;
        broadcast_deliver(hub, index, tell);
        churn(&others[rng_below(&rng, CHURN)], index, &rng);
    }
    for (unsigned i = 0; i < NAMES; i++)
        EXPECT(steady.read[i] == atomic_load(&counters[i]), "loop %u: name %u is at %u, it has read %u", index, i,
               atomic_load(&counters[i]), steady.read[i]);
    broadcast_client_destroy(steady.client);
    for (int i = 0; i < CHURN; i++)
        broadcast_client_destroy(others[i].client);
    return NULL;
}

int main(void)
{
    pthread_t threads[LOOPS + CHANGERS];
    loops_init();
    EXPECT(broadcast_create(&hub, LOOPS, loop_wake, NULL) == 0, "a hub");
    for (unsigned i = 0; i < LOOPS + CHANGERS; i++)
        EXPECT(pthread_create(&threads[i], NULL, i < LOOPS ? loop_main : change, (void *)(uintptr_t)i) == 0,
               "a thread");
    for (unsigned i = 0; i < LOOPS + CHANGERS; i++)
        pthread_join(threads[i], NULL);
    EXPECT(broadcast_bytes(hub) == 0 && broadcast_prefixes(hub) == 0, "something is left");
    broadcast_destroy(hub);
    puts("ok");
    return 0;
}
