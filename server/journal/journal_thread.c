/* The log thread sleeps until there are records, gathers more for a moment unless a thread waits, and makes a round. */
#include "journal_internal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "clock.h"
#include "log_reader.h"
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
    j->work.controls = j->changes.queue.written;
    j->work.controls_end = j->changes.queue.end;
    lock_give(&j->changes.lock);
    lock_give(&j->hold);
}

/* The next frame of the round: its length, and in work.ends and work.places how far it goes. 0: there is none. */
static size_t plan_frame(struct journal *j, struct log_payload_head *head)
{
    struct journal_work *work = &j->work;
    struct ring_run run;
    *head = (struct log_payload_head){.control_bytes = (uint32_t)(work->controls_end.count - work->controls.count)};
    size_t len = head->control_bytes;
    if (len) {
        head->first_control = work->controls.number;
        work->places[head->nplaces++] = ring_place_of(&work->controls_end, j->nslots);
    }
    for (unsigned i = 0; i < j->nslots; i++) {
        const struct journal_ring *ring = j->slots[i].ring;
        struct ring_place *end = &work->ends[i];
        *end = ring->written;
        while (len < FRAME_MAX && (run = ring_next(ring, end, &work->marks[i])).n)
            len += sizeof(struct log_group) + run.n * sizeof(run.items[0]);
        if (end->count != ring->written.count)
            work->places[head->nplaces++] = ring_place_of(end, i);
    }
    return len ? len + sizeof(*head) + head->nplaces * sizeof(work->places[0]) : 0;
}

static int put_adds(struct journal *j, unsigned slot, struct errbuf *err)
{
    const struct journal_ring *ring = j->slots[slot].ring;
    const struct ring_mark mark = {j->work.ends[slot].chunk, j->work.ends[slot].used};
    struct ring_place at = ring->written;
    struct ring_run run;
    while ((run = ring_next(ring, &at, &mark)).n) {
        const struct log_group group = {run.id, run.layer, (uint32_t)run.n};
        TRY(log_writer_put(j->files.writer, &group, sizeof(group), err));
        TRY(log_writer_put(j->files.writer, run.items, run.n * sizeof(run.items[0]), err));
    }
    return 0;
}

static int write_frame(struct journal *j, const struct log_payload_head *head, size_t len, struct errbuf *err)
{
    struct log_writer *writer = j->files.writer;
    struct ring_place at = j->work.controls;
    size_t n = head->control_bytes;
    TRY(log_writer_begin(writer, head->control_bytes != 0, len, err));
    TRY(log_writer_put(writer, head, sizeof(*head), err));
    TRY(log_writer_put(writer, j->work.places, head->nplaces * sizeof(j->work.places[0]), err));
    while (n) {
        const void *bytes = controls_next(&at, &j->work.controls_end, &n);
        TRY(log_writer_put(writer, bytes, n, err));
    }
    for (unsigned i = 0; i < j->nslots; i++)
        if (j->work.ends[i].count != j->slots[i].ring->written.count)
            TRY(put_adds(j, i, err));
    TRY(log_writer_end(writer, err));
    for (unsigned i = 0; i < j->nslots; i++)
        ring_written(j->slots[i].ring, &j->work.ends[i]);
    if (head->control_bytes) { /* otherwise the first chunk may have come since */
        j->work.controls = j->work.controls_end;
        lock_take(&j->changes.lock);
        controls_written(&j->changes.queue, &j->work.controls_end);
        lock_give(&j->changes.lock);
    }
    return 0;
}

/* All that is written is synced: the file of pending records need not keep it. */
static void note_synced(struct journal *j, uint64_t frame)
{
    struct journal_controls *queue = &j->changes.queue;
    if (frame == j->work.stated)
        return;
    for (unsigned i = 0; i < j->nslots; i++) {
        struct journal_ring *ring = j->slots[i].ring;
        ring->synced = ring->written;
        j->work.places[i] = ring_place_of(&ring->synced, i);
    }
    lock_take(&j->changes.lock);
    queue->synced = queue->written;
    j->work.places[j->nslots] = ring_place_of(&queue->synced, j->nslots);
    log_pending_synced(j->files.pending, frame, queue->synced.number, j->work.places);
    controls_release(queue);
    lock_give(&j->changes.lock);
    for (unsigned i = 0; i < j->nslots; i++)
        ring_release(j->slots[i].ring);
    j->work.stated = frame;
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
    if (status == 0)
        note_synced(j, info.sequence);
    return status;
}

/* 0: the round is in the segment. */
static int make_round(struct journal *j, struct errbuf *err)
{
    struct log_payload_head head;
    size_t len = 1;
    note_ends(j);
    while (len) {
        if (log_writer_is_due(j->files.writer))
            TRY(sync_now(j, err));
        len = plan_frame(j, &head);
        if (len)
            TRY(write_frame(j, &head, len, err));
    }
    return 0;
}

/* After a failure: unsynced records are written again. */
static int repair(struct journal *j, struct errbuf *err)
{
    for (unsigned i = 0; i < j->nslots; i++)
        ring_written(j->slots[i].ring, &j->slots[i].ring->synced);
    lock_take(&j->changes.lock);
    controls_written(&j->changes.queue, &j->changes.queue.synced);
    lock_give(&j->changes.lock);
    return log_writer_repair(j->files.writer, err);
}

/* What earlier processes have left is put on the disk before all else. */
static int settle(struct journal *j, struct errbuf *err)
{
    int status = j->start.still_ours ? j->start.still_ours(j->start.ctx) : 0;
    if (status)
        errbuf_set(err, "%s: the data directory has been moved, removed or replaced", j->files.dir);
    else
        status = log_reader_settle(j->files.unsettled, j->files.pending, err);
    if (status == 0) {
        log_reader_close(j->files.unsettled);
        j->files.unsettled = NULL;
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
        bool room = ring_queued(slot->ring) < ROOM_AGAIN && controls_waiting(&j->changes.queue) < JOURNAL_CONTROL_LIMIT;
        if (atomic_load(&slot->full) && (j->trouble.failed || room)) {
            atomic_store(&slot->full, false);
            j->start.has_room(j->start.ctx, i);
        }
    }
}

/* Under the lock: how far the writer is. Also before a rotation, which hides the segment before it. */
static void take_info(struct journal *j)
{
    log_writer_info(j->files.writer, &j->info);
    atomic_store_explicit(&j->state.unsynced, j->info.unsynced, memory_order_relaxed);
    if (j->info.segment) {
        j->extent.current = j->info.segment;
        if (!j->extent.oldest)
            j->extent.oldest = j->info.segment;
    }
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
    STEP(status, log_writer_rotate(j->files.writer, &segment, err));
    if (status == 0)
        log_pending_look(j->files.pending);
    note_state(j, status, err);
    lock_take(&j->lock);
    j->rotation = (struct journal_rotation){
        .ended = j->rotation.ended + 1, .status = status, .segment = segment, .written = j->info.written};
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
    if (j->files.unsettled)
        status = settle(j, &err);
    if (status == 0 && log_writer_failed(j->files.writer)) {
        status = repair(j, &err);
        sync = true;
    }
    STEP(status, make_round(j, &err));
    uint64_t round = atomic_load(&j->rounds.started);
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

static bool has_records(const struct journal *j)
{
    for (unsigned i = 0; i < j->nslots; i++)
        if (ring_queued(j->slots[i].ring))
            return true;
    return controls_waiting(&j->changes.queue) != 0;
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
    if (j->rotation.wanted || j->files.unsettled)
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

/* Under the lock. Announces its sleep, and looks again before it: threads check it after each new record. */
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
