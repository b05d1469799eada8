/* The records of files and directories, shared by the sources of sstables. */
#pragma once

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "bloom_filter.h"
#include "hash_table.h"
#include "sstable_name.h"
#include "sstables.h"
#include "lock.h"

enum sstable_state { SSTABLE_UNREAD, SSTABLE_READ, SSTABLE_BROKEN };

/* The state of a file when it was checked: the file has changed if any of this is different. */
struct sstable_stamp {
    uint64_t size, inode;
    int64_t mtime_ns;
};

/* The directory that a path leads to, and when it changed; zeros: there is none. */
struct dir_stamp {
    dev_t device;
    ino_t inode;
    int64_t mtime_ns;
};

struct watched_dir {
    struct hash_link by_path;
    struct watched_dir *next;
    char *path;
    struct dir_stamp stamp; /* at the last look */
    bool fresh;             /* it had changed just before: another change may have left its time as it was */
    int error;              /* why it could not be read at the last look; 0: it could */
    char unseen[100];       /* why it, or something in it, could not be looked at, at the last look; empty: all could */
    bool was_unseen;        /* at the look before: it has been logged */
    uint64_t seen;          /* the last round that met it */
    struct sstable *files;
    struct watched_dir *root; /* the one of sstable-dir that it is below; of a root: itself */

    /* Of a root: the directory in which its files were last found; and whether it is lost. A root is lost if it is
     * unreadable, or if another directory without SSTables replaces it, such as an empty mount point. Then nothing
     * below it is gone. */
    dev_t home_device;
    ino_t home_inode;
    bool lost;
};

/* A filter under a name. Its file is there, or has gone and is not forgotten yet: until then it answers as before. */
struct sstable {
    struct hash_link by_path, by_name, by_base;
    struct watched_dir *dir;
    struct sstable *next; /* in its directory */
    char *path;
    char *name;
    size_t base_len; /* the part of `name` that other files may share */
    struct sstable_stamp stamp;
    enum bloom_variant variant;
    enum sstable_state state;
    bool retry;         /* broken for a reason that may pass without a change of the file: read again after a while */
    bool reading;       /* by a thread, without the lock */
    bool replaced;      /* the file has another record, under another name: this one counts as gone */
    bool retiring;      /* forgotten as soon as the questions end that have begun before */
    uint64_t id;        /* of its entry */
    uint64_t seen;      /* the last round that met it */
    int64_t missing_ms; /* when that was noticed: it has gone; 0: it is there */
};

/* Questions that are being answered, in two generations: `now` is that of new ones. */
struct sstable_questions {
    atomic_uint now;
    atomic_size_t running[2];
};

struct sstables_tables {
    struct hash_table by_path, by_name, by_base; /* of files */
    struct hash_table dirs;                      /* by path */
};

/* In the last round: */
struct sstables_rounds {
    bool unreadable; /* a directory could not be read */
    bool failed;     /* since it began: no memory, or no descriptor, for something that was there */
    bool changed;    /* something has come, changed or gone */
};

/* Directories that could not be searched completely; and one more for what there was no memory for. */
struct sstables_unseen {
    atomic_size_t n;
    struct errbuf why; /* of one of them; under the lock */
};

struct sstables_watcher {
    pthread_t thread;
    bool started;
    pthread_cond_t wake; /* the end */
    atomic_bool scanned; /* the first scan of all directories has ended */
    atomic_bool ending;  /* a look ends before all has been checked */
};

struct sstables {
    struct registry *registry;
    struct bloom_pool *pool;
    struct reclaimer *reclaimer;
    struct log *log;
    char *dirs;
    struct sstable_questions questions;
    _Atomic(uint64_t) changed_round; /* the last round that found a change */

    struct lock lock;    /* of all below; taken before the registry's */
    pthread_cond_t read; /* a file has been read */
    struct sstables_tables tables;
    struct watched_dir *first_dir;
    struct sstables_numbers numbers; /* `scans` is the number of the round */
    size_t missing;                  /* records whose file has gone */
    struct sstables_rounds rounds;
    bool retiring; /* records are */
    struct sstables_unseen unseen;

    struct sstables_watcher watcher;
};

uint64_t sstables_hash(const char *text, size_t len);
struct sstable *sstables_by_name(struct sstables *s, struct slice name); /* under the lock */

/* ---- records of files, under the lock (sstables_files.c) ---- */

struct sstable *sstables_by_path(const struct sstables *s, const char *path);

/* Gives the lock meanwhile: records are made and forgotten by the thread of the rounds alone. */
bool sstables_is_gone(struct sstables *s, const char *path);

/* Makes the file's filter a placeholder with this reason, atomically. */
void sstables_set_placeholder(struct sstables *s, struct sstable *file, enum sstable_state state, const char *reason);

/* A file has been met. `stamp`: with the inode 0 for an SSTable without a filter. */
void sstables_meet(struct sstables *s, struct watched_dir *dir, const char *path, const struct sstable_name *name,
                   const struct sstable_stamp *stamp);
void sstables_keep(struct sstables *s, struct sstable *file); /* it is there, and was not checked */
void sstables_miss(struct sstables *s, struct sstable *file); /* it is not, unless its root is lost */

/* Forgets the missing files, if this round has `proved` that all others are known, or those that are missing for long,
 * unless an earlier query still runs. */
void sstables_forget_removed(struct sstables *s, bool proved);
void sstables_forget(struct sstables *s, struct sstable *file); /* at once */

/* ---- directories, under the lock, which is given meanwhile (sstables_scan.c); thread: that of the rounds ---- */

void sstables_scan_all(struct sstables *s);

/* Whether a directory may have changed since the last look at it. */
bool sstables_have_changed(struct sstables *s);

/* At the end of a round: whether SSTables may be missed, how many directories could not be searched completely. */
void sstables_count_unseen(struct sstables *s);

void sstables_forget_all(struct sstables *s);
