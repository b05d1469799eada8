/* Shared between journal.c (calls of other threads) and journal_thread.c (the log thread) only. */
#pragma once

#include <pthread.h>

#include "journal.h"
#include "journal_ring.h"
#include "log_writer.h"
#include "lock.h"

/* Shared by one worker and the log thread. */
struct journal_slot {
    alignas(64) _Atomic uint64_t wanted; /* the highest ticket that the worker has taken */
    _Atomic uint64_t replies;            /* for which it has taken tickets, ever */
    _Atomic uint64_t poked;              /* ring.added at the last poke; the worker's */
    struct journal_ring *ring;           /* read with each add */
    alignas(64) uint64_t announced;      /* the log thread's */
    _Atomic bool full;                   /* a writer waits for room */
};

/* The log thread: working; asleep until a wake-up; asleep for a moment to gather records, unless a caller is urgent;
 * asleep for a moment until the clients of the last round return. */
enum journal_sleep { JOURNAL_AWAKE, JOURNAL_IDLE, JOURNAL_GATHERS, JOURNAL_EXPECTS };

/* Rounds and the waits for them. */
struct journal_rounds {
    _Atomic uint64_t started;          /* rounds begun */
    _Atomic uint64_t done;             /* all up to this round is on the disk */
    uint64_t requested;                /* the highest ticket of journal_sync(); under journal.lock */
    _Atomic int sleep;                 /* enum journal_sleep */
    _Atomic uint64_t returned_replies; /* the clients are back when this many replies have been asked for */
};

/* Changes of filters on their way to the log. */
struct journal_changes {
    struct lock lock; /* of all of it; the atomic ones are also read without */
    struct journal_controls queue;
    _Atomic bool incomplete;
    _Atomic bool awaits_save;
    uint64_t breaks;      /* number of gaps: changes went unrecorded */
    uint64_t first_break; /* number of the first LOG_BREAK since the last save began; 0: none */
    bool break_missing;   /* there was no memory even for a LOG_BREAK: it becomes the next record */
};

struct journal_files {
    struct log_writer *writer;
    struct log_pending *pending;
    struct log_reader *unsettled; /* log_reader_settle() comes before all else; NULL: it is done */
    char *dir;
};

/* Read without the lock. */
struct journal_state {
    _Atomic bool records;
    _Atomic bool refuses;
    _Atomic int policy;
    _Atomic uint64_t delayed;
    _Atomic uint64_t unsynced; /* info.unsynced */
};

/* The following are under journal.lock. */
struct journal_thread {
    pthread_t id;
    pthread_cond_t wake;
    bool stop;
    bool urgent;      /* a ring is filling up */
    bool all_written; /* at the end: no record is pending */
};

struct journal_syncs {
    uint64_t count;
    uint64_t first_sequence; /* frames before this process */
    int64_t last_us;
};

struct journal_rotation {
    bool wanted;
    uint64_t ended; /* rotations so far, failed ones included; the next three: of the last one */
    int status;
    uint64_t segment;
    uint64_t written; /* info.written then */
};

struct journal_trouble {
    bool failed;
    int status;
    struct errbuf reason;
};

/* The part of the log that is still needed. */
struct journal_extent {
    uint64_t oldest; /* segment; 0: none */
    uint64_t current;
    uint64_t cut_written; /* info.written at the beginning of the log as it is now */
    uint64_t base_bytes;
    uint64_t start_bytes; /* of segments of earlier processes that are still there */
};

struct journal_saves {
    struct journal_keep *keeps;
    uint64_t kept; /* the first segment of keeps that ended since the last save began; UINT64_MAX: none */
};

/* The round that is being made; the log thread's own. */
struct journal_work {
    struct ring_mark *marks;                  /* one per ring: the end of the round */
    struct ring_place *ends;                  /* one per ring: the end of the frame */
    struct log_place *places;                 /* one per stream */
    struct ring_place controls, controls_end; /* the control records of the round that no frame has */
    uint64_t stated; /* the last frame of which the file of pending records knows that it is synced */
};

/* When the next round is due; the log thread's own. */
struct journal_pace {
    int64_t synced_at_us;
    int64_t usual_sync_us;   /* the shorter of the last two */
    int64_t gather_until_us; /* 0: nothing to gather */
    int64_t retry_us;
    uint64_t served; /* replies whose rounds are done */
    int64_t returns_until_us;
};

struct journal {
    struct journal_start start;
    struct journal_files files;
    struct journal_slot *slots;
    unsigned nslots;
    struct journal_state state;
    struct lock hold; /* held by a transaction, and by the log thread while it notes the ends of the queues */

    struct journal_changes changes;
    struct journal_rounds rounds;
    struct journal_work work;
    struct journal_pace pace;

    struct lock lock;       /* of the following members */
    pthread_cond_t changed; /* signals changes of rounds.done, trouble and rotation */
    struct journal_thread thread;
    struct journal_rotation rotation;
    struct journal_trouble trouble;
    struct journal_extent extent;
    struct journal_saves saves;
    struct log_writer_info info; /* as of the last round */
    struct journal_syncs syncs;
};

/* Replies for which tickets have been taken, by all workers. Any thread, this and the next. */
static inline uint64_t journal_replies(const struct journal *j)
{
    uint64_t requested = 0;
    for (unsigned i = 0; i < j->nslots; i++)
        requested += atomic_load_explicit(&j->slots[i].replies, memory_order_relaxed);
    return requested;
}

/* Whether all clients that the last round has served have asked again. */
static inline bool journal_all_returned(const struct journal *j)
{
    return journal_replies(j) >= atomic_load_explicit(&j->rounds.returned_replies, memory_order_relaxed);
}

void *journal_main(void *arg);

/* Why the log has failed: its status, and the text in `err`. Under the lock. */
int journal_failure(const struct journal *journal, struct errbuf *err);

void journal_wake(struct journal *journal, bool urgent);
