#include "sstable_walk.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fsops.h"

#define PATH_SIZE 4096

/* The entries of a directory, sorted. */
struct names {
    struct dirent **items;
    int n;
};

static void names_deinit(struct names *names)
{
    for (int i = 0; i < names->n; i++)
        free(names->items[i]);
    free(names->items);
    *names = (struct names){NULL, 0};
}

static int compare(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int is_entry(const struct dirent *entry)
{
    return strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
}

/* 0 or -errno. */
static int list(const char *directory, struct names *names)
{
    names->n = scandir(directory, &names->items, is_entry, compare);
    if (names->n >= 0)
        return 0;
    *names = (struct names){NULL, 0};
    return -errno;
}

static int compare_name(const void *name, const void *item)
{
    return strcmp(name, (*(struct dirent *const *)item)->d_name);
}

static bool has_name(const struct names *names, const char *name)
{
    return names->n > 0 && bsearch(name, names->items, (size_t)names->n, sizeof(*names->items), compare_name) != NULL;
}

static bool component_is(const struct sstable_name *name, const char *component)
{
    return name->component.len == strlen(component) && memcmp(name->component.ptr, component, name->component.len) == 0;
}

static bool is_wanted(const struct sstable_walk *walk, const struct sstable_name *name)
{
    if (name->place == SSTABLE_UNSEALED || name->place == SSTABLE_DELETED)
        return false;
    return walk->all || (sstable_is_read(name) && name->index.len == 0);
}

/* Passes on the SSTable of `file`, its Data.db, or its Filter.db without a Data.db. */
static void pass_on(const struct sstable_walk *walk, const char *directory, const struct names *names, const char *file)
{
    char shown[PATH_SIZE], filter[PATH_SIZE], sibling[PATH_SIZE];
    struct found_sstable sstable = {.shown = shown};
    struct sstable_name in_directory;

    if (snprintf(shown, sizeof(shown), "%s/%s", directory, file) >= (int)sizeof(shown) - 16 ||
        sstable_name_parse(shown, &sstable.name, NULL) != SSTABLE_OK || !is_wanted(walk, &sstable.name) ||
        sstable_name_parse(file, &in_directory, NULL) != SSTABLE_OK)
        return;
    sstable_sibling(file, &in_directory, "TOC.txt.tmp", sibling, sizeof(sibling));
    if (has_name(names, sibling))
        return; /* ScyllaDB: being written */
    sstable_sibling(file, &in_directory, "Filter.db", sibling, sizeof(sibling));
    if (has_name(names, sibling)) {
        sstable_sibling(shown, &sstable.name, "Filter.db", filter, sizeof(filter));
        sstable.filter = filter;
    }
    walk->on_sstable(walk->ctx, &sstable);
}

static bool ends_with(const char *file, const char *end)
{
    size_t len = strlen(file), end_len = strlen(end);

    return len > end_len && strcmp(file + len - end_len, end) == 0;
}

/* Reports a file that looks like an SSTable's but has an unknown name, for instance of a later format. Its keys are
 * unknown, so it counts as much as a directory that cannot be read. */
static void name_unknown(const struct sstable_walk *walk, const char *directory, const struct names *names,
                         const char *file)
{
    char path[PATH_SIZE], known[PATH_SIZE], data[PATH_SIZE];
    struct sstable_name name;
    bool of_filter = ends_with(file, "-Filter.db");

    if (!of_filter && !ends_with(file, "-Data.db"))
        return;
    snprintf(data, sizeof(data), "%.*s-Data.db", (int)(strlen(file) - strlen("-Filter.db")), file);
    if (of_filter && has_name(names, data))
        return;
    /* whether it would be wanted here under a known name */
    if (snprintf(known, sizeof(known), "%s/nb-1-big-Data.db", directory) < (int)sizeof(known) &&
        sstable_name_parse(known, &name, NULL) == SSTABLE_OK && is_wanted(walk, &name) &&
        snprintf(path, sizeof(path), "%s/%s", directory, file) < (int)sizeof(path))
        walk->on_error(walk->ctx, path, "not the name of an SSTable of a known format; skipped");
}

/* Passes on files that are not among the names `before`. Returns whether there were any. */
static bool pass_files(const struct sstable_walk *walk, const char *directory, const struct names *names,
                       const struct names *before)
{
    char data[PATH_SIZE];
    bool any = false;

    for (int i = 0; i < names->n; i++) {
        struct sstable_name name;
        const char *file = names->items[i]->d_name;
        if (has_name(before, file))
            continue;
        if (sstable_name_parse(file, &name, NULL) != SSTABLE_OK) {
            name_unknown(walk, directory, names, file);
            continue;
        }
        bool first = component_is(&name, "Data.db");
        if (component_is(&name, "Filter.db")) {
            sstable_sibling(file, &name, "Data.db", data, sizeof(data));
            first = !has_name(names, data);
        }
        if (first)
            pass_on(walk, directory, names, file);
        any = any || first;
    }
    return any;
}

static int walk_directory(const struct sstable_walk *walk, const char *directory, unsigned depth, bool maybe);

static int pass_directories(const struct sstable_walk *walk, const char *directory, const struct names *names,
                            unsigned depth)
{
    const struct fsops *fs = fsops_posix();
    char path[PATH_SIZE];
    int rc = 0;

    for (int i = 0; i < names->n && rc == 0; i++) {
        struct sstable_name name;
        struct fs_stat st;
        const char *entry = names->items[i]->d_name;
        if (sstable_name_parse(entry, &name, NULL) == SSTABLE_OK && strchr(entry, '.'))
            continue; /* a component's file */
        if (snprintf(path, sizeof(path), "%s/%s", directory, entry) >= (int)sizeof(path))
            walk->on_error(walk->ctx, directory, strerror(ENAMETOOLONG));
        else if (fs->stat(fs->ctx, path, &st) == 0 && st.kind != FS_FILE)
            rc = walk_directory(walk, path, depth + 1, st.kind == FS_OTHER);
    }
    return rc;
}

/* A running database may replace SSTables. So the directory is read again: the keys of an SSTable that is gone are in
 * others, which existed before it went. */
static int pass_all_files(const struct sstable_walk *walk, const char *directory, struct names *names)
{
    struct names before = {NULL, 0};
    int rc = 0;

    while (pass_files(walk, directory, names, &before) && rc == 0) {
        names_deinit(&before);
        before = *names;
        *names = (struct names){NULL, 0};
        rc = list(directory, names);
    }
    names_deinit(&before);
    return rc;
}

/* Whether to ignore the error of this directory. `maybe`: it may be a symbolic link to a directory, or another file.
 * Below the first directory it may also have been removed since its name was read. */
static bool is_nothing(int rc, unsigned depth, bool maybe)
{
    return (rc == -ENOENT && depth > 0) || (rc == -ENOTDIR && maybe);
}

static int walk_directory(const struct sstable_walk *walk, const char *directory, unsigned depth, bool maybe)
{
    struct names names = {NULL, 0};
    int rc = depth > WALK_DEPTH ? -ELOOP : list(directory, &names);

    if (rc == 0)
        rc = pass_all_files(walk, directory, &names);
    if (rc != 0 && rc != -ENOMEM) {
        if (!is_nothing(rc, depth, maybe))
            walk->on_error(walk->ctx, directory, strerror(-rc));
        rc = 0;
    }
    if (rc == 0)
        rc = pass_directories(walk, directory, &names, depth);
    names_deinit(&names);
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
    return walk_directory(walk, plain, 0, false);
}
