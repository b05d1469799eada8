/* sim_world: the clients of one life of a simulated daemon. They check its filters after the start, then send the
 * changes and queries of the seed until the daemon is killed, loses power, or is stopped.
 *
 * Thread: the first thread of a run of the schedule. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "sim_model.h"

enum sim_end { END_KILL, END_POWER, END_STOP };
enum sim_policy { POLICY_ALWAYS, POLICY_EVERYSEC, POLICY_NO, POLICY_NO_LOG };

enum sim_memory { MEMORY_FREE, MEMORY_REFUSES, MEMORY_RELOADS, MEMORY_MAYBE }; /* at a limit of memory */

/* A life, and at its end the bounds for the next one. In the arena. */
struct sim_life {
    uint64_t seed;
    enum sim_end end;
    enum sim_policy policy;
    unsigned workers, switch_in, branch_in, point_ns, nsteps;
    uint64_t now_ns;       /* at its beginning, and at its end */
    int64_t day_ms;        /* the time of day is so far ahead of it */
    uint64_t boot_ns;      /* when the machine has booted */
    bool booted;           /* no daemon has served since */
    bool forward, back;    /* the time of day has been set since */
    bool sleeps;           /* time for windows */
    uint64_t end_after;    /* points from the first command on; 0: at the end of the steps */
    uint64_t end_at_start; /* points from the start on: a kill before the daemon serves; 0: none */
    unsigned disk_fails_in, memory_fails_in;
    bool fails_at_start; /* the disk fails during the start, too, which may be refused */
    bool lazy, rules;    /* settings: bits are loaded at the first use; saves by rules */
    bool sstables;       /* a simulated Cassandra writes beside it (sim_sstables.h) */
    enum sim_memory memory;
    uint64_t memory_bytes; /* of `memory`, if it has a limit */
    uint64_t evictions;
    bool first, last;
    bool shown; /* prints each command and reply */
    struct model *model;
    struct model_filter names[MODEL_CLIENTS][MODEL_NAMES], shared[MODEL_SHARED]; /* of the life before */
    enum model_kept kept;
    uint64_t trace, points, faults;
    bool over; /* the life has reached its end */
};

/* Runs the life, and ends the process. */
__attribute__((noreturn)) void sim_live(struct sim_life *life);
