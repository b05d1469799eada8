#include "crash_names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void crash_demand(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "crash_fs: %s\n", what);
    abort();
}

char *crash_copy_text(const char *text)
{
    char *copy = text ? strdup(text) : NULL;

    crash_demand(!text || copy, "out of memory");
    return copy;
}

static struct name *find_in(const struct names *names, int dir, const char *text)
{
    for (size_t i = 0; i < names->count; i++) {
        if (names->at[i].dir == dir && strcmp(names->at[i].text, text) == 0)
            return (struct name *)&names->at[i];
    }
    return NULL;
}

bool names_resolve(const struct names *names, const char *path, struct place *out)
{
    char *copy = crash_copy_text(path);
    int dir = CRASH_ROOT;
    char *part = copy;

    for (char *slash; (slash = strchr(part, '/')); part = slash + 1) {
        *slash = '\0';
        const struct name *name = find_in(names, dir, part);
        if (!name) {
            free(copy);
            return false;
        }
        dir = name->inode;
    }
    *out = (struct place){dir, crash_copy_text(part)};
    free(copy);
    return true;
}

struct name *names_find(const struct names *names, const char *path)
{
    struct place place;

    if (!names_resolve(names, path, &place))
        return NULL;
    struct name *name = find_in(names, place.dir, place.text);
    free(place.text);
    return name;
}

bool names_has_dir(const struct names *names, const char *path)
{
    struct place place;
    bool has = names_resolve(names, path, &place);

    if (has)
        free(place.text);
    return has;
}

static void remove_name(struct names *names, struct name *name)
{
    char *freed = name->text;

    *name = names->at[--names->count];
    free(freed);
}

void names_set(struct names *names, int dir, const char *text, int inode)
{
    struct name *name = find_in(names, dir, text);

    if (!name) {
        crash_demand(names->count < CRASH_MAX_NAMES, "too many names");
        name = &names->at[names->count++];
        *name = (struct name){.dir = dir, .text = crash_copy_text(text)};
    }
    name->inode = inode;
}

void names_apply(struct names *names, const struct change *change)
{
    if (change->from.text) {
        struct name *from = find_in(names, change->from.dir, change->from.text);
        if (!from || from->inode != change->inode)
            return;
        remove_name(names, from);
    }
    if (change->to.text)
        names_set(names, change->to.dir, change->to.text, change->inode);
}

void change_deinit(struct change *change)
{
    free(change->from.text);
    free(change->to.text);
}
