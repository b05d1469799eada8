/* sim_world: the clients of one life of a simulated daemon: they check what it has after its start, then change and ask
 * as the seed says, until it is killed, loses power, or is stopped.
 *
 * Thread: the first thread of a run of the schedule. */
#ifndef BLOOMERY_SIM_WORLD_H
#define BLOOMERY_SIM_WORLD_H

#include <stdbool.h>
#include <stdint.h>

#include "sim_model.h"

enum sim_end { END_KILL, END_POWER, END_STOP };
enum sim_policy { POLICY_ALWAYS, POLICY_EVERYSEC, POLICY_NO, POLICY_NO_LOG };

/* The life, and at its end what the next one is checked by. In the arena. */
struct sim_life {
    uint64_t seed;
    enum sim_end end;
    enum sim_policy policy;
    unsigned workers, switch_in, branch_in, point_ns, nsteps;
    uint64_t now_ns;       /* at its beginning, and at its end */
    uint64_t end_after;    /* points from the first command on; 0: at the end of the steps */
    uint64_t end_at_start; /* points from the start on: the kill comes before it serves; 0: none */
    unsigned disk_fails_in, memory_fails_in;
    bool fails_at_start; /* the disk does so while it starts, too; the start may be refused */
    bool lazy, rules;    /* settings: bits are loaded when they are needed; saves by rules */
    bool first;
    bool shown; /* each command and reply is printed */
    struct model *model;
    struct model_bounds names[MODEL_CLIENTS][MODEL_NAMES], shared[MODEL_SHARED]; /* of the life before */
    uint64_t trace, points, faults;
    bool over; /* it came to its end */
};

/* Runs the life, and ends the process. */
__attribute__((noreturn)) void sim_live(struct sim_life *life);

#endif
