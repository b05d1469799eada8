#include "bf.h"

#include <stdlib.h>

#include "bf_host.h"
#include "bf_out.h"
#include "bf_valkey.h"
#include "bloom_keyring.h"
#include "bloom_window.h"
#include "journal.h"
#include "notify.h"
#include "registry_key.h"
#include "residency.h"
#include "sstables.h"
#include "usage.h"

/* ---- finding and creating ---- */

/* The filter of an entry, if it is a Bloom filter whose items can be hashed: its key is here, if it has one. */
static struct bloom_filter *askable(struct entry *entry)
{
    struct bloom_filter *filter = entry_filter(entry);
    return filter && __builtin_expect(bloom_filter_is_queryable(filter), true) ? filter : NULL;
}

/* The filter cannot be asked. If its bits are away, the command should have waited; it has just got a new name. */
static void reply_unreadable(struct bf_call *call)
{
    const char *reason = entry_quarantine_reason(call->entry);
    const struct bloom_filter *shape = reason ? NULL : entry_shape(call->entry);
    uint64_t key = shape ? bloom_filter_missing_key(shape) : 0;
    char text[BF_KEY_TEXT];
    if (entry_is_cuckoo(call->entry))
        reply_error(call->reply, BF_WRONG_TYPE);
    else if (key)
        reply_errorf(call->reply, BF_NO_KEY, bf_key_text(key, text));
    else if (reason)
        reply_errorf(call->reply, "ERR the filter could not be loaded and is quarantined: %s", reason);
    else
        reply_error(call->reply, RESIDENCY_TRYAGAIN);
}

/* Whether queries of an unavailable filter are answered "maybe": for a quarantined filter as in Cassandra, and for an
 * evicted filter as in ScyllaDB; the daemon then reloads its bits in the background. */
static bool says_maybe(const struct bf_call *call, size_t n)
{
    const struct config *config = server_config(call->server);
    const struct bloom_filter *shape = entry_shape(call->entry);
    if (shape && !bloom_filter_is_queryable(shape))
        return false;
    if (entry_quarantine_reason(call->entry))
        return config->data.quarantined_filters == QUARANTINE_MAYBE;
    if (config->memory.maxmemory_policy != MEMORY_MAYBE)
        return false;
    stats_add(&call->stats->maybe_answers, n);
    residency_ask(call->server, call->name);
    return true;
}

static void bf_look(struct bf_call *call)
{
    if (!call->entry)
        call->entry = registry_find(call->server->registry, call->name_hash, call->name);
}

/* The same for questions, which SSTables answer, too. */
static void bf_look_everywhere(struct bf_call *call)
{
    bf_look(call);
    if (!call->entry && call->server->sstables) {
        call->entry = sstables_find(call->server->sstables, call->name);
        call->read_only = call->entry != NULL;
    }
}

/* The same for queries of items, of which a filter of another kind has none, as in RedisBloom. */
static void bf_look_for_items(struct bf_call *call)
{
    bf_look_everywhere(call);
    if (call->entry && !askable(call->entry) && entry_is_cuckoo(call->entry))
        call->entry = NULL;
}

/* Whether the call's filter must be read from its file first. The connection waits for that, or has an error. */
static bool bf_waits_for_file(struct bf_call *call)
{
    if (!call->read_only || !sstables_is_unread(call->entry))
        return false;
    sstable_read_first(call->ctx, call->reply, call->name);
    return true;
}

/* For OBJECT IDLETIME. */
static void note_use(const struct bf_call *call)
{
    if (!call->no_touch)
        entry_note_use(call->entry, atomic_load_explicit(&call->server->memory.use_stamp, memory_order_relaxed));
}

/* As bf_filter_shape(), for callers that need the bits. */
static struct bloom_filter *bf_filter(struct bf_call *call, bool *replied_out)
{
    bf_look_everywhere(call);
    *replied_out = call->entry && bf_waits_for_file(call);
    if (!call->entry || *replied_out)
        return NULL;
    struct bloom_filter *filter = askable(call->entry);
    if (!filter) {
        reply_unreadable(call);
        *replied_out = true;
    }
    note_use(call);
    return filter;
}

struct bloom_filter *bf_filter_shape(struct bf_call *call, bool *replied_out)
{
    bf_look_everywhere(call);
    struct bloom_filter *shape = call->entry && !askable(call->entry) ? entry_shape(call->entry) : NULL;
    *replied_out = false;
    if (!shape || entry_is_cuckoo(call->entry))
        return bf_filter(call, replied_out);
    note_use(call);
    return shape;
}

struct bloom_filter *bf_existing_shape(struct bf_call *call)
{
    bool replied;
    struct bloom_filter *filter = bf_filter_shape(call, &replied);
    if (!filter && !replied)
        reply_error(call->reply, BF_NOT_FOUND);
    return filter;
}

/* The filter of a call for adding, created with the default parameters if there is none. NULL after an error reply. */
static struct bloom_filter *bf_filter_for_add(struct bf_call *call)
{
    bool replied, existed;
    bf_look_everywhere(call);
    if (call->read_only) {
        reply_read_only(call->reply, call->name);
        return NULL;
    }
    struct bloom_filter *filter = bf_filter(call, &replied);
    if (filter || replied)
        return filter;
    if (!server_config(call->server)->filters.auto_create) {
        reply_error(call->reply, BF_NOT_FOUND); /* as BF.INSERT with NOCREATE */
        return NULL;
    }
    struct bf_defaults defaults = bf_defaults_of(call->server);
    if (defaults.keyed && !defaults.key)
        return reply_error(call->reply, BF_NEW_NO_KEY), NULL;
    bf_draw_seed(&defaults.params, defaults.fresh_seed);
    if (!bf_create(call, &defaults.params, 0, &existed))
        return NULL;
    return bf_filter(call, &replied);
}

/* ---- events ---- */

/* The journal for the call's adds; NULL: none. */
static const struct bloom_journal *journal_of(const struct bf_call *call, struct bloom_journal *journal)
{
    if (!call->ring)
        return NULL;
    *journal = (struct bloom_journal){.ops = &journal_ops, .ctx = call->ring, .id = call->entry->id};
    return journal;
}

/* An add's notes about itself: by these exactly one of many adds reports growth or a full filter, in the log, too. */
struct add_note {
    uint64_t id;
    struct journal_ring *ring; /* NULL: there is no log */
    bool grew;
    uint64_t ordinal;
};

static void note_add(void *ctx, uint64_t id, struct bloom_hash hash, unsigned layer, uint64_t ordinal)
{
    struct add_note *note = ctx;
    if (note->ring)
        journal_ops.add(note->ring, id, hash, layer, ordinal);
    if (id == note->id) /* not the add's part for the filter that will replace this one */
        note->ordinal = ordinal;
}

static void note_both(void *ctx, uint64_t id, const struct bloom_hash hash[2], unsigned layer, uint64_t ordinal)
{
    struct add_note *note = ctx;
    if (note->ring)
        journal_ops.add_both(note->ring, id, hash, layer, ordinal);
    if (id == note->id)
        note->ordinal = ordinal + 1;
}

static int note_grow(void *ctx, uint64_t id, unsigned layer, const struct bloom_shape *shape, struct errbuf *err)
{
    struct add_note *note = ctx;
    int status = note->ring ? journal_ops.grow(note->ring, id, layer, shape, err) : 0;
    note->grew |= status == 0 && id == note->id;
    return status;
}

static int note_turn(void *ctx, uint64_t id, unsigned layer, const struct bloom_shape *shape,
                     const struct bloom_turn *turn, struct errbuf *err)
{
    struct add_note *note = ctx;
    return note->ring ? journal_ops.turn(note->ring, id, layer, shape, turn, err) : 0;
}

/* Adds item i of the batch; without a batch it claims an item, whose hashes are `claimed`. */
static enum bloom_add add_noted(struct bf_call *call, struct bloom_batch *batch, size_t i,
                                const struct bloom_hash *claimed, struct bloom_filter *filter, struct errbuf *err)
{
    static const struct bloom_journal_ops ops = {note_add, note_grow, note_turn, note_both};
    struct add_note note = {.id = call->entry->id, .ring = call->ring};
    struct bloom_journal journal = {&ops, &note, note.id};
    enum bloom_add result =
        batch ? bloom_batch_add(batch, i, filter, &journal, err) : bloom_filter_claim(filter, claimed, &journal, err);
    /* The add that has created the layer reports it, even if another client has added its item meanwhile. */
    if (note.grew && result != BLOOM_NO_ROOM)
        notify_event(call->server->notify, NOTIFY_MODULE, "bloom.grow", call->name);
    if (result == BLOOM_ADDED && bloom_filter_params(filter)->expansion == 0 &&
        note.ordinal == bloom_filter_capacity(filter))
        notify_event(call->server->notify, NOTIFY_MODULE, "bloom.full", call->name);
    return result;
}

/* ---- one item ---- */

/* Answers of n items. valkey-bloom has integers in RESP3, too. */
static void reply_answers(struct bf_call *call, uint32_t bits, size_t n)
{
    struct reply reply = {call->reply->buf, bf_is_valkey(call->server) ? 2 : call->reply->version};
    reply_bools(&reply, bits, n);
}

static void count_queries(struct bf_call *call, uint64_t hits, uint64_t misses)
{
    if (hits)
        stats_add(&call->stats->query_hits, hits);
    if (misses)
        stats_add(&call->stats->query_misses, misses);
    if (call->entry) {
        note_use(call);
        usage_count(call->stats->usage, call->entry->id, hits, misses, 0);
    }
}

static enum bf_missing when_missing(const struct bf_call *call)
{
    if (call->missing != BF_MISSING_DEFAULT)
        return call->missing;
    return (enum bf_missing)(BF_MISSING_ABSENT + server_config(call->server)->filters.missing_filter_reply);
}

static void reply_missing_items(struct bf_call *call, size_t n, enum bf_missing missing)
{
    count_queries(call, 0, n);
    for (size_t i = 0; i < n; i++) {
        if (missing == BF_MISSING_ABSENT)
            reply_answers(call, 0, 1);
        else
            reply_null(call->reply);
    }
}

/* Replies to queries of `n` items of a filter that does not exist, each with an element of its own if `array`. */
static void reply_missing(struct bf_call *call, size_t n, bool array)
{
    enum bf_missing missing = when_missing(call);
    struct sstables *sstables = sstables_could_name(call->name) ? call->server->sstables : NULL;
    struct errbuf missed;
    if (missing == BF_MISSING_ERROR) {
        reply_error(call->reply, BF_NOT_FOUND);
        return;
    }
    if (sstables_may_miss(sstables, &missed)) {
        reply_errorf(call->reply, "TRYAGAIN %s", missed.text);
        return;
    }
    if (sstables && sstables_share_name(sstables, call->name)) {
        reply_error(call->reply, "ERR several SSTables have this name: add '#' and a path, as in the names of BF.FIND");
        return;
    }
    if (array)
        reply_array(call->reply, n);
    reply_missing_items(call, n, missing);
}

static void reply_query(struct bf_call *call, bool present)
{
    count_queries(call, present, !present);
    reply_answers(call, present, 1);
}

void bf_query_one(struct bf_call *call, struct slice item)
{
    bool replied = false;
    bf_look_for_items(call);
    if (call->entry && bf_waits_for_file(call))
        return;
    stats_add(call->entry ? &call->stats->keyspace_hits : &call->stats->keyspace_misses, 1);
    if (call->entry && !askable(call->entry) && says_maybe(call, 1)) {
        reply_query(call, true);
        return;
    }
    struct bloom_filter *filter = call->entry ? bf_filter(call, &replied) : NULL; /* which would look again */
    if (filter)
        reply_query(call, bloom_filter_query(filter, bloom_filter_hash(filter, item.ptr, item.len)));
    else if (!replied)
        reply_missing(call, 1, false);
}

void bf_add_one(struct bf_call *call, struct slice item)
{
    struct bloom_filter *filter = bf_filter_for_add(call);
    struct bloom_batch batch;
    size_t error_at;
    if (!filter)
        return;
    bloom_batch_start(&batch, filter, &(struct bloom_item){item.ptr, item.len}, 1);
    bf_add_batch(call, filter, &batch, 0, 1, &error_at);
}

/* ---- batches ---- */

_Static_assert(BLOOM_BATCH <= 32, "answers are bits of a uint32_t");

static void reply_queries(struct bf_call *call, uint32_t present, size_t n)
{
    uint64_t hits = (uint64_t)__builtin_popcount(present);
    count_queries(call, hits, n - hits);
    reply_answers(call, present, n);
}

unsigned bf_query_batch(struct bf_call *call, struct bloom_filter *filter, const struct bloom_batch *batch, size_t n)
{
    uint32_t present = bloom_batch_query(batch, filter);
    if (__builtin_expect(bloom_filter_forgets(filter), 0))
        forget_tidy(call->server, call->name, filter);
    stats_add(&call->stats->keyspace_hits, n);
    reply_queries(call, present, n);
    return (unsigned)__builtin_popcount(present);
}

/* Replies to n adds that were not refused. */
static void reply_adds(struct bf_call *call, uint32_t added, size_t n)
{
    uint64_t ones = (uint64_t)__builtin_popcount(added);
    if (ones) {
        entry_mark_dirty(call->entry);
        stats_add(&call->stats->items_added, ones);
        stats_add(&call->stats->changes, ones);
    }
    stats_add(&call->stats->items_present, n - ones);
    reply_answers(call, added, n);
}

static void reply_refused(struct bf_call *call, enum bloom_add result, const struct errbuf *err)
{
    if (result == BLOOM_FULL) {
        stats_add(&call->stats->adds_full, 1);
        reply_error(call->reply, BF_FULL);
        return;
    }
    const struct bloom_filter *filter = entry_shape(call->entry);
    stats_add(&call->stats->adds_no_room, 1);
    if (bf_is_valkey(call->server) && filter && bloom_params_have_seed(bloom_filter_params(filter)))
        reply_error(call->reply, bf_valkey_no_growth(filter));
    else
        reply_errorf(call->reply, BF_NO_ROOM, err->text);
}

/* An add to a window changes it by a turn, and where repeated adds refresh items by these, too. */
static void note_window_adds(struct bf_call *call, struct bloom_filter *filter, size_t ones, size_t n)
{
    entry_mark_dirty(call->entry);
    if (bloom_filter_params(filter)->window_flags & BLOOM_WINDOW_REFRESH)
        stats_add(&call->stats->changes, n - ones);
    forget_tidy(call->server, call->name, filter);
}

/* Like bloom_batch_add_all(), one by one: with events, or after a refused item. Further absent items will also be
 * refused, so the batch is tested once, not for each of them. */
static size_t add_all_noted(struct bf_call *call, struct bloom_batch *batch, size_t from, size_t n,
                            struct bloom_filter *filter, struct errbuf *err, uint32_t *added, enum bloom_add *refused)
{
    *added = 0;
    for (; from < n; from++) {
        enum bloom_add result = add_noted(call, batch, from, NULL, filter, err);
        if (result > BLOOM_ADDED) {
            *refused = result;
            break;
        }
        *added |= (uint32_t)result << from;
    }
    return from;
}

size_t bf_add_batch(struct bf_call *call, struct bloom_filter *filter, struct bloom_batch *batch, size_t from, size_t n,
                    size_t *error_at_out)
{
    struct bloom_journal space;
    struct errbuf err = {""};
    enum bloom_add refused = BLOOM_FULL;
    uint32_t added;
    size_t end;

    if (__builtin_expect(from > 0 || notify_wants(call->server->notify, NOTIFY_MODULE), false))
        end = add_all_noted(call, batch, from, n, filter, &err, &added, &refused);
    else
        end = bloom_batch_add_all(batch, from, filter, journal_of(call, &space), &err, &added, &refused);
    note_use(call);
    if (__builtin_expect(bloom_filter_forgets(filter), 0))
        note_window_adds(call, filter, (uint32_t)__builtin_popcount(added), end - from);
    if (end > from)
        reply_adds(call, added >> from, end - from);
    *error_at_out = SIZE_MAX;
    if (end == n)
        return n;
    *error_at_out = buf_len(call->reply->buf);
    reply_refused(call, refused, &err);
    return end + 1;
}

/* ---- many items ---- */

/* Bytes of items that are hashed between two looks at the clock, and the last item. */
#define BATCH_BYTES ((size_t)64 * 1024)

/* Starts the batch of items `start` to at most `end`, and returns how many they are. */
static size_t start_batch(struct bloom_batch *batch, const struct bloom_filter *filter, size_t start, size_t end,
                          struct bloom_item (*item)(const void *items, size_t i), const void *ctx)
{
    struct bloom_item items[BLOOM_BATCH];
    size_t most = end - start < BLOOM_BATCH ? end - start : BLOOM_BATCH, n = 0, bytes = 0;
    while (n < most && bytes < BATCH_BYTES) {
        items[n] = item(ctx, start + n);
        bytes += items[n++].len;
    }
    bloom_batch_start(batch, filter, items, n);
    return n;
}

struct query_slice {
    struct bf_call *call;
    size_t end;
};

static bool reply_slice(void *ctx, size_t next, uint32_t present, size_t n)
{
    const struct query_slice *slice = ctx;
    reply_queries(slice->call, present, n);
    return next == slice->end || !command_slice_end(slice->call->ctx, next);
}

void bf_query_many(struct bf_call *call, size_t n, struct bloom_item (*item)(const void *items, size_t i),
                   const void *ctx)
{
    bf_look_for_items(call);
    if (call->entry && bf_waits_for_file(call)) /* between two slices, too: the file may have changed */
        return;
    size_t first, count = command_slice(call->ctx, n, &first);
    struct bloom_filter *filter = call->entry ? askable(call->entry) : NULL;
    bool maybe = call->entry && !filter && says_maybe(call, count);
    if (first == 0) {
        stats_add(call->entry ? &call->stats->keyspace_hits : &call->stats->keyspace_misses, 1);
        if (!filter && !maybe) {
            if (call->entry)
                reply_unreadable(call);
            else
                reply_missing(call, n, true);
            call->ctx->later = false;
            return;
        }
        reply_array(call->reply, n);
    }
    if (filter) {
        struct query_slice slice = {call, first + count};
        bloom_query_all(filter, &(struct bloom_questions){first, first + count, item, ctx, reply_slice, &slice, false});
    } else if (maybe || call->entry) { /* a filter that is unreadable since the last slice may have the items */
        for (size_t i = 0; i < count; i++)
            reply_query(call, true);
    } else { /* it is gone since the last slice */
        reply_missing_items(call, count, when_missing(call));
    }
}

/* The filter that the slices before this one added to; NULL, with an error as the last element, if it is gone. */
static struct bloom_filter *bf_same_filter(struct bf_call *call, uint64_t id)
{
    bf_look(call);
    struct bloom_filter *filter = call->entry && call->entry->id == id ? askable(call->entry) : NULL;
    if (filter)
        return filter;
    if (call->entry && call->entry->id == id)
        reply_unreadable(call);
    else
        reply_error(call->reply, "ERR the filter was deleted or replaced before all items were added");
    return NULL;
}

/* As add_items(), of claims, one after the other. */
static bool claim_items(struct bf_call *call, struct bloom_filter *filter, struct slice owner, size_t start, size_t end,
                        int64_t *replies, struct bloom_item (*item)(const void *items, size_t i), const void *ctx)
{
    enum bloom_add result = BLOOM_PRESENT;
    struct errbuf err = {"out of memory"};
    uint64_t added = 0, ones = 0;
    size_t i = start;
    bool going = true;
    for (; i < end && (i == start || !command_slice_end(call->ctx, i)); i++) {
        struct bloom_item claimed = item(ctx, i);
        struct bloom_hash hash[2];
        struct slice mark;
        going = bf_claim_hashes(filter, owner, (struct slice){claimed.ptr, claimed.len}, hash, &mark);
        free((char *)mark.ptr);
        /* two records, for a filter that is being replaced, too */
        going = going && (!call->ring || ring_reserve(call->ring, 4) == 0);
        result = going ? add_noted(call, NULL, 0, hash, filter, &err) : BLOOM_NO_ROOM;
        if (!(going = result <= BLOOM_ADDED))
            break;
        added += result == BLOOM_ADDED;
        ones += result != BLOOM_PRESENT;
        reply_bool(call->reply, result != BLOOM_PRESENT);
    }
    note_use(call);
    if (bloom_filter_forgets(filter))
        note_window_adds(call, filter, i - start - (ones - added), i - start);
    else if (added)
        entry_mark_dirty(call->entry);
    stats_add(&call->stats->items_added, ones);
    stats_add(&call->stats->items_present, i - start - ones);
    stats_add(&call->stats->changes, added);
    if (!going)
        reply_refused(call, result, &err);
    *replies += (int64_t)(i - start) + !going;
    return going;
}

/* Adds until one add is refused, which is the last that *replies counts, or the slice has taken too long. */
static bool add_items(struct bf_call *call, struct bloom_filter *filter, size_t start, size_t end, int64_t *replies,
                      struct bloom_item (*item)(const void *items, size_t i), const void *ctx)
{
    struct bloom_batch batch;
    size_t n, first = start, error_at = SIZE_MAX;
    for (; start < end && error_at == SIZE_MAX; start += n) {
        if (start > first && command_slice_end(call->ctx, start))
            break;
        size_t most = bloom_batch_adds(filter);
        n = start_batch(&batch, filter, start, end - start < most ? end : start + most, item, ctx);
        *replies += (int64_t)bf_add_batch(call, filter, &batch, 0, n, &error_at);
    }
    return error_at == SIZE_MAX;
}

/* Inlined, so that an add knows nothing of claims. */
static inline __attribute__((always_inline)) void add_many(struct bf_call *call, size_t n, struct slice owner,
                                                           struct bloom_item (*item)(const void *items, size_t i),
                                                           const void *ctx)
{
    size_t first, count = command_slice(call->ctx, n, &first);
    struct command_slice whole = {0}, *slice = call->ctx->slice ? call->ctx->slice : &whole;
    struct bloom_filter *filter = first ? bf_same_filter(call, slice->id) : bf_filter_for_add(call);
    bool going = false;
    if (first) {
        slice->count += !filter; /* the error */
    } else {
        if (!filter) {
            call->ctx->later = false;
            return;
        }
        slice->token = reply_array_begin(call->reply);
        slice->id = call->entry->id;
    }
    if (filter)
        going = owner.len ? claim_items(call, filter, owner, first, first + count, &slice->count, item, ctx)
                          : add_items(call, filter, first, first + count, &slice->count, item, ctx);
    call->ctx->later &= going;
    if (!call->ctx->later)
        reply_array_end(call->reply, slice->token, (size_t)slice->count);
}

void bf_add_many(struct bf_call *call, size_t n, struct bloom_item (*item)(const void *items, size_t i),
                 const void *ctx)
{
    add_many(call, n, (struct slice){NULL, 0}, item, ctx);
}

void bf_insert_many(struct bf_call *call, size_t n, struct slice owner,
                    struct bloom_item (*item)(const void *items, size_t i), const void *ctx)
{
    add_many(call, n, owner, item, ctx);
}
