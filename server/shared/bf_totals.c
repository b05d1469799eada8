#include "bf_totals.h"

#include "bloom_filter.h"
#include "bloom_window.h"
#include "bloom_size.h"
#include "clock.h"
#include "rcu.h"
#include "server.h"

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
        absent *= 1 - bloom_size_rate(layer.items, layer.shape.k, bloom_shape_bits(&layer.shape));
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

static bool fresh(const struct bf_totals *totals)
{
    int64_t age_ms = clock_ms() - totals->counted_ms;

    return totals->counted_ms != 0 && (age_ms < totals->walk_ms * TOTALS_PER_WALK || age_ms < TOTALS_MIN_MS) &&
           totals->walk_ms > 0;
}

/* A caller that comes during a walk waits for it, offline, and shares the result. */
void server_bf_totals(struct server *server, struct bf_totals *totals_out)
{
    rcu_reader_offline();
    pthread_mutex_lock(&server->totals.lock);
    rcu_reader_online();
    if (!fresh(&server->totals.last))
        walk(server, &server->totals.last);
    *totals_out = server->totals.last;
    pthread_mutex_unlock(&server->totals.lock);
}
