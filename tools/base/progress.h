/* progress: a progress line on stderr, if that is a terminal. Thread: one. */
#ifndef BLOOMERY_TOOL_PROGRESS_H
#define BLOOMERY_TOOL_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress {
    const char *what;
    uint64_t total; /* bytes; 0: unknown */
    uint64_t done;
    bool shows, shown;
    int64_t begun_ms, last_ms;
};

/* `what` ("reading") is borrowed. */
void progress_begin(struct progress *progress, const char *what, uint64_t total);

/* Tells the bytes done since the beginning. May be called often: the line changes ten times a second. */
void progress_update(struct progress *progress, uint64_t done);
void progress_add(struct progress *progress, uint64_t bytes); /* the same by steps */

/* Erases the line until the next update; for other output. */
void progress_hide(struct progress *progress);
void progress_end(struct progress *progress); /* erases the line */

#endif
