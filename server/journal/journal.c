/* Calls of other threads. The cheap ones come first: they run once per iteration of a loop, or per add. */
#include "journal_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "log_reader.h"
#include "lock.h"

#define URGENT_RECORDS (JOURNAL_RING_LIMIT / 8)
#define URGENT_BYTES   (JOURNAL_CONTROL_LIMIT / 8)
#define CONTROL_SPARE  (64 * 1024) /* room for control records, allocated before it is needed */
#define BREAK_ROOM     256         /* of it, kept for a LOG_BREAK */

/* ---- adds ---- */

static void on_add(void *ctx, uint64_t id, struct bloom_hash hash, unsigned layer, uint64_t ordinal)
{
    ring_add(ctx, id, hash, layer, ordinal);
}

struct journal_ring *journal_ring(struct journal *j, unsigned worker)
{
    return j->slots[worker].ring;
}

bool journal_records(const struct journal *j)
{
    return atomic_load_explicit(&j->state.records, memory_order_acquire);
}

bool journal_refuses(const struct journal *j)
{
    return atomic_load_explicit(&j->state.refuses, memory_order_relaxed) ||
           atomic_load_explicit(&j->changes.incomplete, memory_order_relaxed);
}

/* Signalled after the lock, which the log thread needs when it wakes. */
void journal_wake(struct journal *j, bool urgent)
{
    lock_take(&j->lock);
    j->thread.urgent |= urgent;
    lock_give(&j->lock);
    pthread_cond_signal(&j->thread.wake);
}

/* The log thread announces its sleep and then looks again for records; here the order is the reverse. */
void journal_poke(struct journal *j, unsigned worker)
{
    struct journal_slot *slot = &j->slots[worker];
    uint64_t added = atomic_load_explicit(&slot->ring->added, memory_order_relaxed);
    if (added == atomic_load_explicit(&slot->poked, memory_order_relaxed))
        return;
    atomic_store_explicit(&slot->poked, added, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst);
    int sleep = atomic_load_explicit(&j->rounds.sleep, memory_order_relaxed);
    if (sleep == JOURNAL_IDLE)
        journal_wake(j, false);
    else if (sleep != JOURNAL_AWAKE && ring_queued(slot->ring) > URGENT_RECORDS)
        journal_wake(j, true);
}

static bool is_full(const struct journal *j, const struct journal_slot *slot)
{
    return ring_queued(slot->ring) >= JOURNAL_RING_LIMIT ||
           controls_waiting(&j->changes.queue) >= JOURNAL_CONTROL_LIMIT;
}

bool journal_is_full(struct journal *j, unsigned worker)
{
    struct journal_slot *slot = &j->slots[worker];
    if (!is_full(j, slot))
        return false;
    if (!atomic_exchange(&slot->full, true))
        atomic_fetch_add_explicit(&j->state.delayed, 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst); /* announce() has the other one */
    if (!is_full(j, slot)) {                   /* it was emptied just now */
        atomic_store(&slot->full, false);
        return false;
    }
    journal_wake(j, true);
    return true;
}

/* ---- control records ---- */

bool journal_has_room(const struct journal *j)
{
    return controls_waiting(&j->changes.queue) < JOURNAL_CONTROL_LIMIT;
}

uint64_t journal_memory(const struct journal *j)
{
    uint64_t records = 0;
    for (unsigned i = 0; i < j->nslots; i++)
        records += ring_queued(j->slots[i].ring);
    return records * sizeof(struct bloom_replay_item) + controls_waiting(&j->changes.queue) +
           atomic_load_explicit(&j->state.unsynced, memory_order_relaxed);
}

/* The following are called under control_lock. */
static void put_break(struct journal *j)
{
    j->changes.break_missing = controls_put(&j->changes.queue, &(struct log_control){.kind = LOG_BREAK}) != 0;
    if (!j->changes.break_missing && !j->changes.first_break)
        j->changes.first_break = j->changes.queue.end.number - 1;
}

/* Each note leaves room for a LOG_BREAK. A missing LOG_BREAK comes late: only a save after it is good enough. */
static int note(struct journal *j, const struct log_control *control)
{
    int status = controls_reserve(&j->changes.queue, control->name_len + control->record_len + 2 * BREAK_ROOM);
    if (status == 0 && j->changes.break_missing) {
        put_break(j);
        j->changes.breaks++;
    }
    return status == 0 ? controls_put(&j->changes.queue, control) : status;
}

/* As journal_poke() does for adds. */
static void wake_for_controls(struct journal *j)
{
    atomic_thread_fence(memory_order_seq_cst);
    int sleep = atomic_load_explicit(&j->rounds.sleep, memory_order_relaxed);
    if (sleep == JOURNAL_IDLE)
        journal_wake(j, false);
    else if (sleep != JOURNAL_AWAKE && controls_waiting(&j->changes.queue) > URGENT_BYTES)
        journal_wake(j, true);
}

void journal_note(struct journal *j, const struct log_control *control)
{
    if (!journal_records(j))
        return;
    lock_take(&j->changes.lock);
    if (note(j, control) != 0) {
        put_break(j);
        j->changes.breaks++;
        atomic_store(&j->changes.incomplete, true);
    }
    lock_give(&j->changes.lock);
    wake_for_controls(j);
}

static int note_layer(const struct journal_ring *ring, const struct log_control *control, struct errbuf *err)
{
    struct journal *j = ring->journal;
    lock_take(&j->changes.lock);
    int status = note(j, control);
    lock_give(&j->changes.lock);
    if (status)
        errbuf_set(err, "there is no room for the log in memory or on the disk");
    return status;
}

static int on_grow(void *ctx, uint64_t id, unsigned layer, const struct bloom_shape *shape, struct errbuf *err)
{
    struct log_control control = {.kind = LOG_GROW, .id = id, .layer = layer, .shape = *shape};
    return note_layer(ctx, &control, err);
}

static int on_turn(void *ctx, uint64_t id, unsigned layer, const struct bloom_shape *shape,
                   const struct bloom_turn *turn, struct errbuf *err)
{
    struct log_control control = {.kind = LOG_TURN, .id = id, .layer = layer, .shape = *shape, .turn = *turn};
    return note_layer(ctx, &control, err);
}

const struct bloom_journal_ops journal_ops = {
    .add = on_add, .grow = on_grow, .turn = on_turn, .add_both = ring_add_both};
const struct bloom_journal_ops journal_cuckoo_ops = {.add = on_add};

/* ---- switches ---- */

/* The file of pending records is made now, not on a loop. If that fails, the callers that record get the error. */
void journal_record(struct journal *j, bool on)
{
    lock_take(&j->changes.lock);
    if (on)
        (void)!controls_reserve(&j->changes.queue, CONTROL_SPARE / 2);
    lock_give(&j->changes.lock);
    atomic_store(&j->state.records, on);
}

/* At one moment: all records come after the break. A later save contains every unrecorded change that was made under
 * the registry's mutex. It also contains the bits of unrecorded adds, since it waits for their loops. */
void journal_switch(struct journal *j, bool on)
{
    lock_take(&j->changes.lock);
    if (on) {
        (void)!controls_reserve(&j->changes.queue, CONTROL_SPARE / 2);
        put_break(j);
    }
    j->changes.breaks++;
    atomic_store(&j->changes.awaits_save, true);
    atomic_store(&j->state.records, on);
    lock_give(&j->changes.lock);
    wake_for_controls(j);
}

void journal_missed(struct journal *j)
{
    lock_take(&j->changes.lock);
    put_break(j);
    j->changes.breaks++;
    atomic_store(&j->changes.awaits_save, true);
    lock_give(&j->changes.lock);
    wake_for_controls(j);
}

bool journal_is_whole(const struct journal *j)
{
    return !atomic_load(&j->changes.incomplete) && !atomic_load(&j->changes.awaits_save);
}

void journal_set_policy(struct journal *j, enum journal_policy policy)
{
    atomic_store(&j->state.policy, (int)policy);
    journal_wake(j, false);
}

/* ---- tickets ---- */

/* A round that begins after the fence sees all earlier work of this thread and of those whose effects it saw. */
static uint64_t take_ticket(struct journal *j)
{
    atomic_thread_fence(memory_order_seq_cst);
    return atomic_load_explicit(&j->rounds.started, memory_order_relaxed) + 1;
}

static uint64_t ask(struct journal *j, struct journal_slot *slot, size_t replies)
{
    uint64_t ticket = take_ticket(j);
    uint64_t requested = atomic_load_explicit(&slot->replies, memory_order_relaxed) + replies;
    atomic_store_explicit(&slot->wanted, ticket, memory_order_relaxed);
    atomic_store_explicit(&slot->replies, requested, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst);
    int sleep = atomic_load_explicit(&j->rounds.sleep, memory_order_relaxed);
    if (sleep != JOURNAL_AWAKE && (sleep != JOURNAL_EXPECTS || journal_all_returned(j)))
        journal_wake(j, false);
    return ticket;
}

uint64_t journal_ticket(struct journal *j, unsigned worker, size_t replies)
{
    if (atomic_load_explicit(&j->state.policy, memory_order_relaxed) != JOURNAL_ALWAYS || !journal_records(j))
        return 0;
    return ask(j, &j->slots[worker], replies);
}

uint64_t journal_ask(struct journal *j, unsigned worker)
{
    return ask(j, &j->slots[worker], 0);
}

int journal_failure(const struct journal *j, struct errbuf *err)
{
    *err = j->trouble.reason;
    return j->trouble.status;
}

int journal_sync(struct journal *j, struct errbuf *err)
{
    uint64_t ticket = take_ticket(j);
    int status = 0;
    lock_take(&j->lock);
    if (j->rounds.requested < ticket)
        j->rounds.requested = ticket;
    pthread_cond_signal(&j->thread.wake);
    while (atomic_load(&j->rounds.done) < ticket && !j->trouble.failed)
        lock_wait(&j->changed, &j->lock);
    if (atomic_load(&j->rounds.done) < ticket)
        status = journal_failure(j, err);
    lock_give(&j->lock);
    return status;
}

uint64_t journal_synced_frame(struct journal *j)
{
    lock_take(&j->lock);
    uint64_t frame = j->info.synced;
    lock_give(&j->lock);
    return frame;
}

void journal_reason(struct journal *j, struct errbuf *reason_out)
{
    lock_take(&j->lock);
    bool failed = j->trouble.failed;
    *reason_out = j->trouble.reason;
    lock_give(&j->lock);
    if (!failed)
        errbuf_set(reason_out, "out of memory for a log record; the next save will contain the change");
}

void journal_hold(struct journal *j, const struct journal_ring *ring)
{
    lock_take(&j->hold);
    if (!ring)
        return;
    lock_take(&j->changes.lock);
    struct pending_chunk *const last[2] = {ring->tail, j->changes.queue.end.chunk};
    log_pending_hold(j->files.pending, ring->stream, ring_end(ring), ring_place_of(&j->changes.queue.end, j->nslots),
                     last);
    lock_give(&j->changes.lock);
}

void journal_release(struct journal *j)
{
    log_pending_release(j->files.pending);
    lock_give(&j->hold);
}

/* ---- information ---- */

void journal_info(struct journal *j, struct journal_info *info_out)
{
    uint64_t queued = 0;
    for (unsigned i = 0; i < j->nslots; i++)
        queued += ring_queued(j->slots[i].ring);
    lock_take(&j->lock);
    *info_out = (struct journal_info){
        .records = journal_records(j),
        .failed = j->trouble.failed,
        .incomplete = atomic_load(&j->changes.incomplete),
        .awaits_save = atomic_load(&j->changes.awaits_save),
        .reason = j->trouble.reason,
        .current_bytes = j->extent.start_bytes + j->info.written - j->extent.cut_written,
        .base_bytes = j->extent.base_bytes,
        .pending_bytes = j->info.unsynced,
        .frames = j->info.sequence - j->syncs.first_sequence,
        .syncs = j->syncs.count,
        .written = j->info.written,
        .delayed = atomic_load(&j->state.delayed),
        .queued = queued,
        .last_sync_us = j->syncs.last_us,
    };
    lock_give(&j->lock);
}

/* ---- lifetime ---- */

static void journal_free(struct journal *j)
{
    for (unsigned i = 0; i < j->nslots; i++)
        ring_destroy(j->slots[i].ring);
    free(j->slots);
    free(j->work.marks);
    log_pending_destroy(j->files.pending, j->thread.all_written);
    log_writer_destroy(j->files.writer);
    controls_deinit(&j->changes.queue);
    log_reader_close(j->files.unsettled);
    free(j->work.ends);
    free(j->work.places);
    free(j->files.dir);
    pthread_cond_destroy(&j->thread.wake);
    pthread_cond_destroy(&j->changed);
    lock_deinit(&j->lock);
    lock_deinit(&j->changes.lock);
    lock_deinit(&j->hold);
    free(j);
}

static int make_rings(struct journal *j, unsigned n)
{
    j->slots = aligned_alloc(64, n * sizeof(*j->slots));
    j->work.marks = calloc(n, sizeof(*j->work.marks));
    j->work.ends = calloc(n, sizeof(*j->work.ends));
    j->work.places = calloc(n + 1, sizeof(*j->work.places));
    if (!j->slots || !j->work.marks || !j->work.ends || !j->work.places)
        return -ENOMEM;
    memset(j->slots, 0, n * sizeof(*j->slots));
    for (; j->nslots < n; j->nslots++) {
        TRY(ring_create(&j->slots[j->nslots].ring, j->files.pending, j->nslots));
        j->slots[j->nslots].ring->journal = j;
    }
    return 0;
}

/* All but the thread. 0 or -errno. */
static int make_parts(struct journal *j)
{
    const struct journal_start *start = &j->start;
    struct log_writer_options options = {
        .fs = start->fs,
        .dir = start->dir,
        .next_segment = start->next_segment,
        .previous_segment = start->last_segment,
        .next_sequence = start->next_sequence,
        .salt = start->salt,
        .generation = start->generation,
        .still_ours = start->still_ours,
        .ctx = start->ctx,
    };
    const struct log_pending_options pending = {
        .fs = start->fs,
        .dir = start->dir,
        .process = start->next_segment,
        .generation = start->generation,
        .salt = start->salt ^ UINT64_C(0x8a5cd789635d2dff),
        .nstreams = start->nrings + 1,
        .frame = start->next_sequence - 1,
        .control = start->next_control,
    };
    j->files.dir = strdup(start->dir);
    TRY(j->files.dir ? log_pending_create(&j->files.pending, &pending) : -ENOMEM);
    controls_init(&j->changes.queue, j->files.pending, start->nrings, start->next_control);
    TRY(make_rings(j, start->nrings));
    TRY(log_bytes_reserve(&j->changes.queue.record, CONTROL_SPARE));
    return log_writer_create(&options, &j->files.writer);
}

static int make_thread(struct journal *j, struct errbuf *err)
{
    log_writer_info(j->files.writer, &j->info);
    int status = -pthread_create(&j->thread.id, NULL, journal_main, j);
    if (status)
        errbuf_set(err, "cannot start a thread: %s", strerror(-status));
    return status;
}

int journal_create(struct journal **journal_out, const struct journal_start *start, struct errbuf *err)
{
    struct journal *j = calloc(1, sizeof(*j));
    if (!j) {
        log_reader_close(start->log);
        return errbuf_fail(err, -ENOMEM, "%s", strerror(ENOMEM));
    }
    lock_init(&j->lock, RANK_JOURNAL);
    lock_init(&j->changes.lock, RANK_CHANGES);
    lock_init(&j->hold, RANK_TRANSACTION);
    pthread_cond_init(&j->thread.wake, NULL);
    pthread_cond_init(&j->changed, NULL);
    j->start = *start;
    j->start.fs = start->fs ? start->fs : fsops_posix();
    j->syncs.first_sequence = start->next_sequence - 1;
    j->files.unsettled = start->log;
    j->work.stated = start->next_sequence - 1;
    j->extent.oldest = start->oldest_segment;
    j->saves.kept = UINT64_MAX;
    j->extent.start_bytes = start->log_bytes;
    atomic_init(&j->state.policy, JOURNAL_EVERYSEC);
    int status = make_parts(j);
    if (status)
        errbuf_set(err, "%s", strerror(-status));
    else
        status = make_thread(j, err);
    if (status) {
        journal_free(j);
        return status;
    }
    *journal_out = j;
    return 0;
}

void journal_destroy(struct journal *j)
{
    if (!j)
        return;
    lock_take(&j->lock);
    j->thread.stop = true;
    pthread_cond_signal(&j->thread.wake);
    lock_give(&j->lock);
    pthread_join(j->thread.id, NULL);
    j->thread.all_written = !j->trouble.failed;
    journal_free(j);
}
