/* latency: the latency monitor. Per kind of event it keeps the time and duration of events longer than
 * `latency-monitor-threshold`: the last LATENCY_SAMPLES samples, at most one a second (its worst). Samples are rare.
 *
 * Thread: any. */
#ifndef BLOOMERY_LATENCY_H
#define BLOOMERY_LATENCY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lock.h"

#define LATENCY_SAMPLES    160
#define LATENCY_MAX_EVENTS 16 /* kinds of events; only the code names them */

struct latency; /* one per server */

struct latency_sample {
    int64_t time_sec; /* since the epoch */
    int64_t ms;
};

struct latency_event {
    const char *name;
    size_t nsamples;
    int64_t max_ms;                                 /* since the last reset, dropped samples included */
    struct latency_sample samples[LATENCY_SAMPLES]; /* oldest first */
};

/* 0 or -ENOMEM. `lock` guards the samples; borrowed, and may guard other things, too. */
int latency_create(struct latency **latency_out, struct lock *lock);
void latency_destroy(struct latency *latency); /* NULL is fine */

/* Takes a sample. `event` is a constant of the program ("command"). A kind beyond LATENCY_MAX_EVENTS is a bug. */
void latency_add(struct latency *latency, const char *event, int64_t time_sec, int64_t ms);

/* Copies the event number `index`; false past the last. */
bool latency_get(struct latency *latency, size_t index, struct latency_event *event_out);

/* The event of this name, ASCII case ignored; false when it has no samples. */
bool latency_find(struct latency *latency, const char *name, size_t len, struct latency_event *event_out);

/* Drops the samples of the event with that name, or of all events when name is NULL. Returns the number of events that
 * had samples. */
size_t latency_reset(struct latency *latency, const char *name, size_t len);

#endif
