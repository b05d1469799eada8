#include "table_stats.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* The text after the name and the colon, if the line has this name; NULL: it has another. */
static char *value_of(char *line, const char *name)
{
    line += strspn(line, " \t");
    size_t len = strlen(name);
    if (strncmp(line, name, len) != 0)
        return NULL;
    line += len + strspn(line + len, " \t");
    if (*line != ':')
        return NULL;
    line += 1 + strspn(line + 1, " \t");
    line[strcspn(line, "\r\n")] = '\0';
    return line;
}

static bool number_of(char *line, const char *name, uint64_t *out)
{
    char *value = value_of(line, name);
    if (value)
        *out = strtoull(value, NULL, 10);
    return value != NULL;
}

/* A number of all directories of the table: a node may have several. */
static void take(struct advice *advice, const char *keyspace, const char *name, const uint64_t *reads,
                 const uint64_t *false_positives)
{
    for (size_t i = 0; i < advice->n; i++) {
        struct advice_table *table = &advice->tables[i];
        if (strcmp(table->name, name) != 0 || strcmp(table->keyspace, keyspace) != 0)
            continue;
        table->counted = true;
        if (reads)
            table->reads = *reads;
        if (false_positives)
            table->false_positives = *false_positives;
    }
}

/* ---- ScyllaDB's metrics ---- */

/* The number of reads of a table, as a histogram's and as a summary's count: a sample for each shard, or one for all.
 */
static const char *const families[] = {"scylla_column_family_read_latency_count{",
                                       "scylla_column_family_read_latency_summary_count{"};

enum { FAMILIES = 2 };

/* The value of a label in "{a="x",b="y"} 1". False: it has no such label. */
static bool label_of(const char *labels, const char *label, char out[128])
{
    size_t len = strlen(label);
    for (const char *at = labels; (at = strstr(at, label)); at += len) {
        const char *value = at + len + 2;
        size_t value_len = strcspn(value, "\"");
        if ((at[-1] != '{' && at[-1] != ',') || strncmp(at + len, "=\"", 2) != 0 || value_len > 127 ||
            value[value_len] != '"')
            continue;
        memcpy(out, value, value_len);
        out[value_len] = '\0';
        return true;
    }
    return false;
}

/* Adds a sample to that of its table. `reads` has FAMILIES numbers for each. False: the line is of something else. */
static bool take_sample(const struct advice *advice, const char *line, double *reads)
{
    char keyspace[128], name[128];
    for (int family = 0; family < FAMILIES; family++) {
        size_t len = strlen(families[family]);
        const char *end = strncmp(line, families[family], len) == 0 ? strrchr(line, '}') : NULL;
        if (!end || !label_of(line + len - 1, "ks", keyspace) || !label_of(line + len - 1, "cf", name))
            continue;
        double value = strtod(end + 1, NULL);
        for (size_t i = 0; i < advice->n; i++) {
            if (strcmp(advice->tables[i].name, name) == 0 && strcmp(advice->tables[i].keyspace, keyspace) == 0)
                reads[FAMILIES * i + (size_t)family] += value > 0 ? value : 0;
        }
        return true;
    }
    return false;
}

/* The metrics have no useless reads of tables. Their number is estimated from the rates and the reads of existing
 * keys. */
static void use_samples(struct advice *advice, const double *reads)
{
    for (size_t i = 0; i < advice->n; i++) {
        struct advice_table *table = &advice->tables[i];
        size_t sstables;
        double most = fmax(reads[FAMILIES * i], reads[FAMILIES * i + 1]), n = advice_overlap(table, &sstables);
        double others = table->copies > 0 && table->copies < n ? (n - table->copies) / n : table->copies > 0 ? 0 : 1;
        if (table->counted || most < 1)
            continue;
        table->counted = table->estimated = true;
        table->reads = (uint64_t)most;
        table->false_positives = (uint64_t)(most * advice_now(table).reads * others);
    }
}

/* ---- files ---- */

int table_stats_read(struct advice *advice, const char *path, struct errbuf *err)
{
    char line[4096], keyspace[128] = "", name[128] = "", *value;
    bool any = false;
    struct stat st;
    FILE *file = fopen(path, "re");
    if (!file || fstat(fileno(file), &st) != 0 || S_ISDIR(st.st_mode)) {
        int rc = file ? -EISDIR : -errno;
        errbuf_set(err, "%s", strerror(-rc));
        if (file)
            fclose(file);
        return rc;
    }
    double *reads = calloc(advice->n ? advice->n : 1, FAMILIES * sizeof(*reads));
    if (!reads) {
        fclose(file);
        errbuf_set(err, "%s", strerror(ENOMEM));
        return -ENOMEM;
    }
    while (fgets(line, sizeof(line), file)) {
        uint64_t number;
        if (take_sample(advice, line, reads)) {
            any = true;
        } else if ((value = value_of(line, "Keyspace"))) {
            snprintf(keyspace, sizeof(keyspace), "%.127s", value);
        } else if ((value = value_of(line, "Table")) || (value = value_of(line, "Column Family"))) {
            snprintf(name, sizeof(name), "%.127s", value);
            any = true;
        } else if (number_of(line, "Local read count", &number)) {
            take(advice, keyspace, name, &number, NULL);
        } else if (number_of(line, "Bloom filter false positives", &number)) {
            take(advice, keyspace, name, NULL, &number);
        }
    }
    int rc = ferror(file) ? -EIO : 0;
    fclose(file);
    use_samples(advice, reads);
    free(reads);
    if (rc != 0 || !any) {
        errbuf_set(err, "%s",
                   rc != 0 ? strerror(-rc)
                           : "no table in it; it must be the output of 'nodetool tablestats', or ScyllaDB's metrics "
                             "with metrics of tables (enable_keyspace_column_family_metrics)");
        return rc != 0 ? rc : -EINVAL;
    }
    return 0;
}
