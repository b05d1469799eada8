/* journal: the add log in the server: what is added on the workers' loops and what happens in the registry goes to the disk
 * by a thread of its own.
 *
 * Adds are noted in a ring of the worker's own (journal_ring.h) before their bits are set, changes of the registry and
 * growth in one queue, in their true order, before anybody can see them. The log thread works in rounds. A round takes what
 * is in the queue and the rings as one frame, in such an order that the frame never has an add without the control records
 * that came before it:
 *
 *     the round's number is made public; the rings' ends are noted; the registry's mutex is taken and given back, so that
 *     changes whose effect somebody has seen are in the queue; the queue is taken; then the records up to the noted ends
 *
 * What the log cannot have (it was switched off, there was no memory) is made up for by a save, and marked by a LOG_BREAK:
 * what follows one is of no use without a save that began later.
 *
 * Whoever wants to know that something is on the disk takes a ticket: the number of the next round to begin. All that the
 * thread itself has done before, and all that it has seen of others, is in that round or an earlier one.
 *
 * When the disk fails, nothing is thrown away: the thread tries again each second, with a new segment, and meanwhile
 * journal_refuses() is true, tickets are not honoured, and writes are to be refused.
 *
 * Thread: any, except where noted. */
#ifndef BLOOMERY_JOURNAL_H
#define BLOOMERY_JOURNAL_H

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

/* Records of one worker that may wait for the log thread, 6 to 10 MB: what arrives in a tenth of a second. Beyond it writers
 * wait. */
#define JOURNAL_RING_LIMIT (256 * 1024)

/* The same for control records, of all together: bytes. */
#define JOURNAL_CONTROL_LIMIT (8 * 1024 * 1024)

struct journal_start {
    const struct fsops *fs; /* NULL: the real one */
    const char *dir;        /* the data directory; copied */
    uint64_t next_segment;  /* as log_reader_open() found them */
    uint64_t last_segment;
    uint64_t next_sequence;
    uint64_t next_control;
    uint64_t oldest_segment; /* of those that are needed; 0: there are none */
    uint64_t log_bytes;     /* of the frames in these */
    struct log_reader *log; /* the one that found them, until journal_create() returns: its tail is written again; may be NULL */
    uint64_t tail;          /* as in struct log_reader_summary, all three */
    uint64_t tail_start;
    uint64_t tail_generation;
    uint64_t salt;          /* random */
    uint64_t generation;    /* as in log_writer.h */
    unsigned nrings;        /* one per worker */

    /* Called by the log thread. Each must be quick and must not call the journal, but for journal_reason(). */
    void (*barrier)(void *ctx);                                     /* takes the registry's mutex and gives it back */
    void (*announce)(void *ctx, unsigned worker, uint64_t ticket);  /* this ticket is on the disk */
    void (*has_room)(void *ctx, unsigned worker);                   /* the worker's ring was full, and is not any more */
    void (*state)(void *ctx, bool failed, const char *text);        /* the log has failed, or works again: for the operator */
    void *ctx;
};

/* Starts the thread; nothing is recorded yet. 0, -errno, or what log_reader_tail() says of `log`: LOG_DAMAGED when its files
 * are no longer what they were. */
int journal_create(struct journal **journal_out, const struct journal_start *start, struct errbuf *err)
    __attribute__((warn_unused_result));

/* Writes and syncs what there is, and ends the thread. The producers must have ended. NULL is fine. */
void journal_destroy(struct journal *journal);

/* ---- what is recorded ----------------------------------------------------------------------------------------------- */

/* Whether things are to be recorded from the start on: the log goes on from what was found. */
void journal_record(struct journal *journal, bool on);
bool journal_records(const struct journal *journal);

/* The same at run time. Either way the log needs a save that begins after this. Switched on, what is recorded is of no use
 * without: a start does not look at it until that save has been committed. */
void journal_switch(struct journal *journal, bool on);

/* Something went by the log that it should have: the same is needed, though it records on. Where the change is made. */
void journal_missed(struct journal *journal);

/* Whether what is on the disk is all that should be: no save is needed for what the log has not got. */
bool journal_is_whole(const struct journal *journal);

void journal_set_policy(struct journal *journal, enum journal_policy policy);

struct journal_ring *journal_ring(struct journal *journal, unsigned worker);

/* The operations of a struct bloom_journal whose ctx is the adding worker's ring, and whose id is the entry's. */
extern const struct bloom_journal_ops journal_ops;

/* Whether something as large as a small filter may be noted: not while control records wait up to their limit, as in a long
 * transaction, which nothing else holds up. */
bool journal_has_room(const struct journal *journal);

/* Notes a change, in the order of the calls. Called where the change is made, under its lock; takes a leaf lock. Without
 * memory the log is incomplete from then on: until a save has made up for it writes are refused, tickets are not honoured, and
 * a start does not look at what is noted. */
void journal_note(struct journal *journal, const struct log_control *control);

/* ---- tickets -------------------------------------------------------------------------------------------------------- */

/* For the loop of worker i, at the end of an iteration in which it may have recorded something: sees to it that the log
 * thread takes it in time. */
void journal_poke(struct journal *journal, unsigned worker);

/* For the loop of worker i under `always`: the ticket that `replies` replies of this moment have to wait for. It will be
 * announced by announce(). 0: they need not wait. */
uint64_t journal_ticket(struct journal *journal, unsigned worker, size_t replies);

/* The same under any policy, for somebody who asks for it: the log thread does not wait for anything but the disk. */
uint64_t journal_ask(struct journal *journal, unsigned worker);

/* Waits until everything recorded before the call is on the disk. 0, or -errno with the reason when the log has failed.
 * Blocks: not on a loop, offline. */
int journal_sync(struct journal *journal, struct errbuf *err) __attribute__((warn_unused_result));

/* The number of a frame that is on the disk with all before it; 0: there are none. What journal_sync() has waited for is in
 * these. */
uint64_t journal_synced_frame(struct journal *journal);

/* Whether writes are to be refused, and why: the text goes behind "-MISCONF Errors writing to the AOF file: ". The first is
 * a load, for once per iteration. */
bool journal_refuses(const struct journal *journal);
void journal_reason(struct journal *journal, struct errbuf *reason_out);

/* Whether so much of worker i's, or so many control records, are waiting that writers should too. If so, has_room()
 * follows. */
bool journal_is_full(struct journal *journal, unsigned worker);

/* A transaction: between the two the log thread takes nothing, so that all of it is in one frame. Short: nothing that
 * blocks. */
void journal_hold(struct journal *journal);
void journal_release(struct journal *journal);
bool journal_held(void); /* whether the calling thread is between the two: it must not wait for the log thread then */

/* ---- saves ---------------------------------------------------------------------------------------------------------- */

/* Between the two, contents are written outside of the log (store_write()) to which adds are already being recorded, and are
 * published: a save that is made meanwhile keeps the segments from the first call on, also when it ends after the second one,
 * as it may have looked at what there is before this was. The storage is the caller's. */
struct journal_keep {
    struct journal_keep *next; /* internal */
    uint64_t segment;
};
void journal_keep_begin(struct journal *journal, struct journal_keep *keep);
void journal_keep_end(struct journal *journal, struct journal_keep *keep);

/* A save begins, and nothing of it has been looked at. Returns what journal_made_up() is to be told. */
uint64_t journal_save_begins(struct journal *journal);

/* Changes up to the number returned are in the save that has begun, if it has all up to now. Under the registry's mutex. */
uint64_t journal_saved_controls(struct journal *journal);

/* Begins a new segment, for a save that starts now. 0 with its number (0: there is no log and never was), or -errno.
 * Blocks. */
int journal_rotate(struct journal *journal, uint64_t *segment_out, struct errbuf *err) __attribute__((warn_unused_result));

/* The first segment that has to stay with the save that began with `segment`. */
uint64_t journal_first_needed(struct journal *journal, uint64_t segment);

/* A save that keeps the segments from `segment` on has been committed: the others are deleted. Blocks. */
void journal_cut(struct journal *journal, uint64_t segment);

/* The save for which journal_save_begins() has returned `begun` has been committed: what was not noted until then is in it. */
void journal_made_up(struct journal *journal, uint64_t begun);

/* ---- what is known -------------------------------------------------------------------------------------------------- */

struct journal_info {
    bool records;
    bool failed;                  /* refuses writes */
    bool incomplete;              /* something could not be noted: a save is needed */
    bool awaits_save;             /* so it is because of journal_switch(); nothing is refused meanwhile */
    struct errbuf reason;
    uint64_t current_bytes;       /* of the log now, as far as it is needed */
    uint64_t base_bytes;          /* of it when the last save was committed or at the start */
    uint64_t pending_bytes;       /* written, not synced */
    uint64_t frames, syncs, written, delayed; /* since the start; delayed: times a worker's ring was full */
    uint64_t queued;              /* records in the rings */
    int64_t last_sync_us;         /* how long the last sync took */
};
void journal_info(struct journal *journal, struct journal_info *info_out);

#endif
