/* sim_disk: the disk of a simulated daemon: crash_fs (fault_fs.h) in the arena, with mapped files and random faults.
 * The daemon's file operations are these instead of fsops_posix(), and each is a point of the schedule.
 *
 * Thread: the threads of a run of the schedule. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "fault_fs.h"

/* An empty disk. The arena has been emptied. */
void sim_disk_create(void);

/* From here on every operation fails and changes nothing, for the end of a daemon that still runs. */
void sim_disk_freeze(void);

/* A crash: leaves one of the states that the next daemon may find. */
void sim_disk_crash(enum crash_mode mode, uint64_t seed);

/* One of this many operations that change or sync something fails; 0: none. */
void sim_disk_fail(unsigned one_in);
uint64_t sim_disk_failures(void); /* of this process */
