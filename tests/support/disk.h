/* disk: a disk that is slow, fails, or records its operations, for a whole process. disk_shim.c is preloaded
 * (LD_PRELOAD) between the daemon and the C library, and handles the data directory of a test's daemon
 * (<...>/bloomery-e2e-<...>/data). BLOOMERY_DISK names a file with this struct, which the test and the daemon map.
 *
 * While operations are recorded, no sync reaches the real disk: the record has the syncs (disk_trace.h), and they cost
 * a test nothing. */
#pragma once

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

enum disk_fault {
    DISK_ERROR, /* the operation is not done, and fails */
    DISK_SHORT, /* a write takes half of its bytes; other operations are not affected */
    DISK_TORN,  /* a write takes half of its bytes and fails; other operations fail */
    DISK_LATE,  /* the operation is done, but fails */
    DISK_FULL,  /* this and all later writes and creations fail, until `fail_in` is set to 0 */
};

struct disk {
    _Atomic int delay_ms;       /* duration of each sync of data */
    _Atomic int sync_error;     /* each sync of data in the log's directory fails with this errno */
    _Atomic int write_error;    /* each write there fails with this errno */
    _Atomic int writes_refused; /* number of these failures */
    _Atomic int hold_syncs;     /* a sync of data in the log's directory waits until this is 0 again */
    _Atomic int syncs_held;     /* number of waits so far */
    _Atomic int hold_reads;     /* a read there waits until this is 0 again */
    _Atomic int read_ms;        /* duration of each read there */
    _Atomic int hold_opens;     /* a directory "held" is opened only when this is 0 again */
    _Atomic int clock_s;        /* seconds by which the time of day is ahead */

    _Atomic size_t no_memory;   /* malloc() of this many bytes fails, except under a sanitizer; 0: none fails */
    _Atomic int memory_refused; /* number of these failures */

    _Atomic long calls;   /* operations so far */
    _Atomic long fail_in; /* 1: the next one fails; counts down to 0 (DISK_FULL: stays 1); 0: none */
    _Atomic int fault;    /* enum disk_fault */
    _Atomic int error;
    char only[120];   /* only these operations count, in the form of `hit`: "rename data/MANIFEST.new"; "": all */
    _Atomic int hits; /* operations that were made to fail */
    char hit[120];    /* the last of them */

    char trace[200]; /* file for the record of operations, read when the process starts; "": none */
};

/* One changing operation, in the order of execution; `bytes` bytes follow. */
struct disk_record {
    uint32_t kind; /* enum disk_op */
    int32_t fd;
    int32_t failed; /* for a sync only; other operations that fail are not recorded */
    uint32_t flags; /* of an open; of a write: 1 if it was all zeros, which do not follow */
    uint64_t offset;
    uint64_t len;    /* of a write or truncation */
    int64_t time_ns; /* CLOCK_MONOTONIC at its begin, after the end of all earlier ones */
    uint32_t bytes;  /* length of the following bytes: those written, or one or two relative paths, each with its NUL */
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
    DISK_UNLINK,
    DISK_RENAME,
    DISK_LINK,
};
