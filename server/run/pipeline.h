/* pipeline: the short software pipeline of queries and adds.
 *
 * Its unit is the run: up to PIPELINE_RUN commands of one connection, one after the other in one piece of input, that
 * are the same except for their item. All costs but those of the items' bits are paid once per run: the look-up of the
 * filter, room for the replies, the counters. A single command is a run of one.
 *
 * Runs are collected, across all connections that are readable in one iteration, until the pipeline is full or is
 * flushed. Then they are answered together. A run waits for memory three or four times: for the registry's slot, for
 * the filter's header, and for the words of its bits. One after the other these waits take some 300 ns for each item of
 * a large filter. So a step of a run is done only when enough later items have had their step before it, because by
 * then its prefetch has arrived:
 *
 *     start:   the slot is prefetched
 *     look:    the filter's header is prefetched                                  (PIPELINE_LOOK items later)
 *     probe:   filter looked up, items hashed, their words prefetched             (PIPELINE_PROBE items later)
 *     narrow:  if most items are absent, only their first words were prefetched;
 *              now the others of those that have these bits                       (PIPELINE_FETCH items later)
 *     finish:  answered, in the order of arrival                                  (PIPELINE_FETCH items later)
 *
 * Runs are collected before the first step, so no prefetch runs while the next connection is read. Otherwise a receive
 * takes some 0.3 us longer (measured), and the fetched lines may be evicted again.
 *
 * A run's work is known when its filter has been looked up. Until then it counts by the filter that was looked up last
 * if that has its name, and otherwise so that the pipeline takes few more: many unknown items of deep filters would
 * keep all clients waiting, and nothing that was taken in can be given back. An add to a cuckoo filter may move tens of
 * thousands of fingerprints: an unknown one is answered at once.
 *
 * The slot and the header of the filter that was looked up last are in the cache, so their steps are skipped. A run of
 * PIPELINE_AT_ONCE items or more on that filter, if it is small, is answered immediately when no run is before it.
 *
 * Only the last step, finish, has effects, in order. It repeats a check wherever an earlier command of the pipeline may
 * have changed the result of an earlier step. So the answers equal those of one-by-one execution. Each run looks its
 * filter up after it has arrived: a DEL or RENAME that was answered before is seen.
 *
 * Thread: the loop's. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "bloom_batch.h"
#include "registry.h"
#include "resp_parse.h"
#include "resp_repeat.h"

/* hit_share: the share of a filter's latest queries that have found their item, because memory is prefetched
 * differently when most items are absent.
 *
 * A moving average: it follows a change of the queries within some fifty of them. Zero-initialised it begins with
 * "all". Thread: any, on distinct objects. */

#define HIT_SHARE_OVER  64   /* queries in the average */
#define HIT_SHARE_WHOLE 4096 /* all have missed */

struct hit_share {
    int misses; /* 0..HIT_SHARE_WHOLE */
};

/* `hits` of n queries, of at most HIT_SHARE_OVER. */
static inline void hit_share_note(struct hit_share *share, unsigned hits, unsigned n)
{
    share->misses += ((int)(n - hits) * HIT_SHARE_WHOLE - (int)n * share->misses) / HIT_SHARE_OVER;
}

/* Whether most queries have missed. */
static inline bool hit_share_is_low(const struct hit_share *share)
{
    return share->misses > HIT_SHARE_WHOLE / 2;
}

#define PIPELINE_RUN     BLOOM_BATCH /* items of a run at most */
#define PIPELINE_RUNS    64          /* at most, in the pipeline; a power of two */
#define PIPELINE_ITEMS   256         /* likewise, items of all runs */
#define PIPELINE_WORK    4096        /* likewise, their work (work.h) */
#define PIPELINE_AT_ONCE 16 /* items of a run on a small filter that need no others to keep the processor busy */
#define PIPELINE_LOOK    4
#define PIPELINE_PROBE   4
#define PIPELINE_FETCH   24

struct conn;
struct fetches;
struct io;
struct log_waits;

/* The partner of a kind, often sent beside it, has the other lowest bit. */
enum pipeline_kind {
    PIPELINE_QUERY,
    PIPELINE_ADD,
    PIPELINE_CUCKOO_QUERY,
    PIPELINE_CUCKOO_ADD,
    PIPELINE_CUCKOO_DELETE,
    PIPELINE_CUCKOO_ADDNX
};
#define PIPELINE_KINDS 6

static inline bool pipeline_kind_writes(enum pipeline_kind kind)
{
    return kind != PIPELINE_QUERY && kind != PIPELINE_CUCKOO_QUERY;
}

/* "bf.exists", "bf.add", "cf.exists", "cf.add", "cf.del", "cf.addnx" */
extern const char *const pipeline_commands[PIPELINE_KINDS];

struct pipeline_run {
    struct conn *conn;
    struct slice name;
    uint64_t name_hash;
    uint64_t end;        /* the number of items ever pushed, this run's included */
    struct entry *entry; /* as seen by the probe step, may be NULL */
    uint32_t expected;   /* its work, as counted in the pipeline */
    uint32_t work;       /* of an item, as seen by the probe step */
    uint8_t kind;
    uint8_t n;     /* items, at least 1 */
    unsigned wait; /* the number of items to probe after it before it is finished */
    bool staged;   /* it will be narrowed */
    bool hashed;   /* entry has a Bloom filter, and that filter's key, if it has one, is here */
    struct slice items[PIPELINE_RUN];
    struct bloom_batch batch; /* valid if it is hashed */
};

/* The last command of a kind that the loop has parsed. resp_repeat.h recognises the next ones by it, in any input. */
struct pipeline_memo {
    uint64_t number; /* no other request that was remembered has it; not 0 */
    struct resp_repeat repeat;
    uint64_t name_hash;
    uint32_t name_off, name_len; /* position of the name in the request */
    unsigned database;           /* internal number: that of the name */
    unsigned prefix;             /* bytes of the key before the name (registry_key.h) */
};

/* The command of a kind that was finished last, for the slow log: valid until the pipeline is flushed. */
struct pipeline_last {
    const struct conn *conn;
    struct slice name, item;
};

struct pipeline {
    struct io *io;
    struct registry *registry;
    const struct log_waits *log;
    const struct fetches *fetches;
    struct {
        uint64_t pushed, started, looked, probed, narrowed, finished;
    } runs, items; /* numbers that have taken the step since it was empty; items count in four of the steps */
    uint64_t work; /* expected, of the runs that are not finished */
    struct {
        uint64_t hash;    /* 0: none since the last flush */
        uint32_t work[3]; /* of a query, an add and a deletion */
    } known;              /* the last name looked up, whether it has a filter or not */
    struct {
        uint64_t hash;         /* 0: none */
        bool in_cache;         /* its filter is small */
        struct hit_share hits; /* of queries of it */
    } hot;                     /* the last name looked up */
    struct pipeline_last last[PIPELINE_KINDS];
    uint64_t started_ns;            /* time at which the first of `since` was taken in (struct timing) */
    uint64_t since[PIPELINE_KINDS]; /* commands of each kind taken in since the last flush */
    enum pipeline_kind last_kind;
    struct pipeline_memo memos[PIPELINE_KINDS];
    uint64_t last_memo;              /* the last number given */
    size_t counters[PIPELINE_KINDS]; /* command_index() of the commands */
    struct pipeline_run *slots;      /* PIPELINE_RUNS */
};

/* 0 or -ENOMEM; pipeline_deinit() in any case. */
int pipeline_init(struct pipeline *pipeline, struct io *io, const struct log_waits *log, const struct fetches *fetches);
void pipeline_deinit(struct pipeline *pipeline);

/* Adds a command that the client's user may call. `database` is the internal number of the client's database, and there
 * is room for a prefix before the name. Its slices must stay valid until it is finished, at the latest by
 * pipeline_flush(). `remember`: it was parsed from input, and pipeline_push_repeated() may take similar ones. */
void pipeline_push(struct pipeline *pipeline, enum pipeline_kind kind, struct conn *conn,
                   const struct resp_command *cmd, unsigned database, bool remember);

/* Takes in the commands at the beginning of data[0..len) that equal the last remembered one of this kind except in
 * their item, at most one run. Returns their size in bytes, or 0. These bytes must stay valid like the slices of a
 * command; the connection's parser is between two commands. */
size_t pipeline_push_repeated(struct pipeline *pipeline, enum pipeline_kind kind, struct conn *conn, unsigned database,
                              const char *data, size_t len);

/* Finishes all commands. Called before an action that must not overtake them or that invalidates their slices. */
void pipeline_flush(struct pipeline *pipeline);
