#include "value.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "alloc.h"
#include "bloom_keyring.h"
#include "bloom_merge.h"
#include "clock.h"
#include "cuckoo.h"
#include "lock.h"
#include "memory.h"
#include "settings.h"

_Static_assert(sizeof(struct value) % 8 == 0, "the filter lies behind it, aligned to 8");

static struct bloom_pool *pool;
static uint64_t last_id, process_seed;
static int64_t ahead_us; /* of the clock of windows, to the time since the machine's boot */

static int64_t now_us(void)
{
    return clock_boot_us() + ahead_us;
}

struct value value_husk;

struct bloom_pool *values_pool(void)
{
    return pool;
}

uint64_t value_dump_identity(const struct value *value)
{
    return process_seed + value->id * BLOOM_MAX_LAYERS * 2;
}

/* ---- life ---- */

struct value *value_create(struct bloom_class *class, bool limited, int *status_out, struct errbuf *err)
{
    if (limited && !memory_allowed(bloom_class_bytes(class), bloom_class_bytes(class), err)) {
        *status_out = BLOOM_LIMIT;
        return NULL;
    }
    struct value *value = memory_zeroed(sizeof(*value) + bloom_filter_bytes(class));
    if (!value) {
        *status_out = -1;
        return errbuf_fail(err, NULL, "out of memory");
    }
    *status_out = bloom_filter_init(value_filter(value), class, err);
    if (*status_out != 0) {
        memory_release(value);
        return NULL;
    }
    value->id = ++last_id;
    value->usage.since_s = (int64_t)time(NULL);
    return value;
}

struct value *value_create_shaped(const struct bloom_params *params, const struct bloom_shape *shapes, unsigned nlayers,
                                  bool limited, int *status_out, struct errbuf *err)
{
    struct bloom_class *class;
    uint64_t bytes = 0;
    for (unsigned i = 0; i < nlayers; i++)
        bytes += shapes[i].nwords * 8;
    if (limited && !memory_allowed(bytes, bytes, err)) {
        *status_out = BLOOM_LIMIT;
        return NULL;
    }
    *status_out = bloom_class_get(pool, params, &shapes[0], &class, err);
    if (*status_out != 0)
        return NULL;
    struct value *value = value_create(class, false, status_out, err);
    bloom_class_release(class);
    for (unsigned i = 1; value && i < nlayers; i++) {
        *status_out = bloom_filter_append_layer(value_filter(value), &shapes[i], err);
        if (*status_out == 0)
            continue;
        value_free(value);
        value = NULL;
    }
    return value;
}

struct value *value_begin_load(struct bf_load *load, bool limited, int *status_out, struct errbuf *err)
{
    const struct dump_plan *plan = bf_load_plan(load);
    struct value *value = value_create_shaped(&plan->params, plan->shapes, plan->nlayers, limited, status_out, err);
    if (value)
        value->load = load;
    else
        bf_load_end(load);
    return value;
}

void value_end_load(struct value *value)
{
    bf_load_end(value->load);
    value->load = NULL;
}

void value_free(void *at)
{
    struct value *value = at;
    if (!value || value == &value_husk)
        return;
    if (bloom_filter_forgets(value_filter(value)))
        window_freed(value_filter(value));
    bloom_filter_deinit(value_filter(value));
    bf_load_end(value->load);
    memory_release(value);
}

bool value_is_blank(const struct value *value)
{
    return !value->load && bloom_filter_is_blank(value_filter(value));
}

static struct value *copy_cuckoo(const struct bloom_filter *filter)
{
    struct errbuf err = {""};
    int status;
    struct value *copy = value_create(bloom_filter_class_of(filter), false, &status, &err);
    if (!copy || cuckoo_take(value_filter(copy), filter, &err) == 0)
        return copy;
    value_free(copy);
    return NULL;
}

/* Copies the turns, bits and counts of all layers into an empty window of the same layers. Layers of a filter that is
 * being loaded (`loading`) have no turns yet. */
static void copy_window(struct bloom_filter *to, const struct bloom_filter *from, bool loading)
{
    for (unsigned i = 0; i < bloom_filter_nlayers(from); i++) {
        struct bloom_layer_view source, target;
        bloom_filter_layer(from, i, &source);
        bloom_filter_layer(to, i, &target);
        if (source.turn == 0 && !loading) /* unused: it may not be empty yet */
            continue;
        memcpy((void *)target.words, (const void *)source.words, (size_t)source.shape.nwords * 8);
        bloom_filter_set_items(to, i, bloom_layer_placed(&source));
        const struct bloom_turn turn = {.number = source.turn, .started_us = source.started_us};
        bloom_window_set_turn(to, i, &turn);
    }
}

struct value *value_copy(const struct value *value)
{
    const struct bloom_filter *filter = value_filter(value);
    struct bloom_union counts = {{0}, {0}};
    struct errbuf err = {""};
    struct dump_plan plan;
    int status;
    if (bloom_params_is_cuckoo(bloom_filter_params(filter)))
        return copy_cuckoo(filter);
    dump_plan_of(filter, bloom_filter_nlayers(filter), &plan);
    struct value *copy = value_create_shaped(&plan.params, plan.shapes, plan.nlayers, false, &status, &err);
    if (!copy)
        return NULL;
    if (bloom_filter_forgets(filter))
        copy_window(value_filter(copy), filter, value->load != NULL);
    else
        bloom_filter_or(value_filter(copy), filter, plan.nlayers, &counts);
    for (unsigned i = 0; i < plan.nlayers && !bloom_filter_forgets(filter); i++)
        bloom_filter_set_items(value_filter(copy), i, counts.most[i]);
    if (!value->load || (copy->load = bf_load_copy(value->load)))
        return copy;
    value_free(copy);
    return NULL;
}

size_t value_memory(const struct value *value)
{
    if (value == &value_husk)
        return 0;
    return sizeof(*value) + bloom_filter_memory(value_filter(value)) + (value->load ? bf_load_memory(value->load) : 0);
}

bool value_key_is_new(const struct value *value, struct errbuf *text_out)
{
    static uint64_t reported_key;
    uint64_t key = bloom_filter_missing_key(value_filter(value));
    char text[BF_KEY_TEXT];
    if (key == 0 || key == reported_key)
        return false;
    reported_key = key;
    errbuf_set(text_out,
               "bf-key-file lacks the key %s of some filters: they are kept and replicated, but cannot be queried here",
               bf_key_text(key, text));
    return true;
}

bool values_init(struct errbuf *err)
{
    if (!pool && bloom_pool_create_in(&engine_memory, &pool) != 0) { /* there is one after a load that failed */
        return errbuf_fail(err, false, "out of memory");
    }
    ahead_us = clock_unix_us() - clock_boot_us(); /* Unix time now, and monotonic from then on */
    bloom_pool_set_clock(pool, now_us);
    process_seed = bf_random();
    return true;
}

/* ---- windows ---- */

int64_t window_unix_us(int64_t started_us)
{
    return clock_unix_us() - (now_us() - started_us);
}

bool window_is_synced(void)
{
    return engine.GetContextFlags(NULL) & ENGINE_CTX_SYNCING;
}

bool window_fits(const struct bloom_filter *filter, struct errbuf *err)
{
    const struct bloom_params *params = bloom_filter_params(filter);
    uint64_t limit = (uint64_t)settings.max_filter_bytes;
    struct bloom_layer_view view;
    bloom_filter_layer(filter, 0, &view);
    uint64_t part = view.shape.nwords * 8;
    uint64_t bytes = part * (params->window_parts + (part > BLOOM_WINDOW_SMALL_BYTES ? 3u : 2u));
    if (limit == 0 || bytes <= limit)
        return true;
    return errbuf_fail(err, false, "the parts of the window would need %llu bytes, the limit for one filter is %llu",
                       (unsigned long long)bytes, (unsigned long long)limit);
}

/* Windows with dropped layers, emptied piecewise between commands. The engine may free filters in its own thread. */
static struct {
    struct lock lock;
    struct bloom_filter **filters;
    size_t n, room;
    bool timed; /* empty_piece() will be called */
} dropped = {.lock = LOCK_INITIALIZER(RANK_EMPTYING)};

/* A piece of 2 MB takes some tenths of a millisecond. */
static void empty_piece(struct engine_ctx *ctx, void *data)
{
    (void)data;
    lock_take(&dropped.lock);
    if (dropped.n > 0 && !bloom_window_clean_piece(dropped.filters[dropped.n - 1]))
        dropped.n--;
    bool more = dropped.timed = dropped.n > 0;
    lock_give(&dropped.lock);
    if (more)
        engine.CreateTimer(ctx, 1, empty_piece, NULL);
}

/* The place of the window; dropped.n: it is missing. */
static size_t place_of(const struct bloom_filter *filter)
{
    size_t i = 0;
    while (i < dropped.n && dropped.filters[i] != filter)
        i++;
    return i;
}

/* Without memory for the list the next turn empties the layer. */
void window_empty_later(struct engine_ctx *ctx, struct bloom_filter *filter)
{
    lock_take(&dropped.lock);
    if (GROW(dropped.filters, dropped.n, dropped.room) == 0 && place_of(filter) == dropped.n)
        dropped.filters[dropped.n++] = filter;
    bool begins = !dropped.timed && dropped.n > 0;
    dropped.timed |= begins;
    lock_give(&dropped.lock);
    if (begins)
        engine.CreateTimer(ctx, 1, empty_piece, NULL);
}

void window_freed(const struct bloom_filter *filter)
{
    lock_take(&dropped.lock);
    size_t i = place_of(filter);
    if (i < dropped.n)
        dropped.filters[i] = dropped.filters[--dropped.n];
    lock_give(&dropped.lock);
}

int64_t window_started_here(const struct bloom_filter *filter, uint64_t number, uint64_t unix_us)
{
    int64_t now = bloom_window_now_us(filter), started;
    if (bloom_window_part_started(filter, number, &started)) /* it continues in another layer */
        return started;
    if (!(engine.GetContextFlags(NULL) & ENGINE_CTX_LOADING))
        return now;
    int64_t since = clock_unix_us() - (int64_t)unix_us;
    return since > 0 && since < now ? now - since : since > 0 ? 0 : now;
}
