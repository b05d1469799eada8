/* fault_fs: a table of file operations for tests, in two parts that stack.
 *
 * fault_fs passes operations on to another table and lets chosen ones fail: the n-th, or from the n-th on (the process
 * is dead from there).
 *
 * crash_fs is a file system in memory that knows what a crash may leave of it: what has been synced stays; of what has
 * not, each write and each change of a name may be there or not, in any combination, and a write may be there in part.
 *
 * One thread at a time. Both end the program when they are used wrongly. */
#ifndef BLOOMERY_TEST_FAULT_FS_H
#define BLOOMERY_TEST_FAULT_FS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fsops.h"

/* ---- faults ---- */

enum fault_kind {
    FAULT_ERROR, /* the operation is not done and returns `error` */
    FAULT_SHORT, /* writes take half of what they are given; other operations are not affected */
    FAULT_LATE,  /* the operation is done and yet returns `error` (a rename, a sync) */
    FAULT_FULL,  /* from this operation on nothing can be written or made; what there is can be read and removed */
};

struct fault_fs {
    struct fsops ops; /* pass &fault.ops on */
    const struct fsops *below;
    size_t calls;      /* operations so far; close and size are not counted: what they return changes nothing */
    size_t fail_at;    /* 0: never; 1: the next */
    bool from_then_on; /* all later ones fail as well */
    enum fault_kind kind;
    int error; /* negative errno */
    bool hit;
    const char *hit_op;  /* what was hit */
    bool refuse_direct;  /* FS_DIRECT is -EINVAL, as on a file system that cannot */
    bool refuse_link;    /* link is -EPERM, as on a file system that cannot */
    const char *stuck;   /* what has this in its path cannot be removed, renamed or replaced: -EPERM; NULL: nothing */
    const char *mounted; /* what has this in its path is on another file system */
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

/* A sync of the open file has failed: what was not synced then may never be, whatever later syncs say. */
void crash_fs_sync_failed(struct crash_fs *fs, int fd);

enum crash_mode {
    CRASH_DROP_ALL,   /* only what was synced */
    CRASH_KEEP_ALL,   /* everything that was done (kill -9) */
    CRASH_RANDOM,     /* any subset, writes torn, as `seed` decides */
    CRASH_NAMES_ONLY, /* changes of names, no data that was not synced: what a journal of metadata does */
    CRASH_DATA_ONLY,
};

/* A new file system in the state after a crash, everything in it synced; locks are gone. `fs` stays as it is, so that
 * many crashes can be tried from one moment. */
struct crash_fs *crash_fs_after(const struct crash_fs *fs, enum crash_mode mode, uint64_t seed);

#endif
