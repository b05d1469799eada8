/* CF.*: cuckoo filters. The engine runs one command at a time, so a compaction ends within its command. A replica with
 * the same adds and deletions has the same slots. */
#include <stdlib.h>
#include <string.h>

#include "bf_out.h"
#include "bloom_keyring.h"
#include "bytes.h"
#include "cf_request.h"
#include "effects.h"
#include "handlers.h"
#include "memory.h"
#include "settings.h"

#define STACK_WORDS 16 /* answers that need no memory of their own */
#define AHEAD       32 /* items whose buckets are fetched before the first search */

static uint64_t hash_of(const struct call *call, size_t i)
{
    struct slice item = call_arg(call, i);
    return cuckoo_hash_for(value_filter(call->value), item.ptr, item.len);
}

/* ---- creating ---- */

/* Makes the filter of a call that is open for writing and has none, and tells replicas, log, watchers and listeners.
 * False after an error reply. */
static bool make(struct call *call, const struct cuckoo_numbers *numbers)
{
    struct errbuf err = {""};
    struct bloom_params params;
    struct bloom_shape shape;
    if (numbers->keyed && !numbers->key)
        return call_refuse(call, BF_NEW_NO_KEY);
    if (cuckoo_plan(numbers, &params, &shape, &err) != BLOOM_OK)
        return call_error(call, CF_NO_MEMORY, err.text);
    struct value *value = call_make(call, &params, &shape, 1);
    if (!value)
        return false;
    call_put(call, value);
    effect_cuckoo_made(call, numbers);
    effect_changed(call, "bloom.reserve");
    return true;
}

HANDLER(cmd_cf_reserve)
{
    struct bf_args args = call_args(call);
    struct cuckoo_numbers defaults = settings_cuckoo_numbers(), numbers;
    struct errbuf error;
    if (!cf_read_reserve(&args, &defaults, &numbers, &error)) {
        call_error(call, "%s", error.text);
        return;
    }
    if (call_open_cuckoo(call)) {
        if (call->value)
            engine.ReplyWithError(call->ctx, CF_EXISTS);
        else if (make(call, &numbers))
            engine.ReplyWithSimpleString(call->ctx, "OK");
    }
}

/* ---- adding ---- */

/* A filter with a limit of layers refuses all adds, of present items, too, as in RedisBloom. */
static bool is_open(struct call *call)
{
    if (bloom_filter_nlayers(value_filter(call->value)) < (unsigned)settings.cf_max_expansions || call_must_obey(call))
        return true;
    return call_refuse(call, CF_MANY_LAYERS);
}

/* The filter of a call, made if there is none. False after an error reply. */
static bool open_for_add(struct call *call, const struct cuckoo_numbers *numbers, bool may_create, bool *made_out)
{
    *made_out = false;
    if (!call_open_cuckoo(call))
        return false;
    if (call->value)
        return call_has_its_key(call) && is_open(call);
    if (!may_create || (!settings.auto_create && !call_must_obey(call)))
        return call_refuse(call, CF_NOT_FOUND);
    *made_out = make(call, numbers);
    return *made_out && is_open(call);
}

static void note_nothing(void *ctx, uint64_t id, struct bloom_hash hash, unsigned layer, uint64_t ordinal)
{
    (void)ctx, (void)id, (void)hash, (void)layer, (void)ordinal;
}

/* Limits do not apply to commands of a primary or a log. */
static int ask_memory(void *ctx, uint64_t id, unsigned layer, const struct bloom_shape *shape, struct errbuf *err)
{
    struct call *call = ctx;
    uint64_t bytes = shape->nwords * 8, before = bloom_filter_charged(value_filter(call->value));
    (void)id;
    if (call_must_obey(call))
        return 0;
    if (layer >= (unsigned)settings.cf_max_expansions)
        return errbuf_fail(err, BLOOM_LIMIT,
                           "the filter has %u sub-filters, the most that it may have (cf-max-expansions)", layer);
    return memory_allowed(before + bytes, bytes, err) ? 0 : BLOOM_LIMIT;
}

static enum bloom_add add(struct call *call, size_t i, bool only_new, struct errbuf *err)
{
    static const struct bloom_journal_ops ops = {.add = note_nothing, .grow = ask_memory};
    const struct bloom_journal journal = {&ops, call, call->value->id};
    return cuckoo_add(value_filter(call->value), hash_of(call, i), only_new, &journal, err);
}

static void tell_of_growth(struct call *call, unsigned before)
{
    for (unsigned n = bloom_filter_nlayers(value_filter(call->value)); before < n; before++)
        effect_event(call, "cuckoo.grow");
}

static void add_one(struct call *call, bool only_new)
{
    struct cuckoo_numbers numbers = settings_cuckoo_numbers();
    struct errbuf err = {""};
    bool made;
    if (!open_for_add(call, &numbers, true, &made))
        return;
    unsigned before = bloom_filter_nlayers(value_filter(call->value));
    enum bloom_add answer = add(call, 2, only_new, &err);
    if (answer == BLOOM_ADDED) {
        const uint32_t first = 1;
        effect_cuckoo_added(call, 2, &first, 1, !made);
        effect_changed(call, NULL);
        tell_of_growth(call, before);
    }
    if (answer == BLOOM_FULL)
        engine.ReplyWithError(call->ctx, CF_FULL);
    else if (answer == BLOOM_NO_ROOM)
        call_error(call, CF_NO_MEMORY, err.text);
    else
        call_bool(call, answer == BLOOM_ADDED);
}

HANDLER(cmd_cf_add)
{
    add_one(call, false);
}

HANDLER(cmd_cf_addnx)
{
    add_one(call, true);
}

/* Adds the words from `first` on. `as_it_came`: the command has exactly these items. */
static void insert_words(struct call *call, size_t first, uint32_t *added, bool only_new, bool as_it_came)
{
    struct bf_out out = call_out(call);
    struct errbuf err = {""};
    size_t n = (size_t)call->argc - first, count = 0;
    unsigned before = bloom_filter_nlayers(value_filter(call->value));
    engine.ReplyWithArray(call->ctx, (long)n);
    for (size_t i = 0; i < n; i++) {
        enum bloom_add answer = add(call, first + i, only_new, &err);
        cf_reply_added(&out, answer, only_new);
        added[i / 32] |= (uint32_t)(answer == BLOOM_ADDED) << i % 32;
        count += answer == BLOOM_ADDED;
    }
    if (count == 0)
        return;
    effect_cuckoo_added(call, first, added, n, as_it_came && count == n);
    effect_changed(call, NULL);
    tell_of_growth(call, before);
}

static void insert(struct call *call, bool only_new)
{
    struct bf_args args = call_args(call);
    struct cuckoo_numbers defaults = settings_cuckoo_numbers();
    struct cf_insert insert;
    struct errbuf error;
    uint32_t few[STACK_WORDS] = {0}, *added = few;
    bool made;
    if (!cf_read_insert(&args, &defaults, &insert, &error)) {
        call_error(call, "%s", error.text);
        return;
    }
    size_t words = ((size_t)call->argc - insert.first_item + 31) / 32;
    if (words > STACK_WORDS)
        added = calloc(words, sizeof(*added));
    if (!added)
        engine.ReplyWithError(call->ctx, "ERR out of memory");
    else if (open_for_add(call, &insert.numbers, !insert.no_create, &made))
        insert_words(call, insert.first_item, added, only_new, !made && insert.first_item == 3);
    if (added != few)
        free(added);
}

HANDLER(cmd_cf_insert)
{
    insert(call, false);
}

HANDLER(cmd_cf_insertnx)
{
    insert(call, true);
}

/* ---- questions: a filter that is missing, or of another type, has no items ---- */

/* False after an error reply. *filter_out is NULL if there is no filter. */
static bool for_question(struct call *call, const struct bloom_filter **filter_out)
{
    *filter_out = call_find_cuckoo(call) == CALL_THERE ? value_filter(call->value) : NULL;
    return !*filter_out || call_has_its_key(call);
}

HANDLER(cmd_cf_exists)
{
    const struct bloom_filter *filter;
    if (for_question(call, &filter))
        call_bool(call, filter && cuckoo_query(filter, hash_of(call, 2)));
}

HANDLER(cmd_cf_mexists)
{
    const struct bloom_filter *filter;
    if (!for_question(call, &filter))
        return;
    size_t n = (size_t)call->argc - 2;
    engine.ReplyWithArray(call->ctx, (long)n);
    for (size_t done = 0; done < n;) {
        uint64_t hashes[AHEAD];
        size_t now = n - done < AHEAD ? n - done : AHEAD;
        for (size_t i = 0; filter && i < now; i++) {
            hashes[i] = hash_of(call, 2 + done + i);
            cuckoo_prefetch(filter, hashes[i]);
        }
        for (size_t i = 0; i < now; i++)
            call_bool(call, filter && cuckoo_query(filter, hashes[i]));
        done += now;
    }
}

HANDLER(cmd_cf_count)
{
    const struct bloom_filter *filter;
    if (for_question(call, &filter))
        engine.ReplyWithLongLong(call->ctx, filter ? (long long)cuckoo_count(filter, hash_of(call, 2)) : 0);
}

/* ---- deleting ---- */

static void compact(struct bloom_filter *filter, bool all)
{
    cuckoo_compact_begin(filter, all);
    (void)cuckoo_compact(filter, UINT64_MAX, NULL);
}

static bool delete_one(struct bloom_filter *filter, uint64_t hash)
{
    bool deleted = cuckoo_delete(filter, hash, NULL);
    if (deleted && cuckoo_is_sparse(filter))
        compact(filter, false);
    return deleted;
}

HANDLER(cmd_cf_del)
{
    if (call_find_cuckoo(call) != CALL_THERE) {
        engine.ReplyWithError(call->ctx, CF_DEL_MISSING);
        return;
    }
    if (!call_has_its_key(call))
        return;
    uint64_t hash = hash_of(call, 2);
    bool deleted = delete_one(value_filter(call->value), hash);
    if (deleted) {
        effect_cuckoo_deleted(call, hash);
        effect_changed(call, NULL);
    }
    call_bool(call, deleted);
}

bool cf_apply(struct call *call, struct errbuf *err)
{
    bool adds = slice_is(call_arg(call, 2), "CFADD");
    if (call_find_cuckoo(call) != CALL_THERE)
        return errbuf_fail(err, false, "no such cuckoo filter");
    struct bloom_filter *filter = value_filter(call->value);
    for (int i = 3; i < call->argc; i++) {
        struct slice bytes = call_arg(call, (size_t)i);
        if (bytes.len != 8)
            return errbuf_fail(err, false, "a hash of a cuckoo filter has 8 bytes, not %zu", bytes.len);
        uint64_t hash = le64_get((const unsigned char *)bytes.ptr);
        if (!adds)
            (void)delete_one(filter, hash);
        else if (cuckoo_add(filter, hash, false, NULL, err) == BLOOM_NO_ROOM)
            return false;
    }
    engine.ReplicateVerbatim(call->ctx);
    effect_changed(call, NULL);
    return true;
}

/* The sum of all items' layers, which each move of a compaction lowers; and the other numbers that it changes. */
struct places {
    uint64_t sum, deletes;
    unsigned nlayers;
};

static struct places places_of(const struct bloom_filter *filter)
{
    struct cuckoo_state state;
    cuckoo_state(filter, &state);
    struct places places = {0, state.deletes, state.nlayers};
    for (unsigned i = 0; i < state.nlayers; i++) {
        struct bloom_layer_view view;
        bloom_filter_layer(filter, i, &view);
        places.sum += i * view.items;
    }
    return places;
}

HANDLER(cmd_cf_compact)
{
    if (call_find_cuckoo(call) != CALL_THERE) {
        engine.ReplyWithError(call->ctx, CF_COMPACT_NONE);
        return;
    }
    struct bloom_filter *filter = value_filter(call->value);
    struct places before = places_of(filter);
    compact(filter, true);
    struct places after = places_of(filter);
    if (before.sum != after.sum || before.deletes != after.deletes || before.nlayers != after.nlayers) {
        engine.ReplicateVerbatim(call->ctx);
        effect_changed(call, NULL);
    }
    engine.ReplyWithSimpleString(call->ctx, "OK");
}

/* ---- numbers ---- */

HANDLER(cmd_cf_info)
{
    struct bf_args args = call_args(call);
    struct bf_out out = call_out(call);
    struct errbuf error;
    bool full;
    if (!cf_read_info(&args, &full, &error))
        call_error(call, "%s", error.text);
    else if (call_open_existing_cuckoo(call))
        cf_reply_info(&out, value_filter(call->value), full);
}

HANDLER(cmd_cf_debug)
{
    struct bf_out out = call_out(call);
    if (call_open_existing_cuckoo(call))
        cf_reply_debug(&out, value_filter(call->value));
}

HANDLER(cmd_cf_plan)
{
    struct bf_args args = call_args(call);
    struct cuckoo_numbers defaults = settings_cuckoo_numbers();
    struct bf_out out = call_out(call);
    struct cf_plan requested;
    struct errbuf error;
    if (cf_read_plan(&args, &defaults, &requested, &error))
        cf_reply_plan(&out, &requested, (unsigned)settings.cf_max_expansions);
    else
        call_error(call, "%s", error.text);
}
