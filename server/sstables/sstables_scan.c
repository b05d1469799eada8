/* From directories to files. A round looks at all directories, and reports each file as met or missed
 * (sstables_files.c).
 *
 * Work that may wait for the disk is done without the lock: readers and counters of filters do not wait for it. Records
 * are made and forgotten by the thread of the rounds alone, so those that it has found stay meanwhile. */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clock.h"
#include "fsops.h"
#include "sstable_dir.h"
#include "sstables_internal.h"

#define FRESH_MS 2100 /* longer than the times of a directory stand still, on any file system */

/* ---- records of directories ---- */

static void forget_dir(struct sstables *s, struct watched_dir *dir)
{
    struct watched_dir **at = &s->first_dir;
    while (*at != dir)
        at = &(*at)->next;
    *at = dir->next;
    while (dir->files)
        sstables_forget(s, dir->files);
    hash_table_remove(&s->tables.dirs, &dir->by_path);
    s->numbers.directories--;
    free(dir->path);
    free(dir);
}

void sstables_forget_all(struct sstables *s)
{
    while (s->first_dir)
        forget_dir(s, s->first_dir);
    hash_table_deinit(&s->tables.by_path);
    hash_table_deinit(&s->tables.by_name);
    hash_table_deinit(&s->tables.by_base);
    hash_table_deinit(&s->tables.dirs);
}

static struct watched_dir *dir_of(struct sstables *s, const char *path)
{
    uint64_t hash = sstables_hash(path, strlen(path));
    for (struct hash_link *link = hash_table_first(&s->tables.dirs, hash); link; link = hash_table_next(link)) {
        struct watched_dir *dir = HASH_OBJECT(link, struct watched_dir, by_path);
        if (strcmp(dir->path, path) == 0)
            return dir;
    }
    struct watched_dir *dir = calloc(1, sizeof(*dir));
    if (!dir || !(dir->path = strdup(path))) {
        free(dir);
        return NULL;
    }
    dir->by_path.hash = hash;
    if (hash_table_insert(&s->tables.dirs, &dir->by_path) != 0) {
        free(dir->path);
        free(dir);
        return NULL;
    }
    dir->next = s->first_dir;
    s->first_dir = dir;
    s->numbers.directories++;
    return dir;
}

/* ---- files ---- */

/* Whether all of the SSTable is there. `name`: of `path`; `st`: of one of its files. `served`: it was whole before, and
 * this file has not changed: Cassandra writes the TOC.txt again for a new component. */
static bool is_whole(const char *path, const struct sstable_name *name, const struct stat *st, bool served)
{
    char sibling[PATH_MAX];
    if (sstable_is_unfinished(path, name))
        return false;
    if (served)
        return true;
    sstable_sibling(path, name, "TOC.txt", sibling, sizeof(sibling));
    int64_t age = clock_unix_ms() - ((int64_t)st->st_mtim.tv_sec * 1000 + st->st_mtim.tv_nsec / 1000000);
    return access(sibling, F_OK) == 0 || age >= SSTABLES_TOC_MS || age <= -SSTABLES_TOC_MS;
}

static int64_t mtime_ns(const struct stat *st)
{
    return (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
}

/* Something in the directory cannot be looked at: it may be an SSTable with any key. An operator must know why. */
static void note_unseen(struct sstables *s, struct watched_dir *dir, const char *path, const char *why)
{
    if (dir->unseen[0])
        return;
    snprintf(dir->unseen, sizeof(dir->unseen), "%s", why);
    if (!dir->was_unseen)
        log_write(s->log, LOG_LEVEL_WARNING, "sstable-dir: %s: %s; the next scan is in %d s", path, why,
                  SSTABLES_RESCAN_MS / 1000);
    dir->was_unseen = true;
}

static void look_at_filter(struct sstables *s, struct watched_dir *dir, const char *path,
                           const struct sstable_name *name)
{
    struct stat st;
    struct sstable *file = sstables_by_path(s, path);
    struct sstable_stamp served = file ? file->stamp : (struct sstable_stamp){0};
    lock_give(&s->lock);
    int error = stat(path, &st) == 0 ? 0 : errno;
    bool whole = error == 0 && is_whole(path, name, &st, served.inode == st.st_ino && served.mtime_ns == mtime_ns(&st));
    lock_take(&s->lock);
    file = sstables_by_path(s, path);
    if (error && error != ENOENT && file) /* it is there; a reader will report why it cannot be read */
        sstables_keep(s, file);
    else if (error && error != ENOENT)
        note_unseen(s, dir, path, strerror(error));
    if (!whole)
        return;
    struct sstable_stamp stamp = {(uint64_t)st.st_size, (uint64_t)st.st_ino, mtime_ns(&st)};
    sstables_meet(s, dir, path, name, &stamp);
}

/* An SSTable without a filter is named, too: it must not pass for one that was ruled out. `path`: of the filter that it
 * lacks; `data`: of its Data.db. */
static void look_at_data(struct sstables *s, struct watched_dir *dir, const char *path, const char *data,
                         const struct sstable_name *name)
{
    static const struct sstable_stamp none;
    struct stat st;
    struct sstable *file = sstables_by_path(s, path);
    bool served = file && file->stamp.inode == 0;
    lock_give(&s->lock);
    bool lacks = access(path, F_OK) != 0 && errno == ENOENT;
    int error = !lacks || stat(data, &st) == 0 ? 0 : errno;
    lacks = lacks && error == 0 && is_whole(data, name, &st, served);
    lock_take(&s->lock);
    if (error && error != ENOENT)
        note_unseen(s, dir, data, strerror(error));
    if (lacks)
        sstables_meet(s, dir, path, name, &none);
}

/* Whether the file reveals the filter of an SSTable; then *name_out is of `path`, filter_out the filter's path. */
static enum sstable_file tells_of_filter(const char *path, struct sstable_name *name_out, char filter_out[PATH_MAX])
{
    enum sstable_file file = sstable_file_of(path, name_out);
    if (file != SSTABLE_FILE_FILTER && file != SSTABLE_FILE_DATA && file != SSTABLE_FILE_TOC)
        return file;
    return name_out->place != SSTABLE_UNSEALED && name_out->place != SSTABLE_DELETED &&
                   sstable_sibling(path, name_out, "Filter.db", filter_out, PATH_MAX) < PATH_MAX
               ? file
               : SSTABLE_FILE_COMPONENT;
}

static bool path_below(char out[PATH_MAX], const char *dir, const char *name)
{
    int len = snprintf(out, PATH_MAX, "%s/%s", dir, name);
    return len >= 0 && len < PATH_MAX;
}

/* ---- directories ---- */

static void sweep(struct sstables *s, struct watched_dir *dir)
{
    if (dir->root->lost)
        return;
    for (struct sstable *file = dir->files; file; file = file->next) {
        if (file->seen != s->numbers.scans)
            sstables_miss(s, file);
    }
}

static void keep_files(struct sstables *s, struct watched_dir *dir)
{
    for (struct sstable *file = dir->files; file; file = file->next)
        if (!file->replaced)
            sstables_keep(s, file);
}

/* The directory cannot be read now: its contents are unknown, so no file counts as gone. */
static void keep_dir(struct sstables *s, struct watched_dir *dir)
{
    s->rounds.unreadable = true;
    s->rounds.failed |= fs_error_passes(-dir->error);
    keep_files(s, dir);
}

static struct dir_stamp stamp_of(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 ? (struct dir_stamp){st.st_dev, st.st_ino, mtime_ns(&st)} : (struct dir_stamp){0};
}

/* Before the look: a later change leaves another time, unless the clock of the file system stood still since. */
static void note_stamp(struct sstables *s, struct watched_dir *dir)
{
    lock_give(&s->lock);
    struct dir_stamp stamp = stamp_of(dir->path);
    int64_t age_ms = clock_unix_ms() - stamp.mtime_ns / 1000000;
    lock_take(&s->lock);
    dir->stamp = stamp;
    dir->fresh = age_ms < FRESH_MS && age_ms > -FRESH_MS;
}

static bool is_gone(int error)
{
    return error == ENOENT || error == ENOTDIR;
}

/* ---- roots ---- */

/* The filters below a root; `met`: those whose files were met in this round. */
static size_t filters_of_root(const struct sstables *s, const struct watched_dir *root, bool met)
{
    size_t n = 0;
    for (const struct watched_dir *dir = s->first_dir; dir; dir = dir->next)
        for (const struct sstable *file = dir->root == root ? dir->files : NULL; file; file = file->next)
            n += !file->replaced && (!met || file->seen == s->numbers.scans);
    return n;
}

/* Whether the root may be another directory than that in which its filters were met. Where it was lost, the same
 * numbers prove nothing: the roots of two file systems may have them. */
static bool is_elsewhere(const struct sstables *s, const struct watched_dir *root, const struct stat *st)
{
    return (root->lost || root->home_device != st->st_dev || root->home_inode != st->st_ino) &&
           filters_of_root(s, root, false) > 0;
}

static const char *why_lost(const struct watched_dir *root)
{
    return root->error ? strerror(root->error) : "another directory without SSTables has replaced it";
}

static void tell_of_root(struct sstables *s, const struct watched_dir *root, const struct watched_dir *before)
{
    if (!root->lost && before->lost)
        log_write(s->log, LOG_LEVEL_NOTICE, "sstable-dir: %s is back", root->path);
    if (!root->lost || (before->lost && before->error == root->error))
        return;
    log_write(s->log, LOG_LEVEL_WARNING,
              "sstable-dir: %s: %s; kept filters below it: %zu; the directory is scanned every %d s", root->path,
              why_lost(root), filters_of_root(s, root, false), SSTABLES_RESCAN_MS / 1000);
}

/* After the scan of everything below a root. Where it has another directory's place, and SSTables, it was moved there
 * on purpose. `before`: its state before the look. */
static void settle_root(struct sstables *s, struct watched_dir *root, const struct stat *st,
                        const struct watched_dir *before)
{
    bool was_lost = root->lost;
    root->lost = root->error != 0 || (was_lost && filters_of_root(s, root, true) == 0);
    for (struct watched_dir *dir = s->first_dir; dir; dir = dir->next) {
        if (dir->root == root && root->lost)
            keep_files(s, dir);
        else if (dir->root == root && was_lost && dir->seen == s->numbers.scans)
            sweep(s, dir);
    }
    if (!root->lost) {
        root->home_device = st->st_dev;
        root->home_inode = st->st_ino;
    }
    tell_of_root(s, root, before);
}

/* ---- from a root down ---- */

static void look_at_dir(struct sstables *s, const char *path, const struct dir_place *above, struct watched_dir *root,
                        unsigned depth);

static void look_at_item(struct sstables *s, struct watched_dir *dir, const struct dirent *item,
                         const struct dir_place *here, unsigned depth)
{
    struct sstable_name name;
    char path[PATH_MAX], filter[PATH_MAX];
    if (strcmp(item->d_name, ".") == 0 || strcmp(item->d_name, "..") == 0)
        return;
    if (!path_below(path, dir->path, item->d_name)) {
        note_unseen(s, dir, dir->path, strerror(ENAMETOOLONG));
        return;
    }
    switch (tells_of_filter(path, &name, filter)) {
    case SSTABLE_FILE_FILTER:
        look_at_filter(s, dir, path, &name);
        break;
    case SSTABLE_FILE_DATA:
        look_at_data(s, dir, filter, path, &name);
        break;
    case SSTABLE_FILE_UNKNOWN:
        note_unseen(s, dir, path, SSTABLE_FILE_UNKNOWN_TEXT);
        break;
    case SSTABLE_FILE_OTHER:
        lock_give(&s->lock);
        int directory = dir_entry_is_directory(path, item->d_name, item->d_type);
        lock_take(&s->lock);
        if (directory < 0 || (directory && depth == SSTABLE_DIR_DEPTH))
            note_unseen(s, dir, path, strerror(directory < 0 ? -directory : ELOOP));
        else if (directory)
            look_at_dir(s, path, here, dir->root, depth + 1);
        break;
    case SSTABLE_FILE_COMPONENT:
    case SSTABLE_FILE_TOC:
        break;
    }
}

/* NULL, with the reason in *error_out, if it cannot be opened. */
static DIR *open_dir(struct sstables *s, const char *path, struct stat *st, int *error_out)
{
    lock_give(&s->lock);
    DIR *stream = fs_open_dir(path);
    *error_out = stream ? 0 : errno;
    if (stream && fstat(dirfd(stream), st) != 0) {
        *error_out = errno;
        closedir(stream);
        stream = NULL;
    }
    lock_take(&s->lock);
    return stream;
}

/* The next item of the directory; NULL: the end, or an error. */
static const struct dirent *next_item(struct sstables *s, DIR *stream, int *error_out)
{
    lock_give(&s->lock);
    errno = 0;
    const struct dirent *item = readdir(stream);
    *error_out = item ? 0 : errno;
    lock_take(&s->lock);
    return item;
}

/* Looks at all contents of the directory. `stream`: the open directory; NULL: it could not be opened. */
static void look_into(struct sstables *s, struct watched_dir *dir, DIR *stream, const struct dir_place *here,
                      unsigned depth)
{
    for (const struct dirent *item;
         stream && !atomic_load(&s->watcher.ending) && (item = next_item(s, stream, &dir->error));)
        look_at_item(s, dir, item, here, depth);
    if (dir->error && !is_gone(dir->error))
        keep_dir(s, dir);
    else
        sweep(s, dir);
}

/* `above`: the directories that it is in, below `root`; NULL: it is one of sstable-dir. */
static void look_at_dir(struct sstables *s, const char *path, const struct dir_place *above, struct watched_dir *root,
                        unsigned depth)
{
    struct dir_place here = {.above = above};
    lock_give(&s->lock);
    bool circle = above && stat(path, &here.st) == 0 && dir_place_is_circle(&here);
    lock_take(&s->lock);
    if (circle)
        return;
    struct watched_dir *dir = dir_of(s, path);
    s->rounds.failed |= !dir;
    if (!dir || dir->seen == s->numbers.scans)
        return;
    dir->seen = s->numbers.scans;
    dir->root = root ? root : dir;
    dir->unseen[0] = '\0';
    const struct watched_dir before = *dir;
    note_stamp(s, dir);
    DIR *stream = open_dir(s, path, &here.st, &dir->error);
    dir->lost = !above && (!stream || is_elsewhere(s, dir, &here.st));
    look_into(s, dir, stream, &here, depth);
    if (stream)
        closedir(stream);
    if (!above)
        settle_root(s, dir, &here.st, &before);
    else if (dir->error && !is_gone(dir->error))
        note_unseen(s, dir, path, strerror(dir->error));
    if (!above && dir->lost)
        snprintf(dir->unseen, sizeof(dir->unseen), "%s", why_lost(dir));
    dir->was_unseen = dir->unseen[0] != '\0';
}

void sstables_count_unseen(struct sstables *s)
{
    const struct watched_dir *first = NULL;
    size_t n = s->rounds.failed;
    for (const struct watched_dir *dir = s->first_dir; dir; dir = dir->next) {
        n += dir->unseen[0] != '\0';
        first = dir->unseen[0] ? dir : first;
    }
    if (first)
        errbuf_set(&s->unseen.why, SSTABLES_INCOMPLETE " (%zu): %s: %s", n, first->path, first->unseen);
    else if (n > 0)
        errbuf_set(&s->unseen.why, SSTABLES_INCOMPLETE ": too little memory, or too many open files");
    atomic_store(&s->unseen.n, n);
}

/* Gives the lock meanwhile: records are made and forgotten by this thread alone. */
bool sstables_have_changed(struct sstables *s)
{
    bool changed = false;
    lock_give(&s->lock);
    for (const struct watched_dir *dir = s->first_dir; dir && !changed; dir = dir->next) {
        if (dir->seen != s->numbers.scans)
            continue; /* it has gone; if it comes back, the one above it changes */
        struct dir_stamp now = stamp_of(dir->path);
        changed = dir->fresh || now.device != dir->stamp.device || now.inode != dir->stamp.inode ||
                  now.mtime_ns != dir->stamp.mtime_ns;
    }
    lock_take(&s->lock);
    return changed;
}

/* Forgets missing directories once all of their files are forgotten. */
static void sweep_dirs(struct sstables *s)
{
    for (struct watched_dir *dir = s->first_dir, *next; dir; dir = next) {
        next = dir->next;
        if (dir->seen == s->numbers.scans || (s->rounds.unreadable && !sstables_is_gone(s, dir->path)))
            continue;
        sweep(s, dir);
        if (!dir->files)
            forget_dir(s, dir);
    }
}

void sstables_scan_all(struct sstables *s)
{
    s->rounds.unreadable = s->rounds.failed = false;
    for (const char *at = s->dirs; *at && !atomic_load(&s->watcher.ending);) {
        size_t len = strcspn(at, ":");
        char path[PATH_MAX];
        while (len > 1 && at[len - 1] == '/') /* one path for each file */
            len--;
        if (len > 0 && len < sizeof(path)) {
            memcpy(path, at, len);
            path[len] = '\0';
            look_at_dir(s, path, NULL, NULL, 0);
        }
        at += strcspn(at, ":");
        at += *at == ':';
    }
    sweep_dirs(s);
}
