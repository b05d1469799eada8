#include "replay.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "bloom_resident.h"
#include "check.h"
#include "clock.h"
#include "cuckoo.h"
#include "alloc.h"
#include "id_map.h"
#include "journal.h"
#include "log_payload.h"
#include "persistence.h"
#include "server.h"
#include "window_clock.h"
#include "lock.h"

/* The operations of one cuckoo filter in the log. Adds and deletions do not commute, so all that the saved filter lacks
 * are collected, and then done again in the order of their ordinals. */
struct operations {
    struct bloom_replay_item *items; /* with whole ordinals */
    size_t n, room;
};

/* A filter that adds can be brought back to. */
struct target {
    struct entry *entry; /* NULL: in quarantine */
    atomic_bool broken;  /* its bits could not be read: the entry is pinned, and another one has its name */
    uint64_t since;      /* ordinals of processes before it have all been counted, and may have been reused since */
    bool cuckoo;
    struct operations operations; /* of a cuckoo filter; under the lock */
    unsigned nlayers;             /* that had been saved */
    uint64_t counted[];           /* in these */
};

struct replay {
    struct server *server;
    struct store *store;
    bool accept_loss;
    struct log_history *history;
    struct lock lock;      /* of targets, while filters are loaded */
    struct id_map targets; /* NULL: the filter has expired, and was not loaded */
    struct replay_summary summary;
};

static int on_written(void *ctx, const struct log_control *control, struct errbuf *err)
{
    const struct replay *replay = ctx;
    int status = store_replay_written(replay->store, control->record, control->record_len, err);
    return status == STORE_DAMAGED ? LOG_DAMAGED : status;
}

int replay_create(struct replay **replay_out, struct server *server, struct store *store, bool accept_loss)
{
    struct replay *replay = calloc(1, sizeof(*replay));
    const struct store_checkpoint checkpoint = store_checkpoint(store);
    const struct log_history_options options = {
        .control = checkpoint.control, .accepted = checkpoint.accepted != 0, .on_written = on_written, .ctx = replay};
    if (!replay)
        return -ENOMEM;
    int status = log_history_create(&replay->history, &options);
    if (status) {
        free(replay);
        return status;
    }
    replay->server = server;
    replay->store = store;
    replay->accept_loss = accept_loss;
    lock_init(&replay->lock, RANK_REPLAY);
    *replay_out = replay;
    return 0;
}

void replay_destroy(struct replay *replay)
{
    if (!replay)
        return;
    for (size_t i = 0; i < replay->targets.nslots; i++) {
        struct target *target = replay->targets.slots[i].value;
        if (target && atomic_load(&target->broken))
            entry_unpin(target->entry);
        if (target)
            free(target->operations.items);
        free(target);
    }
    log_history_destroy(replay->history);
    id_map_deinit(&replay->targets);
    lock_deinit(&replay->lock);
    free(replay);
}

/* ---- filters in the log ---- */

struct log_history *replay_history(struct replay *replay)
{
    return replay->history;
}

int replay_expired(struct replay *replay, uint64_t id)
{
    lock_take(&replay->lock);
    int status = id_map_set(&replay->targets, id, NULL);
    lock_give(&replay->lock);
    return status;
}

void replay_note_expired(const struct replay *replay, struct journal *journal)
{
    for (size_t i = 0; i < replay->targets.nslots; i++)
        if (replay->targets.slots[i].id && !replay->targets.slots[i].value)
            journal_note(journal, &(struct log_control){.kind = LOG_DELETE, .id = replay->targets.slots[i].id});
}

int replay_loaded(struct replay *replay, uint64_t id, struct entry *entry, uint64_t since)
{
    const struct bloom_filter *filter = entry ? entry_shape(entry) : NULL;
    unsigned nlayers = filter ? bloom_filter_nlayers(filter) : 0;
    struct target *target = malloc(sizeof(*target) + nlayers * sizeof(target->counted[0]));
    if (!target)
        return -ENOMEM;
    target->entry = entry;
    atomic_init(&target->broken, false);
    target->since = since;
    target->cuckoo = filter && bloom_params_is_cuckoo(bloom_filter_params(filter));
    target->operations = (struct operations){0};
    target->nlayers = nlayers;
    for (unsigned i = 0; i < nlayers; i++) {
        struct bloom_layer_view view;
        bloom_filter_layer(filter, i, &view);
        target->counted[i] = target->cuckoo ? view.turn : view.ordinal;
    }
    lock_take(&replay->lock);
    int status = id_map_set(&replay->targets, id, target);
    lock_give(&replay->lock);
    if (status)
        free(target);
    return status;
}

/* The contents that the filter was made with: they are needed once. */
static int fill(struct replay *replay, const struct log_filter *h, struct entry *entry, struct errbuf *err)
{
    struct log_contents contents;
    if (!h->contents)
        return 0;
    CHECK(log_contents_decode(h->contents, h->contents_len, &contents)); /* as it did when it was noted */
    int status = log_contents_fill(&contents, entry_filter(entry), err);
    log_history_drop_contents(replay->history, h->id);
    return status;
}

static int create(struct replay *replay, const struct log_filter *h, struct errbuf *err)
{
    struct slice name = {h->name, h->name_len};
    struct bloom_class *class;
    struct entry *entry;
    if (h->expires_ms && h->expires_ms <= clock_unix_ms()) {
        atomic_fetch_add_explicit(&replay->server->persistence->load_expired, 1, memory_order_relaxed);
        return replay_expired(replay, h->id);
    }
    int status = bloom_class_get(replay->server->pool, &h->params, &h->shape, &class, err);
    if (status == 0) {
        status = registry_create_filter(replay->server->registry, name, h->id, class, &entry, err);
        bloom_class_release(class);
    }
    if (status == REGISTRY_EXISTS) {
        /* Our own writes cannot cause this: a part of the log or of the save is missing. */
        errbuf_set(err, "another filter has its name; --aof-load-damaged yes starts the daemon without it");
        if (replay->accept_loss) {
            log_warning(&replay->server->log, "filter %" PRIu64 " of the log is left out: another filter has its name",
                        h->id);
            replay->summary.left_out++;
            return 0;
        }
    }
    STEP(status, fill(replay, h, entry, err));
    if (status == 0 && h->expires_ms)
        status = registry_expire(replay->server->registry, name, h->expires_ms, 0);
    if (status == 0)
        window_clock_pass(entry_filter(entry));
    STEP(status, replay_loaded(replay, h->id, entry, 0));
    if (status == -ENOMEM)
        errbuf_set(err, "out of memory");
    if (status == 0)
        replay->summary.created++;
    else
        errbuf_prefix(err, "filter %" PRIu64 " of the log cannot be made", h->id);
    return status > 0 ? -EINVAL : status;
}

/* ---- bits that were left on the disk ---- */

static void note_quarantine(void *ctx, uint64_t id)
{
    store_quarantine(ctx, id);
}

/* Reads them, or puts the filter in quarantine, as loading it would have done. Under the lock. 0 or -ENOMEM. */
static int read_bits(struct replay *replay, struct target *target)
{
    struct entry *entry = target->entry;
    struct bloom_filter *filter = entry_shape(entry);
    struct errbuf err = {""};
    int status = bloom_filter_undrop_begin(filter, &err);
    if (status == 0) {
        status = store_read_bits(replay->store, entry->id, filter, &err);
        bloom_filter_undrop_end(filter, status == 0);
    }
    if (status == 0) {
        entry_come_back(entry);
        return 0;
    }
    if (status < 0)
        return status;
    entry_pin(entry);
    atomic_store(&target->broken, true);
    status = registry_quarantine(replay->server->registry, entry_name(entry), entry, err.text, note_quarantine,
                                 replay->store);
    log_warning(&replay->server->log, "filter %" PRIu64 " is quarantined: %s", entry->id, err.text);
    return status < 0 ? status : 0;
}

/* The filter with its bits; NULL with status 0: it is in quarantine. */
static struct bloom_filter *filter_of(struct replay *replay, struct target *target, int *status_out)
{
    *status_out = 0;
    if (!target->entry)
        return NULL;
    if (entry_is_evicted(target->entry)) {
        lock_take(&replay->lock);
        if (entry_is_evicted(target->entry) && !atomic_load(&target->broken))
            *status_out = read_bits(replay, target);
        lock_give(&replay->lock);
    }
    return *status_out || atomic_load(&target->broken) ? NULL : entry_filter(target->entry);
}

/* The filter cannot have this layer: for example, it is of another variant, or beyond the limits. */
static int refuse_layer(struct replay *replay, const struct log_filter *h, unsigned index, struct errbuf *err)
{
    if (!replay->accept_loss && !log_history_growth_is_settled(replay->history, h)) {
        errbuf_prefix(err,
                      "filter %" PRIu64
                      " cannot add layer %u of the log; --aof-load-damaged yes starts the daemon without it",
                      h->id, index);
        return -EINVAL;
    }
    log_warning(&replay->server->log, "layer %u of filter %" PRIu64 ", which the log has, is left out: %s", index,
                h->id, err->text);
    replay->summary.left_out++;
    return 0;
}

/* The parts of a window: the layers are appended in the order of their first turns, which is that of their numbers. */
static int turn(struct replay *replay, const struct log_filter *h, struct entry *entry, struct errbuf *err)
{
    struct bloom_filter *filter = entry_shape(entry);
    for (unsigned i = 0; i < h->ngrown; i++) {
        const struct log_grown *grown = &h->grown[i];
        int status = BLOOM_REFUSED;
        if (grown->turn.number == 0)
            continue;
        if (bloom_params_is_window(bloom_filter_params(filter)))
            status = bloom_window_replay(filter, i, &grown->shape, &grown->turn, err);
        else
            errbuf_set(err, "the filter has no window");
        entry_mark_dirty(entry);
        if (status > 0)
            return refuse_layer(replay, h, i, err);
        if (status)
            return status;
    }
    return 0;
}

static int grow(struct replay *replay, const struct log_filter *h, struct target *target, struct errbuf *err)
{
    struct entry *entry = target->entry;
    unsigned index = bloom_filter_nlayers(entry_shape(entry));
    int status = 0;
    if (h->turns) {
        status = turn(replay, h, entry, err);
        window_clock_pass(entry_shape(entry)); /* also when layers are left out */
        return status;
    }
    struct bloom_filter *filter = index < h->ngrown ? filter_of(replay, target, &status) : NULL;
    while (filter && status == 0 && (index = bloom_filter_nlayers(filter)) < h->ngrown &&
           h->grown[index].shape.nwords) {
        status = bloom_filter_append_layer(filter, &h->grown[index].shape, err);
        entry_mark_dirty(entry);
    }
    if (status > 0)
        return refuse_layer(replay, h, index, err);
    if (status)
        errbuf_prefix(err, "filter %" PRIu64 " cannot grow by layer %u", h->id, index);
    return status;
}

int replay_filters(struct replay *replay, struct errbuf *err)
{
    const struct log_filter *h;
    struct log_history_place at = {NULL, 0};
    int status = 0;
    while (status == 0 && (h = log_history_next(replay->history, &at))) {
        if (h->gone)
            continue;
        struct target *target = id_map_get(&replay->targets, h->id);
        if (!target && h->created) {
            status = create(replay, h, err);
            target = id_map_get(&replay->targets, h->id);
        }
        if (status == 0 && target && target->entry && h->grown)
            status = grow(replay, h, target, err);
        if (target && target->entry && (h->renamed || h->expiry_changed))
            entry_mark_dirty(target->entry);
    }
    return status;
}

/* ---- adds ---- */

static void note_id(struct replay_summary *summary, uint64_t id)
{
    if (id > summary->highest_id)
        summary->highest_id = id;
}

struct adder {
    struct replay *replay;
    struct log_reader *reader;
    _Atomic size_t *next;
    uint64_t process; /* whose adds are being brought back */
    struct replay_summary summary;
    int status;
    struct errbuf err;
    pthread_t thread;
    uint64_t last_id; /* adds of one filter come in runs */
    struct target *last;
};

/* Collects those that the save has not counted. */
static int take_operations(struct adder *adder, struct target *target, unsigned layer,
                           const struct bloom_replay_item *items, size_t n)
{
    struct lock *lock = &adder->replay->lock;
    struct operations *all = &target->operations;
    int status = 0;
    adder->summary.adds += n;
    if (adder->process < target->since)
        return 0;
    lock_take(lock);
    for (size_t i = 0; i < n && status == 0; i++) {
        uint64_t ordinal = cuckoo_ordinal(layer, items[i].ordinal);
        if (ordinal > target->counted[0] && (status = GROW(all->items, all->n, all->room)) == 0)
            all->items[all->n++] = (struct bloom_replay_item){items[i].hash, ordinal};
    }
    lock_give(lock);
    return status == 0 ? 0 : errbuf_fail(&adder->err, status, "out of memory");
}

static int on_adds(void *ctx, uint64_t id, unsigned layer, const struct bloom_replay_item *items, size_t n)
{
    struct adder *adder = ctx;
    if (id != adder->last_id) {
        adder->last_id = id;
        note_id(&adder->summary, id);
        adder->last = id_map_get(&adder->replay->targets, id);
    }
    struct target *target = adder->last;
    if (!target) {
        adder->summary.ignored += n;
        return 0;
    }
    int status;
    struct bloom_filter *filter = filter_of(adder->replay, target, &status);
    if (!filter) {
        adder->summary.quarantined += n;
        return status == 0 ? 0 : errbuf_fail(&adder->err, status, "out of memory");
    }
    if (target->cuckoo)
        return take_operations(adder, target, layer, items, n);
    if (layer >= bloom_filter_nlayers(filter)) { /* its growth would be in the log before it */
        adder->summary.ignored += n;
        return 0;
    }
    uint64_t counted = layer < target->nlayers ? target->counted[layer] : 0;
    if (adder->process < target->since)
        counted = UINT64_MAX;
    adder->summary.counted += bloom_filter_replay(filter, layer, counted, items, n);
    adder->summary.adds += n;
    entry_mark_dirty(target->entry);
    return 0;
}

static void *adder_main(void *arg)
{
    struct adder *adder = arg;
    size_t i;
    while (adder->status == 0 && (i = atomic_fetch_add(adder->next, 1)) < log_reader_parts(adder->reader)) {
        adder->process = log_reader_process(adder->reader, i);
        adder->status = log_reader_adds(adder->reader, i, on_adds, adder, &adder->err);
    }
    return NULL;
}

static int by_ordinal(const void *a, const void *b)
{
    uint64_t x = ((const struct bloom_replay_item *)a)->ordinal, y = ((const struct bloom_replay_item *)b)->ordinal;
    return (x > y) - (x < y);
}

/* Ordinals whose lower bits are 0 are not given. */
static bool follows(uint64_t last, uint64_t ordinal)
{
    bool skipped = ((last + 1) & ((UINT64_C(1) << CUCKOO_ORDINAL_BITS) - 1)) == 0;
    return ordinal == last + 1 + skipped;
}

/* A record that the log has twice counts once. Returns how many were done. An operation may be missing: the log was off
 * without a later save, or a frame was lost. After such a gap adds continue, but deletions and moves are skipped and
 * counted in *left_out: a deletion without its add would remove another item. */
static uint64_t do_in_order(struct operations *operations, struct bloom_filter *filter, uint64_t *left_out)
{
    struct cuckoo_state state;
    cuckoo_state(filter, &state);
    uint64_t done = 0, last = state.ordinal;
    bool gap = false;
    *left_out = 0;
    qsort(operations->items, operations->n, sizeof(operations->items[0]), by_ordinal);
    for (size_t i = 0; i < operations->n; i++) {
        const struct bloom_replay_item *item = &operations->items[i];
        if (item->ordinal == last)
            continue;
        gap |= !follows(last, item->ordinal);
        last = item->ordinal;
        if (gap && !cuckoo_only_adds(item))
            ++*left_out;
        else
            done += cuckoo_replay(filter, item, item->ordinal);
    }
    return done;
}

/* When all parts of the log have been read. */
static void do_operations(struct replay *replay)
{
    for (size_t i = 0; i < replay->targets.nslots; i++) {
        struct target *target = replay->targets.slots[i].value;
        if (!target || target->operations.n == 0)
            continue;
        uint64_t left_out;
        replay->summary.counted += do_in_order(&target->operations, entry_filter(target->entry), &left_out);
        if (left_out)
            log_warning(&replay->server->log,
                        "filter %" PRIu64 ": the log lacks operations on it; %" PRIu64
                        " deletions and moves behind the gap are left out, as they might take other items away",
                        target->entry->id, left_out);
        entry_mark_dirty(target->entry);
    }
}

static void add_summary(struct replay_summary *sum, const struct replay_summary *part)
{
    note_id(sum, part->highest_id);
    sum->adds += part->adds;
    sum->counted += part->counted;
    sum->ignored += part->ignored;
    sum->quarantined += part->quarantined;
}

int replay_adds(struct replay *replay, struct log_reader *reader, unsigned nthreads, struct replay_summary *summary_out,
                struct errbuf *err)
{
    _Atomic size_t next = 0;
    if (nthreads > log_reader_parts(reader))
        nthreads = (unsigned)log_reader_parts(reader);
    struct adder *adders = calloc(nthreads + 1u, sizeof(*adders));
    unsigned started = 1;
    int status = 0;
    if (!adders)
        return -ENOMEM;
    for (unsigned i = 0; i <= nthreads; i++)
        adders[i] = (struct adder){.replay = replay, .reader = reader, .next = &next};
    for (; started < nthreads; started++)
        if (pthread_create(&adders[started].thread, NULL, adder_main, &adders[started]) != 0)
            break; /* the others do its work */
    adder_main(&adders[0]);
    for (unsigned i = 0; i < started; i++) {
        if (i > 0)
            pthread_join(adders[i].thread, NULL);
        add_summary(&replay->summary, &adders[i].summary);
        if (adders[i].status && !status) {
            status = adders[i].status;
            *err = adders[i].err;
        }
    }
    free(adders);
    if (!status)
        do_operations(replay);
    note_id(&replay->summary, log_history_highest_id(replay->history));
    replay->summary.unjoined = log_history_unjoined(replay->history);
    *summary_out = replay->summary;
    return status;
}
