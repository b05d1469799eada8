/* window: the short software pipeline of queries and adds.
 *
 * Its unit is the run: up to WINDOW_RUN commands of one connection, one behind the other in one piece of input, that are
 * the same but for their item. What a command costs beside its item's bits is paid once per run: the look-up of the
 * filter, room for the replies, the counters. A command by itself is a run of one.
 *
 * Runs are collected, across all connections that are readable in one iteration, until the window is full or is flushed.
 * Then they are answered together. A run waits for memory three or four times: for the registry's slot, for the filter's
 * header, and for the words its bits are in. One by one that is some 300 ns of waiting for each item of a large filter. So
 * each step of a run is taken only when enough items behind it have been taken on for its prefetch to have arrived:
 *
 *     start:   the slot is prefetched
 *     look:    the filter's header is prefetched                                  (WINDOW_LOOK items later)
 *     probe:   filter looked up, items hashed, their words prefetched             (WINDOW_PROBE items later)
 *     narrow:  if most items are absent, only their first words were prefetched;
 *              now the others of those that have these bits                       (WINDOW_FETCH items later)
 *     finish:  answered, in the order of arrival                                  (WINDOW_FETCH items later)
 *
 * Collected first, so that no prefetch is under way while the next connection is read: a receive behind some was measured
 * to take some 0.3 us longer, and what they fetch has time to be pushed out again.
 *
 * Nothing waits for what is in the cache anyway: the slot and the header of the filter that was looked up last; and a run
 * of WINDOW_AT_ONCE items or more of it, if it is small, is answered at once when nothing is before it.
 *
 * All steps but the last have no effects; finish does all of them, in order, and looks again wherever an earlier command of
 * the window may have changed what the earlier steps saw. So the answers equal those of one-by-one execution. Each run
 * looks its filter up after it has arrived: a DEL or RENAME that was answered before is seen.
 *
 * Thread: the worker's. */
#ifndef BLOOMERY_WINDOW_H
#define BLOOMERY_WINDOW_H

#include <stdbool.h>
#include <stdint.h>

#include "bloom_batch.h"
#include "hit_share.h"
#include "registry.h"
#include "resp_parse.h"
#include "resp_repeat.h"

#define WINDOW_RUN    BLOOM_BATCH /* items of a run at most */
#define WINDOW_RUNS    64          /* under way at once at most; a power of two */
#define WINDOW_ITEMS   256         /* likewise, items of all runs */
#define WINDOW_AT_ONCE 16          /* items of a run on a small filter that need no others to keep the processor busy */
#define WINDOW_LOOK    4
#define WINDOW_PROBE   4
#define WINDOW_FETCH   24

struct conn;
struct worker;

enum window_kind { WINDOW_QUERY, WINDOW_ADD };
#define WINDOW_KINDS 2

struct window_run {
    struct conn *conn;
    struct slice name;
    uint64_t name_hash;
    uint64_t end;                 /* how many items had ever been pushed, with this run's */
    struct entry *entry;          /* as seen by the probe step, may be NULL */
    uint8_t kind;
    uint8_t n;                    /* items, at least 1 */
    unsigned wait;                /* so many items are probed behind it before it is finished */
    bool staged;                  /* it is to be narrowed */
    struct slice items[WINDOW_RUN];
    struct bloom_batch batch;     /* valid if entry has a filter */
};

/* The last command of a kind that the worker has parsed: what resp_repeat.h needs to recognise the next ones, in this or
 * another piece of input, of any connection. */
struct window_memo {
    struct resp_repeat repeat;
    uint64_t name_hash;
    uint32_t name_off, name_len; /* where the name is in the request */
};

/* The command of a kind that was finished last, for the slow log: valid until the window is flushed. */
struct window_last {
    const struct conn *conn;
    struct slice name, item;
};

struct window {
    uint64_t pushed, started, looked, probed, narrowed, finished; /* runs that have taken the step, since it was empty */
    uint64_t items_pushed, items_started, items_probed, items_finished; /* items of the runs that have */
    uint64_t hot_hash;                         /* of the name that was looked up last; 0: none */
    bool hot_in_cache;                         /* its filter is small */
    struct hit_share hot_hits;                 /* of queries of it */
    struct window_last last[WINDOW_KINDS];
    uint64_t started_ns;                       /* when the first of `since` was taken in (timing.h) */
    uint64_t since[WINDOW_KINDS];              /* commands of each kind taken in since the last flush */
    enum window_kind last_kind;
    struct window_memo memos[WINDOW_KINDS];
    struct window_run *runs;                   /* WINDOW_RUNS */
};

int window_init(struct window *window); /* 0 or -ENOMEM */
void window_deinit(struct window *window);

/* Takes a command in. Its slices must stay valid until it is finished: at the latest until window_flush(). `remember`: it
 * was parsed from input, and those like it may be taken in by window_push_repeated(). */
void window_push(struct worker *worker, enum window_kind kind, struct conn *conn, const struct resp_command *cmd,
                 bool remember);

/* Takes in as many commands as a run holds of those that data[0..len) begins with, if they equal the last one of this kind
 * that was remembered but for their item. Returns how many bytes they are, 0 if there are none. The same holds for these
 * bytes as for the slices of a command, and the parser of the connection is between two commands. */
size_t window_push_repeated(struct worker *worker, enum window_kind kind, struct conn *conn, const char *data, size_t len);

/* Finishes all commands. Called before anything that must not overtake them or that ends the life of their slices. */
void window_flush(struct worker *worker);

#endif
