#include "sstable_walk.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fsops.h"

#define PATH_SIZE 4096

struct names {
    char **items;
    size_t n, size;
};

static void names_deinit(struct names *names)
{
    for (size_t i = 0; i < names->n; i++)
        free(names->items[i]);
    free(names->items);
}

static int add_name(void *ctx, const char *name)
{
    struct names *names = ctx;

    if (names->n == names->size) {
        size_t size = names->size ? 2 * names->size : 64;
        char **items = realloc(names->items, size * sizeof(*items));
        if (!items)
            return -ENOMEM;
        names->items = items;
        names->size = size;
    }
    names->items[names->n] = strdup(name);
    return names->items[names->n++] ? 0 : -ENOMEM;
}

static int compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool has_name(const struct names *names, const char *name)
{
    return bsearch(&name, names->items, names->n, sizeof(*names->items), compare) != NULL;
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

/* Passes on the SSTable of which `file` is the Data.db, or the Filter.db without a Data.db. */
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

static void pass_files(const struct sstable_walk *walk, const char *directory, const struct names *names)
{
    char data[PATH_SIZE];

    for (size_t i = 0; i < names->n; i++) {
        struct sstable_name name;
        const char *file = names->items[i];
        if (sstable_name_parse(file, &name, NULL) != SSTABLE_OK)
            continue;
        bool first = component_is(&name, "Data.db");
        if (component_is(&name, "Filter.db")) {
            sstable_sibling(file, &name, "Data.db", data, sizeof(data));
            first = !has_name(names, data);
        }
        if (first)
            pass_on(walk, directory, names, file);
    }
}

static int walk_directory(const struct sstable_walk *walk, const char *directory, unsigned depth, bool maybe);

static int pass_directories(const struct sstable_walk *walk, const char *directory, const struct names *names,
                            unsigned depth)
{
    const struct fsops *fs = fsops_posix();
    char path[PATH_SIZE];
    int rc = 0;

    for (size_t i = 0; i < names->n && rc == 0; i++) {
        struct sstable_name name;
        struct fs_stat st;
        if (sstable_name_parse(names->items[i], &name, NULL) == SSTABLE_OK && strchr(names->items[i], '.'))
            continue; /* a component's file */
        if (snprintf(path, sizeof(path), "%s/%s", directory, names->items[i]) >= (int)sizeof(path))
            walk->on_error(walk->ctx, directory, strerror(ENAMETOOLONG));
        else if (fs->stat(fs->ctx, path, &st) == 0 && st.kind != FS_FILE)
            rc = walk_directory(walk, path, depth + 1, st.kind == FS_OTHER);
    }
    return rc;
}

/* `maybe`: it may be a symbolic link to a directory, or something else that is of no interest. */
static int walk_directory(const struct sstable_walk *walk, const char *directory, unsigned depth, bool maybe)
{
    const struct fsops *fs = fsops_posix();
    struct names names = {NULL, 0, 0};
    int rc = depth > WALK_DEPTH ? -ELOOP : fs->list(fs->ctx, directory, add_name, &names);

    if (rc == 0) {
        if (names.n > 0)
            qsort(names.items, names.n, sizeof(*names.items), compare);
        pass_files(walk, directory, &names);
        rc = pass_directories(walk, directory, &names, depth);
    } else if (rc != -ENOMEM) {
        if (!maybe || (rc != -ENOTDIR && rc != -ENOENT))
            walk->on_error(walk->ctx, directory, strerror(-rc));
        rc = 0;
    }
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
