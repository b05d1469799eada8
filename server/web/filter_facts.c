#include "filter_facts.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "acl_check.h"
#include "bloom_filter.h"
#include "bloom_layout.h"
#include "bloom_window.h"
#include "command.h"
#include "murmur.h"
#include "registry_key.h"
#include "server.h"
#include "sstables.h"
#include "slice.h"

#define HASH_DIGITS      16
#define SAMPLE_WORDS     8192 /* of a filter: of 2^19 bits the share that is set is right to 0.1 % */
#define SAMPLE_WORDS_MIN 64   /* of each layer, where there are very many */

uint64_t filter_facts_sample(unsigned nlayers)
{
    uint64_t words = SAMPLE_WORDS / (nlayers ? nlayers : 1);
    return words < SAMPLE_WORDS_MIN ? SAMPLE_WORDS_MIN : words;
}

bool filter_facts_allowed(const struct registry *registry, const struct acl_user *user, struct slice key,
                          struct entry *entry)
{
    if (user->unrestricted)
        return true;
    const char *command = entry && entry_is_cuckoo(entry) ? "cf.info" : "bf.info";
    return acl_may_read(user, (size_t)command_find(slice_of(command)), registry_number(registry, key_database(key)),
                        key_name(key));
}

void filter_facts_count(struct entry *entry, bool with_rate, struct filter_facts *facts_out)
{
    const struct bloom_filter *filter = entry_shape(entry);
    double log_absent = 0;
    /* Field by field: the name is large, and most filters of a pass are only counted. */
    facts_out->evicted = false;
    facts_out->kind = (struct filter_kind){.layout = ""};
    facts_out->items = facts_out->capacity = facts_out->bytes = 0;
    facts_out->layers = 0;
    facts_out->requested_rate = facts_out->rate = 0;
    facts_out->oldest_s = NAN;
    facts_out->sstable = entry->id >= SSTABLES_FIRST_ID;
    facts_out->unread = facts_out->sstable && sstables_is_unread(entry);
    facts_out->quarantined = !filter && !facts_out->unread;
    if (!filter)
        return;
    if (bloom_filter_forgets(filter)) { /* parts that are over have been forgotten */
        struct bloom_window_state state;
        bloom_window_state(filter, &state);
        facts_out->oldest_s = state.parts ? (double)(bloom_window_now_us(filter) - state.oldest_us) / 1e6 : NAN;
    }
    facts_out->layers = bloom_filter_nlayers(filter);
    for (unsigned i = 0; i < facts_out->layers; i++) {
        struct bloom_layer_view layer;
        bloom_filter_layer(filter, i, &layer);
        facts_out->kind.layout = bloom_variant_name(layer.shape.variant);
        facts_out->items += layer.items;
        facts_out->capacity += layer.capacity;
        facts_out->bytes += layer.shape.nwords * 8;
        if (with_rate)
            log_absent += log1p(-bloom_shape_rate(&layer.shape, layer.items));
    }
    if (bloom_filter_forgets(filter))
        facts_out->capacity = bloom_filter_capacity(filter);
    facts_out->kind.cuckoo = bloom_params_is_cuckoo(bloom_filter_params(filter));
    facts_out->kind.window = bloom_params_is_window(bloom_filter_params(filter));
    facts_out->kind.key = bloom_filter_params(filter)->key;
    facts_out->kind.fixed = bloom_filter_params(filter)->expansion == 0;
    facts_out->requested_rate = bloom_filter_params(filter)->error_rate;
    facts_out->rate = 0 - expm1(log_absent);
}

struct entry *filter_facts_find(const struct server *server, struct slice key)
{
    struct entry *entry = registry_lookup(server->registry, key);
    return entry ? entry : sstables_find(server->sstables, key);
}

void filter_facts(const struct server *server, struct slice key, struct entry *entry, struct filter_facts *facts_out)
{
    const struct registry *registry = server->registry;
    *facts_out = (struct filter_facts){0};
    filter_facts_count(entry, true, facts_out);
    if (!facts_out->sstable)
        (void)registry_find_expiry(registry, key, &facts_out->expires_ms);
    facts_out->db = registry_number(registry, key_database(key));
    name_text(key_name(key), &facts_out->name);
}

void filter_facts_measure(struct server *server, struct entry *entry, struct filter_facts *facts)
{
    const struct bloom_filter *filter = entry_filter(entry);
    counters_usage(server->stats.counters, entry->id, &facts->usage);
    facts->evicted = !filter && entry_shape(entry);
    if (!filter)
        return;
    struct bloom_state state;
    bloom_filter_state_sampled(filter, filter_facts_sample(facts->layers), &state);
    facts->bits_set = state.fill_ratio;
    facts->measured_rate = state.rate;
}

bool filter_facts_observed(const struct filter_facts *facts, double *rate_out)
{
    const struct usage_counts *usage = &facts->usage;
    if (usage->wrong == 0 || facts->items == 0) /* an empty filter has never answered "present" */
        return false;
    *rate_out = (double)usage->wrong / ((double)usage->wrong + (double)usage->misses);
    return true;
}

/* ---- names as text ---- */

/* C0, DEL and C1. */
static bool is_control(const char *at, size_t len)
{
    unsigned char first = (unsigned char)at[0];
    return len == 1 ? first < 0x20 || first == 0x7f : len == 2 && first == 0xc2 && (unsigned char)at[1] < 0xa0;
}

static bool ends_in_hash(struct slice name)
{
    if (name.len <= HASH_DIGITS || name.ptr[name.len - HASH_DIGITS - 1] != '~')
        return false;
    for (size_t i = name.len - HASH_DIGITS; i < name.len; i++)
        if (!strchr("0123456789abcdef", name.ptr[i]) || name.ptr[i] == '\0')
            return false;
    return true;
}

void name_text(struct slice name, struct name_text *text_out)
{
    size_t used = 0, at = 0;
    bool exact = !ends_in_hash(name);
    while (at < name.len && at < NAME_TEXT_MAX) {
        size_t len = utf8_char(name.ptr + at, name.len - at);
        if (at + len > NAME_TEXT_MAX)
            break;
        if (len > 0 && !is_control(name.ptr + at, len)) {
            memcpy(text_out->text + used, name.ptr + at, len);
            used += len;
            at += len;
            continue;
        }
        used += (size_t)snprintf(text_out->text + used, 5, "\\x%02x", (unsigned char)name.ptr[at++]);
        exact = false;
    }
    if (!exact || at < name.len)
        used += (size_t)snprintf(text_out->text + used, HASH_DIGITS + 2, "~%016" PRIx64,
                                 murmur3_hash(name.ptr, name.len).h1);
    text_out->len = used;
}
