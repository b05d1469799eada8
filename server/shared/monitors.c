#include "monitors.h"

#include <sys/resource.h>

#include "bloom_filter.h"
#include "bloom_window.h"
#include "bloom_state.h"
#include "clock.h"
#include "memory_use.h"
#include "rcu.h"
#include "server.h"
#include "slowlog.h"

/* ---- counters ---- */

int monitors_init(struct monitors *monitors, unsigned max_workers)
{
    lock_init(&monitors->lock, RANK_MONITORS);
    int err = counters_create(&monitors->counters, max_workers);
    return err ? err : slowlog_create(&monitors->slowlog, &monitors->lock);
}

void monitors_deinit(struct monitors *monitors)
{
    counters_destroy(monitors->counters);
    slowlog_destroy(monitors->slowlog);
    lock_deinit(&monitors->lock);
}

uint64_t server_peak_bytes(struct server *server)
{
    uint64_t bytes = memory_used(server);
    uint64_t peak = atomic_load_explicit(&server->stats.peak_bytes, memory_order_relaxed);
    while (bytes > peak && !atomic_compare_exchange_weak_explicit(&server->stats.peak_bytes, &peak, bytes,
                                                                  memory_order_relaxed, memory_order_relaxed))
        ;
    return bytes > peak ? bytes : peak;
}

void server_sample(struct server *server)
{
    atomic_store_explicit(&server->memory.use_stamp, entry_stamp(clock_ms()), memory_order_relaxed);
    struct rusage usage = {0};
    getrusage(RUSAGE_THREAD, &usage);
    atomic_store(&server->process.main_user_usec, (int64_t)usage.ru_utime.tv_sec * 1000000 + usage.ru_utime.tv_usec);
    atomic_store(&server->process.main_sys_usec, (int64_t)usage.ru_stime.tv_sec * 1000000 + usage.ru_stime.tv_usec);
    server_peak_bytes(server);
    counters_sample(server->stats.counters, clock_ms());
}

/* ---- sums over all filters ---- */

#define WALK_STEP       1000 /* filters visited before removed ones may be freed */
#define TOTALS_MIN_MS   2000
#define TOTALS_PER_WALK 50 /* the walk takes at most 2 % of a core */

static void add_filter(void *ctx, struct slice name, struct entry *entry)
{
    struct bf_totals *totals = ctx;
    const struct bloom_filter *filter = entry_shape(entry);
    double absent = 1; /* probability that no layer says "present" for an item never added */
    uint64_t items = 0, capacity = 0;

    (void)name;
    if (!filter)
        return;
    if (bloom_filter_forgets(filter))
        bloom_window_forget((struct bloom_filter *)filter);
    unsigned nlayers = bloom_filter_nlayers(filter);
    for (unsigned i = 0; i < nlayers; i++) {
        struct bloom_layer_view layer;
        bloom_filter_layer(filter, i, &layer);
        absent *= 1 - bloom_shape_rate(&layer.shape, layer.items);
        items += layer.items;
        capacity += layer.capacity;
    }
    if (bloom_filter_forgets(filter))
        capacity = bloom_filter_capacity(filter); /* the ring is for more, as parts are forgotten one by one */
    totals->filters++;
    totals->layers += nlayers;
    totals->items += items;
    totals->capacity += capacity;
    totals->full += bloom_filter_params(filter)->expansion == 0 && items >= capacity;
    totals->rate_mean += 1 - absent;
    if (1 - absent > totals->rate_max)
        totals->rate_max = 1 - absent;
}

static void walk(struct server *server, struct bf_totals *totals)
{
    int64_t started_ms = clock_ms();
    uint64_t cursor = 0;

    *totals = (struct bf_totals){.filters = 0};
    do {
        cursor = registry_scan(server->registry, cursor, WALK_STEP, add_filter, totals);
        rcu_reader_offline();
        rcu_reader_online();
    } while (cursor != 0);
    if (totals->filters > 0)
        totals->rate_mean /= (double)totals->filters;
    totals->counted_ms = clock_ms();
    totals->walk_ms = totals->counted_ms - started_ms;
}

/* A caller that comes during a walk gets the totals before it. Each of the first callers makes its own walk. */
void server_bf_totals(struct server *server, struct bf_totals *totals_out)
{
    struct monitors *monitors = &server->stats;
    lock_take(&monitors->lock);
    const struct bf_totals last = monitors->totals;
    int64_t age_ms = clock_ms() - last.counted_ms;
    bool fresh = last.walk_ms > 0 && (age_ms < last.walk_ms * TOTALS_PER_WALK || age_ms < TOTALS_MIN_MS);
    bool counts = !fresh && (last.counted_ms == 0 || !monitors->counts_totals);
    monitors->counts_totals |= counts;
    lock_give(&monitors->lock);
    *totals_out = last;
    if (!counts)
        return;
    walk(server, totals_out);
    lock_take(&monitors->lock);
    monitors->totals = *totals_out;
    monitors->counts_totals = false;
    lock_give(&monitors->lock);
}
