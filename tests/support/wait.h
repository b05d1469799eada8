/* wait: waits for events that certainly happen. A test never waits for a time: all durations depend on the other load
 * of the machine. */
#pragma once

#include <criterion/criterion.h>
#include <poll.h>
#include <time.h>

#define WAIT_PATIENCE_S 300 /* sanitizers are slow on a loaded machine */

/* Seconds of a monotonic clock. */
static inline double wait_clock(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Evaluates the condition again and again until it holds; fails the test if it does not. */
#define wait_until(condition)                                              \
    for (double wait_began = wait_clock(); !(condition); poll(NULL, 0, 2)) \
    cr_assert_lt(wait_clock(), wait_began + WAIT_PATIENCE_S, "after %d s still not: %s", WAIT_PATIENCE_S, #condition)
