#include "advice_collect.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "filter_file.h"
#include "filterdb.h"
#include "grow.h"
#include "sstable_walk.h"
#include "statistics_db.h"
#include "table.h"

#define SAMPLE  64   /* first keys of an SSTable */
#define QUERIES 2000 /* samples of a table that all its filters are asked for */

/* The first keys of an SSTable, the last one, and its filter. */
struct sampled {
    size_t table, sstable; /* of the advice */
    char *filter;
    double rate;
    bool has_range; /* to `last`: the keys are in the order of their tokens, which are of Murmur3 */
    int64_t last;
    unsigned n;
    struct bloom_hash hashes[SAMPLE];
};

struct collect {
    struct advice *advice;
    void (*on_error)(void *ctx, const char *path, const char *reason);
    void *ctx;
    struct sampled **sampled;
    size_t n, size;
    bool no_memory;
};

/* ---- one SSTable ---- */

static void take_hash(void *ctx, const struct sstable_key *key)
{
    struct sampled *sampled = ctx;
    sampled->hashes[sampled->n++] = key->hash;
}

/* Where a key may be: between the first one and the last one. */
static void take_range(struct sampled *sampled, const struct table *files)
{
    struct bloom_hash last;
    sampled->has_range = sampled->n > 0 && table_last_key(files, &last) == 0;
    if (sampled->has_range)
        sampled->last = sstable_key_token(last);
    for (unsigned i = 0; sampled->has_range && i < sampled->n; i++)
        sampled->has_range = sstable_key_token(sampled->hashes[i]) <=
                             (i + 1 < sampled->n ? sstable_key_token(sampled->hashes[i + 1]) : sampled->last);
}

/* Without the keys there is no estimate of copies and ranges; the rest is complete. */
static void take_sample(struct collect *collect, const struct table *files, const struct advice_table *table,
                        double rate)
{
    struct errbuf ignored;
    if (GROW(collect->sampled, collect->n, collect->size) != 0) {
        collect->no_memory = true;
        return;
    }
    struct sampled *sampled = calloc(1, sizeof(*sampled));
    if (sampled) {
        sampled->table = (size_t)(table - collect->advice->tables);
        sampled->sstable = table->n - 1;
        sampled->rate = rate;
        sampled->filter = strdup(files->filter);
        table_each_key(files, SAMPLE, take_hash, sampled, NULL, &ignored);
        take_range(sampled, files);
        collect->sampled[collect->n++] = sampled;
    }
    collect->no_memory |= !sampled || !sampled->filter;
}

static int level_of(const struct table *files)
{
    char path[TABLE_PATH];
    unsigned level;
    bool old = !sstable_has_trie(&files->name) && files->name.version.len && files->name.version.ptr[0] < 'm';
    return table_component(files, "Statistics.db", path) && statistics_db_level(fsops_posix(), path, old, &level) == 0
               ? (int)level
               : -1;
}

static void take_requested_rate(struct advice_table *table, const struct table *files)
{
    char path[TABLE_PATH];
    struct stat st;
    struct statistics_validation validation;
    if (sstable_sibling(files->path, &files->name, "Statistics.db", path, sizeof(path)) >= sizeof(path) ||
        stat(path, &st) != 0 || !S_ISREG(st.st_mode) || statistics_db_validation(fsops_posix(), path, &validation) != 0)
        return;
    if (table->requested > 0 && st.st_mtime < table->requested_at)
        return;
    table->requested = validation.rate;
    table->requested_at = st.st_mtime;
}

static void count_key(void *ctx, const struct sstable_key *key)
{
    (void)key;
    ++*(uint64_t *)ctx;
}

/* 0; or another number, with the reason. */
static int look_at_filter(const struct table *files, struct advice_sstable *sstable, struct errbuf *err)
{
    struct filter_file file;
    struct bloom_state state;
    int rc = filter_file_open(&file, fsops_posix(), files->filter, NULL, err);
    if (rc != 0)
        return rc;
    rc = filter_file_state(&file, NULL, NULL, &state);
    sstable->filter = true;
    sstable->bytes = filterdb_bytes(file.shape.nwords);
    filter_file_close(&file);
    if (rc != 0) {
        errbuf_set(err, "%s", strerror(-rc));
        return rc;
    }
    sstable->rate = state.rate;
    sstable->keys = (uint64_t)llround(state.estimated_items);
    if (state.bits_set < state.bits)
        return 0;
    sstable->keys = 0; /* full bits do not show the number */
    return table_each_key(files, 0, count_key, &sstable->keys, "counting keys", err);
}

static struct advice_table *table_in_advice(struct collect *collect, const struct table *files)
{
    const struct sstable_name *name = &files->name;
    const char *slash = strrchr(files->path, '/'), *directory = slash ? files->path : ".";
    size_t len = slash ? (size_t)(slash - files->path) : 1;
    struct sstable_part of = name->table;
    if (of.len == 0) { /* the path has no table: use the directory */
        of = (struct sstable_part){directory, len};
        for (size_t i = len; i-- > 0;) {
            if (directory[i] == '/') {
                of = (struct sstable_part){directory + i + 1, len - i - 1};
                break;
            }
        }
    }
    return advice_table(collect->advice, directory, len, name->keyspace.ptr ? name->keyspace.ptr : "",
                        name->keyspace.len, of.ptr, of.len);
}

static void on_sstable(void *ctx, const struct found_sstable *found)
{
    struct collect *collect = ctx;
    struct advice_sstable sstable = {.rate = 1, .share = 1};
    struct errbuf err = {{0}};
    struct table files;
    struct stat st;
    if (table_of(&files, found->shown, &err) != 0) {
        collect->on_error(collect->ctx, found->shown, err.text);
        return;
    }
    int rc = found->filter ? look_at_filter(&files, &sstable, &err)
                           : table_each_key(&files, 0, count_key, &sstable.keys, "counting keys", &err);
    if (rc != 0 && stat(found->shown, &st) != 0 && errno == ENOENT)
        return; /* it has been compacted: the walk visits its replacement, too */
    struct advice_table *table = table_in_advice(collect, &files);
    if (!table) {
        collect->no_memory = true;
        return;
    }
    take_requested_rate(table, &files);
    if (rc != 0) {
        table->unread++;
        collect->on_error(collect->ctx, found->filter ? found->filter : found->shown, err.text);
        return;
    }
    sstable.level = level_of(&files);
    collect->no_memory |= !advice_add(table, &sstable);
    if (sstable.filter && !collect->no_memory)
        take_sample(collect, &files, table, sstable.rate);
}

/* ---- copies of keys ---- */

struct queries {
    uint64_t keys;
    double found; /* in other SSTables, without those that chance finds */
};

/* Asks the filter for keys of the others in sampled[0..n-1]. */
static void ask(struct sampled *const *sampled, size_t n, size_t of, size_t step, unsigned each,
                struct queries *queries)
{
    struct filter_file file;
    struct errbuf ignored;
    double rate = sampled[of]->rate;
    if (rate > 0.99 || filter_file_open(&file, fsops_posix(), sampled[of]->filter, NULL, &ignored) != 0)
        return;
    for (size_t i = 0; i < n; i += step) {
        for (unsigned key = 0; i != of && key < each && key < sampled[i]->n; key++) {
            int may_have = filter_file_query(&file, sampled[i]->hashes[key]);
            queries->found += ((may_have > 0) - rate) / (1 - rate);
        }
    }
    filter_file_close(&file);
}

static void estimate_copies(struct advice_table *table, struct sampled *const *sampled, size_t n)
{
    struct queries queries = {0, 0};
    size_t step = n > QUERIES ? n / QUERIES : 1;
    unsigned each = n >= QUERIES ? 1 : (unsigned)(QUERIES / n);
    for (size_t i = 0; i < n; i += step)
        queries.keys += sampled[i]->n < each ? sampled[i]->n : each;
    for (size_t i = 0; i < n; i++)
        ask(sampled, n, i, step, each, &queries);
    if (queries.keys)
        table->copies = 1 + fmax(0, queries.found / (double)queries.keys);
}

/* ---- ranges ---- */

static int compare_tokens(const void *a, const void *b)
{
    int64_t one = *(const int64_t *)a, other = *(const int64_t *)b;
    return (one > other) - (one < other);
}

/* How many of the sorted tokens are below this one. */
static size_t below(const int64_t *tokens, size_t n, int64_t token)
{
    size_t from = 0;
    while (n > 0) {
        size_t half = n / 2;
        bool right = tokens[from + half] < token;
        from += right ? half + 1 : 0;
        n = right ? n - half - 1 : half;
    }
    return from;
}

/* The share of the sampled keys that is in the range of each SSTable. False: no memory. */
static bool estimate_shares(struct advice_table *table, struct sampled *const *sampled, size_t n)
{
    int64_t *tokens = malloc(n * SAMPLE * sizeof(*tokens));
    size_t ntokens = 0;
    if (!tokens)
        return false;
    for (size_t i = 0; i < n; i++) {
        for (unsigned key = 0; key < sampled[i]->n; key++)
            tokens[ntokens++] = sstable_key_token(sampled[i]->hashes[key]);
    }
    qsort(tokens, ntokens, sizeof(*tokens), compare_tokens);
    for (size_t i = 0; i < n; i++) {
        const struct sampled *one = sampled[i];
        if (!one->has_range)
            continue;
        size_t from = below(tokens, ntokens, sstable_key_token(one->hashes[0]));
        size_t to = one->last == INT64_MAX ? ntokens : below(tokens, ntokens, one->last + 1);
        table->sstables[one->sstable].share = (double)(to - from) / (double)ntokens;
    }
    free(tokens);
    return true;
}

static void on_error_of_walk(void *ctx, const char *path, const char *reason)
{
    struct collect *collect = ctx;
    collect->on_error(collect->ctx, path, reason);
}

static int compare_tables(const void *a, const void *b)
{
    const struct sampled *one = *(struct sampled *const *)a, *other = *(struct sampled *const *)b;
    return (one->table > other->table) - (one->table < other->table);
}

int advice_collect(struct advice *advice, const char *directory, bool all,
                   void (*on_error)(void *ctx, const char *path, const char *reason), void *ctx)
{
    struct collect collect = {.advice = advice, .on_error = on_error, .ctx = ctx};
    const struct sstable_walk walk = {
        .on_sstable = on_sstable, .on_error = on_error_of_walk, .ctx = &collect, .all = all};
    collect.no_memory |= sstable_walk(&walk, directory) != 0;
    if (collect.n)
        qsort(collect.sampled, collect.n, sizeof(struct sampled *), compare_tables);
    for (size_t from = 0, end; from < collect.n && !collect.no_memory; from = end) {
        size_t table = collect.sampled[from]->table;
        for (end = from; end < collect.n && collect.sampled[end]->table == table; end++)
            ;
        estimate_copies(&advice->tables[table], collect.sampled + from, end - from);
        collect.no_memory |= !estimate_shares(&advice->tables[table], collect.sampled + from, end - from);
    }
    for (size_t i = 0; i < collect.n; i++) {
        free(collect.sampled[i]->filter);
        free(collect.sampled[i]);
    }
    free(collect.sampled);
    return collect.no_memory ? -ENOMEM : 0;
}
