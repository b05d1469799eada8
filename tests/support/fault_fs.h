/* fault_fs: a table of file operations for tests, in two parts that stack.
 *
 * fault_fs passes operations on to another table and makes chosen ones fail: the n-th, or all from the n-th on (as if
 * the process were dead).
 *
 * crash_fs is a file system in memory that simulates crashes. Synced data stay. Each unsynced write and change of a
 * name may be there or not, in any combination, and a write may be there in part.
 *
 * One thread at a time. Wrong use of either ends the program. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fsops.h"

/* ---- faults ---- */

enum fault_kind {
    FAULT_ERROR, /* the operation is not done and returns `error` */
    FAULT_SHORT, /* writes take half of their bytes; other operations are not affected */
    FAULT_LATE,  /* the operation (a rename, a sync) is done, but returns `error` */
    FAULT_FULL,  /* this and all later writes and creations fail; reads and removals work */
};

struct fault_fs {
    struct fsops ops; /* pass &fault.ops on */
    const struct fsops *below;
    size_t calls;      /* operations so far, without close and size, whose results are irrelevant */
    size_t fail_at;    /* 0: never; 1: the next */
    bool from_then_on; /* all later ones fail as well */
    enum fault_kind kind;
    int error; /* negative errno */
    bool hit;
    const char *hit_op;  /* the operation that failed */
    bool refuse_direct;  /* FS_DIRECT is -EINVAL, as on a file system without it */
    const char *stuck;   /* files with this in their paths cannot be removed, renamed or replaced: -EPERM; NULL: none */
    const char *mounted; /* files with this in their paths are on another file system */
};

void fault_fs_init(struct fault_fs *fault, const struct fsops *below);

/* The `at`-th operation from now (1 is the next) will fail. */
void fault_fs_arm(struct fault_fs *fault, size_t at, enum fault_kind kind, int error, bool from_then_on);

/* ---- crashes ---- */

struct crash_fs;

struct crash_fs *crash_fs_create(void);
void crash_fs_destroy(struct crash_fs *fs);
const struct fsops *crash_fs_ops(struct crash_fs *fs);

/* One more descriptor of an open file. */
int crash_fs_dup(struct crash_fs *fs, int fd);

/* A sync of the open file has failed: data that were unsynced then may get lost, also after later syncs. */
void crash_fs_sync_failed(struct crash_fs *fs, int fd);

enum crash_mode {
    CRASH_DROP_ALL,   /* only synced data stay */
    CRASH_KEEP_ALL,   /* everything stays (kill -9) */
    CRASH_RANDOM,     /* any subset, writes torn, as `seed` decides */
    CRASH_NAMES_ONLY, /* changes of names stay, unsynced data do not: a journal of metadata */
    CRASH_DATA_ONLY,
};

/* crash_fs_after() with CRASH_KEEP_ALL, in place. */
void crash_fs_killed(struct crash_fs *fs);

/* A new file system in the state after a crash, with everything synced and without locks. `fs` is unchanged, so that a
 * test can try many crashes at one point. */
struct crash_fs *crash_fs_after(const struct crash_fs *fs, enum crash_mode mode, uint64_t seed);
