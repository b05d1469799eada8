/* stats: counters, one set per worker, written by that worker only and summed on request. A counter is atomic so that
 * other threads can read it, but has one writer: counting costs one plain store in the writer's own cache line. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "histogram.h"

#define STATS_MAX_COMMANDS \
    384 /* rows of the command table, subcommands included (command_index()); checked by its test */

/* X(name, documentation): the plain counters. */
#define STATS_COUNTERS(X)                                                                   \
    X(connections_received, "connections accepted")                                         \
    X(connections_rejected, "connections refused: maxclients, protected mode")              \
    X(tls_handshakes, "TLS handshakes completed")                                           \
    X(tls_resumed, "those that went on with an earlier session")                            \
    X(tls_failed, "TLS connections that failed: refused, malformed or too slow handshakes") \
    X(commands_processed, "commands executed, errors included")                             \
    X(net_input_bytes, "bytes read from clients")                                           \
    X(net_output_bytes, "bytes written to clients")                                         \
    X(items_added, "items answered 1 by an add")                                            \
    X(items_present, "items answered 0 by an add")                                          \
    X(query_hits, "items answered 1 by a query")                                            \
    X(query_misses, "items answered 0 by a query")                                          \
    X(false_positives, "items that clients reported as wrongly present (BF.FALSEPOSITIVE)") \
    X(error_replies, "error replies sent")                                                  \
    X(unknown_commands, "commands that do not exist")                                       \
    X(protocol_errors, "connections closed over malformed input")                           \
    X(over_query_buffer, "connections closed over client-query-buffer-limit")               \
    X(over_output_buffer, "connections closed over reply-buffer-limit")                     \
    X(evicted_clients, "connections closed over maxmemory-clients")                         \
    X(reads_processed, "reads from sockets that brought something")                         \
    X(writes_processed, "writes to sockets that took something")                            \
    X(loop_cycles, "iterations of event loops")                                             \
    X(loop_ns, "nanoseconds that event loops have worked")                                  \
    X(loop_command_ns, "of these, in commands")                                             \
    X(keyspace_hits, "queries whose filter exists")                                         \
    X(keyspace_misses, "queries whose filter does not exist")                               \
    X(adds_full, "adds refused because a filter of fixed size is full")                     \
    X(adds_no_room, "adds refused because the filter cannot grow")                          \
    X(maybe_answers, "queries answered 1 because the filter's bits were not in memory")     \
    X(expired, "filters removed because their time had come")                               \
    X(changes, "changes to filters: items added, filters created, deleted, renamed; what save rules count")

struct usage;

struct stats {
    struct usage *usage; /* of single filters (usage.h); NULL except in a worker's set */
#define STATS_FIELD(name, doc) _Atomic uint64_t name;
    STATS_COUNTERS(STATS_FIELD)
#undef STATS_FIELD
    _Atomic uint64_t calls[STATS_MAX_COMMANDS];    /* per row of the command table */
    _Atomic uint64_t rejected[STATS_MAX_COMMANDS]; /* wrong arity, not allowed */
    _Atomic uint64_t failed[STATS_MAX_COMMANDS];   /* answered with an error */
    _Atomic uint64_t time_ns[STATS_MAX_COMMANDS];  /* spent in calls (struct timing) */

    /* Gauges, in the main thread's set only (stats_sampler_update()); not summed. */
    _Atomic uint64_t commands_per_sec;
    _Atomic uint64_t input_bytes_per_sec;
    _Atomic uint64_t output_bytes_per_sec;
    _Atomic uint64_t loop_cycles_per_sec;
    _Atomic uint64_t loop_ns_per_sec;
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

/* Adds every counter of `from` to `sum`, which is the caller's own, or subtracts it; no gauges. */
void stats_sum(struct stats *sum, const struct stats *from, bool subtract);

#define STATS_SAMPLES 16

struct stats_rate { /* internal to the sampler */
    uint64_t last;
    uint64_t samples[STATS_SAMPLES];
};

/* Turns counters into rates per second. Zero-initialise. */
struct stats_sampler {
    int64_t last_ms;
    unsigned next;
    struct stats_rate commands, input, output, cycles, loop;
};

/* Takes a sample of `sum`, the current counters of all threads, and stores the rates into `gauges`. Called about every
 * 100 ms; `now_ms` is monotonic and not 0. Thread: the owner of `gauges`, with its own sampler. */
void stats_sampler_update(struct stats_sampler *sampler, const struct stats *sum, struct stats *gauges, int64_t now_ms);

/* errorstats: the number of error replies by code, the first word of the text ("ERR", "NOAUTH").
 *
 * Thread rule: one thread counts, any thread may read meanwhile. */

/* Codes are the server's own words, so there are few. Codes without a free row count under ERRORSTATS_REST, so that a
 * bug that begins an error with a client's words cannot fill memory. */
#define ERRORSTATS_MAX  64
#define ERRORSTATS_CODE 32 /* bytes, with the NUL; longer ones are cut */
#define ERRORSTATS_REST "OTHER"

struct errorstats_row {
    char code[ERRORSTATS_CODE]; /* constant once the row is in use */
    _Atomic uint64_t count;
};

/* Zero-initialise. Rows keep their places. */
struct errorstats {
    _Atomic size_t used;
    struct errorstats_row rows[ERRORSTATS_MAX];
};

/* Counts an error reply; `text` begins after its '-', `len` bytes of it are readable. Thread: the one that counts. */
void errorstats_count(struct errorstats *errors, const char *text, size_t len);

/* Adds the counts of `from` to `sum`, or subtracts them. */
void errorstats_sum(struct errorstats *sum, const struct errorstats *from, bool subtract);

/* timing: records the durations of one thread's commands in commandstats, a histogram per command, and the slow
 * log; and counts their errors. A command is a number here (its counter); commands/command_timing.h has
 * its row.
 *
 * Thread: the worker's; counters.c reads the histograms and counts from other threads. */

/* A limit below the duration of any batch means that the operator wants to see every command. */
#define TIMING_EXACT_USEC 100

struct config;
struct slowlog;
struct slowlog_entry;

/* A thread's own part. timing_init(), then timing_refresh() before anything else. */
struct timing {
    _Atomic(struct histogram *) histograms[STATS_MAX_COMMANDS]; /* NULL until the command has been run by this worker */
    struct errorstats errors;
    struct stats *stats;     /* of the same thread; this and the next are borrowed */
    struct slowlog *slowlog; /* of all threads */
    uint64_t slow_ns;        /* threshold of the slow log; UINT64_MAX: off */
    size_t slowlog_len;      /* setting slowlog-max-len */
    bool tracking;           /* histograms are kept */
    bool exact;              /* BF.ADD and BF.EXISTS are run one by one */
};

void timing_init(struct timing *timing, struct stats *stats, struct slowlog *slowlog);
void timing_deinit(struct timing *timing);

/* Copies the settings: once per iteration, and after a command that may have changed them. */
void timing_refresh(struct timing *timing, const struct config *config);

/* n calls of the command with this counter took `ns` together. True: all are for the slow log. */
bool timing_record(struct timing *timing, size_t counter, uint64_t n, uint64_t ns);

/* Whether the slow log takes a call of this duration; UINT64_MAX asks whether it takes any. */
static inline bool timing_is_slow(const struct timing *timing, uint64_t ns)
{
    return timing->slow_ns != UINT64_MAX && ns >= timing->slow_ns;
}

/* Adds an entry to the slow log and takes ownership of it. NULL, for lack of memory, is fine. */
void timing_remember(struct timing *timing, struct slowlog_entry *entry, uint64_t ns);
