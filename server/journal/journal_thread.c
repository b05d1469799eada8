/* The log thread. It sleeps until there are records, gathers more for a moment unless a thread waits, and then makes a
 * round. */
#include "journal_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "clock.h"
#include "thread.h"
#include "lock.h"

#define GATHER_US      20000  /* records within this time share a frame, when no thread waits for them */
#define SYNC_US        900000 /* everysec: with the gathering and the sync itself at most a second is lost */
#define RETRY_US       1000000
#define MARK_US        200000 /* after a sync; without a record by then the log is marked as synced up to its end */
#define RETURN_SHARE   4      /* of the time of a sync that the clients of the last one may take until they return, */
#define RETURN_FAST_US 100    /* or this, but no longer than a sync; */
#define RETURN_MIN_US  20     /* less is not worth a sleep */
#define TIMER_SLACK_NS 5000   /* so that a sleep of that length does not take twice as long */
#define FRAME_MAX      (64u << 20) /* a round of more is several frames */
#define ROOM_AGAIN     (JOURNAL_RING_LIMIT / 2)

/* ---- the contents of a round ---- */

/* A new layer or filter is in the queue before a client can add to it, so the queue is taken after the rings' ends have
 * been noted. A registry change may be visible before it is in the queue; the barrier waits for it. */
static void note_ends(struct journal *j)
{
    lock_take(&j->hold);
    atomic_fetch_add(&j->rounds.started, 1);
    atomic_thread_fence(memory_order_seq_cst);
    for (unsigned i = 0; i < j->nslots; i++)
        j->work.marks[i] = ring_snapshot(j->slots[i].ring);
    j->start.barrier(j->start.ctx);
    lock_take(&j->changes.lock);
    struct log_bytes empty = j->work.controls;
    j->work.controls = j->changes.queue.bytes;
    j->changes.queue.bytes = empty;
    j->work.first_control = j->work.next_control;
    j->work.next_control = j->changes.queue.next;
    j->work.controls_end = controls_end(&j->changes.queue);
    atomic_store(&j->changes.bytes, 0);
    lock_give(&j->changes.lock);
    lock_give(&j->hold);
}

/* Moves the adds from the worker's ring to the payload that is written. */
static int take_run(struct journal *j, struct journal_ring *ring, const struct ring_run *run)
{
    struct log_bytes *payload = log_writer_payload(j->files.writer);
    int status = payload ? log_payload_tagged_adds(payload, run->id, run->layer, run->items, run->n) : -ENOMEM;
    if (status == 0)
        ring_done(ring, run->n);
    return status;
}

static int append_payload(struct journal *j, struct errbuf *err)
{
    if (log_writer_payload_len(j->files.writer) == 0)
        return 0;
    struct log_writer_info info;
    log_writer_info(j->files.writer, &info);
    for (unsigned i = 0; i < j->nslots; i++)
        j->work.places[i] = ring_taken(j->slots[i].ring);
    log_pending_frame(j->files.pending, info.sequence + 1, j->work.placed_next, j->work.places);
    bool controls = j->work.payload_controls;
    j->work.payload_controls = false;
    return log_writer_append(j->files.writer, controls, err); /* it has it, even if the disk has not */
}

/* All frames are in a segment: their records are not pending any more. */
static void release_written(struct journal *j)
{
    for (unsigned i = 0; i < j->nslots; i++)
        ring_release(j->slots[i].ring);
    lock_take(&j->changes.lock);
    controls_release(&j->changes.queue, j->work.places[j->nslots]);
    lock_give(&j->changes.lock);
    struct log_writer_info info;
    log_writer_info(j->files.writer, &info);
    if (j->work.pending_of_others && info.segment) /* which tells the next start whose file to expect */
        j->work.pending_of_others =
            log_pending_delete_before(j->start.fs, j->files.dir, j->start.next_segment, NULL) != 0;
}

static int take_controls(struct journal *j, struct errbuf *err)
{
    if (j->work.controls.len == 0)
        return 0;
    struct log_bytes *payload = log_writer_payload(j->files.writer);
    if (!payload || log_payload_controls(payload, j->work.first_control, &j->work.controls) != 0) {
        errbuf_set(err, "%s", strerror(ENOMEM));
        return -ENOMEM;
    }
    j->work.payload_controls = true;
    j->work.places[j->nslots] = j->work.controls_end;
    j->work.placed_next = j->work.next_control;
    j->work.controls.len = 0;
    return 0;
}

static int take_adds(struct journal *j, struct errbuf *err)
{
    int status = 0;
    for (unsigned i = 0; i < j->nslots; i++) {
        struct journal_ring *ring = j->slots[i].ring;
        struct ring_run run;
        while (status == 0 && (run = ring_peek(ring, &j->work.marks[i])).n != 0) {
            if (take_run(j, ring, &run) != 0) {
                errbuf_set(err, "%s", strerror(ENOMEM));
                return -ENOMEM;
            }
            if (log_writer_payload_len(j->files.writer) >= FRAME_MAX)
                status = append_payload(j, err);
        }
    }
    return status;
}

/* 0: the round is in the segment. */
static int make_round(struct journal *j, struct errbuf *err)
{
    int status = append_payload(j, err); /* of a round that failed */
    if (status == 0)
        status = take_controls(j, err); /* of one that had no memory: later records may build upon them */
    if (status == 0)
        status = append_payload(j, err);
    if (status)
        return status;
    note_ends(j);
    status = take_controls(j, err);
    if (status == 0)
        status = take_adds(j, err);
    return status == 0 ? append_payload(j, err) : status;
}

static int sync_now(struct journal *j, struct errbuf *err)
{
    struct log_writer_info info;
    log_writer_info(j->files.writer, &info);
    int64_t begun = clock_us();
    int status = log_writer_sync(j->files.writer, err);
    j->pace.synced_at_us = begun;
    if (info.synced != info.sequence) {
        lock_take(&j->lock);
        int64_t before = j->syncs.last_us;
        j->syncs.count++;
        j->syncs.last_us = clock_us() - begun;
        j->pace.usual_sync_us = before < j->syncs.last_us ? before : j->syncs.last_us;
        lock_give(&j->lock);
    }
    return status;
}

/* ---- telling others ---- */

static void announce(struct journal *j)
{
    uint64_t done = atomic_load(&j->rounds.done);
    bool honours =
        !atomic_load(&j->changes.incomplete); /* after `done`: a change that was not noted came before its ticket */
    /* Here room is made first, then waits for it are looked up; a writer announces its wait, then looks for room. */
    atomic_thread_fence(memory_order_seq_cst);
    for (unsigned i = 0; i < j->nslots; i++) {
        struct journal_slot *slot = &j->slots[i];
        uint64_t wanted = atomic_load(&slot->wanted);
        if (honours && wanted > slot->announced && slot->announced < done) {
            slot->announced = done;
            j->start.announce(j->start.ctx, i, done);
        }
        /* While the disk fails writers do not wait either: they get the error. */
        bool room = ring_queued(slot->ring) < ROOM_AGAIN && atomic_load(&j->changes.bytes) < JOURNAL_CONTROL_LIMIT;
        if (atomic_load(&slot->full) && (j->trouble.failed || room)) {
            atomic_store(&slot->full, false);
            j->start.has_room(j->start.ctx, i);
        }
    }
}

/* Under the lock: how far the writer is. */
static void take_info(struct journal *j)
{
    log_writer_info(j->files.writer, &j->info);
    atomic_store_explicit(&j->state.kept, j->info.kept, memory_order_relaxed);
}

/* A thread that finds the round done also finds how far the log is on the disk. */
static void note_done(struct journal *j, uint64_t round)
{
    lock_take(&j->lock);
    take_info(j);
    atomic_store(&j->rounds.done, round);
    lock_give(&j->lock);
}

static void note_state(struct journal *j, int status, const struct errbuf *err)
{
    bool was = j->trouble.failed;
    lock_take(&j->lock);
    take_info(j);
    if (j->info.segment) {
        j->extent.current = j->info.segment;
        if (!j->extent.oldest)
            j->extent.oldest = j->info.segment;
    }
    j->trouble.failed = status != 0;
    j->trouble.status = status;
    if (status)
        j->trouble.reason = *err;
    else
        j->trouble.reason.text[0] = '\0';
    atomic_store(&j->state.refuses, j->trouble.failed);
    pthread_cond_broadcast(&j->changed);
    lock_give(&j->lock);
    if (was != j->trouble.failed)
        j->start.state(j->start.ctx, j->trouble.failed, err->text);
    if (status)
        j->pace.retry_us = clock_us() + RETRY_US;
}

/* ---- the thread ---- */

enum due { DUE_NOTHING, DUE_ROUND, DUE_SYNC, DUE_MARK, DUE_END };

static void rotate(struct journal *j, int status, struct errbuf *err)
{
    uint64_t segment = 0;
    if (status == 0 && (status = log_pending_make(j->files.pending)) != 0)
        errbuf_set(err, "%s/log: the file of pending records cannot be made: %s", j->files.dir, fs_error_text(status));
    if (status == 0)
        status = log_writer_rotate(j->files.writer, &segment, err);
    note_state(j, status, err);
    lock_take(&j->lock);
    j->rotation.wanted = false;
    j->rotation.ended++;
    j->rotation.status = status;
    j->rotation.segment = segment;
    j->rotation.written = j->info.written;
    pthread_cond_broadcast(&j->changed);
    lock_give(&j->lock);
}

/* Where a sync takes long, most clients wait for it and ask again as soon as they have been served. An immediate round
 * would have only the requests that arrived during the last sync, and all others would wait for two syncs. So it begins
 * when as many clients have requested a sync as were served, or after a small part of the time of a sync. Where it is
 * fast, this saves processor time: a round of few replies takes as much of it as one of many. */
static void expect_returns(struct journal *j, uint64_t requested_at_begin)
{
    int64_t sync_us = j->pace.usual_sync_us, most_us = sync_us / RETURN_SHARE;
    int64_t fast_us = sync_us < RETURN_FAST_US ? sync_us : RETURN_FAST_US;
    uint64_t served = requested_at_begin - j->pace.served;
    if (most_us < fast_us)
        most_us = fast_us;
    atomic_store_explicit(&j->rounds.returned_replies, journal_replies(j) + served, memory_order_relaxed);
    j->pace.served = requested_at_begin;
    j->pace.returns_until_us = served && most_us >= RETURN_MIN_US ? clock_us() + most_us : 0;
}

static void run_round(struct journal *j, enum due due, bool rotates)
{
    struct errbuf err = {""};
    bool sync = due == DUE_SYNC;
    uint64_t requested = journal_replies(j);
    int status = 0;
    if (log_writer_failed(j->files.writer)) {
        status = log_writer_repair(j->files.writer, &err);
        sync = true;
    }
    if (status == 0)
        status = make_round(j, &err);
    uint64_t round = atomic_load(&j->rounds.started);
    if (status == 0)
        release_written(j);
    if (status == 0 && sync)
        status = sync_now(j, &err);
    if (status == 0 && due >= DUE_MARK)
        status = log_writer_mark(j->files.writer, due == DUE_END, &err);
    struct log_writer_info info;
    log_writer_info(j->files.writer, &info);
    if (status == 0 && info.synced == info.sequence) {
        note_done(j, round);
        expect_returns(j, requested);
    }
    if (rotates)
        rotate(j, status, &err);
    else
        note_state(j, status, &err);
    announce(j);
}

/* ---- when ---- */

/* A ticket that is not on the disk yet, or is and can be announced. */
static bool somebody_waits(const struct journal *j)
{
    uint64_t done = atomic_load(&j->rounds.done);
    bool honours = !atomic_load(&j->changes.incomplete);
    if (j->rounds.requested > done)
        return true;
    for (unsigned i = 0; i < j->nslots; i++) {
        uint64_t wanted = atomic_load(&j->slots[i].wanted);
        if (wanted > done || (honours && wanted > j->slots[i].announced))
            return true;
    }
    return false;
}

static bool still_expects_returns(const struct journal *j, int64_t now)
{
    return now < j->pace.returns_until_us && !journal_all_returned(j) && !j->thread.urgent &&
           j->rounds.requested <= atomic_load(&j->rounds.done);
}

static bool has_records(struct journal *j)
{
    for (unsigned i = 0; i < j->nslots; i++)
        if (ring_queued(j->slots[i].ring))
            return true;
    lock_take(&j->changes.lock);
    bool any = j->changes.queue.bytes.len != 0;
    lock_give(&j->changes.lock);
    return any || j->work.controls.len || log_writer_payload_len(j->files.writer);
}

/* The log is idle, and all of it is synced. */
static enum due mark_is_due(const struct journal *j, int64_t now, int64_t *until_out)
{
    int64_t at = j->pace.synced_at_us + MARK_US;
    if (j->info.marked == j->info.synced)
        return DUE_NOTHING;
    if (now >= at)
        return DUE_MARK;
    *until_out = at;
    return DUE_NOTHING;
}

/* The round that is due now; `until_out` receives the latest time to ask again, 0 for never. Under the lock. */
static enum due round_is_due(struct journal *j, int64_t now, int64_t *until_out)
{
    int policy = atomic_load(&j->state.policy);
    *until_out = 0;
    if (j->trouble.failed) {
        *until_out = j->pace.retry_us;
        return j->rotation.wanted || now >= j->pace.retry_us ? DUE_SYNC : DUE_NOTHING;
    }
    if (j->rotation.wanted)
        return DUE_SYNC;
    if (somebody_waits(j)) {
        if (!still_expects_returns(j, now))
            return DUE_SYNC;
        *until_out = j->pace.returns_until_us;
        return DUE_NOTHING;
    }
    bool unsynced = j->info.synced != j->info.sequence;
    if (policy != JOURNAL_NO && unsynced) {
        int64_t at = policy == JOURNAL_ALWAYS ? now : j->pace.synced_at_us + SYNC_US;
        if (now >= at)
            return DUE_SYNC;
        *until_out = at;
    }
    if (!has_records(j)) {
        j->pace.gather_until_us = 0;
        return unsynced ? DUE_NOTHING : mark_is_due(j, now, until_out);
    }
    if (!j->pace.gather_until_us)
        j->pace.gather_until_us = now + GATHER_US;
    if (j->thread.urgent || now >= j->pace.gather_until_us) {
        j->pace.gather_until_us = 0;
        /* The time of a sync counts from the first frame after the one before. */
        if (!unsynced && j->pace.synced_at_us + SYNC_US < now)
            j->pace.synced_at_us = now;
        return DUE_ROUND;
    }
    if (!*until_out || j->pace.gather_until_us < *until_out)
        *until_out = j->pace.gather_until_us;
    return DUE_NOTHING;
}

static void wait_until(struct journal *j, int64_t until_us)
{
    struct timespec at = {.tv_sec = until_us / 1000000, .tv_nsec = until_us % 1000000 * 1000};
    if (until_us)
        lock_wait_until(&j->thread.wake, &j->lock, CLOCK_MONOTONIC, &at);
    else
        lock_wait(&j->thread.wake, &j->lock);
}

/* Under the lock. Announces its sleep, and looks again before it: threads check the announcement after
 * each new record. */
static enum due sleep_until_due(struct journal *j)
{
    for (;;) {
        int64_t until, now = clock_us();
        bool expects = still_expects_returns(j, now); /* early ones need not wake it */
        atomic_store(&j->rounds.sleep, expects ? JOURNAL_EXPECTS : JOURNAL_IDLE);
        atomic_thread_fence(memory_order_seq_cst);
        enum due due = round_is_due(j, now, &until);
        if (due != DUE_NOTHING || j->thread.stop) {
            atomic_store(&j->rounds.sleep, JOURNAL_AWAKE);
            j->thread.urgent = false;
            return due;
        }
        if (expects) {
            if (!until || j->pace.returns_until_us < until)
                until = j->pace.returns_until_us;
        } else if (j->pace.gather_until_us || somebody_waits(j)) {
            /* It looks by itself soon; only urgent callers need to wake it. */
            atomic_store(&j->rounds.sleep, JOURNAL_GATHERS);
            atomic_thread_fence(memory_order_seq_cst);
            if (round_is_due(j, clock_us(), &until) != DUE_NOTHING)
                continue;
        }
        wait_until(j, until);
    }
}

void *journal_main(void *arg)
{
    struct journal *j = arg;
    thread_begin("log");
    (void)prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS);
    lock_take(&j->lock);
    for (;;) {
        enum due due = sleep_until_due(j);
        bool stop = j->thread.stop, rotates = j->rotation.wanted;
        lock_give(&j->lock);
        run_round(j, stop ? DUE_SYNC : due, rotates);
        if (stop)
            run_round(j, DUE_END, false);
        lock_take(&j->lock);
        if (stop)
            break;
    }
    lock_give(&j->lock);
    return NULL;
}
