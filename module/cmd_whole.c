/* Commands on a filter as a whole: reports and emptying. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bf_info.h"
#include "bf_merge.h"
#include "effects.h"
#include "handlers.h"
#include "memory.h"
#include "settings.h"

/* ---- reports ---- */

HANDLER(cmd_bf_info)
{
    struct bf_args args = call_args(call);
    struct bf_choice choice;
    struct errbuf error;
    bool understood = bf_read_info(&args, &choice, &error);
    choice.limit = (uint64_t)settings.max_filter_bytes;
    if (call->argc > 3) { /* the number of words is checked before the filter, the word after it */
        (void)engine.WrongArity(call->ctx);
        return;
    }
    if (call_open_existing(call)) {
        struct bf_out out = call_out(call);
        if (!understood || !bf_info_has(value_filter(call->value), &choice, &error))
            call_error(call, "%s", error.text);
        else if (bf_reply_info(&out, value_filter(call->value), &call->value->usage, &choice) != 0)
            engine.ReplyWithError(call->ctx, "ERR out of memory");
    }
}

HANDLER(cmd_bf_card)
{
    if (call_open(call))
        engine.ReplyWithLongLong(call->ctx, call->value ? (long long)bloom_filter_items(value_filter(call->value)) : 0);
}

HANDLER(cmd_bf_debug)
{
    if (call_open_existing(call)) {
        struct bf_out out = call_out(call);
        bf_reply_debug(&out, value_filter(call->value));
    }
}

HANDLER(cmd_bf_plan)
{
    struct bf_args args = call_args(call);
    struct bf_defaults defaults = settings_defaults();
    struct bf_out out = call_out(call);
    struct bf_plan requested;
    struct errbuf error;
    if (bf_read_plan(&args, &defaults, &requested, &error))
        bf_reply_plan(&out, &requested);
    else
        call_error(call, "%s", error.text);
}

/* Counts belong to the process that has counted them: replicas have their own. */
HANDLER(cmd_bf_falsepositive)
{
    struct bf_args args = call_args(call);
    struct errbuf error;
    uint32_t count;
    if (!bf_read_false_positives(&args, &count, &error)) {
        call_error(call, "%s", error.text);
        return;
    }
    if (call_open_existing(call)) {
        call->value->usage.wrong += count;
        engine.ReplyWithLongLong(call->ctx, (long long)call->value->usage.wrong);
    }
}

/* ---- BF.CLEAR ---- */

static void clear_filter(struct call *call)
{
    struct errbuf err = {""};
    int status;
    struct value *empty = value_create(bloom_filter_class_of(value_filter(call->value)), false, &status, &err);
    if (!empty) {
        call_not_made(call, status, &err);
        return;
    }
    call_put(call, empty);
    engine.ReplicateVerbatim(call->ctx);
    effect_changed(call, "bloom.clear");
    engine.ReplyWithSimpleString(call->ctx, "OK");
}

HANDLER(cmd_bf_clear)
{
    if (call_open_existing(call)) {
        if (value_is_blank(call->value)) {
            call->value->usage = (struct bf_usage){.since_s = (int64_t)time(NULL)}; /* of this process alone */
            engine.ReplyWithSimpleString(call->ctx, "OK");
        } else {
            clear_filter(call);
        }
    }
}

/* ---- BF.MERGE ---- */

/* The union of ordinary filters is the same on every node, so replicas get the command. A union of windows depends on
 * the ages of their parts on this node, so replicas get the mapping of layers (effects.h). */

struct merge {
    struct call *call;    /* of the destination */
    struct call *sources; /* each is the call of a command with this name as argument 1; the names from argument 2 on */
    struct bf_merge it;
};

/* Opens the filter of argument i. */
static bool find(void *ctx, size_t i, struct bloom_filter **filter_out)
{
    struct merge *merge = ctx;
    struct call *call = merge->call;
    struct call *opened = i == 1 ? call : &merge->sources[i];
    if (i > 1)
        *opened = (struct call){.ctx = call->ctx, .argv = call->argv + i - 1, .argc = 2, .name = call->name};
    if (!call_open(opened))
        return false;
    *filter_out = opened->value ? value_filter(opened->value) : NULL;
    return true;
}

/* ---- data for replicas about a union of windows ---- */

/* Pairs of 2 bytes each, least significant first: the layer, and that of the union. */
static size_t write_layer_map(const struct bloom_layer_map *places, unsigned char *out)
{
    size_t len = 0;
    for (unsigned i = 0; i < BLOOM_MAX_LAYERS; i++) {
        if (places->to[i] == 0)
            continue;
        unsigned to = places->to[i] - 1u;
        const unsigned char pair[] = {(unsigned char)i, (unsigned char)(i >> 8), (unsigned char)to,
                                      (unsigned char)(to >> 8)};
        memcpy(out + len, pair, sizeof(pair));
        len += sizeof(pair);
    }
    return len;
}

/* The name and the places of each filter. False without memory. */
static bool union_words(const struct merge *merge, struct engine_string ***words_out, size_t *nwords_out)
{
    unsigned char places[4 * BLOOM_MAX_LAYERS];
    struct engine_string **words = malloc((merge->it.nsources + 1) * 2 * sizeof(*words));
    size_t n = 0;
    for (size_t i = 0; words && i <= merge->it.nsources; i++) {
        size_t len = write_layer_map(&merge->it.places[i], places);
        if (len == 0)
            continue;
        struct slice name = call_arg(merge->call, i < merge->it.nsources ? i + 2 : 1);
        words[n++] = engine.CreateString(NULL, name.ptr, name.len);
        words[n++] = engine.CreateString(NULL, (const char *)places, len);
    }
    *words_out = words;
    *nwords_out = n;
    return words != NULL;
}

/* Puts the union in the destination's place, and replicates that. False without memory. */
static bool publish(struct merge *merge, struct value *made)
{
    struct call *call = merge->call;
    struct engine_string **words = NULL;
    size_t nwords = 0;
    if (merge->it.places && !union_words(merge, &words, &nwords))
        return false;
    call_put(call, made);
    if (merge->it.places)
        effect_united(call, words, nwords);
    else
        effect_merged(call);
    for (size_t i = 0; i < nwords; i++)
        engine.FreeString(NULL, words[i]);
    free(words);
    effect_changed(call, "bloom.merge");
    return true;
}

/* Makes the union in an empty value. False after an error reply. */
static bool unite(struct merge *merge, struct value *value, bool obeys)
{
    struct bf_merge *it = &merge->it;
    struct call *call = merge->call;
    struct errbuf err = {""};
    it->made = value_filter(value);
    if (!bf_merge_shape(it))
        return false;
    uint64_t bytes = bloom_filter_charged(it->made);
    if (!obeys && !memory_allowed(bytes, bytes, &err))
        return call_not_made(call, BLOOM_LIMIT, &err);
    struct bloom_twins twins = {.older = it->destination, .younger = it->made};
    if (it->destination)
        (void)bloom_twins_begin(values_pool(), &twins); /* there are no other adds: one command at a time */
    int status = bf_merge_unite(it, values_pool(), obeys || settings.merge_overfull, &err);
    if (it->destination)
        bloom_twins_end(values_pool(), it->destination);
    if (status != 0)
        call_not_made(call, status, &err);
    return status == 0;
}

static void merge_filters(struct merge *merge)
{
    struct call *call = merge->call;
    struct errbuf err = {""};
    int status;
    struct value *made = value_create(bloom_filter_class_of(bf_merge_model(&merge->it)), false, &status, &err);
    if (!made) {
        call_not_made(call, status, &err);
        return;
    }
    if (!unite(merge, made, call_must_obey(call))) {
        value_free(made);
    } else if (bf_merge_changes_nothing(&merge->it)) {
        value_free(made);
        engine.ReplyWithSimpleString(call->ctx, "OK");
    } else if (publish(merge, made)) {
        engine.ReplyWithSimpleString(call->ctx, "OK");
    } else {
        value_free(made);
        engine.ReplyWithError(call->ctx, "ERR out of memory");
    }
}

HANDLER(cmd_bf_merge)
{
    struct merge merge = {.call = call};
    struct bf_args args = call_args(call);
    struct bf_out out = call_out(call);
    merge.sources = calloc(args.argc, sizeof(*merge.sources));
    if (!merge.sources)
        engine.ReplyWithError(call->ctx, "ERR out of memory");
    else if (bf_merge_begin(&merge.it, &out, &args, find, &merge))
        merge_filters(&merge);
    for (size_t i = 2; merge.sources && i < args.argc; i++)
        call_close(&merge.sources[i]);
    free(merge.sources);
    bf_merge_end(&merge.it);
}
