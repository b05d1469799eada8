/* CF.*: cuckoo filters, whose items can be deleted. Replies and their texts are RedisBloom's; docs/COMPATIBILITY.md has
 * the intended differences. */

#include "bf.h"
#include "bf_host.h"
#include "bf_out.h"
#include "bloom_keyring.h"
#include "content.h"
#include "handlers.h"
#include "journal.h"
#include "notify.h"
#include "registry_key.h"
#include "sstables.h"
#include "usage.h"

#define PLAN_WORD 64 /* bytes of the longest word of a plan */

#define AHEAD 32u /* items whose buckets are being fetched */

/* ---- finding and creating ---- */

struct cuckoo_numbers cf_defaults_of(const struct server *server)
{
    const struct config *config = server_config(server);
    return (struct cuckoo_numbers){
        .capacity = (uint64_t)config->cuckoo.initial_size,
        .bucket_size = (unsigned)config->cuckoo.bucket_size,
        .iterations = (unsigned)config->cuckoo.max_iterations,
        .expansion = (unsigned)config->cuckoo.expansion_factor,
        .keyed = config->filters.keyed,
        .key = bloom_keyring_first(server->pool),
    };
}

struct bloom_filter *cf_look(struct bf_call *call, enum cf_found *found_out)
{
    call->entry = registry_find(call->server->registry, call->name_hash, call->name);
    struct bloom_filter *shape = call->entry ? entry_shape(call->entry) : NULL;
    if (!call->entry)
        *found_out =
            call->server->sstables && sstables_find(call->server->sstables, call->name) ? CF_IS_OTHER : CF_IS_NONE;
    else if (!shape)
        *found_out = CF_IS_LOST;
    else
        *found_out = bloom_params_is_cuckoo(bloom_filter_params(shape)) ? CF_IS_THERE : CF_IS_OTHER;
    return *found_out == CF_IS_THERE ? shape : NULL;
}

bool cf_reply_unless(struct bf_call *call, enum cf_found found)
{
    if (found == CF_IS_OTHER)
        reply_error(call->reply, BF_WRONG_TYPE);
    else if (found == CF_IS_LOST)
        reply_errorf(call->reply, "ERR the filter could not be loaded and is quarantined: %s",
                     entry_quarantine_reason(call->entry));
    return found == CF_IS_THERE || found == CF_IS_NONE;
}

struct bloom_filter *cf_existing(struct bf_call *call)
{
    enum cf_found found;
    struct bloom_filter *filter = cf_look(call, &found);
    if (!filter && cf_reply_unless(call, found))
        reply_error(call->reply, CF_NOT_FOUND);
    return filter;
}

/* False, after an error reply, if the key of the filter is not here. */
static bool has_its_key(const struct bf_call *call, const struct bloom_filter *filter)
{
    uint64_t key = bloom_filter_missing_key(filter);
    char text[BF_KEY_TEXT];
    if (key)
        reply_errorf(call->reply, BF_NO_KEY, bf_key_text(key, text));
    return key == 0;
}

/* The same with another error, which a filter of another kind gets, too. */
static struct bloom_filter *existing_or(struct bf_call *call, const char *missing)
{
    enum cf_found found;
    struct bloom_filter *filter = cf_look(call, &found);
    if (found == CF_IS_LOST)
        (void)cf_reply_unless(call, found);
    else if (!filter)
        reply_error(call->reply, missing);
    return filter;
}

/* Makes the filter of a call. NULL after an error reply. *existed_out: another client has just made it. */
static struct bloom_filter *create(struct bf_call *call, const struct cuckoo_numbers *numbers, bool *existed_out)
{
    struct bloom_params params;
    struct bloom_shape shape;
    struct errbuf err = {""};
    *existed_out = false;
    if (cuckoo_plan(numbers, &params, &shape, &err) != BLOOM_OK)
        return reply_errorf(call->reply, CF_NO_MEMORY, err.text), NULL;
    if (!bf_create_shaped(call, &params, &shape, existed_out))
        return NULL;
    return cf_existing(call); /* or it was deleted a moment ago */
}

/* The filter of a call for adding, made if there is none. NULL after an error reply. */
static struct bloom_filter *for_add(struct bf_call *call, const struct cuckoo_numbers *numbers, bool may_create)
{
    enum cf_found found;
    bool existed;
    struct bloom_filter *filter = cf_look(call, &found);
    if (filter)
        return has_its_key(call, filter) ? filter : NULL;
    if (!cf_reply_unless(call, found))
        return NULL;
    if (may_create && server_config(call->server)->filters.auto_create)
        return create(call, numbers, &existed);
    reply_error(call->reply, CF_NOT_FOUND);
    return NULL;
}

/* ---- changes ---- */

const struct bloom_journal *cf_journal(const struct bf_call *call, struct bloom_journal *journal)
{
    if (!call->ring)
        return NULL;
    *journal = (struct bloom_journal){.ops = &journal_cuckoo_ops, .ctx = call->ring, .id = call->entry->id};
    return journal;
}

void cf_changed(struct bf_call *call, uint64_t changes)
{
    if (changes == 0)
        return;
    entry_mark_dirty(call->entry);
    stats_add(&call->stats->changes, changes);
}

/* A step of a compaction, if one is under way. The filter then needs a save, even if the command changes nothing. */
static void go_on_compacting(struct bf_call *call, struct bloom_filter *filter)
{
    struct bloom_journal space;
    if (cuckoo_compact(filter, CF_LOOKS_BESIDE, cf_journal(call, &space)))
        entry_mark_dirty(call->entry);
}

static void note_use(const struct bf_call *call)
{
    if (call->entry && !call->no_touch)
        entry_note_use(call->entry, atomic_load_explicit(&call->server->memory.use_stamp, memory_order_relaxed));
}

/* ---- CF.RESERVE ---- */

void cmd_cf_reserve(struct command_ctx *ctx)
{
    struct bf_args args = bf_args_of(ctx);
    struct bf_call call = bf_call_of(ctx);
    struct cuckoo_numbers defaults = cf_defaults_of(ctx->server), numbers;
    struct errbuf error;
    enum cf_found found;
    bool existed = true;
    call.waits = !ctx->session->multi.in_exec;
    if (!cf_read_reserve(&args, &defaults, &numbers, &error)) {
        reply_error(ctx->reply, error.text);
        return;
    }
    struct bloom_filter *filter = cf_look(&call, &found);
    if (!cf_reply_unless(&call, found))
        return;
    if (!filter && numbers.keyed && !numbers.key) {
        bf_wait_for_first_key(ctx);
        return;
    }
    if (!filter && !create(&call, &numbers, &existed))
        return;
    if (existed)
        reply_error(ctx->reply, CF_EXISTS);
    else
        reply_status(ctx->reply, "OK");
}

/* ---- adding ---- */

/* Whether the filter takes no further layer: then RedisBloom refuses all adds, of present items, too. */
static bool is_closed(const struct bf_call *call, const struct bloom_filter *filter)
{
    return bloom_filter_nlayers(filter) >= (unsigned)server_config(call->server)->cuckoo.max_expansions;
}

/* Of the adds that find a filter full exactly one makes it grow, and reports it. */
struct add_note {
    struct journal_ring *ring; /* NULL: there is no log */
    unsigned most;             /* sub-filters */
    bool grew;
};

static void note_add(void *ctx, uint64_t id, struct bloom_hash hash, unsigned layer, uint64_t ordinal)
{
    const struct add_note *note = ctx;
    if (note->ring)
        journal_cuckoo_ops.add(note->ring, id, hash, layer, ordinal);
}

static int note_grow(void *ctx, uint64_t id, unsigned layer, const struct bloom_shape *shape, struct errbuf *err)
{
    struct add_note *note = ctx;
    (void)id, (void)shape;
    note->grew = layer < note->most;
    if (!note->grew)
        errbuf_set(err, "the filter has %u sub-filters, the most that it may have (cf-max-expansions)", layer);
    return note->grew ? 0 : BLOOM_LIMIT;
}

static enum bloom_add add(struct bf_call *call, struct bloom_filter *filter, uint64_t hash, bool only_new,
                          struct errbuf *err)
{
    static const struct bloom_journal_ops ops = {.add = note_add, .grow = note_grow};
    struct add_note note = {.ring = call->ring, .most = (unsigned)server_config(call->server)->cuckoo.max_expansions};
    const struct bloom_journal journal = {&ops, &note, call->entry->id};
    enum bloom_add answer = cuckoo_add(filter, hash, only_new, &journal, err);
    go_on_compacting(call, filter);
    if (note.grew && answer != BLOOM_NO_ROOM)
        notify_event(call->server->notify, NOTIFY_MODULE, "cuckoo.grow", call->name);
    stats_add(answer == BLOOM_ADDED     ? &call->stats->items_added
              : answer == BLOOM_PRESENT ? &call->stats->items_present
              : answer == BLOOM_FULL    ? &call->stats->adds_full
                                        : &call->stats->adds_no_room,
              1);
    return answer;
}

static void add_one(struct bf_call *call, struct slice item, bool only_new)
{
    struct cuckoo_numbers defaults = cf_defaults_of(call->server);
    struct bloom_filter *filter = for_add(call, &defaults, true);
    struct errbuf err = {""};
    if (!filter)
        return;
    if (is_closed(call, filter)) {
        reply_error(call->reply, CF_MANY_LAYERS);
        return;
    }
    enum bloom_add answer = add(call, filter, cuckoo_hash_for(filter, item.ptr, item.len), only_new, &err);
    note_use(call);
    if (answer == BLOOM_FULL)
        reply_error(call->reply, CF_FULL);
    else if (answer == BLOOM_NO_ROOM)
        reply_errorf(call->reply, CF_NO_MEMORY, err.text);
    else
        reply_bool(call->reply, answer == BLOOM_ADDED);
    cf_changed(call, answer == BLOOM_ADDED);
}

void cf_add_one(struct bf_call *call, struct slice item)
{
    add_one(call, item, false);
}

void cf_addnx_one(struct bf_call *call, struct slice item)
{
    add_one(call, item, true);
}

void cmd_cf_add(struct command_ctx *ctx)
{
    struct bf_call call = bf_call_of(ctx);
    cf_add_one(&call, command_arg(ctx, 2));
}

void cmd_cf_addnx(struct command_ctx *ctx)
{
    struct bf_call call = bf_call_of(ctx);
    cf_addnx_one(&call, command_arg(ctx, 2));
}

/* The filter of the first slice, or NULL after an error reply. */
static struct bloom_filter *begin_insert(struct command_ctx *ctx, const struct bf_args *args, struct bf_call *call)
{
    struct cuckoo_numbers defaults = cf_defaults_of(ctx->server);
    struct cf_insert insert;
    struct errbuf error;
    if (!cf_read_insert(args, &defaults, &insert, &error))
        return reply_error(ctx->reply, error.text), NULL;
    if (insert.numbers.keyed && !insert.numbers.key && !insert.no_create) {
        enum cf_found found;
        if (!cf_look(call, &found) && found == CF_IS_NONE) {
            bf_wait_for_first_key(ctx);
            return NULL;
        }
    }
    struct bloom_filter *filter = for_add(call, &insert.numbers, !insert.no_create);
    if (filter && is_closed(call, filter))
        return reply_error(ctx->reply, CF_MANY_LAYERS), NULL;
    return filter;
}

/* The filter that the slices before this one added to; NULL: it is gone. */
static struct bloom_filter *same_filter(struct bf_call *call, uint64_t id)
{
    enum cf_found found;
    struct bloom_filter *filter = cf_look(call, &found);
    return filter && call->entry->id == id && bloom_filter_missing_key(filter) == 0 ? filter : NULL;
}

/* The hashes of a command's items, made before they are needed. */
struct ahead {
    uint64_t hashes[AHEAD];
    size_t next; /* the first argument that is not hashed */
};

/* The hash of argument i, for i in order from the first `next` on. The buckets of the AHEAD - 1 items behind it, which
 * are below `end`, are being fetched. */
static uint64_t hash_ahead(struct command_ctx *ctx, const struct bloom_filter *filter, struct ahead *ahead, size_t i,
                           size_t end)
{
    for (; ahead->next < end && ahead->next < i + AHEAD; ahead->next++) {
        struct slice item = command_arg(ctx, ahead->next);
        uint64_t hash = cuckoo_hash_for(filter, item.ptr, item.len);
        ahead->hashes[ahead->next % AHEAD] = hash;
        cuckoo_prefetch(filter, hash);
    }
    return ahead->hashes[i % AHEAD];
}

static void insert_items(struct command_ctx *ctx, bool only_new)
{
    struct bf_args args = bf_args_of(ctx);
    struct bf_call call = bf_call_of(ctx);
    struct bf_out out = bf_out_of(ctx->reply);
    bool later = ctx->slice && ctx->slice->done > 0; /* its reply has begun */
    struct bloom_filter *filter = later ? same_filter(&call, ctx->slice->id) : begin_insert(ctx, &args, &call);
    struct errbuf err = {""};
    uint64_t added = 0;
    if (!filter && !later)
        return;
    size_t first_item = cf_first_item(&args), n = args.argc - first_item, first;
    size_t count = command_slice(ctx, n, &first);
    if (!later) {
        reply_array(ctx->reply, n);
        if (ctx->slice)
            ctx->slice->id = call.entry->id;
    }
    struct ahead ahead = {.next = first_item + first};
    for (size_t i = first; i < first + count && (i == first || !command_slice_end(ctx, i)); i++) {
        enum bloom_add answer = BLOOM_NO_ROOM;
        if (filter)
            answer = add(&call, filter, hash_ahead(ctx, filter, &ahead, first_item + i, first_item + first + count),
                         only_new, &err);
        cf_reply_added(&out, answer, only_new);
        added += answer == BLOOM_ADDED;
    }
    note_use(&call);
    if (filter)
        cf_changed(&call, added);
}

void cmd_cf_insert(struct command_ctx *ctx)
{
    insert_items(ctx, false);
}

void cmd_cf_insertnx(struct command_ctx *ctx)
{
    insert_items(ctx, true);
}

/* ---- questions: a filter that is missing, or of the other kind, has no items ---- */

static void count_queries(const struct bf_call *call, uint64_t hits, uint64_t misses)
{
    stats_add(&call->stats->query_hits, hits);
    stats_add(&call->stats->query_misses, misses);
    if (call->entry)
        usage_count(call->stats->usage, call->entry->id, hits, misses, 0);
}

static struct bloom_filter *for_question(struct bf_call *call, bool *replied_out)
{
    enum cf_found found;
    struct bloom_filter *filter = cf_look(call, &found);
    *replied_out = found == CF_IS_LOST ? !cf_reply_unless(call, found) : filter && !has_its_key(call, filter);
    stats_add(filter ? &call->stats->keyspace_hits : &call->stats->keyspace_misses, 1);
    if (filter)
        note_use(call);
    return filter;
}

void cf_query_one(struct bf_call *call, struct slice item)
{
    bool replied;
    const struct bloom_filter *filter = for_question(call, &replied);
    if (replied)
        return;
    bool present = filter && cuckoo_query(filter, cuckoo_hash_for(filter, item.ptr, item.len));
    count_queries(call, present, !present);
    reply_bool(call->reply, present);
}

void cmd_cf_exists(struct command_ctx *ctx)
{
    struct bf_call call = bf_call_of(ctx);
    cf_query_one(&call, command_arg(ctx, 2));
}

void cmd_cf_mexists(struct command_ctx *ctx)
{
    struct bf_call call = bf_call_of(ctx);
    size_t n = command_argc(ctx) - 2, first;
    bool replied = false, later = ctx->slice && ctx->slice->done > 0; /* its reply has begun */
    enum cf_found found;
    const struct bloom_filter *filter = later ? cf_look(&call, &found) : for_question(&call, &replied);
    if (replied)
        return;
    if (filter && bloom_filter_missing_key(filter)) /* another one has the name since the first slice */
        filter = NULL;
    size_t count = command_slice(ctx, n, &first);
    if (first == 0)
        reply_array(ctx->reply, n);
    struct ahead ahead = {.next = 2 + first};
    uint64_t hits = 0;
    for (size_t i = 2 + first; i < 2 + first + count; i++) {
        bool present = filter && cuckoo_query(filter, hash_ahead(ctx, filter, &ahead, i, 2 + first + count));
        hits += present;
        reply_bool(ctx->reply, present);
    }
    count_queries(&call, hits, count - hits);
}

void cmd_cf_count(struct command_ctx *ctx)
{
    struct bf_call call = bf_call_of(ctx);
    struct slice item = command_arg(ctx, 2);
    bool replied;
    const struct bloom_filter *filter = for_question(&call, &replied);
    if (!replied)
        reply_integer(ctx->reply,
                      filter ? (int64_t)cuckoo_count(filter, cuckoo_hash_for(filter, item.ptr, item.len)) : 0);
}

/* ---- deleting ---- */

/* The first turn of a compaction, or a further one. False: it continues. */
static bool compact(struct bf_call *call, struct bloom_filter *filter)
{
    struct bloom_journal space;
    if (cuckoo_compact(filter, CF_LOOKS_AT_ONCE, cf_journal(call, &space)))
        cf_changed(call, 1);
    return !cuckoo_is_compacting(filter);
}

void cf_delete_one(struct bf_call *call, struct slice item)
{
    struct bloom_journal space;
    struct bloom_filter *filter = existing_or(call, CF_DEL_MISSING);
    if (!filter || !has_its_key(call, filter))
        return;
    bool deleted = cuckoo_delete(filter, cuckoo_hash_for(filter, item.ptr, item.len), cf_journal(call, &space));
    if (deleted && cuckoo_is_sparse(filter)) {
        cuckoo_compact_begin(filter, false);
        (void)compact(call, filter);
    } else {
        go_on_compacting(call, filter);
    }
    note_use(call);
    cf_changed(call, deleted);
    reply_bool(call->reply, deleted);
}

void cmd_cf_del(struct command_ctx *ctx)
{
    struct bf_call call = bf_call_of(ctx);
    cf_delete_one(&call, command_arg(ctx, 2));
}

/* Whether a compaction has nothing to do, and so is no change. */
static bool is_compact(const struct bloom_filter *filter)
{
    struct cuckoo_state state;
    cuckoo_state(filter, &state);
    return state.nlayers == 1 && state.deletes == 0;
}

/* Runs in slices, each of which is a turn. In a transaction there is one; the changes that follow do the rest. */
void cmd_cf_compact(struct command_ctx *ctx)
{
    struct bf_call call = bf_call_of(ctx);
    struct bloom_filter *filter = existing_or(&call, CF_COMPACT_NONE);
    if (!filter)
        return;
    bool begins = !ctx->slice || ctx->slice->done == 0;
    if (begins && is_compact(filter)) {
        reply_status(ctx->reply, "OK");
        return;
    }
    if (begins)
        cuckoo_compact_begin(filter, true);
    bool ended = compact(&call, filter);
    if (!ended && ctx->slice) {
        ctx->slice->done++;
        ctx->later = true;
        return;
    }
    reply_status(ctx->reply, "OK");
}

/* ---- numbers ---- */

static void plan_job(struct command_job *job)
{
    struct bf_args args = bf_args_of_job(job->data, "cf.plan");
    struct cuckoo_numbers defaults = cf_defaults_of(job->server);
    struct bf_out out = bf_out_of(&job->reply);
    struct cf_plan requested;
    struct errbuf err;
    if (cf_read_plan(&args, &defaults, &requested, &err))
        cf_reply_plan(&out, &requested, (unsigned)server_config(job->server)->cuckoo.max_expansions);
    else
        reply_error(&job->reply, err.text);
}

void cmd_cf_plan(struct command_ctx *ctx)
{
    command_defer_arguments(ctx, PLAN_WORD, plan_job);
}

void cmd_cf_info(struct command_ctx *ctx)
{
    struct bf_call call = bf_call_of(ctx);
    struct bf_args args = bf_args_of(ctx);
    struct bf_out out = bf_out_of(ctx->reply);
    struct errbuf error;
    bool full;
    if (!cf_read_info(&args, &full, &error)) {
        reply_error(ctx->reply, error.text);
        return;
    }
    const struct bloom_filter *filter = cf_existing(&call);
    if (filter)
        cf_reply_info(&out, filter, full);
}

void cmd_cf_debug(struct command_ctx *ctx)
{
    struct bf_call call = bf_call_of(ctx);
    struct bf_out out = bf_out_of(ctx->reply);
    const struct bloom_filter *filter = cf_existing(&call);
    if (filter)
        cf_reply_debug(&out, filter);
}
