/* power: a daemon whose machine loses its power: the process is killed, and its data directory becomes what the disk
 * may have of it (disk.h, disk_trace.h). Zero-initialise. Thread: one at a time.
 *
 *   power_attach(&power, &daemon);      before the first start
 *   daemon_start(&daemon, args);        ... daemon_kill(&daemon);
 *   power_fail(&power, &daemon, seed);  daemon_restart(&daemon); and so on
 *   power_detach(&power);               also in .fini; idempotent */
#ifndef BLOOMERY_TEST_POWER_H
#define BLOOMERY_TEST_POWER_H

#include "daemon.h"
#include "disk_trace.h"

struct power {
    char path[400];
    struct crash_fs *left; /* what the disk had at the last start */
    char what[64];         /* what was done to it last, for messages */
};

void power_attach(struct power *power, struct daemon *daemon);
void power_detach(struct power *power);

/* Until the record of a daemon that has only been launched begins: slow machines, and emulators, take longer to load it
 * than it is left to live. */
void power_await(const struct power *power);

/* The record since the last start; daemons that are started from now on are not recorded. To be given to power_end().
 */
struct disk_trace *power_trace(struct power *power);

/* The power fails after the operations that have been played: some state that the disk may have then, as the seed says,
 * becomes the data directory. The result is to be destroyed. */
struct crash_fs *power_image(struct power *power, const struct disk_trace *trace, const struct daemon *daemon,
                             uint64_t seed);

/* The power fails after the last operation; the next start of the daemon is recorded again. */
void power_end(struct power *power, struct disk_trace *trace, struct daemon *daemon, uint64_t seed);

/* Both in one. */
void power_fail(struct power *power, struct daemon *daemon, uint64_t seed);

/* The process alone has ended: all that it did is there. (A directory that it has left itself may be one operation
 * ahead of the record.) */
void power_stays(struct power *power, struct daemon *daemon);

#endif
