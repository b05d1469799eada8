/* move, inside. move_run.c has the threads, the queue between them and the messages, move_scan.c the scanner,
 * move_worker.c a batch and the transfer of small filters, move_large.c that of the others, move_verify.c the
 * comparison. move_link.c has connections and refusals.
 *
 * Functions that speak to a server return 0, or
 *   -ECANCELED  the run ends: interrupted, or move_fatal() has been called
 *   another     a connection is lost, or a server says "later": unfinished work is done again from its beginning
 */
#pragma once

#include <stdatomic.h>

#include "move.h"
#include "peer.h"
#include "clock.h"
#include "lock.h"
#include "output.h"

#define MOVE_BATCH       64        /* small filters that are moved together: one round trip for each step */
#define MOVE_BATCH_BYTES (4 << 20) /* their sizes in sum */
#define MOVE_LARGE_BYTES (1 << 20) /* larger filters go in chunks: DUMP delays a Redis for as long as it takes */

/* Cuckoo filters go in one piece up to Bloomery's limit. It has the state of one moment, while chunks are void when an
 * item is added or deleted meanwhile; and RedisBloom does not replicate chunks. */
#define MOVE_LARGE_CUCKOO (8 << 20)

/* Names on the target that are not yet whole: this, and MOVE_TEMP_DIGITS hexadecimal digits. */
#define MOVE_TEMP_PREFIX "bloomery-move:"
#define MOVE_TEMP_DIGITS 32
#define MOVE_TEMP_SIZE   (sizeof(MOVE_TEMP_PREFIX) + MOVE_TEMP_DIGITS)

/* The fields of BF.INFO, or of CF.INFO, where the capacity is the number of buckets. */
struct move_info {
    int64_t capacity, size, layers, items, expansion; /* expansion -1: none */
    int64_t bucket_size, iterations, deletes;         /* of a cuckoo filter; otherwise 0 */
};

/* A filter on its way. */
struct move_filter {
    struct move_filter *next;
    struct move_info info; /* in the source, when it was scanned */
    enum { FILTER_NEW, FILTER_WANTED, FILTER_SENT, FILTER_COPIED, FILTER_FINISHED } state;
    enum move_outcome outcome; /* of COPIED: it counts so unless it differs */
    bool cuckoo;
    bool whole;            /* valkey-bloom's: it has no chunks, and is moved in one piece of any size */
    bool sent_before;      /* before the connection was lost: if the target has it now, it was moved */
    bool chunks;           /* in chunks, also if it is small */
    bool differs;          /* the target's has the same numbers and other bits */
    uint64_t on_the_way;   /* bytes of its chunks */
    uint64_t temporary[2]; /* the digits of the latest temporary name; all 0: there was none */
    size_t name_len;
    char name[];
};

/* A command for the filter's kind, by its name without the first letters, as a string literal. */
#define MOVE_COMMAND(filter, name) ((filter)->cuckoo ? "CF." name : "BF." name)

/* Filters between the scanner and the workers. */
struct move_queue {
    pthread_cond_t changed;
    struct move_filter *first, **last;
    size_t count;
    bool ended; /* no more filters come */
};

struct move_totals {
    struct move_summary summary;
    uint64_t found, found_bytes;
    uint64_t finished, finished_bytes;
    uint64_t scanned, keys; /* names that SCAN has visited, and all names */
    bool scan_done;
    char fatal[ERRBUF_SIZE]; /* the reason for the early end of the run */
    int fatal_status;
};

struct move {
    const struct move_options *options;
    struct lock lock; /* of the queue and the totals */
    struct move_queue queue;
    struct move_totals totals;
    _Atomic uint64_t bytes_on_the_way; /* of chunks, of filters that are not finished */
    atomic_bool stop;
    atomic_uint running; /* threads */
    struct move_probes *probes;
    uint64_t begun_ns;
    struct progress progress; /* under the lock */
    char doing[80];           /* its text */
};

/* The two connections of a thread. */
struct move_link {
    struct move *move;
    struct peer from, to;
    bool needs_to;         /* the scanner speaks to the source only */
    int64_t limit;         /* of valkey-bloom in the target: bytes that a filter may have; 0: it has not told any */
    int64_t failing_since; /* ms; 0: it works */
    unsigned tries;
    struct errbuf why; /* it fails */
};

static inline bool move_stopped(struct move *move)
{
    return atomic_load_explicit(&move->stop, memory_order_relaxed);
}

/* ---- the queue: move_run.c ---- */

/* Takes the filter over; waits while the queue is full. False, with the filter freed, when the run ends. */
bool move_queue_put(struct move *move, struct move_filter *filter);
void move_queue_end(struct move *move); /* no more filters come; wakes all waiting threads */

/* Takes the next filters: one large one, or up to MOVE_BATCH small ones. Their number; 0 when none comes any more. */
size_t move_queue_take(struct move *move, struct move_filter **filters);

/* ---- move_link.c ---- */

void move_link_init(struct move_link *link, struct move *move, bool needs_to);

/* Opens closed connections, with retries as the options say. 0 or -ECANCELED. */
int move_link_open(struct move_link *link);

/* One attempt, for the start of a run. 0 or -errno with the reason. */
int move_link_try(struct move_link *link, struct errbuf *err);
void move_link_close(struct move_link *link);
void move_link_lost(struct move_link *link);  /* closes; move_link_open() will wait a moment */
void move_link_works(struct move_link *link); /* a filter is finished */

/* Ends the run with this reason; the first one counts. Returns -ECANCELED. */
int move_fatal(struct move *move, int status, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* The next reply of either server. */
int move_reply(struct move_link *link, struct peer *peer, struct resp_reply *reply_out);

/* The meaning of an error reply for the run. */
enum move_refusal {
    REFUSAL_FILTER,  /* this filter only */
    REFUSAL_COMMAND, /* the server does not have the command, or the user may not use it */
    REFUSAL_FULL,    /* no memory left */
    REFUSAL_LATER,   /* loading, busy */
    REFUSAL_ALL,     /* nothing will work: read-only, no permission, part of a cluster */
};
enum move_refusal move_refusal_of(struct slice text);

static inline bool move_is_error(const struct resp_reply *reply)
{
    return reply->nodes[0].kind == RESP_REPLY_ERROR;
}

bool move_text_has(struct slice text, const char *part);

/* Reads "run_id:", which differs for each process, out of a reply to INFO; "" if it is missing. */
#define MOVE_PROCESS_SIZE 64
void move_read_process(const struct resp_reply *reply, char out[MOVE_PROCESS_SIZE]);

/* Handles a refusal that does not concern one filter: -EAGAIN for REFUSAL_LATER, otherwise move_fatal(). 0 for
 * REFUSAL_FILTER: the caller decides. */
int move_refused(struct move_link *link, const struct peer *peer, const char *command, struct slice text);

/* Reads a reply to BF.INFO or CF.INFO. 1: filled; 0: there is no such filter; -1: an error reply, or another one. */
int move_read_info(const struct resp_reply *reply, bool cuckoo, struct move_info *info_out);
bool move_info_agrees(const struct move_info *a, const struct move_info *b);

/* ---- the threads ---- */

void *move_scan_thread(void *move);
void *move_worker_thread(void *move);

/* ---- the ways of filters ---- */

static inline struct slice move_name(const struct move_filter *filter)
{
    return (struct slice){filter->name, filter->name_len};
}

/* Looks up new filters in the target; finishes those that need not or cannot be moved, makes the others WANTED. */
int move_look(struct move_link *link, struct move_filter **filters, size_t n);

/* Whether the name is a temporary one. */
bool move_is_temporary(struct slice name);

/* Moves one in chunks. */
int move_large(struct move_link *link, struct move_filter *filter);

/* Compares and finishes COPIED filters. */
int move_verify(struct move_link *link, struct move_filter **filters, size_t n);

struct move_probes *move_probes_create(void); /* NULL: no memory */
void move_probes_destroy(struct move_probes *probes);

/* ---- messages: move_run.c ---- */

/* The filter is COPIED: moved, or there already. A moved one is finished by that without `verify`. */
void move_copied(struct move *move, struct move_filter *filter, enum move_outcome outcome);

/* Finishes a filter; the text is the reason why it is not moved, or NULL. */
void move_finish(struct move *move, struct move_filter *filter, enum move_outcome outcome, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
void move_forget_bytes(struct move *move, struct move_filter *filter); /* its chunks under way */
