/* INFO: the section bf, which Redis does not have. */
#include <inttypes.h>
#include <stdio.h>

#include "bloom_keyring.h"
#include "clock.h"
#include "half_loads.h"
#include "info.h"
#include "key_file.h"
#include "residency.h"
#include "sstables.h"

typedef size_t list_keys(struct bloom_pool *pool, uint64_t *ids, size_t max);

static void info_keys(struct info *info, const char *field, list_keys *list)
{
    uint64_t ids[KEY_FILE_KEYS];
    char text[KEY_FILE_KEYS * 17 + 1] = ""; /* 16 digits and a comma */
    size_t n = list(info->server->pool, ids, KEY_FILE_KEYS);

    for (size_t i = 0; i < n; i++)
        snprintf(text + i * 17, sizeof(text) - i * 17, "%016" PRIx64 "%s", ids[i], i + 1 < n ? "," : "");
    info_line(info, "%s:%s", field, text);
}

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
    info_line(info, "bf_counted_ms_ago:%" PRId64, clock_ms() - totals->counted_ms);
    info_line(info, "bf_items_added:%" PRIu64, stats_get(&stats->items_added));
    info_line(info, "bf_items_present:%" PRIu64, stats_get(&stats->items_present));
    info_line(info, "bf_adds_refused_full:%" PRIu64, stats_get(&stats->adds_full));
    info_line(info, "bf_adds_refused_memory:%" PRIu64, stats_get(&stats->adds_no_room));
    info_line(info, "bf_query_hits:%" PRIu64, stats_get(&stats->query_hits));
    info_line(info, "bf_query_misses:%" PRIu64, stats_get(&stats->query_misses));
    info_line(info, "bf_false_positives:%" PRIu64, wrong);
    info_line(info, "bf_observed_error_rate:%.6g", wrong == 0 ? 0 : (double)wrong / (double)(wrong + misses));
    info_line(info, "bf_loads_under_way:%zu", half_loads_count(info->server->clients.half_loads));
    info_line(info, "bf_grown:%" PRIu64, bloom_pool_growths(info->server->pool) - info->server->stats.grown_base);
    struct residency_info residency;
    residency_info(info->server, &residency);
    /* Removed filters are among the evicted ones until they are freed. */
    uint64_t names = registry_count(info->server->registry);
    info_line(info, "bf_resident_filters:%" PRIu64, names - (residency.evicted < names ? residency.evicted : names));
    info_line(info, "bf_away_filters:%" PRIu64, residency.evicted);
    info_line(info, "bf_away_bytes:%" PRIu64, residency.evicted_bytes);
    info_line(info, "bf_evictions:%" PRIu64, residency.evictions);
    info_line(info, "bf_reloads:%" PRIu64, residency.reloads);
    info_line(info, "bf_reload_bytes:%" PRIu64, residency.reload_bytes);
    info_line(info, "bf_reloads_failed:%" PRIu64, residency.failed);
    info_line(info, "bf_reloads_waiting:%" PRIu64, residency.waiting);
    info_line(info, "bf_maybe_answers:%" PRIu64, stats_get(&stats->maybe_answers));
    info_line(info, "bf_read_only:%d", server_config(info->server)->data.read_only);
    info_keys(info, "bf_used_keys", bloom_keyring_used);
    info_keys(info, "bf_missing_keys", bloom_keyring_missing); /* KEYED filters of these answer errors */
    if (info->server->sstables) {
        struct sstables_numbers numbers;
        sstables_numbers(info->server->sstables, &numbers);
        info_line(info, "sstable_scanning:%d", numbers.scanning);
        info_line(info, "sstable_directories:%zu", numbers.directories);
        info_line(info, "sstable_dirs_unreachable:%zu", numbers.unreachable);
        info_line(info, "sstable_filters:%zu", numbers.filters);
        info_line(info, "sstable_filters_read:%zu", numbers.read);
        info_line(info, "sstable_filters_broken:%zu", numbers.broken);
        info_line(info, "sstable_bytes:%" PRIu64, numbers.bytes);
        info_line(info, "sstable_bytes_read:%" PRIu64, numbers.read_bytes);
        info_line(info, "sstable_filters_evicted:%" PRIu64, numbers.evicted);
        info_line(info, "sstable_scans:%" PRIu64, numbers.scans);
    }
    info_line(info, "bf_changes:%" PRIu64, stats_get(&stats->changes));
}
