#include "latency.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "check.h"

struct latency {
    struct lock *lock;
    size_t nevents;
    struct latency_event events[LATENCY_MAX_EVENTS]; /* nsamples 0: reset */
};

int latency_create(struct latency **latency_out, struct lock *lock)
{
    struct latency *latency = calloc(1, sizeof(*latency));

    if (!latency)
        return -ENOMEM;
    latency->lock = lock;
    *latency_out = latency;
    return 0;
}

void latency_destroy(struct latency *latency)
{
    free(latency);
}

static bool is_event(const struct latency_event *event, const char *name, size_t len)
{
    return strlen(event->name) == len && strncasecmp(event->name, name, len) == 0;
}

static struct latency_event *find(struct latency *latency, const char *name, size_t len)
{
    for (size_t i = 0; i < latency->nevents; i++) {
        if (is_event(&latency->events[i], name, len))
            return &latency->events[i];
    }
    return NULL;
}

static void add_sample(struct latency_event *event, struct latency_sample sample)
{
    struct latency_sample *last = event->nsamples > 0 ? &event->samples[event->nsamples - 1] : NULL;

    if (sample.ms > event->max_ms)
        event->max_ms = sample.ms;
    if (last && last->time_sec == sample.time_sec) {
        if (sample.ms > last->ms)
            last->ms = sample.ms;
        return;
    }
    if (event->nsamples == LATENCY_SAMPLES) {
        memmove(event->samples, event->samples + 1, (LATENCY_SAMPLES - 1) * sizeof(event->samples[0]));
        event->nsamples--;
    }
    event->samples[event->nsamples++] = sample;
}

void latency_add(struct latency *latency, const char *event, int64_t time_sec, int64_t ms)
{
    lock_take(latency->lock);
    struct latency_event *known = find(latency, event, strlen(event));
    if (!known) {
        CHECK(latency->nevents < LATENCY_MAX_EVENTS);
        known = &latency->events[latency->nevents++];
        known->name = event;
    }
    add_sample(known, (struct latency_sample){time_sec, ms});
    lock_give(latency->lock);
}

bool latency_get(struct latency *latency, size_t index, struct latency_event *event_out)
{
    size_t seen = 0;
    bool found = false;

    lock_take(latency->lock);
    for (size_t i = 0; i < latency->nevents && !found; i++) {
        if (latency->events[i].nsamples == 0)
            continue;
        found = seen++ == index;
        if (found)
            *event_out = latency->events[i];
    }
    lock_give(latency->lock);
    return found;
}

bool latency_find(struct latency *latency, const char *name, size_t len, struct latency_event *event_out)
{
    lock_take(latency->lock);
    const struct latency_event *event = find(latency, name, len);
    bool found = event && event->nsamples > 0;
    if (found)
        *event_out = *event;
    lock_give(latency->lock);
    return found;
}

size_t latency_reset(struct latency *latency, const char *name, size_t len)
{
    size_t n = 0;

    lock_take(latency->lock);
    for (size_t i = 0; i < latency->nevents; i++) {
        struct latency_event *event = &latency->events[i];
        if (name && !is_event(event, name, len))
            continue;
        n += event->nsamples > 0;
        event->nsamples = 0;
        event->max_ms = 0;
    }
    lock_give(latency->lock);
    return n;
}
