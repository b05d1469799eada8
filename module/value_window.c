#include "value_window.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bloom_window_follow.h"
#include "effects.h"
#include "settings.h"

/* ---- the clock ---- */

static int64_t ahead_us; /* of the time since the machine's boot */

static int64_t read_us(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static int64_t clock_us(void)
{
    return read_us(CLOCK_BOOTTIME) + ahead_us;
}

void window_clock_init(struct bloom_pool *pool)
{
    ahead_us = read_us(CLOCK_REALTIME) - read_us(CLOCK_BOOTTIME);
    bloom_pool_set_clock(pool, clock_us);
}

int64_t window_unix_us(int64_t started_us)
{
    return read_us(CLOCK_REALTIME) - (clock_us() - started_us);
}

bool window_is_synced(void)
{
    return engine.GetContextFlags(NULL) & ENGINE_CTX_SYNCING;
}

/* ---- memory ---- */

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
    errbuf_set(err, "the parts of the window would need %llu bytes, the limit for one filter is %llu",
               (unsigned long long)bytes, (unsigned long long)limit);
    return false;
}

/* ---- emptying ---- */

/* Windows with dropped layers, which are emptied piece by piece between commands. The engine may free values in a
 * thread of its own. */
static struct {
    pthread_mutex_t mutex;
    struct value **values;
    size_t n, room;
    bool timed; /* empty_piece() will be called */
} dropped = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* A piece of 2 MB takes some tenths of a millisecond. */
static void empty_piece(struct engine_ctx *ctx, void *data)
{
    (void)data;
    pthread_mutex_lock(&dropped.mutex);
    if (dropped.n > 0 && !bloom_window_clean_piece(value_filter(dropped.values[dropped.n - 1])))
        dropped.n--;
    bool more = dropped.timed = dropped.n > 0;
    pthread_mutex_unlock(&dropped.mutex);
    if (more)
        engine.CreateTimer(ctx, 1, empty_piece, NULL);
}

/* The place of the value; dropped.n: it is not there. */
static size_t place_of(const struct value *value)
{
    size_t i = 0;
    while (i < dropped.n && dropped.values[i] != value)
        i++;
    return i;
}

/* Without memory for the list the next turn empties the layer. */
static void empty_later(struct engine_ctx *ctx, struct value *value)
{
    pthread_mutex_lock(&dropped.mutex);
    if (dropped.n == dropped.room) {
        struct value **larger = realloc(dropped.values, (dropped.room * 2 + 4) * sizeof(struct value *));
        if (larger) {
            dropped.values = larger;
            dropped.room = dropped.room * 2 + 4;
        }
    }
    if (place_of(value) == dropped.n && dropped.n < dropped.room)
        dropped.values[dropped.n++] = value;
    bool begins = !dropped.timed && dropped.n > 0;
    dropped.timed |= begins;
    pthread_mutex_unlock(&dropped.mutex);
    if (begins)
        engine.CreateTimer(ctx, 1, empty_piece, NULL);
}

void window_freed(struct value *value)
{
    pthread_mutex_lock(&dropped.mutex);
    size_t i = place_of(value);
    if (i < dropped.n)
        dropped.values[i] = dropped.values[--dropped.n];
    pthread_mutex_unlock(&dropped.mutex);
}

static void drop(struct call *call, uint64_t below)
{
    bloom_window_drop(value_filter(call->value), below);
    effect_dropped(call, below);
    empty_later(call->ctx, call->value);
}

void window_drop(struct call *call)
{
    struct bloom_filter *filter = value_filter(call->value);
    uint64_t below = bloom_window_droppable(filter);
    if (below == 0)
        return;
    drop(call, below);
}

/* ---- what a primary says ---- */

static bool read_number(const struct call *call, size_t i, uint64_t *out)
{
    int64_t number;
    if (!slice_to_int64(call_arg(call, i), &number) || number < 0)
        return false;
    *out = (uint64_t)number;
    return true;
}

/* When a part began, by the clock of this node: an engine that reads its own log is told by the time of day, whatever
 * has happened to it since the log was written; a replica has just been told. */
static int64_t started_here(const struct bloom_filter *filter, uint64_t number, uint64_t unix_us)
{
    int64_t now = bloom_window_now_us(filter), started;
    if (bloom_window_part_started(filter, number, &started)) /* it goes on in another layer */
        return started;
    if (!(engine.GetContextFlags(NULL) & ENGINE_CTX_LOADING))
        return now;
    int64_t since = read_us(CLOCK_REALTIME) - (int64_t)unix_us;
    return since > 0 && since < now ? now - since : since > 0 ? 0 : now;
}

bool window_apply_turn(struct call *call, const struct bloom_shape *shape, struct errbuf *err)
{
    struct bloom_filter *filter = value_filter(call->value);
    uint64_t layer, number, unix_us;
    if (call->argc != 7 || !read_number(call, 3, &layer) || !read_number(call, 4, &number) ||
        !read_number(call, 5, &unix_us) || layer >= BLOOM_MAX_LAYERS || number == 0) {
        errbuf_set(err, "it takes TURN layer number unix-us header");
        return false;
    }
    if (!bloom_filter_forgets(filter)) {
        errbuf_set(err, "the filter is not a window");
        return false;
    }
    const struct bloom_turn turn = {.number = number, .started_us = started_here(filter, number, unix_us)};
    if (!bloom_turn_valid(&turn)) {
        errbuf_set(err, "the turn is not one that a window can have");
        return false;
    }
    if (bloom_window_replay(filter, (unsigned)layer, shape, &turn, err) != 0)
        return false;
    effect_turned(call, (unsigned)layer, shape, &turn);
    effect_changed(call, NULL);
    return true;
}

bool window_apply_drop(struct call *call, struct errbuf *err)
{
    uint64_t below;
    if (call->argc != 4 || !read_number(call, 3, &below)) {
        errbuf_set(err, "it takes DROP number");
        return false;
    }
    if (!bloom_filter_forgets(value_filter(call->value))) {
        errbuf_set(err, "the filter is not a window");
        return false;
    }
    drop(call, below);
    effect_changed(call, NULL);
    return true;
}

/* ---- copies ---- */

void window_copy(struct bloom_filter *to, const struct bloom_filter *from, bool loading)
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
