/* power: a daemon whose machine loses power. The process is killed, and its data directory gets a state that the disk
 * may have then (disk.h, disk_trace.h). Zero-initialise. Thread: one at a time.
 *
 *   power_attach(&power, &daemon);      before the first start
 *   daemon_start(&daemon, args);        ... daemon_kill(&daemon);
 *   power_fail(&power, &daemon, seed);  daemon_restart(&daemon); and so on
 *   power_detach(&power);               also in .fini; idempotent */
#pragma once

#include "daemon.h"
#include "disk_trace.h"

struct power {
    char path[400];
    struct crash_fs *left; /* the disk at the last start */
    char what[64];         /* the last event, for messages */
};

void power_attach(struct power *power, struct daemon *daemon);
void power_detach(struct power *power);

/* Waits until the record of a launched daemon begins: slow machines and emulators may take longer to load the daemon
 * than the test lets it live. */
void power_await(const struct power *power);

/* Returns the record since the last start, for power_end(). Later starts are not recorded. */
struct disk_trace *power_trace(struct power *power);

/* Lets the power fail after the played operations: the data directory gets a state that the disk may have then, chosen
 * by the seed. The caller destroys the result. */
struct crash_fs *power_image(struct power *power, const struct disk_trace *trace, const struct daemon *daemon,
                             uint64_t seed);

/* Lets the power fail after the last operation; the next start of the daemon is recorded again. */
void power_end(struct power *power, struct disk_trace *trace, struct daemon *daemon, uint64_t seed);

/* Both in one. */
void power_fail(struct power *power, struct daemon *daemon, uint64_t seed);

/* Only the process has ended: the disk has all its operations. (A directory that the process left itself may be one
 * operation ahead of the record.) */
void power_stays(struct power *power, struct daemon *daemon);
