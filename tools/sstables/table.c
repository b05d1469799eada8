#include "table.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "murmur3.h"
#include "progress.h"
#include "sstable_files.h"

bool table_component(const struct table *table, const char *component, char out[TABLE_PATH])
{
    return sstable_sibling(table->path, &table->name, component, out, TABLE_PATH) < TABLE_PATH;
}

int table_of(struct table *table, const char *path, struct errbuf *err)
{
    if (strlen(path) >= sizeof(table->path)) {
        errbuf_set(err, "the path is too long");
        return -EINVAL;
    }
    strcpy(table->path, path);
    struct stat st;
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
        errbuf_set(err, "it is a directory: name a file of each SSTable, such as *-Data.db");
        return -EINVAL;
    }
    if (sstable_name_parse(table->path, &table->name, err) != SSTABLE_OK)
        return -EINVAL;
    if (table_component(table, "Filter.db", table->filter) && table_component(table, "TOC.txt", table->toc))
        return 0;
    errbuf_set(err, "the path is too long");
    return -EINVAL;
}

bool table_has(const struct table *table, const char *component)
{
    char path[TABLE_PATH];
    return table_component(table, component, path) && access(path, F_OK) == 0;
}

int table_read_toc(const struct table *table, struct table_toc *toc_out)
{
    const struct fsops *fs = fsops_posix(); /* which waits for no FIFO */
    uint64_t size = 0;
    int fd, rc = fs->open(fs->ctx, table->toc, FS_READ, &fd);
    if (rc != 0)
        return rc;
    rc = fs->size(fs->ctx, fd, &size);
    if (rc == 0 && size >= sizeof(toc_out->text))
        rc = -EFBIG;
    if (rc == 0)
        rc = fs_read_all(fs, fd, toc_out->text, (size_t)size, 0);
    fs->close(fs->ctx, fd);
    toc_out->len = rc == 0 ? (size_t)size : 0;
    toc_out->text[toc_out->len] = '\0';
    return rc;
}

const char *table_next_component(const char **at, size_t *len_out)
{
    const char *line = *at + strspn(*at, "\r\n");
    *len_out = strcspn(line, "\r\n");
    *at = line + *len_out;
    return *len_out ? line : NULL;
}

bool table_toc_names(const struct table_toc *toc, const char *component)
{
    const char *at = toc->text, *line;
    size_t len;
    while ((line = table_next_component(&at, &len))) {
        if (len == strlen(component) && memcmp(line, component, len) == 0)
            return true;
    }
    return false;
}

static int last_of_trie(const struct table *table, struct bloom_hash *hash_out)
{
    struct sstable_keys *keys;
    struct errbuf ignored;
    struct sstable_key key;
    int rc = sstable_keys_open(&keys, fsops_posix(), table->path, &table->name, &ignored);
    if (rc != 0)
        return rc;
    rc = sstable_keys_from_end(keys) ? sstable_keys_next(keys, &key, &ignored) : -ENOENT;
    if (rc == SSTABLE_KEYS_ONE)
        *hash_out = key.hash;
    sstable_keys_close(keys);
    return rc == SSTABLE_KEYS_ONE ? 0 : -ENOENT;
}

int table_last_key(const struct table *table, struct bloom_hash *hash_out)
{
    char path[TABLE_PATH];
    size_t len;
    if (sstable_has_trie(&table->name))
        return last_of_trie(table, hash_out);
    unsigned char *key = malloc(SSTABLE_KEY_MAX);
    int rc = !key ? -ENOMEM : table_component(table, "Summary.db", path) ? 0 : -ENAMETOOLONG;
    if (rc == 0)
        rc = summary_db_last(fsops_posix(), path, &table->name, key, &len);
    if (rc == 0)
        *hash_out = murmur3_hash(key, len);
    free(key);
    return rc;
}

int table_each_key(const struct table *table, uint64_t most, void (*take)(void *ctx, const struct sstable_key *key),
                   void *ctx, const char *what, struct errbuf *err)
{
    struct sstable_keys *keys;
    struct progress progress;
    struct sstable_key key;
    int rc = sstable_keys_open(&keys, fsops_posix(), table->path, &table->name, err);
    if (rc != 0)
        return rc;
    progress_begin(&progress, what ? what : "", sstable_keys_size(keys));
    for (uint64_t n = 0; (most == 0 || n < most) && (rc = sstable_keys_next(keys, &key, err)) == SSTABLE_KEYS_ONE;
         n++) {
        take(ctx, &key);
        if (what)
            progress_update(&progress, sstable_keys_done(keys));
    }
    progress_end(&progress);
    sstable_keys_close(keys);
    return rc == SSTABLE_KEYS_ONE ? 0 : rc;
}
