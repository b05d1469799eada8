/* latency: the latency monitor. Remembers, per kind of event, when one took longer than `latency-monitor-threshold` and how
 * long: at most one sample a second (the worst of it), the last LATENCY_SAMPLES of them. Sampling is rare by nature, so one
 * mutex guards everything.
 *
 * Thread: any. */
#ifndef BLOOMERY_LATENCY_H
#define BLOOMERY_LATENCY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"

#define LATENCY_SAMPLES    160
#define LATENCY_MAX_EVENTS 16 /* kinds of events; they are named in the code, by nobody else */

struct latency; /* one per server */

struct latency_sample {
    int64_t time_sec; /* since the epoch */
    int64_t ms;
};

struct latency_event {
    const char *name;
    size_t nsamples;
    int64_t max_ms; /* since the last reset, also of samples that are gone */
    struct latency_sample samples[LATENCY_SAMPLES]; /* oldest first */
};

int latency_create(struct latency **latency_out); /* 0 or -ENOMEM */
void latency_destroy(struct latency *latency);    /* NULL is fine */

/* Takes a sample. `event` is a constant of the program ("command"). A kind beyond LATENCY_MAX_EVENTS is a bug. */
void latency_add(struct latency *latency, const char *event, int64_t time_sec, int64_t ms);

/* Copies what is known of the event number `index`; false past the last. */
bool latency_get(struct latency *latency, size_t index, struct latency_event *event_out);

/* The same by name, ASCII case ignored; false when it has no samples. */
bool latency_find(struct latency *latency, const char *name, size_t len, struct latency_event *event_out);

/* Forgets the samples of the event with that name, of all when name is NULL; the number of events that had some. */
size_t latency_reset(struct latency *latency, const char *name, size_t len);

/* Draws the samples as columns of text with their ages below, at most 80 columns a row. Appends to `out`. */
void latency_draw(const struct latency_event *event, int64_t now_sec, struct buf *out);

#endif
