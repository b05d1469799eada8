#include "metrics_choice.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bloom_filter.h"
#include "clock.h"
#include "glob_match.h"
#include "murmur3.h"
#include "rcu.h"
#include "registry_key.h"
#include "server.h"
#include "sstables.h"

#define FRESH_PER_PASS 50 /* a pass takes at most 2 % of a core */

struct metrics_patterns {
    int n;
    struct glob globs[CONFIG_MAX_PATTERNS];
};

static uint64_t hash_settings(const struct config *config)
{
    return murmur3_hash(config->metrics.filters, strlen(config->metrics.filters)).h1 ^
           (uint64_t)config->metrics.top_filters;
}

bool metrics_choice_is_fresh(const struct metrics_choice *choice, struct server *server)
{
    rcu_reader_online();
    uint64_t settings = hash_settings(server_config(server));
    rcu_reader_offline();
    return choice->counted_ms != 0 && choice->settings == settings &&
           clock_ms() - choice->counted_ms < choice->busy_ms * FRESH_PER_PASS;
}

static int compare_ids(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void end_pass(struct metrics_choice *choice)
{
    free(choice->patterns);
    free(choice->ids);
    choice->patterns = NULL;
    choice->ids = NULL;
}

int metrics_choice_begin(struct metrics_choice *choice, struct server *server)
{
    struct slice patterns[CONFIG_MAX_PATTERNS];
    metrics_choice_deinit(choice);
    choice->patterns = calloc(1, sizeof(*choice->patterns));
    rcu_reader_online();
    const struct config *config = server_config(server);
    size_t top = (size_t)config->metrics.top_filters;
    choice->settings = hash_settings(config);
    int n = config_patterns(config->metrics.filters, patterns);
    choice->ids = calloc(top ? top : 1, sizeof(*choice->ids));
    for (int i = 0; choice->patterns && i < n; i++)
        glob_compile(&choice->patterns->globs[choice->patterns->n++], patterns[i], false);
    rcu_reader_offline();
    if (!choice->patterns || !choice->ids) {
        end_pass(choice);
        return -ENOMEM;
    }
    if (top > 0)
        choice->nids = counters_most_queried(server->stats.counters, choice->ids, top);
    qsort(choice->ids, choice->nids, sizeof(*choice->ids), compare_ids);
    return 0;
}

static bool is_wanted(const struct metrics_choice *choice, struct slice name, uint64_t id)
{
    if (bsearch(&id, choice->ids, choice->nids, sizeof(id), compare_ids))
        return true;
    for (int i = 0; i < choice->patterns->n; i++)
        if (glob_test(&choice->patterns->globs[i], name))
            return true;
    return false;
}

static bool has_room(struct metrics_choice *choice, size_t bytes)
{
    size_t need = choice->names_len + bytes, size = choice->names_size ? choice->names_size : 4096;
    if (choice->count == METRICS_FILTERS_MAX || need > METRICS_NAMES_MAX_BYTES)
        return false;
    if (need <= choice->names_size)
        return true;
    while (size < need)
        size *= 2;
    char *names = realloc(choice->names, size);
    if (!names)
        return false;
    choice->names = names;
    choice->names_size = size;
    return true;
}

static void keep(struct metrics_choice *choice, struct slice name)
{
    uint16_t len = (uint16_t)name.len;
    if (!has_room(choice, sizeof(len) + name.len)) {
        choice->omitted++;
        return;
    }
    memcpy(choice->names + choice->names_len, &len, sizeof(len));
    if (len > 0)
        memcpy(choice->names + choice->names_len + sizeof(len), name.ptr, len);
    choice->names_len += sizeof(len) + len;
    choice->count++;
}

void metrics_choice_visit(void *ctx, struct slice name, struct entry *entry)
{
    struct metrics_choice *choice = ctx;
    const struct bloom_filter *filter = entry->id < SSTABLES_FIRST_ID ? entry_shape(entry) : NULL;
    if (filter) {
        uint64_t items = bloom_filter_items(filter), capacity = bloom_filter_capacity(filter);
        choice->items += items;
        choice->capacity += capacity;
        choice->layers += bloom_filter_nlayers(filter);
        choice->full += bloom_filter_params(filter)->expansion == 0 && items >= capacity;
    }
    if (is_wanted(choice, key_name(name), entry->id))
        keep(choice, name);
}

void metrics_choice_end(struct metrics_choice *choice, uint64_t busy_ns)
{
    end_pass(choice);
    choice->counted_ms = clock_ms();
    choice->busy_ms = (int64_t)(busy_ns / 1000000);
}

bool metrics_choice_name(const struct metrics_choice *choice, size_t *at, struct slice *name_out)
{
    uint16_t len;
    if (*at == choice->names_len)
        return false;
    memcpy(&len, choice->names + *at, sizeof(len));
    *name_out = (struct slice){choice->names + *at + sizeof(len), len};
    *at += sizeof(len) + len;
    return true;
}

void metrics_choice_deinit(struct metrics_choice *choice)
{
    end_pass(choice);
    free(choice->names);
    *choice = (struct metrics_choice){0};
}
