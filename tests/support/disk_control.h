/* disk_control: the test's end of disk.h. The daemons (and nothing else) that are started between disk_attach() and
 * disk_detach() have the disk. Thread: one at a time; the fields of `disk` at any time from any. */
#pragma once

#include <stdbool.h>

#include "daemon.h"
#include "disk.h"

/* NULL while none is attached. Idempotent both. */
extern struct disk *disk;
void disk_attach(void);
void disk_detach(void);

/* DAEMON_SUITE_IDLE() whose tests may attach the disk. */
#define DISK_SUITE(variable, suite)   \
    static struct daemon variable;    \
    static void suite##_discard(void) \
    {                                 \
        daemon_discard(&(variable));  \
        disk_detach();                \
    }                                 \
    TestSuite(suite, .fini = suite##_discard, .timeout = 3000)

/* All well again, except for the trace. */
void disk_mend(void);

/* The `in`-th operation from now on will fail. */
void disk_fail(long in, enum disk_fault fault, int error);

/* The same of those operations that `hit` would show like this. */
void disk_fail_only(const char *operation, long in, enum disk_fault fault, int error);

/* Operations of daemons that are started from now on are recorded in this file, which is emptied; NULL: they are not.
 */
void disk_record_in(const char *path);
