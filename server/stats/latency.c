#include "latency.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "check.h"

struct latency {
    pthread_mutex_t lock;
    size_t nevents;
    struct latency_event events[LATENCY_MAX_EVENTS]; /* with nsamples 0: nothing is known of it any more */
};

int latency_create(struct latency **latency_out)
{
    struct latency *latency = calloc(1, sizeof(*latency));

    if (latency == NULL)
        return -ENOMEM;
    pthread_mutex_init(&latency->lock, NULL);
    *latency_out = latency;
    return 0;
}

void latency_destroy(struct latency *latency)
{
    if (latency == NULL)
        return;
    pthread_mutex_destroy(&latency->lock);
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
    if (last != NULL && last->time_sec == sample.time_sec) {
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
    pthread_mutex_lock(&latency->lock);
    struct latency_event *known = find(latency, event, strlen(event));
    if (known == NULL) {
        CHECK(latency->nevents < LATENCY_MAX_EVENTS);
        known = &latency->events[latency->nevents++];
        known->name = event;
    }
    add_sample(known, (struct latency_sample){time_sec, ms});
    pthread_mutex_unlock(&latency->lock);
}

bool latency_get(struct latency *latency, size_t index, struct latency_event *event_out)
{
    size_t seen = 0;
    bool found = false;

    pthread_mutex_lock(&latency->lock);
    for (size_t i = 0; i < latency->nevents && !found; i++) {
        if (latency->events[i].nsamples == 0)
            continue;
        found = seen++ == index;
        if (found)
            *event_out = latency->events[i];
    }
    pthread_mutex_unlock(&latency->lock);
    return found;
}

bool latency_find(struct latency *latency, const char *name, size_t len, struct latency_event *event_out)
{
    pthread_mutex_lock(&latency->lock);
    const struct latency_event *event = find(latency, name, len);
    bool found = event != NULL && event->nsamples > 0;
    if (found)
        *event_out = *event;
    pthread_mutex_unlock(&latency->lock);
    return found;
}

size_t latency_reset(struct latency *latency, const char *name, size_t len)
{
    size_t n = 0;

    pthread_mutex_lock(&latency->lock);
    for (size_t i = 0; i < latency->nevents; i++) {
        struct latency_event *event = &latency->events[i];
        if (name != NULL && !is_event(event, name, len))
            continue;
        n += event->nsamples > 0;
        event->nsamples = 0;
        event->max_ms = 0;
    }
    pthread_mutex_unlock(&latency->lock);
    return n;
}

/* ---- drawing --------------------------------------------------------------------------------------------------------- */

#define DRAW_COLUMNS 80
#define DRAW_LEVELS  12 /* four lines of three heights each: '_', 'o' and '#' stand for low, middle and full */
#define DRAW_LINES   4

static void append(struct buf *out, const char *text)
{
    buf_append(out, text, strlen(text));
}

/* How long ago, in two or three characters: "9s", "15m", "3h", "12d". */
static void age_text(int64_t seconds, char *text_out, size_t size)
{
    static const struct {
        int64_t seconds;
        char unit;
    } units[] = {{86400, 'd'}, {3600, 'h'}, {60, 'm'}, {1, 's'}};
    size_t i = 0;

    while (i < 3 && seconds < units[i].seconds)
        i++;
    snprintf(text_out, size, "%" PRId64 "%c", seconds / units[i].seconds, units[i].unit);
}

static void draw_bars(const struct latency_sample *samples, size_t n, int64_t low_ms, int64_t high_ms, struct buf *out)
{
    static const char heights[] = " _o#";

    for (int line = DRAW_LINES - 1; line >= 0; line--) {
        for (size_t i = 0; i < n; i++) {
            int64_t range = high_ms - low_ms;
            int64_t level = 1 + (range > 0 ? (samples[i].ms - low_ms) * (DRAW_LEVELS - 1) / range : 0);
            int64_t here = level - (int64_t)line * (DRAW_LEVELS / DRAW_LINES);
            buf_append(out, &heights[here < 0 ? 0 : here > 3 ? 3 : here], 1);
        }
        append(out, "\n");
    }
}

/* The age of each sample, one character below the other. */
static void draw_ages(const struct latency_sample *samples, size_t n, int64_t now_sec, struct buf *out)
{
    char ages[DRAW_COLUMNS][24];
    size_t longest = 0;

    for (size_t i = 0; i < n; i++) {
        age_text(now_sec > samples[i].time_sec ? now_sec - samples[i].time_sec : 0, ages[i], sizeof(ages[i]));
        if (strlen(ages[i]) > longest)
            longest = strlen(ages[i]);
    }
    append(out, "\n");
    for (size_t line = 0; line < longest; line++) {
        for (size_t i = 0; i < n; i++)
            buf_append(out, line < strlen(ages[i]) ? &ages[i][line] : " ", 1);
        append(out, "\n");
    }
}

void latency_draw(const struct latency_event *event, int64_t now_sec, struct buf *out)
{
    int64_t low_ms = INT64_MAX, high_ms = 0;
    char text[256];

    for (size_t i = 0; i < event->nsamples; i++) {
        low_ms = event->samples[i].ms < low_ms ? event->samples[i].ms : low_ms;
        high_ms = event->samples[i].ms > high_ms ? event->samples[i].ms : high_ms;
    }
    snprintf(text, sizeof(text), "%s - high %" PRId64 " ms, low %" PRId64 " ms (all time high %" PRId64 " ms)\n",
             event->name, high_ms, event->nsamples > 0 ? low_ms : 0, event->max_ms);
    append(out, text);
    for (int i = 0; i < DRAW_COLUMNS; i++)
        append(out, "-");
    append(out, "\n");
    for (size_t i = 0; i < event->nsamples; i += DRAW_COLUMNS) {
        size_t n = event->nsamples - i < DRAW_COLUMNS ? event->nsamples - i : DRAW_COLUMNS;
        draw_bars(event->samples + i, n, low_ms, high_ms, out);
        draw_ages(event->samples + i, n, now_sec, out);
    }
}
