/* window: the short software pipeline of queries and adds.
 *
 * A command waits for memory three times: for the registry's slot, for the filter's header, and for the words its bits are
 * in. One by one that is some 300 ns of waiting for each item of a large filter. The window keeps a few dozen commands, of
 * all connections that are readable in one iteration, on their way at once: each step of a command is taken only when
 * enough others have been started behind it for its prefetch to have arrived.
 *
 *     push:    the slot is prefetched            (place 0)
 *     look:    the filter's header is prefetched (WINDOW_LOOK places later)
 *     probe:   filter looked up, item hashed, its words prefetched (WINDOW_PROBE places later)
 *     finish:  answered, in the order of arrival (WINDOW_SIZE places later)
 *
 * The first three steps have no effects; finish does all of them, in order, and looks again wherever an earlier command of
 * the window may have changed what the earlier steps saw. So the answers equal those of one-by-one execution.
 *
 * Thread: the worker's. */
#ifndef BLOOMERY_WINDOW_H
#define BLOOMERY_WINDOW_H

#include <stdbool.h>
#include <stdint.h>

#include "bloom_filter.h"
#include "registry.h"
#include "resp_parse.h"
#include "resp_repeat.h"

#define WINDOW_SIZE  32 /* a power of two */
#define WINDOW_LOOK  4
#define WINDOW_PROBE 8

struct conn;
struct worker;

enum window_kind { WINDOW_QUERY, WINDOW_ADD };

struct window_op {
    struct conn *conn;
    struct slice name;
    struct slice item;
    uint64_t name_hash;
    struct entry *entry;          /* as seen by the probe step, may be NULL */
    uint8_t kind;
    bool same_filter;             /* the name equals that of the op before, which came in the same piece of input */
    struct bloom_probe probe;     /* valid if entry has a filter */
};

struct window {
    uint64_t pushed, looked, probed, finished; /* ops that have taken the step, ever */
    uint64_t chain_from;                       /* the first op of what was read last: see window_new_input() */
    uint64_t started_ns;                       /* when it was last empty and got an op (timing.h) */
    uint64_t since[2];                         /* ops of each kind taken in since */
    struct resp_repeat repeat;                 /* the last command of this piece of input, if it was taken in */
    struct window_op ops[WINDOW_SIZE];
};

/* Takes a command in. Its slices must stay valid until it is finished: at the latest until window_flush(). */
void window_push(struct worker *worker, enum window_kind kind, struct conn *conn, struct slice name, struct slice item);

/* Takes in a command that equals the one taken in before it but for its item, and came in the same piece of input. */
void window_push_repeated(struct worker *worker, struct slice item);

/* To be called for each piece of input before its commands are pushed: they look filters up anew, and do not take over
 * what was found for commands that were sent earlier. In between, somebody else's DEL or RENAME may have been answered. */
static inline void window_new_input(struct window *window)
{
    window->chain_from = window->pushed;
    resp_repeat_forget(&window->repeat);
}

/* Finishes all commands. Called before anything that must not overtake them or that ends the life of their slices. */
void window_flush(struct worker *worker);

static inline bool window_empty(const struct window *window)
{
    return window->pushed == window->finished;
}

#endif
