/* False sharing: data that one thread writes often is in no 64-byte line with data that other threads write, or that
 * all read with each command. The addresses are those of members, and of objects made as in the daemon. */
#include <criterion/criterion.h>
#include <stddef.h>

#include "bloom_shared.h"
#include "counters.h"
#include "journal_internal.h"
#include "journal_ring.h"
#include "memory_use.h"
#include "rcu.h"
#include "registry.h"
#include "registry_internal.h"
#include "server.h"
#include "worker.h"

#define SIZE_OF(type, member)    sizeof(((type *)NULL)->member)
#define FIRST_LINE(type, member) (offsetof(type, member) / CACHE_LINE)
#define LAST_LINE(type, member)  ((offsetof(type, member) + SIZE_OF(type, member) - 1) / CACHE_LINE)

/* The second member follows the first one, in other lines. */
#define APART(type, first, second) \
    cr_assert_lt(LAST_LINE(type, first), FIRST_LINE(type, second), "%s: %s and %s share a line", #type, #first, #second)

/* Objects of the type side by side share no line. */
#define ALONE(type)                                                                                                \
    cr_assert(_Alignof(type) >= CACHE_LINE && sizeof(type) % CACHE_LINE == 0, "%s: two side by side share a line", \
              #type)

#define IS_ALIGNED(object) cr_assert_eq((uintptr_t)(object) % CACHE_LINE, 0, "%s", #object)

/* Look-ups read the seed, the clock and the slots of names; creations write under the mutex. */
Test(cache_lines, creations_leave_look_ups_alone)
{
    ALONE(struct registry);
    ALONE(struct keyspace);
    APART(struct registry, env.seed, lock);
    APART(struct registry, clock, lock);
    APART(struct registry, clock, count);
    APART(struct registry, clock, next_id);
    APART(struct registry, clock, unrecorded);
    APART(struct registry, due, keyspaces.first.shards);
    APART(struct registry, unrecorded, keyspaces.first.shards);
    APART(struct keyspace, shards, names);
    APART(struct keyspace, shards, count);
    APART(struct registry, keyspaces.first.count, keyspaces.all);
}

/* The pool's sums are written by creations and growth, its locks by adds; adds read the number of twins. */
Test(cache_lines, adds_to_different_filters_share_locks_only)
{
    ALONE(struct bloom_lock);
    APART(struct bloom_pool, locks, bytes);
    APART(struct bloom_pool, bytes, ntwins);
    APART(struct bloom_pool, evictable, ntwins);
    APART(struct bloom_pool, twins, lock);
}

Test(cache_lines, a_worker_and_the_log_thread_write_apart)
{
    ALONE(struct journal_slot);
    APART(struct journal_slot, wanted, announced);
    APART(struct journal_slot, ring, announced);
    ALONE(struct journal_ring);
    APART(struct journal_ring, stream, tail);
    APART(struct journal_ring, spare, first);
    APART(struct journal_ring, added, taken);
}

/* Other threads write to the mailbox, and the thread that accepts counts connections. */
Test(cache_lines, messages_leave_a_loop_alone)
{
    ALONE(struct worker);
    ALONE(struct client_memory);
    APART(struct io, conns, mailbox);
    APART(struct io, mailbox, input);
    APART(struct io, npaused, input);
    APART(struct io, nconns, stats);
}

Test(cache_lines, commands_that_write_leave_the_others_alone)
{
    APART(struct clients, max, large_jobs);
    APART(struct server, clients.large_jobs, exclusive);
}

Test(cache_lines, objects_begin_with_a_line)
{
    struct bloom_pool *pool;
    struct reclaimer *reclaimer;
    struct registry *registry;
    struct counters *counters;
    cr_assert_eq(bloom_pool_create(&pool), 0);
    cr_assert_eq(reclaimer_create(&reclaimer), 0);
    cr_assert_eq(registry_create(&registry, pool, reclaimer), 0);
    cr_assert_eq(counters_create(&counters, 2), 0);
    IS_ALIGNED(pool);
    IS_ALIGNED(registry);
    IS_ALIGNED(counters_main(counters));
    IS_ALIGNED(counters_effects(counters));
    counters_destroy(counters);
    registry_destroy(registry);
    cr_assert(reclaimer_destroy(reclaimer));
    bloom_pool_destroy(pool);
}
