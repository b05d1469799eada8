/* bloomery advise: the costs of the filters of tables, and the changes that save most. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "advice.h"
#include "advice_collect.h"
#include "advice_page.h"
#include "log_text.h"
#include "new_file.h"
#include "output.h"
#include "table_stats.h"

#define COMMAND "advise"

static const double rates[] = {0.1, 0.01, 0.001};

/* ---- lines ---- */

static uint64_t keys_of(const struct advice_table *table)
{
    uint64_t keys = 0;
    for (size_t i = 0; i < table->n; i++)
        keys += table->sstables[i].keys;
    return keys;
}

static void print_tables(const struct advice *advice)
{
    int width = 5;
    char name[ADVICE_NAME];
    for (size_t i = 0; i < advice->n; i++) {
        advice_name(&advice->tables[i], name);
        width = (int)strlen(name) > width ? (int)strlen(name) : width;
    }
    printf("%-*s %8s %12s %10s %8s %8s %8s %7s %7s %10s %10s %10s\n", width, "table", "sstables", "keys", "filters",
           "bits/key", "asked", "useless", "overlap", "copies", "at 0.1", "at 0.01", "at 0.001");
    for (size_t i = 0; i < advice->n; i++) {
        const struct advice_table *table = &advice->tables[i];
        struct advice_cost now = advice_now(table);
        uint64_t keys = keys_of(table);
        size_t n;
        char requested[16] = "-", copies[16] = "-";
        advice_name(table, name);
        if (table->requested > 0)
            snprintf(requested, sizeof(requested), "%.3g", table->requested);
        if (table->copies > 0)
            snprintf(copies, sizeof(copies), "%.1f", table->copies);
        printf("%-*s %8zu %12" PRIu64 " %10s %8.1f %8s %8.2g %7.1f %7s", width, name, table->n, keys,
               log_bytes((uint64_t)now.bytes).text, keys ? 8 * now.bytes / (double)keys : 0, requested, now.reads,
               advice_overlap(table, &n), copies);
        for (int rate = 0; rate < 3; rate++)
            printf(" %10s", log_bytes((uint64_t)advice_at(table, rates[rate]).bytes).text);
        printf("\n");
    }
}

static void print_faults(const struct advice *advice)
{
    char name[ADVICE_NAME];
    for (size_t i = 0; i < advice->n; i++) {
        const struct advice_table *table = &advice->tables[i];
        struct advice_faults faults = advice_faults(table);
        advice_name(table, name);
        if (faults.missing)
            printf("%s: %s without a filter\n", name, log_count(faults.missing, "SSTable").text);
        if (faults.overfull)
            printf("%s: %s with more than twice the requested rate\n", name, log_count(faults.overfull, "filter").text);
        if (faults.oversized)
            printf("%s: %s with more than 1.5 times the bytes that the requested rate needs\n", name,
                   log_count(faults.oversized, "filter").text);
        if (table->unread)
            printf("%s: %s could not be read\n", name, log_count(table->unread, "SSTable").text);
    }
}

/* Of leveled compaction: in each level but the first the ranges are apart. */
static void print_levels(const struct advice *advice)
{
    char name[ADVICE_NAME];
    for (size_t i = 0; i < advice->n; i++) {
        const struct advice_table *table = &advice->tables[i];
        bool leveled = false;
        size_t n;
        for (size_t j = 0; j < table->n; j++)
            leveled |= table->sstables[j].level > 0;
        advice_name(table, name);
        for (int level = 0; leveled && level < ADVICE_LEVELS; level++) {
            double overlap = advice_overlap_of_level(table, level, &n);
            if (n > 0)
                printf("%s: level %d: %s, %.1f of them with a given key in their range\n", name, level,
                       log_count(n, "SSTable").text, overlap);
        }
    }
}

static void print_changes(const struct advice_change *changes, size_t n)
{
    char text[ADVICE_SENTENCE];
    if (n == 0)
        printf("No change saves a hundredth of the memory or of the useless reads.\n");
    for (size_t i = 0; i < n; i++) {
        const struct advice_change *change = &changes[i];
        advice_describe(change, text);
        printf("%zu. %s\n", i + 1, text);
        if (change->kind == ADVICE_RATE)
            printf("   ALTER TABLE %s%s%s WITH bloom_filter_fp_chance = %.3g; and then\n", change->table->keyspace,
                   change->table->keyspace[0] ? "." : "", change->table->name, change->rate);
        printf("   bloomery rebuild --error %.3g '%s'/*-Data.db\n", change->rate, change->table->directory);
    }
}

/* ---- JSON ---- */

static void json_cost(struct buf *json, const char *key, struct advice_cost cost)
{
    json_begin(json, key, '{');
    JSON_COUNTS(json, {"bytes", (uint64_t)cost.bytes});
    json_real(json, "reads", cost.reads);
    json_end(json, '}');
}

static void json_table(struct buf *json, const struct advice_table *table)
{
    struct advice_faults faults = advice_faults(table);
    size_t n;
    json_begin(json, NULL, '{');
    output_string(json, "directory", table->directory);
    output_string(json, "keyspace", table->keyspace);
    output_string(json, "table", table->name);
    JSON_COUNTS(json, {"sstables", table->n}, {"unread", table->unread}, {"keys", keys_of(table)},
                {"missing", faults.missing}, {"overfull", faults.overfull}, {"oversized", faults.oversized});
    json_real(json, "asked", table->requested > 0 ? table->requested : NAN);
    json_real(json, "copies", table->copies > 0 ? table->copies : NAN);
    json_real(json, "overlap", advice_overlap(table, &n));
    json_begin(json, "levels", '[');
    for (int level = 0; level < ADVICE_LEVELS; level++) {
        double overlap = advice_overlap_of_level(table, level, &n);
        if (n == 0)
            continue;
        json_begin(json, NULL, '{');
        JSON_COUNTS(json, {"level", (uint64_t)level}, {"sstables", n});
        json_real(json, "overlap", overlap);
        json_end(json, '}');
    }
    json_end(json, ']');
    json_cost(json, "now", advice_now(table));
    json_cost(json, "at_0.1", advice_at(table, 0.1));
    json_cost(json, "at_0.01", advice_at(table, 0.01));
    json_cost(json, "at_0.001", advice_at(table, 0.001));
    json_end(json, '}');
}

static void print_json(struct buf *json, const struct advice *advice, const struct advice_change *changes, size_t n)
{
    json_begin(json, "tables", '[');
    for (size_t i = 0; i < advice->n; i++)
        json_table(json, &advice->tables[i]);
    json_end(json, ']');
    json_begin(json, "changes", '[');
    for (size_t i = 0; i < n; i++) {
        json_begin(json, NULL, '{');
        output_string(json, "directory", changes[i].table->directory);
        json_str(json, "change", changes[i].kind == ADVICE_RATE ? "rate" : "repair");
        json_real(json, "rate", changes[i].rate);
        JSON_COUNTS(json, {"filters", changes[i].filters});
        json_real(json, "bytes_saved", changes[i].saved.bytes);
        json_real(json, "reads_saved", changes[i].saved.reads);
        json_real(json, "counted_reads_saved", changes[i].table->counted ? changes[i].disk_reads : NAN);
        json_end(json, '}');
    }
    json_end(json, ']');
    json_end(json, '}');
}

/* ---- the command ---- */

static void on_error(void *ctx, const char *path, const char *reason)
{
    *(int *)ctx = tool_failed(COMMAND, "%s: %s", path, reason);
}

static int write_page(const struct advice *advice, const struct advice_change *changes, size_t n, const char *path)
{
    struct new_file file;
    struct errbuf err = {{0}};
    int rc = new_file_open(&file, path, true, &err);
    if (rc == 0)
        rc = new_file_end(&file, advice_write_page(file.fd, advice, changes, n), &err);
    return rc == 0 ? TOOL_OK : tool_failed(COMMAND, "%s: %s", path, err.text);
}

static int print_advice(const struct advice *advice, const struct tool_args *args, int status)
{
    struct advice_change changes[ADVICE_CHANGES];
    size_t n = advice_changes(advice, changes);
    struct output out;
    struct buf *json = output_single(&out, args);
    if (json) {
        print_json(json, advice, changes, n);
    } else {
        print_tables(advice);
        print_faults(advice);
        print_levels(advice);
        print_changes(changes, n);
    }
    status = output_end(&out, status);
    if (tool_option(args, "--html")) {
        int rc = write_page(advice, changes, n, tool_option(args, "--html"));
        status = rc != TOOL_OK ? rc : status;
    }
    return status;
}

static int run(const struct tool_args *args)
{
    const char *directory = args->positional[0], *stats = tool_option(args, "--stats");
    struct advice advice = {NULL};
    struct errbuf err = {{0}};
    struct stat st;
    int status = TOOL_OK;
    if (stat(directory, &st) != 0)
        return tool_failed(COMMAND, "%s: %s", directory, strerror(errno));
    if (!S_ISDIR(st.st_mode))
        return tool_failed(COMMAND, "%s: %s", directory, strerror(ENOTDIR));
    if (advice_collect(&advice, directory, tool_option(args, "--all") != NULL, on_error, &status) != 0)
        status = tool_failed(COMMAND, "%s", strerror(ENOMEM));
    else if (advice.n == 0)
        status = tool_failed(COMMAND, "%s: no SSTable below it", directory);
    else if (stats && table_stats_read(&advice, stats, &err) != 0)
        status = tool_failed(COMMAND, "%s: %s", stats, err.text);
    else
        status = print_advice(&advice, args, status);
    advice_deinit(&advice);
    return status;
}

static const struct tool_option options[] = {
    {.name = "--stats",
     .value = "FILE",
     .doc = "The text of 'nodetool tablestats', or ScyllaDB's metrics (curl http://NODE:9180/metrics) if they have "
            "tables (enable_keyspace_column_family_metrics): with the node's counts of reads, the command also "
            "considers other rates for tables, and estimates the disk reads that a change saves. The metrics count no "
            "useless reads of a table: these are estimated, as if all reads were of keys that the table has."},
    {.name = "--html", .value = "FILE", .doc = "Also writes a page with bars."},
    {.name = "--all",
     .doc = "Includes SSTables that reads do not use: snapshots, backups, uploads, secondary indexes."},
    {.name = "--json",
     .doc =
         "An object: tables (directory, keyspace, table, sstables, unread, keys, missing, overfull, oversized, asked, "
         "copies, overlap, levels with level, sstables and overlap, now, "
         "at_0.1, at_0.01, at_0.001 with bytes and reads), and changes (directory, change, rate, filters, bytes_saved, "
         "reads_saved, counted_reads_saved)."},
    {.name = NULL},
};

const struct tool_command tool_advise_command = {
    .name = COMMAND,
    .arguments = "DIR",
    .summary = "Reports the costs of the filters of tables, and the changes that save most.",
    .text = "DIR is the directory of a table, of a keyspace, or a whole data directory of Cassandra or ScyllaDB. The "
            "command reads "
            "all filters, and writes nothing. For each table it prints the number of SSTables and of their keys (as "
            "their bits "
            "suggest), the memory of the filters, the rate that the table asks for (bloom_filter_fp_chance, from "
            "Statistics.db), "
            "the useless disk reads of a query for an absent key today (the sum of the rates of the filters that are "
            "asked), the number of SSTables in whose range of keys a key is (overlap), and of those that have it "
            "(copies), and the memory of filters at three rates. Where leveled compaction has been at work, it prints "
            "the overlap of each level.\n"
            "\n"
            "Then it names missing, overfull and oversized filters, and up to three changes with their commands: those "
            "that save the "
            "largest share of all useless reads or of all memory. Stop the node before a rebuild.",
    .options = options,
    .examples =
        "bloomery advise /var/lib/cassandra/data\n"
        "nodetool tablestats >stats && bloomery advise /var/lib/cassandra/data/ks --stats stats --html advice.html",
    .run = run,
};
