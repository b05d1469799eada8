/* What other threads call. The cheap ones first: they are called once per iteration of a loop, or per add. */
#include "journal_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "log_reader.h"

#define URGENT_RECORDS (JOURNAL_RING_LIMIT / 8)
#define URGENT_BYTES   (JOURNAL_CONTROL_LIMIT / 8)
#define CONTROL_SPARE  (64 * 1024) /* room for control records that is there before it is needed */
#define BREAK_ROOM     256         /* of it, what is kept for saying that there is no more */

/* ---- adds ------------------------------------------------------------------------------------------------------------ */

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
    return atomic_load_explicit(&j->records, memory_order_acquire);
}

bool journal_refuses(const struct journal *j)
{
    return atomic_load_explicit(&j->refuses, memory_order_relaxed) || atomic_load_explicit(&j->incomplete, memory_order_relaxed);
}

/* Signalled behind the lock, which the log thread needs when it wakes. */
static void wake(struct journal *j, bool urgent)
{
    pthread_mutex_lock(&j->lock);
    j->urgent |= urgent;
    pthread_mutex_unlock(&j->lock);
    pthread_cond_signal(&j->wake);
}

/* The log thread says that it sleeps and then looks once more at what there is; here it is the other way round. */
void journal_poke(struct journal *j, unsigned worker)
{
    struct journal_slot *slot = &j->slots[worker];
    uint64_t added = atomic_load_explicit(&slot->ring->added, memory_order_relaxed);
    if (added == atomic_load_explicit(&slot->poked, memory_order_relaxed))
        return;
    atomic_store_explicit(&slot->poked, added, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst);
    int sleep = atomic_load_explicit(&j->sleep, memory_order_relaxed);
    if (sleep == JOURNAL_IDLE)
        wake(j, false);
    else if (sleep != JOURNAL_AWAKE && ring_queued(slot->ring) > URGENT_RECORDS)
        wake(j, true);
}

static bool is_full(const struct journal *j, const struct journal_slot *slot)
{
    return ring_queued(slot->ring) >= JOURNAL_RING_LIMIT || atomic_load(&j->control_bytes) >= JOURNAL_CONTROL_LIMIT;
}

bool journal_is_full(struct journal *j, unsigned worker)
{
    struct journal_slot *slot = &j->slots[worker];
    if (!is_full(j, slot))
        return false;
    if (!atomic_exchange(&slot->full, true))
        atomic_fetch_add_explicit(&j->delayed, 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst); /* announce() has the other one */
    if (!is_full(j, slot)) { /* it was emptied just now */
        atomic_store(&slot->full, false);
        return false;
    }
    wake(j, true);
    return true;
}

/* ---- control records ------------------------------------------------------------------------------------------------- */

bool journal_has_room(const struct journal *j)
{
    return atomic_load(&j->control_bytes) < JOURNAL_CONTROL_LIMIT;
}

/* The following are called under control_lock. */
static int put_control(struct journal *j, const struct log_control *control)
{
    int status = log_control_encode(&j->controls, control);
    if (status == 0)
        j->next_control++;
    atomic_store(&j->control_bytes, j->controls.len);
    return status;
}

static void put_break(struct journal *j)
{
    j->owes_break = put_control(j, &(struct log_control){.kind = LOG_BREAK}) != 0;
    if (!j->owes_break && !j->first_break)
        j->first_break = j->next_control - 1;
}

/* Room for a LOG_BREAK is left behind whatever is noted. One that is owed comes late: only a save that begins after it is good
 * enough. */
static int note(struct journal *j, const struct log_control *control)
{
    int status = log_bytes_reserve(&j->controls, control->name_len + control->record_len + 2 * BREAK_ROOM);
    if (status == 0 && j->owes_break) {
        put_break(j);
        j->breaks++;
    }
    return status == 0 ? put_control(j, control) : status;
}

/* As journal_poke() does for adds. */
static void wake_for_controls(struct journal *j)
{
    atomic_thread_fence(memory_order_seq_cst);
    int sleep = atomic_load_explicit(&j->sleep, memory_order_relaxed);
    if (sleep == JOURNAL_IDLE)
        wake(j, false);
    else if (sleep != JOURNAL_AWAKE && atomic_load_explicit(&j->control_bytes, memory_order_relaxed) > URGENT_BYTES)
        wake(j, true);
}

void journal_note(struct journal *j, const struct log_control *control)
{
    if (!journal_records(j))
        return;
    pthread_mutex_lock(&j->control_lock);
    if (note(j, control) != 0) {
        put_break(j);
        j->breaks++;
        atomic_store(&j->incomplete, true);
    }
    pthread_mutex_unlock(&j->control_lock);
    wake_for_controls(j);
}

static int on_grow(void *ctx, uint64_t id, unsigned layer, const struct bloom_shape *shape, struct errbuf *err)
{
    struct journal *j = ((struct journal_ring *)ctx)->journal;
    struct log_control control = {.kind = LOG_GROW, .id = id, .layer = layer, .shape = *shape};
    pthread_mutex_lock(&j->control_lock);
    int status = note(j, &control);
    pthread_mutex_unlock(&j->control_lock);
    if (status)
        errbuf_set(err, "out of memory for the log");
    return status;
}

const struct bloom_journal_ops journal_ops = {.add = on_add, .grow = on_grow};

/* ---- switches -------------------------------------------------------------------------------------------------------- */

void journal_record(struct journal *j, bool on)
{
    atomic_store(&j->records, on);
}

/* At one moment: what is recorded comes behind the break. A change that was made under the registry's mutex and is not recorded
 * is in the walk of a save that begins from here on; so are the bits of adds that are not, since it waits for their loops. */
void journal_switch(struct journal *j, bool on)
{
    pthread_mutex_lock(&j->control_lock);
    if (on)
        put_break(j);
    j->breaks++;
    atomic_store(&j->awaits_save, true);
    atomic_store(&j->records, on);
    pthread_mutex_unlock(&j->control_lock);
    wake_for_controls(j);
}

void journal_missed(struct journal *j)
{
    pthread_mutex_lock(&j->control_lock);
    put_break(j);
    j->breaks++;
    atomic_store(&j->awaits_save, true);
    pthread_mutex_unlock(&j->control_lock);
    wake_for_controls(j);
}

bool journal_is_whole(const struct journal *j)
{
    return !atomic_load(&j->incomplete) && !atomic_load(&j->awaits_save);
}

void journal_set_policy(struct journal *j, enum journal_policy policy)
{
    atomic_store(&j->policy, (int)policy);
    wake(j, false);
}

/* ---- tickets --------------------------------------------------------------------------------------------------------- */

/* A round that begins after the fence sees what was done before it, by this thread or by those whose effects it saw. */
static uint64_t take_ticket(struct journal *j)
{
    atomic_thread_fence(memory_order_seq_cst);
    return atomic_load_explicit(&j->started, memory_order_relaxed) + 1;
}

static uint64_t ask(struct journal *j, struct journal_slot *slot, size_t replies)
{
    uint64_t ticket = take_ticket(j);
    uint64_t asked = atomic_load_explicit(&slot->replies, memory_order_relaxed) + replies;
    atomic_store_explicit(&slot->wanted, ticket, memory_order_relaxed);
    atomic_store_explicit(&slot->replies, asked, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst);
    int sleep = atomic_load_explicit(&j->sleep, memory_order_relaxed);
    if (sleep != JOURNAL_AWAKE && (sleep != JOURNAL_MEETS || journal_has_met(j)))
        wake(j, false);
    return ticket;
}

uint64_t journal_ticket(struct journal *j, unsigned worker, size_t replies)
{
    if (atomic_load_explicit(&j->policy, memory_order_relaxed) != JOURNAL_ALWAYS || !journal_records(j))
        return 0;
    return ask(j, &j->slots[worker], replies);
}

uint64_t journal_ask(struct journal *j, unsigned worker)
{
    return ask(j, &j->slots[worker], 0);
}

static int failure(const struct journal *j, struct errbuf *err)
{
    *err = j->reason;
    return j->failure;
}

int journal_sync(struct journal *j, struct errbuf *err)
{
    uint64_t ticket = take_ticket(j);
    int status = 0;
    pthread_mutex_lock(&j->lock);
    if (j->wanted < ticket)
        j->wanted = ticket;
    pthread_cond_signal(&j->wake);
    while (atomic_load(&j->done) < ticket && !j->failed)
        pthread_cond_wait(&j->changed, &j->lock);
    if (atomic_load(&j->done) < ticket)
        status = failure(j, err);
    pthread_mutex_unlock(&j->lock);
    return status;
}

uint64_t journal_synced_frame(struct journal *j)
{
    pthread_mutex_lock(&j->lock);
    uint64_t frame = j->info.synced;
    pthread_mutex_unlock(&j->lock);
    return frame;
}

void journal_reason(struct journal *j, struct errbuf *reason_out)
{
    pthread_mutex_lock(&j->lock);
    *reason_out = j->reason;
    if (!j->failed)
        errbuf_set(reason_out, "a change could not be noted for want of memory; a save will make up for it");
    pthread_mutex_unlock(&j->lock);
}

static _Thread_local bool held;

void journal_hold(struct journal *j)
{
    pthread_mutex_lock(&j->hold);
    held = true;
}

void journal_release(struct journal *j)
{
    held = false;
    pthread_mutex_unlock(&j->hold);
}

bool journal_held(void)
{
    return held;
}

/* ---- saves ----------------------------------------------------------------------------------------------------------- */

/* The segment from which on it keeps them; 0: all. Under the lock. */
static uint64_t first_kept(const struct journal *j, const struct journal_keep *keep)
{
    return keep->segment ? keep->segment : j->oldest_segment;
}

void journal_keep_begin(struct journal *j, struct journal_keep *keep)
{
    pthread_mutex_lock(&j->lock);
    keep->segment = j->current_segment;
    keep->next = j->keeps;
    j->keeps = keep;
    pthread_mutex_unlock(&j->lock);
}

void journal_keep_end(struct journal *j, struct journal_keep *keep)
{
    pthread_mutex_lock(&j->lock);
    struct journal_keep **at = &j->keeps;
    while (*at != keep)
        at = &(*at)->next;
    *at = keep->next;
    uint64_t first = first_kept(j, keep);
    if (first < j->kept_for_save)
        j->kept_for_save = first;
    pthread_mutex_unlock(&j->lock);
}

uint64_t journal_save_begins(struct journal *j)
{
    pthread_mutex_lock(&j->lock);
    j->kept_for_save = UINT64_MAX; /* what has been published until now the save will find */
    pthread_mutex_unlock(&j->lock);
    pthread_mutex_lock(&j->control_lock);
    uint64_t begun = j->breaks;
    j->first_break = 0;
    pthread_mutex_unlock(&j->control_lock);
    return begun;
}

uint64_t journal_saved_controls(struct journal *j)
{
    pthread_mutex_lock(&j->control_lock);
    uint64_t number = (j->first_break ? j->first_break : j->next_control) - 1;
    pthread_mutex_unlock(&j->control_lock);
    return number;
}

int journal_rotate(struct journal *j, uint64_t *segment_out, struct errbuf *err)
{
    int status = 0;
    *segment_out = 0;
    pthread_mutex_lock(&j->lock);
    if (journal_records(j) || j->oldest_segment) {
        uint64_t mine = j->rotations + 1;
        j->wants_rotation = true;
        pthread_cond_signal(&j->wake);
        while (j->rotations < mine)
            pthread_cond_wait(&j->changed, &j->lock);
        status = j->rotate_status;
        if (status)
            failure(j, err);
        else
            *segment_out = j->rotated_segment;
    }
    pthread_mutex_unlock(&j->lock);
    return status;
}

uint64_t journal_first_needed(struct journal *j, uint64_t segment)
{
    pthread_mutex_lock(&j->lock);
    if (j->kept_for_save < segment)
        segment = j->kept_for_save;
    for (const struct journal_keep *keep = j->keeps; keep; keep = keep->next) {
        if (first_kept(j, keep) < segment)
            segment = first_kept(j, keep);
    }
    pthread_mutex_unlock(&j->lock);
    return segment;
}

void journal_cut(struct journal *j, uint64_t segment)
{
    struct errbuf err = {""};
    if (segment == 0)
        return;
    /* What cannot be deleted now is by the next save, or the next start. */
    (void)!log_delete_before(j->start.fs, j->dir, segment, &err);
    pthread_mutex_lock(&j->lock);
    j->oldest_segment = segment;
    if (segment == j->rotated_segment) {
        j->cut_written = j->rotated_written;
        j->start_bytes = 0;
    }
    j->base_bytes = j->start_bytes + j->info.written - j->cut_written;
    pthread_mutex_unlock(&j->lock);
}

void journal_made_up(struct journal *j, uint64_t begun)
{
    pthread_mutex_lock(&j->control_lock);
    bool whole = j->breaks == begun; /* or something more has gone unrecorded meanwhile */
    if (whole) {
        j->owes_break = false;
        atomic_store(&j->incomplete, false);
        atomic_store(&j->awaits_save, false);
    }
    pthread_mutex_unlock(&j->control_lock);
    if (whole)
        wake(j, false); /* tickets are honoured again */
}

/* ---- information ----------------------------------------------------------------------------------------------------- */

void journal_info(struct journal *j, struct journal_info *info_out)
{
    uint64_t queued = 0;
    for (unsigned i = 0; i < j->nslots; i++)
        queued += ring_queued(j->slots[i].ring);
    pthread_mutex_lock(&j->lock);
    *info_out = (struct journal_info){
        .records = journal_records(j),
        .failed = j->failed,
        .incomplete = atomic_load(&j->incomplete),
        .awaits_save = atomic_load(&j->awaits_save),
        .reason = j->reason,
        .current_bytes = j->start_bytes + j->info.written - j->cut_written,
        .base_bytes = j->base_bytes,
        .pending_bytes = j->info.kept,
        .frames = j->info.sequence - j->first_sequence,
        .syncs = j->syncs,
        .written = j->info.written,
        .delayed = atomic_load(&j->delayed),
        .queued = queued,
        .last_sync_us = j->last_sync_us,
    };
    pthread_mutex_unlock(&j->lock);
}

/* ---- lifetime -------------------------------------------------------------------------------------------------------- */

static void journal_free(struct journal *j)
{
    for (unsigned i = 0; i < j->nslots; i++)
        ring_destroy(j->slots[i].ring);
    free(j->slots);
    free(j->marks);
    log_writer_destroy(j->writer);
    log_bytes_deinit(&j->controls);
    log_bytes_deinit(&j->taken);
    free(j->dir);
    pthread_cond_destroy(&j->wake);
    pthread_cond_destroy(&j->changed);
    pthread_mutex_destroy(&j->lock);
    pthread_mutex_destroy(&j->control_lock);
    pthread_mutex_destroy(&j->hold);
    free(j);
}

static void init_locks(struct journal *j)
{
    pthread_condattr_t attr;
    pthread_mutex_init(&j->lock, NULL);
    pthread_mutex_init(&j->control_lock, NULL);
    pthread_mutex_init(&j->hold, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&j->wake, &attr);
    pthread_cond_init(&j->changed, NULL);
    pthread_condattr_destroy(&attr);
}

static int make_rings(struct journal *j, unsigned n)
{
    j->slots = aligned_alloc(64, n * sizeof(*j->slots));
    j->marks = calloc(n, sizeof(*j->marks));
    if (!j->slots || !j->marks)
        return -ENOMEM;
    memset(j->slots, 0, n * sizeof(*j->slots));
    for (; j->nslots < n; j->nslots++) {
        int status = ring_create(&j->slots[j->nslots].ring);
        if (status)
            return status;
        j->slots[j->nslots].ring->journal = j;
    }
    return 0;
}

static int carry_frame(void *ctx, const unsigned char *payload, size_t len, bool has_controls)
{
    struct journal *j = ctx;
    return log_writer_carry(j->writer, payload, len, has_controls, j->start.tail_start, j->start.tail_generation);
}

/* What the process before may not have synced: this one's first round writes it. */
static int carry_tail(struct journal *j, struct errbuf *err)
{
    struct log_writer_info info;
    int status = j->start.log ? log_reader_tail(j->start.log, carry_frame, j, err) : 0;
    j->start.log = NULL;
    if (status)
        return status;
    log_writer_info(j->writer, &info);
    j->start_bytes -= info.kept < j->start_bytes ? info.kept : j->start_bytes; /* they are counted when they are written */
    return 0;
}

/* All but the tail, and the thread. 0 or -errno. */
static int make_parts(struct journal *j)
{
    const struct journal_start *start = &j->start;
    struct log_writer_options options = {
        .fs = start->fs,
        .dir = start->dir,
        .next_segment = start->next_segment,
        .previous_segment = start->last_segment,
        .next_sequence = start->next_sequence - start->tail,
        .salt = start->salt,
        .generation = start->generation,
    };
    j->dir = strdup(start->dir);
    int status = j->dir ? make_rings(j, start->nrings) : -ENOMEM;
    if (!status)
        status = log_bytes_reserve(&j->controls, CONTROL_SPARE);
    if (!status)
        status = log_bytes_reserve(&j->taken, CONTROL_SPARE);
    return status ? status : log_writer_create(&options, &j->writer);
}

static int make_thread(struct journal *j, struct errbuf *err)
{
    log_writer_info(j->writer, &j->info);
    int status = -pthread_create(&j->thread, NULL, journal_main, j);
    if (status)
        errbuf_set(err, "cannot start a thread: %s", strerror(-status));
    return status;
}

int journal_create(struct journal **journal_out, const struct journal_start *start, struct errbuf *err)
{
    struct journal *j = calloc(1, sizeof(*j));
    if (!j) {
        errbuf_set(err, "%s", strerror(ENOMEM));
        return -ENOMEM;
    }
    init_locks(j);
    j->start = *start;
    j->start.fs = start->fs ? start->fs : fsops_posix();
    j->first_sequence = start->next_sequence - 1;
    j->next_control = j->taken_next = start->next_control;
    j->oldest_segment = start->oldest_segment;
    j->kept_for_save = UINT64_MAX;
    j->start_bytes = start->log_bytes;
    atomic_init(&j->policy, JOURNAL_EVERYSEC);
    int status = make_parts(j);
    if (status)
        errbuf_set(err, "%s", strerror(-status));
    if (!status)
        status = carry_tail(j, err);
    if (!status)
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
    pthread_mutex_lock(&j->lock);
    j->stop = true;
    pthread_cond_signal(&j->wake);
    pthread_mutex_unlock(&j->lock);
    pthread_join(j->thread, NULL);
    journal_free(j);
}
