/* Writes Prometheus's text format (0.0.4). A family is begun, then its samples follow. Labels are text for between the
 * braces. */
#include "metrics.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "acl.h"
#include "bloom_filter.h"
#include "clock.h"
#include "command.h"
#include "facts.h"
#include "filter_facts.h"
#include "fsops.h"
#include "glob_match.h"
#include "murmur.h"
#include "rcu.h"
#include "registry_key.h"
#include "server.h"
#include "slowlog.h"
#include "sstables.h"
#include "version.h"

#define FILTERS_ONLINE 50 /* filters checked before removed ones may be freed */

/* Upper ends of the buckets of durations: 250, 500 and 1000 ns, and so on, to 10 s. */
#define NS_FIRST 250
#define NS_LAST  UINT64_C(10000000000)

/* ---- the text ---- */

enum metric_type { METRIC_GAUGE, METRIC_COUNTER, METRIC_HISTOGRAM, METRIC_INFO };

struct metrics_text {
    struct buf *out;
    enum metric_type type; /* of the family that was begun last, as is its name */
    const char *name;
};

static const char *suffix(const struct metrics_text *text)
{
    return text->type == METRIC_COUNTER ? "_total" : text->type == METRIC_INFO ? "_info" : "";
}

/* `name` without the "_total" of a counter and the "_info" of an info. Both texts stay valid until the next family. */
static void metrics_family(struct metrics_text *text, enum metric_type type, const char *name, const char *help)
{
    static const char *const types[] = {"gauge", "counter", "histogram", "gauge"};
    text->type = type;
    text->name = name;
    const char *end = suffix(text);
    buf_appendf(text->out, "# HELP %s%s %s\n# TYPE %s%s %s\n", name, end, help, name, end, types[type]);
}

static void begin_sample(struct metrics_text *text, const char *end, const char *labels)
{
    buf_appendf(text->out, labels[0] ? "%s%s{%s} " : "%s%s%s ", text->name, end, labels);
}

/* A sample of the family; `labels` may be "". A value that is no number is left out. */
static void metrics_value(struct metrics_text *text, const char *labels, double value)
{
    if (!isfinite(value))
        return;
    begin_sample(text, suffix(text), labels);
    buf_appendf(text->out, "%.15g\n", value);
}

static void metrics_count(struct metrics_text *text, const char *labels, uint64_t value)
{
    begin_sample(text, suffix(text), labels);
    buf_appendf(text->out, "%" PRIu64 "\n", value);
}

/* `le` is INFINITY in the last one. */
static void metrics_bucket(struct metrics_text *text, const char *labels, double le, uint64_t count)
{
    buf_appendf(text->out, "%s_bucket{%s%sle=\"", text->name, labels, labels[0] ? "," : "");
    buf_appendf(text->out, isinf(le) ? "+Inf" : "%.12g", le);
    buf_appendf(text->out, "\"} %" PRIu64 "\n", count);
}

/* Appends `name="value"` with the value's escapes. */
static void metrics_label(struct buf *out, const char *name, struct slice value)
{
    buf_appendf(out, "%s=\"", name);
    for (size_t i = 0; i < value.len; i++) {
        char c = value.ptr[i];
        if (c == '\\' || c == '"')
            buf_append(out, "\\", 1);
        if (c == '\n')
            buf_append(out, "\\n", 2);
        else
            buf_append(out, &c, 1);
    }
    buf_append(out, "\"", 1);
}

/* ---- numbers ---- */

/* The data that the families show; counters are one snapshot. */
struct metrics {
    struct metrics_text text;
    struct server *server;
    const struct acl_user *user;
    const struct metrics_choice *choice;
    const struct web_counts *counts;
    struct filter_facts *filters;
    char **filter_labels;
    size_t nfilters;
    struct facts now;
    struct histogram histogram; /* of one command */
};

static double save_rule_seconds(const struct metrics *m)
{
    const struct config_rules *rules = &m->now.config->data.save;
    int64_t soonest = 0;
    for (size_t i = 0; i < rules->count; i++)
        if (rules->items[i].changes <= m->now.saves.changes && (soonest == 0 || rules->items[i].seconds < soonest))
            soonest = rules->items[i].seconds;
    return m->now.saves.changes ? (double)soonest : 0;
}

/* NAN: unknown. */
static double open_fds(void)
{
    DIR *dir = fs_open_dir("/proc/self/fd");
    double n = dir ? -1 /* the directory's own */ : NAN;
    for (const struct dirent *entry; dir && (entry = readdir(dir));)
        n += entry->d_name[0] != '.';
    if (dir)
        closedir(dir);
    return n;
}

/* Infinite without a limit. */
static double max_fds(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return NAN;
    return limit.rlim_cur == RLIM_INFINITY ? INFINITY : (double)limit.rlim_cur;
}

/* ---- families with labels ---- */

static void write_errors(struct metrics *m)
{
    size_t used = atomic_load_explicit(&m->now.errors.used, memory_order_relaxed);
    for (size_t i = 0; i < used; i++) {
        struct buf label;
        buf_init(&label, 256);
        metrics_label(&label, "code", slice_of(m->now.errors.rows[i].code));
        buf_append(&label, "", 1);
        if (!buf_failed(&label))
            metrics_count(&m->text, buf_head(&label), stats_get(&m->now.errors.rows[i].count));
        buf_deinit(&label);
    }
}

/* One sample for each command that was called or refused so far; there are STATS_MAX_COMMANDS at most. */
static void write_commands(struct metrics *m, const _Atomic uint64_t *counters, double unit)
{
    const struct command *row;
    for (size_t i = 0; (row = command_row(i)) != NULL; i++) {
        char label[128];
        if (stats_get(&m->now.stats.calls[i]) + stats_get(&m->now.stats.rejected[i]) == 0)
            continue;
        snprintf(label, sizeof(label), "command=\"%s\"", row->full_name);
        metrics_value(&m->text, label, (double)stats_get(&counters[i]) * unit);
    }
}

static void write_databases(struct metrics *m)
{
    for (unsigned db = 0; db < (unsigned)m->now.config->data.databases; db++) {
        char label[32];
        size_t n = registry_database_count(m->server->registry, registry_database(m->server->registry, db));
        if (n == 0)
            continue;
        snprintf(label, sizeof(label), "db=\"%u\"", db);
        metrics_value(&m->text, label, (double)n);
    }
}

/* From 1, 2.5 or 5 times a power of ten to the next of them. */
static uint64_t next_bound(uint64_t ns)
{
    uint64_t digits = ns;
    while (digits % 10 == 0)
        digits /= 10;
    return digits == 1 ? ns / 2 * 5 : ns * 2;
}

static void write_durations(struct metrics *m)
{
    const struct command *row;
    for (size_t i = 0; m->now.config->process.latency_tracking && (row = command_row(i)) != NULL; i++) {
        char label[128];
        if (stats_get(&m->now.stats.calls[i]) == 0 || !counters_histogram(m->server->stats.counters, i, &m->histogram))
            continue;
        snprintf(label, sizeof(label), "command=\"%s\"", row->full_name);
        uint64_t n = histogram_count(&m->histogram);
        for (uint64_t ns = NS_FIRST; ns <= NS_LAST; ns = next_bound(ns))
            metrics_bucket(&m->text, label, (double)ns / 1e9, histogram_count_upto(&m->histogram, ns));
        metrics_bucket(&m->text, label, INFINITY, n);
        begin_sample(&m->text, "_sum", label);
        buf_appendf(m->text.out, "%.15g\n", (double)stats_get(&m->now.stats.time_ns[i]) / 1e9);
        begin_sample(&m->text, "_count", label);
        buf_appendf(m->text.out, "%" PRIu64 "\n", n);
    }
}

/* ---- single filters ---- */

static double value(const struct filter_facts *f, double number)
{
    return f->quarantined || f->unread ? NAN : number;
}

static double from_bits(const struct filter_facts *f, double number)
{
    return f->evicted ? NAN : value(f, number);
}

static double observed(const struct filter_facts *f)
{
    double rate;
    return filter_facts_observed(f, &rate) ? rate : NAN;
}

/* The text `db="0",filter="..."`, malloc'ed; NULL without memory. */
static char *filter_label(const struct filter_facts *facts)
{
    struct buf label;
    buf_init(&label, 4 * NAME_TEXT_SIZE);
    buf_appendf(&label, "db=\"%u\",", facts->db);
    metrics_label(&label, "filter", (struct slice){facts->name.text, facts->name.len});
    buf_append(&label, "", 1);
    char *text = buf_failed(&label) ? NULL : strdup(buf_head(&label));
    buf_deinit(&label);
    return text;
}

/* The name at *at, 0 for the first, which moves on to the next; false at the end. */
static bool metrics_choice_name(const struct metrics_choice *choice, size_t *at, struct slice *name_out)
{
    uint16_t len;
    const char *names = buf_head(&choice->names);
    if (*at == buf_len(&choice->names))
        return false;
    memcpy(&len, names + *at, sizeof(len));
    *name_out = (struct slice){names + *at + sizeof(len), len};
    *at += sizeof(len) + len;
    return true;
}

/* Looks the chosen filters up. Without those that are gone, forbidden, or beyond the memory. */
static void read_filters(struct metrics *m)
{
    struct slice name;
    size_t at = 0, looked_at = 0, room = m->choice->count ? m->choice->count : 1;
    m->filters = malloc(room * sizeof(*m->filters));
    m->filter_labels = calloc(room, sizeof(*m->filter_labels));
    while (m->filters && m->filter_labels && metrics_choice_name(m->choice, &at, &name)) {
        struct filter_facts *facts = &m->filters[m->nfilters];
        if (++looked_at % FILTERS_ONLINE == 0) {
            rcu_reader_offline();
            rcu_reader_online();
        }
        struct entry *entry = filter_facts_find(m->server, name);
        if (!entry || !acl_may_read(m->user, ACL_ANY_COMMAND, registry_number(m->server->registry, key_database(name)),
                                    key_name(name)))
            continue;
        filter_facts(m->server, name, entry, facts);
        filter_facts_measure(m->server, entry, facts);
        m->filter_labels[m->nfilters] = filter_label(facts);
        m->nfilters += m->filter_labels[m->nfilters] != NULL;
    }
}

/* ---- all ---- */

static void write_facts(struct metrics *m)
{
    const struct facts *f = &m->now;
    struct metrics_text *text = &m->text;
#define METRIC(type, name, help, number)                           \
    metrics_family(text, METRIC_##type, "bloomery_" name, (help)); \
    metrics_value(text, "", (double)(number));
#define FACT(section, info, format, type, name, help, number) METRIC(type, name, help, number)
#include "facts.def"
}

static void write_families(struct metrics *m)
{
    struct metrics_text *text = &m->text;
    write_facts(m);
#define METRIC(type, name, help, number)                           \
    metrics_family(text, METRIC_##type, "bloomery_" name, (help)); \
    metrics_value(text, "", (double)(number));
#define METRIC_FAMILY(type, name, labels, help) metrics_family(text, METRIC_##type, "bloomery_" name, (help));
#define METRIC_SAMPLE(labels, number)           metrics_value(text, labels, (double)(number));
#define METRIC_SAMPLES(call)                    call;
#define METRIC_PROCESS(type, name, help, number)                  \
    metrics_family(text, METRIC_##type, "process_" name, (help)); \
    metrics_value(text, "", (number));
#define METRIC_FILTER(type, name, help, number)                    \
    metrics_family(text, METRIC_##type, "bloomery_" name, (help)); \
    for (size_t i = 0; i < m->nfilters; i++) {                     \
        const struct filter_facts *f = &m->filters[i];             \
        metrics_value(text, m->filter_labels[i], (number));        \
    }
#include "metrics.def"
}

void metrics_write(struct server *server, const struct acl_user *user, const struct metrics_choice *choice,
                   const struct web_counts *counts, struct buf *out)
{
    struct metrics *m = calloc(1, sizeof(*m)); /* large for a stack */
    if (!m) {
        out->failed = true;
        return;
    }
    m->text = (struct metrics_text){.out = out};
    m->server = server;
    m->user = user;
    m->choice = choice;
    m->counts = counts;
    rcu_reader_online();
    read_filters(m);
    rcu_reader_offline();
    rcu_reader_online();
    facts_gather(server, &m->now);
    write_families(m);
    rcu_reader_offline();
    for (size_t i = 0; i < m->nfilters; i++)
        free(m->filter_labels[i]);
    free(m->filter_labels);
    free(m->filters);
    free(m);
}

/* ---- the filters that are shown one by one ---- */

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
    buf_init(&choice->names, METRICS_NAMES_MAX_BYTES);
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
    choice->spare = top - choice->nids;
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

static void keep(struct metrics_choice *choice, struct slice name)
{
    uint16_t len = (uint16_t)name.len;
    size_t begin = buf_len(&choice->names);
    if (choice->count < METRICS_FILTERS_MAX) {
        buf_append(&choice->names, &len, sizeof(len));
        buf_append(&choice->names, name.ptr, len);
    }
    if (choice->count == METRICS_FILTERS_MAX || buf_failed(&choice->names)) {
        choice->names.failed = false;
        buf_truncate(&choice->names, begin);
        choice->omitted++;
    } else {
        choice->count++;
    }
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
    bool wanted = is_wanted(choice, key_name(name), entry->id);
    if (!wanted && filter && choice->spare > 0) {
        choice->spare--;
        wanted = true;
    }
    if (wanted)
        keep(choice, name);
}

void metrics_choice_end(struct metrics_choice *choice, uint64_t busy_ns)
{
    end_pass(choice);
    choice->counted_ms = clock_ms();
    choice->busy_ms = (int64_t)(busy_ns / 1000000);
}

void metrics_choice_deinit(struct metrics_choice *choice)
{
    end_pass(choice);
    buf_deinit(&choice->names);
    *choice = (struct metrics_choice){0};
}
