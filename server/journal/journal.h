/* journal: the log in the server. It takes adds from the workers and changes from the registry, and writes them to the
 * disk in its own thread, as they are: what is not synced stays in the rings and in the queue.
 *
 * A worker records an add in its ring (journal_ring.h) before it sets the bits. Changes of the registry and growth go
 * into one queue (struct journal_controls), in their true order, before any thread can see them. Rings and queue are in
 * a mapped file (log_pending.h), so a process that is killed loses no record.
 *
 * The log thread works in rounds. A round writes the records of the queue and the rings as one frame. No frame has an
 * add without the control records that came before it, because a round goes in this order: it publishes the round's
 * number; it notes the ends of the rings; it takes the registry's mutex and releases it, so that the queue has all
 * changes whose effect any thread has seen; it takes the queue; it takes the rings' records up to the noted ends.
 *
 * A save makes up for changes that the log lacks, because it was switched off or because there was no memory. LOG_BREAK
 * marks the place: the control records after it are valid only with a save that began later.
 *
 * A caller that waits for the disk takes a ticket: the number of the next round to begin. That round, or an earlier
 * one, has all changes that the calling thread has made or seen.
 *
 * When the disk fails, the thread tries again each second with a new segment, from the last synced record on. Until it
 * succeeds journal_refuses() is true, no ticket is announced, and the callers refuse writes.
 *
 * Thread: any, except where noted. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "bloom_filter.h"
#include "errbuf.h"
#include "fsops.h"
#include "journal_ring.h"
#include "log_payload.h"

struct journal;
struct log_reader;

enum journal_policy { JOURNAL_ALWAYS, JOURNAL_EVERYSEC, JOURNAL_NO }; /* `appendfsync` */

/* Records of one worker that may wait for the log thread: 6 to 10 MB, the adds of 100 ms. Beyond that writers wait. */
#define JOURNAL_RING_LIMIT (256 * 1024)

/* The most control records of all threads that may wait, in bytes. */
#define JOURNAL_CONTROL_LIMIT (8 * 1024 * 1024)

struct journal_start {
    const struct fsops *fs; /* NULL: the real one */
    const char *dir;        /* the data directory; copied */
    uint64_t next_segment;  /* this and the next three: as log_reader_open() found them */
    uint64_t last_segment;
    uint64_t next_sequence;
    uint64_t next_control;
    uint64_t oldest_segment; /* the oldest that is still needed; 0: none */
    uint64_t log_bytes;      /* of the frames from that segment on */
    struct log_reader *log;  /* for log_reader_settle(), or NULL. The journal closes it, in any case */
    uint64_t salt;           /* random */
    uint64_t generation;     /* as in log_writer.h */
    unsigned nrings;         /* one per worker */

    /* Called by the log thread. Each must be quick and must not call the journal, except for journal_reason(). */
    void (*barrier)(void *ctx);                                    /* takes the registry's mutex and gives it back */
    void (*announce)(void *ctx, unsigned worker, uint64_t ticket); /* the ticket's round is on the disk */
    void (*has_room)(void *ctx, unsigned worker);                  /* the worker's ring is no longer full */
    void (*state)(void *ctx, bool failed, const char *text); /* the log has failed, or works again: for the operator */
    int (*still_ours)(void *ctx); /* as in log_writer.h; may wait for the disk; NULL: no check */
    void *ctx;
};

/* Starts the thread; nothing is recorded yet. 0 or -errno. */
int journal_create(struct journal **journal_out, const struct journal_start *start, struct errbuf *err)
    __attribute__((warn_unused_result));

/* Writes and syncs all records, and ends the thread. The threads that record must have ended. NULL is fine. */
void journal_destroy(struct journal *journal);

/* ---- recording ---- */

/* Switches recording on or off at the start: the log continues after the records that were found. */
void journal_record(struct journal *journal, bool on);
bool journal_records(const struct journal *journal);

/* Switches recording on or off at run time. Either way the log needs a save that begins after this call. After
 * switching on, a start passes over the new control records unless that save has been committed. */
void journal_switch(struct journal *journal, bool on);

/* A change was not recorded although the log is on: the log needs such a save, too. Called where it changes. */
void journal_missed(struct journal *journal);

/* Whether the log and the last save together have every change; otherwise a save is needed. What could not be written
 * is in the file of pending records, so that only a crash of the machine can lose it. */
bool journal_is_whole(const struct journal *journal);

void journal_set_policy(struct journal *journal, enum journal_policy policy);

struct journal_ring *journal_ring(struct journal *journal, unsigned worker);

/* The operations of a struct bloom_journal whose ctx is the adding worker's ring, and whose id is the entry's. */
extern const struct bloom_journal_ops journal_ops;

/* The same for cuckoo filters: the log has no record of their growth, which the same adds repeat. */
extern const struct bloom_journal_ops journal_cuckoo_ops;

/* Whether there is room for the contents of a small filter. Not while the waiting control records have reached their
 * limit, as they can in a long transaction, which does not wait for room. */
bool journal_has_room(const struct journal *journal);

/* Memory of the records that are not written and synced yet. Thread: any; takes no lock. */
uint64_t journal_memory(const struct journal *journal);

/* Records a change, in the order of the calls. Called at the place of the change, under its lock; takes a leaf lock.
 * Without memory the log becomes incomplete: until a save has been committed writes are refused, no ticket is
 * announced, and a start passes over the control records that follow. */
void journal_note(struct journal *journal, const struct log_control *control);

/* ---- tickets ---- */

/* Called by the loop of worker i at the end of each iteration: wakes the log thread if it must take new records. */
void journal_poke(struct journal *journal, unsigned worker);

/* Called by the loop of worker i: the ticket for which `replies` replies must wait under `always`. announce() follows.
 * 0: they need not wait. */
uint64_t journal_ticket(struct journal *journal, unsigned worker, size_t replies);

/* A ticket under any policy, for WAITAOF: its round begins without delay. */
uint64_t journal_ask(struct journal *journal, unsigned worker);

/* Waits until everything recorded before the call is on the disk. 0, or -errno with the reason when the log has failed.
 * Blocks: not on a loop, offline. */
int journal_sync(struct journal *journal, struct errbuf *err) __attribute__((warn_unused_result));

/* The number of the last frame that is on the disk with all frames before it; 0: none. After journal_sync() these
 * frames have all records from before that call. */
uint64_t journal_synced_frame(struct journal *journal);

/* Whether writes are refused, and the reason, which follows "-MISCONF Errors writing to the AOF file: ". The first
 * costs one load, for a call per iteration. */
bool journal_refuses(const struct journal *journal);
void journal_reason(struct journal *journal, struct errbuf *reason_out);

/* Whether the waiting records of worker i, or the waiting control records, have reached their limit, so that writers
 * must wait. has_room() follows. */
bool journal_is_full(struct journal *journal, unsigned worker);

/* Between the two calls the log thread takes no records, so that all records of this time are in one frame. With the
 * ring of the calling worker they are a transaction: a kill before journal_release() leaves none of them. Nothing may
 * block in between. */
void journal_hold(struct journal *journal, const struct journal_ring *ring);
void journal_release(struct journal *journal);

/* ---- saves ---- */

/* Between the two calls a filter is written by store_write() and published while adds to it are already recorded. A
 * save during this time keeps the segments from the first call on, even if it ends after the second call, because it
 * may have walked the registry before the filter existed. The storage is the caller's. */
struct journal_keep {
    struct journal_keep *next; /* internal */
    uint64_t segment;
};
void journal_keep_begin(struct journal *journal, struct journal_keep *keep);
void journal_keep_end(struct journal *journal, struct journal_keep *keep);

/* Called before a save reads its first filter. Returns the argument for journal_save_committed(). */
uint64_t journal_save_begins(struct journal *journal);

/* The number of the last control record whose change is in the save that has begun, provided that the save has all
 * changes made so far. Called under the registry's mutex. */
uint64_t journal_saved_controls(struct journal *journal);

/* Begins a new segment, for a save that starts now. 0 with its number (0: no log ever), or -errno. Blocks. */
int journal_rotate(struct journal *journal, uint64_t *segment_out, struct errbuf *err)
    __attribute__((warn_unused_result));

/* Whether this segment (0: none), which a save needs, and the one that is written now are in their places: called
 * before the save counts, and before an end without a save. 0, or -errno with a text: somebody removed one. */
int journal_look(struct journal *journal, uint64_t first, struct errbuf *err) __attribute__((warn_unused_result));

/* The first segment that must stay with the save that began with `segment`. */
uint64_t journal_first_needed(struct journal *journal, uint64_t segment);

/* A save that keeps the segments from `segment` on has been committed: the others are deleted. Blocks. */
void journal_cut(struct journal *journal, uint64_t segment);

/* The save for which journal_save_begins() returned `begun` has been committed: it has what went unrecorded before. */
void journal_save_committed(struct journal *journal, uint64_t begun);

/* ---- the state of the log ---- */

struct journal_info {
    bool records;
    bool failed;      /* refuses writes */
    bool incomplete;  /* something could not be noted: a save is needed */
    bool awaits_save; /* incomplete because of journal_switch(); no write is refused */
    struct errbuf reason;
    uint64_t current_bytes;                   /* of the log now, as far as it is needed */
    uint64_t base_bytes;                      /* of it when the last save was committed or at the start */
    uint64_t pending_bytes;                   /* written, not synced */
    uint64_t frames, syncs, written, delayed; /* since the start; delayed: times a worker's ring was full */
    uint64_t queued;                          /* records in the rings */
    int64_t last_sync_us;                     /* how long the last sync took */
};
void journal_info(struct journal *journal, struct journal_info *info_out);
