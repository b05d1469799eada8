/* What the other parts of the store share, and what is asked of it. */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store_internal.h"

/* ---- paths --------------------------------------------------------------------------------------------------------- */

__attribute__((format(printf, 3, 4))) static int path_format(struct path *path, struct errbuf *err, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    int len = vsnprintf(path->text, sizeof(path->text), fmt, args);
    va_end(args);
    if (len >= 0 && (size_t)len < sizeof(path->text))
        return 0;
    errbuf_set(err, "the path of the data directory is too long");
    return -ENAMETOOLONG;
}

int path_root(const struct store *store, struct path *path, const char *name, struct errbuf *err)
{
    return path_format(path, err, "%s/%s", store->dir, name);
}

int path_dir(const struct store *store, struct path *path, const char *dir, struct errbuf *err)
{
    return path_format(path, err, "%s/filters/%s", store->dir, dir);
}

int path_final(const struct store *store, struct path *path, const char *dir, unsigned layer, struct errbuf *err)
{
    return path_format(path, err, "%s/filters/%s/%u-Filter.db", store->dir, dir, layer);
}

int path_temp(const struct store *store, struct path *path, const char *dir, unsigned layer, uint64_t generation,
              struct errbuf *err)
{
    return path_format(path, err, "%s/filters/%s/%u-Filter.db.%" PRIu64, store->dir, dir, layer, generation);
}

bool file_name_parse(const char *name, struct file_name *out)
{
    char canonical[64];
    char *end;

    if (name[0] < '0' || name[0] > '9')
        return false;
    unsigned long layer = strtoul(name, &end, 10);
    if (layer >= BLOOM_MAX_LAYERS || strncmp(end, "-Filter.db", 10) != 0)
        return false;
    *out = (struct file_name){.layer = (unsigned)layer, .temporary = end[10] == '.'};
    if (out->temporary) {
        out->generation = strtoull(end + 11, NULL, 10);
        snprintf(canonical, sizeof(canonical), "%lu-Filter.db.%" PRIu64, layer, out->generation);
    } else {
        snprintf(canonical, sizeof(canonical), "%lu-Filter.db", layer);
    }
    return strcmp(name, canonical) == 0;
}

/* ---- small things -------------------------------------------------------------------------------------------------- */

void store_report(struct store *store, enum store_severity severity, const char *fmt, ...)
{
    struct errbuf text = {0};
    char raw[ERRBUF_SIZE];
    va_list args;

    if (!store->report)
        return;
    va_start(args, fmt);
    vsnprintf(raw, sizeof(raw), fmt, args);
    va_end(args);
    errbuf_set(&text, "%s", raw);
    pthread_mutex_lock(&store->mutex);
    store->report(store->report_ctx, severity, text.text);
    pthread_mutex_unlock(&store->mutex);
}

#define SANE_GENERATION (MANIFEST_MAX_NUMBER / 4)

bool generation_pass(struct store *store, uint64_t number)
{
    uint64_t now = atomic_load(&store->generation);

    if (number > SANE_GENERATION)
        return false;
    while (now < number && !atomic_compare_exchange_weak(&store->generation, &now, number))
        continue;
    return true;
}

struct shown_name show_name(const char *name, size_t len)
{
    struct shown_name shown;
    size_t n = 0;

    for (size_t i = 0; i < len && n < 60; i++) {
        if (name[i] == '.') {
            shown.text[n++] = '.';
            continue;
        }
        name_encode(name + i, 1, shown.text + n);
        n += name_encoded_len(name + i, 1);
    }
    strcpy(shown.text + n, n >= 60 ? "..." : "");
    return shown;
}

int entry_is_dir(struct record_reader *reader, const struct index_entry *entry, const char *dir, struct errbuf *err)
{
    const struct manifest_filter *filter;
    int rc = record_read(reader, index_offset(entry), &filter, err);

    return rc != 0 ? rc : strcmp(dir, filter->dir) == 0;
}

/* ---- what is asked of a store --------------------------------------------------------------------------------------- */

uint64_t store_next_id(const struct store *store)
{
    return atomic_load(&store->next_id);
}

uint64_t store_generation(const struct store *store)
{
    return atomic_load(&store->generation);
}

size_t store_count(const struct store *store)
{
    return atomic_load(&store->count);
}

uint64_t store_opened_bytes(const struct store *store)
{
    return store->opened_bytes;
}

struct store_checkpoint store_checkpoint(const struct store *store)
{
    return (struct store_checkpoint){store->save.log, store->save.control, store->save.frame,
                                     store->save.accepted};
}

/* Records are read one after another: the directory need not be the one of the name, and nobody asks often. */
int store_find(struct store *store, const char *name, size_t name_len, uint64_t *id_out, struct errbuf *err)
{
    struct record_reader reader;
    int rc = record_reader_init(&reader, store->fs, store->manifest_fd);

    if (rc != 0)
        errbuf_set(err, "out of memory");
    for (size_t i = 0; i < store->index.count && rc == 0; i++) {
        const struct manifest_filter *filter;

        rc = record_read(&reader, index_offset(&store->index.entries[i]), &filter, err);
        if (rc != 0 || filter->name_len != name_len || memcmp(filter->name, name, name_len) != 0)
            continue;
        if (id_out)
            *id_out = filter->id;
        record_reader_deinit(&reader);
        return 0;
    }
    record_reader_deinit(&reader);
    return rc != 0 ? rc : STORE_NOT_FOUND;
}

int store_forget(struct store *store, uint64_t id)
{
    int rc = STORE_NOT_FOUND;

    pthread_mutex_lock(&store->mutex);
    if (id_map_has(&store->quarantined, id) && !id_map_has(&store->forgotten, id))
        rc = id_map_set(&store->forgotten, id, NULL);
    pthread_mutex_unlock(&store->mutex);
    return rc;
}
