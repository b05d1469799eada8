#include "table.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "murmur.h"
#include "output.h"
#include "sstable_dir.h"
#include "sstable_files.h"

bool table_component(const struct table *table, const char *component, char out[TABLE_PATH])
{
    return sstable_sibling(table->path, &table->name, component, out, TABLE_PATH) < TABLE_PATH;
}

int table_of(struct table *table, const char *path, struct errbuf *err)
{
    if (strlen(path) >= sizeof(table->path))
        return errbuf_fail(err, -EINVAL, "the path is too long");
    strcpy(table->path, path);
    struct stat st;
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        return errbuf_fail(err, -EINVAL, "it is a directory: name a file of each SSTable, such as *-Data.db");
    if (sstable_name_parse(table->path, &table->name, err) != SSTABLE_OK)
        return -EINVAL;
    if (table_component(table, "Filter.db", table->filter) && table_component(table, "TOC.txt", table->toc))
        return 0;
    return errbuf_fail(err, -EINVAL, "the path is too long");
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
    STEP(rc, fs_read_all(fs, fd, toc_out->text, (size_t)size, 0));
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
    while ((line = table_next_component(&at, &len)))
        if (len == strlen(component) && memcmp(line, component, len) == 0)
            return true;
    return false;
}

static int last_of_trie(const struct table *table, struct bloom_hash *hash_out)
{
    struct sstable_keys *keys;
    struct errbuf ignored;
    struct sstable_key key;
    TRY(sstable_keys_open(&keys, fsops_posix(), table->path, &table->name, &ignored));
    int rc = sstable_keys_from_end(keys) ? sstable_keys_next(keys, &key, &ignored) : -ENOENT;
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
    STEP(rc, summary_db_last(fsops_posix(), path, &table->name, key, &len));
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

#define PATH_SIZE 4096
#define LISTINGS  1000 /* of a directory that changes */
#define VISITED   255  /* in the type of an entry */

/* A directory that is read. */
struct visit {
    const struct sstable_walk *walk;
    const char *path;
    size_t root_len;       /* the part of the path that the caller has given */
    struct dirent **items; /* sorted */
    int n;
};

static void forget_items(struct dirent **items, int n)
{
    for (int i = 0; i < n; i++)
        free(items[i]);
    free(items);
}

static int compare(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int is_entry(const struct dirent *entry)
{
    return strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
}

static int compare_name(const void *name, const void *item)
{
    return strcmp(name, (*(struct dirent *const *)item)->d_name);
}

static struct dirent *find_item(const struct visit *visit, const char *name)
{
    struct dirent **item =
        visit->n > 0 ? bsearch(name, visit->items, (size_t)visit->n, sizeof(*visit->items), compare_name) : NULL;
    return item ? *item : NULL;
}

static bool has_sibling(const struct visit *visit, const char *file, const char *component)
{
    struct sstable_name name;
    char sibling[PATH_SIZE];
    return sstable_file_of(file, &name) != SSTABLE_FILE_OTHER &&
           sstable_sibling(file, &name, component, sibling, sizeof(sibling)) < sizeof(sibling) &&
           find_item(visit, sibling);
}

static bool path_below(char out[PATH_SIZE], const struct visit *visit, const char *file)
{
    if (snprintf(out, PATH_SIZE, "%s/%s", visit->path, file) < PATH_SIZE - 16) /* room for other components */
        return true;
    visit->walk->on_error(visit->walk->ctx, visit->path, strerror(ENAMETOOLONG));
    return false;
}

/* Whether SSTables of this place are passed on. Directories above do not count: who names a snapshot wants it. */
static bool is_wanted(const struct visit *visit, const char *path)
{
    struct sstable_name name;
    return sstable_name_parse(path + visit->root_len + 1, &name, NULL) == SSTABLE_OK &&
           name.place != SSTABLE_UNSEALED && name.place != SSTABLE_DELETED &&
           (visit->walk->all || (sstable_is_read(&name) && name.index.len == 0));
}

/* Passes on the SSTable of its Data.db, or of its Filter.db without a Data.db. False: the directory must be read again:
 * it was being written, and is complete by now. */
static bool pass_on(const struct visit *visit, struct dirent *item)
{
    char shown[PATH_SIZE], filter[PATH_SIZE];
    struct found_sstable sstable = {.shown = shown};
    if (!path_below(shown, visit, item->d_name) || !is_wanted(visit, shown) ||
        sstable_name_parse(shown, &sstable.name, NULL) != SSTABLE_OK)
        return true;
    if (has_sibling(visit, item->d_name, "TOC.txt.tmp"))
        return sstable_is_unfinished(shown, &sstable.name);
    if (has_sibling(visit, item->d_name, "Filter.db")) {
        sstable_sibling(shown, &sstable.name, "Filter.db", filter, sizeof(filter));
        sstable.filter = filter;
    }
    item->d_type = VISITED;
    visit->walk->on_sstable(visit->walk->ctx, &sstable);
    return false; /* what has replaced an SSTable that is gone came before it went */
}

/* An SSTable of a later format: its keys are unknown, so it counts as much as a directory that cannot be read. */
static void name_unknown(const struct visit *visit, struct dirent *item)
{
    char path[PATH_SIZE], known[PATH_SIZE], data[PATH_SIZE];
    const char *filter = strstr(item->d_name, "-Filter.db");
    snprintf(data, sizeof(data), "%.*s-Data.db", filter ? (int)(filter - item->d_name) : 0, item->d_name);
    if ((filter && find_item(visit, data)) || !path_below(path, visit, item->d_name) ||
        !path_below(known, visit, "nb-1-big-Data.db") || !is_wanted(visit, known))
        return;
    item->d_type = VISITED;
    visit->walk->on_error(visit->walk->ctx, path, SSTABLE_FILE_UNKNOWN_TEXT "; skipped");
}

/* True: all SSTables of the listing have been visited in an earlier one. */
static bool visit_files(const struct visit *visit)
{
    bool known = true;
    for (int i = 0; i < visit->n; i++) {
        struct sstable_name name;
        struct dirent *item = visit->items[i];
        enum sstable_file file = item->d_type == VISITED ? SSTABLE_FILE_OTHER : sstable_file_of(item->d_name, &name);
        if (file == SSTABLE_FILE_UNKNOWN)
            name_unknown(visit, item);
        else if (file == SSTABLE_FILE_DATA ||
                 (file == SSTABLE_FILE_FILTER && !has_sibling(visit, item->d_name, "Data.db")))
            known &= pass_on(visit, item);
    }
    return known;
}

/* A listing in place of the one before, with its marks. 0; -EAGAIN: the directory has changed meanwhile, so that the
 * listing may lack an SSTable and have the one that has replaced it not yet; or -errno. */
static int list_again(struct visit *visit)
{
    struct stat before, after;
    struct dirent **items;
    if (stat(visit->path, &before) != 0)
        return -errno;
    int n = scandir(visit->path, &items, is_entry, compare);
    if (n < 0)
        return -errno;
    for (int i = 0; i < n; i++) {
        const struct dirent *known = find_item(visit, items[i]->d_name);
        if (known && known->d_type == VISITED)
            items[i]->d_type = VISITED;
    }
    forget_items(visit->items, visit->n);
    visit->items = items;
    visit->n = n;
    return stat(visit->path, &after) == 0 &&
                   (before.st_mtim.tv_sec != after.st_mtim.tv_sec || before.st_mtim.tv_nsec != after.st_mtim.tv_nsec)
               ? -EAGAIN
               : 0;
}

/* A running database may replace SSTables: the keys of one that is gone are in others, which were complete before it
 * went. So the directory is read until a listing has nothing new: no SSTable that has not been visited, and none that
 * was passed over because it was being written. */
static int visit_all_files(struct visit *visit)
{
    for (int listing = 0; listing < LISTINGS; listing++) {
        int rc = list_again(visit);
        if (rc != 0 && rc != -EAGAIN)
            return rc;
        if (visit_files(visit) && rc == 0)
            return 0;
    }
    return -EBUSY;
}

static int walk_directory(const struct sstable_walk *walk, const char *path, size_t root_len,
                          const struct dir_place *above, unsigned depth);

static int walk_directories(const struct visit *visit, const struct dir_place *here, unsigned depth)
{
    int rc = 0;
    for (int i = 0; i < visit->n && rc == 0; i++) {
        struct sstable_name name;
        char path[PATH_SIZE];
        const struct dirent *item = visit->items[i];
        if (item->d_type == VISITED || sstable_file_of(item->d_name, &name) != SSTABLE_FILE_OTHER ||
            !path_below(path, visit, item->d_name))
            continue;
        int directory = dir_entry_is_directory(path, item->d_name, item->d_type);
        if (directory < 0)
            visit->walk->on_error(visit->walk->ctx, path, strerror(-directory));
        else if (directory)
            rc = walk_directory(visit->walk, path, visit->root_len, here, depth + 1);
    }
    return rc;
}

static int walk_directory(const struct sstable_walk *walk, const char *path, size_t root_len,
                          const struct dir_place *above, unsigned depth)
{
    struct visit visit = {.walk = walk, .path = path, .root_len = root_len};
    struct dir_place here = {.above = above};
    int rc = depth > SSTABLE_DIR_DEPTH ? -ELOOP : stat(path, &here.st) == 0 ? 0 : -errno;
    if (rc == 0 && dir_place_is_circle(&here))
        return 0;
    STEP(rc, visit_all_files(&visit));
    bool removed = rc == -ENOENT && depth > 0; /* since its name was read */
    if (rc != 0 && rc != -ENOMEM && !removed)
        walk->on_error(walk->ctx, path, rc == -EBUSY ? "it changes faster than it can be read" : strerror(-rc));
    if (rc != -ENOMEM)
        rc = walk_directories(&visit, &here, depth);
    forget_items(visit.items, visit.n);
    return rc;
}

int sstable_walk(const struct sstable_walk *walk, const char *directory)
{
    size_t len = strlen(directory);
    char plain[PATH_SIZE];
    while (len > 1 && directory[len - 1] == '/')
        len--;
    if (snprintf(plain, sizeof(plain), "%.*s", (int)len, directory) >= (int)sizeof(plain)) {
        walk->on_error(walk->ctx, directory, strerror(ENAMETOOLONG));
        return 0;
    }
    return walk_directory(walk, plain, len, NULL, 0);
}
