#include "value_window.h"

#include <stdlib.h>
#include <string.h>

#include "bloom_window_follow.h"
#include "clock.h"
#include "grow.h"
#include "settings.h"
#include "lock.h"

/* ---- the clock ---- */

static int64_t ahead_us; /* of the time since the machine's boot */

static int64_t now_us(void)
{
    return clock_boot_us() + ahead_us;
}

void window_clock_init(struct bloom_pool *pool)
{
    ahead_us = clock_unix_us() - clock_boot_us();
    bloom_pool_set_clock(pool, now_us);
}

int64_t window_unix_us(int64_t started_us)
{
    return clock_unix_us() - (now_us() - started_us);
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

/* Windows with dropped layers, which are emptied piece by piece between commands. The engine may free filters in its
 * own thread. */
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
