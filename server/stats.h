/* stats: counters, one set per worker, written by that worker only and summed when somebody asks. A counter is atomic so
 * that it can be read from elsewhere, but never shared for writing: counting costs one plain store in the writer's own
 * cache line. */
#ifndef BLOOMERY_STATS_H
#define BLOOMERY_STATS_H

#include <stdatomic.h>
#include <stdint.h>

#define STATS_MAX_COMMANDS 192 /* rows of the command table; checked when it is built */

/* X(name, documentation): the plain counters. */
#define STATS_COUNTERS(X)                                                                                               \
    X(connections_received, "connections accepted")                                                                     \
    X(connections_rejected, "connections refused: maxclients, protected mode")                                          \
    X(commands_processed, "commands executed, errors included")                                                         \
    X(net_input_bytes, "bytes read from clients")                                                                       \
    X(net_output_bytes, "bytes written to clients")                                                                     \
    X(items_added, "items answered 1 by an add")                                                                        \
    X(items_present, "items answered 0 by an add")                                                                      \
    X(query_hits, "items answered 1 by a query")                                                                        \
    X(query_misses, "items answered 0 by a query")                                                                      \
    X(error_replies, "error replies sent")                                                                              \
    X(unknown_commands, "commands that do not exist")                                                                   \
    X(protocol_errors, "connections closed over malformed input")                                                       \
    X(clients_over_limit, "connections closed over a buffer limit")                                                     \
    X(changes, "changes to filters: items added, filters created, deleted, renamed; what save rules count")

struct stats {
#define STATS_FIELD(name, doc) _Atomic uint64_t name;
    STATS_COUNTERS(STATS_FIELD)
#undef STATS_FIELD
    _Atomic uint64_t calls[STATS_MAX_COMMANDS];    /* per row of the command table */
    _Atomic uint64_t rejected[STATS_MAX_COMMANDS]; /* wrong arity, not allowed */
    _Atomic uint64_t failed[STATS_MAX_COMMANDS];   /* answered with an error */
};

/* Adds to a counter of the calling thread's own set. */
static inline void stats_add(_Atomic uint64_t *counter, uint64_t n)
{
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + n, memory_order_relaxed);
}

static inline uint64_t stats_get(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

/* Adds every counter of `from` to `sum` (which nobody else uses). */
void stats_sum(struct stats *sum, const struct stats *from);

#endif
