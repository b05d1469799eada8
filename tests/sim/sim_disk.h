/* sim_disk: the disk of a simulated daemon: crash_fs (fault_fs.h) in the arena, with files that can be mapped, faults
 * by chance, and an end after which nothing reaches it. All of the daemon's file operations come here, in place of
 * fsops_posix(), and each is a point of the schedule.
 *
 * Thread: those of a run of the schedule. */
#ifndef BLOOMERY_SIM_DISK_H
#define BLOOMERY_SIM_DISK_H

#include <stdbool.h>
#include <stdint.h>

#include "fault_fs.h"

/* An empty disk. The arena has been emptied. */
void sim_disk_create(void);

/* From here on no operation succeeds, and none changes anything: the end of a daemon that is still there. */
void sim_disk_freeze(void);

/* What the next daemon finds. */
void sim_disk_crash(enum crash_mode mode, uint64_t seed);

/* One in so many operations that could change or sync something fails; 0: none. */
void sim_disk_fail(unsigned one_in);
uint64_t sim_disk_failures(void); /* of this process */

#endif
