/* Shared between journal.c (what others call) and journal_thread.c (the log thread) only. */
#ifndef BLOOMERY_JOURNAL_INTERNAL_H
#define BLOOMERY_JOURNAL_INTERNAL_H

#include <pthread.h>

#include "journal.h"
#include "log_writer.h"

/* Of one worker; what it and the log thread tell each other. */
struct journal_slot {
    alignas(64) _Atomic uint64_t wanted; /* the highest ticket that the worker has taken */
    _Atomic uint64_t replies;            /* for which it has taken tickets, ever */
    _Atomic uint64_t poked;              /* ring.added at the last poke; the worker's */
    alignas(64) uint64_t announced;      /* the log thread's */
    _Atomic bool full;                   /* a writer waits for room */
    struct journal_ring *ring;
};

/* How the log thread sleeps: until somebody wakes it; for a moment, unless somebody is in a hurry; for a moment, unless
 * all have come back whom the last round has served. */
enum journal_sleep { JOURNAL_AWAKE, JOURNAL_IDLE, JOURNAL_GATHERS, JOURNAL_MEETS };

struct journal {
    struct journal_start start;
    struct log_writer *writer;
    char *dir;
    pthread_t thread;
    struct journal_slot *slots;
    unsigned nslots;

    _Atomic bool records;
    _Atomic bool refuses;
    _Atomic int policy;
    _Atomic uint64_t started;    /* rounds begun */
    _Atomic uint64_t done;       /* all up to this round is on the disk */
    _Atomic int sleep;           /* enum journal_sleep */
    _Atomic uint64_t meet_replies; /* the next round begins when so many have been asked for, or at meet_until_us */

    pthread_mutex_t hold;        /* of transactions, and of the log thread while it looks where things end */

    pthread_mutex_t control_lock;
    struct log_bytes controls;   /* encoded, not taken yet */
    uint64_t next_control;       /* the number of the next one */
    _Atomic size_t control_bytes; /* controls.len, for whoever does not take the lock */
    _Atomic bool incomplete;     /* these five: under control_lock, the two also read without */
    _Atomic bool awaits_save;
    uint64_t breaks;             /* times that something went unrecorded */
    uint64_t first_break;        /* number of the first LOG_BREAK since the last save began; 0: none */
    bool owes_break;             /* there was no memory even for a LOG_BREAK: it comes before anything else */

    pthread_mutex_t lock;        /* of what follows */
    pthread_cond_t wake;         /* of the log thread */
    pthread_cond_t changed;      /* for whoever waits: `done`, `failed`, `rotated` */
    bool stop;
    bool urgent;                 /* a ring is filling up */
    bool wants_rotation;
    uint64_t wanted;             /* the highest ticket of journal_sync() */
    uint64_t rotations;          /* that have ended, well or not */
    int rotate_status;
    uint64_t rotated_segment;
    uint64_t rotated_written;    /* info.written then */
    bool failed;
    int failure;
    uint64_t failures;           /* changes whenever `failed` is set anew */
    struct errbuf reason;
    struct journal_keep *keeps;
    uint64_t kept_for_save;      /* as if a keep that ended since the last save began went on; UINT64_MAX: there was none */
    uint64_t oldest_segment;     /* 0: there is none */
    uint64_t current_segment;
    uint64_t cut_written;        /* info.written at the beginning of the log as it is now */
    uint64_t base_bytes;
    uint64_t start_bytes;        /* of segments of earlier processes that are still there */
    struct log_writer_info info; /* as of the last round */
    uint64_t syncs;
    _Atomic uint64_t delayed;
    uint64_t first_sequence;     /* frames before this process */
    int64_t last_sync_us;

    /* the log thread's own */
    struct ring_mark *marks;     /* of the round, one per ring */
    struct log_bytes taken;      /* control records on their way into a frame */
    uint64_t taken_first;
    uint64_t taken_next;
    bool payload_controls;       /* the writer's next payload has control records */
    int64_t synced_at_us;
    int64_t usual_sync_us;       /* the less of the last two */
    int64_t gather_until_us;     /* 0: nothing to gather */
    int64_t retry_us;
    uint64_t served;             /* replies whose rounds are done */
    int64_t meet_until_us;
};

/* For which tickets have been taken, by all workers. Any thread, this and the next. */
static inline uint64_t journal_replies(const struct journal *j)
{
    uint64_t asked = 0;
    for (unsigned i = 0; i < j->nslots; i++)
        asked += atomic_load_explicit(&j->slots[i].replies, memory_order_relaxed);
    return asked;
}

/* Whether all have come back. */
static inline bool journal_has_met(const struct journal *j)
{
    return journal_replies(j) >= atomic_load_explicit(&j->meet_replies, memory_order_relaxed);
}

void *journal_main(void *arg);

#endif
