/* From directories to names. A round looks at directories and marks what it meets; what it does not meet is gone. In a
 * directory new files come before those that are gone, so that a compaction leaves no moment without its result. */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fsops.h"
#include "sstable_name.h"
#include "sstables_internal.h"

#define MAX_DEPTH 12 /* of directories below one of sstable-dir */
#define COMPONENT "Filter.db"
#define NO_FILTER "the SSTable has no Filter.db, so it cannot be ruled out"

/* ---- records ---- */

static struct sstable *file_by_path(const struct sstables *s, const char *path)
{
    struct hash_link *link = hash_table_first(&s->files_by_path, sstables_hash(path, strlen(path)));
    for (; link; link = hash_table_next(link)) {
        struct sstable *file = HASH_OBJECT(link, struct sstable, by_path);
        if (strcmp(file->path, path) == 0)
            return file;
    }
    return NULL;
}

static struct slice name_of(const struct sstable *file)
{
    return (struct slice){file->name, strlen(file->name)};
}

void sstables_set_placeholder(struct sstables *s, struct sstable *file, enum sstable_state state, const char *reason)
{
    if (registry_publish_quarantined(s->registry, name_of(file), reason, &file->id) == REGISTRY_OK) {
        file->state = state;
        file->retry = false;
    } /* without memory the old state stays, and the next round tries again */
}

static void file_free(struct sstable *file)
{
    free(file->path);
    free(file->name);
    free(file);
}

/* Takes the record out. Its name stays in the registry if another file is about to take it over. */
static void forget_file(struct sstables *s, struct sstable *file, bool keep_name)
{
    struct sstable **at = &file->dir->files;
    while (*at != file)
        at = &(*at)->next;
    *at = file->next;
    hash_table_remove(&s->files_by_path, &file->by_path);
    hash_table_remove(&s->files_by_name, &file->by_name);
    if (!keep_name)
        (void)registry_delete(s->registry, name_of(file));
    s->numbers.filters--;
    file_free(file);
}

/* Another path may lead to the same directory, which has one watch: the kernel tells that it is gone (IN_IGNORED), and
 * the directory is watched again when it is looked at for that. */
static void unwatch_dir(struct sstables *s, struct watched_dir *dir)
{
    if (dir->watch >= 0)
        (void)inotify_rm_watch(s->inotify, dir->watch);
    dir->watch = -1;
}

static void forget_dir(struct sstables *s, struct watched_dir *dir)
{
    struct watched_dir **at = &s->first_dir;
    while (*at != dir)
        at = &(*at)->next;
    *at = dir->next;
    while (dir->files)
        forget_file(s, dir->files, false);
    unwatch_dir(s, dir);
    hash_table_remove(&s->dirs_by_path, &dir->by_path);
    s->numbers.directories--;
    free(dir->path);
    free(dir);
}

void sstables_forget_all(struct sstables *s)
{
    while (s->first_dir)
        forget_dir(s, s->first_dir);
    hash_table_deinit(&s->files_by_path);
    hash_table_deinit(&s->files_by_name);
    hash_table_deinit(&s->dirs_by_path);
}

static struct watched_dir *dir_of(struct sstables *s, const char *path)
{
    uint64_t hash = sstables_hash(path, strlen(path));
    for (struct hash_link *link = hash_table_first(&s->dirs_by_path, hash); link; link = hash_table_next(link)) {
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
    dir->watch = -1;
    if (hash_table_insert(&s->dirs_by_path, &dir->by_path) != 0) {
        free(dir->path);
        free(dir);
        return NULL;
    }
    dir->next = s->first_dir;
    s->first_dir = dir;
    s->numbers.directories++;
    return dir;
}

/* ---- names ---- */

#define PART(part) (int)(part).len, (part).ptr ? (part).ptr : ""

static const char *place_text(const struct sstable_name *name)
{
    switch (name->place) {
    case SSTABLE_SNAPSHOT:
        return "snapshots/";
    case SSTABLE_BACKUP:
        return "backups/";
    case SSTABLE_UPLOAD:
        return "upload/";
    default:
        return "";
    }
}

/* The filter's name without a number behind it, malloc'ed. */
static char *make_name(const struct sstable_name *name)
{
    char *text;
    int len = asprintf(&text, "%s%.*s%s%.*s%s%.*s%s%.*s%s%.*s", place_text(name), PART(name->snapshot),
                       name->snapshot.len ? "/" : "", PART(name->keyspace), name->keyspace.len ? "." : "",
                       PART(name->table), name->index.len ? "." : "", PART(name->index),
                       name->keyspace.len || name->table.len ? "/" : "", PART(name->generation));
    return len < 0 ? NULL : text;
}

/* Of an SSTable that was written without a filter there is no file. */
static bool is_missing(const struct sstable *file)
{
    return file->stamp.inode == 0;
}

/* Gives the file its name; another file may have it. False without memory. */
static bool take_name(struct sstables *s, struct sstable *file, char *name)
{
    char *base = name;
    for (unsigned i = 2; name; i++) {
        struct sstable *other = sstables_by_name(s, (struct slice){name, strlen(name)});
        if (other && !is_missing(other) && access(other->path, F_OK) != 0) /* moved to where the new file is */
            forget_file(s, other, true);
        else if (other) {
            if (name != base)
                free(name);
            if (asprintf(&name, "%s#%u", base, i) < 0)
                name = NULL;
            continue;
        }
        break;
    }
    if (name != base)
        free(base);
    file->name = name;
    return name;
}

/* ---- files ---- */

static void add_file(struct sstables *s, struct watched_dir *dir, const char *path, const struct sstable_name *name,
                     const struct sstable_stamp *stamp)
{
    struct errbuf err = {""};
    struct sstable *file = calloc(1, sizeof(*file));
    char *text = file && (file->path = strdup(path)) ? make_name(name) : NULL;
    if (!text || !take_name(s, file, text)) {
        if (file)
            file_free(file);
        return; /* the next round tries again */
    }
    bool known = sstable_name_variant(name, &file->variant, &err) == SSTABLE_OK;
    file->stamp = *stamp;
    file->seen = s->round;
    file->by_path.hash = sstables_hash(path, strlen(path));
    file->by_name.hash = sstables_hash(file->name, strlen(file->name));
    if (hash_table_insert(&s->files_by_path, &file->by_path) != 0) {
        file_free(file);
        return;
    }
    if (hash_table_insert(&s->files_by_name, &file->by_name) != 0) {
        hash_table_remove(&s->files_by_path, &file->by_path);
        file_free(file);
        return;
    }
    file->dir = dir;
    file->next = dir->files;
    dir->files = file;
    s->numbers.filters++;
    if (is_missing(file))
        sstables_set_placeholder(s, file, SSTABLE_BROKEN, NO_FILTER);
    else
        sstables_set_placeholder(s, file, known ? SSTABLE_UNREAD : SSTABLE_BROKEN, known ? SSTABLES_UNREAD : err.text);
    if (file->id == 0)
        forget_file(s, file, false);
}

static bool same_stamp(const struct sstable_stamp *a, const struct sstable_stamp *b)
{
    return a->size == b->size && a->inode == b->inode && a->mtime_ns == b->mtime_ns;
}

static bool has_toc(const char *path, const struct sstable_name *name)
{
    char toc[PATH_MAX];
    return sstable_sibling(path, name, "TOC.txt", toc, sizeof(toc)) < sizeof(toc) && access(toc, F_OK) == 0;
}

static void look_at_file(struct sstables *s, struct watched_dir *dir, const char *path)
{
    struct sstable_name name;
    struct errbuf err;
    struct stat st;
    struct sstable *file = file_by_path(s, path);
    if (sstable_name_parse(path, &name, &err) != SSTABLE_OK || name.place == SSTABLE_UNSEALED ||
        name.place == SSTABLE_DELETED)
        return;
    if (stat(path, &st) != 0) {
        if (file && errno != ENOENT) /* it is there; why it cannot be read, a reader will say */
            file->seen = s->round;
        return;
    }
    if (!S_ISREG(st.st_mode) || !has_toc(path, &name))
        return;
    struct sstable_stamp stamp = {(uint64_t)st.st_size, (uint64_t)st.st_ino,
                                  (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec};
    if (!file) {
        add_file(s, dir, path, &name, &stamp);
        return;
    }
    file->seen = s->round;
    if (same_stamp(&file->stamp, &stamp) && !(file->state == SSTABLE_BROKEN && file->retry))
        return;
    if (file->state == SSTABLE_BROKEN && sstable_name_variant(&name, &file->variant, &err) != SSTABLE_OK)
        return; /* whatever is in it */
    file->stamp = stamp;
    sstables_set_placeholder(s, file, SSTABLE_UNREAD, SSTABLES_UNREAD);
}

/* `data`: the path of a Data.db. An SSTable without a filter is named, too: nobody may take it for one that was ruled
 * out. */
static void look_for_missing(struct sstables *s, struct watched_dir *dir, const char *data)
{
    static const struct sstable_stamp none;
    struct sstable_name name;
    struct errbuf err;
    char path[PATH_MAX];
    if (sstable_name_parse(data, &name, &err) != SSTABLE_OK || name.place == SSTABLE_UNSEALED ||
        name.place == SSTABLE_DELETED || sstable_sibling(data, &name, COMPONENT, path, sizeof(path)) >= sizeof(path) ||
        access(path, F_OK) == 0 || errno != ENOENT || !has_toc(data, &name))
        return;
    struct sstable *file = file_by_path(s, path);
    if (!file) {
        add_file(s, dir, path, &name, &none);
        return;
    }
    file->seen = s->round;
    if (is_missing(file))
        return;
    file->stamp = none;
    sstables_set_placeholder(s, file, SSTABLE_BROKEN, NO_FILTER);
}

/* ---- directories ---- */

static bool ends_with(const char *text, const char *end)
{
    size_t len = strlen(text), end_len = strlen(end);
    return len >= end_len && strcmp(text + len - end_len, end) == 0;
}

static bool is_directory(const char *path, const struct dirent *item)
{
    struct stat st;
    if (item->d_type != DT_UNKNOWN && item->d_type != DT_LNK)
        return item->d_type == DT_DIR;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static void sweep(struct sstables *s, struct watched_dir *dir)
{
    for (struct sstable *file = dir->files, *next; file; file = next) {
        next = file->next;
        if (file->seen != s->round)
            forget_file(s, file, false);
    }
}

/* The directory cannot be read now: nobody knows what is in it, so nothing is gone. */
static void keep_dir(struct sstables *s, struct watched_dir *dir)
{
    s->incomplete = true;
    dir->changed = true;
    for (struct sstable *file = dir->files; file; file = file->next)
        file->seen = s->round;
}

static bool is_gone(int error)
{
    return error == ENOENT || error == ENOTDIR;
}

/* An operator must know why there are no filters. `error`: of the last attempt to read it; 0: it was read. */
static void note_error(struct sstables *s, struct watched_dir *dir, int error, bool root)
{
    if (error && error != dir->error && (root || !is_gone(error)))
        log_write(s->log, LOG_LEVEL_WARNING, "sstable-dir: %s: %s; it is looked at again every %d s", dir->path,
                  strerror(error), SSTABLES_RESCAN_MS / 1000);
    dir->error = error;
}

/* `st`: what the path leads to now. A watch belongs to the directory that the path led to when it was made. */
static void watch_dir(struct sstables *s, struct watched_dir *dir, const struct stat *st)
{
    if (dir->device != st->st_dev || dir->inode != st->st_ino)
        unwatch_dir(s, dir);
    if (dir->watch >= 0)
        return;
    dir->device = st->st_dev;
    dir->inode = st->st_ino;
    if (s->inotify >= 0)
        dir->watch = inotify_add_watch(s->inotify, dir->path,
                                       IN_CREATE | IN_DELETE | IN_MOVE | IN_CLOSE_WRITE | IN_DELETE_SELF |
                                           IN_MOVE_SELF | IN_ONLYDIR);
    if (dir->watch >= 0 || s->unwatched || (s->inotify >= 0 && errno != ENOSPC))
        return;
    log_write(s->log, LOG_LEVEL_WARNING,
              "sstable-dir: the kernel watches no more directories (fs.inotify.max_user_watches, "
              "fs.inotify.max_user_instances): changes are noticed every %d s",
              SSTABLES_RESCAN_MS / 1000);
    s->unwatched = true;
}

/* A directory that is being looked at, and those that it is in. */
struct place {
    const struct place *above;
    struct stat st;
};

/* Whether a symbolic link has led back to a directory above. */
static bool is_circle(const struct place *place)
{
    for (const struct place *above = place->above; above; above = above->above) {
        if (above->st.st_dev == place->st.st_dev && above->st.st_ino == place->st.st_ino)
            return true;
    }
    return false;
}

/* `below`: with the directories in it. `above`: those that it is in, NULL: one of sstable-dir, or it is not known. */
static void look_at_dir(struct sstables *s, const char *path, bool below, const struct place *above, unsigned depth)
{
    struct place here = {.above = above};
    char child[PATH_MAX];
    if (above && stat(path, &here.st) == 0 && is_circle(&here))
        return;
    struct watched_dir *dir = dir_of(s, path);
    if (!dir || (below && dir->seen == s->round))
        return;
    dir->seen = s->round;
    dir->changed = false;
    DIR *stream = fs_open_dir(path);
    note_error(s, dir, stream ? 0 : errno, below && depth == 0);
    if (stream && fstat(dirfd(stream), &here.st) == 0)
        watch_dir(s, dir, &here.st); /* before the look: what comes later is an event */
    if (!stream && !is_gone(dir->error)) {
        keep_dir(s, dir);
        return;
    }
    if (!stream)
        unwatch_dir(s, dir);
    for (const struct dirent *item; stream && (item = readdir(stream));) {
        if (strcmp(item->d_name, ".") == 0 || strcmp(item->d_name, "..") == 0)
            continue;
        int len = snprintf(child, sizeof(child), "%s/%s", path, item->d_name);
        if (len < 0 || (size_t)len >= sizeof(child))
            continue;
        if (ends_with(item->d_name, COMPONENT))
            look_at_file(s, dir, child);
        else if (ends_with(item->d_name, "-Data.db"))
            look_for_missing(s, dir, child);
        else if (below && depth < MAX_DEPTH && is_directory(child, item))
            look_at_dir(s, child, true, &here, depth + 1);
    }
    if (stream)
        closedir(stream);
    sweep(s, dir);
}

void sstables_scan_all(struct sstables *s)
{
    s->round++;
    s->numbers.scans++;
    s->incomplete = false;
    for (const char *at = s->dirs; *at;) {
        size_t len = strcspn(at, ":");
        char path[PATH_MAX];
        while (len > 1 && at[len - 1] == '/') /* one path for each file */
            len--;
        if (len > 0 && len < sizeof(path)) {
            memcpy(path, at, len);
            path[len] = '\0';
            look_at_dir(s, path, true, NULL, 0);
        }
        at += strcspn(at, ":");
        at += *at == ':';
    }
    for (struct watched_dir *dir = s->first_dir, *next; dir; dir = next) {
        next = dir->next;
        if (dir->seen != s->round && (!s->incomplete || (access(dir->path, F_OK) != 0 && errno == ENOENT)))
            forget_dir(s, dir);
    }
}

void sstables_scan_changed(struct sstables *s)
{
    s->round++;
    s->numbers.scans++;
    for (struct watched_dir *dir = s->first_dir, *next; dir; dir = next) {
        next = dir->next;
        if (dir->changed)
            look_at_dir(s, dir->path, false, NULL, 0);
    }
}
