#include "table_stats.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* What stands behind the name and the colon, if the line is of this name; NULL: it is of another. */
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

int table_stats_read(struct advice *advice, const char *path, struct errbuf *err)
{
    char line[1024], keyspace[128] = "", name[128] = "", *value;
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
    while (fgets(line, sizeof(line), file)) {
        uint64_t number;
        if ((value = value_of(line, "Keyspace"))) {
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
    if (rc != 0 || !any) {
        errbuf_set(err, "%s",
                   rc != 0 ? strerror(-rc) : "there is no table in it; it takes the text of 'nodetool tablestats'");
        return rc != 0 ? rc : -EINVAL;
    }
    return 0;
}
