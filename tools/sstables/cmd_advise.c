/* bloomery advise: what the filters of tables cost, in memory and in useless disk reads, and which have faults.
 *
 * A read of a key asks the filter of each SSTable of the table in whose range the key is. `useless` is the expected
 * number of filters that answer "maybe" for an absent key, and so of useless disk reads: the sum of the rates, each
 * times the share of the keys in this range. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "bloom_size.h"
#include "filterdb.h"
#include "alloc.h"
#include "log_text.h"
#include "output.h"
#include "sstable_files.h"
#include "table.h"

#define COMMAND    "advise"
#define SAMPLE     64   /* first keys of an SSTable */
#define QUERIES    2000 /* samples of a table that all its filters are asked for */
#define MUCH_RATE  2.0  /* times the rate or size asked for */
#define MUCH_BYTES 1.5
#define FOR_NONE   0.1 /* the rate of a filter where the table asks for none */

struct counted_sstable {
    uint64_t keys, bytes; /* keys: estimated from the bits, or counted where there is no filter */
    double rate;          /* 1 without a filter */
    double share;         /* of the table's keys: those between its first and last one; 1 where these are unknown */
    char *filter;         /* owned; NULL: there is none */
    bool has_range;       /* to `last`: the keys are in the order of their tokens */
    int64_t last;
    unsigned nsampled;
    struct bloom_hash sampled[SAMPLE];
};

struct counted_table {
    char *directory, *keyspace, *name; /* owned */
    struct counted_sstable **sstables; /* owned */
    size_t n, size;
    uint64_t unread;  /* further SSTables, which could not be read */
    double requested; /* bloom_filter_fp_chance of the newest SSTable; 0: unknown */
    int64_t requested_at;
    double copies; /* SSTables that a key is in, on average; 0: unknown */

    /* the sums */
    uint64_t keys, bytes, missing, overfull, oversized;
    double useless, overlap; /* overlap: SSTables in whose range a key is, on average */
};

struct advise {
    struct counted_table *tables;
    size_t n, size;
    int status;
};

static bool no_memory(struct advise *advise)
{
    advise->status = tool_failed(COMMAND, "%s", strerror(ENOMEM));
    return false;
}

/* ---- one SSTable ---- */

static void count_key(void *ctx, const struct sstable_key *key)
{
    (void)key;
    ++*(uint64_t *)ctx;
}

static void take_hash(void *ctx, const struct sstable_key *key)
{
    struct counted_sstable *sstable = ctx;
    sstable->sampled[sstable->nsampled++] = key->hash;
}

/* 0; or another number, with the reason. */
static int look_at_filter(const struct table *files, struct counted_sstable *sstable, struct errbuf *err)
{
    struct filter_file file;
    struct bloom_state state;
    TRY(filter_file_open(&file, fsops_posix(), files->filter, NULL, err));
    int rc = filter_file_state(&file, NULL, NULL, &state);
    sstable->bytes = filterdb_bytes(file.shape.nwords);
    filter_file_close(&file);
    if (rc != 0)
        return errbuf_fail(err, rc, "%s", fs_error_text(rc));
    sstable->rate = state.rate;
    sstable->keys = (uint64_t)llround(state.estimated_items);
    if (state.bits_set < state.bits)
        return 0;
    sstable->keys = 0; /* full bits do not show the number */
    return table_each_key(files, 0, count_key, &sstable->keys, "counting keys", err);
}

/* The first keys, and the range. Without them there is no estimate of copies and overlap; the rest is complete. */
static void take_sample(const struct table *files, struct counted_sstable *sstable)
{
    struct bloom_hash last;
    struct errbuf ignored;
    if (table_each_key(files, SAMPLE, take_hash, sstable, NULL, &ignored) != 0)
        sstable->nsampled = 0;
    sstable->has_range = sstable->nsampled > 0 && table_last_key(files, &last) == 0;
    if (!sstable->has_range)
        return;
    sstable->last = sstable_key_token(last);
    for (unsigned i = 0; i < sstable->nsampled; i++) {
        int64_t next = i + 1 < sstable->nsampled ? sstable_key_token(sstable->sampled[i + 1]) : sstable->last;
        sstable->has_range &= sstable_key_token(sstable->sampled[i]) <= next;
    }
}

static void take_requested_rate(struct counted_table *table, const struct table *files)
{
    char path[TABLE_PATH];
    struct stat st;
    struct statistics_validation validation;
    if (!table_component(files, "Statistics.db", path) || stat(path, &st) != 0 || !S_ISREG(st.st_mode) ||
        statistics_db_validation(fsops_posix(), path, &validation) != 0 ||
        (table->requested > 0 && st.st_mtime < table->requested_at))
        return;
    table->requested = validation.rate;
    table->requested_at = st.st_mtime;
}

/* ---- tables ---- */

/* The table of the file's directory, added if it is new. NULL: no memory. */
static struct counted_table *table_for(struct advise *advise, const struct table *files)
{
    const char *slash = strrchr(files->path, '/');
    struct slice directory = {slash ? files->path : ".", slash ? (size_t)(slash - files->path) : 1};
    struct slice name = files->name.table, keyspace = files->name.keyspace;
    if (name.len == 0) { /* the path has no table: use the directory */
        const char *last = memrchr(directory.ptr, '/', directory.len);
        name.ptr = last ? last + 1 : directory.ptr;
        name.len = directory.len - (size_t)(name.ptr - directory.ptr);
    }
    for (size_t i = advise->n; i-- > 0;) { /* a walk comes by directories: it is nearly always the last one */
        if (slice_equal(slice_of(advise->tables[i].directory), directory) &&
            slice_equal(slice_of(advise->tables[i].name), name))
            return &advise->tables[i];
    }
    if (GROW(advise->tables, advise->n, advise->size) != 0)
        return NULL;
    struct counted_table *table = &advise->tables[advise->n++];
    *table = (struct counted_table){.directory = strndup(directory.ptr, directory.len),
                                    .keyspace = strndup(keyspace.ptr ? keyspace.ptr : "", keyspace.len),
                                    .name = strndup(name.ptr, name.len)};
    return table->directory && table->keyspace && table->name ? table : NULL;
}

static void sstable_free(struct counted_sstable *sstable)
{
    if (sstable)
        free(sstable->filter);
    free(sstable);
}

static void on_sstable(void *ctx, const struct found_sstable *found)
{
    struct advise *advise = ctx;
    struct errbuf err = {{0}};
    struct table files;
    struct stat st;
    if (table_of(&files, found->shown, &err) != 0) {
        advise->status = tool_failed(COMMAND, "%s: %s", found->shown, err.text);
        return;
    }
    struct counted_sstable *sstable = calloc(1, sizeof(*sstable));
    if (!sstable || (found->filter && !(sstable->filter = strdup(found->filter)))) {
        sstable_free(sstable);
        no_memory(advise);
        return;
    }
    sstable->rate = sstable->share = 1;
    int rc = found->filter ? look_at_filter(&files, sstable, &err)
                           : table_each_key(&files, 0, count_key, &sstable->keys, "counting keys", &err);
    bool gone = rc != 0 && stat(found->shown, &st) != 0 && errno == ENOENT; /* the walk visits its replacement, too */
    struct counted_table *table = gone ? NULL : table_for(advise, &files);
    if (table)
        take_requested_rate(table, &files);
    if (rc == 0 && table && GROW(table->sstables, table->n, table->size) == 0) {
        if (sstable->filter)
            take_sample(&files, sstable);
        table->sstables[table->n++] = sstable;
        return;
    }
    sstable_free(sstable);
    if (rc != 0 && table) {
        table->unread++;
        advise->status = tool_failed(COMMAND, "%s: %s", found->filter ? found->filter : found->shown, err.text);
    } else if (!gone) {
        no_memory(advise);
    }
}

static void on_error(void *ctx, const char *path, const char *reason)
{
    ((struct advise *)ctx)->status = tool_failed(COMMAND, "%s: %s", path, reason);
}

/* ---- copies of keys ---- */

/* Asks each filter for keys of the other SSTables. What chance finds is taken off. */
static void estimate_copies(struct counted_table *table)
{
    size_t n = table->n, step = n > QUERIES ? n / QUERIES : 1;
    unsigned each = n >= QUERIES ? 1 : (unsigned)(QUERIES / n);
    double keys = 0, found = 0;
    for (size_t i = 0; i < n; i += step)
        keys += table->sstables[i]->nsampled < each ? table->sstables[i]->nsampled : each;
    for (size_t of = 0; of < n; of++) {
        struct filter_file file;
        struct errbuf ignored;
        double rate = table->sstables[of]->rate;
        if (rate > 0.99 || !table->sstables[of]->filter ||
            filter_file_open(&file, fsops_posix(), table->sstables[of]->filter, NULL, &ignored) != 0)
            continue;
        for (size_t i = 0; i < n; i += step) {
            const struct counted_sstable *other = table->sstables[i];
            for (unsigned key = 0; i != of && key < each && key < other->nsampled; key++)
                found += ((filter_file_query(&file, other->sampled[key]) > 0) - rate) / (1 - rate);
        }
        filter_file_close(&file);
    }
    if (keys > 0)
        table->copies = 1 + fmax(0, found / keys);
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
    while (from < n) {
        size_t middle = from + (n - from) / 2;
        if (tokens[middle] < token)
            from = middle + 1;
        else
            n = middle;
    }
    return from;
}

/* The share of the sampled keys that is in the range of each SSTable. Without memory it stays 1. */
static void estimate_shares(struct counted_table *table)
{
    int64_t *tokens = malloc(table->n * SAMPLE * sizeof(*tokens));
    size_t n = 0;
    for (size_t i = 0; tokens && i < table->n; i++)
        for (unsigned key = 0; key < table->sstables[i]->nsampled; key++)
            tokens[n++] = sstable_key_token(table->sstables[i]->sampled[key]);
    if (n > 0)
        qsort(tokens, n, sizeof(*tokens), compare_tokens);
    for (size_t i = 0; i < table->n && n > 0; i++) {
        struct counted_sstable *one = table->sstables[i];
        if (one->has_range)
            one->share = (double)(below(tokens, n, one->last < INT64_MAX ? one->last + 1 : INT64_MAX) -
                                  below(tokens, n, sstable_key_token(one->sampled[0]))) /
                         (double)n;
    }
    free(tokens);
}

/* ---- sums and faults ---- */

static bool asks(const struct counted_table *table)
{
    return table->requested > 0 && table->requested < 1;
}

static void add_up(struct counted_table *table)
{
    for (size_t i = 0; i < table->n; i++) {
        const struct counted_sstable *sstable = table->sstables[i];
        struct bloom_size size;
        table->keys += sstable->keys;
        table->bytes += sstable->bytes;
        table->useless += sstable->share * sstable->rate;
        table->overlap += sstable->share;
        table->missing += !sstable->filter;
        if (!sstable->filter || !asks(table) ||
            bloom_size_cassandra(sstable->keys, table->requested, &size) != BLOOM_SIZE_OK)
            continue;
        double right = bloom_size_rate(sstable->keys, size.k, 64 * size.nwords);
        if (sstable->rate > MUCH_RATE * table->requested && sstable->rate > MUCH_RATE * right)
            table->overfull++;
        else if ((double)sstable->bytes > MUCH_BYTES * (double)filterdb_bytes(size.nwords))
            table->oversized++;
    }
}

/* ---- output ---- */

static void print_table(const struct counted_table *table, int width)
{
    char name[256], requested[16] = "-", copies[16] = "-";
    snprintf(name, sizeof(name), "%.120s%s%.120s", table->keyspace, table->keyspace[0] ? "." : "", table->name);
    if (table->requested > 0)
        snprintf(requested, sizeof(requested), "%.3g", table->requested);
    if (table->copies > 0)
        snprintf(copies, sizeof(copies), "%.1f", table->copies);
    tool_print_result(name, strlen(name));
    printf("%*s %8zu %12" PRIu64 " %10s %8.1f %8s %8.2g %7.1f %7s\n", width - (int)strlen(name), "", table->n,
           table->keys, log_bytes(table->bytes).text, table->keys ? 8 * (double)table->bytes / (double)table->keys : 0,
           requested, table->useless, table->overlap, copies);
}

static void print_faults(const struct counted_table *table)
{
    const struct {
        uint64_t n;
        const char *what;
    } faults[] = {{table->unread, "SSTables that could not be read"},
                  {table->missing, "SSTables without a filter"},
                  {table->overfull, "filters with more than twice the requested rate"},
                  {table->oversized, "filters with more than 1.5 times the bytes that the requested rate needs"}};
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
        if (!faults[i].n)
            continue;
        tool_print_result(table->directory, strlen(table->directory));
        printf(": %s: %" PRIu64 "\n", faults[i].what, faults[i].n);
    }
    if (table->missing + table->overfull + table->oversized == 0)
        return;
    printf("   bloomery rebuild --error %.3g '", asks(table) ? table->requested : FOR_NONE);
    tool_print_result(table->directory, strlen(table->directory));
    printf("'/*-Data.db\n");
}

static void print_lines(const struct advise *advise)
{
    int width = 5;
    for (size_t i = 0; i < advise->n; i++) {
        int len = (int)(strlen(advise->tables[i].keyspace) + strlen(advise->tables[i].name)) + 1;
        width = len > width ? len : width;
    }
    printf("%-*s %8s %12s %10s %8s %8s %8s %7s %7s\n", width, "table", "sstables", "keys", "filters", "bits/key",
           "asked", "useless", "overlap", "copies");
    for (size_t i = 0; i < advise->n; i++)
        print_table(&advise->tables[i], width);
    for (size_t i = 0; i < advise->n; i++)
        print_faults(&advise->tables[i]);
}

static void print_json(struct buf *json, const struct counted_table *table)
{
    output_string(json, "directory", table->directory);
    output_string(json, "keyspace", table->keyspace);
    output_string(json, "table", table->name);
    JSON_COUNTS(json, {"sstables", table->n}, {"unread", table->unread}, {"keys", table->keys}, {"bytes", table->bytes},
                {"missing", table->missing}, {"overfull", table->overfull}, {"oversized", table->oversized});
    json_real(json, "asked", table->requested > 0 ? table->requested : NAN);
    json_real(json, "useless", table->useless);
    json_real(json, "overlap", table->overlap);
    json_real(json, "copies", table->copies > 0 ? table->copies : NAN);
    json_end(json, '}');
}

/* ---- the command ---- */

static void report(struct advise *advise, const struct tool_args *args)
{
    struct output out;
    for (size_t i = 0; i < advise->n; i++) {
        if (advise->tables[i].n > 0) {
            estimate_copies(&advise->tables[i]);
            estimate_shares(&advise->tables[i]);
        }
        add_up(&advise->tables[i]);
    }
    output_begin(&out, args, true);
    for (size_t i = 0; i < advise->n && out.json; i++)
        print_json(output_object(&out), &advise->tables[i]);
    if (!out.json)
        print_lines(advise);
    advise->status = output_end(&out, advise->status);
}

static int run_advise(const struct tool_args *args)
{
    const char *directory = args->positional[0];
    struct advise advise = {.status = TOOL_OK};
    const struct sstable_walk walk = {
        .on_sstable = on_sstable, .on_error = on_error, .ctx = &advise, .all = tool_option(args, "--all") != NULL};
    struct stat st;
    if (stat(directory, &st) != 0)
        return tool_failed(COMMAND, "%s: %s", directory, strerror(errno));
    if (!S_ISDIR(st.st_mode))
        return tool_failed(COMMAND, "%s: %s", directory, strerror(ENOTDIR));
    if (sstable_walk(&walk, directory) != 0)
        no_memory(&advise);
    else if (advise.n == 0)
        advise.status = tool_failed(COMMAND, "%s: no SSTable below it", directory);
    else
        report(&advise, args);
    for (size_t i = 0; i < advise.n; i++) {
        struct counted_table *table = &advise.tables[i];
        for (size_t j = 0; j < table->n; j++)
            sstable_free(table->sstables[j]);
        free(table->sstables);
        free(table->directory);
        free(table->keyspace);
        free(table->name);
    }
    free(advise.tables);
    return advise.status;
}

static const struct tool_option options[] = {
    {.name = "--all",
     .doc = "Includes SSTables that reads do not use: snapshots, backups, uploads, secondary indexes."},
    {.name = "--json",
     .doc = "An array of objects: directory, keyspace, table, sstables, unread, keys, bytes, missing, overfull, "
            "oversized, "
            "asked, useless, overlap, copies."},
    {.name = NULL},
};

const struct tool_command tool_advise_command = {
    .name = COMMAND,
    .arguments = "DIR",
    .summary = "Reports the costs and the faults of the filters of tables.",
    .text =
        "DIR is the directory of a table, of a keyspace, or a whole data directory of Cassandra or ScyllaDB. The "
        "command reads all filters, and writes nothing. For each table it prints the number of SSTables and of their "
        "keys (as their bits suggest), the memory of the filters, the rate that the table asks for "
        "(bloom_filter_fp_chance, from Statistics.db), the useless disk reads of a query for an absent key (the sum "
        "of the rates of the filters that are asked), the number of SSTables in whose range of keys a key is "
        "(overlap), and of those that have it (copies).\n\nThen it names missing, overfull and oversized filters, with "
        "the command that rebuilds them. Stop the node before a rebuild.",
    .options = options,
    .examples = "bloomery advise /var/lib/cassandra/data\n"
                "bloomery advise /var/lib/cassandra/data --json | jq '.[] | select(.overfull > 0) | .directory'",
    .run = run_advise,
};
