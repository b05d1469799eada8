/* The inside of sstables, shared by its sources. */
#ifndef BLOOMERY_SSTABLES_INTERNAL_H
#define BLOOMERY_SSTABLES_INTERNAL_H

#include <pthread.h>
#include <sys/types.h>

#include "bloom_filter.h"
#include "hash_table.h"
#include "sstables.h"

enum sstable_state { SSTABLE_UNREAD, SSTABLE_READ, SSTABLE_BROKEN };

/* What a file was when it was looked at: it has changed if any of this is different. */
struct sstable_stamp {
    uint64_t size, inode;
    int64_t mtime_ns;
};

struct watched_dir {
    struct hash_link by_path;
    struct watched_dir *next;
    char *path;
    int watch;    /* inotify's number; negative: not watched */
    dev_t device; /* of the directory that is watched */
    ino_t inode;
    bool changed;  /* since it was looked at */
    int error;     /* why it could not be read at the last look; 0: it could */
    unsigned seen; /* the last round that met it */
    struct sstable *files;
};

struct sstable {
    struct hash_link by_path, by_name;
    struct watched_dir *dir;
    struct sstable *next; /* in its directory */
    char *path;
    char *name;
    struct sstable_stamp stamp;
    enum bloom_variant variant;
    enum sstable_state state;
    bool retry;    /* broken for a reason that may pass without a change of the file: read again after a while */
    bool reading;  /* by a thread, without the lock */
    uint64_t id;   /* of its entry */
    unsigned seen; /* the last round that met it */
};

struct sstables {
    struct registry *registry;
    struct bloom_pool *pool;
    struct reclaimer *reclaimer;
    struct log *log;
    char *dirs;

    pthread_mutex_t lock; /* of all below; taken before the registry's */
    pthread_cond_t read;  /* a file has been read */
    struct hash_table files_by_path, files_by_name, dirs_by_path;
    struct watched_dir *first_dir;
    unsigned round;
    bool incomplete; /* a directory could not be read in this round */
    bool unwatched;  /* it has been logged that the kernel does not watch a directory */
    struct sstables_numbers numbers;

    pthread_t thread;
    bool started;
    int inotify; /* negative: there is none */
    int wake;    /* an eventfd: the end */
};

uint64_t sstables_hash(const char *text, size_t len);
struct sstable *sstables_by_name(struct sstables *s, struct slice name); /* under the lock */

/* Under the lock: makes the file's filter a placeholder with this reason, atomically. */
void sstables_set_placeholder(struct sstables *s, struct sstable *file, enum sstable_state state, const char *reason);

/* Goes through all directories, or those that have changed. */
void sstables_scan_all(struct sstables *s);
void sstables_scan_changed(struct sstables *s);
void sstables_forget_all(struct sstables *s);

#endif
