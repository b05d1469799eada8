/* Adds and queries. The engine runs one command at a time: so a batch is computed first, then replied to with the
 * number of answers that it has, and replicas are told the items that it has added. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bf_texts.h"
#include "bloom_ahead.h"
#include "bloom_batch.h"
#include "effects.h"
#include "handlers.h"
#include "memory.h"
#include "settings.h"

_Static_assert(BLOOM_BATCH == 32, "a batch is a word of answers");

#define STACK_WORDS 16 /* answers that need no memory of their own */

/* ---- single items ---- */

/* The filter that a single item was last looked for, or added to: that of the next command, in a pipeline. */
static struct {
    uint64_t id;     /* of the value */
    size_t name_len; /* 0: none */
    char name[64];
    struct bloom_ahead ahead;
} recent;

/* A command's only item: its hash is known before its filter, if that is the recent one. */
struct single {
    struct slice item;
    bool guessed;
    struct bloom_hash hash;
};

/* Before the filter is looked up. */
static struct single single_begin(const struct call *call)
{
    struct single single = {.item = call_arg(call, 2)};
    struct slice name = call_arg(call, 1);
    single.guessed = name.len == recent.name_len && name.len > 0 && memcmp(name.ptr, recent.name, name.len) == 0;
    if (single.guessed)
        single.hash = bloom_ahead_fetch(&recent.ahead, single.item.ptr, single.item.len);
    return single;
}

/* Afterwards: the item's hash for the filter of the call. */
static struct bloom_hash single_hash(const struct single *single, const struct call *call)
{
    const struct bloom_filter *filter = value_filter(call->value);
    struct slice name;
    if (single->guessed && recent.id == call->value->id && bloom_ahead_is_new(&recent.ahead, filter))
        return single->hash;
    name = call_arg(call, 1);
    recent.name_len = 0;
    if (name.len <= sizeof(recent.name) && bloom_ahead_take(&recent.ahead, filter)) {
        recent.id = call->value->id;
        recent.name_len = name.len;
        memcpy(recent.name, name.ptr, name.len);
    }
    return bloom_filter_hash(filter, single->item.ptr, single->item.len);
}

/* ---- creating ---- */

bool create_filter(struct call *call, const struct bloom_params *params, int64_t expires_ms)
{
    struct errbuf err = {""};
    struct bloom_class *class;
    struct value *value = NULL;
    int status = bloom_class_get(values_pool(), params, NULL, &class, &err);
    if (status == 0) {
        value = value_create(class, &status, &err);
        bloom_class_release(class);
    }
    if (value && !memory_within(call->ctx, bloom_filter_memory(value_filter(value)), &err)) {
        value_free(value);
        call_error(call, "OOM %s", err.text);
        return false;
    }
    if (!value) {
        call_not_made(call, status, &err);
        return false;
    }
    call_put(call, value);
    effect_made(call, expires_ms);
    effect_changed(call, "bloom.reserve");
    return true;
}

HANDLER(cmd_bf_reserve)
{
    struct call call = {ctx, argv, argc, "bf.reserve", NULL, NULL};
    struct bf_args args = call_args(&call);
    struct bf_defaults defaults = call_defaults(&call);
    struct bf_reserve reserve;
    struct errbuf error;
    if (!bf_read_reserve(&args, &defaults, &reserve, &error)) {
        engine.ReplyWithError(ctx, error.text);
        return ENGINE_OK;
    }
    if (call_open_any(&call, CALL_WRITE)) {
        if (call.value)
            engine.ReplyWithError(ctx, BF_EXISTS);
        else if (create_filter(&call, &reserve.params, reserve.expires_ms))
            engine.ReplyWithSimpleString(ctx, "OK");
    }
    call_close(&call);
    return ENGINE_OK;
}

/* ---- adds ---- */

/* A layer that came into being while a batch was added. */
struct growth {
    size_t before; /* items of the command that were added before */
    unsigned layer;
    struct bloom_shape shape;
};

struct adds {
    struct call *call;
    size_t first, n;   /* the items are the words from `first` on */
    uint32_t *answers; /* bit i: item i has been added */
    uint64_t added, ordinal;
    struct growth *growths;
    size_t ngrowths, room;
    bool obeys;      /* limits do not count */
    size_t answered; /* items that have an answer; below n one was refused */
    enum bloom_add refused;
    struct errbuf err;
};

static void note_add(void *ctx, uint64_t id, struct bloom_hash hash, unsigned layer, uint64_t ordinal)
{
    struct adds *adds = ctx;
    (void)id, (void)hash, (void)layer;
    adds->added++;
    adds->ordinal = ordinal;
}

static int note_grow(void *ctx, uint64_t id, unsigned layer, const struct bloom_shape *shape, struct errbuf *err)
{
    struct adds *adds = ctx;
    (void)id;
    if (!adds->obeys && !memory_within(adds->call->ctx, shape->nwords * 8, err))
        return -ENOMEM;
    if (adds->ngrowths == adds->room) {
        size_t room = adds->room ? adds->room * 2 : 4;
        struct growth *larger = realloc(adds->growths, room * sizeof(*larger));
        if (!larger) {
            errbuf_set(err, "out of memory");
            return -ENOMEM;
        }
        adds->growths = larger;
        adds->room = room;
    }
    adds->growths[adds->ngrowths++] = (struct growth){adds->added, layer, *shape};
    return 0;
}

static const struct bloom_journal_ops journal_ops = {note_add, note_grow};

/* Limits do not apply to commands that must be obeyed, as those of a primary. Whether an add that was refused is to be
 * tried once more, without them. */
static bool lift_limits(struct adds *adds)
{
    if (adds->refused != BLOOM_NO_ROOM || adds->obeys || !call_must_obey(adds->call))
        return false;
    adds->obeys = true;
    bloom_pool_set_limits(values_pool(), 0, 0);
    return true;
}

/* The items `from` to from + n - 1, at most BLOOM_BATCH. */
static void start_batch(struct bloom_batch *batch, const struct call *call, size_t first, size_t n)
{
    struct bloom_item items[BLOOM_BATCH];
    for (size_t i = 0; i < n; i++) {
        struct slice item = call_arg(call, first + i);
        items[i] = (struct bloom_item){item.ptr, item.len};
    }
    bloom_batch_start(batch, value_filter(call->value), items, n);
}

static size_t batch_at(size_t done, size_t n)
{
    return n - done < BLOOM_BATCH ? n - done : BLOOM_BATCH;
}

/* Adds a batch; false when an item was refused. */
static bool add_batch(struct adds *adds, struct bloom_batch *batch, size_t n)
{
    struct bloom_filter *filter = value_filter(adds->call->value);
    struct bloom_journal journal = {&journal_ops, adds, adds->call->value->id};
    uint32_t *answers = &adds->answers[adds->answered / 32];
    *answers = 0;
    for (size_t from = 0; from < n;) {
        uint32_t added;
        size_t end = bloom_batch_add_all(batch, from, filter, &journal, &adds->err, &added, &adds->refused);
        *answers |= added;
        adds->answered += end - from;
        from = end;
        if (end == n)
            break;
        if (!lift_limits(adds))
            return false;
    }
    return true;
}

/* While one batch is added, the words of the next are on their way from memory. */
static void add_all(struct adds *adds)
{
    struct bloom_batch batches[2];
    bool going = true;
    start_batch(&batches[0], adds->call, adds->first, batch_at(0, adds->n));
    for (size_t done = 0, i = 0; going && done < adds->n; i++) {
        size_t n = batch_at(done, adds->n), next = done + n;
        if (next < adds->n)
            start_batch(&batches[(i + 1) % 2], adds->call, adds->first + next, batch_at(next, adds->n));
        going = add_batch(adds, &batches[i % 2], n);
        done = next;
    }
}

static void reply_refused(struct adds *adds)
{
    if (adds->refused == BLOOM_FULL)
        engine.ReplyWithError(adds->call->ctx, BF_FULL);
    else
        call_error(adds->call, BF_NO_ROOM, adds->err.text);
}

/* RedisBloom tells its log and its replicas a batch as it came, with what a full filter has refused: no error there. */
static void reply_obeyed(struct adds *adds, bool array)
{
    if (array)
        engine.ReplyWithArray(adds->call->ctx, (long)adds->n);
    for (size_t i = 0; i < adds->n; i++)
        call_bool(adds->call, i < adds->answered && adds->answers[i / 32] >> (i % 32) & 1);
}

static void reply_adds(struct adds *adds, bool array)
{
    bool refused = adds->answered < adds->n;
    if (refused && adds->refused == BLOOM_FULL && call_must_obey(adds->call)) {
        reply_obeyed(adds, array);
        return;
    }
    if (array)
        engine.ReplyWithArray(adds->call->ctx, (long)(adds->answered + refused));
    for (size_t i = 0; i < adds->answered; i++)
        call_bool(adds->call, adds->answers[i / 32] >> (i % 32) & 1);
    if (refused)
        reply_refused(adds);
}

/* The position behind the first `count` items that were added. */
static size_t behind(const struct adds *adds, size_t count)
{
    size_t i = 0;
    for (; count > 0; i++)
        count -= adds->answers[i / 32] >> (i % 32) & 1;
    return i;
}

/* In the order in which it took place: the items before a layer, the layer, the items behind it. */
static void replicate_adds(struct adds *adds, bool as_it_came)
{
    size_t from = 0;
    if (as_it_came && adds->ngrowths == 0 && adds->added == adds->n) {
        effect_verbatim(adds->call);
        return;
    }
    for (size_t i = 0; i < adds->ngrowths; i++) {
        size_t to = behind(adds, adds->growths[i].before);
        effect_added(adds->call, adds->first, adds->answers, from, to - from);
        effect_grown(adds->call, adds->growths[i].layer, &adds->growths[i].shape);
        from = to;
    }
    effect_added(adds->call, adds->first, adds->answers, from, adds->answered - from);
}

static void tell(struct adds *adds, bool as_it_came)
{
    const struct bloom_filter *filter = value_filter(adds->call->value);
    if (adds->added == 0 && adds->ngrowths == 0)
        return;
    replicate_adds(adds, as_it_came);
    effect_changed(adds->call, NULL);
    for (size_t i = 0; i < adds->ngrowths; i++)
        effect_event(adds->call, "bloom.grow");
    if (bloom_filter_params(filter)->expansion == 0 && adds->added > 0 &&
        adds->ordinal == bloom_filter_capacity(filter))
        effect_event(adds->call, "bloom.full");
}

/* Not all of it is zeroed: the text of an error is longer than all else. */
static void start_adds(struct adds *adds, struct call *call, size_t first, uint32_t *answers)
{
    adds->call = call;
    adds->first = first;
    adds->n = (size_t)call->argc - first;
    adds->answers = answers;
    adds->added = adds->ordinal = 0;
    adds->growths = NULL;
    adds->ngrowths = adds->room = 0;
    adds->obeys = false;
    adds->answered = 0;
    adds->err.text[0] = '\0';
}

/* Adds the words from `first` on to the filter of the call, replies, and tells. `as_it_came`: the command says the same
 * to a replica, if all of its items were added. */
static void add_words(struct call *call, size_t first, bool as_it_came)
{
    uint32_t few[STACK_WORDS];
    struct adds adds;
    start_adds(&adds, call, first, few);
    if (adds.n > STACK_WORDS * 32) {
        adds.answers = malloc((adds.n + 31) / 32 * sizeof(*adds.answers));
        if (!adds.answers) {
            engine.ReplyWithError(call->ctx, "ERR out of memory");
            return;
        }
    }
    add_all(&adds);
    tell(&adds, as_it_came);
    reply_adds(&adds, true);
    free(adds.growths);
    if (adds.answers != few)
        free(adds.answers);
}

/* The filter of a call, created with the settings if there is none: an add of a primary finds it, because its creation
 * was replicated before. */
static bool open_for_add(struct call *call)
{
    if (!call_open(call, CALL_WRITE))
        return false;
    if (call->value)
        return true;
    if (!settings.auto_create && !call_must_obey(call)) {
        engine.ReplyWithError(call->ctx, BF_NOT_FOUND);
        return false;
    }
    struct bloom_params params = call_defaults(call).params;
    return create_filter(call, &params, 0);
}

/* BF.ADD: hashed once, without the stages of a batch, which cost as much as the add. */
static void add_word(struct call *call, const struct single *single)
{
    struct bloom_filter *filter = value_filter(call->value);
    struct bloom_hash hash = single_hash(single, call);
    uint32_t answer;
    struct adds adds;
    start_adds(&adds, call, 2, &answer);
    struct bloom_journal journal = {&journal_ops, &adds, call->value->id};
    do
        adds.refused = bloom_filter_add_journaled(filter, hash, &journal, &adds.err);
    while (adds.refused == BLOOM_NO_ROOM && lift_limits(&adds));
    answer = adds.refused == BLOOM_ADDED;
    adds.answered = adds.refused == BLOOM_ADDED || adds.refused == BLOOM_PRESENT;
    tell(&adds, true);
    reply_adds(&adds, false);
    free(adds.growths);
}

HANDLER(cmd_bf_add)
{
    struct call call = {ctx, argv, argc, "bf.add", NULL, NULL};
    if (argc != 3)
        return engine.WrongArity(ctx);
    struct single single = single_begin(&call);
    if (open_for_add(&call))
        add_word(&call, &single);
    call_close(&call);
    return ENGINE_OK;
}

HANDLER(cmd_bf_madd)
{
    struct call call = {ctx, argv, argc, "bf.madd", NULL, NULL};
    if (argc < 3)
        return engine.WrongArity(ctx);
    if (open_for_add(&call))
        add_words(&call, 2, true);
    call_close(&call);
    return ENGINE_OK;
}

static bool open_for_insert(struct call *call, const struct bf_insert *insert)
{
    if (!call_open(call, CALL_WRITE))
        return false;
    if (call->value)
        return true;
    if (insert->no_create || (!insert->sized && !settings.auto_create && !call_must_obey(call))) {
        engine.ReplyWithError(call->ctx, BF_NOT_FOUND);
        return false;
    }
    return create_filter(call, &insert->params, insert->expires_ms);
}

HANDLER(cmd_bf_insert)
{
    struct call call = {ctx, argv, argc, "bf.insert", NULL, NULL};
    struct bf_args args = call_args(&call);
    struct bf_defaults defaults = call_defaults(&call);
    struct bf_insert insert;
    struct errbuf error;
    if (argc < 4)
        return engine.WrongArity(ctx);
    if (!bf_read_insert(&args, &defaults, &insert, &error)) {
        engine.ReplyWithError(ctx, error.text);
        return ENGINE_OK;
    }
    if (open_for_insert(&call, &insert))
        add_words(&call, insert.first_item, false);
    call_close(&call);
    return ENGINE_OK;
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

static void reply_batch(struct call *call, const struct bloom_batch *batch, size_t n)
{
    uint32_t present = bloom_batch_query(batch, value_filter(call->value));
    uint64_t hits = (uint64_t)__builtin_popcount(present);
    call->value->usage.hits += hits;
    call->value->usage.misses += n - hits;
    for (size_t i = 0; i < n; i++)
        call_bool(call, present >> i & 1);
}

static void query_all(struct call *call, size_t first, size_t count)
{
    struct bloom_batch batches[2];
    start_batch(&batches[0], call, first, batch_at(0, count));
    for (size_t done = 0, i = 0; done < count; i++) {
        size_t n = batch_at(done, count), next = done + n;
        if (next < count)
            start_batch(&batches[(i + 1) % 2], call, first + next, batch_at(next, count));
        reply_batch(call, &batches[i % 2], n);
        done = next;
    }
}

static void query_one(struct call *call, const struct single *single)
{
    bool present = bloom_filter_query(value_filter(call->value), single_hash(single, call));
    call->value->usage.hits += present;
    call->value->usage.misses += !present;
    call_bool(call, present);
}

static void query_words(struct call *call, size_t first, bool array, enum bf_missing missing)
{
    size_t n = (size_t)call->argc - first;
    struct single single;
    if (!array)
        single = single_begin(call);
    if (call_open(call, CALL_READ)) {
        if (!call->value) {
            reply_missing(call, n, array, missing);
        } else if (!array) {
            query_one(call, &single);
        } else {
            engine.ReplyWithArray(call->ctx, (long)n);
            query_all(call, first, n);
        }
    }
    call_close(call);
}

HANDLER(cmd_bf_exists)
{
    struct call call = {ctx, argv, argc, "bf.exists", NULL, NULL};
    if (argc != 3)
        return engine.WrongArity(ctx);
    query_words(&call, 2, false, settings_missing());
    return ENGINE_OK;
}

HANDLER(cmd_bf_mexists)
{
    struct call call = {ctx, argv, argc, "bf.mexists", NULL, NULL};
    if (argc < 3)
        return engine.WrongArity(ctx);
    query_words(&call, 2, true, settings_missing());
    return ENGINE_OK;
}

HANDLER(cmd_bf_query)
{
    struct call call = {ctx, argv, argc, "bf.query", NULL, NULL};
    struct bf_args args = call_args(&call);
    struct bf_query query;
    struct errbuf error;
    if (argc < 4)
        return engine.WrongArity(ctx);
    if (!bf_read_query(&args, &query, &error))
        engine.ReplyWithError(ctx, error.text);
    else
        query_words(&call, query.first_item, true, query.missing);
    return ENGINE_OK;
}
