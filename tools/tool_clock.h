/* tool_clock: the tool's reader of the system's clocks, as server/base/clock.h is the daemon's. Monotonic clocks count
 * from an unspecified moment. Thread: any. */
#ifndef BLOOMERY_TOOL_CLOCK_H
#define BLOOMERY_TOOL_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline int64_t tool_clock_read_ns(clockid_t id) /* internal */
{
    struct timespec now;
    clock_gettime(id, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Monotonic. */
static inline int64_t tool_clock_ns(void)
{
    return tool_clock_read_ns(CLOCK_MONOTONIC);
}

static inline int64_t tool_clock_ms(void)
{
    return tool_clock_ns() / 1000000;
}

/* Since the epoch. */
static inline int64_t tool_clock_unix_ns(void)
{
    return tool_clock_read_ns(CLOCK_REALTIME);
}

/* Processor time of the calling thread. */
static inline int64_t tool_clock_thread_ns(void)
{
    return tool_clock_read_ns(CLOCK_THREAD_CPUTIME_ID);
}

#endif
