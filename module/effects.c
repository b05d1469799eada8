#include "effects.h"

#include <stdio.h>

#include "bytes.h"
#include "bf_chunks.h"
#include "cuckoo.h"
#include "settings.h"
#include "value.h"

#define HEADER_MAX 256 /* of one layer */

/* ---- replication ---- */

static void expire(struct call *call, int64_t expires_ms)
{
    struct bf_defaults now = settings_defaults();
    if (engine.SetAbsExpire)
        engine.SetAbsExpire(call->key, expires_ms);
    else
        engine.SetExpire(call->key, expires_ms > now.now_ms ? expires_ms - now.now_ms : 1);
    engine.Replicate(call->ctx, "PEXPIREAT", "sl", call->argv[1], (long long)expires_ms);
}

/* The header of a filter with these parameters and this one layer. */
static size_t write_header(const struct bloom_filter *filter, const struct bloom_shape *shape, unsigned char *out)
{
    struct dump_plan plan = {.params = *bloom_filter_params(filter), .nlayers = 1, .bytes = shape->nwords * 8};
    struct dump_place place = {.nlayers = 1};
    plan.shapes[0] = *shape;
    dump_write_chunk(&plan, filter, 0, 0, &place, out);
    return dump_chunk_bytes(&plan, 0);
}

/* For the log only: creates the filter of the call, with RedisBloom's command. */
static void log_reserve(struct call *call)
{
    const struct bloom_params *params = bloom_filter_params(value_filter(call->value));
    char rate[32], capacity[24], expansion[24];
    snprintf(rate, sizeof(rate), "%.17g", params->error_rate);
    snprintf(capacity, sizeof(capacity), "%llu", (unsigned long long)params->capacity);
    snprintf(expansion, sizeof(expansion), "%u", (unsigned)params->expansion);
    if (params->expansion)
        engine.Replicate(call->ctx, names.reserve, "scccc" ENGINE_LOG_ONLY, call->argv[1], rate, capacity, "EXPANSION",
                         expansion);
    else
        engine.Replicate(call->ctx, names.reserve, "sccc" ENGINE_LOG_ONLY, call->argv[1], rate, capacity, "NONSCALING");
}

/* Creates the filter of the call with valkey-bloom's command, as it does itself. */
static void replicate_insert(struct call *call)
{
    const struct bloom_params *params = bloom_filter_params(value_filter(call->value));
    const char *seed = (const char *)params->seed.bytes;
    char capacity[24], rate[32], tightening[32], expansion[24];
    snprintf(capacity, sizeof(capacity), "%llu", (unsigned long long)params->capacity);
    snprintf(rate, sizeof(rate), "%.17g", params->error_rate);
    snprintf(tightening, sizeof(tightening), "%.17g", params->tightening);
    snprintf(expansion, sizeof(expansion), "%u", (unsigned)params->expansion);
    if (params->expansion)
        engine.Replicate(call->ctx, names.insert, "scccccccbcc", call->argv[1], "CAPACITY", capacity, "ERROR", rate,
                         "TIGHTENING", tightening, "SEED", seed, sizeof(params->seed.bytes), "EXPANSION", expansion);
    else
        engine.Replicate(call->ctx, names.insert, "scccccccbc", call->argv[1], "CAPACITY", capacity, "ERROR", rate,
                         "TIGHTENING", tightening, "SEED", seed, sizeof(params->seed.bytes), "NONSCALING");
}

void effect_applied(struct call *call, bool made)
{
    if (value_type_of(call->value) == valkey_type) {
        if (made)
            replicate_insert(call);
        return;
    }
    if (value_type_of(call->value) != redisbloom_type) {
        engine.ReplicateVerbatim(call->ctx);
        return;
    }
    engine.Replicate(call->ctx, names.apply, "v" ENGINE_REPLICAS_ONLY, call->argv + 1, (size_t)call->argc - 1);
    if (made)
        log_reserve(call);
}

void effect_made(struct call *call, int64_t expires_ms)
{
    const struct bloom_filter *filter = value_filter(call->value);
    struct bloom_layer_view view;
    unsigned char header[HEADER_MAX];
    bloom_filter_layer(filter, 0, &view);
    size_t len = write_header(filter, &view.shape, header);
    if (value_type_of(call->value) == valkey_type)
        replicate_insert(call);
    else
        engine.Replicate(call->ctx, names.apply,
                         value_type_of(call->value) == redisbloom_type ? "scb" ENGINE_REPLICAS_ONLY : "scb",
                         call->argv[1], "MAKE", (const char *)header, len);
    if (value_type_of(call->value) == redisbloom_type)
        log_reserve(call);
    if (expires_ms)
        expire(call, expires_ms);
}

void effect_growth(struct call *call, unsigned layer, const struct bloom_shape *shape)
{
    unsigned char header[HEADER_MAX];
    if (value_type_of(call->value) == valkey_type) /* the same adds make it */
        return;
    size_t len = write_header(value_filter(call->value), shape, header);
    engine.Replicate(call->ctx, names.apply,
                     value_type_of(call->value) == redisbloom_type ? "sclb" ENGINE_REPLICAS_ONLY : "sclb",
                     call->argv[1], "LAYER", (long long)layer, (const char *)header, len);
}

void effect_turn(struct call *call, unsigned layer, const struct bloom_shape *shape, const struct bloom_turn *turn)
{
    unsigned char header[HEADER_MAX];
    size_t len = write_header(value_filter(call->value), shape, header);
    engine.Replicate(call->ctx, names.apply, "sclllb", call->argv[1], "TURN", (long long)layer, (long long)turn->number,
                     (long long)window_unix_us(turn->started_us), (const char *)header, len);
}

void effect_dropped(struct call *call, uint64_t below)
{
    struct bloom_filter *filter = value_filter(call->value);
    bloom_window_drop(filter, below);
    engine.Replicate(call->ctx, names.apply, "scl", call->argv[1], "DROP", (long long)below);
    window_empty_later(call->ctx, filter);
}

/* The hash of an item, as a word: 16 bytes, or 8 in a cuckoo filter. */
static struct engine_string *hash_word(const struct bloom_filter *filter, struct slice item)
{
    unsigned char bytes[16], *end;
    if (bloom_params_is_cuckoo(bloom_filter_params(filter))) {
        end = le64_put(bytes, cuckoo_hash_for(filter, item.ptr, item.len));
    } else {
        struct bloom_hash hash = bloom_filter_hash(filter, item.ptr, item.len);
        end = le64_put(le64_put(bytes, hash.h1), hash.h2);
    }
    return engine.CreateString(NULL, (const char *)bytes, (size_t)(end - bytes));
}

/* Sends those of n words, from the one at first + from on, whose bit is set in `chosen`, which begins at `first`: items
 * by the command `many`, with a word before them (NULL: none); of a KEYED filter their hashes by BF.APPLY, so that the
 * node that applies them needs no key. In pieces of bounded size. */
static void replicate_chosen(struct call *call, const char *many, const char *before, const char *hashed, size_t first,
                             const uint32_t *chosen, size_t from, size_t n)
{
    struct engine_string *words[64];
    bool keyed = bloom_filter_params(value_filter(call->value))->key != 0;
    size_t count = 0, most = sizeof(words) / sizeof(words[0]);
    for (size_t i = from; i < from + n; i++) {
        if (chosen[i / 32] >> (i % 32) & 1)
            words[count++] =
                keyed ? hash_word(value_filter(call->value), call_arg(call, first + i)) : call->argv[first + i];
        if (count == 0 || (count < most && i + 1 < from + n))
            continue;
        if (keyed)
            engine.Replicate(call->ctx, names.apply, "scv", call->argv[1], hashed, words, count);
        else if (before)
            engine.Replicate(call->ctx, many, "scv", call->argv[1], before, words, count);
        else
            engine.Replicate(call->ctx, many, "sv", call->argv[1], words, count);
        for (; keyed && count > 0; count--)
            engine.FreeString(NULL, words[count - 1]);
        count = 0;
    }
}

void effect_added(struct call *call, size_t first, const uint32_t *added, size_t from, size_t n)
{
    replicate_chosen(call, names.madd, NULL, "ADD", first, added, from, n);
}

/* ---- cuckoo filters ---- */

/* Whether a CF.RESERVE can create this filter. It does not have the key of a KEYED one, and the numbers that follow
 * from a rate may change with the version. It refuses a capacity that settings may have, and searches for its options
 * in the name of the key, too, as RedisBloom does. */
static bool reserve_says_it(struct slice name, const struct cuckoo_numbers *numbers)
{
    return numbers->error_rate == 0 && numbers->capacity >= 2 * (uint64_t)numbers->bucket_size &&
           !slice_is(name, "BUCKETSIZE") && !slice_is(name, "MAXITERATIONS") && !slice_is(name, "EXPANSION");
}

void effect_cuckoo_made(struct call *call, const struct cuckoo_numbers *numbers)
{
    unsigned char header[CUCKOO_HEADER_MAX];
    struct cuckoo_head head;
    char words[4][24];
    if (!reserve_says_it(call_arg(call, 1), numbers)) {
        cuckoo_head_of(value_filter(call->value), &head);
        engine.Replicate(call->ctx, names.cf_loadchunk, "slb", call->argv[1], (long long)REDISBLOOM_HEADER_ITERATOR,
                         (const char *)header, cuckoo_head_put(&head, header));
        return;
    }
    snprintf(words[0], sizeof(words[0]), "%llu", (unsigned long long)numbers->capacity);
    snprintf(words[1], sizeof(words[1]), "%u", numbers->bucket_size);
    snprintf(words[2], sizeof(words[2]), "%u", numbers->iterations);
    snprintf(words[3], sizeof(words[3]), "%u", numbers->expansion);
    engine.Replicate(call->ctx, names.cf_reserve, "sccccccc", call->argv[1], words[0], "BUCKETSIZE", words[1],
                     "MAXITERATIONS", words[2], "EXPANSION", words[3]);
}

void effect_cuckoo_deleted(struct call *call, uint64_t hash)
{
    unsigned char bytes[8];
    if (bloom_filter_params(value_filter(call->value))->key == 0) {
        engine.ReplicateVerbatim(call->ctx);
        return;
    }
    le64_put(bytes, hash);
    engine.Replicate(call->ctx, names.apply, "scb", call->argv[1], "CFDEL", (const char *)bytes, sizeof(bytes));
}

void effect_cuckoo_added(struct call *call, size_t first, const uint32_t *added, size_t n, bool as_it_came)
{
    if (as_it_came && bloom_filter_params(value_filter(call->value))->key == 0)
        engine.ReplicateVerbatim(call->ctx);
    else
        replicate_chosen(call, names.cf_insert, "ITEMS", "CFADD", first, added, 0, n);
}

static void replicate_counts(struct call *call)
{
    const struct bloom_filter *filter = value_filter(call->value);
    unsigned nlayers = bloom_filter_nlayers(filter);
    struct engine_string *counts[BLOOM_MAX_LAYERS];
    for (unsigned i = 0; i < nlayers; i++) {
        struct bloom_layer_view view;
        char text[24];
        bloom_filter_layer(filter, i, &view);
        int len = snprintf(text, sizeof(text), "%llu", (unsigned long long)bloom_layer_placed(&view));
        counts[i] = engine.CreateString(NULL, text, (size_t)len);
    }
    engine.Replicate(call->ctx, names.apply, "scv", call->argv[1], "ITEMS", counts, (size_t)nlayers);
    for (unsigned i = 0; i < nlayers; i++)
        engine.FreeString(NULL, counts[i]);
}

void effect_merged(struct call *call)
{
    engine.Replicate(call->ctx, names.merge, "v", call->argv + 1, (size_t)call->argc - 1);
    replicate_counts(call);
}

void effect_united(struct call *call, struct engine_string *const *words, size_t n)
{
    static unsigned char header[DUMP_HEADER_MAX];
    const struct bloom_filter *filter = value_filter(call->value);
    struct dump_plan plan;
    struct dump_place place = {.nlayers = bloom_filter_nlayers(filter)};
    dump_plan_of(filter, place.nlayers, &plan);
    dump_write_chunk(&plan, filter, 0, 0, &place, header);
    engine.Replicate(call->ctx, names.apply, "scbv", call->argv[1], "UNION", (const char *)header,
                     dump_chunk_bytes(&plan, 0), words, n);
    replicate_counts(call);
}

void effect_deleted(struct call *call)
{
    engine.Replicate(call->ctx, "DEL", "s", call->argv[1]);
}

/* ---- watchers and listeners ---- */

void effect_event(struct call *call, const char *event)
{
    if (engine.NotifyKeyspaceEvent)
        engine.NotifyKeyspaceEvent(call->ctx, ENGINE_NOTIFY_MODULE, event, call->argv[1]);
}

void effect_changed(struct call *call, const char *event)
{
    if (engine.SignalModifiedKey)
        engine.SignalModifiedKey(call->ctx, call->argv[1]);
    if (event)
        effect_event(call, event);
}
