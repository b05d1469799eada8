/* disk: a disk that is slow, fails, or remembers what was done to it, for a whole process: disk_shim.c is preloaded
 * (LD_PRELOAD) and stands between the daemon and the C library, for the data directory of a test's daemon
 * (<...>/bloomery-e2e-<...>/data). BLOOMERY_DISK names a file with this struct, which the test and the daemon map both.
 *
 * While operations are recorded nothing is really synced: what a sync promises is what the record says (disk_trace.h),
 * and a test has as many syncs as it likes. */
#ifndef BLOOMERY_TEST_DISK_H
#define BLOOMERY_TEST_DISK_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

enum disk_fault {
    DISK_ERROR, /* the operation is not done, and fails */
    DISK_SHORT, /* a write takes half of what it is given; other operations are not affected */
    DISK_TORN,  /* a write takes half of what it is given, and fails; other operations fail */
    DISK_LATE,  /* the operation is done, and yet fails */
    DISK_FULL,  /* this operation and all later ones that write or make something fail, until `fail_in` is set to 0 */
};

struct disk {
    _Atomic int delay_ms;       /* each sync of data takes so long */
    _Atomic int sync_error;     /* each sync of data in the log's directory fails with this errno */
    _Atomic int write_error;    /* each write there fails with this errno */
    _Atomic int writes_refused; /* how often one has */
    _Atomic int hold_syncs;     /* a sync of data in the log's directory waits until this is 0 again */
    _Atomic int syncs_held;     /* how often one has begun to wait */
    _Atomic int hold_reads;     /* a read there waits until this is 0 again */
    _Atomic int read_ms;        /* each read there takes so long */
    _Atomic int no_watches;     /* the kernel watches no directories (inotify) */
    _Atomic int hold_watches;   /* a watch of a directory "held" is made only when this is 0 again */
    _Atomic int clock_s;        /* the time of day is this many seconds later than it is */

    _Atomic size_t
        no_memory; /* malloc() of this many bytes fails, but under a sanitizer, which has its own; 0: none does */
    _Atomic int memory_refused; /* how often it has */

    _Atomic long calls;   /* operations so far */
    _Atomic long fail_in; /* 1: the next one fails; counts down to 0 (DISK_FULL: stays 1); 0: none */
    _Atomic int fault;    /* enum disk_fault */
    _Atomic int error;
    char only[120];   /* those that count, as `hit` shows them: "rename data/MANIFEST.new"; "": all */
    _Atomic int hits; /* operations that this was done to */
    char hit[120];    /* the last of them */

    char trace[200]; /* file that operations are recorded in, read when the process starts; "": they are not */
};

/* One operation that changes something, in the order in which they took place; `bytes` bytes follow. */
struct disk_record {
    uint32_t kind; /* enum disk_op */
    int32_t fd;
    int32_t failed; /* a sync only; of the others those that fail are not recorded */
    uint32_t flags; /* of an open; of a write: 1 when it was all zeros, which do not follow */
    uint64_t offset;
    uint64_t len;    /* of a write or truncation */
    int64_t time_ns; /* CLOCK_MONOTONIC when it began; all before it had been done */
    uint32_t bytes;  /* what follows: the bytes written; or one or two paths, relative, each with its NUL */
    uint32_t pad;
};

enum disk_op {
    DISK_OPEN,
    DISK_CLOSE,
    DISK_WRITE,
    DISK_TRUNCATE,
    DISK_SYNC,
    DISK_SYNC_DIR,
    DISK_SYNC_ALL,
    DISK_MKDIR,
    DISK_RMDIR,
    DISK_UNLINK,
    DISK_RENAME,
    DISK_LINK,
};

#endif
