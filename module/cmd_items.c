/* Commands that add or query items, and that create the filter for them. */
#include <string.h>

#include "adds.h"
#include "bf_info.h"
#include "bf_out.h"
#include "bloom_ahead.h"
#include "effects.h"
#include "handlers.h"
#include "memory.h"
#include "settings.h"
#include "value.h"

/* ---- single items ---- */

#define MISSES 8u /* so many queries in a row find nothing: the next one probably does not either */

/* The filter of the latest single item. The next one is expected to be the same if the latest two were. */
static struct {
    uint64_t id; /* of the value; 0: none */
    bool steady;
    unsigned missed; /* the latest queries, which found nothing */
    struct bloom_ahead ahead;
} recent;

/* Before the filter is looked up: aims at the recent one. Whether it did. */
static bool aim_ahead(const struct call *call, struct bloom_aim *aim)
{
    if (!recent.steady)
        return false;
    struct slice item = call_arg(call, 2);
    bloom_ahead_aim(&recent.ahead, item.ptr, item.len, aim);
    return true;
}

/* Afterwards: aims at the filter of the call, unless that has been done. */
static void aim_now(const struct call *call, struct bloom_aim *aim, bool aimed)
{
    const struct bloom_filter *filter = value_filter(call->value);
    recent.steady = recent.id == call->value->id && bloom_ahead_is_new(&recent.ahead, filter);
    if (recent.steady && aimed)
        return;
    if (!recent.steady) {
        recent.id = call->value->id;
        bloom_ahead_take(&recent.ahead, filter);
    }
    struct slice item = call_arg(call, 2);
    bloom_ahead_aim(&recent.ahead, item.ptr, item.len, aim);
}

/* ---- creating ---- */

/* Logs at most once in the life of the process. */
static void warn_of_rate(struct engine_ctx *ctx, const struct bloom_filter *filter)
{
    static bool warned;
    struct errbuf text;
    if (warned || !bf_rate_is_off(filter, &text))
        return;
    warned = true;
    engine.Log(ctx, "warning", "bloomery: %s", text.text);
}

/* Creates the filter of a call that is open for writing and has none, with room checked, and tells replicas, log,
 * watchers and listeners. False after an error reply. */
static bool create_filter(struct call *call, const struct bloom_params *params, int64_t expires_ms)
{
    struct errbuf err = {""};
    struct bloom_class *class;
    struct value *value = NULL;
    bool obeys = call_must_obey(call); /* RedisBloom's log and its primaries create a filter by a command */
    int status = bloom_class_get(values_pool(), params, NULL, &class, &err);
    if (status == 0) {
        value = value_create(class, !obeys, &status, &err);
        bloom_class_release(class);
    }
    if (!value)
        return call_not_made(call, status, &err);
    if (bloom_filter_forgets(value_filter(value)) && !obeys && !window_fits(value_filter(value), &err)) {
        value_free(value);
        return call_not_made(call, BLOOM_LIMIT, &err);
    }
    if (!obeys)
        warn_of_rate(call->ctx, value_filter(value));
    call_put(call, value);
    effect_made(call, expires_ms);
    effect_changed(call, "bloom.reserve");
    return true;
}

/* Whether the key for a new filter exists; an error reply if not. */
static bool has_key(struct call *call, bool keyed, uint64_t key)
{
    return !keyed || key || call_refuse(call, BF_NEW_NO_KEY);
}

HANDLER(cmd_bf_reserve)
{
    struct bf_args args = call_args(call);
    struct bf_defaults defaults = call_defaults(call);
    struct bf_reserve reserve;
    struct errbuf error;
    if (!bf_read_reserve(&args, &defaults, &reserve, &error)) {
        call_error(call, "%s", error.text);
        return;
    }
    bf_draw_seed(&reserve.params, reserve.fresh_seed);
    if (call_open_any(call)) {
        if (call->value)
            engine.ReplyWithError(call->ctx, BF_EXISTS);
        else if (has_key(call, reserve.keyed, reserve.params.key) &&
                 create_filter(call, &reserve.params, reserve.expires_ms))
            engine.ReplyWithSimpleString(call->ctx, "OK");
    }
}

/* ---- adds ---- */

/* The filter of the call, created with the settings if there is none: an add of a primary finds it, because its
 * creation was replicated before. `made_out`: it has been created, and its creation has been replicated. */
static bool open_for_add(struct call *call, bool *made_out)
{
    *made_out = false;
    if (!call_open_to_ask(call))
        return false;
    if (call->value)
        return true;
    if (!settings.auto_create && !call_must_obey(call))
        return call_refuse(call, BF_NOT_FOUND);
    struct bf_defaults defaults = call_defaults(call);
    bf_draw_seed(&defaults.params, defaults.fresh_seed);
    *made_out = has_key(call, defaults.keyed, defaults.key) && create_filter(call, &defaults.params, 0);
    return *made_out;
}

HANDLER(cmd_bf_add)
{
    struct bloom_aim aim;
    recent.missed = 0; /* an add needs all words */
    recent.ahead.first_words = false;
    bool aimed = aim_ahead(call, &aim), made;
    if (open_for_add(call, &made)) {
        aim_now(call, &aim, aimed);
        add_word(call, &aim, !made);
    }
}

HANDLER(cmd_bf_madd)
{
    bool made;
    if (open_for_add(call, &made))
        add_words(call, 2, !made);
}

static bool open_for_insert(struct call *call, struct bf_insert *insert)
{
    if (!call_open_to_ask(call))
        return false;
    if (call->value)
        return true;
    if (insert->no_create || (!insert->sized && !settings.auto_create && !call_must_obey(call)))
        return call_refuse(call, BF_NOT_FOUND);
    bf_draw_seed(&insert->params, insert->fresh_seed);
    return has_key(call, insert->keyed, insert->params.key) && create_filter(call, &insert->params, insert->expires_ms);
}

HANDLER(cmd_bf_insert)
{
    struct bf_args args = call_args(call);
    struct bf_defaults defaults = call_defaults(call);
    struct bf_insert insert;
    struct errbuf error;
    if (!bf_read_insert(&args, &defaults, &insert, &error)) {
        call_error(call, "%s", error.text);
        return;
    }
    struct slice owner;
    size_t first = bf_first_item(&args, &owner);
    if (!open_for_insert(call, &insert))
        return;
    if (owner.len)
        claim_words(call, first, owner);
    else
        add_words(call, first, false);
}

/* ---- queries ---- */

static void reply_missing(struct call *call, size_t n, bool array, enum bf_missing missing)
{
    if (missing == BF_MISSING_ERROR) {
        engine.ReplyWithError(call->ctx, BF_NOT_FOUND);
        return;
    }
    if (array)
        engine.ReplyWithArray(call->ctx, (long)n);
    for (size_t i = 0; i < n; i++) {
        if (missing == BF_MISSING_ABSENT)
            call_bool(call, false);
        else
            engine.ReplyWithNull(call->ctx);
    }
}

static struct bloom_item word_item(const void *call, size_t i)
{
    struct slice item = call_arg(call, i);
    return (struct bloom_item){item.ptr, item.len};
}

static bool reply_words(void *ctx, size_t next, uint32_t present, size_t n)
{
    struct call *call = ctx;
    uint64_t hits = (uint64_t)__builtin_popcount(present);
    (void)next;
    call->value->usage.hits += hits;
    call->value->usage.misses += n - hits;
    for (size_t i = 0; i < n; i++)
        call_bool(call, present >> i & 1);
    return true;
}

static void query_all(struct call *call, size_t first, enum bf_missing missing)
{
    size_t n = (size_t)call->argc - first;
    if (call_open_to_query(call)) {
        if (!call->value) {
            reply_missing(call, n, true, missing);
        } else {
            engine.ReplyWithArray(call->ctx, (long)n);
            struct bloom_questions words = {first, (size_t)call->argc, word_item, call, reply_words, call, true};
            bloom_query_all(value_filter(call->value), &words);
        }
    }
}

static void query_one(struct call *call, struct bloom_aim *aim, bool aimed)
{
    aim_now(call, aim, aimed);
    bool present = bloom_ahead_query(value_filter(call->value), aim);
    recent.missed = present ? 0 : recent.missed + 1;
    recent.ahead.first_words = recent.missed >= MISSES;
    call->value->usage.hits += present;
    call->value->usage.misses += !present;
    call_bool(call, present);
}

HANDLER(cmd_bf_exists)
{
    struct bloom_aim aim;
    bool aimed = aim_ahead(call, &aim);
    if (call_open_to_query(call)) {
        if (call->value)
            query_one(call, &aim, aimed);
        else
            reply_missing(call, 1, false, settings_missing());
    }
}

HANDLER(cmd_bf_mexists)
{
    query_all(call, 2, settings_missing());
}

HANDLER(cmd_bf_query)
{
    struct bf_args args = call_args(call);
    struct bf_query query;
    struct errbuf error;
    if (!bf_read_query(&args, &query, &error))
        call_error(call, "%s", error.text);
    else
        query_all(call, query.first_item, query.missing);
}
