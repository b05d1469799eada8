/* crash_names: the tables of names of crash_fs. A name is (directory, text) and represents an inode. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define CRASH_ROOT      0 /* the inode of the working directory */
#define CRASH_MAX_NAMES 2048

struct name {
    int dir; /* inode */
    char *text;
    int inode;
};

struct names {
    struct name at[CRASH_MAX_NAMES];
    size_t count;
};

/* A place for a name; `text` NULL: none. */
struct place {
    int dir;
    char *text;
};

/* Sets `to` to an inode (a new name, a link), removes `from` (unlink), or both (a rename). */
struct change {
    struct place from;
    struct place to;
    int inode;
};

/* Ends the program if the condition fails: the model has a limit, or was used wrongly. */
void crash_demand(bool ok, const char *what);

/* NULL of NULL. */
char *crash_copy_text(const char *text);

/* The directory and the last part of a path. False when a directory on the way does not exist. The text is to be freed.
 * Of "..", which is used to sync the parent of the data directory, there is only "x/..": the working directory. */
bool names_resolve(const struct names *names, const char *path, struct place *out);

struct name *names_find(const struct names *names, const char *path); /* NULL: none */

/* The directory that the path is in exists. */
bool names_has_dir(const struct names *names, const char *path);

/* The name represents the inode from now on. */
void names_set(struct names *names, int dir, const char *text, int inode);

/* A change is void if an earlier change that it needs is not on disk. A name may be on disk before that of its
 * directory is: it is invisible until then. */
void names_apply(struct names *names, const struct change *change);

void change_deinit(struct change *change);
