/* clock: the only reader of the system's clocks. Monotonic clocks count from an unspecified moment, those of `unix`
 * from the epoch. Inline, as commands are timed with them. Thread: any. */
#pragma once

#include <stdint.h>
#include <time.h>

static inline struct timespec clock_read(clockid_t id) /* internal */
{
    struct timespec now;
    clock_gettime(id, &now);
    return now;
}

static inline int64_t clock_read_ms(clockid_t id) /* internal */
{
    struct timespec now = clock_read(id);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static inline int64_t clock_read_us(clockid_t id) /* internal */
{
    struct timespec now = clock_read(id);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static inline uint64_t clock_read_ns(clockid_t id) /* internal */
{
    struct timespec now = clock_read(id);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* Monotonic. */
static inline int64_t clock_ms(void)
{
    return clock_read_ms(CLOCK_MONOTONIC);
}

static inline int64_t clock_us(void)
{
    return clock_read_us(CLOCK_MONOTONIC);
}

static inline uint64_t clock_ns(void)
{
    return clock_read_ns(CLOCK_MONOTONIC);
}

/* Monotonic, and continues while the machine sleeps. */
static inline int64_t clock_boot_us(void)
{
    return clock_read_us(CLOCK_BOOTTIME);
}

/* Processor time of the calling thread. */
static inline uint64_t clock_thread_ns(void)
{
    return clock_read_ns(CLOCK_THREAD_CPUTIME_ID);
}

/* Since the epoch. */
static inline int64_t clock_unix_ms(void)
{
    return clock_read_ms(CLOCK_REALTIME);
}

static inline int64_t clock_unix_us(void)
{
    return clock_read_us(CLOCK_REALTIME);
}

static inline uint64_t clock_unix_ns(void)
{
    return clock_read_ns(CLOCK_REALTIME);
}

/* Up to a tick of the kernel (some milliseconds) behind, at a tenth of the cost. */
static inline int64_t clock_coarse_ms(void)
{
    return clock_read_ms(CLOCK_MONOTONIC_COARSE);
}

static inline int64_t clock_coarse_unix_ms(void)
{
    return clock_read_ms(CLOCK_REALTIME_COARSE);
}
