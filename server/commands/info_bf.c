/* INFO: the section bf, which Redis does not have, and the walk that it needs. */
#include <inttypes.h>

#include "bf_totals.h"
#include "bloom_filter.h"
#include "bloom_size.h"
#include "half_loads.h"
#include "info.h"
#include "rcu.h"

#define WALK_STEP        1000 /* filters looked at before removed ones may be freed */
#define TOTALS_MIN_MS    2000
#define TOTALS_PER_WALK  50   /* the walk takes 2 % of a core at most */

/* ---- the walk -------------------------------------------------------------------------------------------------------- */

static void add_filter(void *ctx, struct slice name, struct entry *entry)
{
    struct bf_totals *totals = ctx;
    const struct bloom_filter *filter = entry_filter(entry);
    double absent = 1; /* probability that no layer says "present" for an item never added */
    uint64_t items = 0, capacity = 0;

    (void)name;
    if (filter == NULL)
        return;
    unsigned nlayers = bloom_filter_nlayers(filter);
    for (unsigned i = 0; i < nlayers; i++) {
        struct bloom_layer_view layer;
        bloom_filter_layer(filter, i, &layer);
        absent *= 1 - bloom_size_rate(layer.items, layer.shape.k, layer.shape.nwords * 64);
        items += layer.items;
        capacity += layer.capacity;
    }
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
    int64_t started_ms = server_now_ms();
    uint64_t cursor = 0;

    *totals = (struct bf_totals){.filters = 0};
    do {
        cursor = registry_scan(server->registry, cursor, WALK_STEP, add_filter, totals);
        rcu_reader_offline();
        rcu_reader_online();
    } while (cursor != 0);
    if (totals->filters > 0)
        totals->rate_mean /= (double)totals->filters;
    totals->counted_ms = server_now_ms();
    totals->walk_ms = totals->counted_ms - started_ms;
}

static bool fresh(const struct bf_totals *totals)
{
    int64_t age_ms = server_now_ms() - totals->counted_ms;

    return totals->counted_ms != 0 && (age_ms < totals->walk_ms * TOTALS_PER_WALK || age_ms < TOTALS_MIN_MS) &&
           totals->walk_ms > 0;
}

/* Who comes while a walk is under way waits for it, offline, and shares the result. */
void server_bf_totals(struct server *server, struct bf_totals *totals_out)
{
    rcu_reader_offline();
    pthread_mutex_lock(&server->bf_totals_lock);
    rcu_reader_online();
    if (!fresh(&server->bf_totals))
        walk(server, &server->bf_totals);
    *totals_out = server->bf_totals;
    pthread_mutex_unlock(&server->bf_totals_lock);
}

/* ---- the section ----------------------------------------------------------------------------------------------------- */

void info_bf(struct info *info)
{
    const struct bf_totals *totals = &info->totals;
    const struct stats *stats = &info->stats;
    uint64_t bytes = bloom_pool_bytes(info->server->pool);
    uint64_t wrong = stats_get(&stats->false_positives), misses = stats_get(&stats->query_misses);

    info_line(info, "bf_filters:%zu", registry_count(info->server->registry));
    info_line(info, "bf_quarantined_filters:%zu", registry_quarantined(info->server->registry));
    info_line(info, "bf_bytes:%" PRIu64, bytes);
    info_line(info, "bf_bits:%" PRIu64, bytes * 8);
    info_line(info, "bf_layers:%" PRIu64, totals->layers);
    info_line(info, "bf_items:%" PRIu64, totals->items);
    info_line(info, "bf_capacity:%" PRIu64, totals->capacity);
    info_line(info, "bf_full_filters:%" PRIu64, totals->full);
    info_line(info, "bf_predicted_error_rate:%.6g", totals->rate_mean);
    info_line(info, "bf_predicted_error_rate_max:%.6g", totals->rate_max);
    info_line(info, "bf_counted_ms_ago:%" PRId64, server_now_ms() - totals->counted_ms);
    info_line(info, "bf_items_added:%" PRIu64, stats_get(&stats->items_added));
    info_line(info, "bf_items_present:%" PRIu64, stats_get(&stats->items_present));
    info_line(info, "bf_adds_refused_full:%" PRIu64, stats_get(&stats->adds_full));
    info_line(info, "bf_adds_refused_memory:%" PRIu64, stats_get(&stats->adds_no_room));
    info_line(info, "bf_query_hits:%" PRIu64, stats_get(&stats->query_hits));
    info_line(info, "bf_query_misses:%" PRIu64, stats_get(&stats->query_misses));
    info_line(info, "bf_false_positives:%" PRIu64, wrong);
    info_line(info, "bf_observed_error_rate:%.6g", wrong == 0 ? 0 : (double)wrong / (double)(wrong + misses));
    info_line(info, "bf_loads_under_way:%zu", half_loads_count(info->server->half_loads));
    info_line(info, "bf_grown:%" PRIu64, bloom_pool_grown(info->server->pool) - info->server->grown_base);
    info_line(info, "bf_changes:%" PRIu64, stats_get(&stats->changes));
}
